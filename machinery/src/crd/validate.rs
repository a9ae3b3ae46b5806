//! Validation of a CRD, apart from its schemas.
//!
//! Kubernetes moves what all versions have in common to the top of `spec` before it looks at it, and so do the paths of
//! its errors: `spec.validation.openAPIV3Schema` where the schemas are equal (as with a single version),
//! `spec.versions[0].schema.openAPIV3Schema` where they differ.

use super::{
    approval::{self, Approval},
    is_established, openapi,
    parts::{flag, given, list, text, versions},
};
use crate::{
    Value, go,
    names::{dns1035_label, dns1123_subdomain},
    status::{FieldError, FieldErrorKind},
};

const COLUMN_TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: [&str; 8] =
    ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];
const MAX_SELECTABLE_FIELDS: usize = 8;

/// Checks a new CRD, after defaulting. Its metadata is checked as that of every object, apart from this; rules in CEL
/// are not compiled here.
pub fn validate(crd: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = given(crd, "spec").unwrap_or(&Value::Null);
    let plural = spec.get("names").map_or("", |n| text(n, "plural"));
    let name = crate::meta::name(crd);
    if !name.is_empty() && name != format!("{plural}.{}", text(spec, "group")) {
        let detail = "must be spec.names.plural+\".\"+spec.group";
        errors.push(FieldError::invalid("metadata.name", name.into(), detail));
    }
    errors.extend(check_all(crd, spec, None));
    errors
}

/// Checks a CRD that replaces `old`, instead of [`validate`]. Schemas that did not change are not looked at again.
pub fn validate_update(crd: &Value, old: &Value) -> Vec<FieldError> {
    let spec = given(crd, "spec").unwrap_or(&Value::Null);
    let mut errors = check_all(crd, spec, Some(old));
    let immutable: &[&str] = match is_established(old) {
        true => &["scope", "names.kind", "group", "names.plural"],
        false => &["group", "names.plural"],
    };
    for field in immutable {
        let pointer = format!("/spec/{}", field.replace('.', "/"));
        let now = crd.pointer(&pointer).cloned().unwrap_or_default();
        if Some(&now) != old.pointer(&pointer) {
            errors.push(FieldError::invalid(format!("spec.{field}"), now, "field is immutable"));
        }
    }
    errors
}

/// Warnings for the client that writes a CRD: formats that are not heeded, and were not there in `old`.
pub fn warnings(crd: &Value, old: Option<&Value>) -> Vec<String> {
    let formats = |crd: &Value| {
        let mut found = Vec::new();
        for schema in versions(crd).iter().filter_map(|v| v.pointer("/schema/openAPIV3Schema")) {
            openapi::unrecognized_formats(schema, &mut found);
        }
        found
    };
    let known = old.map(formats).unwrap_or_default();
    let new = formats(crd).into_iter().filter(|f| !known.contains(f));
    new.map(|f| format!("unrecognized format {f:?}")).collect()
}

fn check_all(crd: &Value, spec: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = check_group_and_scope(spec);
    errors.extend(check_versions(spec, old));
    errors.extend(check_required_names(spec));
    let names = given(spec, "names").unwrap_or(&Value::Null);
    errors.extend(check_names(names, "spec.names"));
    errors.extend(check_common(spec, old));
    errors.extend(check_conversion(spec));
    errors.extend(check_stored_versions(crd));
    errors.extend(check_approval(crd, spec, old));
    if flag(spec, "preserveUnknownFields")
        && !old.and_then(|o| o.get("spec")).is_some_and(|s| flag(s, "preserveUnknownFields"))
    {
        let detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        errors.push(FieldError::invalid("spec.preserveUnknownFields", true.into(), detail));
    }
    errors
}

fn label_error(path: String, value: &str, prefix: &str) -> Option<FieldError> {
    let messages = dns1035_label(&if prefix.is_empty() { value.to_owned() } else { value.to_lowercase() });
    (!messages.is_empty())
        .then(|| FieldError::invalid(path, value.into(), format!("{prefix}{}", messages.join(","))))
}

fn check_group_and_scope(spec: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let group = text(spec, "group");
    let messages = dns1123_subdomain(group);
    if group.is_empty() {
        errors.push(FieldError::required("spec.group", ""));
    } else if !messages.is_empty() {
        errors.push(FieldError::invalid("spec.group", group.into(), messages.join(",")));
    } else if !group.contains('.') {
        errors.push(FieldError::invalid(
            "spec.group",
            group.into(),
            "should be a domain with at least one dot",
        ));
    }
    errors.extend(check_enum(spec, "scope", "spec.scope", &["Cluster", "Namespaced"]));
    errors
}

