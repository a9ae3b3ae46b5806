//! Events, as `kubectl describe` shows them, combined and limited as Kubernetes' recorder does.

use freehold_client::{Client, Patch, PatchOptions, Resource};
use freehold_machinery::{Value, meta, time};
use parking_lot::Mutex;
use serde_json::json;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

const EVENTS: Resource = Resource::namespaced("", "v1", "events");

/// Whether an event is good news.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    /// Nothing to worry about.
    Normal,
    /// A problem that may need action.
    Warning,
}

/// How long an event is added to, rather than another one written.
const TOGETHER: Duration = Duration::from_secs(600);
/// Largest number of open events, and of objects whose events are counted.
const MAX_OPEN: usize = 4096;
/// Number of messages of one reason after which further ones within [`TOGETHER`] are combined in one event.
const SIMILAR: u32 = 10;
/// The prefix of a combined event's message, as in Kubernetes.
const COMBINED: &str = "(combined from similar events): ";
/// Events of one object that are written at once, good news and bad apart; others are left out.
const BURST: u32 = 25;
/// After so long one more may be written.
const REFILL: Duration = Duration::from_secs(300);

/// Records events of one controller. Repeated events are counted in one: warnings whatever their message, because it
/// may name something new each time. As with client-go's recorder the events of a busy object are limited: a controller
/// that creates a thousand Pods does not write a thousand. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Recorder {
    component: &'static str,
    told: Arc<Mutex<EventCache>>,
}

/// Recently written events.
#[derive(Debug, Default)]
struct EventCache {
    open: HashMap<Subject, Open>,
    /// Messages of an object for one reason, and since when.
    similar: HashMap<(String, String), (u32, Instant)>,
    /// Events that may still be written of an object, and since when that holds.
    left: HashMap<(String, EventType), (u32, Instant)>,
}

/// How an event is to be written.
#[derive(Debug)]
struct PendingEvent {
    subject: Subject,
    message: String,
    /// The event to be added to; `None` makes a new one.
    open: Option<Open>,
}

/// The identity of an event: the object's uid, the reason and, for normal events, the message.
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
        Self { component, told: Arc::default() }
    }

    /// Writes an event about an object (which has `apiVersion` and `kind`) into its namespace, or `default` for a
    /// cluster-scoped object. A failure is logged and no more: events are not part of anything's correctness.
    pub async fn event(&self, client: &Client, about: &Value, kind: EventType, reason: &str, message: &str) {
        let telling = self.told.lock().telling(meta::uid(about), kind, reason, message);
        let Some(PendingEvent { subject, message, open }) = telling else { return };
        let event = self.build(about, kind, reason, &message, jiff::Timestamp::now());
        let written = match open {
            Some(open) => self.add(client, &event, &open).await,
            None => {
                client.create(&EVENTS, &event).await.map(|created| self.opened(subject, meta::name(&created)))
            }
        };
        if let Err(error) = written {
            tracing::debug!(component = self.component, reason, %error, "failed to write an event");
        }
    }

    fn opened(&self, subject: Subject, name: &str) {
        let open = Open { name: name.to_owned(), count: 1, since: Instant::now() };
        limited(&mut self.told.lock().open).insert(subject, open);
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

/// A map with room for one more.
fn limited<K, V>(map: &mut HashMap<K, V>) -> &mut HashMap<K, V> {
    if map.len() >= MAX_OPEN {
        map.clear();
    }
    map
}

impl EventCache {
    /// Decides how to write an event; `None` where the object's limit is exhausted.
    fn telling(&mut self, uid: &str, kind: EventType, reason: &str, message: &str) -> Option<PendingEvent> {
        let alone = |detail: &str| (uid.to_owned(), reason.to_owned(), detail.to_owned());
        let (mut subject, mut message) = (alone(message), message.to_owned());
        if kind == EventType::Warning {
            subject = alone("");
        } else if !self.open.get(&subject).is_some_and(Open::is_recent) && self.is_similar(uid, reason) {
            (subject, message) = (alone(""), format!("{COMBINED}{message}"));
        }
        self.may_write(uid, kind).then(|| PendingEvent { open: self.again(&subject), subject, message })
    }

    /// Counts one message more of a reason; whether there were many.
    fn is_similar(&mut self, uid: &str, reason: &str) -> bool {
        let key = (uid.to_owned(), reason.to_owned());
        let (count, since) = limited(&mut self.similar).entry(key).or_insert((0, Instant::now()));
        if since.elapsed() >= TOGETHER {
            (*count, *since) = (0, Instant::now());
        }
        *count = count.saturating_add(1);
        *count >= SIMILAR
    }

    fn may_write(&mut self, uid: &str, kind: EventType) -> bool {
        let key = (uid.to_owned(), kind);
        let (left, since) = limited(&mut self.left).entry(key).or_insert((BURST, Instant::now()));
        while *left < BURST && since.elapsed() >= REFILL {
            (*left, *since) = (*left + 1, *since + REFILL);
        }
        if *left == BURST {
            *since = Instant::now();
        }
        let may = *left > 0;
        *left = left.saturating_sub(1);
        may
    }

    /// Increments the count of an open event; `None` without one.
    fn again(&mut self, subject: &Subject) -> Option<Open> {
        let open = self.open.get_mut(subject).filter(|open| open.is_recent())?;
        open.count += 1;
        Some(open.clone())
    }
}

impl Open {
    fn is_recent(&self) -> bool {
        self.since.elapsed() < TOGETHER
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
        let again = |subject: &Subject| recorder.told.lock().again(subject);
        assert!(again(&subject("")).is_none());
        recorder.opened(subject(""), "first");
        let counts: Vec<i64> = (0..3).filter_map(|_| again(&subject("")).map(|o| o.count)).collect();
        assert_eq!(counts, [2, 3, 4]);
        assert!(again(&subject("other news")).is_none());
    }

    /// Tells of a hundred pods; gives how often something new was written, and how often something was added to.
    fn told_of_a_hundred(recorder: &Recorder, uid: &str) -> (usize, usize) {
        let (mut new, mut added) = (0, 0);
        for pod in 0..100 {
            let message = format!("Created pod: {pod}");
            let told = recorder.told.lock().telling(uid, EventType::Normal, "SuccessfulCreate", &message);
            match told {
                Some(PendingEvent { open: None, subject, .. }) => {
                    recorder.opened(subject, "event");
                    new += 1;
                }
                Some(told) => {
                    assert!(told.message.starts_with(COMBINED), "{told:?}");
                    added += 1;
                }
                None => {}
            }
        }
        (new, added)
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_that_much_happens_to_has_few_events() {
        let recorder = Recorder::new("c");
        assert_eq!(told_of_a_hundred(&recorder, "one"), (10, 15));
        assert_eq!(told_of_a_hundred(&recorder, "other"), (10, 15), "each object has its own");
        let warned = recorder.told.lock().telling("one", EventType::Warning, "FailedCreate", "why");
        assert!(warned.is_some(), "bad news is told");
        tokio::time::advance(2 * REFILL).await;
        assert_eq!(told_of_a_hundred(&recorder, "one"), (2, 0), "two more may be");
    }
}
