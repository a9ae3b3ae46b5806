//! One check of a server: whether it answers, and what it serves.

use crate::{
    Aggregator, Server,
    availability::{Unavailable, judge},
    discovery, openapi,
    probe::{self, Answer},
};
use freehold_apiserver_cache::ListRequest;
use freehold_apiserver_storage::ObjectPath;
use freehold_machinery::{Result, Value};
use http::header;
use std::time::{Duration, Instant};

/// How long what a server said of its resources counts (kube-aggregator's number).
const REFRESH: Duration = Duration::from_secs(60);
/// Requests after which a server counts as not answering: they may go to different endpoints.
const ATTEMPTS: usize = 2;
/// The label by which an EndpointSlice belongs to a Service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

impl Aggregator {
    /// Asks a server, notes what comes out and writes it into its `APIService`.
    pub(crate) async fn check(&self, server: &Server) {
        let outcome = self.look(server).await;
        let was_available = server.end_check(outcome.is_ok());
        if outcome.is_ok() {
            let old = server.with_state(|state| state.discovered.is_none_or(|at| at.elapsed() >= REFRESH));
            if old || !was_available {
                self.discover(server).await;
            }
        }
        self.changed(&server.plane);
        if was_available != outcome.is_ok() {
            self.statuses.changed(&server.plane);
        }
        let (status, reason, message) = match &outcome {
            Ok(()) => ("True", "Passed", "all checks passed"),
            Err(why) => ("False", why.reason, why.message.as_str()),
        };
        if let Err(error) =
            self.statuses.write(&server.plane, &server.name, &server.uid, status, reason, message).await
        {
            tracing::debug!(plane = %server.plane, name = server.name, %error, "failed to write the status of an APIService");
        }
    }

    async fn look(&self, server: &Server) -> Result<(), Unavailable> {
        let unreadable = |status: freehold_machinery::Status| Unavailable {
            reason: "ServiceAccessError",
            message: status.message,
        };
        let (service, slices) = self.objects(server).await.map_err(unreadable)?;
        judge(server.service(), service.as_ref(), &slices)?;
        let path = server.base_path();
        let url = server.url(&path);
        let mut why = String::new();
        for _ in 0..ATTEMPTS {
            why = match self.get(server, &path, &[], discovery::MAX_BYTES).await {
                Ok(Answer { status: 200..=299, .. }) => return Ok(()),
                Ok(Answer { status, .. }) => format!("bad status from {url}: {status}"),
                Err(error) => format!("Get {url:?}: {error}"),
            };
        }
        let message = format!("failing or missing response from {url}: {why}");
        Err(Unavailable { reason: "FailedDiscoveryCheck", message })
    }

    /// A server's Service, and the EndpointSlices of that.
    async fn objects(&self, server: &Server) -> Result<(Option<Value>, Vec<Value>)> {
        let (namespace, name, _) = server.service();
        let path = ObjectPath {
            group: String::new(),
            resource: "services".to_owned(),
            namespace: Some(namespace.to_owned()),
            name: name.to_owned(),
        };
        let service = self.cache.get_cached(&server.plane, &path).await?;
        let request = ListRequest {
            plane: &server.plane,
            group: "discovery.k8s.io",
            resource: "endpointslices",
            namespace: Some(namespace),
        };
        let slices = self.cache.list(request).await?.objects;
        let own = slices.iter().filter(|slice| slice.label(SERVICE_NAME) == Some(name));
        Ok((service.map(|entry| entry.value()), own.map(|slice| slice.value()).collect()))
    }

    /// A question of the aggregator's own.
    pub(crate) async fn get(
        &self,
        server: &Server,
        path: &str,
        headers: &[(header::HeaderName, &str)],
        max: usize,
    ) -> Result<Answer, String> {
        let identity = self.identities.of(&server.plane)?;
        probe::get(&self.outbound, identity, server, path, headers, max).await
    }

    /// Learns what a server serves. What it said before stays, as stale, where it does not say it now.
    async fn discover(&self, server: &Server) {
        let found = match self.aggregated(server).await {
            Some(found) => Some(found),
            None => self.legacy(server).await,
        };
        let openapi = openapi::hash(self, server).await;
        server.with_state(|state| {
            state.fresh = found.is_some();
            state.openapi = openapi;
            if let Some((resources, etag)) = found {
                state.resources = resources.unwrap_or_else(|| std::mem::take(&mut state.resources));
                state.etag = etag;
                state.discovered = Some(Instant::now());
            }
        });
    }

    /// From all of its discovery in one document; no resources where that did not change.
    async fn aggregated(&self, server: &Server) -> Option<(Option<Vec<Value>>, String)> {
        let root = if server.group.is_empty() { "/api" } else { "/apis" };
        let etag = server.with_state(|state| state.etag.clone());
        let mut headers = vec![(header::ACCEPT, discovery::ACCEPT)];
        if !etag.is_empty() {
            headers.push((header::IF_NONE_MATCH, &etag));
        }
        let answer = self.get(server, root, &headers, discovery::MAX_BYTES).await.ok()?;
        match answer.status {
            304 if !etag.is_empty() => Some((None, etag.clone())),
            200 => {
                let document: Value = serde_json::from_slice(&answer.body).ok()?;
                let found = discovery::aggregated(&document, &server.group, &server.version)?;
                Some((Some(found), answer.header(header::ETAG).chars().take(256).collect()))
            }
            _ => None,
        }
    }

    /// From the document of its version alone.
    async fn legacy(&self, server: &Server) -> Option<(Option<Vec<Value>>, String)> {
        let headers = [(header::ACCEPT, "application/json")];
        let answer = self.get(server, &server.base_path(), &headers, discovery::MAX_BYTES).await.ok()?;
        let document: Value = serde_json::from_slice(&answer.body).ok().filter(|_| answer.status == 200)?;
        Some((Some(discovery::legacy(&document, &server.group, &server.version)?), String::new()))
    }
}