fn check_enum(value: &Value, field: &str, path: &str, allowed: &[&str]) -> Option<FieldError> {
    match text(value, field) {
        "" => Some(FieldError::required(path, "")),
        other if allowed.contains(&other) => None,
        other => Some(FieldError::not_supported(path, other.into(), allowed)),
    }
}

/// The value of a field that all versions have in common.
fn common<'a>(spec: &'a Value, field: &str) -> Option<&'a Value> {
    let versions = list(spec, "versions");
    let first = given(versions.first()?, field)?;
    versions.iter().all(|v| v.get(field) == Some(first)).then_some(first)
}

fn has_schema(version: &Value) -> bool {
    version.pointer("/schema/openAPIV3Schema").is_some_and(|s| !s.is_null())
}

/// The schema that a version of the old CRD has.
fn old_schema<'a>(old: Option<&'a Value>, name: &str) -> Option<&'a Value> {
    versions(old?).iter().find(|v| text(v, "name") == name).and_then(|v| v.get("schema"))
}

fn check_versions(spec: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let versions = list(spec, "versions");
    let mut errors = Vec::new();
    for (index, _) in versions.iter().enumerate().filter(|(_, v)| !has_schema(v)) {
        errors.push(FieldError::required(format!("spec.versions[{index}].schema.openAPIV3Schema"), ""));
    }
    for (index, version) in versions.iter().enumerate() {
        let path = format!("spec.versions[{index}]");
        errors.extend(label_error(format!("{path}.name"), text(version, "name"), ""));
        errors.extend(check_deprecation(version, &path));
        let own = |field: &str| given(version, field).filter(|_| common(spec, field).is_none());
        if let Some(schema) = own("schema") {
            let known = old_schema(old, text(version, "name")) == Some(schema);
            errors.extend(check_schema(schema, &format!("{path}.schema"), has_status(version), known));
        }
        if let Some(subresources) = own("subresources") {
            errors.extend(check_subresources(subresources, &format!("{path}.subresources")));
        }
        if own("additionalPrinterColumns").is_some() {
            errors.extend(check_columns(version, &format!("{path}.additionalPrinterColumns")));
        }
        if own("selectableFields").is_some() {
            errors.extend(check_selectable(version, &format!("{path}.selectableFields")));
        }
    }
    let mut names: Vec<&str> = versions.iter().map(|v| text(v, "name")).collect();
    names.sort_unstable();
    let all = || match spec.get("versions") {
        None | Some(Value::Null) => "null".to_owned(),
        Some(_) => shown_versions(spec),
    };
    if names.windows(2).any(|w| w[0] == w[1]) {
        let detail = "must contain unique version names";
        errors.push(FieldError::invalid_shown("spec.versions", all(), detail));
    }
    if versions.iter().filter(|v| flag(v, "storage")).count() != 1 {
        let detail = "must have exactly one version marked as storage version";
        errors.push(FieldError::invalid_shown("spec.versions", all(), detail));
    }
    errors
}

/// What all versions have in common, at the top of `spec`.
fn check_common(spec: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let Some(first) = list(spec, "versions").first() else { return errors };
    // Kubernetes also has the first version at the top of its internal spec.
    if !text(first, "name").is_empty() {
        errors.extend(label_error("spec.version".to_owned(), text(first, "name"), ""));
    }
    if let Some(schema) = common(spec, "schema") {
        let known = old_schema(old, text(first, "name")) == Some(schema);
        let status = list(spec, "versions").iter().any(has_status);
        errors.extend(check_schema(schema, "spec.validation", status, known));
    }
    if let Some(subresources) = common(spec, "subresources") {
        errors.extend(check_subresources(subresources, "spec.subresources"));
    }
    if common(spec, "additionalPrinterColumns").is_some() {
        errors.extend(check_columns(first, "spec.additionalPrinterColumns"));
    }
    if common(spec, "selectableFields").is_some() {
        errors.extend(check_selectable(first, "spec.selectableFields"));
    }
    errors
}

fn has_status(version: &Value) -> bool {
    version.pointer("/subresources/status").is_some_and(|s| !s.is_null())
}

