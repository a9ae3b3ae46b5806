//! `freehold doctor`: checks what commonly fails in an installation, and says what to do about it.

mod etcd;
mod figures;
mod finding;
mod names;

use crate::{certs, kubeconfig, store::EtcdArgs, terminal::say};
use anyhow::{Result, bail};
use finding::{Finding, finding};
use freehold_client::{Client, ListOptions, RawRequest, Resource};
use freehold_machinery::{Value, meta};
use freehold_runtime::conditions;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const LEASES: Resource = Resource::namespaced("coordination.k8s.io", "v1", "leases");
const PROJECT_CONTROL_PLANES: Resource =
    Resource::cluster("infrastructure.freehold.dev", "v1alpha1", "projectcontrolplanes");
/// The longest time that a small read should take.
const SLOW: Duration = Duration::from_millis(500);
/// Seconds that two clocks may differ.
const SKEW: i64 = 5;
/// Days before a certificate expires in which it is complained of.
const DAYS: u32 = 14;

/// Flags of `freehold doctor`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    certs: certs::Sources,
    /// Domain of projects (`--domain` of the servers), whose wildcard has to lead to them.
    #[arg(long, value_parser = crate::names::domain)]
    domain: Option<String>,
    #[command(flatten)]
    etcd: EtcdArgs,
}

/// The server's readiness, and how long its answer takes.
async fn readiness(client: &Client) -> Finding {
    let begun = Instant::now();
    let outcome = match client.request(&RawRequest::get("/readyz?verbose")).await {
        Err(error) => {
            Err(format!("{error}: see the servers' logs; 503 says that their store does not answer"))
        }
        Ok(_) if begun.elapsed() > SLOW => Err(format!(
            "the answer took {} ms: compare with the latency of the store's disks and processor throttling",
            begun.elapsed().as_millis()
        )),
        Ok(_) => Ok(format!("ready, in {} ms", begun.elapsed().as_millis())),
    };
    finding("server", outcome)
}

/// The versions of the server and of this program, which may differ by one minor.
async fn versions(client: &Client) -> Finding {
    let own = env!("CARGO_PKG_VERSION");
    let outcome = match client.get_path("/version").await {
        Err(error) => Err(format!("/version: {error}")),
        Ok(version) => {
            let server = version["gitVersion"].as_str().unwrap_or_default();
            Ok(format!("server {server}, this program {own}"))
        }
    };
    finding("version", outcome)
}

/// Whether the clocks of a server and of this machine agree, by the date of its answer.
fn clock(date: Option<&str>, now: i64) -> Finding {
    let server =
        date.and_then(|date| jiff::fmt::rfc2822::parse(date).ok()).map(|time| time.timestamp().as_second());
    let outcome = match server.map(|server| server - now) {
        None => Ok("the server's answer has no date".to_owned()),
        Some(ahead) if ahead.abs() > SKEW => Err(format!(
            "the server's clock is {} s {} this machine's: see that both follow a time server",
            ahead.abs(),
            if ahead > 0 { "ahead of" } else { "behind" }
        )),
        Some(_) => Ok(format!("the server's clock is within {SKEW} s of this machine's")),
    };
    finding("clock", outcome)
}

/// What the server's metrics and the head of its answer say.
async fn measured(client: &Client, now: i64) -> Vec<Finding> {
    match client.request(&RawRequest::get("/metrics")).await {
        Err(error) => vec![finding("metrics", Err(format!("/metrics: {error}")))],
        Ok(answer) => {
            let text = String::from_utf8_lossy(&answer.body);
            let date = answer.headers.get("date").and_then(|date| date.to_str().ok());
            vec![clock(date, now), figures::store(&text), figures::webhooks(&text)]
        }
    }
}

/// Whether Leases of controllers are renewed, by the clocks of this machine and of their holders.
fn leases(list: &[Value], now: i64) -> Finding {
    let mut wrong = Vec::new();
    let mut held = Vec::new();
    for lease in list.iter().filter(|lease| meta::name(lease).starts_with("freehold-")) {
        let spec = &lease["spec"];
        let seconds = spec["leaseDurationSeconds"].as_i64().unwrap_or(15);
        let renewed = spec["renewTime"].as_str().and_then(|time| time.parse::<jiff::Timestamp>().ok());
        let Some(age) = renewed.map(|time| now - time.as_second()) else { continue };
        if age > seconds * 2 {
            wrong.push(format!("{} was renewed {age} s ago: nobody works", meta::name(lease)));
        } else if age < -5 {
            wrong.push(format!("{} was renewed {} s from now: clocks differ", meta::name(lease), -age));
        } else {
            held.push(meta::name(lease));
        }
    }
    let outcome = match wrong.is_empty() {
        true if held.is_empty() => Ok("no Leases: controllers hold one with --leader-elect alone".to_owned()),
        true => Ok(format!("Leases are renewed: {}", held.join(", "))),
        false => {
            Err(format!("{}; see the Pods of that component and the machines' clocks", wrong.join("; ")))
        }
    };
    finding("controllers", outcome)
}

