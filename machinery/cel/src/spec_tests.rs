//! The conformance tests of CEL itself: `tests/simple` of the Go module `cel.dev/expr`, which `tools/get cel-spec` writes
//! to `.tools/cel-spec.jsonl`. What does not apply is excluded here, each with its reason.

use crate::{
    Budget, Computed, Program, Variable, VariableType,
    value::{elements, equal},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use cel::common::{
    types::{CelBool, CelBytes, CelDouble, CelInt, CelList, CelMap, CelMapKey, CelNull, CelString, CelUInt},
    value::Val,
};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};

/// Files whose libraries Kubernetes' environment does not have.
const FILES: &[(&str, &str)] = &[
    ("bindings_ext", "cel.bind is not in Kubernetes' environment"),
    ("block_ext", "cel.block is not in Kubernetes' environment"),
    ("encoders_ext", "base64 is not in Kubernetes' environment"),
    ("math_ext", "math is not in Kubernetes' environment"),
    ("proto2", "values of Kubernetes are no protobuf messages"),
    ("proto2_ext", "values of Kubernetes are no protobuf messages"),
    ("proto3", "values of Kubernetes are no protobuf messages"),
    ("enums", "values of Kubernetes are no protobuf messages"),
    ("wrappers", "values of Kubernetes are no protobuf messages"),
    ("dynamic", "values of Kubernetes are no protobuf messages"),
    ("unknowns", "everything is known when an expression runs"),
];

/// What an expression or an expected value has that does not apply.
const PARTS: &[(&str, &str)] = &[
    ("TestAllTypes", "values of Kubernetes are no protobuf messages"),
    ("google.protobuf", "values of Kubernetes are no protobuf messages"),
    ("GlobalEnum", "values of Kubernetes are no protobuf messages"),
    ("existsOne", "is no macro of the cel-go that Kubernetes has"),
    ("`", "quoted names are not enabled in Kubernetes"),
];

const FORMATS_OTHERWISE: &str =
    "Kubernetes has cel-go's first way to format, in which numbers and lists look otherwise";

/// Tests, by the beginning of their file and name.
const TESTS: &[(&str, &str)] = &[
    ("string_ext/format/scientific notation formatting clause", FORMATS_OTHERWISE),
    ("string_ext/format/default precision for scientific", FORMATS_OTHERWISE),
    ("string_ext/format/positive infinity support for scientific", FORMATS_OTHERWISE),
    ("string_ext/format/negative infinity support for scientific", FORMATS_OTHERWISE),
    ("string_ext/format/NaN support for decimal", FORMATS_OTHERWISE),
    ("string_ext/format/positive infinity support for decimal", FORMATS_OTHERWISE),
    ("string_ext/format/negative infinity support for decimal", FORMATS_OTHERWISE),
    ("string_ext/format/positive infinity support for fixed", FORMATS_OTHERWISE),
    ("string_ext/format/negative infinity support for fixed", FORMATS_OTHERWISE),
    ("string_ext/format/list support for string", FORMATS_OTHERWISE),
    ("string_ext/format/map support", FORMATS_OTHERWISE),
    ("string_ext/format/dyntype support for scientific", FORMATS_OTHERWISE),
    ("string_ext/format/dyntype NaN", FORMATS_OTHERWISE),
    ("string_ext/format/dyntype support for lists", FORMATS_OTHERWISE),
    ("string_ext/format/dyntype support for maps", FORMATS_OTHERWISE),
    (
        "parse/receiver_function_names",
        "names a function that nothing declares: Kubernetes checks expressions",
    ),
    ("string_ext/value_errors/indexof_out_of_range", "cel-go finds nothing behind the end"),
    ("string_ext/value_errors/lastindexof_out_of_range", "cel-go finds nothing behind the end"),
    ("fields/qualified_identifier_resolution/map_value_repeat_key", "cel-go takes the last of equal keys"),
    (
        "optionals/optionals/map_null_entry_no_such_key",
        "kube-apiserver's cel-go finds no fields in what has none",
    ),
    (
        "optionals/optionals/map_present_key_invalid_field",
        "kube-apiserver's cel-go finds no fields in what has none",
    ),
    ("basic/functions/unbound", "names a function that nothing declares: Kubernetes checks expressions"),
];

fn excluded(test: &Value) -> Option<&'static str> {
    let text = |field: &str| test[field].as_str().unwrap_or("");
    let name = format!("{}/{}", text("file"), text("name"));
    let by_file = FILES.iter().find(|(file, _)| *file == text("file"));
    let by_part = || PARTS.iter().find(|(part, _)| text("expr").contains(part));
    let by_name = || TESTS.iter().find(|(own, _)| name.starts_with(own));
    let other = test.to_string().contains("{\"other\":");
    let reason = by_file.or_else(by_part).or_else(by_name).map(|(_, why)| *why);
    reason
        .or_else(|| other.then_some("values of Kubernetes are no protobuf messages"))
        .or_else(|| (!text("container").is_empty()).then_some("Kubernetes' environment has no container"))
}