fn check_schema(schema: &Value, path: &str, status: bool, known: bool) -> Vec<FieldError> {
    match given(schema, "openAPIV3Schema") {
        Some(schema) if !known => openapi::check(schema, &format!("{path}.openAPIV3Schema"), status),
        _ => Vec::new(),
    }
}

/// Versions as Kubernetes shows them: its internal structs. What all have in common stands elsewhere.
fn shown_versions(spec: &Value) -> String {
    let json = |value: Option<&Value>| value.filter(|v| !v.is_null()).map_or("null".to_owned(), go::json);
    let each = list(spec, "versions").iter().map(|version| {
        let own = |field: &str| json(given(version, field).filter(|_| common(spec, field).is_none()));
        format!(
            "{{\"Name\":{},\"Served\":{},\"Storage\":{},\"Deprecated\":{},\"DeprecationWarning\":{},\"Schema\":{},\"Subresources\":{},\"AdditionalPrinterColumns\":{},\"SelectableFields\":{}}}",
            go::json(&text(version, "name").into()),
            flag(version, "served"),
            flag(version, "storage"),
            flag(version, "deprecated"),
            json(given(version, "deprecationWarning")),
            own("schema"),
            own("subresources"),
            own("additionalPrinterColumns"),
            own("selectableFields"),
        )
    });
    format!("[{}]", each.collect::<Vec<_>>().join(","))
}

fn check_deprecation(version: &Value, path: &str) -> Vec<FieldError> {
    let Some(warning) = version.get("deprecationWarning").and_then(Value::as_str) else { return Vec::new() };
    let mut details = Vec::new();
    if !flag(version, "deprecated") {
        details.push("can only be set for deprecated versions".to_owned());
    } else {
        if warning.len() > 256 {
            details.push("must be <= 256 characters long".to_owned());
        }
        if warning.is_empty() {
            details.push("must not be an empty string".to_owned());
        }
        if let Some((at, _)) = warning.char_indices().find(|(_, c)| c.is_control()) {
            details.push(format!(
                "must only contain printable UTF-8 characters; non-printable character found at index {at}"
            ));
        }
    }
    let error = |d| FieldError::invalid(format!("{path}.deprecationWarning"), warning.into(), d);
    details.into_iter().map(error).collect()
}

fn check_required_names(spec: &Value) -> Vec<FieldError> {
    let names = given(spec, "names").unwrap_or(&Value::Null);
    let missing =
        ["plural", "singular", "kind", "listKind"].into_iter().filter(|f| text(names, f).is_empty());
    missing.map(|f| FieldError::required(format!("spec.names.{f}"), "")).collect()
}

fn check_names(names: &Value, path: &str) -> Vec<FieldError> {
    const MIXED: &str = "may have mixed case, but should otherwise match: ";
    let mut errors = Vec::new();
    for (field, prefix) in [("plural", ""), ("singular", ""), ("kind", MIXED), ("listKind", MIXED)] {
        let name = text(names, field);
        if !name.is_empty() {
            errors.extend(label_error(format!("{path}.{field}"), name, prefix));
        }
    }
    let each = |field: &str| {
        let values = list(names, field).iter().enumerate();
        values
            .filter_map(|(i, v)| label_error(format!("{path}.{field}[{i}]"), v.as_str().unwrap_or(""), ""))
            .collect::<Vec<_>>()
    };
    errors.extend(each("shortNames"));
    let kind = text(names, "kind");
    if !kind.is_empty() && kind == text(names, "listKind") {
        let detail = "kind and listKind may not be the same";
        errors.push(FieldError::invalid(format!("{path}.listKind"), kind.into(), detail));
    }
    errors.extend(each("categories"));
    errors
}

fn check_columns(version: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (index, column) in list(version, "additionalPrinterColumns").iter().enumerate() {
        let at = |field: &str| format!("{path}[{index}].{field}");
        if text(column, "name").is_empty() {
            errors.push(FieldError::required(at("name"), ""));
        }
        let (kind, types) = (text(column, "type"), format!("must be one of {}", COLUMN_TYPES.join(",")));
        if kind.is_empty() {
            errors.push(FieldError::required(at("type"), types));
        } else if !COLUMN_TYPES.contains(&kind) {
            errors.push(FieldError::invalid(at("type"), kind.into(), types));
        }
        let format = text(column, "format");
        if !format.is_empty() && !COLUMN_FORMATS.contains(&format) {
            let detail = format!("must be one of {}", COLUMN_FORMATS.join(","));
            errors.push(FieldError::invalid(at("format"), format.into(), detail));
        }
        match text(column, "jsonPath") {
            "" => errors.push(FieldError::required(at("JSONPath"), "")),
            json_path => errors.extend(simple_path(json_path, &at("JSONPath"))),
        }
    }
    errors
}

