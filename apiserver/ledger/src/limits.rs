//! Limits of a plane by its class, and what a plane has of what they count.

use freehold_machinery::Value;
use serde::{Deserialize, Serialize};

/// What a class allows each of its planes. `None`: it does not say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PlaneLimits {
    /// Objects of its own.
    pub objects: Option<i64>,
    /// Bytes of their JSON.
    pub bytes: Option<i64>,
    /// Bytes of one object.
    pub object_bytes: Option<i64>,
    /// CustomResourceDefinitions of its own.
    pub custom_resource_definitions: Option<i64>,
    /// Webhooks in its configurations of admission.
    pub webhooks: Option<i64>,
    /// Requests a second, over time.
    pub requests_per_second: Option<u32>,
    /// Requests at a time.
    pub in_flight_requests: Option<u32>,
    /// Watches at a time.
    pub watches: Option<u32>,
}

impl PlaneLimits {
    pub(crate) fn counts(&self) -> bool {
        self.rows(&Usage::default()).iter().any(|(_, _, limit)| limit.is_some())
    }

    /// What a plane has, and what is allowed of it, by the names of the limits.
    pub fn rows(&self, usage: &Usage) -> [(&'static str, i64, Option<i64>); 4] {
        [
            ("objects", usage.objects, self.objects),
            ("bytes", usage.bytes, self.bytes),
            ("customresourcedefinitions", usage.definitions, self.custom_resource_definitions),
            ("webhooks", usage.webhooks, self.webhooks),
        ]
    }
}

/// What a plane has of its own; or how a write changes that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Objects.
    pub objects: i64,
    /// Bytes of their JSON.
    pub bytes: i64,
    /// CustomResourceDefinitions.
    pub definitions: i64,
    /// Webhooks of admission.
    pub webhooks: i64,
    /// The record of the plane that this was counted above.
    pub(crate) stack: u64,
    /// The class that it was counted for: while that had no limits, nothing was counted.
    pub(crate) class: u64,
}

impl Usage {
    pub(crate) fn plus(&self, other: &Self) -> Self {
        let add = |a: i64, b: i64| a.saturating_add(b).max(0);
        Self {
            objects: add(self.objects, other.objects),
            bytes: add(self.bytes, other.bytes),
            definitions: add(self.definitions, other.definitions),
            webhooks: add(self.webhooks, other.webhooks),
            stack: self.stack,
            class: self.class,
        }
    }

    pub(crate) fn add_object(
        &mut self,
        group: &str,
        resource: &str,
        bytes: usize,
        webhooks: impl FnOnce() -> usize,
    ) {
        self.objects += 1;
        self.bytes += bytes as i64;
        match (group, resource) {
            ("apiextensions.k8s.io", "customresourcedefinitions") => self.definitions += 1,
            (
                "admissionregistration.k8s.io",
                "validatingwebhookconfigurations" | "mutatingwebhookconfigurations",
            ) => self.webhooks += webhooks() as i64,
            _ => {}
        }
    }
}

pub(crate) fn webhooks(object: &Value) -> usize {
    object["webhooks"].as_array().map_or(0, Vec::len)
}
