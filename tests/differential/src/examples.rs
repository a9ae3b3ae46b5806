//! The objects that projects publish as examples of their custom resources: which of them are admitted.
//!
//! `tools/get crds` fetches definitions and examples from the projects' Go modules. What kube-apiserver said to each
//! example is in `examples.json`, by the example's file and place in it.

use anyhow::{Context, Result, bail};
use freehold_client::{Client, RawRequest};
use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const NAMESPACE: &str = "examples";
/// How long a definition may take to be served.
const SERVED: Duration = Duration::from_secs(5);

/// What a server says to an example.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Verdict {
    /// The HTTP status code.
    pub status: u16,
    /// The message of a refusal; empty where it is admitted.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
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
pub async fn run(client: &Client) -> Result<BTreeMap<String, Verdict>> {
    let (definitions, examples) = folders();
    let mut kinds = BTreeMap::new();
    for (name, definition) in documents(&definitions)? {
        let text =
            |pointer: &str| definition.pointer(pointer).and_then(Value::as_str).unwrap_or("").to_owned();
        let answer = client.once(&RawRequest::new(Method::POST, DEFINITIONS).json(&definition)).await?;
        if !answer.status.is_success() {
            bail!("{name}: {} {}", answer.status, String::from_utf8_lossy(&answer.body));
        }
        let versions = definition["spec"]["versions"].as_array().cloned().unwrap_or_default();
        let served = versions.iter().filter(|v| v["served"] == true);
        let served: Vec<String> = served.filter_map(|v| v["name"].as_str().map(str::to_owned)).collect();
        let place = (text("/spec/names/plural"), text("/spec/scope") == "Namespaced", served);
        kinds.insert((text("/spec/group"), text("/spec/names/kind")), place);
    }
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    client.json(RawRequest::new(Method::POST, "/api/v1/namespaces").json(&namespace)).await?;
    let mut verdicts = BTreeMap::new();
    for (name, mut object) in documents(&examples)? {
        let api_version = object["apiVersion"].as_str().unwrap_or("").to_owned();
        let kind = object["kind"].as_str().unwrap_or("").to_owned();
        let Some((group, version)) = api_version.split_once('/') else { continue };
        let Some((plural, namespaced, served)) = kinds.get(&(group.to_owned(), kind)) else { continue };
        if !served.iter().any(|own| own == version) {
            verdicts.insert(name, Verdict { status: 404, message: "not served".to_owned() });
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
        verdicts.insert(name, verdict(client, RawRequest::new(Method::POST, path).json(&object)).await?);
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
