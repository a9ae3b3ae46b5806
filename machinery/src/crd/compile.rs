//! From a CRD to the types that it serves.

use super::parts::{flag, given, list, strings, text, versions};
use crate::{
    GroupVersionKind, Value,
    document::Document,
    resource::{
        CONTEXTS, CONTEXTS_ANNOTATION, Cell, Column, Conversion, ConversionWebhook, Documentation,
        LazySchema, ResourceType, ScalePaths, StorageAs, Subresource,
    },
    schema,
    status::FieldError,
};
use sha2::{Digest, Sha256};
use std::{cmp::Ordering, fmt::Write, sync::Arc};

const VERBS: [&str; 8] = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];
const SUBRESOURCE_VERBS: [&str; 3] = ["get", "patch", "update"];

/// The types that a CRD serves, one for each served version, in the order of its versions. Names are the accepted ones
/// where its status has them.
///
/// # Errors
/// A schema that can't be read is refused; [`validate`](super::validate) finds everything else that is wrong.
pub fn compile(crd: &Value) -> Result<Vec<Arc<ResourceType>>, Vec<FieldError>> {
    let versions = versions(crd).iter().enumerate();
    let mut types = Vec::new();
    // The schema of the storage version, which the others need too.
    let mut stored = None;
    for (index, version) in versions {
        let (served, is_stored) = (flag(version, "served"), flag(version, "storage"));
        if !served && !is_stored {
            continue;
        }
        let schema = compile_schema(version, index)?;
        if is_stored {
            stored = schema.clone();
        }
        if served {
            types.push((is_stored, compile_version(crd, version, schema)));
        }
    }
    let with_stored = |(is_stored, mut ty): (bool, ResourceType)| {
        ty.stored_schema = stored.as_ref().filter(|_| !is_stored).map(lazy);
        Arc::new(ty)
    };
    Ok(types.into_iter().map(with_stored).collect())
}

fn compile_version(crd: &Value, version: &Value, schema: Option<Document>) -> ResourceType {
    let spec = given(crd, "spec").unwrap_or(&Value::Null);
    let accepted = crd.pointer("/status/acceptedNames").filter(|n| !text(n, "plural").is_empty());
    let names = accepted.or(given(spec, "names")).unwrap_or(&Value::Null);
    let (group, name, kind) = (text(spec, "group"), text(version, "name"), text(names, "kind"));
    let gvk = GroupVersionKind { group: group.into(), version: name.into(), kind: kind.into() };
    ResourceType {
        group: group.to_owned(),
        version: name.to_owned(),
        kind: kind.to_owned(),
        list_kind: text(names, "listKind").to_owned(),
        plural: text(names, "plural").to_owned(),
        singular: text(names, "singular").to_owned(),
        short_names: strings(names, "shortNames"),
        categories: strings(names, "categories"),
        namespaced: text(spec, "scope") == "Namespaced",
        verbs: VERBS.to_vec(),
        subresources: subresources(version, gvk),
        storage: storage(spec, names),
        schema: schema.as_ref().map_or_else(|| LazySchema::ready(None), lazy),
        stored_schema: None,
        openapi: schema.map_or(Documentation::None, Documentation::Schema),
        columns: list(version, "additionalPrinterColumns").iter().map(column).collect(),
        selectable_fields: list(version, "selectableFields")
            .iter()
            .map(|f| text(f, "jsonPath").trim_start_matches('.').to_owned())
            .collect(),
        generation: true,
        custom: true,
        deprecation: flag(version, "deprecated").then(|| deprecation(spec, version)),
        terminating: crate::meta::is_deleting(crd),
        contexts: contexts(crd),
        since: 0,
        hash: content_hash(crd, spec, names, name),
    }
}

/// The schema is read once to see that it can be, and kept packed until the first use: most types of most planes are
/// never used.
fn compile_schema(version: &Value, index: usize) -> Result<Option<Document>, Vec<FieldError>> {
    let Some(source) = version.pointer("/schema/openAPIV3Schema").filter(|s| !s.is_null()) else {
        return Ok(None);
    };
    schema::parse(source).map_err(|mut errors| {
        for error in &mut errors {
            error.field = format!("spec.versions[{index}].schema.openAPIV3Schema.{}", error.field);
        }
        errors
    })?;
    Ok(Some(Document::new(source)))
}

/// A schema that is unpacked when it is first asked for.
fn lazy(document: &Document) -> LazySchema {
    let packed = document.clone();
    LazySchema::new(move || schema::parse(&packed.read()).ok())
}

