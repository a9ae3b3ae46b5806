//! Flags of the audit log, under kube-apiserver's names.

use anyhow::{Result, ensure};
use freehold_apiserver::{
    AuditBatch, AuditConfig, AuditLog, AuditMode, AuditRotation, AuditTruncate, AuditWebhook,
};
use std::{path::PathBuf, time::Duration};

/// What is recorded of requests, and where.
#[derive(Clone, clap::Args)]
#[command(next_help_heading = "Audit")]
pub(crate) struct AuditArgs {
    /// Which requests are recorded: a Policy of audit.k8s.io/v1.
    #[arg(long, value_name = "FILE")]
    audit_policy_file: Option<PathBuf>,
    /// File for audit events, one a line; `-` is standard output.
    #[arg(long, value_name = "FILE", requires = "audit_policy_file")]
    audit_log_path: Option<PathBuf>,
    /// Size in MiB at which the file is rotated; 0: never.
    #[arg(long, default_value_t = 100, value_name = "MIB")]
    audit_log_maxsize: u64,
    /// Days for which rotated files are kept; 0: forever.
    #[arg(long, default_value_t = 366, value_name = "DAYS")]
    audit_log_maxage: u64,
    /// Number of rotated files to keep; 0: all.
    #[arg(long, default_value_t = 100, value_name = "COUNT")]
    audit_log_maxbackup: usize,
    /// Compress rotated files with gzip.
    #[arg(long)]
    audit_log_compress: bool,
    /// `json`, or `legacy` for lines of text.
    #[arg(long, default_value = "json", value_parser = ["json", "legacy"])]
    audit_log_format: String,
    /// Whether requests wait for the file: `batch`, `blocking` or `blocking-strict`.
    #[arg(long, default_value = "blocking", value_name = "MODE")]
    audit_log_mode: AuditMode,
    /// Events that may be queued for the file.
    #[arg(long, default_value_t = 10_000, value_name = "COUNT")]
    audit_log_batch_buffer_size: usize,
    /// Kubeconfig of a server that receives lists of events.
    #[arg(long, value_name = "FILE", requires = "audit_policy_file")]
    audit_webhook_config_file: Option<PathBuf>,
    /// Whether requests wait for the webhook: `batch`, `blocking` or `blocking-strict`.
    #[arg(long, default_value = "batch", value_name = "MODE")]
    audit_webhook_mode: AuditMode,
    /// Events that may be queued for the webhook; beyond that, events are dropped and counted.
    #[arg(long, default_value_t = 10_000, value_name = "COUNT")]
    audit_webhook_batch_buffer_size: usize,
    /// Largest number of events in a list.
    #[arg(long, default_value_t = 400, value_name = "COUNT")]
    audit_webhook_batch_max_size: usize,
    /// Longest time that an event waits for a full list.
    #[arg(long, default_value = "30s", value_name = "DURATION", value_parser = duration)]
    audit_webhook_batch_max_wait: Duration,
    /// Whether the rate of lists is limited.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, value_name = "BOOL")]
    audit_webhook_batch_throttle_enable: bool,
    /// Lists per second.
    #[arg(long, default_value_t = 10.0, value_name = "RATE")]
    audit_webhook_batch_throttle_qps: f64,
    /// Burst of lists after a pause.
    #[arg(long, default_value_t = 15, value_name = "COUNT")]
    audit_webhook_batch_throttle_burst: u32,
    /// Backoff after the first failed delivery; each of five attempts waits half as long again.
    #[arg(long, default_value = "10s", value_name = "DURATION", value_parser = duration)]
    audit_webhook_initial_backoff: Duration,
    /// Omit objects from events that are too large for the file.
    #[arg(long)]
    audit_log_truncate_enabled: bool,
    /// Largest event in bytes, with --audit-log-truncate-enabled.
    #[arg(long, default_value_t = 100 * 1024, value_name = "BYTES")]
    audit_log_truncate_max_event_size: usize,
    /// Largest batch of events in bytes, with --audit-log-truncate-enabled.
    #[arg(long, default_value_t = 10 << 20, value_name = "BYTES")]
    audit_log_truncate_max_batch_size: usize,
    /// Omit objects from events that are too large for the webhook.
    #[arg(long)]
    audit_webhook_truncate_enabled: bool,
    /// Largest event in bytes, with --audit-webhook-truncate-enabled.
    #[arg(long, default_value_t = 100 * 1024, value_name = "BYTES")]
    audit_webhook_truncate_max_event_size: usize,
    /// Largest list of events in bytes, with --audit-webhook-truncate-enabled.
    #[arg(long, default_value_t = 10 << 20, value_name = "BYTES")]
    audit_webhook_truncate_max_batch_size: usize,
    /// Networks of proxies whose X-Forwarded-For is trusted. Without any, only front proxies that present their
    /// certificate are trusted.
    #[arg(long, value_name = "CIDR,...", value_delimiter = ',')]
    audit_trusted_proxies: Vec<ipnet::IpNet>,
    /// Do not keep an audit trail of each organization for its owner.
    #[arg(long)]
    no_audit_trail: bool,
}

