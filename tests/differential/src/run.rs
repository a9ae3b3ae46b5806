//! Sending a scenario.

use crate::{Normal, Request, Scenario};
use anyhow::{Context, Result, bail};
use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use freehold_client::{Client, RawRequest, RawResponse};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::{collections::BTreeMap, time::Duration};

/// What came, normalized.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Answer {
    /// The request's name.
    pub name: String,
    /// The HTTP status code.
    pub status: u16,
    /// The headers that clients read, by name.
    pub headers: BTreeMap<String, Vec<String>>,
    /// JSON as it is, documents of a watch as a list, anything else as text.
    pub body: Value,
}

/// Headers that are compared.
const HEADERS: [&str; 9] = [
    "allow",
    "cache-control",
    "content-type",
    "etag",
    "location",
    "retry-after",
    "vary",
    "warning",
    "x-content-type-options",
];

/// How long the namespace's service account may take.
const PREPARED: Duration = Duration::from_secs(60);

/// Sends a scenario's requests and returns the answers that are compared. It creates the scenario's namespace first,
/// waits for what the controllers put there, and leaves it.
///
/// # Errors
/// A request without an answer, or a namespace that is not ready in time.
pub async fn run(client: &Client, scenario: &Scenario) -> Result<Vec<Answer>> {
    let namespace = format!("diff-{}", scenario.name);
    prepare(client, &namespace).await?;
    let mut normal = Normal::new();
    let mut known = BTreeMap::from([("ns".to_owned(), namespace)]);
    let mut answers = Vec::new();
    for request in &scenario.requests {
        let what = || format!("{}: {}", scenario.name, request.name);
        let answer = client.once(&built(request, &known).with_context(what)?).await.with_context(what)?;
        for (name, pointer) in &request.capture {
            let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
            let Some(found) = body.pointer(pointer) else {
                bail!("{}: no {pointer} in {} {body}", what(), answer.status)
            };
            known.insert(name.clone(), found.as_str().map_or_else(|| found.to_string(), str::to_owned));
        }
        if !request.prepare {
            answers.push(read(request, &answer, &mut normal));
        } else if !answer.status.is_success() {
            bail!("{}: {} {}", what(), answer.status, String::from_utf8_lossy(&answer.body));
        }
    }
    Ok(answers)
}

pub(crate) async fn prepare(client: &Client, namespace: &str) -> Result<()> {
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
    client.json(RawRequest::new(Method::POST, "/api/v1/namespaces").json(&object)).await?;
    let paths = ["serviceaccounts/default", "configmaps/kube-root-ca.crt"];
    let wait = async {
        for path in paths {
            let request = RawRequest::get(format!("/api/v1/namespaces/{namespace}/{path}"));
            while !client.once(&request).await?.status.is_success() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        Ok(())
    };
    tokio::time::timeout(PREPARED, wait).await.context("the namespace has no service account")?
}

fn filled(text: &str, known: &BTreeMap<String, String>) -> String {
    known.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("{{{name}}}"), value))
}

fn built(request: &Request, known: &BTreeMap<String, String>) -> Result<RawRequest> {
    let Some((method, path)) = request.send.split_once(' ') else { bail!("not a method and a path") };
    let mut built = RawRequest::new(method.parse()?, filled(path, known));
    let mut headers = HeaderMap::new();
    headers.insert("accept", HeaderValue::from_str(request.accepted())?);
    if let Some(body) = &request.body {
        let text = body.as_str().map_or_else(|| body.to_string(), str::to_owned);
        built.body = Bytes::from(filled(&text, known));
    }
    if let Some(bytes) = &request.base64 {
        built.body = BASE64_STANDARD.decode(bytes)?.into();
    }
    if request.body.is_some() || request.base64.is_some() {
        headers.insert("content-type", HeaderValue::from_str(request.content_type())?);
    }
    for (name, value) in &request.headers {
        headers.insert(HeaderName::try_from(name.as_str())?, HeaderValue::from_str(&filled(value, known))?);
    }
    built.headers = headers;
    Ok(built)
}

fn read(request: &Request, answer: &RawResponse, normal: &mut Normal) -> Answer {
    let mut headers = BTreeMap::new();
    for name in HEADERS {
        let values: Vec<String> = answer
            .headers
            .get_all(name)
            .iter()
            .map(|value| match name {
                // What it names is another document.
                "etag" => "<etag>".to_owned(),
                _ => normal.text(&String::from_utf8_lossy(value.as_bytes())),
            })
            .collect();
        if !values.is_empty() {
            headers.insert(name.to_owned(), values);
        }
    }
    let is_yaml = headers.get("content-type").is_some_and(|types| types[0] == "application/yaml");
    let mut body = if is_yaml { yaml(&answer.body, normal) } else { body(&answer.body, normal) };
    if !request.pick.is_empty() {
        let part = |at: &String| (at.clone(), body.pointer(at).cloned().unwrap_or_default());
        body = Value::Object(request.pick.iter().map(part).collect());
    }
    Answer { name: request.name.clone(), status: answer.status.as_u16(), headers, body }
}

/// What a YAML document says: how it is quoted is a matter of taste.
fn yaml(bytes: &[u8], normal: &mut Normal) -> Value {
    let Ok(mut value) = serde_saphyr::from_slice::<Value>(bytes) else { return body(bytes, normal) };
    normal.value(&mut value);
    json!({"yaml": value})
}

/// One JSON document as it is, several as a list, anything else as text.
fn body(bytes: &[u8], normal: &mut Normal) -> Value {
    let documents: Result<Vec<Value>, _> = serde_json::Deserializer::from_slice(bytes).into_iter().collect();
    let mut value = match documents {
        Ok(mut documents) if documents.len() == 1 => documents.remove(0),
        Ok(documents) if !documents.is_empty() => Value::Array(documents),
        _ => Value::String(String::from_utf8_lossy(bytes).into_owned()),
    };
    normal.value(&mut value);
    value
}
