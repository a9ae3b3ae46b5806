//! Where programs are.

use std::path::{Path, PathBuf};

/// The `freehold` program: `FREEHOLD_BIN`, or what was built beside the test.
pub fn freehold_binary() -> PathBuf {
    if let Some(path) = std::env::var_os("FREEHOLD_BIN") {
        return existing(PathBuf::from(path), "FREEHOLD_BIN names it");
    }
    let test = std::env::current_exe().expect("a test is a program");
    // target/debug/deps/test-0123 or target/debug/bench
    let folder = test.ancestors().skip(1).find(|folder| folder.file_name().is_none_or(|name| name != "deps"));
    let path = folder.unwrap_or(Path::new(".")).join("freehold");
    existing(path, "`make test` builds it first; so does `cargo build -p freehold-cli`")
}

/// A tool that `make tools` provides: the variable, or `.tools/bin/NAME` of the workspace.
pub fn tool(variable: &str, name: &str) -> PathBuf {
    existing(find_tool(variable, name), &format!("`tools/get {name}` gets it, or {variable} names one"))
}

/// Where a tool has to be, whether it is there or not.
pub(crate) fn find_tool(variable: &str, name: &str) -> PathBuf {
    let tools = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools/bin").join(name);
    std::env::var_os(variable).map_or_else(tools, PathBuf::from)
}

fn existing(path: PathBuf, advice: &str) -> PathBuf {
    assert!(path.is_file(), "there is no {}: {advice}", path.display());
    path
}