/// `500ms`, `30s`, `5m` or `1h`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let wrong = || format!("{text:?} is no duration like 500ms, 30s, 5m or 1h");
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let seconds = match unit {
        "ms" => number / 1000.0,
        "s" => number,
        "m" => number * 60.0,
        "h" => number * 3600.0,
        _ => return Err(wrong()),
    };
    Duration::try_from_secs_f64(seconds).map_err(|_| wrong())
}

impl AuditArgs {
    /// Settings of the server. Fails for numbers that mean nothing.
    pub(crate) fn config(&self) -> Result<AuditConfig> {
        for (flag, count) in [
            ("--audit-log-batch-buffer-size", self.audit_log_batch_buffer_size),
            ("--audit-webhook-batch-buffer-size", self.audit_webhook_batch_buffer_size),
            ("--audit-webhook-batch-max-size", self.audit_webhook_batch_max_size),
        ] {
            ensure!(count > 0, "{flag} must be positive");
        }
        let throttle = (self.audit_webhook_batch_throttle_qps, self.audit_webhook_batch_throttle_burst);
        ensure!(
            throttle.0 > 0.0 && throttle.1 > 0,
            "--audit-webhook-batch-throttle-qps and -burst must be positive"
        );
        let cut = |what: &str, enabled: bool, max_event: usize, max_batch: usize| {
            ensure!(max_event > 0, "--audit-{what}-truncate-max-event-size must be positive");
            ensure!(
                max_batch >= max_event,
                "--audit-{what}-truncate-max-batch-size must be at least --audit-{what}-truncate-max-event-size"
            );
            Ok(enabled.then_some(AuditTruncate { max_event, max_batch }))
        };
        let of_log = cut(
            "log",
            self.audit_log_truncate_enabled,
            self.audit_log_truncate_max_event_size,
            self.audit_log_truncate_max_batch_size,
        )?;
        let of_webhook = cut(
            "webhook",
            self.audit_webhook_truncate_enabled,
            self.audit_webhook_truncate_max_event_size,
            self.audit_webhook_truncate_max_batch_size,
        )?;
        let log = self.audit_log_path.clone().map(|path| AuditLog {
            path,
            rotation: AuditRotation {
                max_size: self.audit_log_maxsize,
                max_age: self.audit_log_maxage,
                max_backups: self.audit_log_maxbackup,
                compress: self.audit_log_compress,
            },
            legacy: self.audit_log_format == "legacy",
            mode: self.audit_log_mode,
            batch: AuditBatch {
                buffer: self.audit_log_batch_buffer_size,
                truncate: of_log,
                ..AuditBatch::file()
            },
        });
        let webhook = self.audit_webhook_config_file.clone().map(|config| AuditWebhook {
            config,
            mode: self.audit_webhook_mode,
            batch: AuditBatch {
                buffer: self.audit_webhook_batch_buffer_size,
                max_size: self.audit_webhook_batch_max_size,
                max_wait: self.audit_webhook_batch_max_wait,
                throttle: self.audit_webhook_batch_throttle_enable.then_some(throttle),
                retry: Some(self.audit_webhook_initial_backoff),
                truncate: of_webhook,
                ..AuditBatch::webhook()
            },
        });
        Ok(AuditConfig {
            policy: self.audit_policy_file.clone(),
            log,
            webhook,
            trail: !self.no_audit_trail,
            proxies: self.audit_trusted_proxies.clone(),
        })
    }
}
