//! `ConversionReview`: the question, and what of its answer is believed.

use bytes::Bytes;
use freehold_machinery::{Map, Value, meta, names};
use serde_json::json;
use uuid::Uuid;

/// A question on its way.
pub(super) struct Review {
    uid: String,
    version: &'static str,
    /// The JSON.
    pub(super) body: Bytes,
}

impl Review {
    /// For a webhook's configuration (`spec.conversion.webhook` of a CRD).
    ///
    /// # Errors
    /// It accepts no version of reviews that is known.
    pub(super) fn new(webhook: &Value, objects: &[Value], to: &str) -> Result<Self, String> {
        let accepted = webhook["conversionReviewVersions"].as_array().into_iter().flatten();
        let known = |version: &str| ["v1", "v1beta1"].into_iter().find(|known| *known == version);
        let version = accepted.filter_map(Value::as_str).find_map(known);
        let version = version.ok_or("no supported conversion review versions")?;
        let uid = Uuid::new_v4().to_string();
        let body = json!({
            "kind": "ConversionReview",
            "apiVersion": format!("apiextensions.k8s.io/{version}"),
            "request": {"uid": uid, "desiredAPIVersion": to, "objects": objects},
        });
        Ok(Self { uid, version, body: body.to_string().into() })
    }

    /// The converted objects, with the metadata of those that were sent. Errors go on behind `conversion webhook for
    /// KIND`.
    pub(super) fn read(
        &self,
        answer: &[u8],
        sent: Vec<Value>,
        to: &str,
        single: bool,
    ) -> Result<Vec<Value>, String> {
        let converted = self.converted(answer).map_err(|why| format!("failed: {why}"))?;
        if converted.len() != sent.len() {
            return Err(format!("returned {} objects, expected {}", converted.len(), sent.len()));
        }
        let pairs = sent.into_iter().zip(converted).enumerate();
        let checked = pairs.map(|(index, (original, converted))| {
            let what = match single {
                true => "returned invalid object".to_owned(),
                false => format!("returned invalid converted object at index {index}"),
            };
            check(&original, &converted, to).map_err(|why| match why {
                Wrong::Type(why) if single => format!("{what} at index 0: {why}"),
                Wrong::Type(why) | Wrong::Identity(why) => format!("{what}: {why}"),
            })?;
            restored(original, converted).map_err(|why| match single {
                true => format!("returned invalid metadata: {why}"),
                false => format!("returned invalid metadata in object at index {index}: {why}"),
            })
        });
        checked.collect()
    }

    fn converted(&self, answer: &[u8]) -> Result<Vec<Value>, String> {
        let mut body: Value = serde_json::from_slice(answer).map_err(|error| error.to_string())?;
        let strict = self.version == "v1";
        let text = |field: &str| body[field].as_str().unwrap_or_default();
        if strict && (text("apiVersion"), text("kind")) != ("apiextensions.k8s.io/v1", "ConversionReview") {
            let (got, kind) = (text("apiVersion"), text("kind"));
            let got = if got.is_empty() { "/" } else { got };
            return Err(format!(
                "expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got {got}, Kind={kind}"
            ));
        }
        let response = &mut body["response"];
        if !response.is_object() {
            return Err("no response provided".to_owned());
        }
        let uid = response["uid"].as_str().unwrap_or_default();
        if strict && uid != self.uid {
            return Err(format!("expected response.uid={:?}, got {uid:?}", self.uid));
        }
        let result = &response["result"];
        if result["status"] != "Success" {
            return Err(match result["message"].as_str().filter(|message| !message.is_empty()) {
                Some(message) => message.to_owned(),
                None => {
                    let status = result["status"].as_str().unwrap_or_default();
                    format!("response.result.status was '{status}', not 'Success'")
                }
            });
        }
        match response["convertedObjects"].take() {
            Value::Array(objects) => Ok(objects),
            _ => Ok(Vec::new()),
        }
    }
}

/// What is wrong with a converted object.
enum Wrong {
    Type(String),
    Identity(String),
}

fn check(original: &Value, converted: &Value, to: &str) -> Result<(), Wrong> {
    let text = |value: &Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
    let version = text(converted, "apiVersion");
    if version != to {
        return Err(Wrong::Type(format!("invalid groupVersion (expected {to}, received {version})")));
    }
    let (wanted, kind) = (text(original, "kind"), text(converted, "kind"));
    if wanted != kind {
        return Err(Wrong::Type(format!("invalid kind (expected {wanted}, received {kind})")));
    }
    for (field, called) in [("name", "name"), ("namespace", "namespace"), ("uid", "UID")] {
        let (wanted, got) = (meta::text(original, field), meta::text(converted, field));
        if wanted != got {
            return Err(Wrong::Identity(format!("must have the same {called}: {wanted} != {got}")));
        }
    }
    Ok(())
}

