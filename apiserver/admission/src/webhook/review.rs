//! The AdmissionReview that is sent to a webhook.

use crate::{Attributes, Seen, policy::scope};
use freehold_machinery::Value;
use serde::Serialize;
use uuid::Uuid;

/// An `AdmissionReview` on its way to a webhook.
#[derive(Clone, Debug)]
pub struct Review {
    /// Names the request; the answer has to repeat it.
    pub uid: String,
    /// `v1` or `v1beta1`.
    pub version: &'static str,
    /// The JSON.
    pub body: Vec<u8>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    kind: &'a str,
    api_version: &'a str,
    request: Request<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    uid: &'a str,
    #[serde(flatten)]
    about: &'a Value,
    object: Option<&'a Value>,
    old_object: Option<&'a Value>,
}

impl Review {
    pub(super) fn new(version: &'static str, attributes: &Attributes<'_>, seen: &Seen<'_>) -> Self {
        let uid = Uuid::new_v4().to_string();
        let mut about = scope::request(attributes, seen.ty);
        // What is empty is left out, but for the option.
        if let Some(map) = about.as_object_mut() {
            map.retain(|_, value| value != "");
            if let Some(user) = map.get_mut("userInfo").and_then(Value::as_object_mut) {
                user.retain(|_, value| !is_empty(value));
            }
        }
        let api_version = format!("admission.k8s.io/{version}");
        let request = Request { uid: &uid, about: &about, object: seen.object, old_object: seen.old };
        let body = Body { kind: "AdmissionReview", api_version: &api_version, request };
        // Values are always written.
        let body = serde_json::to_vec(&body).unwrap_or_default();
        Self { uid, version, body }
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => value.is_null(),
    }
}
