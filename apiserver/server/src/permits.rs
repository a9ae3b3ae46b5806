//! Permits: how many requests are here, and how many of them are served at a time.

use crate::{
    edge::Edge,
    info::{RequestInfo, is_health},
};
use freehold_apiserver_fairness::metrics::Held;
use freehold_machinery::Status;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A place among the requests that are served at a time.
pub(crate) struct Admitted<'a> {
    count: &'a AtomicUsize,
    _held: Held,
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Relaxed);
    }
}

/// How many requests for each place may be here, most of them waiting for their turn.
const PRESENT: usize = 10;

/// A request that is here, whether it waits or is served.
pub(crate) struct Present<'a>(&'a AtomicUsize);

impl Drop for Present<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// Counts a request; 429 where too many are here. Long-running requests and health checks are not counted.
pub(crate) fn be_present<'a>(
    edge: &'a Edge,
    info: &RequestInfo,
    path: &str,
) -> Result<Option<Present<'a>>, Status> {
    if info.is_long_running() || is_health(path) {
        return Ok(None);
    }
    let limit = edge.limits.read_only.saturating_add(edge.limits.mutating).saturating_mul(PRESENT);
    let before = edge.present.fetch_add(1, Relaxed);
    let present = Present(&edge.present);
    match before >= limit {
        true => Err(Status::too_many_requests("Too many requests, please try again later.", 1)),
        false => Ok(Some(present)),
    }
}

/// Takes a place; 429 where there is none. Long-running requests and health checks need none.
pub(crate) fn admit<'a>(edge: &'a Edge, info: &RequestInfo) -> Result<Option<Admitted<'a>>, Status> {
    if info.is_long_running() || is_health(&info.path) {
        return Ok(None);
    }
    let read_only = info.is_read_only();
    let (count, limit) = match read_only {
        true => (&edge.read_only, edge.limits.read_only),
        false => (&edge.mutating, edge.limits.mutating),
    };
    let held = Held::new(edge.metrics.in_flight(read_only));
    let before = count.fetch_add(1, Relaxed);
    let admitted = Admitted { count, _held: held };
    if before >= limit {
        return Err(Status::too_many_requests("Too many requests, please try again later.", 1));
    }
    Ok(Some(admitted))
}
