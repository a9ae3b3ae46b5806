//! What lies in an etcd, through its HTTP gateway.

use anyhow::{Context, Result};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use std::{
    io::{Read, Write},
    net::TcpStream,
};

/// The keys that begin with a prefix, each with the length of its value.
pub(crate) fn range(url: &str, prefix: &str) -> Result<Vec<(String, usize)>> {
    // A prefix ends in a slash, and the next character is a zero.
    let end = format!("{}0", prefix.trim_end_matches('/'));
    let ask = json!({"key": STANDARD.encode(prefix), "range_end": STANDARD.encode(end)});
    let answer = post(url, &ask.to_string())?;
    let found = answer["kvs"].as_array().cloned().unwrap_or_default();
    let bytes = |text: &Value| STANDARD.decode(text.as_str().unwrap_or_default());
    found
        .iter()
        .map(|item| Ok((String::from_utf8(bytes(&item["key"])?)?, bytes(&item["value"])?.len())))
        .collect()
}

/// HTTP/1.0, so that the answer ends with the connection.
fn post(url: &str, body: &str) -> Result<Value> {
    let address = url.strip_prefix("http://").context("etcd is reached without TLS")?;
    let mut stream = TcpStream::connect(address)?;
    write!(
        stream,
        "POST /v3/kv/range HTTP/1.0\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (_, body) = answer.split_once("\r\n\r\n").context("etcd's answer has no body")?;
    Ok(serde_json::from_str(body)?)
}
