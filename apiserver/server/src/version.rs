//! The version that the server says it has.

use freehold_machinery::Value;
use serde_json::json;

/// `/version`, from `v1.36.0+freehold-0.1.0`.
pub(crate) fn version(version: &str) -> Value {
    let mut numbers = version.trim_start_matches('v').split(['.', '+']);
    let (major, minor) = (numbers.next().unwrap_or(""), numbers.next().unwrap_or(""));
    json!({
        "major": major, "minor": minor, "gitVersion": version, "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "rustc",
        "platform": format!("linux/{}", match std::env::consts::ARCH { "x86_64" => "amd64", "aarch64" => "arm64", other => other }),
    })
}
