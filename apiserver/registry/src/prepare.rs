//! What the server alone writes in an object: identity, times, generation, and which parts a request may touch.

use crate::{
    Operation,
    strategy::{self, StatusMetadata},
};
use freehold_apiserver_catalog::{TypeSet, internal_name};
use freehold_machinery::{GroupVersionKind, Map, ResourceType, Result, Status, Value, go, meta};
use uuid::Uuid;

/// Characters of a generated name; no vowels, so that no words come about.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
/// The longest `generateName` that is kept whole.
const MAX_PREFIX: usize = 58;

/// `metadata.name` from `metadata.generateName`.
pub(crate) fn generate_name(prefix: &str) -> String {
    let random = Uuid::new_v4();
    let suffix = random.as_bytes()[..5].iter().map(|b| ALPHABET[usize::from(*b) % ALPHABET.len()] as char);
    let end = prefix.char_indices().nth(MAX_PREFIX).map_or(prefix.len(), |(at, _)| at);
    prefix[..end].chars().chain(suffix).collect()
}

/// Checks that the body is of the type that the URL names; what a built-in kind leaves out is filled in. What a patch
/// makes of the version of a custom resource is found when that is validated.
pub(crate) fn check_kind(
    op: &Operation,
    body: &mut Value,
    wanted: &GroupVersionKind,
    patched: bool,
) -> Result<(), Undecodable> {
    if !body.is_object() {
        let why = format!("cannot unmarshal {} into an object", go::word(body));
        return Err(Undecodable::Why(why));
    }
    let expected = [("apiVersion", wanted.api_version()), ("kind", wanted.kind.clone())];
    for (field, expected) in &expected {
        if body.get(*field).and_then(Value::as_str).unwrap_or_default().is_empty() {
            body[*field] = expected.clone().into();
        }
    }
    let given = |field: &str| body[field].as_str().unwrap_or_default();
    let (version, kind) = (given("apiVersion"), given("kind"));
    let [(_, wanted_version), (_, wanted_kind)] = &expected;
    // The kind of a custom resource is looked at when it is validated.
    let other = !op.ty.custom && (kind != wanted_kind || version != wanted_version);
    if let Some(why) = other.then(|| unknown_conversion(version, kind, wanted)).flatten() {
        let short = version.split_once('/').map_or(version, |(_, short)| short);
        return Err(Undecodable::Other { kind: kind.to_owned(), version: short.to_owned(), why });
    }
    if version != wanted_version && !(patched && op.ty.custom) {
        return Err(Status::bad_request(format!(
            "the API version in the data ({version}) does not match the expected API version ({wanted_version})"
        ))
        .into());
    }
    Ok(())
}

/// Gives an object the kind of its resource in place of any other text: a strategic merge patch is read into an object whose
/// kind is known.
pub(crate) fn set_kind(object: &mut Value, kind: &GroupVersionKind) {
    for (field, own) in [("apiVersion", kind.api_version()), ("kind", kind.kind.clone())] {
        if object.get(field).is_none_or(|given| given.is_null() || given.is_string()) {
            object[field] = own.into();
        }
    }
}

/// Why an object of a kind can't be read as one of a built-in kind; `None` where it can.
fn unknown_conversion(version: &str, kind: &str, wanted: &GroupVersionKind) -> Option<String> {
    let (group, short) = version.split_once('/').unwrap_or(("", version));
    let types = TypeSet::builtin();
    let item = kind.strip_suffix("List").unwrap_or(kind);
    if types.by_kind(group, short, kind).or_else(|| types.by_kind(group, short, item)).is_none() {
        return Some(format!(
            "no kind {kind:?} is registered for version {version:?} in scheme \"pkg/runtime/scheme.go:111\""
        ));
    }
    if group == wanted.group && kind == wanted.kind {
        return None;
    }
    let target = internal_name(wanted).unwrap_or(&wanted.kind);
    Some(format!("converting ({short}.{kind}) to ({target}): unknown conversion"))
}

