//! Redaction: the shape of an object with secrets, without its values.
//!
//! An allow list, and not a list of what to remove: a field that nobody thought of is not in an event.

use freehold_machinery::{Map, Value};

/// What stands in the place of a value.
pub const REDACTED: &str = "<redacted>";

/// The annotation in which `kubectl apply` repeats a whole object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// What of a resource's objects is secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sensitive {
    /// The values of a Secret.
    Secrets,
    /// `status.token` of a TokenRequest.
    TokenRequests,
    /// `spec.token` of a TokenReview.
    TokenReviews,
}

/// Fields of Secrets, and of what goes with requests for them, that are shown.
const SHOWN: [&str; 15] = [
    "apiVersion",
    "kind",
    "type",
    "immutable",
    "gracePeriodSeconds",
    "propagationPolicy",
    "preconditions",
    "orphanDependents",
    "dryRun",
    "reason",
    "code",
    "columnDefinitions",
    "fieldManager",
    "fieldValidation",
    "force",
];

/// What is secret of a resource; `None` for most.
pub fn sensitive(group: &str, resource: &str, subresource: &str) -> Option<Sensitive> {
    match (group, resource, subresource) {
        ("", "secrets", _) => Some(Sensitive::Secrets),
        ("", "serviceaccounts", "token") => Some(Sensitive::TokenRequests),
        ("authentication.k8s.io", "tokenreviews", _) => Some(Sensitive::TokenReviews),
        _ => None,
    }
}

impl Sensitive {
    /// The object, list, Table or patch without what is secret in it.
    pub fn redact(self, value: Value) -> Value {
        match self {
            Self::Secrets => secret(value),
            Self::TokenRequests => without(value, "status", "token"),
            Self::TokenReviews => without(value, "spec", "token"),
        }
    }

    /// Whether a failure's message may repeat what was sent.
    pub fn tells(self, code: u16) -> bool {
        matches!(code, 400 | 415 | 422 | 500)
    }
}

fn redacted() -> Value {
    Value::from(REDACTED)
}

/// `object.outer.inner` replaced; a patch is not shown at all.
fn without(mut value: Value, outer: &str, inner: &str) -> Value {
    if !value.is_object() {
        return redacted();
    }
    match value.get_mut(outer) {
        Some(Value::Object(fields)) => {
            if let Some(field) = fields.get_mut(inner) {
                *field = redacted();
            }
        }
        Some(other) if !other.is_null() => *other = redacted(),
        _ => {}
    }
    value
}

fn secret(value: Value) -> Value {
    match value {
        Value::Array(operations) => Value::Array(operations.into_iter().map(operation).collect()),
        Value::Object(fields) => Value::Object(fields.into_iter().filter_map(field).collect()),
        Value::Null => Value::Null,
        _ => redacted(),
    }
}

/// One operation of a JSON patch: what it does and where.
fn operation(value: Value) -> Value {
    let Value::Object(fields) = value else { return redacted() };
    let shown = |(key, value): (String, Value)| match key.as_str() {
        "op" | "path" | "from" => Some((key, value)),
        "value" => Some((key, redacted())),
        _ => None,
    };
    Value::Object(fields.into_iter().filter_map(shown).collect())
}

fn field((key, value): (String, Value)) -> Option<(String, Value)> {
    let shown = match (key.as_str(), value) {
        ("data" | "stringData", Value::Object(entries)) => {
            Value::Object(entries.into_iter().map(|(name, _)| (name, redacted())).collect())
        }
        ("metadata", Value::Object(metadata)) => Value::Object(plain(metadata)),
        ("items", Value::Array(items)) => Value::Array(items.into_iter().map(secret).collect()),
        ("rows", Value::Array(rows)) => Value::Array(rows.into_iter().map(row).collect()),
        (name, value) if SHOWN.contains(&name) => value,
        _ => return None,
    };
    Some((key, shown))
}

fn row(value: Value) -> Value {
    let Value::Object(mut row) = value else { return redacted() };
    if let Some(object) = row.get_mut("object") {
        *object = secret(object.take());
    }
    Value::Object(row)
}

fn plain(mut metadata: Map) -> Map {
    match metadata.get_mut("annotations") {
        Some(Value::Object(annotations)) => {
            if let Some(applied) = annotations.get_mut(LAST_APPLIED) {
                *applied = redacted();
            }
        }
        Some(other) => *other = redacted(),
        None => {}
    }
    metadata
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const HIDDEN: &str = "aHVudGVyMg==";

    #[test]
    fn no_form_of_a_secret_shows_its_values() {
        let whole = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": {"name": "a", "annotations": {LAST_APPLIED: HIDDEN, "b": "c"}},
            "data": {"password": HIDDEN}, "stringData": {"password": HIDDEN}, "other": HIDDEN,
        });
        let forms = [
            whole.clone(),
            json!({"kind": "SecretList", "items": [whole]}),
            json!({"kind": "Table", "rows": [{"cells": ["a"], "object": whole}], "columnDefinitions": []}),
            json!([{"op": "replace", "path": "/data/password", "value": HIDDEN}, {"op": "add", "path": "", "value": whole}]),
            json!({"data": {"password": HIDDEN}}),
            json!({"data": HIDDEN, "stringData": [HIDDEN], "metadata": {"annotations": HIDDEN}}),
            json!({"metadata": {"annotations": {LAST_APPLIED: {"x": HIDDEN}}}}),
            json!(HIDDEN),
            json!({"kind": "Status", "message": HIDDEN, "code": 400}),
        ];
        for form in forms {
            let shown = Sensitive::Secrets.redact(form.clone()).to_string();
            assert!(!shown.contains(HIDDEN), "{form} became {shown}");
        }
        let shown = Sensitive::Secrets.redact(whole);
        assert_eq!(shown["data"], json!({"password": REDACTED}));
        assert_eq!(shown["metadata"]["annotations"]["b"], "c");
        assert_eq!(shown["metadata"]["name"], "a");
    }

    #[test]
    fn tokens_are_not_shown() {
        let request = Sensitive::TokenRequests
            .redact(json!({"spec": {"audiences": ["a"]}, "status": {"token": HIDDEN}}));
        assert_eq!(request, json!({"spec": {"audiences": ["a"]}, "status": {"token": REDACTED}}));
        let review = Sensitive::TokenReviews
            .redact(json!({"spec": {"token": HIDDEN}, "status": {"authenticated": true}}));
        assert_eq!(review, json!({"spec": {"token": REDACTED}, "status": {"authenticated": true}}));
        for odd in [json!({"spec": HIDDEN}), json!([{"value": HIDDEN}]), json!(HIDDEN)] {
            assert!(!Sensitive::TokenReviews.redact(odd).to_string().contains(HIDDEN));
        }
    }

    #[test]
    fn only_what_holds_secrets_is_cut() {
        assert_eq!(sensitive("", "secrets", ""), Some(Sensitive::Secrets));
        assert_eq!(sensitive("", "serviceaccounts", "token"), Some(Sensitive::TokenRequests));
        assert_eq!(sensitive("", "serviceaccounts", ""), None);
        assert_eq!(sensitive("example.com", "secrets", ""), None);
    }
}
