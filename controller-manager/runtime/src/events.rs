//! Events: what people read in `kubectl describe`.

use freehold_client::{Client, Resource};
use freehold_machinery::{Value, meta, time};
use serde_json::json;

const EVENTS: Resource = Resource::namespaced("", "v1", "events");

/// Whether an event is good news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    /// Nothing to worry about.
    Normal,
    /// Somebody may have to do something.
    Warning,
}

/// Writes events as one controller.
#[derive(Clone, Debug)]
pub struct Recorder {
    component: &'static str,
}

impl Recorder {
    /// A recorder for the controller `component`.
    pub fn new(component: &'static str) -> Self {
        Self { component }
    }

    /// Writes an event about an object (which has `apiVersion` and `kind`) into its namespace, or `default` for a
    /// cluster-scoped object. A failure is logged and no more: events are not part of anything's correctness.
    pub async fn event(&self, client: &Client, about: &Value, kind: EventType, reason: &str, message: &str) {
        let event = self.build(about, kind, reason, message, jiff::Timestamp::now());
        if let Err(error) = client.create(&EVENTS, &event).await {
            tracing::debug!(component = self.component, reason, %error, "event not written");
        }
    }

    fn build(
        &self,
        about: &Value,
        kind: EventType,
        reason: &str,
        message: &str,
        now: jiff::Timestamp,
    ) -> Value {
        let namespace = Some(meta::namespace(about)).filter(|n| !n.is_empty()).unwrap_or("default");
        let at = time::format_seconds(now);
        // The name has to be unique: the object's, and a number that grows.
        let name: String = meta::name(about).chars().take(200).collect();
        json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": format!("{name}.{:x}", now.as_nanosecond()), "namespace": namespace},
            "involvedObject": {
                "apiVersion": about["apiVersion"], "kind": about["kind"], "name": meta::name(about),
                "namespace": meta::namespace(about), "uid": meta::uid(about),
                "resourceVersion": meta::resource_version(about),
            },
            "reason": reason,
            "message": message.chars().take(1024).collect::<String>(),
            "source": {"component": self.component},
            "reportingComponent": self.component,
            "reportingInstance": "",
            "type": format!("{kind:?}"),
            "firstTimestamp": at,
            "lastTimestamp": at,
            "count": 1,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_about_a_cluster_scoped_object_is_in_default() {
        let about = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a", "uid": "u"}});
        let event =
            Recorder::new("c").build(&about, EventType::Warning, "Why", "how", jiff::Timestamp::UNIX_EPOCH);
        assert_eq!(event["metadata"]["namespace"], "default");
        assert_eq!(event["involvedObject"]["uid"], "u");
        assert_eq!((event["type"].as_str(), event["count"].as_i64()), (Some("Warning"), Some(1)));
    }
}
