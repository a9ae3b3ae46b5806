//! The rules of built-in kinds: how an API answers to objects of which one field is not as it should be.

use crate::{
    Difference, Normal,
    compare::walk,
    mutate::{Mutation, changed, wrong},
    run::prepare,
};
use anyhow::{Context, Result};
use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use freehold_client::{Client, Error, RawRequest, RawResponse};
use futures_util::{StreamExt, stream};
use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::{
    collections::{BTreeMap, BTreeSet},
    io::{Read, Write},
};

/// How many requests are under way at a time.
const AT_A_TIME: usize = 4;
/// The status of what was not answered: kube-apiserver panics on some objects.
const BROKEN: u16 = 0;
const OPEN: &str = "rules/open.txt";

/// A whole object of a kind, and what is tried with it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kind {
    /// What it is called in `rules/open.txt`; unique.
    pub name: String,
    /// Where it is created; `{ns}` stands for the namespace.
    pub path: String,
    /// The object, with each field that its kind has.
    pub object: Value,
    /// A status that is accepted.
    #[serde(default)]
    pub status: Option<Value>,
    /// Parts of the object that are tried on another kind: a mutation there is not repeated.
    #[serde(default)]
    pub skip: Vec<String>,
    /// It can't be created or not be updated: the object is the server's own.
    #[serde(default)]
    pub create_only: bool,
    /// An update has to say which version it replaces.
    #[serde(default)]
    pub versioned: bool,
    /// Changes that are tried besides: what stands at JSON pointers, null for nothing.
    #[serde(default)]
    pub also: Vec<Map<String, Value>>,
    /// Further changes that are tried on updates: values at JSON pointers, null for nothing.
    #[serde(default)]
    pub also_update: Vec<Map<String, Value>>,
}

/// What came of one request.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Outcome {
    /// Its place among all that is tried with its kind.
    #[serde(skip)]
    pub at: usize,
    /// What was tried.
    pub name: String,
    /// The status code.
    pub status: u16,
    /// Warnings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The `Status`, where it is an error; else what of the object is not as in the answer to the whole object.
    #[serde(default)]
    pub body: Value,
}

/// Reads all kinds, by the file that contains them.
///
/// # Errors
/// A folder or file that cannot be read or parsed.
pub fn kinds() -> Result<BTreeMap<String, Vec<Kind>>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(crate::path("rules"))? {
        let file = entry?.path();
        if file.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&file)?;
        let kinds = serde_saphyr::from_str(&text).with_context(|| format!("{}", file.display()))?;
        found.insert(stem, kinds);
    }
    Ok(found)
}

fn file(stem: &str) -> std::path::PathBuf {
    crate::path("recorded/rules").join(format!("{stem}.gz"))
}

/// Reads the recorded outcomes of a file's kinds, each by the kind's name.
///
/// # Errors
/// A file that cannot be read or parsed.
pub fn load(stem: &str) -> Result<BTreeMap<String, Vec<Outcome>>> {
    let mut text = String::new();
    let packed = std::fs::File::open(file(stem)).with_context(|| format!("{stem}: record it"))?;
    GzDecoder::new(packed).read_to_string(&mut text)?;
    Ok(serde_json::from_str(&text)?)
}

/// Writes the outcomes that [`load`] reads.
///
/// # Errors
/// A file that cannot be written.
pub fn save(stem: &str, outcomes: &BTreeMap<String, Vec<Outcome>>) -> Result<()> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(&serde_json::to_vec(outcomes)?)?;
    std::fs::create_dir_all(crate::path("recorded/rules"))?;
    Ok(std::fs::write(file(stem), packed.finish()?)?)
}

/// Reads the differences that are still to be closed: a request a line.
///
/// # Errors
/// A file that cannot be read.
pub fn open_rules() -> Result<BTreeSet<String>> {
    let text = std::fs::read_to_string(crate::path(OPEN)).unwrap_or_default();
    Ok(text.lines().map(str::to_owned).collect())
}

/// Writes the differences that [`open_rules`] reads.
///
/// # Errors
/// A file that cannot be written.
pub fn write_open_rules(places: &BTreeSet<String>) -> Result<()> {
    let lines: String = places.iter().map(|place| format!("{place}\n")).collect();
    Ok(std::fs::write(crate::path(OPEN), lines)?)
}

/// One request that is to be tried.
struct Try {
    at: usize,
    name: String,
    method: Method,
    path: String,
    body: Value,
}

