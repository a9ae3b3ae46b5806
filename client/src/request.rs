//! Requests as pure values: method, path, query, headers and body.

use crate::Resource;
use bytes::Bytes;
use freehold_machinery::Value;
use http::{HeaderMap, Method};
use serde_json::json;
use std::fmt::Write as _;

/// The media type of whole objects.
pub(crate) const JSON: &str = "application/json";
/// What to accept where metadata is enough.
const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
/// What to accept of a list where metadata is enough.
const METADATA_LIST_ONLY: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// A request below a client's base path.
#[derive(Clone, Debug, PartialEq)]
pub struct RawRequest {
    /// The method.
    pub method: Method,
    /// Path and query, beginning with `/`, already escaped.
    pub path: String,
    /// `Accept`.
    pub accept: &'static str,
    /// `Content-Type` of the body.
    pub content_type: &'static str,
    /// The body; empty for none.
    pub body: Bytes,
    /// Further headers; one that is named above is replaced.
    pub headers: HeaderMap,
}

impl RawRequest {
    /// A request without a body that takes JSON.
    pub fn new(method: Method, path: impl Into<String>) -> Self {
        Self {
            method,
            path: path.into(),
            accept: JSON,
            content_type: JSON,
            body: Bytes::new(),
            headers: HeaderMap::new(),
        }
    }

    /// A `GET` that takes JSON.
    pub fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path)
    }

    /// Sets a JSON body.
    pub fn json(mut self, body: &Value) -> Self {
        self.body = Bytes::from(body.to_string());
        self
    }

    /// Appends query parameters to the path.
    pub(crate) fn query(mut self, query: Query) -> Self {
        let separator = if self.path.contains('?') { '&' } else { '?' };
        if !query.0.is_empty() {
            self.path.push(separator);
            self.path.push_str(&query.0);
        }
        self
    }

    pub(crate) fn accept(mut self, accept: &'static str) -> Self {
        self.accept = accept;
        self
    }
}

/// Query parameters, escaped as they are added.
#[derive(Default)]
pub(crate) struct Query(String);

impl Query {
    pub(crate) fn add(mut self, key: &str, value: &str) -> Self {
        if !self.0.is_empty() {
            self.0.push('&');
        }
        self.0.push_str(key);
        self.0.push('=');
        crate::resource::push_segment(&mut self.0, value);
        self
    }

    pub(crate) fn maybe(self, key: &str, value: &str) -> Self {
        if value.is_empty() { self } else { self.add(key, value) }
    }

    pub(crate) fn flag(self, key: &str, value: bool) -> Self {
        if value { self.add(key, "true") } else { self }
    }

    pub(crate) fn number(self, key: &str, value: u64) -> Self {
        if value == 0 { self } else { self.add(key, &value.to_string()) }
    }
}

/// What a list is to contain. Empty strings and 0 ask for nothing special.
#[derive(Clone, Debug, Default)]
pub struct ListOptions {
    /// A label selector.
    pub label_selector: String,
    /// A field selector.
    pub field_selector: String,
    /// At most so many items a page.
    pub limit: u64,
    /// Where the page before ended.
    pub continue_token: String,
    /// See <https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions>.
    pub resource_version: String,
    /// `Exact` or `NotOlderThan`.
    pub resource_version_match: String,
    /// Only `metadata` of each object.
    pub metadata_only: bool,
}

impl ListOptions {
    fn query(&self) -> Query {
        Query::default()
            .maybe("labelSelector", &self.label_selector)
            .maybe("fieldSelector", &self.field_selector)
            .number("limit", self.limit)
            .maybe("continue", &self.continue_token)
            .maybe("resourceVersion", &self.resource_version)
            .maybe("resourceVersionMatch", &self.resource_version_match)
    }

    pub(crate) fn request(&self, resource: &Resource, namespace: Option<&str>) -> RawRequest {
        let request = RawRequest::get(resource.collection_path(namespace)).query(self.query());
        if self.metadata_only { request.accept(METADATA_LIST_ONLY) } else { request }
    }
}

/// What a watch is to yield.
#[derive(Clone, Debug, Default)]
pub struct WatchOptions {
    /// A label selector.
    pub label_selector: String,
    /// A field selector.
    pub field_selector: String,
    /// Changes after this one; empty begins with what is there now.
    pub resource_version: String,
    /// Whether to begin with what is there, followed by a bookmark that is annotated as its end (KEP-3157).
    pub send_initial_events: bool,
    /// The server ends the watch after so many seconds; 0 leaves that to it.
    pub timeout_seconds: u64,
    /// Only `metadata` of each object.
    pub metadata_only: bool,
    /// Only objects that have owners or finalizers or are being deleted, and each deletion. Freehold alone knows it;
    /// other servers send everything.
    pub related_only: bool,
}

impl WatchOptions {
    pub(crate) fn request(&self, resource: &Resource, namespace: Option<&str>) -> RawRequest {
        let mut query = Query::default()
            .add("watch", "true")
            .add("allowWatchBookmarks", "true")
            .maybe("labelSelector", &self.label_selector)
            .maybe("fieldSelector", &self.field_selector)
            .maybe("resourceVersion", &self.resource_version)
            .number("timeoutSeconds", self.timeout_seconds);
        if self.send_initial_events {
            query = query.add("sendInitialEvents", "true").add("resourceVersionMatch", "NotOlderThan");
        }
        let query = query.flag("relatedOnly", self.related_only);
        let request = RawRequest::get(resource.collection_path(namespace)).query(query);
        if self.metadata_only { request.accept(METADATA_ONLY) } else { request }
    }
}

