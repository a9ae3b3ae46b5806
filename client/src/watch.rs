//! The stream of a watch.

use crate::transport::Streaming;
use crate::{Error, Result};
use bytes::{Buf as _, Bytes, BytesMut};
use freehold_machinery::{Status, Value, meta};
use serde::Deserialize;

/// How many bytes one event may have.
const MAX_EVENT: usize = 16 << 20;

/// A change.
#[derive(Clone, Debug, PartialEq)]
pub enum WatchEvent {
    /// The object is there, and was not seen before.
    Added(Value),
    /// The object changed.
    Modified(Value),
    /// The object is gone; this is its last state.
    Deleted(Value),
    /// Everything up to this resource version has been sent.
    Bookmark {
        /// The resource version.
        resource_version: String,
        /// Whether what was there at the beginning has been sent with this (KEP-3157).
        initial_events_end: bool,
    },
    /// The watch failed and ends.
    Error(Box<Status>),
}

#[derive(Deserialize)]
struct Line {
    #[serde(rename = "type")]
    kind: String,
    object: Value,
}

/// The stream of a watch. It ends when the server ends it, which servers do regularly.
pub struct WatchStream {
    answer: Streaming,
    buffer: BytesMut,
    scanned: usize,
}

impl WatchStream {
    pub(crate) fn new(answer: Streaming) -> Self {
        Self { answer, buffer: BytesMut::new(), scanned: 0 }
    }

    /// The next event; `None` at the end. Safe to drop and call again.
    pub async fn next(&mut self) -> Option<Result<WatchEvent>> {
        Some(self.next_line().await?.and_then(|line| parse(&line)))
    }

    /// The next event as the server wrote it, a line of JSON; `None` at the end. Safe to drop and call again.
    pub async fn next_line(&mut self) -> Option<Result<BytesMut>> {
        loop {
            match self.take_line() {
                Some(line) if line.iter().all(u8::is_ascii_whitespace) => continue,
                Some(line) => return Some(Ok(line)),
                None if self.buffer.len() > MAX_EVENT => return Some(Err(Error::TooLarge(MAX_EVENT))),
                None => {}
            }
            match self.answer.chunk().await? {
                Ok(chunk) => self.buffer.extend_from_slice(&chunk),
                Err(reason) => {
                    return Some(Err(Error::Transport { server: "the watch".into(), reason, sent: true }));
                }
            }
        }
    }

    /// The watch as a [`futures_util::Stream`].
    pub fn into_stream(self) -> impl futures_util::Stream<Item = Result<WatchEvent>> + Send {
        futures_util::stream::unfold(self, |mut watch| async {
            watch.next().await.map(|event| (event, watch))
        })
    }

    fn take_line(&mut self) -> Option<BytesMut> {
        let Some(end) = self.buffer[self.scanned..].iter().position(|b| *b == b'\n') else {
            self.scanned = self.buffer.len();
            return None;
        };
        let line = self.buffer.split_to(self.scanned + end);
        self.buffer.advance(1);
        self.scanned = 0;
        if self.buffer.is_empty() {
            // A large burst must not keep its memory for the rest of a long watch.
            self.buffer = BytesMut::new();
        }
        Some(line)
    }
}

/// An answer that is read as it comes.
pub struct Download {
    answer: Streaming,
}

impl Download {
    pub(crate) fn new(answer: Streaming) -> Self {
        Self { answer }
    }

    /// The answer's bytes, in pieces, as a [`futures_util::Stream`].
    pub fn into_stream(self) -> impl futures_util::Stream<Item = Result<Bytes>> + Send {
        futures_util::stream::unfold(self.answer, |mut answer| async {
            let piece = answer.chunk().await?.map_err(|reason| Error::Transport {
                server: "the server".into(),
                reason,
                sent: true,
            });
            Some((piece, answer))
        })
    }
}

fn parse(line: &[u8]) -> Result<WatchEvent> {
    let Line { kind, object } = serde_json::from_slice(line).map_err(|e| Error::Decode(e.to_string()))?;
    Ok(match kind.as_str() {
        "ADDED" => WatchEvent::Added(object),
        "MODIFIED" => WatchEvent::Modified(object),
        "DELETED" => WatchEvent::Deleted(object),
        "BOOKMARK" => WatchEvent::Bookmark {
            resource_version: meta::resource_version(&object).to_owned(),
            initial_events_end: meta::annotation(&object, "k8s.io/initial-events-end") == Some("true"),
        },
        "ERROR" => {
            let status = serde_json::from_value(object).map_err(|e| Error::Decode(e.to_string()))?;
            WatchEvent::Error(Box::new(status))
        }
        other => return Err(Error::Decode(format!("watch event of type {other:?}"))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn events_are_told_apart_by_type() {
        let object = json!({"metadata": {"resourceVersion": "7", "annotations": {"k8s.io/initial-events-end": "true"}}});
        let line = |kind: &str| json!({"type": kind, "object": object}).to_string();
        assert_eq!(parse(line("ADDED").as_bytes()).unwrap(), WatchEvent::Added(object.clone()));
        assert_eq!(parse(line("DELETED").as_bytes()).unwrap(), WatchEvent::Deleted(object.clone()));
        assert_eq!(
            parse(line("BOOKMARK").as_bytes()).unwrap(),
            WatchEvent::Bookmark { resource_version: "7".into(), initial_events_end: true }
        );
        let gone = json!({"type": "ERROR", "object": Status::expired("too old").to_json()}).to_string();
        assert!(matches!(parse(gone.as_bytes()).unwrap(), WatchEvent::Error(s) if s.code == 410));
        assert!(parse(line("ELSE").as_bytes()).is_err());
        assert!(parse(b"{").is_err());
    }
}