fn simple_path(json_path: &str, path: &str) -> Option<FieldError> {
    let detail = "must be a simple json path starting with .";
    (!json_path.starts_with('.')).then(|| FieldError::invalid(path, json_path.into(), detail))
}

fn check_subresources(subresources: &Value, path: &str) -> Vec<FieldError> {
    let Some(scale) = given(subresources, "scale") else { return Vec::new() };
    let mut errors = Vec::new();
    let mut check = |field: &str, under: &[&str], detail: &str| {
        let (json_path, at) = (text(scale, field), format!("{path}.scale.{field}"));
        if json_path.is_empty() {
            if field != "labelSelectorPath" {
                errors.push(FieldError::required(at, ""));
            }
        } else if let Some(error) = simple_path(json_path, &at) {
            errors.push(error);
        } else if !under.iter().any(|u| json_path.starts_with(u)) {
            errors.push(FieldError::invalid(at, json_path.into(), detail));
        }
    };
    check("specReplicasPath", &[".spec."], "should be a json path under .spec");
    check("statusReplicasPath", &[".status."], "should be a json path under .status");
    check(
        "labelSelectorPath",
        &[".spec.", ".status."],
        "should be a json path under either .spec or .status",
    );
    errors
}

fn check_selectable(version: &Value, path: &str) -> Vec<FieldError> {
    let (mut errors, mut seen) = (Vec::new(), Vec::new());
    let schema = version.pointer("/schema/openAPIV3Schema").unwrap_or(&Value::Null);
    for (index, field) in list(version, "selectableFields").iter().enumerate() {
        let (json_path, at) = (text(field, "jsonPath"), format!("{path}[{index}].jsonPath"));
        if json_path.is_empty() {
            errors.push(FieldError::required(at, ""));
            continue;
        }
        let kind = match selectable_type(schema, json_path) {
            Ok(kind) => kind,
            Err(e) => {
                errors.push(FieldError::invalid(at, json_path.into(), format!("is an invalid path: {e}")));
                continue;
            }
        };
        if json_path == ".metadata" || json_path.starts_with(".metadata.") {
            errors.push(FieldError::invalid(&at, json_path.into(), "must not point to fields in metadata"));
        }
        if !["string", "boolean", "integer"].contains(&kind) {
            let detail = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.";
            errors.push(FieldError::invalid(&at, json_path.into(), detail));
        }
        if seen.contains(&json_path) {
            errors.push(FieldError::new(FieldErrorKind::Duplicate, at, "").of(json_path.into()));
        } else {
            seen.push(json_path);
        }
    }
    if seen.len() > MAX_SELECTABLE_FIELDS {
        let detail = format!("must have at most {MAX_SELECTABLE_FIELDS} items");
        errors.push(FieldError::new(FieldErrorKind::TooMany, path, detail).of(seen.len().into()));
    }
    errors
}

/// The type of the field at a path like `.spec.color`.
fn selectable_type<'a>(schema: &'a Value, json_path: &str) -> Result<&'a str, String> {
    let Some(rest) = json_path.strip_prefix('.') else {
        let first = json_path.split(['.', '[']).next().unwrap_or_default();
        return Err(format!("expected [ or . but got: {first}"));
    };
    if json_path.contains('[') {
        return Err("array notation is not allowed".to_owned());
    }
    let mut node = schema;
    for step in rest.split('.') {
        let properties = node.get("properties").filter(|p| p.is_object());
        node = match (properties, node.get("additionalProperties").filter(|a| a.is_object())) {
            (Some(properties), _) => properties.get(step).ok_or("does not refer to a valid field")?,
            (None, Some(additional)) => additional,
            (None, None) => return Err("does not refer to a valid field".to_owned()),
        };
    }
    Ok(text(node, "type"))
}

