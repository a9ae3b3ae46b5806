//! What a consumer agrees to: a provider's terms, and claims that count as accepted by who does not reject them.

use super::{FoundExport, list, text};
use crate::Operation;
use freehold_machinery::{Result, Status, Value, status::FieldError};

const READS: [&str; 3] = ["get", "list", "watch"];
const WRITES: [&str; 2] = ["create", "patch"];

/// Why a binding does not accept the terms of its export; `None` where it does, or there are none.
pub(super) fn unaccepted(binding: &Value, found: &FoundExport) -> Option<String> {
    let terms = found.terms.as_ref()?;
    let accepted = binding.pointer("/spec/acceptedTerms").or_else(|| binding.get("acceptedTerms"));
    if accepted.and_then(Value::as_str) == Some(&terms.digest) {
        return None;
    }
    Some(format!(
        "the provider's terms are not accepted; set acceptedTerms to {:?} to accept them: {}",
        terms.digest, terms.text
    ))
}

/// The default claims that a binding does not reject.
pub(super) fn defaults(binding: &Value, claims: &[Value]) -> Vec<Value> {
    let rejected = ["/spec/rejectedClaims", "/rejectedClaims"].map(|path| list(binding, path));
    let is_rejected = |claim: &Value| {
        let mut all = rejected.iter().flat_map(|claims| claims.iter());
        all.any(|one| same(one, claim, "/group") && same(one, claim, "/resource"))
    };
    claims.iter().filter(|claim| !is_rejected(claim)).cloned().collect()
}

fn same(one: &Value, other: &Value, path: &str) -> bool {
    text(one, path) == text(other, path)
}

/// Whether a claim may be a default. Nobody looks at those one by one, so none of them gives anything that is secret,
/// or that others of the plane rely on.
fn may_default(claim: &Value) -> bool {
    let verbs = list(claim, "/verbs");
    let only = |allowed: &[&str]| {
        !verbs.is_empty()
            && verbs.iter().all(|verb| verb.as_str().is_some_and(|verb| allowed.contains(&verb)))
    };
    let has_labels = claim["labels"].as_object().is_some_and(|labels| !labels.is_empty());
    match (text(claim, "/group"), text(claim, "/resource")) {
        ("", "namespaces") => only(&READS),
        ("", "configmaps") => has_labels && only(&READS),
        ("" | "events.k8s.io", "events") => only(&WRITES),
        _ => false,
    }
}

/// 422 for default claims that an export may not have.
pub(super) fn check_defaults(op: &Operation, export: &Value) -> Result<()> {
    let wrong = |(nth, claim): (usize, &Value)| {
        let why = "a default claim reads namespaces or labelled configmaps, or creates or patches events; others belong into claims, where each consumer decides";
        (!may_default(claim)).then(|| FieldError::forbidden(format!("spec.defaultClaims[{nth}]"), why))
    };
    let errors: Vec<FieldError> =
        list(export, "/spec/defaultClaims").iter().enumerate().filter_map(wrong).collect();
    if errors.is_empty() {
        return Ok(());
    }
    Err(Status::invalid(&op.ty.group, &op.ty.kind, op.name(), &errors))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_claims_that_give_nothing_secret_may_be_defaults() {
        let rows = [
            (json!({"resource": "namespaces", "verbs": ["get", "list"]}), true),
            (json!({"resource": "namespaces", "verbs": ["delete"]}), false),
            (json!({"resource": "namespaces", "verbs": []}), false),
            (json!({"resource": "configmaps", "verbs": ["get"], "labels": {"a": "b"}}), true),
            (json!({"resource": "configmaps", "verbs": ["get"]}), false),
            (json!({"resource": "configmaps", "verbs": ["update"], "labels": {"a": "b"}}), false),
            (json!({"resource": "configmaps", "verbs": ["*"], "labels": {"a": "b"}}), false),
            (json!({"resource": "events", "verbs": ["create", "patch"]}), true),
            (json!({"resource": "events", "verbs": ["list"]}), false),
            (json!({"resource": "secrets", "verbs": ["get"], "labels": {"a": "b"}}), false),
            (json!({"group": "apps", "resource": "namespaces", "verbs": ["get"]}), false),
        ];
        for (claim, expected) in rows {
            assert_eq!(may_default(&claim), expected, "{claim}");
        }
    }

    #[test]
    fn a_rejected_default_is_not_granted() {
        let claims = [
            json!({"resource": "namespaces", "verbs": ["get"]}),
            json!({"resource": "events", "verbs": ["create"]}),
        ];
        let rejecting = json!({"spec": {"rejectedClaims": [{"resource": "events", "verbs": ["create"]}]}});
        assert_eq!(defaults(&rejecting, &claims), claims[..1]);
        assert_eq!(defaults(&json!({"rejectedClaims": [{"resource": "events"}]}), &claims), claims[..1]);
    }
}
