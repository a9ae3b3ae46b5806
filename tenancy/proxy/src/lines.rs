//! Watches in JSON, line by line.

use bytes::{Buf as _, Bytes, BytesMut};
use freehold_client::Download;
use freehold_machinery::Value;
use futures_util::{Stream, StreamExt as _, stream};

/// The longest event of a watch.
const LONGEST: usize = 16 << 20;

/// The complete lines of an answer, each with its end. The stream ends with the answer, or where it breaks.
pub(crate) fn lines(download: Download) -> impl Stream<Item = Bytes> + Send {
    let pieces = Box::pin(download.into_stream());
    stream::unfold((pieces, BytesMut::new(), 0), |(mut pieces, mut buffer, mut scanned)| async move {
        loop {
            if let Some(end) = buffer[scanned..].iter().position(|b| *b == b'\n') {
                let line = buffer.split_to(scanned + end + 1).freeze();
                return Some((line, (pieces, buffer, 0)));
            }
            scanned = buffer.len();
            if buffer.remaining() > LONGEST {
                tracing::warn!("an event of a watch is too long; the watch ends");
                return None;
            }
            match pieces.next().await? {
                Ok(piece) => buffer.extend_from_slice(&piece),
                Err(_) => return None,
            }
        }
    })
}

/// Reads an event: its type and its object.
pub(crate) fn event(line: &[u8]) -> Option<(String, Value)> {
    let mut event: Value = serde_json::from_slice(line).ok()?;
    let kind = event["type"].as_str()?.to_owned();
    Some((kind, event["object"].take()))
}

/// Writes an event as a line.
pub(crate) fn line(kind: &str, object: &Value) -> Bytes {
    Bytes::from(format!("{}\n", serde_json::json!({"type": kind, "object": object})))
}