/// Tries every change of a kind, or one of `every` so many.
///
/// # Errors
/// A request without an answer.
pub async fn judge(client: &Client, kind: &Kind, every: usize) -> Result<Vec<Outcome>> {
    let namespace = format!("rules-{}", kind.name);
    let mut path = kind.path.clone();
    if path.contains("{ns}") {
        prepare(client, &namespace).await?;
        path = path.replace("{ns}", &namespace);
    }
    let (mut object, mut reference) = (kind.object.clone(), Value::Null);
    fill(&mut object, &namespace);
    let mut at = 0;
    let mut sample = |tries: Vec<Try>| -> Vec<Try> {
        let first = at;
        at += tries.len();
        let placed = tries.into_iter().enumerate().filter(|(index, _)| index % every == 0);
        placed.map(|(index, one)| Try { at: first + index, ..one }).collect()
    };
    let mut outcomes = run(client, sample(creations(kind, &object, &path)), &mut reference).await;
    if kind.create_only {
        return Ok(outcomes);
    }
    let created = client.once(&RawRequest::new(Method::POST, path.clone()).json(&object)).await?;
    let failed = || format!("{}: {}", kind.name, String::from_utf8_lossy(&created.body));
    let name = if created.status.is_success() { "store".to_owned() } else { format!("store {}", failed()) };
    let path_of_store = String::new();
    let store =
        Try { at: 0, name: name.clone(), method: Method::POST, path: path_of_store, body: Value::Null };
    let at_store = sample(vec![store]).first().map_or(0, |one| one.at);
    let status = created.status.as_u16();
    outcomes.push(Outcome { at: at_store, name, status, warnings: vec![], body: Value::Null });
    if !created.status.is_success() {
        return Ok(outcomes);
    }
    let mut stored: Value = serde_json::from_slice(&created.body)?;
    if let Some(metadata) = stored["metadata"].as_object_mut() {
        metadata.remove("managedFields");
        if !kind.versioned {
            metadata.remove("resourceVersion");
        }
    }
    let name = stored["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let own = format!("{path}/{name}");
    let tries = sample(updates(kind, &object, &stored, &own));
    outcomes.extend(run(client, tries, &mut Value::Null).await);
    if let Some(status) = &kind.status {
        let tries = sample(status_updates(status, &stored, &own));
        outcomes.extend(run(client, tries, &mut Value::Null).await);
    }
    Ok(outcomes)
}

fn fill(value: &mut Value, namespace: &str) {
    match value {
        Value::String(text) if text.contains("{ns}") => *text = text.replace("{ns}", namespace),
        Value::Array(list) => list.iter_mut().for_each(|item| fill(item, namespace)),
        Value::Object(map) => map.values_mut().for_each(|item| fill(item, namespace)),
        _ => {}
    }
}

fn with(base: &Value, mutations: &[Mutation]) -> Value {
    let mut object = base.clone();
    mutations.iter().for_each(|mutation| mutation.apply(&mut object));
    object
}

fn listed(sets: &[Map<String, Value>]) -> Vec<Vec<Mutation>> {
    let of = |(at, to): (&String, &Value)| Mutation {
        at: at.clone(),
        to: Some(to.clone()).filter(|v| !v.is_null()),
    };
    sets.iter().map(|set| set.iter().map(of).collect()).collect()
}

fn tries(
    what: &str,
    (method, path): (Method, String),
    base: &Value,
    changes: impl IntoIterator<Item = Vec<Mutation>>,
) -> Vec<Try> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut unique = |name: String| {
        let times = seen.entry(name.clone()).or_default();
        *times += 1;
        if *times == 1 { name } else { format!("{name} ({times})") }
    };
    let with = |changes: Vec<Mutation>| Try {
        at: 0,
        name: unique(format!("{what} {}", changes.iter().map(Mutation::name).collect::<Vec<_>>().join(" "))),
        method: method.clone(),
        path: format!("{path}?dryRun=All"),
        body: with(base, &changes),
    };
    std::iter::once(Vec::new()).chain(changes).map(with).collect()
}

fn wanted(kind: &Kind, mutations: Vec<Mutation>) -> Vec<Vec<Mutation>> {
    let tried =
        |mutation: &Mutation| !kind.skip.iter().any(|prefix| mutation.at.starts_with(prefix.as_str()));
    mutations.into_iter().filter(tried).map(|mutation| vec![mutation]).collect()
}

fn creations(kind: &Kind, object: &Value, path: &str) -> Vec<Try> {
    let name = |name: &str| vec![Mutation { at: "/metadata/name".into(), to: Some(name.into()) }];
    let names = ["-Not_Valid/*", &"x".repeat(260)].map(name);
    let changes = names.into_iter().chain(wanted(kind, wrong(object))).chain(listed(&kind.also));
    tries("create", (Method::POST, path.to_owned()), object, changes)
}

fn updates(kind: &Kind, object: &Value, stored: &Value, own: &str) -> Vec<Try> {
    let changes = wanted(kind, changed(object)).into_iter().chain(listed(&kind.also_update));
    tries("update", (Method::PUT, own.to_owned()), stored, changes)
}

fn status_updates(status: &Value, stored: &Value, own: &str) -> Vec<Try> {
    let mut base = stored.clone();
    base["status"] = status.clone();
    let below = |mutation: Mutation| vec![Mutation { at: format!("/status{}", mutation.at), ..mutation }];
    let changes = wrong(status).into_iter().map(below);
    tries("status", (Method::PUT, format!("{own}/status")), &base, changes)
}

/// How often a request is sent again when a controller has written its object meanwhile.
const AGAIN: usize = 20;