fn subresources(version: &Value, own: GroupVersionKind) -> Vec<Subresource> {
    let Some(declared) = given(version, "subresources") else { return Vec::new() };
    let status = given(declared, "status").map(|_| Subresource {
        name: "status".into(),
        kind: own,
        verbs: SUBRESOURCE_VERBS.to_vec(),
        scale: None,
    });
    let scale = given(declared, "scale").map(|scale| Subresource {
        name: "scale".into(),
        kind: GroupVersionKind { group: "autoscaling".into(), version: "v1".into(), kind: "Scale".into() },
        verbs: SUBRESOURCE_VERBS.to_vec(),
        scale: Some(ScalePaths {
            spec_replicas: text(scale, "specReplicasPath").to_owned(),
            status_replicas: text(scale, "statusReplicasPath").to_owned(),
            label_selector: Some(text(scale, "labelSelectorPath").to_owned()).filter(|p| !p.is_empty()),
        }),
    });
    status.into_iter().chain(scale).collect()
}

fn storage(spec: &Value, names: &Value) -> StorageAs {
    let group = text(spec, "group");
    let stored = list(spec, "versions").iter().find(|v| flag(v, "storage")).map_or("", |v| text(v, "name"));
    let conversion = given(spec, "conversion");
    StorageAs {
        group: group.to_owned(),
        resource: text(names, "plural").to_owned(),
        api_version: format!("{group}/{stored}"),
        conversion: match conversion
            .filter(|c| text(c, "strategy") == "Webhook")
            .and_then(|c| given(c, "webhook"))
        {
            Some(webhook) => {
                Conversion::Webhook(Arc::new(ConversionWebhook { config: webhook.clone(), home: None }))
            }
            None => Conversion::None,
        },
    }
}

fn column(column: &Value) -> Column {
    let priority = column.get("priority").and_then(Value::as_i64).unwrap_or(0);
    Column {
        name: text(column, "name").to_owned(),
        kind: text(column, "type").to_owned(),
        format: text(column, "format").to_owned(),
        description: text(column, "description").to_owned(),
        priority: i32::try_from(priority).unwrap_or(i32::MAX),
        cell: Cell::Path(text(column, "jsonPath").to_owned()),
    }
}

fn deprecation(spec: &Value, version: &Value) -> String {
    if let Some(warning) = version.get("deprecationWarning").and_then(Value::as_str) {
        return warning.to_owned();
    }
    let (group, kind) = (text(spec, "group"), spec.get("names").map_or("", |n| text(n, "kind")));
    let name = text(version, "name");
    let newer = list(spec, "versions")
        .iter()
        .filter(|v| flag(v, "served") && !flag(v, "deprecated"))
        .map(|v| text(v, "name"))
        .filter(|other| compare_versions(name, other) == Ordering::Less)
        .max_by(|a, b| compare_versions(a, b));
    let instead = newer.map(|v| format!("; use {group}/{v} {kind}")).unwrap_or_default();
    format!("{group}/{name} {kind} is deprecated{instead}")
}

/// The contexts that a CRD's annotation names, each once.
fn contexts(crd: &Value) -> Vec<String> {
    let named = crate::meta::annotation(crd, CONTEXTS_ANNOTATION).unwrap_or("");
    let mut found: Vec<String> = named
        .split(',')
        .map(|c| c.trim().to_lowercase())
        .filter(|c| CONTEXTS.contains(&c.as_str()))
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// Names everything that a type is made of. SHA-256, as tenants share what has the same hash.
fn content_hash(crd: &Value, spec: &Value, names: &Value, version: &str) -> String {
    let (terminating, contexts) = (crate::meta::is_deleting(crd), contexts(crd));
    let text = serde_json::to_vec(&(spec, names, version, terminating, contexts))
        .expect("a JSON value can be written to memory");
    let mut hex = String::with_capacity(64);
    for byte in Sha256::digest(text) {
        write!(hex, "{byte:02x}").expect("writing to a string does not fail");
    }
    hex
}

/// Compares versions as Kubernetes ranks them: `v2` > `v1` > `v1beta1` > `v1alpha1` > anything else, and the latter
/// by their letters, backwards.
pub fn compare_versions(a: &str, b: &str) -> Ordering {
    match (rank(a), rank(b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        (Some(_), None) => Ordering::Greater,
        (None, Some(_)) => Ordering::Less,
        (None, None) => b.cmp(a),
    }
}

/// Stability, major and minor of a version like `v1beta2`.
fn rank(version: &str) -> Option<(u8, u32, u32)> {
    let rest = version.strip_prefix('v')?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (major, tail) = rest.split_at(digits);
    let (stability, minor) = match (tail.strip_prefix("alpha"), tail.strip_prefix("beta")) {
        _ if tail.is_empty() => (2, "0"),
        (Some(minor), _) => (0, minor),
        (_, Some(minor)) => (1, minor),
        _ => return None,
    };
    let number = |s: &str| s.bytes().all(|c| c.is_ascii_digit()).then(|| s.parse().ok()).flatten();
    Some((stability, number(major)?, number(minor)?))
}