/// Why a body could not be read.
pub(crate) enum Undecodable {
    /// It doesn't fit its kind; the request says how it is told.
    Why(String),
    /// It is of a kind that this one can't be made of.
    Other {
        /// What it is.
        kind: String,
        /// The version within its group.
        version: String,
        /// Why.
        why: String,
    },
    /// This is to be answered.
    Status(Status),
}

impl From<Status> for Undecodable {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

impl Undecodable {
    /// The answer for a body of a kind.
    pub(crate) fn of(self, kind: &GroupVersionKind) -> Status {
        match self {
            Self::Status(status) => status,
            Self::Other { kind: given, version, why } => Status::bad_request(format!(
                "{given} in version {version:?} cannot be handled as a {}: {why}",
                kind.kind
            )),
            Self::Why(why) => {
                let GroupVersionKind { version, kind, .. } = kind;
                Status::bad_request(format!(
                    "{kind} in version {version:?} cannot be handled as a {kind}: {why}"
                ))
            }
        }
    }
}

/// Checks that the body's namespace is that of the URL, and fills it in.
pub(crate) fn check_namespace(op: &Operation, body: &mut Value) -> Result<()> {
    let given = meta::namespace(body).to_owned();
    match (&op.namespace, given.is_empty()) {
        (Some(namespace), true) if op.ty.namespaced => meta::set(body, "namespace", namespace.clone()),
        (Some(namespace), false) if op.ty.namespaced && *namespace != given => {
            return Err(Status::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        (None, false) if !op.ty.namespaced => meta::remove(body, "namespace"),
        _ => {}
    }
    Ok(())
}

/// Fills in what a new object gets from the server.
pub(crate) fn for_create(ty: &ResourceType, object: &mut Value, now: &str) {
    let metadata = meta::metadata_mut(object);
    for field in
        ["selfLink", "deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion", "generation"]
    {
        metadata.remove(field);
    }
    drop_empty(metadata);
    metadata.insert("uid".into(), Uuid::new_v4().to_string().into());
    metadata.insert("creationTimestamp".into(), now.into());
    if ty.generation {
        metadata.insert("generation".into(), 1.into());
    }
    if ty.has_status()
        && !strategy::of(ty).status_on_create
        && let Some(map) = object.as_object_mut()
    {
        map.remove("status");
    }
}

/// Lists and maps of metadata without anything in them are as good as absent.
fn drop_empty(metadata: &mut Map) {
    metadata.retain(|field, value| {
        let empty =
            value.as_array().is_some_and(Vec::is_empty) || value.as_object().is_some_and(Map::is_empty);
        !(METADATA.contains(&field.as_str()) && (empty || value.is_null()))
    });
}

/// Fields of `metadata` that only the server writes.
const SYSTEM: [&str; 7] = [
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "selfLink",
    "generateName",
];

/// Fields of `metadata` that clients write.
const METADATA: [&str; 4] = ["labels", "annotations", "finalizers", "ownerReferences"];

/// Keeps from the live object what this request may not change.
pub(crate) fn for_update(op: &Operation, object: &mut Value, live: &Value) {
    for field in SYSTEM {
        let metadata = meta::metadata_mut(object);
        let kept = live["metadata"].get(field);
        // Who begins a deletion like this is told that it can't be changed.
        let told = field == "deletionTimestamp" && kept.is_none();
        if told && metadata.get(field).is_some_and(|given| !given.is_null()) {
            continue;
        }
        match kept {
            Some(value) => drop(metadata.insert(field.to_owned(), value.clone())),
            None => drop(metadata.remove(field)),
        }
    }
    match op.subresource.as_deref() {
        Some("status") => keep_all_but_status(op, object, live),
        Some("finalize") => {
            let finalizers = object["spec"]["finalizers"].take();
            let version = object["metadata"]["resourceVersion"].take();
            *object = live.clone();
            object["spec"]["finalizers"] =
                if finalizers.is_null() { Value::Array(Vec::new()) } else { finalizers };
            if version.is_string() {
                meta::set(object, "resourceVersion", version);
            }
        }
        Some("ephemeralcontainers") => {
            let list = object["spec"]["ephemeralContainers"].take();
            keep_but(object, live, |kept| match list {
                Value::Null => {}
                list => kept["spec"]["ephemeralContainers"] = list,
            });
        }
        Some("resize") => {
            let sent = object["spec"].take();
            keep_but(object, live, |kept| resized(&mut kept["spec"], &sent));
        }
        Some(_) => {}
        None if op.ty.has_status() => copy_field(object, live, "status"),
        None => {}
    }
    drop_empty(meta::metadata_mut(object));
}

/// Counts changes of what is wanted, whoever made them: the client or admission.
pub(crate) fn count_generation(op: &Operation, object: &mut Value, live: &Value) {
    // A binding is no change of the wanted state.
    let counts = op.ty.generation && op.subresource.as_deref() != Some("binding");
    if counts && changed_outside_metadata(object, live, op.ty.has_status()) {
        let next = live["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
        meta::set(object, "generation", next);
    }
}

/// The live object with a change, the managed fields and version of what was sent.
fn keep_but(object: &mut Value, live: &Value, change: impl FnOnce(&mut Value)) {
    let mut kept = live.clone();
    for field in ["managedFields", "resourceVersion"] {
        copy_field(&mut kept["metadata"], &object["metadata"], field);
    }
    change(&mut kept);
    *object = kept;
}

/// Takes the resources of containers over, those of one name each.
fn resized(spec: &mut Value, sent: &Value) {
    for list in ["containers", "initContainers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let of_name = |other: &&Value| other["name"] == container["name"];
            let Some(sent) = sent[list].as_array().into_iter().flatten().find(of_name).cloned() else {
                continue;
            };
            for field in ["resources", "resizePolicy"] {
                copy_field(container, &sent, field);
            }
        }
    }
}

fn copy_field(object: &mut Value, from: &Value, field: &str) {
    let Some(map) = object.as_object_mut() else { return };
    match from.get(field) {
        Some(value) => drop(map.insert(field.to_owned(), value.clone())),
        None => drop(map.remove(field)),
    }
}

fn keep_all_but_status(op: &Operation, object: &mut Value, live: &Value) {
    let mut kept = live.clone();
    copy_field(&mut kept, object, "status");
    let changes = |field: &&&str| match strategy::of(&op.ty).status_metadata {
        StatusMetadata::All => true,
        StatusMetadata::AllBut(fields) => !fields.contains(field),
        StatusMetadata::Nothing => false,
    };
    for field in METADATA.iter().filter(changes) {
        copy_field(&mut kept["metadata"], &object["metadata"], field);
    }
    for field in ["managedFields", "resourceVersion"] {
        if let Some(value) = object["metadata"].get(field) {
            meta::set(&mut kept, field, value.clone());
        }
    }
    *object = kept;
}

fn changed_outside_metadata(object: &Value, live: &Value, has_status: bool) -> bool {
    let relevant = |value: &Value, key: &str| {
        let skipped = key == "metadata" || (has_status && key == "status");
        if skipped { None } else { value.get(key).cloned() }
    };
    let keys =
        |value: &Value| value.as_object().map(|m| m.keys().cloned().collect::<Vec<_>>()).unwrap_or_default();
    keys(object).iter().chain(&keys(live)).any(|key| relevant(object, key) != relevant(live, key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generated_name_is_its_prefix_and_five_characters() {
        let name = generate_name("web-");
        assert!(name.starts_with("web-") && name.len() == 9, "{name}");
        assert_eq!(generate_name(&"x".repeat(80)).len(), 63);
        assert_ne!(generate_name("a"), generate_name("a"));
    }
}
