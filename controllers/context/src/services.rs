//! What controllers keep of Services, Endpoints and EndpointSlices.

use crate::object::labels;
use freehold_machinery::Value;
use freehold_runtime::Key;

/// The label that names a slice's Service.
pub const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// The label that says who writes a slice.
pub const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// Who writes slices of Services that select pods.
pub const SLICES: &str = "endpointslice-controller.k8s.io";
/// Who writes slices of Endpoints.
pub const MIRROR: &str = "endpointslicemirroring-controller.k8s.io";

/// Endpoints or a slice as it was seen last, as text: there may be many, and few are looked at.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    json: Box<str>,
    /// Writer of a slice, and the name of its Service; `None` for Endpoints.
    pub slice_of: Option<(&'static str, Box<str>)>,
}

impl Kept {
    /// What is kept of Endpoints.
    pub fn endpoints(endpoints: Value) -> Option<Self> {
        Some(Self { json: endpoints.to_string().into(), slice_of: None })
    }

    /// What is kept of a slice: nothing of those that somebody else writes.
    pub fn slice(slice: Value) -> Option<Self> {
        let label = |key: &str| labels(&slice)?.get(key)?.as_str();
        let by = label(MANAGED_BY)?;
        let manager = [SLICES, MIRROR].into_iter().find(|known| *known == by)?;
        let slice_of = Some((manager, label(SERVICE_NAME).unwrap_or_default().into()));
        Some(Self { json: slice.to_string().into(), slice_of })
    }

    /// Index entries: of slices, their writer and Service.
    pub fn index(key: &Key, kept: &Self) -> Vec<String> {
        let entry = |(manager, service): &(&str, Box<str>)| slices_of(manager, &key.namespace, service);
        kept.slice_of.iter().map(entry).collect()
    }

    /// Parses the object; null where it is no JSON.
    pub fn object(&self) -> Value {
        serde_json::from_str(&self.json).unwrap_or_default()
    }
}

/// Returns the index entry of the slices of a Service that `manager` writes.
pub fn slices_of(manager: &str, namespace: &str, service: &str) -> String {
    format!("{manager}/{namespace}/{service}")
}

/// What is kept of a Service.
pub fn service_view(mut service: Value) -> Option<Value> {
    service.as_object_mut()?.remove("status");
    Some(service)
}
