//! The OpenAPI definitions of the built-in kinds, and the schemas compiled from them.
//!
//! The definitions lie compressed in the binary. Who needs some unpacks them, parses those that it needs and drops
//! them again; only compiled schemas stay, each once however many kinds refer to it.

use crate::{builtin::PACKAGES, structs};
use freehold_machinery::{
    GroupVersionKind, Value,
    schema::{self, Schema},
};
use sha2::{Digest, Sha256};
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, LazyLock},
};

static PACKED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/definitions.zst"));

/// What each struct of the built-in kinds always has in its JSON; `tools/kubernetes/zeros` makes it.
static ZEROS: &str = include_str!("../zeros.json");

/// Which strings, numbers and flags of each struct are pointers; made by the same program.
static POINTERS: &str = include_str!("../pointers.json");

/// What stands before the names of structs in [`POINTERS`].
const STRUCT_PREFIXES: [&str; 4] = [
    "io.k8s.api.",
    "io.k8s.apimachinery.pkg.apis.",
    "io.k8s.kube-aggregator.pkg.apis.",
    "io.k8s.apiextensions-apiserver.pkg.apis.",
];

/// How a definition refers to another, before its name.
pub(crate) const REF_PREFIX: &str = "#/components/schemas/";

/// Names the definitions of this build.
pub(crate) static HASH: LazyLock<String> = LazyLock::new(|| hex::encode(&Sha256::digest(PACKED)[..8]));

/// The definitions, unpacked: about a megabyte. Made for a task and dropped after it.
pub(crate) struct Definitions {
    text: String,
}

impl Definitions {
    /// Unpacks all definitions; a few milliseconds.
    pub(crate) fn unpack() -> Self {
        let bytes = zstd::decode_all(PACKED).expect("the build packed them");
        Self { text: String::from_utf8(bytes).expect("the build wrote text") }
    }

    /// Definitions by name, not parsed.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (&str, &str)> {
        self.text.lines().filter_map(|line| line.split_once('\t'))
    }

    /// Definitions by name, in a map for look-ups.
    pub(crate) fn index(&self) -> HashMap<&str, &str> {
        self.lines().collect()
    }
}

/// Parses a definition.
pub(crate) fn parse(text: &str) -> Value {
    serde_json::from_str(text).expect("the build wrote JSON")
}

/// The definition's name of a built-in kind (`io.k8s.api.core.v1.Pod`), or of one that only subresources speak
/// (`io.k8s.api.policy.v1.Eviction`). `None` where the group is not built in; the kind is not checked.
pub fn definition_name(gvk: &GroupVersionKind) -> Option<String> {
    let (_, package) = PACKAGES.iter().find(|(group, _)| *group == gvk.group)?;
    Some(format!("{package}.{}.{}", gvk.version, gvk.kind))
}

/// The compiled schema of each definition. All are compiled together, so that what several refer to is there once.
static SCHEMAS: LazyLock<HashMap<String, Arc<Schema>>> = LazyLock::new(|| {
    let text = Definitions::unpack();
    let mut sources: BTreeMap<String, Value> =
        text.lines().map(|(name, line)| (name.to_owned(), parse(line))).collect();
    let zeros: BTreeMap<String, Value> = serde_json::from_str(ZEROS).expect("a test reads it");
    for (name, fields) in zeros {
        for prefix in STRUCT_PREFIXES {
            if let Some(definition) = sources.get_mut(&format!("{prefix}{name}")) {
                definition[schema::ZEROS] = fields.clone();
            }
        }
    }
    let pointers: BTreeMap<String, Value> = serde_json::from_str(POINTERS).expect("a test reads it");
    for (name, fields) in pointers {
        for prefix in STRUCT_PREFIXES {
            if let Some(definition) = sources.get_mut(&format!("{prefix}{name}")) {
                definition[schema::POINTERS] = fields.clone();
            }
        }
    }
    for (name, fields) in structs::field_types() {
        let name = if sources.contains_key(&name) { name } else { format!("io.k8s.api.{name}") };
        let Some(definition) = sources.get_mut(&name) else { continue };
        for (field, go) in fields {
            if let Some(Value::Object(property)) = definition["properties"].get_mut(&field) {
                property.insert(schema::GO.to_owned(), go);
            }
        }
    }
    let compiler = schema::Definitions::new(sources);
    let compile = |name: &str| compiler.get(name).expect("a test compiles each definition");
    text.lines().map(|(name, _)| (name.to_owned(), compile(name))).collect()
});

/// The compiled schema of a definition by name. The first call compiles all of them; they are kept.
pub fn schema_of_definition(name: &str) -> Option<&'static Arc<Schema>> {
    SCHEMAS.get(name)
}

/// The compiled schema of a kind that is built in, those that only subresources speak among them
/// (`autoscaling/v1 Scale`, `authentication.k8s.io/v1 TokenRequest`).
pub fn schema_of_kind(gvk: &GroupVersionKind) -> Option<&'static Arc<Schema>> {
    schema_of_definition(&definition_name(gvk)?)
}
