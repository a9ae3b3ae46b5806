use super::*;
use crate::schema::{default, parse};
use serde_json::json;

fn check(schema: Value, value: Value, old: Option<Value>) -> Vec<String> {
    let schema = parse(&json!({"type": "object", "properties": {"spec": schema}})).unwrap();
    let mut object = json!({ "spec": value });
    default(&mut object, &schema);
    let old = old.map(|old| json!({ "spec": old }));
    validate(&object, &schema, old.as_ref()).iter().map(ToString::to_string).collect()
}

#[test]
fn errors_have_the_words_of_kubernetes() {
    let rows: &[(Value, Value, &[&str])] = &[
        (
            json!({"type": "integer"}),
            json!("x"),
            &["spec: Invalid value: \"string\": spec in body must be of type integer: \"string\""],
        ),
        (json!({"type": "integer"}), json!(1.0), &[]),
        (
            json!({"type": "integer"}),
            json!(1.5),
            &[
                "spec: Invalid value: \"number\": spec in body must be of type integer: \"number\"",
                "<nil>: Invalid value: \"\": Checked value must be of type integer (default format) in spec",
            ],
        ),
        (
            json!({"type": "integer", "format": "int32"}),
            json!(true),
            &["spec: Invalid value: \"\": spec in body must be of type int32: \"\""],
        ),
        (
            json!({"type": "integer", "format": "int32"}),
            json!(3_000_000_000_u64),
            &["<nil>: Invalid value: \"\": Checked value must be of type integer with format int32 in spec"],
        ),
        (json!({"type": "string", "nullable": true}), json!(null), &[]),
        (
            json!({"type": "array", "items": {"type": "string"}}),
            json!([null]),
            &["spec[0]: Invalid value: \"null\": spec[0] in body must be of type string: \"null\""],
        ),
        (
            json!({"x-kubernetes-int-or-string": true}),
            json!(true),
            &["spec: Invalid value: \"boolean\": spec in body must be of type integer,string: \"boolean\""],
        ),
        (json!({"x-kubernetes-int-or-string": true}), json!("80%"), &[]),
        (
            json!({"type": "string", "enum": ["a", "b"]}),
            json!("x"),
            &["spec: Unsupported value: \"x\": supported values: \"a\", \"b\""],
        ),
        (
            json!({"type": "string", "pattern": "^a+$"}),
            json!("b"),
            &["spec: Invalid value: \"b\": spec in body should match '^a+$'"],
        ),
        (
            json!({"type": "string", "minLength": 1}),
            json!(""),
            &["spec: Invalid value: \"\": spec in body should be at least 1 chars long"],
        ),
        (
            json!({"type": "string", "maxLength": 2}),
            json!("äöü"),
            &["spec: Too long: may not be more than 2 bytes"],
        ),
        (
            json!({"type": "integer", "minimum": 1}),
            json!(0),
            &["spec: Invalid value: 0: spec in body should be greater than or equal to 1"],
        ),
        (
            json!({"type": "number", "maximum": 1.5, "exclusiveMaximum": true}),
            json!(1.5),
            &["spec: Invalid value: 1.5: spec in body should be less than 1.5"],
        ),
        (
            json!({"type": "integer", "multipleOf": 3}),
            json!(4),
            &["spec: Invalid value: 4: spec in body should be a multiple of 3"],
        ),
        (
            json!({"type": "array", "maxItems": 1, "items": {"type": "integer"}}),
            json!([1, 2]),
            &["spec: Too many: 2: must have at most 1 item"],
        ),
        (
            json!({"type": "array", "minItems": 1, "items": {"type": "integer"}}),
            json!([]),
            &["spec: Invalid value: 0: spec in body should have at least 1 items"],
        ),
        (
            json!({"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}}}),
            json!({}),
            &["spec.a: Required value"],
        ),
        (
            json!({"type": "object", "minProperties": 1}),
            json!({}),
            &["spec: Invalid value: 0: spec in body should have at least 1 properties"],
        ),
        (
            json!({"type": "string", "format": "date-time"}),
            json!("now"),
            &["spec: Invalid value: \"now\": spec in body must be of type date-time: \"now\""],
        ),
        (json!({"type": "string", "format": "unheard-of"}), json!("now"), &[]),
        (
            json!({"type": "object", "additionalProperties": {"type": "integer"}}),
            json!({"a": "x"}),
            &["spec.a: Invalid value: \"string\": spec.a in body must be of type integer: \"string\""],
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}),
            json!({}),
            &[
                "<nil>: Invalid value: \"\": \"spec\" must validate one and only one schema (oneOf). Found none valid",
                "spec.a: Required value",
            ],
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}),
            json!({"a": "1", "b": "2"}),
            &[
                "<nil>: Invalid value: \"\": \"spec\" must validate one and only one schema (oneOf). Found 2 valid alternatives",
            ],
        ),
        (
            json!({"type": "integer", "anyOf": [{"minimum": 5}, {"maximum": 1}]}),
            json!(3),
            &[
                "<nil>: Invalid value: \"\": \"spec\" must validate at least one schema (anyOf)",
                "spec: Invalid value: 3: spec in body should be greater than or equal to 5",
            ],
        ),
        (
            json!({"type": "integer", "allOf": [{"minimum": 5}, {"maximum": 9}]}),
            json!(3),
            &[
                "spec: Invalid value: 3: spec in body should be greater than or equal to 5",
                "<nil>: Invalid value: \"\": \"spec\" must validate all the schemas (allOf)",
            ],
        ),
        (
            json!({"type": "integer", "not": {"minimum": 5}}),
            json!(7),
            &["<nil>: Invalid value: \"\": \"spec\" must not validate the schema (not)"],
        ),
        (
            json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}),
            json!(["a", "b", "a"]),
            &["spec[2]: Duplicate value: \"a\""],
        ),
        (
            json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": {"type": "object", "properties": {"k": {"type": "string"}}}}),
            json!([{"k": "a"}, {"k": "a"}]),
            &["spec[1]: Duplicate value: {\"k\":\"a\"}"],
        ),
        (
            json!({"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}),
            json!({"kind": "A b", "metadata": {"name": "x/y"}}),
            &[
                "spec.apiVersion: Required value",
                "spec.kind: Invalid value: \"A b\": may have mixed case, but should otherwise match: a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')",
                "spec.metadata.name: Invalid value: \"x/y\": may not contain '/'",
            ],
        ),
    ];
    for (schema, value, want) in rows {
        assert_eq!(check(schema.clone(), value.clone(), None), *want, "{value} by {schema}");
    }
}

