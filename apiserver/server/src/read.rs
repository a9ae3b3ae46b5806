//! Request bodies: read within a limit and decoded.

use crate::{negotiate::Format, yaml};
use bytes::{Bytes, BytesMut};
use freehold_apiserver_registry::Body;
use freehold_machinery::{Map, Status, Value, go, strict};
use http_body::Body as _;
use http_body_util::BodyExt;
use hyper::body::Incoming;

/// How many times as much as is taken is read of a body that is too large, so that its client, which reads nothing before
/// it has sent everything, sees the refusal and no broken connection.
const DRAINED: u64 = 4;

/// Reads a whole body. 413 beyond `limit` bytes, 400 where the client goes away in the middle.
pub(crate) async fn whole(mut body: Incoming, limit: usize) -> Result<Bytes, Status> {
    if body.size_hint().lower() > limit as u64 {
        drain(body, limit).await;
        return Err(Status::too_large(limit));
    }
    let mut first: Option<Bytes> = None;
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| Status::bad_request(format!("the body can't be read: {e}")))?;
        let Ok(data) = frame.into_data() else { continue };
        if first.as_ref().map_or(0, Bytes::len) + all.len() + data.len() > limit {
            drop((first, all));
            drain(body, limit).await;
            return Err(Status::too_large(limit));
        }
        // Most bodies come in one frame, which then needs no copy.
        match (first.take(), all.is_empty()) {
            (None, true) => first = Some(data),
            (before, _) => {
                all.extend_from_slice(&before.unwrap_or_default());
                all.extend_from_slice(&data);
            }
        }
    }
    Ok(first.unwrap_or_else(|| all.freeze()))
}

/// Reads the rest of a body for nothing, unless that is far too much.
async fn drain(mut body: Incoming, limit: usize) {
    let mut left = DRAINED * limit as u64;
    if body.size_hint().lower() > left {
        return;
    }
    while let Some(Ok(frame)) = body.frame().await {
        left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len) as u64);
        if left == 0 {
            return;
        }
    }
}

/// Decodes a body; equal keys are noted, not refused. The error is for people.
pub(crate) fn decode(bytes: &[u8], format: Format) -> Result<Body, String> {
    if format == Format::Protobuf {
        let value = freehold_machinery_protobuf::decode(bytes).map_err(|error| error.to_string())?;
        return Ok(Body::from(value));
    }
    let (value, duplicates) = match format {
        Format::Json => strict::decode_json(bytes)?,
        // What looks like JSON mostly is.
        _ if bytes.trim_ascii_start().starts_with(b"{") => {
            strict::decode_json(bytes).or_else(|_| yaml::decode(bytes))?
        }
        _ => yaml::decode(bytes)?,
    };
    Ok(Body { duplicates, bytes: bytes.len(), ..Body::from(value) })
}

/// Decodes a body that should be an object, in Kubernetes' words where it says nothing of its version and kind. `null` is
/// an object without anything.
pub(crate) fn object(bytes: &[u8], format: Format) -> Result<Body, String> {
    const HEAD: &str = r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
    let unclear = |why: String| format!("couldn't get version/kind; json parse error: {why}");
    let mut body = decode(bytes, format).map_err(|why| match format {
        Format::Json => unclear(why),
        Format::Yaml => why.trim_start_matches("error converting YAML to JSON: ").to_owned(),
        Format::Protobuf => why,
    })?;
    if body.value.is_null() {
        body.value = Value::Object(Map::new());
    }
    let Value::Object(map) = &body.value else {
        let given = go::word(&body.value);
        return Err(unclear(format!("json: cannot unmarshal {given} into Go value of type {HEAD}")));
    };
    for field in ["apiVersion", "kind"] {
        if let Some(given) = map.get(field).filter(|given| !given.is_string() && !given.is_null()) {
            let given = go::word(given);
            return Err(unclear(format!(
                "json: cannot unmarshal {given} into Go struct field .{field} of type string"
            )));
        }
    }
    Ok(body)
}

/// Bytes of a body that a message shows.
const SHOWN: usize = 30;

/// What to say of a body that is no object of a kind, in Kubernetes' words.
pub(crate) fn unrecognized(kind: &str, why: &str, body: &[u8]) -> String {
    let shown = &body[..body.len().min(SHOWN)];
    let rest = if body.len() > SHOWN { " ..." } else { "" };
    let summary = match body {
        [] => "<empty>".to_owned(),
        [b'{', ..] => String::from_utf8_lossy(shown).into_owned(),
        _ => shown.iter().map(|b| format!("{b:02x}")).collect(),
    };
    format!("the object provided is unrecognized (must be of type {kind}): {why} ({summary}{rest})")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn yaml_reads_as_kubernetes_reads_it() {
        let body = decode(b"a: &x {m: 0644}\nb: *x\nc: [yes, 'yes', 1e3, ~]\n", Format::Yaml).unwrap();
        assert_eq!(body.value["a"], json!({"m": 420}));
        assert_eq!(body.value["b"], json!({"m": 420}));
        assert_eq!((&body.value["c"][0], &body.value["c"][1]), (&json!(true), &json!("yes")));
        assert!(body.value["c"][3].is_null());
        let json = decode(br#"{"a": 1, "a": 2}"#, Format::Yaml).unwrap();
        assert_eq!((json.value["a"].as_i64(), json.duplicates.len()), (Some(2), 1));
    }

    #[test]
    fn of_equal_keys_in_yaml_the_last_wins_and_the_line_is_told() {
        let body = decode(b"\na: 1\nb:\n  c: 1\n  c: 2\n", Format::Yaml).unwrap();
        assert_eq!(body.value, json!({"a": 1, "b": {"c": 2}}));
        assert_eq!(body.duplicates.len(), 1);
        assert!(
            body.duplicates[0].ends_with("line 5: key \"c\" already set in map"),
            "{:?}",
            body.duplicates
        );
    }

    #[test]
    fn an_alias_bomb_is_refused() {
        let mut bomb = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n");
        for level in 1..12 {
            let items = vec![format!("*a{}", level - 1); 10].join(",");
            bomb.push_str(&format!("a{level}: &a{level} [{items}]\n"));
        }
        assert!(decode(bomb.as_bytes(), Format::Yaml).is_err());
        assert!(decode(b"a: [\n", Format::Yaml).is_err());
        assert!(decode("[".repeat(100_000).as_bytes(), Format::Yaml).is_err());
    }

    #[test]
    fn what_is_no_object_is_summed_up() {
        let text = unrecognized("Pod", "no", b"{\"a\": \"0123456789012345678901234567890\"}");
        assert_eq!(
            text,
            "the object provided is unrecognized (must be of type Pod): no ({\"a\": \"01234567890123456789012 ...)"
        );
        assert!(unrecognized("Pod", "no", b"").ends_with("(<empty>)"));
        assert!(unrecognized("Pod", "no", b"ab").ends_with("(6162)"));
    }
}
