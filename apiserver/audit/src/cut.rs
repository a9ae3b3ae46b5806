//! Bounded event size: client-chosen fields are truncated, so that no event displaces many others.

use bytes::Bytes;
use serde_json::Value;

/// Bytes of an event that is left as it is.
const SMALL: usize = 2 << 10;
/// Bytes of a text in a larger one.
const TEXT: usize = 256;
/// Entries of a list or map in a larger one.
const ENTRIES: usize = 32;
/// What stands behind a text that was cut, in kube-apiserver's words.
const CUT: &str = "...TRUNCATED";

/// A text of at most so many bytes, and a mark where it was longer.
pub(crate) fn text(text: &str, most: usize) -> String {
    match text.char_indices().find(|(at, c)| at + c.len_utf8() > most) {
        Some((end, _)) => format!("{}{CUT}", &text[..end]),
        None => text.to_owned(),
    }
}

/// An event, with its texts and lists cut where it is large.
pub(crate) fn event(json: Bytes) -> Bytes {
    if json.len() <= SMALL {
        return json;
    }
    let Ok(mut event) = serde_json::from_slice::<Value>(&json) else { return json };
    shorten(&mut event);
    serde_json::to_vec(&event).map_or(json, Bytes::from)
}

fn shorten(value: &mut Value) {
    match value {
        Value::String(own) if own.len() > TEXT => *own = text(own, TEXT),
        Value::Array(items) => {
            items.truncate(ENTRIES);
            items.iter_mut().for_each(shorten);
        }
        Value::Object(fields) => {
            let over: Vec<String> = fields.keys().skip(ENTRIES).cloned().collect();
            over.iter().for_each(|key| drop(fields.remove(key)));
            let long: Vec<String> = fields.keys().filter(|key| key.len() > TEXT).cloned().collect();
            for key in long {
                if let Some(field) = fields.remove(&key) {
                    fields.insert(text(&key, TEXT), field);
                }
            }
            fields.values_mut().for_each(shorten);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_large_event_becomes_a_small_one_and_a_small_one_stays() {
        let long = "ü".repeat(5_000);
        let small = json!({"requestURI": "/api", "user": {"groups": ["a"]}});
        let bytes = Bytes::from(small.to_string());
        assert_eq!(event(bytes.clone()), bytes);
        let groups: Vec<String> = (0..1_000).map(|nth| format!("{nth}{long}")).collect();
        let extra: serde_json::Map<String, Value> =
            (0..1_000).map(|nth| (format!("{nth}{long}"), json!([long]))).collect();
        let large = json!({"requestURI": long, "objectRef": {"name": long}, "user": {"groups": groups, "extra": extra}});
        let cut = event(large.to_string().into());
        assert!(cut.len() < 32 << 10, "{}", cut.len());
        let cut: Value = serde_json::from_slice(&cut).unwrap();
        let name = cut["objectRef"]["name"].as_str().unwrap();
        assert!(name.ends_with("ü...TRUNCATED") && name.len() <= TEXT + CUT.len(), "{name}");
    }
}
