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

/// The same with one client for all.
pub(crate) async fn send_all(
    subject: &Subject,
    client: &Client,
    requests: impl Iterator<Item = RawRequest>,
    concurrency: usize,
) -> Result<Cost> {
    send(subject, requests.map(|request| (client.clone(), request)), concurrency).await
}

async fn timed(client: &Client, request: &RawRequest) -> Result<Duration> {
    let begun = Instant::now();
    client.request(request).await.with_context(|| format!("{} {}", request.method, request.path))?;
    Ok(begun.elapsed())
}
