//! The audit log's policies and sinks, as settings name them.

use anyhow::{Context, Result};
use async_trait::async_trait;
use bytes::Bytes;
use freehold_apiserver_audit::{
    Auditor, Batch, Counters, Deliver, Files, Mode, Policy, Rotation, Sink, Trail, Written,
};
use freehold_client::{Client, Config as ClientConfig, RawRequest};
use http::Method;
use ipnet::IpNet;
use prometheus_client::registry::Registry;
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// How events of organizations are collected for the store.
const TRAIL: Batch = Batch {
    buffer: 20_000,
    max_size: 1_000,
    max_wait: Duration::from_secs(1),
    throttle: None,
    at_once: 1,
    retry: Some(Duration::from_secs(1)),
    truncate: None,
};

/// What is recorded of requests, and where.
#[derive(Clone, Debug, Default)]
pub struct AuditConfig {
    /// The policy of the log and the webhook, a file; without it they get nothing.
    pub policy: Option<PathBuf>,
    /// The log.
    pub log: Option<AuditLog>,
    /// The webhook.
    pub webhook: Option<AuditWebhook>,
    /// Whether the events of each organization are kept for its owner.
    pub trail: bool,
    /// Networks of proxies whose `X-Forwarded-For` counts.
    pub proxies: Vec<IpNet>,
}

/// A file of events.
#[derive(Clone, Debug)]
pub struct AuditLog {
    /// Where; `-` is standard output.
    pub path: PathBuf,
    /// When it is replaced.
    pub rotation: Rotation,
    /// Whether events are lines of text in place of JSON.
    pub legacy: bool,
    /// Whether requests wait for it.
    pub mode: Mode,
    /// How events are collected.
    pub batch: Batch,
}

/// A server that is sent events.
#[derive(Clone, Debug)]
pub struct AuditWebhook {
    /// The kubeconfig that says where it is.
    pub config: PathBuf,
    /// Whether requests wait for it.
    pub mode: Mode,
    /// How events are collected.
    pub batch: Batch,
}

impl AuditConfig {
    /// Who makes events; `None` where nothing is recorded.
    pub(crate) fn build(
        &self,
        trail: Option<&Arc<Trail>>,
        registry: &mut Registry,
    ) -> Result<Option<Arc<Auditor>>> {
        let counters = Counters::register(registry);
        let mut auditor = Auditor::new(counters.clone());
        let sinks = self.sinks(&counters)?;
        let records = self.policy.is_some() && !sinks.is_empty();
        if let Some(path) = self.policy.as_ref() {
            auditor = auditor.with(policy(path)?, sinks);
        }
        if let Some(trail) = trail {
            let sink = Sink::start("trail", trail.clone(), Mode::Batch, TRAIL, counters);
            auditor = auditor.with_organizations(Trail::policy()?, sink);
        }
        Ok((records || trail.is_some()).then(|| Arc::new(auditor)))
    }

    fn sinks(&self, counters: &Counters) -> Result<Vec<Arc<Sink>>> {
        let mut sinks = Vec::new();
        if self.policy.is_none() {
            return Ok(sinks);
        }
        if let Some(log) = &self.log {
            let files = match log.path.as_os_str() == "-" {
                true => Files::output(log.legacy),
                false => Files::open(&log.path, log.rotation, log.legacy)
                    .with_context(|| format!("--audit-log-path {}", log.path.display()))?,
            };
            sinks.push(Sink::start("log", Arc::new(files), log.mode, log.batch.clone(), counters.clone()));
        }
        if let Some(hook) = &self.webhook {
            let named = || format!("--audit-webhook-config-file {}", hook.config.display());
            let config = ClientConfig::from_kubeconfig(&hook.config).with_context(named)?;
            let webhook = Arc::new(Webhook(Client::new(&config).with_context(named)?));
            sinks.push(Sink::start("webhook", webhook, hook.mode, hook.batch.clone(), counters.clone()));
        }
        Ok(sinks)
    }
}

fn policy(path: &Path) -> Result<Policy> {
    let named = || format!("--audit-policy-file {}", path.display());
    let text = std::fs::read_to_string(path).with_context(named)?;
    Policy::parse(&text).with_context(named)
}

/// A server that is sent lists of events.
struct Webhook(Client);

#[async_trait]
impl Deliver for Webhook {
    async fn deliver(&self, events: &[Written]) -> Result<(), String> {
        const HEAD: &[u8] = br#"{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":["#;
        let size: usize = events.iter().map(|event| event.json.len() + 1).sum();
        let mut body = Vec::with_capacity(HEAD.len() + size + 3);
        body.extend_from_slice(HEAD);
        for (at, event) in events.iter().enumerate() {
            if at > 0 {
                body.push(b',');
            }
            body.extend_from_slice(&event.json);
        }
        body.extend_from_slice(b"]}\n");
        let request = RawRequest { body: Bytes::from(body), ..RawRequest::new(Method::POST, "") };
        let answer = self.0.once(&request).await.map_err(|error| error.to_string())?;
        match answer.status.is_success() {
            true => Ok(()),
            false => Err(format!("the webhook answered {}", answer.status)),
        }
    }
}
