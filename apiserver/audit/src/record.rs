//! One request, from the moment its author is known to the end of its answer.

use crate::{
    Auditor, Level, Stage, Trailed, annotations,
    event::{AuthenticationMetadata, Event, Micros, ResponseStatus},
    policy::Wanted,
    secret::{REDACTED, Sensitive},
};
use freehold_machinery::{Status, User, Value, meta};
use parking_lot::Mutex;
use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, Ordering},
};

/// Bytes of an object that an event may have; larger ones are left out, and the event says so.
pub const MAX_OBJECT: usize = 1 << 20;

/// What was answered.
#[derive(Debug, Default)]
pub struct Response {
    /// The HTTP status code.
    pub code: u16,
    /// The Status that it is, for failures and deletes.
    pub status: Option<Status>,
    /// The body, where [`Record::wants_response`].
    pub object: Option<Value>,
}

/// What is learned of a request on its way.
pub struct Record {
    auditor: Arc<Auditor>,
    wanted: Vec<Option<Wanted>>,
    trailed: OnceLock<Trailed>,
    /// Whether its author was found to have a right to it.
    allowed: AtomicBool,
    sensitive: Option<Sensitive>,
    level: Level,
    event: Mutex<Event>,
    ended: AtomicBool,
}

impl Record {
    pub(crate) fn new(
        auditor: Arc<Auditor>,
        (wanted, trailed): (Vec<Option<Wanted>>, Option<Trailed>),
        sensitive: Option<Sensitive>,
        event: Event,
    ) -> Self {
        let level = event.level;
        let trailed = trailed.map(OnceLock::from).unwrap_or_default();
        let (allowed, ended) = Default::default();
        Self { auditor, wanted, trailed, allowed, sensitive, level, event: Mutex::new(event), ended }
    }

    /// Whether its events are kept for an organization.
    pub fn is_trailed(&self) -> bool {
        self.trailed.get().is_some()
    }

    /// Keeps its events for an organization, too. The first one that is told counts.
    pub fn trail(&self, trailed: Trailed) {
        // One that is there already stays.
        let _ = self.trailed.set(trailed);
    }

    /// The author was found to have a right to it.
    pub fn allowed(&self) {
        self.allowed.store(true, Ordering::Relaxed);
    }

    /// Whether the answer's body is to be in the event.
    pub fn wants_response(&self) -> bool {
        self.level >= Level::RequestResponse
    }

    /// Adds an annotation. The first of equal keys stays.
    pub fn annotate(&self, key: &str, value: &str) {
        let mut event = self.event.lock();
        if !event.annotations.contains_key(key) {
            event.annotations.insert(key.to_owned(), value.to_owned());
        }
    }

    /// Whether the request was allowed, and why.
    pub fn decided(&self, allowed: bool, reason: &str) {
        self.allowed.store(allowed, Ordering::Relaxed);
        self.annotate(annotations::DECISION, if allowed { "allow" } else { "forbid" });
        self.annotate(annotations::REASON, reason);
    }

    /// Who the request is treated as, and the verb that constrained that (empty for none).
    pub fn impersonated(&self, user: &User, constraint: &str) {
        let mut event = self.event.lock();
        event.impersonated_user = Some(user.into());
        event.authentication_metadata = (!constraint.is_empty())
            .then(|| AuthenticationMetadata { impersonation_constraint: constraint.to_owned() });
    }

    /// The object that was sent, which takes so many bytes. What the URL did not say is read from it.
    pub fn request(&self, object: &Value, bytes: usize) {
        let shown = (self.level >= Level::Request).then(|| self.shown(object, bytes)).flatten();
        let mut event = self.event.lock();
        if let Some(about) = &mut event.object_ref {
            let known = [
                (&mut about.namespace, meta::namespace(object)),
                (&mut about.name, meta::name(object)),
                (&mut about.uid, meta::uid(object)),
                (&mut about.resource_version, meta::resource_version(object)),
            ];
            known
                .into_iter()
                .filter(|(field, _)| field.is_empty())
                .for_each(|(field, text)| *field = text.into());
        }
        event.request_object = shown;
    }

    /// The patch that was sent.
    pub fn patch(&self, patch: &Value, bytes: usize) {
        if self.level >= Level::Request {
            let shown = self.shown(patch, bytes);
            self.event.lock().request_object = shown;
        }
    }

    /// What was answered. Failures of requests for Secrets do not repeat what was sent.
    pub fn response(&self, response: Response) {
        let Response { code, status, object } = response;
        let mut answered = status.as_ref().map(ResponseStatus::from).unwrap_or_default();
        answered.code = code;
        let hidden = code >= 400 && self.sensitive.is_some_and(|sensitive| sensitive.tells(code));
        if hidden {
            answered.message = REDACTED.to_owned();
            answered.details = None;
        }
        let object =
            object.filter(|_| self.wants_response() && !hidden).map(|object| match &self.sensitive {
                Some(sensitive) if code < 400 => sensitive.redact(object),
                _ => object,
            });
        let mut event = self.event.lock();
        event.response_status = Some(answered);
        event.response_object = object.map(Arc::new);
    }

    /// Says that an object was too large to be recorded.
    pub fn truncated(&self) {
        self.annotate(annotations::TRUNCATED, "true");
    }

    /// Makes the event of a stage. False where a sink that must have it has not: the request must not be served then.
    ///
    /// A request ends once: after `ResponseComplete` or `Panic`, nothing more is made.
    pub async fn stage(&self, stage: Stage) -> bool {
        let last = matches!(stage, Stage::ResponseComplete | Stage::Panic);
        if last && self.ended.swap(true, Ordering::AcqRel) {
            return true;
        }
        let event = {
            let mut event = self.event.lock();
            event.stage = stage;
            if stage != Stage::RequestReceived {
                event.stage_timestamp = Micros::now();
            }
            event.clone()
        };
        if let Some(trailed) = self.trailed.get() {
            self.auditor.emit_trailed(trailed, self.allowed.load(Ordering::Relaxed), &event).await;
        }
        self.auditor.emit(&self.wanted, &event).await
    }

    /// Makes the last event, wherever that is noticed: at the end of a stream that nobody waits for.
    pub fn end(self: Arc<Self>) {
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { self.stage(Stage::ResponseComplete).await });
        }
    }

    fn shown(&self, object: &Value, bytes: usize) -> Option<Arc<Value>> {
        if bytes > MAX_OBJECT {
            self.truncated();
            return None;
        }
        let object = object.clone();
        Some(Arc::new(match self.sensitive {
            Some(sensitive) => sensitive.redact(object),
            None => object,
        }))
    }
}

/// Removes `metadata.managedFields` of an object, of the items of a list, or of the rows of a Table.
pub(crate) fn drop_managed_fields(value: &mut Value) {
    let drop = |object: &mut Value| {
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
    };
    drop(value);
    if let Some(items) = value.get_mut("items").and_then(Value::as_array_mut) {
        items.iter_mut().for_each(drop);
    }
    if let Some(rows) = value.get_mut("rows").and_then(Value::as_array_mut) {
        rows.iter_mut().filter_map(|row| row.get_mut("object")).for_each(drop);
    }
}
