//! Requests: sent one after the other or several at a time, and what they cost.

use crate::report::Value;
use crate::stats::Samples;
use crate::subject::Subject;
use anyhow::{Context, Result};
use freehold_client::{Client, RawRequest};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use std::time::{Duration, Instant};

/// What a number of requests cost.
pub(crate) struct Cost {
    /// Each one's time, from sending it until its answer is there.
    pub(crate) each: Samples,
    /// CPU of all server processes for each; `None` where they are not known.
    pub(crate) cpu: Option<Value>,
    /// How many a second.
    pub(crate) rate: Value,
}

/// Sends requests, `concurrency` at a time. Each has to succeed.
pub(crate) async fn send(
    subject: &Subject,
    requests: impl IntoIterator<Item = (Client, RawRequest)>,
    concurrency: usize,
) -> Result<Cost> {
    let requests: Vec<_> = requests.into_iter().collect();
    let cpu = subject.cpu()?;
    let begun = Instant::now();
    let times =
        stream::iter(&requests).map(|(client, request)| timed(client, request)).buffer_unordered(concurrency);
    let times: Result<Vec<Duration>> = times.try_collect().await;
    let times = subject.explain(times)?;
    let rate = Value::Rate(times.len() as f64 / begun.elapsed().as_secs_f64());
    Ok(Cost { cpu: subject.cpu_each(cpu, times.len())?, each: times.into_iter().collect(), rate })
}

/// Sends a load with one client for all requests.
pub(crate) async fn send_all(
    subject: &Subject,
    client: &Client,
    requests: impl Iterator<Item = RawRequest>,
    concurrency: usize,
) -> Result<Cost> {
    send(subject, requests.map(|request| (client.clone(), request)), concurrency).await
}

/// Sends the requests of two sides one after the other, in turns, so that both meet the machine in the same state. Gives
/// what each cost.
pub(crate) async fn in_turns(subject: &Subject, sides: [Vec<(Client, RawRequest)>; 2]) -> Result<[Cost; 2]> {
    let size = sides[0].len().div_ceil(TURNS).max(1);
    let mut totals = [Total::default(), Total::default()];
    for (one, other) in sides[0].chunks(size).zip(sides[1].chunks(size)) {
        for (side, total) in [one, other].into_iter().zip(&mut totals) {
            let (cpu, begun) = (subject.cpu()?, Instant::now());
            for (client, request) in side {
                total.times.push(subject.explain(timed(client, request).await)?);
            }
            total.took += begun.elapsed();
            let used = subject.cpu()?.zip(cpu).map(|(now, before)| now.saturating_sub(before));
            total.cpu = used.map(|used| total.cpu.unwrap_or_default() + used);
        }
    }
    Ok(totals.map(Total::cost))
}

/// Turns that two sides take.
const TURNS: usize = 10;

/// What all turns of a side took.
#[derive(Default)]
struct Total {
    times: Vec<Duration>,
    took: Duration,
    cpu: Option<Duration>,
}

impl Total {
    fn cost(self) -> Cost {
        let count = self.times.len().max(1) as f64;
        let rate = Value::Rate(count / self.took.as_secs_f64());
        let cpu = self.cpu.map(|cpu| Value::Cpu(cpu.div_f64(count)));
        Cost { each: self.times.into_iter().collect(), cpu, rate }
    }
}

async fn timed(client: &Client, request: &RawRequest) -> Result<Duration> {
    let begun = Instant::now();
    client.request(request).await.with_context(|| format!("{} {}", request.method, request.path))?;
    Ok(begun.elapsed())
}
