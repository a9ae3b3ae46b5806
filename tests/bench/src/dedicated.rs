//! Dedicated pairs: time to ready, memory of both processes, time until a killed apiserver serves again.

use crate::options::Options;
use crate::process;
use crate::projects::Projects;
use crate::report::{Report, Value};
use crate::stats::Samples;
use crate::subject::{Kind, Subject};
use anyhow::{Context, Result, ensure};
use freehold_client::{Client, Resource};
use rustix::process::{Pid, Signal, kill_process};
use std::time::{Duration, Instant};

/// How many pairs are made, one after the other.
const PAIRS: usize = 3;
const TITLE: &str = "Dedicated pairs, made one after the other";
const NAMESPACES: Resource = Resource::cluster("", "v1", "namespaces");
/// How often a killed apiserver is asked whether it is back.
const POLL: Duration = Duration::from_millis(10);
/// How long that may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Measures dedicated pairs.
pub(crate) async fn measure(kind: Kind, options: &Options, report: &mut Report) -> Result<()> {
    let subject = Subject::start(kind, options)?;
    let server = *subject.pids().first().context("a server that was started has a process")?;
    let projects = Projects::open(subject.root()).await?;
    let mut times = Vec::new();
    for index in 0..PAIRS {
        let made = projects.make(&format!("own-{index}"), "Dedicated").await;
        times.push(subject.explain(made)?);
    }
    report.add(TITLE, "created to Ready, the first", kind, Value::Time(times[0]));
    let times: Samples = times.into_iter().collect();
    report.add(TITLE, format!("created to Ready, median of {PAIRS}"), kind, Value::Time(times.median()));

    let pair = processes(server);
    ensure!(pair.len() == 2 * PAIRS, "{} processes run, not {}", pair.len(), 2 * PAIRS);
    for program in ["apiserver", "controller-manager"] {
        let pid = pair.iter().find(|(_, name)| name == program).context(program)?.0;
        let memory = process::memory_at_rest(pid).await;
        if options.maps {
            process::print_maps(pid);
        }
        report.add(TITLE, format!("{program}, resident"), kind, Value::Bytes(memory.resident));
        let proportional = Value::Bytes(memory.proportional);
        report.add(TITLE, format!("{program}, with shared pages divided"), kind, proportional);
    }
    let back = restart(&subject.root(), server).await?;
    report.add(TITLE, "answers again after kill -9 of its apiserver", kind, Value::Time(back));
    let gone = projects.delete("own-0").await?;
    report.add(TITLE, "deleted", kind, Value::Time(gone));
    Ok(())
}

/// The programs of all pairs, as the server's children, oldest first.
fn processes(server: u32) -> Vec<(u32, String)> {
    let mut found: Vec<(u32, String)> = process::children(server)
        .into_iter()
        .filter_map(|(pid, line)| Some((pid, line.into_iter().nth(1)?)))
        .collect();
    found.sort_unstable();
    found
}

/// Kills the first pair's apiserver; the time until the project answers again.
async fn restart(root: &Client, server: u32) -> Result<Duration> {
    let plane = root.get(&crate::watchers::PROJECTS, None, "own-0").await?;
    let uid = plane["metadata"]["uid"].as_str().context("a project has a uid")?.to_owned();
    let is_it = |line: &[String]| {
        line.get(1).is_some_and(|a| a == "apiserver") && line.iter().any(|arg| arg.contains(&uid))
    };
    let children = process::children(server);
    let pid = children.iter().find(|(_, line)| is_it(line)).context("the pair's apiserver")?.0;
    let client = root.at("/projects/own-0");
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
