//! A server without projects: memory, start, and the CPU that it uses while nobody asks anything.

use crate::report::{Report, Value};
use crate::stats::Samples;
use crate::world::World;
use crate::{Options, process};
use anyhow::Result;
use std::time::Duration;

/// How often it is started in each way.
const STARTS: usize = 5;
/// How long it is watched doing nothing.
const IDLE: Duration = Duration::from_secs(10);
const MEMORY_BOUND: Value = Value::Bytes(60_000_000);
const START_BOUND: Value = Value::Time(Duration::from_secs(1));

/// Measures an idle server.
pub(crate) async fn measure(options: &Options, report: &mut Report) -> Result<()> {
    report.section("Idle: core and infra planes, no projects");
    let mut fresh = Vec::new();
    for _ in 1..STARTS {
        fresh.push(World::start(options)?.started_in());
    }
    let mut world = World::start(options)?;
    fresh.push(world.started_in());
    let fresh: Samples = fresh.into_iter().collect();
    report.add_bound(
        "start on an empty data directory, median of 5",
        Value::Time(fresh.median()),
        START_BOUND,
    );

    let memory = world.memory(options, "after the first start").await;
    report.add_bound("resident memory after the first start", Value::Bytes(memory.resident), MEMORY_BOUND);
    report.add("of which heap and stacks", Value::Bytes(memory.anonymous));
    report.add("threads", Value::Count(process::threads(world.pid())));
    let before = process::cpu(world.pid());
    tokio::time::sleep(IDLE).await;
    let used = process::cpu(world.pid()).saturating_sub(before);
    report.add("CPU time in 10 s of rest", Value::Time(used));
    report.add("disk", Value::Bytes(world.disk()));

    let mut again = Vec::new();
    for _ in 0..STARTS {
        world.restart();
        again.push(world.started_in());
    }
    let again: Samples = again.into_iter().collect();
    report.add_bound("start on its data directory, median of 5", Value::Time(again.median()), START_BOUND);
    let memory = world.memory(options, "after a restart").await;
    report.add_bound("resident memory after a restart", Value::Bytes(memory.resident), MEMORY_BOUND);
    Ok(())
}
