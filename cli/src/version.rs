//! `freehold version`: which release this program is, and which the server.

use crate::kubeconfig;
use anyhow::{Context as _, Result};
use clap::ValueEnum;
use freehold_client::Client;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Flags of `freehold version`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// This program's alone; no server is asked.
    #[arg(long)]
    client: bool,
    /// As an object, in place of lines.
    #[arg(long, short)]
    output: Option<Format>,
    /// The server to ask. Default: the first of $KUBECONFIG, otherwise data/admin.kubeconfig or ~/.kube/config.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    Json,
    Yaml,
}

/// This program's version.
pub(crate) fn client() -> Value {
    json!({
        "version": concat!("v", env!("CARGO_PKG_VERSION")),
        "kubernetes": freehold_apiserver::KUBERNETES_VERSION,
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}

/// Prints the versions.
///
/// # Errors
/// The server can't be asked.
pub(crate) async fn run(args: Args) -> Result<()> {
    let mut versions = json!({"clientVersion": client()});
    if !args.client {
        let client = Client::new(&kubeconfig::admin(args.kubeconfig)?)?;
        let server = client.get_path("/version").await.context("the server does not tell its version")?;
        versions["serverVersion"] = server;
    }
    print!("{}", shown(&versions, args.output)?);
    Ok(())
}

fn shown(versions: &Value, format: Option<Format>) -> Result<String> {
    let text = |pointer: &str| versions.pointer(pointer).and_then(Value::as_str).unwrap_or("unknown");
    Ok(match format {
        Some(Format::Json) => format!("{versions:#}\n"),
        Some(Format::Yaml) => freehold_client::yaml(versions)?,
        None => {
            let (client, kubernetes) = (text("/clientVersion/version"), text("/clientVersion/kubernetes"));
            let mut lines = format!("Client Version: {client}\nKubernetes Version: {kubernetes}\n");
            if versions.get("serverVersion").is_some() {
                lines += &format!("Server Version: {}\n", text("/serverVersion/gitVersion"));
            }
            lines
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_lines_or_an_object() {
        let versions = json!({"clientVersion": {"version": "v1", "kubernetes": "v2"},
            "serverVersion": {"gitVersion": "v3"}});
        let lines = shown(&versions, None).unwrap();
        assert_eq!(lines, "Client Version: v1\nKubernetes Version: v2\nServer Version: v3\n");
        let json: Value = serde_json::from_str(&shown(&versions, Some(Format::Json)).unwrap()).unwrap();
        assert_eq!(json, versions);
    }
}
