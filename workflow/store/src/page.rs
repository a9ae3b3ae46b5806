//! Pages of lists.

use crate::{Error, Result};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

/// The most rows of a page.
pub const MAX_PAGE: usize = 500;

/// Rows, and where the next begin.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Page<T> {
    /// The rows.
    pub items: Vec<T>,
    /// Where the next page begins; `None` after the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// The place after a row: new rows move no page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    /// The row's time.
    pub at: i64,
    /// What tells rows of one time apart.
    pub key: String,
}

impl Cursor {
    /// Reads a cursor that [`encode`](Self::encode) wrote.
    ///
    /// # Errors
    /// [`Error::Query`] for any other text.
    pub fn decode(text: &str) -> Result<Self> {
        let refuse = || Error::Query("cursor: give the value of next of the page before, unchanged".into());
        if text.len() > 4096 {
            return Err(refuse());
        }
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| refuse())?;
        serde_json::from_slice(&bytes).map_err(|_| refuse())
    }

    /// Writes it as text that fits into a URL.
    pub fn encode(&self) -> String {
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).unwrap_or_default())
    }
}

/// Cuts rows, of which one more than wanted was read, to a page.
pub(crate) fn page<T>(mut items: Vec<T>, limit: usize, cursor: impl Fn(&T) -> Cursor) -> Page<T> {
    let more = items.len() > limit;
    items.truncate(limit);
    let next = items.last().filter(|_| more).map(|last| cursor(last).encode());
    Page { items, next }
}

/// The number of rows to read for a page of `wanted` (0: 100).
pub(crate) fn limit(wanted: usize) -> usize {
    if wanted == 0 { 100 } else { wanted.min(MAX_PAGE) }
}
