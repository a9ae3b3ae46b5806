//! Requests to the Kubernetes API in the caller's name.

use crate::app::App;
use crate::caller::Caller;
use crate::reply::Reply;
use freehold_client::{Download, RawRequest, Resource};
use freehold_machinery::Value;
use freehold_workflow_api::{GROUP, VERSION};
use http::Method;
use std::fmt::Write as _;

/// The DAGs.
pub(crate) const DAGS: Resource = Resource::namespaced(GROUP, VERSION, "dags");
/// The runs.
pub(crate) const RUNS: Resource = Resource::namespaced(GROUP, VERSION, "dagruns");
/// The shared tasks.
pub(crate) const TASKS: Resource = Resource::namespaced(GROUP, VERSION, "dagtasks");
/// The namespaces.
pub(crate) const NAMESPACES: Resource = Resource::cluster("", "v1", "namespaces");
/// The Pods.
pub(crate) const PODS: Resource = Resource::namespaced("", "v1", "pods");

/// Appends query parameters to a path, escaped.
pub(crate) fn with_query(mut path: String, query: &[(&str, &str)]) -> String {
    let mut separator = if path.contains('?') { '&' } else { '?' };
    for (key, value) in query.iter().filter(|(_, value)| !value.is_empty()) {
        path.push(separator);
        separator = '&';
        path.push_str(key);
        path.push('=');
        for byte in value.bytes() {
            match byte {
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                    path.push(char::from(byte))
                }
                other => drop(write!(path, "%{other:02X}")),
            }
        }
    }
    path
}

impl App {
    fn signed(&self, caller: &Caller, mut request: RawRequest) -> RawRequest {
        if let Caller::Forwarded { authorization, .. } = caller {
            request.headers.insert(http::header::AUTHORIZATION, authorization.clone());
        }
        request
    }

    /// Sends a request and returns the JSON of its answer.
    pub(crate) async fn send(&self, caller: &Caller, request: RawRequest) -> Reply<Value> {
        Ok(self.client.json(self.signed(caller, request)).await?)
    }

    /// Reads a document.
    pub(crate) async fn get(&self, caller: &Caller, path: String) -> Reply<Value> {
        self.send(caller, RawRequest::get(path)).await
    }

    /// Changes an object by a merge patch.
    pub(crate) async fn patch(&self, caller: &Caller, path: String, patch: &Value) -> Reply<Value> {
        let mut request = RawRequest::new(Method::PATCH, path).json(patch);
        request.content_type = "application/merge-patch+json";
        self.send(caller, request).await
    }

    /// Opens a stream.
    pub(crate) async fn stream(&self, caller: &Caller, path: String) -> Reply<Download> {
        Ok(self.client.download(&self.signed(caller, RawRequest::get(path))).await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_values_are_escaped() {
        assert_eq!(
            with_query("/a".into(), &[("x", "1&y=2"), ("e", ""), ("z", "é")]),
            "/a?x=1%26y%3D2&z=%C3%A9"
        );
    }
}
