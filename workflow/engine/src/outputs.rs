//! Outputs of tasks, and which of them a run's state has itself.

use crate::NodeId;
use freehold_machinery::Value;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The outputs of a task or item.
pub(crate) type Outputs = BTreeMap<String, Value>;

/// Which outputs are where.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Paging {
    pub(crate) pages: Vec<PageName>,
    /// Whose outputs no page has.
    pub(crate) inline: BTreeSet<NodeId>,
    /// Their bytes.
    pub(crate) inline_bytes: usize,
    /// Bytes of all outputs, lists of fan-outs aside.
    pub(crate) bytes: usize,
    /// Whether a page has the values of parameters.
    pub(crate) params: bool,
}

/// A page: a digest of what it says, and how many pieces it has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PageName(pub(crate) String, pub(crate) u32);

impl PageName {
    /// The names of its pieces, in order.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = String> + '_ {
        (0..self.1).map(|n| format!("{}.{n}", self.0))
    }
}

/// The bytes that outputs have.
pub(crate) fn size(outputs: &Outputs) -> usize {
    outputs.iter().map(|(name, value)| name.len() + value.to_string().len()).sum()
}

impl Paging {
    pub(crate) fn add(&mut self, id: NodeId, bytes: usize) {
        self.inline.insert(id);
        self.inline_bytes += bytes;
    }
}
