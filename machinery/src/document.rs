//! JSON that is seldom read and too large to keep parsed: kept compressed, parsed on demand.

use crate::Value;
use flate2::{Compression, read::ZlibDecoder, write::ZlibEncoder};
use std::{
    fmt,
    io::{self, Write},
    sync::Arc,
};

/// A JSON value at rest. A schema with its descriptions takes about a fortieth of what it takes parsed.
#[derive(Clone, PartialEq, Eq)]
pub struct Document(Arc<[u8]>);

impl Document {
    /// Compresses `value` (zlib, fastest level).
    pub fn new(value: &Value) -> Self {
        let pack = || -> io::Result<Vec<u8>> {
            let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
            serde_json::to_writer(&mut encoder, value)?;
            encoder.flush()?;
            encoder.finish()
        };
        Self(pack().expect("a JSON value can be written to memory").into())
    }

    /// Unpacks it: parsed anew with each call.
    pub fn read(&self) -> Value {
        serde_json::from_reader(io::BufReader::new(ZlibDecoder::new(&*self.0)))
            .expect("what was packed here can be unpacked")
    }

    /// Bytes that it takes.
    pub fn packed_len(&self) -> usize {
        self.0.len()
    }
}

impl fmt::Debug for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "document of {} packed bytes", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_document_is_read_as_it_was_packed() {
        let value = json!({"type": "object", "description": "a".repeat(4000), "enum": [1, null, "ü", 1.5]});
        let document = Document::new(&value);
        assert_eq!(document.read(), value);
        assert!(document.packed_len() < 200, "{document:?}");
    }
}
