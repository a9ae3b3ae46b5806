//! The errors of `encoding/json` where a value doesn't fit the struct that it is read into.

use super::time::{self, MICROS, SECONDS};
use crate::{
    Value,
    quantity::Quantity,
    schema::{Kind, Schema},
};
use base64::{DecodeError, Engine, prelude::BASE64_STANDARD};

/// What Go says first of an object that doesn't fit its kind; `None` where it fits. Fields that nobody knows, and what is
/// missing, fit.
pub fn mismatch(value: &Value, schema: &Schema) -> Option<String> {
    said(value, schema, struct_name(schema))
}

/// Returns what Go says first of the metadata of a custom resource, which it decodes separately; `None` where it
/// fits.
pub fn object_meta_mismatch(metadata: &Value) -> Option<String> {
    said(metadata, &crate::schema::object_meta(), "ObjectMeta".to_owned())
}

fn said(value: &Value, schema: &Schema, owner: String) -> Option<String> {
    let mut walk = Walk { path: Vec::new(), owner, saved: None };
    walk.node(value, schema).err().or(walk.saved)
}

/// The kind of a value, in Go's words.
pub fn word(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

struct Walk<'a> {
    path: Vec<&'a str>,
    /// The struct that the innermost field is of.
    owner: String,
    /// The first error that doesn't end the decoding.
    saved: Option<String>,
}

impl<'a> Walk<'a> {
    fn text(&self, given: &str, wanted: &str) -> String {
        match self.path.is_empty() {
            true => format!("json: cannot unmarshal {given} into Go value of type {wanted}"),
            false => {
                let (owner, path) = (&self.owner, self.path.join("."));
                format!("json: cannot unmarshal {given} into Go struct field {owner}.{path} of type {wanted}")
            }
        }
    }

    fn save(&mut self, error: String) {
        self.saved.get_or_insert(error);
    }

    fn wrong(&mut self, value: &Value, schema: &Schema) {
        let text = self.text(word(value), &go_type(schema));
        self.save(text);
    }

    /// `Err` is what ends the decoding: the errors of types that decode themselves.
    fn node(&mut self, value: &'a Value, schema: &Schema) -> Result<(), String> {
        if value.is_null() {
            return Ok(());
        }
        if schema.int_or_string {
            return self.itself(value, schema);
        }
        match (schema.kind, value) {
            (None, _) => {}
            (Some(Kind::Object), _) if is_raw(schema) => {}
            (Some(Kind::Object), Value::Object(map)) => {
                for (name, field) in map {
                    self.field(name, field, schema)?;
                }
            }
            (Some(Kind::Array), Value::Array(list)) => {
                if let Some(items) = &schema.items {
                    list.iter().try_for_each(|item| self.node(item, items))?;
                }
            }
            (Some(Kind::String), Value::String(text)) => match schema.format.as_deref() {
                Some("date-time") => self.time(text, schema)?,
                Some("byte") => self.bytes(text),
                _ => {}
            },
            (Some(Kind::String), _) if schema.format.as_deref() == Some("date-time") => {
                return Err(self.text(word(value), "string"));
            }
            (Some(Kind::Integer), Value::Number(number)) => {
                let small = schema.format.as_deref() == Some("int32");
                let fits = number.as_i64().is_some_and(|n| !small || i32::try_from(n).is_ok());
                if !fits {
                    let text = self.text(&format!("number {number}"), &go_type(schema));
                    self.save(text);
                }
            }
            (Some(Kind::Number), Value::Number(_)) | (Some(Kind::Boolean), Value::Bool(_)) => {}
            (Some(_), _) => self.wrong(value, schema),
        }
        Ok(())
    }

    fn field(&mut self, name: &'a str, field: &'a Value, schema: &Schema) -> Result<(), String> {
        if let Some(child) = schema.properties.get(name) {
            let outer = std::mem::replace(&mut self.owner, struct_name(schema));
            let depth = self.path.len();
            self.path.extend(embedded_struct(&self.owner, name));
            self.path.push(name);
            let done = self.node(field, child);
            if done.is_ok() {
                self.path.truncate(depth);
                self.owner = outer;
            }
            return done;
        }
        match &schema.additional {
            Some(values) => self.node(field, values),
            None => Ok(()),
        }
    }

    /// Quantities, and numbers or strings.
    fn itself(&self, value: &Value, schema: &Schema) -> Result<(), String> {
        if schema.format.as_deref() == Some("quantity") {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            return text.trim().parse::<Quantity>().map(|_| ()).map_err(|error| error.to_string());
        }
        let fits = value.as_i64().is_some_and(|n| i32::try_from(n).is_ok());
        match value {
            Value::String(_) => Ok(()),
            Value::Number(_) if fits => Ok(()),
            Value::Number(number) => Err(self.text(&format!("number {number}"), "int32")),
            other => Err(self.text(word(other), "int32")),
        }
    }