/// The converted object with the metadata of the original, but for labels and annotations.
fn restored(mut original: Value, mut converted: Value) -> Result<Value, String> {
    let Some(map) = converted.as_object_mut() else { return Err("it is no object".to_owned()) };
    let given = match map.remove("metadata") {
        None => return Err("missing metadata in converted object".to_owned()),
        Some(Value::Object(given)) => given,
        Some(_) => return Err("invalid metadata in converted object".to_owned()),
    };
    let mut metadata = match original["metadata"].take() {
        Value::Object(metadata) => metadata,
        _ => Map::new(),
    };
    for field in ["labels", "annotations"] {
        match given.get(field) {
            None | Some(Value::Null) => drop(metadata.remove(field)),
            Some(value) => {
                check_texts(field, value)?;
                metadata.insert(field.to_owned(), value.clone());
            }
        }
    }
    map.insert("metadata".to_owned(), Value::Object(metadata));
    Ok(converted)
}

fn check_texts(field: &str, value: &Value) -> Result<(), String> {
    let Some(map) = value.as_object() else {
        return Err(format!("invalid metadata.{field} in converted object"));
    };
    if let Some((key, _)) = map.iter().find(|(_, value)| !value.is_string()) {
        return Err(format!("metadata.{field}[{key}] must be a string in converted object"));
    }
    let metadata = Map::from_iter([(field.to_owned(), value.clone())]);
    let errors = names::validate_embedded_metadata(&metadata, "metadata");
    match errors.first() {
        None => Ok(()),
        Some(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(version: &str, extra: Value) -> Value {
        let mut object = json!({"apiVersion": format!("example.com/{version}"), "kind": "Shop",
            "metadata": {"name": "a", "namespace": "n", "uid": "u", "generation": 3, "labels": {"x": "y"}}});
        for (key, value) in extra.as_object().into_iter().flatten() {
            object[key] = value.clone();
        }
        object
    }

    fn read(converted: Value, single: bool) -> Result<Vec<Value>, String> {
        let sent = vec![object("v1", json!({}))];
        let webhook = json!({"conversionReviewVersions": ["v7", "v1"]});
        let review = Review::new(&webhook, &sent, "example.com/v2").unwrap();
        let answer = json!({"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1", "response": {
            "uid": review.uid, "result": {"status": "Success"}, "convertedObjects": converted}});
        review.read(answer.to_string().as_bytes(), sent, "example.com/v2", single)
    }

    #[test]
    fn of_the_metadata_only_labels_and_annotations_are_taken() {
        let mut converted = object("v2", json!({"spec": {"a": 1}}));
        converted["metadata"]["generation"] = 99.into();
        converted["metadata"]["labels"] = json!({"z": "1"});
        let read = read(json!([converted]), true).unwrap();
        assert_eq!(read[0]["metadata"]["generation"], 3);
        assert_eq!(read[0]["metadata"]["labels"], json!({"z": "1"}));
        assert_eq!(read[0]["spec"], json!({"a": 1}));
    }

    #[test]
    fn an_answer_that_is_not_the_object_is_refused() {
        let mut renamed = object("v2", json!({}));
        renamed["metadata"]["name"] = "b".into();
        let mut labelled = object("v2", json!({}));
        labelled["metadata"]["labels"] = json!({"z": 1});
        let rows = [
            (json!([]), "returned 0 objects, expected 1"),
            (
                json!([object("v3", json!({}))]),
                "returned invalid object at index 0: invalid groupVersion (expected example.com/v2, received example.com/v3)",
            ),
            (
                json!([object("v2", json!({"kind": "Other"}))]),
                "returned invalid object at index 0: invalid kind (expected Shop, received Other)",
            ),
            (json!([renamed]), "returned invalid object: must have the same name: a != b"),
            (
                json!([labelled]),
                "returned invalid metadata: metadata.labels[z] must be a string in converted object",
            ),
        ];
        for (converted, why) in rows {
            assert_eq!(read(converted, true).unwrap_err(), why);
        }
    }

    #[test]
    fn a_failure_is_passed_on_in_the_words_of_the_webhook() {
        let sent = vec![object("v1", json!({}))];
        let review =
            Review::new(&json!({"conversionReviewVersions": ["v1"]}), &sent, "example.com/v2").unwrap();
        let answer = json!({"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1", "response": {
            "uid": review.uid, "result": {"status": "Failed", "message": "no way"}}});
        let said = review.read(answer.to_string().as_bytes(), sent, "example.com/v2", true).unwrap_err();
        assert_eq!(said, "failed: no way");
    }
}
