//! Counters of the proxy.

use http::StatusCode;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How a request was answered.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Route {
    /// By the API server, as the caller.
    Passed,
    /// By a connection with another protocol.
    Upgraded,
    /// Namespaces of the caller's tenants.
    Namespaces,
    /// Classes or tenants by name.
    Named,
    /// A kind in the caller's namespaces.
    Across,
    /// By the proxy itself: no identity that it passes on.
    Refused,
}

const ROUTES: [(&str, Route); 6] = [
    ("passed", Route::Passed),
    ("upgraded", Route::Upgraded),
    ("namespaces", Route::Namespaces),
    ("named", Route::Named),
    ("across", Route::Across),
    ("refused", Route::Refused),
];
const CLASSES: [&str; 6] = ["other", "1xx", "2xx", "3xx", "4xx", "5xx"];

/// Counters of a proxy: requests by how they were answered and by class of status. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct ProxyMetrics(Arc<[[AtomicU64; CLASSES.len()]; ROUTES.len()]>);

impl ProxyMetrics {
    pub(crate) fn count(&self, route: Route, status: StatusCode) {
        let class = usize::from(status.as_u16() / 100);
        let row = &self.0[route as usize];
        row.get(class).unwrap_or(&row[0]).fetch_add(1, Ordering::Relaxed);
    }

    /// All counters in the OpenMetrics format, without the mark of the end.
    pub fn render(&self) -> String {
        let mut text = "# TYPE freehold_tenancy_proxy_requests counter\n".to_owned();
        for (name, route) in ROUTES {
            for (class, count) in CLASSES.iter().zip(&self.0[route as usize]) {
                let count = count.load(Ordering::Relaxed);
                if count > 0 {
                    // Writing to a String can't fail.
                    let _ = writeln!(
                        text,
                        "freehold_tenancy_proxy_requests_total{{route=\"{name}\",code=\"{class}\"}} {count}"
                    );
                }
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_bounded_whatever_the_status() {
        let metrics = ProxyMetrics::default();
        for code in 100..1000 {
            metrics.count(Route::Passed, StatusCode::from_u16(code).unwrap());
        }
        assert_eq!(metrics.render().lines().count(), 1 + CLASSES.len());
    }
}
