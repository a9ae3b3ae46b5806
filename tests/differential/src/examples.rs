//! The objects that projects publish as examples of their custom resources: which of them are admitted.
//!
//! `examples.gz` has definitions and examples, so that nothing is fetched for the test; [`collect`] makes it of what
//! `tools/get crds` fetches from the projects' Go modules (all under the Apache License 2.0). What kube-apiserver said to
//! each example is in `examples.json`, by the example's file and place in it.

use anyhow::{Context, Result, bail};
use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use freehold_client::{Client, RawRequest};
use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    io::{Read, Write},
    path::{Path, PathBuf},
    time::Duration,
};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const NAMESPACE: &str = "examples";
/// How long a definition may take to be served.
const SERVED: Duration = Duration::from_secs(60);

/// What a server says to an example.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Verdict {
    /// The HTTP status code.
    pub status: u16,
    /// The message of a refusal; empty where it is admitted.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// Definitions and examples, by their files and places in them.
#[derive(Debug, Deserialize, Serialize)]
pub struct Published {
    definitions: BTreeMap<String, Value>,
    examples: BTreeMap<String, Value>,
}

const PACKED: &str = "examples.gz";

impl Published {
    /// Loads the examples that are kept with the tests.
    ///
    /// # Errors
    /// A file that cannot be read or parsed.
    pub fn load() -> Result<Self> {
        let mut text = String::new();
        let packed = std::fs::File::open(crate::path(PACKED)).context(PACKED)?;
        GzDecoder::new(packed).read_to_string(&mut text)?;
        Ok(serde_json::from_str(&text)?)
    }

    /// Writes the files that [`load`](Self::load) reads.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn save(&self) -> Result<()> {
        let mut packed = GzEncoder::new(Vec::new(), Compression::best());
        packed.write_all(&serde_json::to_vec(self)?)?;
        Ok(std::fs::write(crate::path(PACKED), packed.finish()?)?)
    }

    /// Collects the fetched examples, without the descriptions in schemas.
    ///
    /// # Errors
    /// A folder or file that cannot be read or parsed.
    pub fn collect() -> Result<Self> {
        let (definitions, examples) = folders();
        let mut definitions: BTreeMap<String, Value> = documents(&definitions)?.into_iter().collect();
        definitions.values_mut().for_each(without_descriptions);
        let kinds = kinds(&definitions);
        let known = |(_, object): &(String, Value)| kinds.contains_key(&kind_of(object));
        Ok(Self { definitions, examples: documents(&examples)?.into_iter().filter(known).collect() })
    }
}

fn without_descriptions(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|key, value| key != "description" || !value.is_string());
            map.values_mut().for_each(without_descriptions);
        }
        Value::Array(list) => list.iter_mut().for_each(without_descriptions),
        _ => {}
    }
}

/// A group and kind.
type Kind = (String, String);

/// A kind's plural, whether it has namespaces, and its served versions.
type Place = (String, bool, Vec<String>);

fn kinds(definitions: &BTreeMap<String, Value>) -> BTreeMap<Kind, Place> {
    let of = |definition: &Value| {
        let text =
            |pointer: &str| definition.pointer(pointer).and_then(Value::as_str).unwrap_or("").to_owned();
        let versions = definition["spec"]["versions"].as_array().cloned().unwrap_or_default();
        let served = versions.iter().filter(|v| v["served"] == true);
        let served: Vec<String> = served.filter_map(|v| v["name"].as_str().map(str::to_owned)).collect();
        let place = (text("/spec/names/plural"), text("/spec/scope") == "Namespaced", served);
        ((text("/spec/group"), text("/spec/names/kind")), place)
    };
    definitions.values().map(of).collect()
}

fn kind_of(object: &Value) -> Kind {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    let group = text("apiVersion").split_once('/').map_or("", |(group, _)| group);
    (group.to_owned(), text("kind").to_owned())
}

/// Where `tools/get` puts definitions and examples.
pub fn folders() -> (PathBuf, PathBuf) {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools");
    (tools.join("crds"), tools.join("examples"))
}

/// The documents of all files below a folder, by file and number, in their order. What is no YAML is left out.
fn documents(folder: &Path) -> Result<Vec<(String, Value)>> {
    let mut files = Vec::new();
    for project in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let project = project?.path();
        if project.is_dir() {
            for file in std::fs::read_dir(project)? {
                files.push(file?.path());
            }
        }
    }
    files.sort();
    let mut found = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file)?;
        let name = file.strip_prefix(folder)?.display().to_string();
        for (number, document) in text.split("\n---").enumerate() {
            let document = document.trim_start_matches('-');
            if let Ok(value @ Value::Object(_)) = serde_saphyr::from_str::<Value>(document) {
                found.push((format!("{name}#{number}"), value));
            }
        }
    }
    Ok(found)
}

/// Installs every definition and asks for each example whether it would be admitted.
///
/// # Errors
/// A request without an answer, or a definition that is not served in time.
pub async fn run(client: &Client, published: &Published) -> Result<BTreeMap<String, Verdict>> {
    for (name, definition) in &published.definitions {
        let answer = client.once(&RawRequest::new(Method::POST, DEFINITIONS).json(definition)).await?;
        if !answer.status.is_success() {
            bail!("{name}: {} {}", answer.status, String::from_utf8_lossy(&answer.body));
        }
    }
    let kinds = kinds(&published.definitions);
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    client.json(RawRequest::new(Method::POST, "/api/v1/namespaces").json(&namespace)).await?;
    let mut verdicts = BTreeMap::new();
    for (name, object) in &published.examples {
        let (mut object, (group, kind)) = (object.clone(), kind_of(object));
        let version = object["apiVersion"].as_str().unwrap_or("").rsplit('/').next().unwrap_or("").to_owned();
        let Some((plural, namespaced, served)) = kinds.get(&(group.clone(), kind)) else { continue };
        if !served.contains(&version) {
            verdicts.insert(name.clone(), Verdict { status: 404, message: "not served".to_owned() });
            continue;
        }
        let within = if *namespaced { format!("/namespaces/{NAMESPACE}") } else { String::new() };
        if *namespaced {
            object["metadata"]["namespace"] = NAMESPACE.into();
        }
        // Some were copied from a server. Whether a dry run minds is not what is asked here.
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("resourceVersion");
        }
        let path = format!("/apis/{group}/{version}{within}/{plural}?dryRun=All");
        let request = RawRequest::new(Method::POST, path).json(&object);
        verdicts.insert(name.clone(), verdict(client, request).await?);
    }
    Ok(verdicts)
}

/// Sends an example; a type that is not served yet is waited for.
async fn verdict(client: &Client, request: RawRequest) -> Result<Verdict> {
    let wait = async {
        loop {
            let answer = client.once(&request).await?;
            let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
            let message = body["message"].as_str().unwrap_or("").to_owned();
            match answer.status.as_u16() {
                404 | 503 if body["details"]["name"].is_null() => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                status @ 200..300 => return Ok(Verdict { status, message: String::new() }),
                status => return Ok(Verdict { status, message }),
            }
        }
    };
    match tokio::time::timeout(SERVED, wait).await {
        Ok(verdict) => verdict,
        Err(_) => bail!("{} is not served", request.path),
    }
}