    fn time(&self, text: &str, schema: &Schema) -> Result<(), String> {
        let micro = schema.go.as_deref() == Some("v1.MicroTime");
        time::parse_error(text, if micro { MICROS } else { SECONDS }).map_or(Ok(()), Err)
    }

    fn bytes(&mut self, text: &str) {
        let at = match BASE64_STANDARD.decode(text) {
            Ok(_) => return,
            // What follows the padding is told by itself.
            Err(DecodeError::InvalidByte(at, b'=')) if !text[at..].trim_start_matches('=').is_empty() => {
                at + text[at..].bytes().take_while(|c| *c == b'=').count()
            }
            Err(DecodeError::InvalidByte(at, _) | DecodeError::InvalidLastSymbol(at, _)) => at,
            Err(DecodeError::InvalidLength(length)) => length / 4 * 4,
            // What is missing is told where its group of four begins.
            Err(DecodeError::InvalidPadding) => text.find('=').unwrap_or(text.len() / 4 * 4),
        };
        self.save(format!("illegal base64 data at input byte {at}"));
    }
}

/// The struct through which another one has a field, which Go names on the way to it.
fn embedded_struct(owner: &str, field: &str) -> Option<&'static str> {
    match (owner, field) {
        ("Volume", field) if field != "name" => Some("VolumeSource"),
        ("EphemeralContainer", field) if field != "targetContainerName" => Some("EphemeralContainerCommon"),
        ("Probe", "exec" | "grpc" | "httpGet" | "tcpSocket") => Some("ProbeHandler"),
        (
            "ConfigMapEnvSource"
            | "ConfigMapKeySelector"
            | "ConfigMapProjection"
            | "ConfigMapVolumeSource"
            | "SecretEnvSource"
            | "SecretKeySelector"
            | "SecretProjection",
            "name",
        ) => Some("LocalObjectReference"),
        _ => None,
    }
}

/// Whether anything may stand there.
fn is_raw(schema: &Schema) -> bool {
    schema.properties.is_empty() && schema.additional.is_none()
}

fn struct_name(schema: &Schema) -> String {
    let name = schema.go.as_deref().unwrap_or_default();
    name.rsplit('.').next().unwrap_or_default().to_owned()
}

/// The Go type of a field.
pub(super) fn go_type(schema: &Schema) -> String {
    if let Some(name) = &schema.go {
        return name.to_string();
    }
    let of = |inner: &Option<std::sync::Arc<Schema>>| {
        inner.as_ref().map_or_else(|| "interface {}".to_owned(), |inner| go_type(inner))
    };
    match (schema.kind, schema.format.as_deref()) {
        (Some(Kind::String), Some("byte")) => "[]uint8".to_owned(),
        (Some(Kind::String), _) => "string".to_owned(),
        (Some(Kind::Integer), Some(format @ ("int32" | "int64"))) => format.to_owned(),
        (Some(Kind::Integer), _) => "int".to_owned(),
        (Some(Kind::Number), _) => "float64".to_owned(),
        (Some(Kind::Boolean), _) => "bool".to_owned(),
        (Some(Kind::Array), _) => format!("[]{}", of(&schema.items)),
        (Some(Kind::Object), _) => format!("map[string]{}", of(&schema.additional)),
        (None, _) => "interface {}".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn metadata_of_a_wrong_type_is_told_in_gos_words() {
        let rows = [
            (
                json!({"labels": {"a": 1}}),
                "json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string",
            ),
            (
                json!({"generation": 1.5}),
                "json: cannot unmarshal number 1.5 into Go struct field ObjectMeta.generation of type int64",
            ),
            (
                json!({"finalizers": "x"}),
                "json: cannot unmarshal string into Go struct field ObjectMeta.finalizers of type []string",
            ),
            (
                json!({"creationTimestamp": true}),
                "json: cannot unmarshal bool into Go struct field ObjectMeta.creationTimestamp of type string",
            ),
            (
                json!({"ownerReferences": [{"controller": "yes"}]}),
                "json: cannot unmarshal string into Go struct field OwnerReference.ownerReferences.controller of type bool",
            ),
        ];
        for (metadata, expected) in rows {
            assert_eq!(object_meta_mismatch(&metadata).as_deref(), Some(expected));
        }
        assert_eq!(object_meta_mismatch(&json!({"labels": null, "unknown": 1})), None);
    }
}
