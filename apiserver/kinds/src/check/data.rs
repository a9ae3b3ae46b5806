//! Secrets and config maps.

use super::{
    field::{Errors, Field},
    rules,
};
use base64::{Engine, prelude::BASE64_STANDARD};
use freehold_machinery::{Map, Value, go, meta};

/// The most bytes of all values of a Secret or ConfigMap together.
const MAX_DATA: usize = 1 << 20;
const REDACTED: &str = "<secret contents redacted>";
const ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";
const FROZEN: &str = "field is immutable when `immutable` is set";

/// What a type of Secret must hold.
enum Holds {
    /// All of these keys.
    All(&'static [&'static str]),
    /// One of these keys at least.
    Any(&'static [&'static str]),
    /// A JSON object under this key.
    Json(&'static str),
}

const TYPES: &[(&str, Holds)] = &[
    ("kubernetes.io/dockercfg", Holds::Json(".dockercfg")),
    ("kubernetes.io/dockerconfigjson", Holds::Json(".dockerconfigjson")),
    ("kubernetes.io/basic-auth", Holds::Any(&["username", "password"])),
    ("kubernetes.io/ssh-auth", Holds::All(&["ssh-privatekey"])),
    ("kubernetes.io/tls", Holds::All(&["tls.crt", "tls.key"])),
];

fn decoded(field: &Field<'_>) -> Option<Vec<u8>> {
    BASE64_STANDARD.decode(field.text()).ok()
}

/// Checks keys; gives the bytes of all values together.
fn entries(data: &Field<'_>, encoded: bool, errors: &mut Errors) -> usize {
    let mut size = 0;
    for (key, value) in data.entries() {
        errors.extend(rules::data_key(key).into_iter().map(|why| value.invalid_as(key, why)));
        if !encoded {
            size += value.text().len();
        } else if let Some(bytes) = decoded(&value) {
            size += bytes.len();
        } else {
            errors.push(value.invalid_as(REDACTED, "illegal base64 data"));
        }
    }
    size
}

/// A Secret.
pub(super) fn secret(object: &Field<'_>, old: Option<&Value>, errors: &mut Errors) {
    let data = object.get("data");
    if entries(&data, true, errors) > MAX_DATA {
        errors.push(data.too_long(MAX_DATA));
    }
    let kind = object.get("type");
    if kind.text() == "kubernetes.io/service-account-token"
        && meta::annotation(object.value, ACCOUNT_NAME).is_none_or(str::is_empty)
    {
        errors.push(object.get("metadata.annotations").key(ACCOUNT_NAME).required(""));
    }
    if let Some((_, holds)) = TYPES.iter().find(|(name, _)| *name == kind.text()) {
        contents(&data, holds, errors);
    }
    if let Some(old) = old {
        rules::immutable(&kind, &old["type"], errors);
        frozen(object, old, &["data"], errors);
    }
}

fn contents(data: &Field<'_>, holds: &Holds, errors: &mut Errors) {
    let missing = |key: &&&str| !data.key(key).is_set();
    match holds {
        Holds::All(keys) => {
            errors.extend(keys.iter().filter(missing).map(|key| data.key(key).required("")));
        }
        Holds::Any(keys) => {
            if keys.iter().all(|key| missing(&key)) {
                errors.extend(keys.iter().map(|key| data.key(key).required("")));
            }
        }
        Holds::Json(key) => {
            let field = data.key(key);
            if !field.is_set() {
                return errors.push(field.required(""));
            }
            let text = decoded(&field).unwrap_or_default();
            if let Err(why) = serde_json::from_slice::<Map>(&text) {
                let other = || match serde_json::from_slice::<Value>(&text) {
                    Ok(value) => format!(
                        "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
                        go::word(&value)
                    ),
                    Err(_) => why.to_string(),
                };
                errors.push(field.invalid_as(REDACTED, go::syntax_error(&text).unwrap_or_else(other)));
            }
        }
    }
}

/// A ConfigMap.
pub(super) fn config_map(object: &Field<'_>, old: Option<&Value>, errors: &mut Errors) {
    let (data, binary) = (object.get("data"), object.get("binaryData"));
    let size = entries(&data, false, errors) + entries(&binary, true, errors);
    for (key, value) in data.entries().filter(|(key, _)| binary.key(key).is_set()) {
        errors.push(value.invalid_as(key, "duplicate of key present in binaryData"));
    }
    if size > MAX_DATA {
        // The whole object is blamed, under the path that Kubernetes has for it.
        errors.push(object.named("[]").too_long(MAX_DATA));
    }
    if let Some(old) = old {
        frozen(object, old, &["data", "binaryData"], errors);
    }
}

fn frozen(object: &Field<'_>, old: &Value, parts: &[&str], errors: &mut Errors) {
    if old["immutable"] != true {
        return;
    }
    let frozen = object.get("immutable");
    if !frozen.flag() {
        errors.push(frozen.forbidden(FROZEN));
    }
    for part in parts.iter().map(|part| (object.get(part), &old[*part])) {
        if !super::field::same(part.0.value, part.1) {
            errors.push(part.0.forbidden(FROZEN));
        }
    }
}
