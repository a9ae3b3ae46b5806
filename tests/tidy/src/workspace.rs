//! The workspace: its packages as `cargo metadata` tells them, and its files.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Folders that hold nothing of ours.
const SKIPPED: [&str; 4] = ["target", "target-", "data", "data-"];

/// The top folder of the workspace.
pub fn top() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("this crate is two folders below the top").to_owned()
}

/// `cargo metadata` of our packages alone.
pub fn metadata() -> Value {
    json(&["metadata", "--format-version", "1", "--no-deps", "--offline"])
}

/// What is built from registries for this machine: name, version and licence.
pub fn dependencies() -> Vec<[String; 3]> {
    // The tree has what is really built; metadata lists optional packages, too, that no feature asks for.
    let tree = cargo(&["tree", "--workspace", "--edges", "all", "--prefix", "none", "--format", "{p}|{l}"]);
    let mut found: Vec<[String; 3]> = tree.lines().filter_map(dependency).collect();
    found.sort();
    found.dedup();
    found
}

/// A line of the tree: `name v1.2.3 (proc-macro)|MIT`, for ours with a path behind the version.
fn dependency(line: &str) -> Option<[String; 3]> {
    let (package, licence) = line.trim_end_matches(" (*)").rsplit_once('|')?;
    let mut words = package.split_whitespace();
    let (name, version) = (words.next()?, words.next()?);
    let ours = name.starts_with("freehold-");
    let words = [name, version.trim_start_matches('v'), licence.trim_end_matches(" (*)")];
    (!ours).then(|| words.map(str::to_owned))
}

fn cargo(args: &[&str]) -> String {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(program).args(args).current_dir(top()).output().expect("cargo can be run");
    assert!(output.status.success(), "cargo {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("cargo prints UTF-8")
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&cargo(args)).expect("cargo metadata is JSON")
}

/// A package of this workspace.
#[derive(Clone, Debug)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Its folder, relative to the top: `apiserver/storage`.
    pub folder: String,
    /// Packages of this workspace that it depends on; true for those that only its tests need.
    pub edges: Vec<(String, bool)>,
}

/// All packages of this workspace, by name.
pub fn packages() -> Vec<Package> {
    let metadata = metadata();
    let top = top();
    let mut packages: Vec<Package> = array(&metadata["packages"]).map(|p| package(p, &top)).collect();
    packages.sort_by(|a, b| a.name.cmp(&b.name));
    packages
}

fn package(package: &Value, top: &Path) -> Package {
    let manifest = Path::new(text(&package["manifest_path"]));
    let folder = manifest.parent().and_then(|folder| folder.strip_prefix(top).ok()).unwrap_or(Path::new(""));
    let own = array(&package["dependencies"]).filter(|d| d["path"].is_string());
    Package {
        name: text(&package["name"]).to_owned(),
        folder: folder.to_string_lossy().into_owned(),
        edges: own.map(|d| (text(&d["name"]).to_owned(), d["kind"] == "dev")).collect(),
    }
}

/// The items of a JSON list.
pub fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// A JSON string; empty for anything else.
pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// A file of ours.
#[derive(Clone, Debug)]
pub struct SourceFile {
    /// Its path, relative to the top.
    pub path: String,
    /// What is in it.
    pub text: String,
}

impl SourceFile {
    /// Whether it is of tests or benchmarks as a whole.
    pub fn is_test(&self) -> bool {
        // The crates below `tests/` are ordinary ones in their `src`.
        let inner =
            self.path.strip_prefix("tests/").filter(|path| path.contains("/src/")).unwrap_or(&self.path);
        inner.split('/').any(|part| part == "tests" || part == "benches")
            || self.path.ends_with("/tests.rs")
            || self.path.ends_with("_tests.rs")
    }
}

/// All files of ours whose names end in one of `endings`, by path.
pub fn files(endings: &[&str]) -> Vec<SourceFile> {
    let mut found = Vec::new();
    let top = top();
    collect(&top, &top, endings, &mut found);
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(!found.is_empty(), "there are no {endings:?} files below {}", top.display());
    found
}

fn collect(folder: &Path, top: &Path, endings: &[&str], found: &mut Vec<SourceFile>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_folder {
            let at_top = folder == top;
            let skipped = SKIPPED.iter().any(|s| name == *s || s.ends_with('-') && name.starts_with(s));
            let hidden = name.starts_with('.') || name == "node_modules" || at_top && skipped;
            if !hidden {
                collect(&path, top, endings, found);
            }
        } else if endings.iter().any(|ending| name.ends_with(ending))
            && let Ok(text) = std::fs::read_to_string(&path)
        {
            let path = path.strip_prefix(top).unwrap_or(&path).to_string_lossy().into_owned();
            found.push(SourceFile { path, text });
        }
    }
}
