//! `/livez`, `/readyz` and `/healthz`, as kube-apiserver answers them.

use crate::{
    call::Call,
    query::Query,
    respond::{self, Reply},
};
use freehold_apiserver_planes::context::Context;
use freehold_machinery::Status;
use std::fmt::Write;

/// The outcome of each check, by name.
type Checks = Vec<(&'static str, Result<(), String>)>;

/// Answers a health path.
pub(crate) async fn serve(call: &Call<'_>, path: &str) -> Result<Reply, Status> {
    let (edge, query) = (call.edge, call.query);
    let (root, single) = match path[1..].split_once('/') {
        Some((root, single)) => (root, Some(single)),
        None => (&path[1..], None),
    };
    let mut checks: Checks = vec![("ping", Ok(()))];
    if root != "livez" {
        checks.extend(edge.backend.ready().await);
        let stopping = edge.stop.is_cancelled();
        checks.push(("shutdown", if stopping { Err("process is shutting down".into()) } else { Ok(()) }));
    }
    for (name, outcome) in &checks {
        edge.metrics.checked(root, name, outcome.is_ok());
    }
    let Some(single) = single else {
        return Ok(all(root, &checks, query));
    };
    match checks.iter().find(|(name, _)| *name == single) {
        Some((_, Ok(()))) => {
            let mut reply = respond::text(200, "ok");
            reply.headers_mut().remove(http::header::X_CONTENT_TYPE_OPTIONS);
            Ok(reply)
        }
        Some((_, Err(why))) if call.context == Context::Platform => {
            Ok(respond::text(500, format!("internal server error: {why}\n")))
        }
        Some((_, Err(_))) => Ok(respond::text(500, "internal server error: reason withheld\n")),
        None => Ok(respond::no_page()),
    }
}

fn all(root: &str, checks: &Checks, query: &Query) -> Reply {
    let excluded: Vec<&str> = query.all("exclude").collect();
    let mut lines = String::new();
    let mut failed = false;
    for (name, outcome) in checks {
        // Why it failed goes to the log only: these paths are public.
        let verdict = match outcome {
            _ if excluded.contains(name) => format!("[+]{name} excluded: ok"),
            Ok(()) => format!("[+]{name} ok"),
            Err(why) => {
                tracing::warn!(check = name, why, "health check failed");
                failed = true;
                format!("[-]{name} failed: reason withheld")
            }
        };
        let _ = writeln!(lines, "{verdict}");
    }
    let unknown: Vec<String> = excluded
        .iter()
        .filter(|e| checks.iter().all(|(name, _)| name != *e))
        .map(|e| format!("{e:?}"))
        .collect();
    if !unknown.is_empty() {
        let _ = writeln!(
            lines,
            "warn: some health checks cannot be excluded: no matches for {}",
            unknown.join(",")
        );
    }
    if failed {
        return respond::text(500, format!("{lines}{root} check failed\n"));
    }
    if query.get("verbose").is_none() {
        return respond::text(200, "ok");
    }
    respond::text(200, format!("{lines}{root} check passed\n"))
}
