//! Controllers of workflows, in a process of their own over one project, with Pods that a kubelet in this process ends at once.

mod kubelet;
mod place;
mod schedules;

use crate::goals;
use crate::options::Options;
use crate::process;
use crate::report::{Report, Value};
use crate::stats::Samples;
use crate::subject::Kind;
use anyhow::Result;
use kubelet::Kubelet;
use place::{Place, chain, fan, single};
use std::time::{Duration, Instant};

/// Runs that wait while there are no controllers.
const QUEUED: usize = 5000;
/// Tasks of a chain whose steps are timed one after another.
const STEPS: usize = 50;
/// Tasks of small runs.
const SMALL: usize = 10;

/// Measures one server.
pub(crate) async fn measure(kind: Kind, options: &Options, report: &mut Report) -> Result<()> {
    if options.runs > 0 {
        throughput(kind, options, report).await?;
        queue(kind, options, report).await?;
    }
    if options.chains > 0 {
        steps(kind, options, report).await?;
    }
    if options.tasks > 0 {
        sizes(kind, options, report).await?;
    }
    if options.live_runs > 0 {
        memory(kind, options, report).await?;
    }
    if options.schedules > 0 {
        schedules::measure(kind, options, report).await?;
    }
    Ok(())
}

/// Runs of one Pod, as fast as they are made, and what each costs.
async fn throughput(kind: Kind, options: &Options, report: &mut Report) -> Result<()> {
    let place = Place::start(kind, options).await?;
    let kubelet = Kubelet::start(&place, true)?;
    let controllers = place.controllers()?;
    place.define("one", single()).await?;
    // The definition is written once; the first run makes what all of them share.
    place.runs("first", "one", 1).await?;
    place.over("one", 1).await?;
    let (before, cpu, began) = (place.revision().await?, controllers.cpu()?, Instant::now());
    let (server_cpu, ended) = (place.subject.cpu()?, kubelet.ended());
    place.runs("many", "one", options.runs).await?;
    place.over("one", options.runs + 1).await?;
    let took = began.elapsed();
    let title = format!("Workflows: {} runs of one Pod", options.runs);
    let rate = Value::Rate(options.runs as f64 / took.as_secs_f64());
    report.add(&title, "runs", kind, rate);
    report.reach(&goals::WORKFLOW_RATE, kind, rate);
    place.settled().await?;
    // One write of each run makes it, and one of each Pod ends it: those are ours.
    let own = options.runs as u64 + (kubelet.ended() - ended) as u64;
    let writes = (place.revision().await? - before).saturating_sub(own) as f64 / options.runs as f64;
    report.add(
        &title,
        "writes of the controllers for a run, in hundredths",
        kind,
        Value::Count((writes * 100.0) as usize),
    );
    let each = |cpu: Duration| Value::Cpu(cpu.div_f64(options.runs as f64));
    report.add(
        &title,
        "CPU of the controllers for a run",
        kind,
        each(controllers.cpu()?.saturating_sub(cpu)),
    );
    let server = place.subject.cpu()?.zip(server_cpu).map(|(now, before)| each(now.saturating_sub(before)));
    report.add(&title, "CPU of the server for a run", kind, server);
    Ok(())
}

/// Runs that were there before any controller.
async fn queue(kind: Kind, options: &Options, report: &mut Report) -> Result<()> {
    let count = QUEUED.min(options.runs);
    let place = Place::start(kind, options).await?;
    let _kubelet = Kubelet::start(&place, true)?;
    place.define("one", single()).await?;
    place.runs("queued", "one", count).await?;
    let began = Instant::now();
    let _controllers = place.controllers()?;
    place.over("one", count).await?;
    let took = Value::Time(began.elapsed());
    report.add(&format!("Workflows: {count} runs that wait"), "until all are over", kind, took);
    if count == goals::size::QUEUED_RUNS {
        report.reach(&goals::WORKFLOW_QUEUE, kind, took);
    }
    Ok(())
}

/// From one task's end to the creation of the next task's Pod.
async fn steps(kind: Kind, options: &Options, report: &mut Report) -> Result<()> {
    let place = Place::start(kind, options).await?;
    let kubelet = Kubelet::start(&place, true)?;
    let _controllers = place.controllers()?;
    place.define("chain", chain(STEPS)).await?;
    for round in 1..=options.chains {
        place.runs(&format!("round-{round}"), "chain", 1).await?;
        place.over("chain", round).await?;
    }
    let gaps = kubelet.gaps();
    if let Some(longest) = gaps.iter().max() {
        report.add(
            "Workflows: one run of tasks after each other",
            "the longest of these steps",
            kind,
            Value::Time(*longest),
        );
    }
    let samples: Samples = gaps.into_iter().collect();
    let title = "Workflows: one run of tasks after each other";
    report.add(title, "from a task's end to the next Pod, median / p99", kind, Value::spread(&samples));
    report.reach(&goals::WORKFLOW_NEXT, kind, Value::Time(samples.p99()));
    Ok(())
}

/// CPU for a task of a large run beside tasks of small ones.
async fn sizes(kind: Kind, options: &Options, report: &mut Report) -> Result<()> {
    let mut each = Vec::new();
    for (tasks, runs) in [(SMALL, (options.tasks / SMALL / 10).clamp(1, 1000)), (options.tasks, 1)] {
        let place = Place::start(kind, options).await?;
        let _kubelet = Kubelet::start(&place, true)?;
        let controllers = place.controllers()?;
        place.define("fan", fan(tasks)).await?;
        let (cpu, began) = (controllers.cpu()?, Instant::now());
        place.runs("fan", "fan", runs).await?;
        place.over("fan", runs).await?;
        let cpu = controllers.cpu()?.saturating_sub(cpu).div_f64((tasks * runs) as f64);
        let title = format!("Workflows: {runs} runs of {tasks} tasks");
        report.add(&title, "until all are over", kind, Value::Time(began.elapsed()));
        report.add(&title, "CPU of the controllers for a task", kind, Value::Cpu(cpu));
        report.add(
            &title,
            "resident memory of the controllers",
            kind,
            Value::Bytes(process::memory(controllers.pid()).resident),
        );
        each.push(cpu);
    }
    let more = Value::Percent((each[1].as_secs_f64() / each[0].as_secs_f64().max(1e-9) - 1.0) * 100.0);
    report.add("Workflows: large runs", "CPU for a task, more than in small ones", kind, more);
    if options.tasks == goals::size::TASKS {
        report.reach(&goals::WORKFLOW_LARGE, kind, more);
    }
    Ok(())
}

/// Runs that stay under way.
async fn memory(kind: Kind, options: &Options, report: &mut Report) -> Result<()> {
    let place = Place::start(kind, options).await?;
    let kubelet = Kubelet::start(&place, false)?;
    let controllers = place.controllers()?;
    let empty = process::memory_at_rest(controllers.pid()).await.resident;
    place.define("chain", chain(SMALL)).await?;
    place.runs("live", "chain", options.live_runs).await?;
    kubelet.created(options.live_runs).await?;
    let resident = process::memory_at_rest(controllers.pid()).await.resident;
    let title = format!("Workflows: {} live runs of {SMALL} tasks", options.live_runs);
    report.add(&title, "resident memory of the controllers", kind, Value::Bytes(resident));
    report.add(
        &title,
        "of that for a run",
        kind,
        Value::Bytes((resident - empty) / options.live_runs.max(1) as i64),
    );
    if options.live_runs == goals::size::LIVE_RUNS {
        report.reach(&goals::WORKFLOW_MEMORY, kind, Value::Bytes(resident));
    }
    Ok(())
}
