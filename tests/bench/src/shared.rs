//! Shared projects: time to ready, memory and disk of each, and what is left after them.

use crate::projects::{Outcome, Projects};
use crate::report::{Report, Value};
use crate::world::World;
use crate::{Options, process};
use anyhow::Result;
use freehold_client::{ListOptions, Resource};
use std::time::Duration;

const READY_BOUND: Value = Value::Time(Duration::from_millis(100));
const MEMORY_BOUND: Value = Value::Bytes(64_000);
const CONFIGMAPS: Resource = Resource::namespaced("", "v1", "configmaps");

/// Measures shared projects.
pub(crate) async fn measure(options: &Options, report: &mut Report) -> Result<()> {
    let count = options.projects;
    report.section(format!("Shared projects: {count} of one organization"));
    let world = World::start(options)?;
    let projects = Projects::open(world.client()).await?;
    // What the first project makes the server load is no cost of each.
    projects.make("first", "Shared").await?;
    let before = (world.memory(options, "with one project").await, world.disk());

    let names: Vec<String> = (0..count).map(|i| format!("one-{i}")).collect();
    let cpu = process::cpu(world.pid());
    let made = projects.make_all(&names, 1).await?;
    let cpu = process::cpu(world.pid()).saturating_sub(cpu);
    report.add_bound(
        "created to Ready, one after the other, median",
        Value::Time(made.each.median()),
        READY_BOUND,
    );
    report.add("created to Ready, one after the other, p99", Value::Time(made.each.p99()));
    report.add("server CPU for each", Value::Time(cpu / per(count)));
    let memory = world.memory(options, "with all projects").await;
    let each = |grown: i64| Value::Bytes(grown / i64::from(per(count)));
    report.add_bound("resident memory of each", each(memory.resident - before.0.resident), MEMORY_BOUND);
    report.add("disk of each", each(world.disk() - before.1));

    read_all(&world, &names).await?;
    let used = world.memory(options, "with all projects in use").await;
    report.add("resident memory of each after a list in each", each(used.resident - before.0.resident));

    after(options, report, &world, before.0, projects.delete_all(&names, options.concurrency).await?).await;
    let names: Vec<String> = (0..count).map(|i| format!("many-{i}")).collect();
    let made = projects.make_all(&names, options.concurrency).await?;
    report.add(format!("made, {} at a time", options.concurrency), Value::Rate(made.rate()));
    report.add_samples(&format!("created to Ready, {} at a time", options.concurrency), &made.each);
    projects.delete_all(&names, options.concurrency).await?;
    // Buffers and rings are full by now: what grows from one round to the next is a leak.
    let again = world.memory(options, "after all were deleted again").await;
    report.add("resident memory of the server after doing it all again", Value::Bytes(again.resident));
    Ok(())
}

fn per(count: usize) -> u32 {
    u32::try_from(count.max(1)).unwrap_or(u32::MAX)
}

/// Lists something in each project, as its users would.
async fn read_all(world: &World, names: &[String]) -> Result<()> {
    let client = world.client();
    for name in names {
        client.at(&format!("/projects/{name}")).list(&CONFIGMAPS, None, &ListOptions::default()).await?;
    }
    Ok(())
}

async fn after(
    options: &Options,
    report: &mut Report,
    world: &World,
    before: process::Memory,
    gone: Outcome,
) {
    report.add(format!("deleted, {} at a time", options.concurrency), Value::Rate(gone.rate()));
    let memory = world.memory(options, "after all were deleted").await;
    report.add(
        "resident memory that stays after deleting all",
        Value::Bytes(memory.resident - before.resident),
    );
    report.add("resident memory of the server then", Value::Bytes(memory.resident));
}
