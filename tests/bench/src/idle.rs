//! A server that nobody uses: start, memory, and the CPU that it takes.

use crate::options::Options;
use crate::report::{Report, Value};
use crate::stats::Samples;
use crate::subject::{Kind, Subject};
use crate::{goals, process};
use anyhow::Result;
use std::time::Duration;

/// How often it is started in each way.
const STARTS: usize = 3;
/// How long it is watched doing nothing.
const IDLE: Duration = Duration::from_secs(10);
const TITLE: &str = "Idle, without projects";

/// Measures one server.
pub(crate) async fn measure(kind: Kind, options: &Options, report: &mut Report) -> Result<()> {
    let mut subject = Subject::start(kind, options)?;
    let mut fresh: Vec<Duration> = subject.started_in().into_iter().collect();
    while !fresh.is_empty() && fresh.len() < STARTS {
        drop(subject);
        subject = Subject::start(kind, options)?;
        fresh.extend(subject.started_in());
    }
    let median = |times: Vec<Duration>| {
        let times: Samples = times.into_iter().collect();
        (times.len() > 0).then(|| Value::Time(times.median()))
    };
    report.add(TITLE, format!("start on an empty store, median of {STARTS}"), kind, median(fresh));
    let memory = subject.memory(options).await?;
    report.add(TITLE, "resident memory of the server", kind, memory.map(|m| Value::Bytes(m.resident)));
    report.reach(&goals::IDLE, kind, memory.map(|m| Value::Bytes(m.resident)));
    report.add(TITLE, "of which heap and stacks", kind, memory.map(|m| Value::Bytes(m.anonymous)));
    let pids = subject.pids();
    if let [server, rest @ ..] = pids.as_slice() {
        let threads = process::threads(*server);
        report.add(TITLE, "threads of the server", kind, Value::Count(threads));
        if !rest.is_empty() {
            let etcd = rest.iter().map(|pid| process::memory(*pid).resident).sum();
            report.add(TITLE, "resident memory of its etcd", kind, Value::Bytes(etcd));
        }
    }
    let before = subject.cpu()?;
    tokio::time::sleep(IDLE).await;
    let used = subject.cpu()?.zip(before).map(|(now, before)| Value::Time(now.saturating_sub(before)));
    report.add(TITLE, "CPU time in 10 s of rest", kind, used);
    report.add(TITLE, "disk", kind, subject.disk().map(Value::Bytes));
    let mut again = Vec::new();
    while again.len() < STARTS && subject.restart() {
        again.extend(subject.started_in());
    }
    report.add(TITLE, format!("start on its store, median of {STARTS}"), kind, median(again));
    Ok(())
}
