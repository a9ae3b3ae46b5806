//! Events: what people read in `kubectl describe`.

use freehold_client::{Client, Patch, PatchOptions, Resource};
use freehold_machinery::{Value, meta, time};
use parking_lot::Mutex;
use serde_json::json;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

const EVENTS: Resource = Resource::namespaced("", "v1", "events");

/// Whether an event is good news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    /// Nothing to worry about.
    Normal,
    /// Somebody may have to do something.
    Warning,
}

/// How long an event is added to, rather than another one written.
const TOGETHER: Duration = Duration::from_secs(600);
/// Events that can be added to, at once.
const MAX_OPEN: usize = 4096;

/// Writes events as one controller. What happens again is counted in one event: for warnings whatever their message,
/// as that may name something new each time. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Recorder {
    component: &'static str,
    open: Arc<Mutex<HashMap<Subject, Open>>>,
}

/// What an event is about: the object's uid, the reason and, for good news, the message.
type Subject = (String, String, String);

/// An event that can be added to.
#[derive(Clone, Debug)]
struct Open {
    name: String,
    count: i64,
    since: Instant,
}

impl Recorder {
    /// A recorder for the controller `component`.
    pub fn new(component: &'static str) -> Self {
        Self { component, open: Arc::default() }
    }

    /// Writes an event about an object (which has `apiVersion` and `kind`) into its namespace, or `default` for a
    /// cluster-scoped object. A failure is logged and no more: events are not part of anything's correctness.
    pub async fn event(&self, client: &Client, about: &Value, kind: EventType, reason: &str, message: &str) {
        let event = self.build(about, kind, reason, message, jiff::Timestamp::now());
        let detail = if kind == EventType::Warning { "" } else { message };
        let subject = (meta::uid(about).to_owned(), reason.to_owned(), detail.to_owned());
        let written = match self.again(&subject) {
            Some(open) => self.add(client, &event, &open).await,
            None => {
                client.create(&EVENTS, &event).await.map(|created| self.opened(subject, meta::name(&created)))
            }
        };
        if let Err(error) = written {
            tracing::debug!(component = self.component, reason, %error, "event not written");
        }
    }

    /// Counts up an event that was written a while ago; `None` where there is none.
    fn again(&self, subject: &Subject) -> Option<Open> {
        let mut all = self.open.lock();
        let open = all.get_mut(subject).filter(|open| open.since.elapsed() < TOGETHER)?;
        open.count += 1;
        Some(open.clone())
    }

    fn opened(&self, subject: Subject, name: &str) {
        let mut all = self.open.lock();
        if all.len() >= MAX_OPEN {
            all.clear();
        }
        all.insert(subject, Open { name: name.to_owned(), count: 1, since: Instant::now() });
    }

    async fn add(&self, client: &Client, event: &Value, open: &Open) -> Result<(), freehold_client::Error> {
        let patch = json!({
            "count": open.count, "message": event["message"], "lastTimestamp": event["lastTimestamp"],
        });
        let namespace = Some(meta::namespace(event));
        let options = PatchOptions::default();
        match client.patch(&EVENTS, namespace, &open.name, &Patch::Merge(patch), &options).await {
            // It has expired: the next one begins anew.
            Err(error) if error.is_not_found() => client.create(&EVENTS, event).await.map(drop),
            other => other.map(drop),
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

    #[test]
    fn what_happens_again_is_added_to_the_first_event() {
        let recorder = Recorder::new("c");
        let subject = |message: &str| ("u".to_owned(), "Why".to_owned(), message.to_owned());
        assert!(recorder.again(&subject("")).is_none());
        recorder.opened(subject(""), "first");
        let counts: Vec<i64> = (0..3).filter_map(|_| recorder.again(&subject("")).map(|o| o.count)).collect();
        assert_eq!(counts, [2, 3, 4]);
        assert!(recorder.again(&subject("other news")).is_none());
    }
}
