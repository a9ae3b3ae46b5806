//! The frames of a watch: what each event is on the wire, in the format and shape that were negotiated.
//!
//! JSON events are lines; protobuf events have their length in four bytes before them. Watches that see the same of an
//! event share the bytes of its frame.

use crate::{
    negotiate::{Format, Shape},
    output::{Output, partial},
    respond, websocket,
};
use bytes::{BufMut, Bytes, BytesMut};
use freehold_apiserver_registry::{Changed, EventKind, Object, WatchEvent};
use freehold_machinery::{Status, Value, meta};
use freehold_machinery_protobuf as protobuf;
use freehold_machinery_table::{ListMeta, Printer};
use http::HeaderValue;
use prometheus_client::metrics::counter::Counter;
use serde_json::json;
use std::sync::Arc;

/// Bytes of the length before a frame of protobuf.
const LENGTH: usize = 4;
/// Bytes of an object that takes a millisecond to be made into something else.
const LARGE: usize = 32 * 1024;

/// Makes the frames of one watch.
pub(crate) struct Encoder {
    output: Output,
    message: Option<protobuf::Kind>,
    printer: Option<Printer<'static>>,
    first: bool,
    /// Equal for watches that make the same frame of an event.
    encoding: u64,
    /// Counter of the events that were sent.
    sent: Counter,
}

impl Encoder {
    /// For what was negotiated. An error where the kind has no protobuf form.
    pub(crate) fn new(output: Output, sent: Counter) -> Result<Self, Status> {
        let binary = output.accepted.format == Format::Protobuf;
        let message = if binary { Some(output.message()?) } else { None };
        let encoding = output.encoding();
        Ok(Self { output, message, printer: None, first: true, encoding, sent })
    }

    /// The media type of the stream.
    pub(crate) fn content_type(&self) -> HeaderValue {
        HeaderValue::from_static(match self.message {
            Some(_) => "application/vnd.kubernetes.protobuf;stream=watch",
            None => "application/json",
        })
    }

    /// What an event is as a message.
    pub(crate) fn message_kind(&self) -> websocket::Kind {
        if self.message.is_some() { websocket::Kind::Binary } else { websocket::Kind::Text }
    }

    /// A frame as a message: without the length that stands before one of protobuf.
    pub(crate) fn message_of(&self, frame: Bytes) -> Bytes {
        if self.message.is_some() { frame.slice(LENGTH.min(frame.len())..) } else { frame }
    }

    /// Whether an event takes long to be made into a frame: a large object that does not go out as it is stored.
    pub(crate) fn takes_long(&self, event: &WatchEvent) -> bool {
        let as_stored = self.message.is_none() && self.output.accepted.shape == Shape::Whole;
        match event {
            WatchEvent::Changed(Changed { object: Object::Cached(entry), .. }) if !as_stored => {
                entry.item().len() > LARGE
            }
            _ => false,
        }
    }

    /// An event's frame, and whether it is the last.
    pub(crate) fn frame(&mut self, event: WatchEvent) -> (Bytes, bool) {
        self.sent.inc();
        let made = match event {
            WatchEvent::Changed(changed) => self.changed(&changed),
            WatchEvent::Bookmark(revision, initial_end) => {
                self.bookmark(revision, initial_end).map(|object| self.framed("BOOKMARK", &object))
            }
            WatchEvent::Error(status) => Err(status),
        };
        match made {
            Ok(frame) => (frame, false),
            Err(status) => (self.framed("ERROR", &self.failure(&status)), true),
        }
    }

    fn changed(&mut self, changed: &Changed) -> Result<Bytes, Status> {
        // The first Table has the columns, which makes it the watch's own.
        if matches!(self.output.accepted.shape, Shape::Table(_)) && self.first {
            return self.made(changed);
        }
        let mut failure = None;
        let frame = changed.frame(self.encoding, || {
            self.made(changed).unwrap_or_else(|status| {
                failure = Some(status);
                Bytes::new()
            })
        });
        match failure {
            Some(status) => Err(status),
            // Another watch could not make it.
            None if frame.is_empty() => self.made(changed),
            None => Ok(frame),
        }
    }

    fn made(&mut self, changed: &Changed) -> Result<Bytes, Status> {
        let name = match changed.kind {
            EventKind::Added => "ADDED",
            EventKind::Modified => "MODIFIED",
            EventKind::Deleted => "DELETED",
        };
        let object = self.object(&changed.object)?;
        Ok(self.framed(name, &object))
    }

    fn framed(&self, name: &str, object: &[u8]) -> Bytes {
        if self.message.is_some() {
            return protobuf::frame(name, object).into();
        }
        let mut frame = BytesMut::with_capacity(object.len() + name.len() + 24);
        frame.put_slice(b"{\"type\":\"");
        frame.put_slice(name.as_bytes());
        frame.put_slice(b"\",\"object\":");
        frame.put_slice(object);
        frame.put_slice(b"}\n");
        frame.freeze()
    }

    fn failure(&self, status: &Status) -> Bytes {
        match self.message {
            Some(_) => respond::failure_message(status).unwrap_or_default(),
            None => Bytes::from(status.to_json().to_string()),
        }
    }

    /// The bytes of an event's object.
    fn object(&mut self, object: &Object) -> Result<Bytes, Status> {
        let json = match self.output.accepted.shape {
            Shape::Whole => object.bytes(),
            Shape::Metadata(version) => partial(&object.bytes(), version)?,
            Shape::Table(_) => {
                let value = Arc::unwrap_or_clone(object.value());
                return Ok(self.table(value).to_string().into());
            }
        };
        self.finish(json)
    }

    fn finish(&self, json: Bytes) -> Result<Bytes, Status> {
        match &self.message {
            Some(message) => message.encode(&json).map(Bytes::from).map_err(Status::internal),
            None => Ok(json),
        }
    }

    /// The bytes of a bookmark's object.
    fn bookmark(&mut self, revision: u64, initial_end: bool) -> Result<Bytes, Status> {
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if initial_end {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let (kind, version) = self.output.names();
        let object = json!({"kind": kind, "apiVersion": version, "metadata": metadata});
        match self.output.accepted.shape {
            Shape::Table(_) => Ok(self.table(object).to_string().into()),
            _ => self.finish(object.to_string().into()),
        }
    }

    /// A Table of one row; column definitions go with the first event only. The first object decides whether projects
    /// are told apart.
    fn table(&mut self, object: Value) -> Value {
        let output = &self.output;
        let project = output.tells_projects(&object);
        let printer = self.printer.get_or_insert_with(|| output.printer(project));
        let version = meta::resource_version(&object).to_owned();
        let row = printer.row(object, output.include, jiff::Timestamp::now());
        let list = ListMeta { resource_version: &version, ..ListMeta::default() };
        printer.table(vec![row], &list, std::mem::take(&mut self.first))
    }
}