fn made(value: &Value) -> Option<Box<dyn Val>> {
    let (kind, inner) = value.as_object()?.iter().next()?;
    let text = inner.as_str().unwrap_or("");
    Some(match kind.as_str() {
        "null" => Box::new(CelNull),
        "bool" => Box::new(CelBool::from(inner.as_bool()?)),
        "int" => Box::new(CelInt::from(text.parse::<i64>().ok()?)),
        "uint" => Box::new(CelUInt::from(text.parse::<u64>().ok()?)),
        "double" => Box::new(CelDouble::from(text.replace("Inf", "inf").parse::<f64>().ok()?)),
        "string" => Box::new(CelString::from(text.to_owned())),
        "bytes" => Box::new(CelBytes::from(STANDARD.decode(text).ok()?)),
        "list" => {
            let items: Option<Vec<Box<dyn Val>>> = inner.as_array()?.iter().map(made).collect();
            Box::new(CelList::from(items?))
        }
        "map" => {
            let mut entries: HashMap<CelMapKey<'static>, Box<dyn Val>> = HashMap::new();
            for entry in inner.as_array()? {
                entries.insert(key(&entry[0])?, made(&entry[1])?);
            }
            Box::new(CelMap::from(entries))
        }
        _ => return None,
    })
}

fn key(value: &Value) -> Option<CelMapKey<'static>> {
    let (kind, inner) = value.as_object()?.iter().next()?;
    let text = inner.as_str().unwrap_or("");
    Some(match kind.as_str() {
        "bool" => CelMapKey::from(inner.as_bool()?),
        "int" => CelMapKey::from(text.parse::<i64>().ok()?),
        "uint" => CelMapKey::from(text.parse::<u64>().ok()?),
        _ => CelMapKey::from(text.to_owned()),
    })
}

/// Whether a value is what was expected, of the same type; NaN is itself.
fn same(got: &dyn Val, wanted: &Value) -> bool {
    if wanted.get("double").is_some_and(|d| d == "NaN") {
        return got.downcast_ref::<CelDouble>().is_some_and(|d| d.inner().is_nan());
    }
    let Some(wanted) = made(wanted) else { return false };
    let kinds = got.get_type().name() == wanted.get_type().name();
    kinds && elements(got).len() == elements(wanted.as_ref()).len() && equal(got, wanted.as_ref())
}

fn outcome(test: &Value) -> Result<(), String> {
    let source = test["expr"].as_str().unwrap_or("");
    // Types are no values that an expression gives; that it is the right one is.
    let (source, wanted) = match test["value"]["type"].as_str() {
        Some(ty) => (format!("({source}) == {ty}"), serde_json::json!({"bool": true})),
        None => (source.to_owned(), test["value"].clone()),
    };
    let names: Vec<(&str, VariableType)> = test["bindings"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, _)| (name.as_str(), VariableType::Dyn))
        .collect();
    let program = match Program::typed(&source, &names) {
        Ok(program) => program,
        Err(_) if test["error"] == true => return Ok(()),
        Err(e) => return Err(e.to_string()),
    };
    let mut bound: BTreeMap<String, Computed> = BTreeMap::new();
    for (name, value) in test["bindings"].as_object().into_iter().flatten() {
        bound.insert(name.clone(), Computed(made(value).ok_or("a binding that can't be made")?));
    }
    let variables: Vec<(&str, Variable<'_>)> =
        bound.iter().map(|(name, value)| (name.as_str(), Variable::Computed(value))).collect();
    match (program.value(&variables, &Budget::default()), test["error"] == true) {
        (Err(_), true) => Ok(()),
        (Ok(value), false) if same(value.0.as_ref(), &wanted) => Ok(()),
        (Ok(value), _) => Err(format!("gave {:?}", value.0)),
        (Err(e), false) => Err(format!("failed: {e:?}")),
    }
}

#[test]
fn the_conformance_tests_of_cel_pass() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.tools/cel-spec.jsonl");
    let Ok(text) = std::fs::read_to_string(file) else {
        eprintln!("not run: `tools/get cel-spec` fetches the tests");
        return;
    };
    let (mut passed, mut left_out, mut failed) = (0, BTreeMap::<&str, usize>::new(), Vec::new());
    for line in text.lines() {
        let test: Value = serde_json::from_str(line).unwrap();
        if let Some(reason) = excluded(&test) {
            *left_out.entry(reason).or_default() += 1;
            continue;
        }
        match outcome(&test) {
            Ok(()) => passed += 1,
            Err(why) => failed.push(format!("{}/{} {}: {why}", test["file"], test["name"], test["expr"])),
        }
    }
    println!("{passed} passed; left out: {left_out:#?}");
    assert!(failed.is_empty(), "{} failed:\n{}", failed.len(), failed.join("\n"));
    assert!(passed > 800, "only {passed} were run");
}