/// The answer to an object as it is now: one that a controller has written meanwhile is sent again as of then.
async fn settled(client: &Client, one: &Try) -> Result<RawResponse, Error> {
    let mut body = one.body.clone();
    for _ in 0..AGAIN {
        let answer = client.once(&RawRequest::new(one.method.clone(), one.path.clone()).json(&body)).await?;
        let of_a_version = body["metadata"]["resourceVersion"].is_string();
        if answer.status.as_u16() != 409 || one.method != Method::PUT || !of_a_version {
            return Ok(answer);
        }
        let path = one.path.split('?').next().unwrap_or_default();
        let now = client.once(&RawRequest::get(path.to_owned())).await?;
        let now: Value = serde_json::from_slice(&now.body).unwrap_or_default();
        body["metadata"]["resourceVersion"] = now["metadata"]["resourceVersion"].clone();
    }
    client.once(&RawRequest::new(one.method.clone(), one.path.clone()).json(&body)).await
}

async fn run(client: &Client, tries: Vec<Try>, reference: &mut Value) -> Vec<Outcome> {
    let send = |one: Try| async move {
        let Ok(answer) = settled(client, &one).await else {
            return Outcome {
                at: one.at,
                name: one.name,
                status: BROKEN,
                warnings: vec![],
                body: Value::Null,
            };
        };
        let mut normal = Normal::new();
        let mut body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        normal.value(&mut body);
        let warnings = answer.headers.get_all("warning").iter();
        let warnings = warnings.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect();
        Outcome { at: one.at, name: one.name, status: answer.status.as_u16(), warnings, body }
    };
    let mut outcomes: Vec<Outcome> = stream::iter(tries).map(send).buffered(AT_A_TIME).collect().await;
    for outcome in &mut outcomes {
        trim(outcome, reference);
    }
    outcomes
}

/// Leaves of an error what is not said twice, and of an object what is not as in the first.
fn trim(outcome: &mut Outcome, reference: &mut Value) {
    if outcome.status == BROKEN {
        return;
    }
    if outcome.status >= 300 {
        without_diff(&mut outcome.body);
        if let Some(status) = outcome.body.as_object_mut() {
            ["kind", "apiVersion", "metadata", "status", "code"]
                .iter()
                .for_each(|field| drop(status.remove(*field)));
        }
        return;
    }
    if let Some(metadata) = outcome.body["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    let update = outcome.name.starts_with("update");
    if let Some(object) = outcome.body.as_object_mut().filter(|_| update) {
        // Controllers write it meanwhile.
        object.remove("status");
    }
    if reference.is_null() {
        *reference = outcome.body.clone();
        return;
    }
    let mut found = Vec::new();
    walk("", String::new(), Some(reference), Some(&outcome.body), &mut found);
    let places = found.into_iter().map(|place| (place.at, place.ours.unwrap_or_default()));
    outcome.body = Value::Object(places.collect());
}

/// Nothing mounts volumes yet, so volumes, claims and their classes are not protected from being deleted meanwhile.
fn without_protection(metadata: &mut Map<String, Value>) {
    let Some(finalizers) = metadata.get_mut("finalizers").and_then(Value::as_array_mut) else { return };
    finalizers.retain(|name| !name.as_str().is_some_and(|name| name.ends_with("-protection")));
    if finalizers.is_empty() {
        metadata.remove("finalizers");
    }
}

/// What says who asked, and what a controller writes meanwhile.
fn without_circumstances(body: &mut Value) {
    let (field, gone): (&str, &[&str]) = match body["kind"].as_str() {
        Some("CertificateSigningRequest") => ("spec", &["username", "uid", "groups", "extra"]),
        Some("ValidatingAdmissionPolicy") => ("status", &["observedGeneration", "typeChecking"]),
        _ => return,
    };
    if let Some(map) = body.get_mut(field).and_then(Value::as_object_mut) {
        gone.iter().for_each(|name| drop(map.remove(*name)));
    }
}

/// kube-apiserver shows a diff of its internal structs behind what it says of a pod's update.
fn without_diff(body: &mut Value) {
    match body {
        Value::String(text) => {
            if let Some(end) = text.find("\n@@ ").or_else(|| text.find("\n--- ")) {
                let listed = text.ends_with(']');
                text.truncate(end);
                text.extend(listed.then_some(']'));
            }
        }
        Value::Array(list) => list.iter_mut().for_each(without_diff),
        Value::Object(map) => map.values_mut().for_each(without_diff),
        _ => {}
    }
}

/// Where two outcomes differ.
pub fn compare_outcomes(kind: &str, theirs: &Outcome, ours: &Outcome) -> Vec<Difference> {
    let whole = |o: &Outcome| {
        let mut body = o.body.clone();
        if let Some(Value::Object(metadata)) = body.get_mut("metadata") {
            without_protection(metadata);
        }
        without_circumstances(&mut body);
        serde_json::json!({"status": o.status, "warnings": o.warnings, "body": body})
    };
    let mut found = Vec::new();
    if theirs.status == BROKEN {
        return found;
    }
    let request = format!("{kind} {}", theirs.name);
    walk(&request, String::new(), Some(&whole(theirs)), Some(&whole(ours)), &mut found);
    found
}