#[test]
fn what_was_wrong_and_did_not_change_is_let_through() {
    let item = json!({"type": "object", "properties": {"k": {"type": "string"}, "n": {"type": "integer", "minimum": 1}}});
    let map = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": item});
    let schema = json!({"type": "object", "properties": {
        "a": {"type": "integer", "minimum": 1}, "b": {"type": "integer", "minimum": 1},
        "map": map, "atomic": {"type": "array", "items": item}}});
    let old = json!({"a": 0, "b": 0, "map": [{"k": "x", "n": 0}], "atomic": [{"k": "x", "n": 0}]});
    assert!(check(schema.clone(), old.clone(), Some(old.clone())).is_empty());
    let new = json!({"a": 0, "b": -1, "map": [{"k": "y", "n": 0}, {"k": "x", "n": 0}], "atomic": [{"k": "x", "n": 0}, {"k": "z"}]});
    assert_eq!(
        check(schema, new, Some(old)),
        [
            "spec.atomic[0].n: Invalid value: 0: spec.atomic[0].n in body should be greater than or equal to 1",
            "spec.b: Invalid value: -1: spec.b in body should be greater than or equal to 1",
            "spec.map[0].n: Invalid value: 0: spec.map[0].n in body should be greater than or equal to 1",
        ]
    );
}

#[test]
fn many_wrong_values_under_a_long_name_take_little() {
    // Each error names its path three times: fifty thousand of them under this name would be 30 GB.
    let name = "n".repeat(200_000);
    let schema =
        json!({"type": "object", "additionalProperties": {"type": "array", "items": {"type": "string"}}});
    let errors = check(schema, json!({name: vec![1; 50_000]}), None);
    assert!(!errors.is_empty() && errors.len() < 20, "{}", errors.len());
}

#[test]
fn as_many_wrong_values_as_fit_are_told_each_once() {
    let schema = json!({"type": "array", "items": {"type": "string"}});
    let errors = check(schema, json!(vec![1; 5_000]), None);
    assert_eq!(errors.len(), 5_000);
}
