//! Where a webhook is: the checks of `k8s.io/apiserver/pkg/util/webhook`.

use super::parts::text;
use crate::{Value, go, names::dns1123_subdomain, status::FieldError};

const FORM: &str = "; desired format: https://host[/path]";

/// What is wrong about a webhook's URL, which stands at a path.
pub fn check_url(url: &str, path: &str) -> Vec<FieldError> {
    let invalid = |value: &str, detail: &str| FieldError::invalid(path, value.into(), detail);
    let (before, fragment) = url.split_once('#').unwrap_or((url, ""));
    if let Err(why) = go::url::parse_any(url) {
        let detail = format!("url must be a valid URL: parse {}: {why}{FORM}", go::quote(before));
        return vec![FieldError::required(path, detail)];
    }
    let (before, query) = before.split_once('?').unwrap_or((before, ""));
    let (scheme, rest) = before.split_once(':').unwrap_or(("", before));
    let authority = rest.strip_prefix("//").map_or("", |rest| rest.split('/').next().unwrap_or(""));
    let (user, host) =
        authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
    let mut errors = Vec::new();
    if scheme != "https" {
        errors.push(invalid(scheme, &format!("'https' is the only allowed URL scheme{FORM}")));
    }
    if host.is_empty() {
        errors.push(invalid(host, &format!("host must be specified{FORM}")));
    }
    if let Some(user) = user {
        errors.push(invalid(user, "user information is not permitted in the URL"));
    }
    if !fragment.is_empty() {
        errors.push(invalid(fragment, "fragments are not permitted in the URL"));
    }
    if !query.is_empty() {
        errors.push(invalid(query, "query parameters are not permitted in the URL"));
    }
    errors
}

/// What is wrong about a webhook's service.
pub(super) fn check_service(service: &Value, path: &str) -> Vec<FieldError> {
    let mut errors: Vec<FieldError> = ["name", "namespace"]
        .into_iter()
        .filter(|field| text(service, field).is_empty())
        .map(|field| FieldError::required(format!("{path}.{field}"), ""))
        .collect();
    let port = service.get("port").and_then(Value::as_i64).unwrap_or(443);
    if !(1..=65_535).contains(&port) {
        let detail = "port is not valid: must be between 1 and 65535, inclusive";
        errors.push(FieldError::invalid(format!("{path}.port"), port.into(), detail));
    }
    errors.extend(check_path(text(service, "path"), &format!("{path}.path")));
    errors
}

fn check_path(given: &str, path: &str) -> Vec<FieldError> {
    let invalid = |detail: String| FieldError::invalid(path, given.into(), detail);
    match given {
        "" | "/" => return Vec::new(),
        "//" => return vec![invalid("segment[0] may not be empty".to_owned())],
        _ => {}
    }
    let mut errors = Vec::new();
    if !given.starts_with('/') {
        errors.push(invalid("must start with a '/'".to_owned()));
    }
    let mut rest = given.chars();
    rest.next();
    let rest = rest.as_str();
    for (index, step) in rest.strip_suffix('/').unwrap_or(rest).split('/').enumerate() {
        if step.is_empty() {
            errors.push(invalid(format!("segment[{index}] may not be empty")));
            continue;
        }
        errors.extend(dns1123_subdomain(step).into_iter().map(|e| invalid(format!("segment[{index}]: {e}"))));
    }
    errors
}
