//! Dedicated pairs: time to ready, memory of both processes, time until a killed apiserver serves again.

use crate::projects::Projects;
use crate::report::{Report, Value};
use crate::stats::Samples;
use crate::world::World;
use crate::{Options, process};
use anyhow::{Context, Result, ensure};
use freehold_client::{Client, Resource};
use rustix::process::{Pid, Signal, kill_process};
use std::time::{Duration, Instant};

/// How many pairs are made, one after the other.
const PAIRS: usize = 3;
const READY_BOUND: Value = Value::Time(Duration::from_secs(2));
const MEMORY_BOUND: Value = Value::Bytes(80_000_000);
const NAMESPACES: Resource = Resource::cluster("", "v1", "namespaces");
/// How often a killed apiserver is asked whether it is back.
const POLL: Duration = Duration::from_millis(10);
/// How long that may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Measures dedicated pairs.
pub(crate) async fn measure(options: &Options, report: &mut Report) -> Result<()> {
    report.section(format!("Dedicated pairs: {PAIRS}, one after the other"));
    let world = World::start(options)?;
    let projects = Projects::open(world.client()).await?;
    let mut times = Vec::new();
    for index in 0..PAIRS {
        times.push(projects.make(&format!("own-{index}"), "Dedicated").await?);
    }
    report.add("created to Ready, the first", Value::Time(times[0]));
    let times: Samples = times.into_iter().collect();
    report.add_bound("created to Ready, median", Value::Time(times.median()), READY_BOUND);

    let pair = processes(&world);
    ensure!(pair.len() == 2 * PAIRS, "{} processes run, not {}", pair.len(), 2 * PAIRS);
    let mut resident = 0;
    for program in ["apiserver", "controller-manager"] {
        let pid = pair.iter().find(|(_, name)| name == program).context(program)?.0;
        let memory = process::memory_at_rest(pid).await;
        if options.maps {
            process::print_maps(pid);
        }
        resident += memory.resident;
        report.add(format!("{program}, resident"), Value::Bytes(memory.resident));
        report.add(format!("{program}, of which heap and stacks"), Value::Bytes(memory.anonymous));
        report.add(format!("{program}, with shared pages divided"), Value::Bytes(memory.proportional));
    }
    report.add_bound("resident memory of both", Value::Bytes(resident), MEMORY_BOUND);
    report.add("answers again after kill -9 of its apiserver", Value::Time(restart(&world).await?));
    let gone = projects.delete("own-0").await?;
    report.add("deleted", Value::Time(gone));
    Ok(())
}

/// The programs of all pairs, as the server's children, oldest first.
fn processes(world: &World) -> Vec<(u32, String)> {
    let mut found: Vec<(u32, String)> = process::children(world.pid())
        .into_iter()
        .filter_map(|(pid, line)| Some((pid, line.into_iter().nth(1)?)))
        .collect();
    found.sort_unstable();
    found
}

/// Kills the first pair's apiserver; the time until the project answers again.
async fn restart(world: &World) -> Result<Duration> {
    let plane = world.client().get(&crate::watchers::PROJECTS, None, "own-0").await?;
    let uid = plane["metadata"]["uid"].as_str().context("a project has a uid")?.to_owned();
    let is_it = |line: &[String]| {
        line.get(1).is_some_and(|a| a == "apiserver") && line.iter().any(|arg| arg.contains(&uid))
    };
    let children = process::children(world.pid());
    let pid = children.iter().find(|(_, line)| is_it(line)).context("the pair's apiserver")?.0;
    let client = world.client().at("/projects/own-0");
    client.get(&NAMESPACES, None, "default").await?;
    let begun = Instant::now();
    kill_process(i32::try_from(pid).ok().and_then(Pid::from_raw).context("a process id")?, Signal::KILL)?;
    while !answers(&client).await {
        ensure!(begun.elapsed() < PATIENCE, "the apiserver did not come back within {PATIENCE:?}");
        tokio::time::sleep(POLL).await;
    }
    Ok(begun.elapsed())
}

async fn answers(client: &Client) -> bool {
    client.get(&NAMESPACES, None, "default").await.is_ok()
}
