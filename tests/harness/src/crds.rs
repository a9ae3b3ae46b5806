//! Real CRDs, as their projects publish them.

use serde_json::Value;
use std::path::{Path, PathBuf};

/// A CRD in a file.
#[derive(Clone, Debug)]
pub struct Crd {
    /// The folder that it is in, named after its project.
    pub project: String,
    /// The file.
    pub path: PathBuf,
    /// What is in it.
    pub object: Value,
}

/// All CRDs below the folder that `FREEHOLD_CRDS` names (`make test CRDS=...`), or `.tools/crds` of the workspace, in
/// the order of their paths.
pub fn crds() -> Vec<Crd> {
    let fetched = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools/crds");
    let folder = std::env::var_os("FREEHOLD_CRDS").map_or_else(fetched, PathBuf::from);
    let mut paths = Vec::new();
    collect(&folder, &mut paths);
    paths.sort();
    let all: Vec<Crd> = paths.into_iter().filter_map(read).collect();
    assert!(
        !all.is_empty(),
        "there are no CRDs in {}: `make test` gets them, `make test CRDS=folder` takes yours",
        folder.display()
    );
    all
}

fn collect(folder: &Path, paths: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, paths);
        } else if path.extension().is_some_and(|e| ["json", "yaml", "yml"].iter().any(|known| e == *known)) {
            paths.push(path);
        }
    }
}

/// The CRD in a file; `None` for other kinds, which such folders hold as well.
fn read(path: PathBuf) -> Option<Crd> {
    let text = std::fs::read_to_string(&path).expect("a file that was listed can be read");
    let object: Value = serde_saphyr::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let folder = path.parent().and_then(Path::file_name)?.to_string_lossy().into_owned();
    (object["kind"] == "CustomResourceDefinition").then_some(Crd { project: folder, path, object })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_and_yaml_are_read_and_other_kinds_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.yaml");
        for (text, expected) in [
            ("---\nkind: CustomResourceDefinition\nmetadata: {name: x}\n", Some("x")),
            ("{\"kind\": \"CustomResourceDefinition\", \"metadata\": {\"name\": \"y\"}}", Some("y")),
            ("kind: Kustomization\n", None),
        ] {
            std::fs::write(&file, text).unwrap();
            let crd = read(file.clone());
            assert_eq!(crd.map(|crd| crd.object["metadata"]["name"].clone()), expected.map(Value::from));
        }
    }
}