/// Whether dedicated pairs are ready and up to date.
fn pairs(list: &[Value]) -> Finding {
    let told = |pair: &Value, type_: &str| {
        let condition = conditions::find(&pair["status"]["conditions"], type_)?;
        let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
        (condition["status"] != "True").then(|| format!("{}: {}", text("reason"), text("message")))
    };
    let wrong = list.iter().filter_map(|pair| {
        let why = match told(pair, "Ready") {
            Some(why) => Some(why),
            None => told(pair, "Updated"),
        };
        let project = pair["spec"]["projectRef"]["name"].as_str().unwrap_or_default();
        why.map(|why| format!("project {project:?}: {why}"))
    });
    let wrong: Vec<String> = wrong.collect();
    let outcome =
        if wrong.is_empty() { Ok(format!("{} pairs are ready", list.len())) } else { Err(wrong.join("; ")) };
    finding("pairs", outcome)
}

fn expiry(found: Result<Vec<certs::Found>>, now: i64) -> Finding {
    let outcome = match found {
        Err(error) => Err(format!("{error:#}")),
        Ok(all) => {
            let soon = all.iter().filter(|found| found.within(DAYS, now)).count();
            match soon {
                0 => Ok(format!("none of {} expires within {DAYS} days", all.len())),
                _ => Err(format!(
                    "{soon} expire within {DAYS} days: freehold certs --within {DAYS} names them"
                )),
            }
        }
    };
    finding("certificates", outcome)
}

async fn listed(
    client: &Client,
    resource: &Resource,
    check: &'static str,
    judge: impl FnOnce(&[Value]) -> Finding,
) -> Finding {
    match client.list_all(resource, None, &ListOptions::default()).await {
        Ok(list) => judge(&list.items),
        Err(error) => finding(check, Err(format!("{}: {error}", resource.collection_path(None)))),
    }
}

/// All findings; where nobody answers, that alone.
async fn findings(sources: &certs::Sources, client: &Client) -> Vec<Finding> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let now = i64::try_from(now).unwrap_or(i64::MAX);
    let server = readiness(client).await;
    if server.outcome.is_err() && client.get_path("/version").await.is_err() {
        return vec![server];
    }
    let mut all = vec![server, versions(client).await];
    all.extend(measured(client, now).await);
    all.extend([
        listed(client, &LEASES, "controllers", |list| leases(list, now)).await,
        listed(&client.at("/planes/infra"), &PROJECT_CONTROL_PLANES, "pairs", pairs).await,
        expiry(certs::collect(sources).await, now),
    ]);
    all
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (mark, text) = match &self.outcome {
            Ok(text) => ("ok", text),
            Err(text) => ("WRONG", text),
        };
        write!(f, "{mark:5}  {:12}  {text}", self.check)
    }
}

/// All findings, a line each.
pub(crate) async fn report(sources: &certs::Sources, client: &Client) -> String {
    findings(sources, client).await.iter().map(|finding| format!("{finding}\n")).collect()
}

/// Checks an installation.
///
/// # Errors
/// The kubeconfig can't be used, or a check finds something wrong.
pub(crate) async fn run(args: Args) -> Result<()> {
    let config = kubeconfig::platform(args.certs.kubeconfig())?;
    let client = Client::new(&config)?;
    let mut findings = findings(&args.certs, &client).await;
    let unanswered = findings.len() == 1;
    if let Some(options) = args.etcd.options()? {
        findings.push(etcd::look(&options).await);
    }
    if let Some(domain) = &args.domain {
        findings.push(names::look(domain, &config.server).await);
    }
    findings.iter().for_each(say);
    match findings.iter().filter(|finding| finding.outcome.is_err()).count() {
        0 => Ok(()),
        _ if unanswered => bail!("the server does not answer, and what it tells could not be checked"),
        count => bail!("{count} of {} checks found something wrong", findings.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_lease_that_nobody_renews_and_one_of_the_future_are_wrong() {
        let lease = |time: &str| {
            json!({
                "metadata": {"name": "freehold-controller-manager"},
                "spec": {"leaseDurationSeconds": 15, "renewTime": time},
            })
        };
        let told = |time: &str| leases(&[lease(time)], 1_000_000).outcome;
        assert!(told("1970-01-12T13:46:35.000000Z").is_ok());
        assert!(told("1970-01-12T13:00:00.000000Z").unwrap_err().contains("nobody works"));
        assert!(told("1970-01-12T14:00:00.000000Z").unwrap_err().contains("clocks differ"));
    }

    #[test]
    fn a_clock_that_differs_is_wrong() {
        let told = |now| clock(Some("Thu, 01 Jan 1970 00:16:40 GMT"), now).outcome;
        assert!(told(1_000).is_ok() && told(1_005).is_ok());
        assert!(told(990).unwrap_err().contains("10 s ahead of"));
        assert!(told(1_100).unwrap_err().contains("100 s behind"));
        assert!(clock(None, 0).outcome.is_ok());
    }

    #[test]
    fn a_pair_that_is_not_ready_says_why() {
        let pair = |ready: &str| {
            json!({
                "spec": {"projectRef": {"name": "web"}},
                "status": {"conditions": [
                    {"type": "Ready", "status": ready, "reason": "ImageUnavailable", "message": "m"},
                ]},
            })
        };
        assert!(pairs(&[pair("True")]).outcome.is_ok());
        let told = pairs(&[pair("True"), pair("False")]).outcome.unwrap_err();
        assert_eq!(told, "project \"web\": ImageUnavailable: m");
    }
}
