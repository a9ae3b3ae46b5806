//! Descriptions of the columns of built-in kinds.

use super::kind::{GroupData, KindData};
use std::collections::HashMap;

static PACKED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/printed.zst"));

/// Descriptions of columns by kind, as Kubernetes' printers declare them; `tools/kubernetes/printed` makes them.
pub(super) struct Printed(HashMap<String, HashMap<String, String>>);

impl Printed {
    /// Unpacks them all; dropped when the types are made.
    pub(super) fn unpack() -> Self {
        let text = zstd::decode_all(PACKED).expect("the build packed them");
        Self(serde_json::from_slice(&text).expect("the build packed JSON"))
    }

    /// The description of a column; `None` for those that all kinds share.
    pub(super) fn description(&self, group: &GroupData, kind: &KindData, column: &str) -> Option<String> {
        let package = match group.group {
            "events.k8s.io" => "core",
            _ => group.package().rsplit('.').next().unwrap_or_default(),
        };
        self.0.get(&format!("{package}.{}", kind.kind))?.get(column).cloned()
    }
}
