//! One aggregated server, as an `APIService` names it.

use crate::openapi::Kept;
use base64::{Engine, engine::general_purpose::STANDARD};
use freehold_apiserver_catalog::Remote;
use freehold_apiserver_outbound::{Destination, Host, Identity, Trust};
use freehold_machinery::{PlaneId, Value, api_service, meta};
use parking_lot::Mutex;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::Semaphore;

/// Requests that are passed on to one server at a time, watches and upgrades among them.
const PLACES: usize = 500;
/// Pause between checks of a server that answers, and the longest of one that does not (kube-aggregator's numbers).
pub(crate) const PAUSE: Duration = Duration::from_secs(30);
/// The first pause of one that does not answer; it doubles each time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// A server that answers for a group and version of a plane.
#[derive(Debug)]
pub struct Server {
    pub(crate) plane: PlaneId,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) spec: Value,
    pub(crate) group: String,
    pub(crate) version: String,
    host: Host,
    trust: Trust,
    places: Arc<Semaphore>,
    state: Mutex<State>,
}

/// What is known of a server.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) available: bool,
    /// What it said that it serves, and with which `ETag`.
    pub(crate) resources: Vec<Value>,
    pub(crate) etag: String,
    /// Whether that is what it says now.
    pub(crate) fresh: bool,
    pub(crate) discovered: Option<Instant>,
    /// The `hash` of its OpenAPI document; empty where it has none.
    pub(crate) openapi: String,
    /// Its OpenAPI 2 document, cut to this version, or that it has none.
    pub(crate) openapi_v2: Option<Kept>,
    due: Instant,
    failures: u32,
    /// Revisions of the Services and EndpointSlices at the last check.
    inputs: (u64, u64),
    checking: bool,
}

impl Server {
    /// The server of an `APIService`; `None` where that names none.
    pub(crate) fn of(plane: &PlaneId, object: &Value) -> Option<Self> {
        let spec = &object["spec"];
        let service = spec["service"].as_object()?;
        let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
        let port = service.get("port").and_then(Value::as_u64).unwrap_or(443);
        let host = Host::Service {
            namespace: text(service.get("namespace")),
            name: text(service.get("name")),
            port: u16::try_from(port).ok()?,
        };
        let bundle = STANDARD.decode(text(spec.get("caBundle"))).unwrap_or_default();
        let insecure = spec["insecureSkipTLSVerify"] == true;
        let trust = if insecure { Trust::Anything } else { Trust::of_bundle(&bundle) };
        let available = api_service::available(object).is_some_and(|c| c["status"] == "True");
        let state = State {
            available,
            resources: Vec::new(),
            etag: String::new(),
            fresh: false,
            discovered: None,
            openapi: String::new(),
            openapi_v2: None,
            due: Instant::now(),
            failures: 0,
            inputs: (0, 0),
            checking: false,
        };
        Some(Self {
            plane: plane.clone(),
            name: meta::name(object).to_owned(),
            uid: meta::uid(object).to_owned(),
            spec: spec.clone(),
            group: text(spec.get("group")),
            version: text(spec.get("version")),
            host,
            trust,
            places: Arc::new(Semaphore::new(PLACES)),
            state: Mutex::new(state),
        })
    }

    /// Whether this is the server of an object still.
    pub(crate) fn is_of(&self, object: &Value) -> bool {
        self.uid == meta::uid(object) && self.spec == object["spec"]
    }

    /// Whether it answered when it was asked last.
    pub fn is_available(&self) -> bool {
        self.state.lock().available
    }

    /// Where requests for it go, with this certificate.
    pub fn destination(&self, identity: Option<Arc<Identity>>) -> Destination {
        let (plane, host, trust) = (self.plane.clone(), self.host.clone(), self.trust.clone());
        Destination { plane, host, trust, identity }
    }

    /// Places for requests that are passed on to it.
    pub fn places(&self) -> &Arc<Semaphore> {
        &self.places
    }

    /// The namespace, name and port of its Service.
    pub(crate) fn service(&self) -> (&str, &str, u16) {
        match &self.host {
            Host::Service { namespace, name, port } => (namespace, name, *port),
            Host::Url { host, port } => ("", host, *port),
        }
    }

    /// Where it serves its group and version.
    pub(crate) fn base_path(&self) -> String {
        match self.group.as_str() {
            "" => format!("/api/{}", self.version),
            group => format!("/apis/{group}/{}", self.version),
        }
    }

    /// The URL of a path, for messages.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.host.authority())
    }

    /// What discovery shows of it.
    pub(crate) fn remote(&self) -> Remote {
        let state = self.state.lock();
        let priority =
            |field: &str| self.spec[field].as_i64().and_then(|n| i32::try_from(n).ok()).unwrap_or_default();
        Remote {
            group: self.group.clone(),
            version: self.version.clone(),
            group_priority: priority("groupPriorityMinimum"),
            version_priority: priority("versionPriority"),
            resources: state.resources.clone(),
            fresh: state.fresh,
            openapi: state.openapi.clone(),
        }
    }

    /// What is known of it, to be looked at or changed at once.
    pub(crate) fn with_state<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.lock())
    }

    /// Whether it is to be checked now; then it counts as being checked.
    pub(crate) fn begin_check(&self, inputs: (u64, u64)) -> bool {
        let mut state = self.state.lock();
        let wanted = state.due <= Instant::now() || state.inputs != inputs;
        if state.checking || !wanted {
            return false;
        }
        state.inputs = inputs;
        state.checking = true;
        true
    }

    /// Notes the outcome of a check; gives whether it was available before.
    pub(crate) fn end_check(&self, available: bool) -> bool {
        let mut state = self.state.lock();
        state.checking = false;
        state.failures = if available { 0 } else { state.failures + 1 };
        let pause = match state.failures {
            0 => PAUSE,
            n => FIRST_PAUSE.saturating_mul(1 << (n - 1).min(5)).min(PAUSE),
        };
        state.due = Instant::now() + pause;
        state.fresh &= available;
        std::mem::replace(&mut state.available, available)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_api_service_names_its_server() {
        let object = json!({"metadata": {"name": "v1.g.io", "uid": "u"}, "spec": {"group": "g.io", "version": "v1",
            "service": {"namespace": "a", "name": "b"}, "insecureSkipTLSVerify": true}});
        let plane: PlaneId = "p".parse().unwrap();
        let server = Server::of(&plane, &object).unwrap();
        assert_eq!(server.service(), ("a", "b", 443));
        assert_eq!(server.url(&server.base_path()), "https://b.a.svc:443/apis/g.io/v1");
        assert_eq!(server.destination(None).trust, Trust::Anything);
        assert!(Server::of(&plane, &json!({"spec": {"group": "g.io", "version": "v1"}})).is_none());
    }

    #[test]
    fn a_server_that_does_not_answer_is_asked_less_and_less() {
        let object = json!({"spec": {"service": {"namespace": "a", "name": "b"}}});
        let server = Server::of(&"p".parse().unwrap(), &object).unwrap();
        assert!(server.begin_check((1, 1)));
        assert!(!server.begin_check((1, 1)), "one check at a time");
        for _ in 0..100 {
            server.end_check(false);
        }
        assert!(!server.begin_check((1, 1)), "it waits");
        assert!(server.begin_check((2, 1)), "unless its Service changes");
    }
}