fn check_conversion(spec: &Value) -> Vec<FieldError> {
    let Some(conversion) = given(spec, "conversion") else { return Vec::new() };
    let mut errors: Vec<FieldError> =
        check_enum(conversion, "strategy", "spec.conversion.strategy", &["None", "Webhook"])
            .into_iter()
            .collect();
    let webhook = given(conversion, "webhook");
    let client = webhook.and_then(|w| given(w, "clientConfig"));
    const CLIENT: &str = "spec.conversion.webhookClientConfig";
    const REVIEWS: &str = "spec.conversion.conversionReviewVersions";
    let reviews = webhook.map(|w| list(w, "conversionReviewVersions")).unwrap_or_default();
    if text(conversion, "strategy") != "Webhook" {
        let detail = "should not be set when strategy is not set to Webhook";
        errors.extend(client.map(|_| FieldError::forbidden(CLIENT, detail)));
        errors.extend((!reviews.is_empty()).then(|| FieldError::forbidden(REVIEWS, detail)));
        return errors;
    }
    match client {
        None => errors.push(FieldError::required(CLIENT, "required when strategy is set to Webhook")),
        Some(client) => errors.extend(check_client(client, CLIENT)),
    }
    if reviews.is_empty() {
        errors.push(FieldError::required(REVIEWS, ""));
        return errors;
    }
    for (index, review) in reviews.iter().enumerate() {
        let (name, at) = (review.as_str().unwrap_or(""), format!("{REVIEWS}[{index}]"));
        if reviews[..index].contains(review) {
            errors.push(FieldError::invalid(at, name.into(), "duplicate version"));
        } else {
            errors.extend(label_error(at, name, ""));
        }
    }
    if !reviews.iter().any(|v| v == "v1" || v == "v1beta1") {
        let detail = "must include at least one of v1, v1beta1";
        errors.push(FieldError::invalid(REVIEWS, reviews.to_vec().into(), detail));
    }
    errors
}

fn check_client(client: &Value, path: &str) -> Vec<FieldError> {
    let (url, service) = (given(client, "url"), given(client, "service"));
    match (url, service) {
        (Some(url), None) => super::webhook::check_url(url.as_str().unwrap_or(""), &format!("{path}.url")),
        (None, Some(service)) => super::webhook::check_service(service, &format!("{path}.service")),
        _ => vec![FieldError::required(path, "exactly one of url or service is required")],
    }
}

fn check_stored_versions(crd: &Value) -> Vec<FieldError> {
    let Some(status) = given(crd, "status") else { return Vec::new() };
    let (stored, path) = (list(status, "storedVersions"), "status.storedVersions");
    let all = || if stored.is_empty() { Value::Null } else { stored.to_vec().into() };
    if stored.is_empty() {
        return vec![FieldError::invalid(path, all(), "must have at least one stored version")];
    }
    let mut errors = Vec::new();
    // A version that stands twice is found once.
    let mut found: Vec<&str> = Vec::new();
    for version in versions(crd) {
        let name = text(version, "name");
        let known = stored.iter().any(|s| s == name) && !found.contains(&name);
        found.push(name);
        if flag(version, "storage") && !known {
            errors.push(FieldError::invalid(path, all(), format!("must have the storage version {name}")));
        }
    }
    for (index, name) in stored.iter().enumerate() {
        let name = name.as_str().unwrap_or("");
        if !versions(crd).iter().any(|v| text(v, "name") == name) {
            let detail = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions \
                 until a storage migration ensures no data remains persisted in {name} and removes {name} from \
                 status.storedVersions"
            );
            errors.push(FieldError::invalid(format!("{path}[{index}]"), name.into(), detail));
        }
    }
    errors
}

/// Groups of the Kubernetes community need their approval, or an admission that they lack it.
fn check_approval(crd: &Value, spec: &Value, old: Option<&Value>) -> Option<FieldError> {
    let approval = Approval::of(crd);
    let unchanged = old.is_some_and(|old| Approval::of(old) == approval);
    if !approval::is_protected(text(spec, "group")) || unchanged {
        return None;
    }
    let path = format!("metadata.annotations[{}]", approval::ANNOTATION);
    let why = approval::problem(approval);
    match approval {
        Approval::Approved | Approval::Bypassed => None,
        Approval::Missing => Some(FieldError::required(path, why)),
        Approval::Invalid => {
            let given = crate::meta::annotation(crd, approval::ANNOTATION).unwrap_or("");
            Some(FieldError::invalid(path, given.into(), why))
        }
    }
}