/// A change of an object.
#[derive(Clone, Debug, PartialEq)]
pub enum Patch {
    /// RFC 6902.
    Json(Value),
    /// RFC 7386.
    Merge(Value),
    /// Strategic merge patch.
    Strategic(Value),
    /// Server-side apply; needs [`PatchOptions::field_manager`].
    Apply(Value),
}

impl Patch {
    fn parts(&self) -> (&'static str, &Value) {
        match self {
            Self::Json(body) => ("application/json-patch+json", body),
            Self::Merge(body) => ("application/merge-patch+json", body),
            Self::Strategic(body) => ("application/strategic-merge-patch+json", body),
            Self::Apply(body) => ("application/apply-patch+yaml", body),
        }
    }
}

/// How a patch is applied.
#[derive(Clone, Debug, Default)]
pub struct PatchOptions {
    /// The subresource to patch; empty for the object itself.
    pub subresource: String,
    /// Who owns the fields that it sets; empty lets the server derive it from the user agent.
    pub field_manager: String,
    /// Whether an apply takes fields from their owners.
    pub force: bool,
}

impl PatchOptions {
    /// A patch of the status subresource.
    pub fn status() -> Self {
        Self { subresource: "status".into(), ..Self::default() }
    }

    /// A forced apply by `field_manager`.
    pub fn apply(field_manager: impl Into<String>) -> Self {
        Self { field_manager: field_manager.into(), force: true, ..Self::default() }
    }

    pub(crate) fn request(&self, path: String, patch: &Patch) -> RawRequest {
        let (content_type, body) = patch.parts();
        let query = Query::default().maybe("fieldManager", &self.field_manager).flag("force", self.force);
        RawRequest { content_type, ..RawRequest::new(Method::PATCH, path).json(body).query(query) }
    }
}

/// What happens to what an object owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// It is deleted first.
    Foreground,
    /// It is deleted afterwards.
    Background,
    /// It stays.
    Orphan,
}

/// How something is deleted.
#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    /// What happens to what it owns; `None` leaves that to the type's default.
    pub propagation: Option<Propagation>,
    /// Only if it has this uid.
    pub uid: String,
    /// Only if it has this resource version.
    pub resource_version: String,
    /// Seconds that it has to end in; `None` leaves that to the object.
    pub grace_period_seconds: Option<u64>,
}

impl DeleteOptions {
    /// Deletes only the object with this uid.
    pub fn uid(uid: impl Into<String>) -> Self {
        Self { uid: uid.into(), ..Self::default() }
    }

    /// Sets what happens to dependents.
    pub fn propagation(mut self, propagation: Propagation) -> Self {
        self.propagation = Some(propagation);
        self
    }

    fn body(&self) -> Value {
        let mut body = json!({"kind": "DeleteOptions", "apiVersion": "v1"});
        if let Some(propagation) = self.propagation {
            body["propagationPolicy"] = format!("{propagation:?}").into();
        }
        if let Some(seconds) = self.grace_period_seconds {
            body["gracePeriodSeconds"] = seconds.into();
        }
        for (key, value) in [("uid", &self.uid), ("resourceVersion", &self.resource_version)] {
            if !value.is_empty() {
                body["preconditions"][key] = value.clone().into();
            }
        }
        body
    }

    pub(crate) fn request(&self, path: String) -> RawRequest {
        RawRequest::new(Method::DELETE, path).json(&self.body())
    }

    pub(crate) fn collection(&self, path: String, which: &ListOptions) -> RawRequest {
        self.request(path).query(which.query())
    }
}

/// The path of a request with everything in front of it that the client puts there.
pub(crate) fn full_path(prefix: &str, path: &str) -> String {
    let mut full = String::with_capacity(prefix.len() + path.len() + 1);
    // The prefix itself is a path: that of a webhook.
    let whole = path.starts_with('/') || path.is_empty() && !prefix.is_empty();
    // Writing to a String can't fail.
    let _ = write!(full, "{prefix}{}{path}", if whole { "" } else { "/" });
    full
}

#[cfg(test)]
mod tests {
    use super::*;

    const PODS: Resource = Resource::namespaced("", "v1", "pods");

    #[test]
    fn options_become_query_parameters() {
        let watch = WatchOptions {
            send_initial_events: true,
            label_selector: "a=b".into(),
            related_only: true,
            ..WatchOptions::default()
        };
        let list = ListOptions { limit: 5, continue_token: "x/=".into(), ..ListOptions::default() };
        let rows = [
            (
                watch.request(&PODS, None).path,
                "/api/v1/pods?watch=true&allowWatchBookmarks=true&labelSelector=a%3Db&sendInitialEvents=true\
                 &resourceVersionMatch=NotOlderThan&relatedOnly=true",
            ),
            (list.request(&PODS, Some("n")).path, "/api/v1/namespaces/n/pods?limit=5&continue=x%2F%3D"),
            (ListOptions::default().request(&PODS, None).path, "/api/v1/pods"),
            (
                PatchOptions::apply("me").request("/x".into(), &Patch::Apply(json!({}))).path,
                "/x?fieldManager=me&force=true",
            ),
        ];
        for (path, expected) in rows {
            assert_eq!(path, expected);
        }
    }

    #[test]
    fn a_delete_carries_only_what_was_asked_for() {
        assert_eq!(DeleteOptions::default().body(), json!({"kind": "DeleteOptions", "apiVersion": "v1"}));
        let options = DeleteOptions::uid("u").propagation(Propagation::Foreground);
        let body = options.body();
        assert_eq!(body["preconditions"], json!({"uid": "u"}));
        assert_eq!(body["propagationPolicy"], "Foreground");
    }
}
