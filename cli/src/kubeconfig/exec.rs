//! Plugins of kubeconfigs that sign in (`exec`, client.authentication.k8s.io/v1): `freehold token` is one.

use super::own;
use anyhow::{Context as _, Result, ensure};
use freehold_client::Identity;
use freehold_machinery::Value;
use serde_json::json;
use std::{path::Path, process::Command};

/// The API version of what a plugin is given and prints.
pub(crate) const VERSION: &str = "client.authentication.k8s.io/v1";
/// The variable that tells a plugin what it is asked for.
const ASKED: &str = "KUBERNETES_EXEC_INFO";

/// What the plugin of a kubeconfig's current user says; nothing where the user has none.
///
/// # Errors
/// The plugin fails, or prints no credential.
pub(super) fn identity(path: &Path) -> Result<Option<Identity>> {
    let whole: Value = freehold_client::kubeconfig_as(&crate::store::read(path)?)?;
    let context =
        own::entry(&whole, "contexts", "context", whole["current-context"].as_str().unwrap_or_default())?;
    let Ok(user) = own::entry(&whole, "users", "user", context["user"].as_str().unwrap_or_default()) else {
        return Ok(None);
    };
    let exec = &own::rebased(user.clone(), path.parent().unwrap_or(Path::new("")))?["exec"];
    let Some(program) = exec["command"].as_str() else { return Ok(None) };
    run(program, exec).with_context(|| format!("the kubeconfig's plugin {program:?}")).map(Some)
}

fn run(program: &str, exec: &Value) -> Result<Identity> {
    let strings = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let asked = json!({"apiVersion": VERSION, "kind": "ExecCredential", "spec": {"interactive": false}});
    let mut command = Command::new(program);
    command.args(strings(&exec["args"])).env(ASKED, asked.to_string());
    for variable in exec["env"].as_array().into_iter().flatten() {
        let of = |field: &str| variable[field].as_str().unwrap_or_default();
        command.env(of("name"), of("value"));
    }
    let output = command.output()?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "failed: {}", complaint.trim());
    let printed: Value = serde_json::from_slice(&output.stdout)?;
    credential(&printed["status"]).context("printed no credential")
}

fn credential(status: &Value) -> Option<Identity> {
    let text = |field: &str| status[field].as_str().map(str::to_owned);
    match (text("clientCertificateData"), text("clientKeyData")) {
        (Some(cert_pem), Some(key_pem)) => Some(Identity::ClientCert { cert_pem, key_pem }),
        _ => text("token").map(Identity::Token),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_gives_a_token_or_says_why_not() {
        let printed = r#"{"status": {"token": "abc"}}"#;
        let exec =
            json!({"args": ["-c", "printf %s \"$PRINTED\""], "env": [{"name": "PRINTED", "value": printed}]});
        assert!(matches!(run("sh", &exec).unwrap(), Identity::Token(token) if token == "abc"));
        let exec = json!({"args": ["-c", "echo sign in first >&2; exit 1"]});
        assert_eq!(run("sh", &exec).unwrap_err().to_string(), "failed: sign in first");
        assert!(run("sh", &json!({"args": ["-c", "echo '{}'"]})).is_err());
    }
}
