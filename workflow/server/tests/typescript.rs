//! The TypeScript client, made from the OpenAPI document: `UPDATE=1 cargo test -p freehold-workflow-server typescript` writes it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::Value;
use std::fmt::Write as _;
use std::path::Path;

/// What stands before types and operations: how requests are sent.
const HEAD: &str = r"// Made from /openapi.json of `freehold workflow server` by its test `typescript`. Do not edit.

/** Where the server is, with the caller's token. */
export interface Connection {
  /** `https://workflow.example`; empty for the page's own server. */
  url?: string;
  token?: string;
  signal?: AbortSignal;
  fetch?: typeof fetch;
}

/** An answer other than 2xx. */
export class Refused extends Error {
  constructor(
    readonly code: number,
    message: string,
    readonly reason?: string,
  ) {
    super(message);
  }
}

type Query = Record<string, string | number | boolean | undefined>;

async function send(to: Connection, method: string, path: string, query: Query, body?: unknown): Promise<Response> {
  const given = Object.entries(query).flatMap(([name, value]) => (value === undefined ? [] : [[name, String(value)]]));
  const search = given.length ? `?${new URLSearchParams(given)}` : '';
  const headers: Record<string, string> = {};
  if (to.token) headers['authorization'] = `Bearer ${to.token}`;
  if (body !== undefined) headers['content-type'] = 'application/json';
  const init: RequestInit = { method, headers, credentials: 'same-origin' };
  if (body !== undefined) init.body = JSON.stringify(body);
  if (to.signal) init.signal = to.signal;
  const answer = await (to.fetch ?? fetch)((to.url ?? '') + path + search, init);
  if (answer.ok) return answer;
  const status = (await answer.json().catch(() => ({}))) as Partial<Status>;
  throw new Refused(answer.status, status.message ?? answer.statusText, status.reason ?? undefined);
}

const part = encodeURIComponent;
";

/// The type of a schema.
fn type_of(schema: &Value) -> String {
    if let Some(reference) = schema["$ref"].as_str() {
        return reference.rsplit('/').next().unwrap().to_owned();
    }
    if let Some(values) = schema["enum"].as_array() {
        let texts = values.iter().map(|value| format!("'{}'", value.as_str().unwrap()));
        return texts.collect::<Vec<_>>().join(" | ");
    }
    match &schema["type"] {
        Value::Array(types) => {
            types.iter().map(|one| name_of(one.as_str().unwrap())).collect::<Vec<_>>().join(" | ")
        }
        Value::String(one) if one == "array" => format!("{}[]", type_of(&schema["items"])),
        Value::String(one) => name_of(one).to_owned(),
        other => panic!("{other}"),
    }
}

fn name_of(json: &str) -> &str {
    match json {
        "integer" => "number",
        "object" => "Record<string, unknown>",
        other => other,
    }
}

fn interface(name: &str, schema: &Value) -> String {
    let Some(properties) = schema["properties"].as_object() else {
        return format!("export type {name} = {};\n", type_of(schema));
    };
    let required =
        |field: &str| schema["required"].as_array().is_some_and(|of| of.iter().any(|one| one == field));
    let mut text = format!("export interface {name} {{\n");
    for (field, of) in properties {
        let mark = if required(field) { "" } else { "?" };
        let null = if mark.is_empty() || of["type"].is_array() { "" } else { " | null" };
        writeln!(text, "  {field}{mark}: {}{null};", type_of(of)).unwrap();
    }
    text + "}\n"
}

/// A function for an operation: parts of the path first, then the body, then the query.
fn operation(path: &str, method: &str, of: &Value) -> String {
    let parameters = |place: &str| {
        let all = of["parameters"].as_array().unwrap().iter().filter(|one| one["in"] == place);
        all.map(|one| (one["name"].as_str().unwrap().to_owned(), type_of(&one["schema"]))).collect::<Vec<_>>()
    };
    let mut arguments = vec!["to: Connection".to_owned()];
    let mut url = path.to_owned();
    for (name, kind) in parameters("path") {
        let camel = camel(&name);
        arguments.push(format!("{camel}: {kind}"));
        url = url.replace(&format!("{{{name}}}"), &format!("${{part({camel})}}"));
    }
    let body = &of["requestBody"]["content"]["application/json"]["schema"];
    if !body.is_null() {
        arguments.push(format!("body: {}", type_of(body)));
    }
    let query = parameters("query");
    if !query.is_empty() {
        let fields: Vec<String> = query.iter().map(|(name, kind)| format!("{name}?: {kind}")).collect();
        arguments.push(format!("query: {{ {} }} = {{}}", fields.join("; ")));
    }
    let content = &of["responses"]["2XX"]["content"];
    let (answer, read) =
        match content.as_object().and_then(|content| content.keys().next()).map(String::as_str) {
            None => ("void".to_owned(), ""),
            Some("application/json") => (type_of(&content["application/json"]["schema"]), "json"),
            Some(_) => ("Response".to_owned(), "stream"),
        };
    let given = if query.is_empty() { "{}" } else { "query" };
    let rest = if body.is_null() { "" } else { ", body" };
    let sent = format!("send(to, '{}', `{url}`, {given}{rest})", method.to_uppercase());
    let work = match read {
        "" => format!("  await {sent};"),
        "json" => format!("  return (await (await {sent}).json()) as {answer};"),
        _ => format!("  return await {sent};"),
    };
    format!(
        "/** {} */\nexport async function {}({}): Promise<{answer}> {{\n{work}\n}}\n",
        of["summary"].as_str().unwrap(),
        of["operationId"].as_str().unwrap(),
        arguments.join(", "),
    )
}

fn camel(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap().to_owned();
    words.fold(first, |text, word| text + &word[..1].to_uppercase() + &word[1..])
}

fn client() -> String {
    let document = freehold_workflow_server::openapi();
    let mut parts = vec![HEAD.to_owned()];
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        parts.push(interface(name, schema));
    }
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, of) in item.as_object().unwrap() {
            parts.push(operation(path, method, of));
        }
    }
    parts.join("\n")
}

#[test]
fn the_typescript_client_has_every_operation_of_the_document() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients/typescript/workflow.ts");
    let client = client();
    if std::env::var_os("UPDATE").is_some() {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, &client).unwrap();
    }
    let written = std::fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(written, client, "run it with UPDATE=1");
}
