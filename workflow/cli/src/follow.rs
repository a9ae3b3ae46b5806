//! Logs of a run as they come.

use crate::{RUNS, show};
use anyhow::Result;
use freehold_client::{Client, RawRequest};
use freehold_machinery::{Value, meta};
use freehold_workflow_api::names;
use futures_util::StreamExt as _;
use std::collections::HashSet;
use std::time::Duration;
use tokio::task::JoinSet;

/// How often is looked for containers that began.
const POLL: Duration = Duration::from_millis(100);
/// Bytes of a line that is printed before its end has come.
const MAX_LINE: usize = 64 << 10;

/// Prints the logs of all containers of a run, each from its beginning, until the run and they are over.
///
/// # Errors
/// A run that is not there, and a plane that can't be asked.
pub(crate) async fn logs(client: &Client, namespace: &str, name: &str, task: Option<&str>) -> Result<()> {
    let (mut seen, mut streams) = (HashSet::new(), JoinSet::new());
    loop {
        let run = client.get(&RUNS, Some(namespace), name).await?;
        let is_over = run["status"]["finishedAt"].is_string();
        for pod in show::pods(client, namespace, &run, task).await? {
            for container in began(&pod) {
                if !seen.insert((meta::uid(&pod).to_owned(), container.clone())) {
                    continue;
                }
                let path = format!(
                    "/api/v1/namespaces/{namespace}/pods/{}/log?follow=true&container={container}",
                    meta::name(&pod)
                );
                let task = meta::label(&pod, names::TASK).unwrap_or_default();
                streams.spawn(print(client.clone(), path, format!("{task} {container}")));
            }
        }
        while let Some(ended) = streams.try_join_next() {
            told(ended?);
        }
        if is_over {
            break;
        }
        tokio::time::sleep(POLL).await;
    }
    while let Some(ended) = streams.join_next().await {
        told(ended?);
    }
    Ok(())
}

/// A log that broke off ends no other.
fn told(ended: Result<()>) {
    if let Err(error) = ended {
        eprintln!("{error:#}");
    }
}

/// The containers of a Pod that have a log.
pub(crate) fn began(pod: &Value) -> Vec<String> {
    let statuses = pod["status"]["containerStatuses"].as_array().into_iter().flatten();
    let began = statuses.filter(|status| status["state"]["waiting"].is_null() && status["state"].is_object());
    began.filter_map(|status| status["name"].as_str().map(str::to_owned)).collect()
}

/// Prints whole lines, so that those of several containers do not mix.
async fn print(client: Client, path: String, title: String) -> Result<()> {
    let mut stream = Box::pin(
        client.download(&RawRequest { accept: "*/*", ..RawRequest::get(path) }).await?.into_stream(),
    );
    let mut rest = Vec::new();
    while let Some(chunk) = stream.next().await {
        rest.extend_from_slice(&chunk?);
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            println!("{title}: {}", String::from_utf8_lossy(&line[..end]));
        }
        if rest.len() > MAX_LINE {
            println!("{title}: {}", String::from_utf8_lossy(&std::mem::take(&mut rest)));
        }
    }
    if !rest.is_empty() {
        println!("{title}: {}", String::from_utf8_lossy(&rest));
    }
    Ok(())
}
