//! The meaning of a webhook's answer.

use super::Review;
use base64::{Engine, prelude::BASE64_STANDARD};
use freehold_machinery::{Status, Value};
use serde::Deserialize;
use std::collections::BTreeMap;

/// Operations that a patch may have.
const MAX_OPERATIONS: usize = 10_000;
/// Warnings of one answer that are passed on, and bytes of each.
const MAX_WARNINGS: usize = 32;
const MAX_WARNING: usize = 4096;

/// Why a webhook does not let a write through.
#[derive(Clone, Debug, PartialEq)]
pub enum Failure {
    /// It was not asked, or its answer is none: `failurePolicy` decides.
    Calling(String),
    /// It refuses the write, or can't be asked about it.
    Refused(Status),
}

/// The answer of a webhook that lets a write through.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Response {
    /// JSON patch operations; empty where nothing changes.
    pub patch: Vec<Value>,
    /// For clients.
    pub warnings: Vec<String>,
    /// For the audit log, by the webhook's name and its own keys.
    pub annotations: Vec<(String, String)>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct Body {
    kind: String,
    api_version: String,
    response: Option<Answer>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Answer {
    uid: String,
    allowed: bool,
    status: Option<Value>,
    patch: Option<String>,
    patch_type: Option<String>,
    audit_annotations: Option<BTreeMap<String, String>>,
    warnings: Option<Vec<String>>,
}

pub(super) fn verify(
    webhook: &str,
    review: &Review,
    mutating: bool,
    answer: &[u8],
) -> Result<Response, Failure> {
    let body: Body = serde_json::from_slice(answer).map_err(|error| {
        Failure::Calling(format!("failed to call webhook: {}", undecodable(answer, &error)))
    })?;
    let invalid = |why: String| Failure::Calling(format!("received invalid webhook response: {why}"));
    let strict = review.version == "v1";
    let Some(answer) = body.response else { return Err(invalid("webhook response was absent".to_owned())) };
    if strict && answer.uid != review.uid {
        return Err(invalid(format!("expected response.uid={:?}, got {:?}", review.uid, answer.uid)));
    }
    if strict && (body.kind != "AdmissionReview" || body.api_version != "admission.k8s.io/v1") {
        let group_version =
            if body.api_version.contains('/') || body.api_version.is_empty() && body.kind.is_empty() {
                body.api_version.clone()
            } else {
                format!("/{}", body.api_version)
            };
        let got = if group_version.is_empty() { "/" } else { &group_version };
        let wanted = "admission.k8s.io/v1, Kind=AdmissionReview";
        return Err(invalid(format!("expected webhook response of {wanted}, got {got}, Kind={}", body.kind)));
    }
    let patch = answer.patch.as_deref().unwrap_or_default();
    check_patch(mutating, strict, patch, answer.patch_type.as_deref()).map_err(invalid)?;
    let annotations = answer.audit_annotations.unwrap_or_default().into_iter();
    let annotations = annotations.map(|(key, value)| (format!("{webhook}/{key}"), value)).collect();
    if !answer.allowed {
        return Err(Failure::Refused(refusal(webhook, answer.status.as_ref())));
    }
    let operations = if mutating { operations(patch)? } else { Vec::new() };
    if !operations.is_empty() && strict && answer.patch_type.as_deref() != Some("JSONPatch") {
        let given = answer.patch_type.unwrap_or_default();
        return Err(Failure::Calling(format!("unsupported patch type {given:?}")));
    }
    let mut warnings = answer.warnings.unwrap_or_default();
    warnings.truncate(MAX_WARNINGS);
    for warning in &mut warnings {
        let end = (0..=MAX_WARNING.min(warning.len())).rev().find(|at| warning.is_char_boundary(*at));
        warning.truncate(end.unwrap_or_default());
    }
    Ok(Response { patch: operations, warnings, annotations })
}

fn check_patch(mutating: bool, strict: bool, patch: &str, kind: Option<&str>) -> Result<(), String> {
    let why = match (mutating, strict, patch.is_empty(), kind) {
        (false, true, false, _) => "validating webhook may not return response.patch",
        (false, true, true, Some(_)) => "validating webhook may not return response.patchType",
        (true, true, false, None) => "webhook returned response.patch but not response.patchType",
        (true, true, true, Some(_)) => "webhook returned response.patchType but not response.patch",
        (true, true, _, Some("")) => "webhook returned invalid response.patchType of \"\"",
        _ => return Ok(()),
    };
    Err(why.to_owned())
}

/// The operations of a patch in base64.
fn operations(patch: &str) -> Result<Vec<Value>, Failure> {
    if patch.is_empty() {
        return Ok(Vec::new());
    }
    let undecodable = |why: &dyn std::fmt::Display| {
        Failure::Calling(format!("received undecodable patch in webhook response: {why}"))
    };
    let bytes = BASE64_STANDARD.decode(patch).map_err(|error| undecodable(&error))?;
    let operations: Vec<Value> = serde_json::from_slice(&bytes).map_err(|error| undecodable(&error))?;
    if operations.len() > MAX_OPERATIONS {
        return Err(undecodable(&format!("more than {MAX_OPERATIONS} operations")));
    }
    Ok(operations)
}

/// `status` of a refusal as a client sees it: at least 400, a failure, and who it is that refuses.
fn refusal(webhook: &str, status: Option<&Value>) -> Status {
    let by = format!("admission webhook {webhook:?} denied the request");
    let mut given = status.cloned().unwrap_or_default();
    if let Some(map) = given.as_object_mut() {
        map.entry("status").or_insert_with(|| "Failure".into());
    }
    let mut status: Status =
        serde_json::from_value(given).unwrap_or_else(|_| Status::new(400, "", String::new()));
    status.code = if (400..600).contains(&status.code) { status.code } else { 400 };
    if status.status.is_empty() || status.status == "Success" {
        status.status = "Failure".to_owned();
    }
    status.message = match (status.message.as_str(), status.reason.as_str()) {
        ("", "") => format!("{by} without explanation"),
        ("", reason) => format!("{by}: {reason}"),
        (message, _) => format!("{by}: {message}"),
    };
    status
}

/// Why an answer is no JSON, as Go says it where that is simple.
fn undecodable(answer: &[u8], error: &serde_json::Error) -> String {
    match answer.iter().find(|byte| !byte.is_ascii_whitespace()) {
        None => "0-length response with status code: 200 and content type: ".to_owned(),
        Some(first) if error.is_syntax() && !b"{[\"-0123456789tfn".contains(first) => {
            format!("invalid character {:?} looking for beginning of value", char::from(*first))
        }
        Some(_) => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn verified(version: &'static str, mutating: bool, body: &Value) -> Result<Response, Failure> {
        let review = Review { uid: "u".into(), version, body: Vec::new() };
        verify("hook.example.com", &review, mutating, body.to_string().as_bytes())
    }

    fn body(response: Value) -> Value {
        json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response})
    }

    fn calling(result: Result<Response, Failure>) -> String {
        match result {
            Err(Failure::Calling(why)) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_answer_that_is_none_is_said_to_be() {
        let rows = [
            (json!({}), "webhook response was absent"),
            (body(json!({"uid": "v", "allowed": true})), "expected response.uid=\"u\", got \"v\""),
            (
                json!({"response": {"uid": "u"}}),
                "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /, Kind=",
            ),
            (
                body(json!({"uid": "u", "allowed": true, "patch": "W10="})),
                "webhook returned response.patch but not response.patchType",
            ),
            (
                body(json!({"uid": "u", "allowed": true, "patchType": "JSONPatch"})),
                "webhook returned response.patchType but not response.patch",
            ),
        ];
        for (body, why) in rows {
            let said = calling(verified("v1", true, &body));
            assert_eq!(said, format!("received invalid webhook response: {why}"));
        }
        let review = Review { uid: "u".into(), version: "v1", body: Vec::new() };
        let said = calling(verify("h", &review, true, b"<html>"));
        assert_eq!(said, "failed to call webhook: invalid character '<' looking for beginning of value");
    }

    #[test]
    fn a_validating_webhook_changes_nothing() {
        let answer = body(json!({"uid": "u", "allowed": true, "patch": "W10=", "patchType": "JSONPatch"}));
        assert!(
            calling(verified("v1", false, &answer))
                .ends_with("validating webhook may not return response.patch")
        );
        // What v1beta1 never checked is not checked.
        assert_eq!(verified("v1beta1", false, &answer), Ok(Response::default()));
    }

    #[test]
    fn a_refusal_is_a_failure_in_the_words_of_the_webhook() {
        let rows = [
            (json!(null), 400, "", " without explanation"),
            (json!({"message": "no"}), 400, "", ": no"),
            (json!({"reason": "Forbidden", "code": 403}), 403, "Forbidden", ": Forbidden"),
            (json!({"status": "Success", "code": 200, "message": "no"}), 400, "", ": no"),
            (json!({"code": 422, "reason": "Invalid", "message": "no"}), 422, "Invalid", ": no"),
        ];
        for (status, code, reason, said) in rows {
            let answer = body(json!({"uid": "u", "allowed": false, "status": status}));
            let Err(Failure::Refused(refused)) = verified("v1", false, &answer) else { panic!("{answer}") };
            assert_eq!((refused.code, refused.reason.as_str()), (code, reason));
            assert_eq!(refused.status, "Failure");
            assert_eq!(
                refused.message,
                format!("admission webhook \"hook.example.com\" denied the request{said}")
            );
        }
    }

    #[test]
    fn a_patch_is_read_with_what_goes_along() {
        let patch = BASE64_STANDARD.encode(r#"[{"op": "add", "path": "/a", "value": 1}]"#);
        let answer = body(json!({"uid": "u", "allowed": true, "patch": patch, "patchType": "JSONPatch",
            "warnings": ["careful"], "auditAnnotations": {"key": "value"}}));
        let read = verified("v1", true, &answer).unwrap();
        assert_eq!(read.patch, [json!({"op": "add", "path": "/a", "value": 1})]);
        assert_eq!(read.warnings, ["careful"]);
        assert_eq!(read.annotations, [("hook.example.com/key".to_owned(), "value".to_owned())]);
    }
}
