//! Parameters, typed by a schema.

use freehold_machinery::schema::{self, Schema};
use freehold_machinery::{Map, Value};
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The schema of a Template's parameters.
#[derive(Clone, Debug)]
pub struct Parameters(Option<Compiled>);

#[derive(Clone, Debug)]
struct Compiled {
    schema: Arc<Schema>,
    /// Names of parameters; `None` where any may be given.
    names: Option<BTreeSet<String>>,
}

/// Why parameters cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParametersError(String);

impl Parameters {
    /// Reads a schema. An empty one allows no parameter.
    ///
    /// # Errors
    /// What is wrong with the schema.
    pub fn new(schema: &Map) -> Result<Self, ParametersError> {
        if schema.is_empty() {
            return Ok(Self(None));
        }
        let mut schema = Value::Object(schema.clone());
        if schema.get("type").is_none() {
            schema["type"] = "object".into();
        }
        let problems = schema::structural::check(&schema, "spec.parameters");
        if let Some(problem) = problems.first() {
            return Err(ParametersError(problem.to_string()));
        }
        let names = schema["properties"].as_object().map(|properties| properties.keys().cloned().collect());
        let is_free = schema["x-kubernetes-preserve-unknown-fields"] == true
            || !schema["additionalProperties"].is_null();
        match schema::parse(&schema) {
            Ok(schema) => Ok(Self(Some(Compiled {
                schema,
                names: if is_free { None } else { Some(names.unwrap_or_default()) },
            }))),
            Err(errors) => {
                let error = errors.first().map(ToString::to_string).unwrap_or_default();
                Err(ParametersError(format!("spec.parameters: {error}")))
            }
        }
    }

    /// Fills in defaults, and checks.
    ///
    /// # Errors
    /// Parameters that the schema does not name, or values that it does not allow.
    pub fn apply(&self, given: &Map) -> Result<Value, ParametersError> {
        let Some(Compiled { schema, names }) = &self.0 else {
            return match given.keys().next() {
                Some(name) => {
                    Err(ParametersError(format!("parameters.{name}: the template has no such parameter")))
                }
                None => Ok(json!({})),
            };
        };
        let mut value = Value::Object(given.clone());
        let unknown = |names: &BTreeSet<String>| given.keys().find(|name| !names.contains(*name)).cloned();
        if let Some(name) = names.as_ref().and_then(unknown) {
            return Err(ParametersError(format!("parameters.{name}: the template has no such parameter")));
        }
        schema::default(&mut value, schema);
        let errors = schema::validate(&value, schema, None);
        match errors.first() {
            Some(error) => Err(ParametersError(format!("parameters.{error}"))),
            None => Ok(value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(value: Value) -> Map {
        value.as_object().cloned().unwrap()
    }

    #[test]
    fn parameters_are_typed_and_have_defaults() {
        let schema = json!({
            "type": "object", "required": ["name"],
            "properties": {
                "name": {"type": "string", "pattern": "^[a-z]+$"},
                "size": {"type": "integer", "minimum": 1, "default": 2},
            },
        });
        let parameters = Parameters::new(&map(schema)).unwrap();
        assert_eq!(parameters.apply(&map(json!({"name": "a"}))).unwrap(), json!({"name": "a", "size": 2}));
        for wrong in [
            json!({}),
            json!({"name": "A"}),
            json!({"name": "a", "size": "3"}),
            json!({"name": "a", "size": 0}),
            json!({"name": "a", "other": 1}),
        ] {
            let error = parameters.apply(&map(wrong.clone())).unwrap_err();
            assert!(error.to_string().starts_with("parameters."), "{wrong}: {error}");
        }
    }

    #[test]
    fn without_a_schema_there_are_no_parameters() {
        let parameters = Parameters::new(&Map::new()).unwrap();
        assert_eq!(parameters.apply(&Map::new()).unwrap(), json!({}));
        assert!(parameters.apply(&map(json!({"a": 1}))).is_err());
        assert!(
            Parameters::new(&map(json!({"type": "object", "properties": {"a": {"type": "nonsense"}}})))
                .is_err()
        );
    }
}
