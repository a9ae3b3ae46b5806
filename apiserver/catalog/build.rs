//! Makes the OpenAPI definitions of the built-in kinds, once, at build time.
//!
//! What `k8s-openapi` knows (names, descriptions, formats, required fields) is joined with what it leaves out, which
//! the files of `overlay/` state, `defaults.json` (the defaults of Kubernetes that depend on nothing else) and `documents.json`
//! (what OpenAPI documents say beyond that), and written as one compressed file of a definition a line. The crates that
//! know those types are build dependencies only: nothing of them is in the binary.

#[path = "build/kinds.rs"]
mod kinds;
#[path = "build/overlay.rs"]
mod overlay;

use serde_json::{Map, Value};
use std::{env, error::Error, fs, path::Path};

/// Fields whose presence `k8s-openapi` takes for granted and Kubernetes does not.
const NEVER_REQUIRED: [&str; 1] = ["metadata"];

fn main() -> Result<(), Box<dyn Error>> {
    let data = ["defaults.json", "documents.json", "printed.json", "structs.json"];
    for path in ["build.rs", "build", "overlay"].iter().chain(&data) {
        println!("cargo::rerun-if-changed={path}");
    }
    let mut definitions = kinds::definitions();
    definitions.values_mut().for_each(relax);
    overlay::apply(Path::new("overlay"), &mut definitions)?;
    overlay::declare_defaults(Path::new("defaults.json"), &mut definitions)?;
    overlay::add_documents(Path::new("documents.json"), &mut definitions)?;
    let out = env::var("OUT_DIR")?;
    let pack = |name: &str, text: &[u8]| -> Result<(), Box<dyn Error>> {
        Ok(fs::write(Path::new(&out).join(name), zstd::encode_all(text, 19)?)?)
    };
    pack("definitions.zst", lines(&definitions)?.as_bytes())?;
    pack("printed.zst", &fs::read("printed.json")?)?;
    pack("structs.zst", &fs::read("structs.json")?)
}

/// Makes metadata optional, as it is in Kubernetes' own documents.
fn relax(definition: &mut Value) {
    let Some(required) = definition.get_mut("required").and_then(Value::as_array_mut) else { return };
    required.retain(|field| !NEVER_REQUIRED.iter().any(|name| field == name));
    if required.is_empty()
        && let Some(map) = definition.as_object_mut()
    {
        map.remove("required");
    }
}

/// One line for each definition: its name, a tab, and its schema as JSON.
fn lines(definitions: &Map<String, Value>) -> Result<String, serde_json::Error> {
    let mut names: Vec<_> = definitions.keys().collect();
    names.sort();
    let mut out = String::new();
    for name in names {
        out.push_str(name);
        out.push('\t');
        out.push_str(&serde_json::to_string(&definitions[name])?);
        out.push('\n');
    }
    Ok(out)
}
