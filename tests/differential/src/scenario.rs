//! Scenarios as they are written.

use anyhow::{Context, Result, anyhow};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// Requests that belong together, in order.
#[derive(Debug)]
pub struct Scenario {
    /// The name of its file, without `.yaml`.
    pub name: String,
    /// Its requests.
    pub requests: Vec<Request>,
}

/// One request. `{ns}` stands for the scenario's namespace, `{NAME}` for what an earlier request captured.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// What it asks, as a fact; unique in its scenario.
    pub name: String,
    /// Method and path: `POST /api/v1/namespaces/{ns}/configmaps`.
    pub send: String,
    /// `json` (the default where there is a body), `yaml`, `patch` (JSON patch), `merge`, `strategic`, `apply`, or a media
    /// type.
    #[serde(default, rename = "as")]
    pub kind: Option<String>,
    /// `Accept`: `table`, `metadata`, `metadata-list`, `yaml`, or media types; `application/json` where it is left out.
    #[serde(default)]
    pub accept: Option<String>,
    /// Further headers.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// The body: an object, or text that is sent as it is.
    #[serde(default)]
    pub body: Option<Value>,
    /// The body in base64, where it is no text.
    #[serde(default)]
    pub base64: Option<String>,
    /// What later requests use: name and JSON pointer into the answer.
    #[serde(default)]
    pub capture: BTreeMap<String, String>,
    /// JSON pointers to what of its answer's body is compared, where that is not all of it: documents are large.
    #[serde(default)]
    pub pick: Vec<String>,
    /// Its answer is not compared: it only prepares others.
    #[serde(default)]
    pub prepare: bool,
}

impl Request {
    /// The media type of the body.
    pub fn content_type(&self) -> &str {
        match self.kind.as_deref() {
            None | Some("json") => "application/json",
            Some("yaml") => "application/yaml",
            Some("patch") => "application/json-patch+json",
            Some("merge") => "application/merge-patch+json",
            Some("strategic") => "application/strategic-merge-patch+json",
            Some("apply") => "application/apply-patch+yaml",
            Some(other) => other,
        }
    }

    /// The `Accept` header of the request.
    pub fn accepted(&self) -> &str {
        match self.accept.as_deref() {
            None => "application/json",
            Some("table") => "application/json;as=Table;g=meta.k8s.io;v=v1",
            Some("metadata") => "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
            Some("metadata-list") => "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
            Some("yaml") => "application/yaml",
            Some(other) => other,
        }
    }
}

/// Reads all scenarios, by name.
///
/// # Errors
/// A folder or file that cannot be read or parsed.
pub fn scenarios() -> Result<Vec<Scenario>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(crate::path("requests"))? {
        let file = entry?.path();
        let name = file.file_stem().and_then(|stem| stem.to_str()).ok_or_else(|| anyhow!("{file:?}"))?;
        let text = std::fs::read_to_string(&file)?;
        let requests = serde_saphyr::from_str(&text).with_context(|| format!("{}", file.display()))?;
        found.push(Scenario { name: name.to_owned(), requests });
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}
