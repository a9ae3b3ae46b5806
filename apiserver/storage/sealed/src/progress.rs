//! How far a rotation of keys is.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How far a rotation is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rotation {
    /// Counts rotations of the store.
    pub number: u64,
    /// Values are sealed by data keys from this one on, afterwards.
    pub from_data_key: u32,
    /// When it was asked for, RFC 3339.
    pub started: String,
    /// When it was done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished: Option<String>,
    /// Data keys that were sealed anew.
    pub data_keys: usize,
    /// Values that were looked at, in all passes.
    pub seen: u64,
    /// Values that were sealed anew.
    pub sealed: u64,
    /// Values that could not be opened, in the last pass; the log names them.
    pub failed: u64,
    /// Where the work is.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cursor: String,
    /// Until when one server has the work, in seconds since 1970.
    #[serde(default)]
    pub(crate) until: i64,
    /// The store's revision when it was done: what is read as of an earlier one may need older data keys.
    #[serde(default)]
    pub(crate) revision: u64,
    /// Whether older data keys are gone.
    #[serde(default)]
    pub(crate) cleared: bool,
    /// Values that were passed over in the last pass and will be gone before the next.
    #[serde(skip)]
    pub(crate) passed: u64,
}

impl Rotation {
    /// Whether it was asked for so long ago that all servers know of it.
    pub(crate) fn seen_since(&self, poll: Duration) -> bool {
        let started: jiff::Timestamp = self.started.parse().unwrap_or_default();
        let age = jiff::Timestamp::now().duration_since(started);
        Duration::try_from(age).unwrap_or_default() > poll * 2
    }
}
