//! `freehold encryption`: how objects are encrypted in the store, and the rotation of keys.

use crate::kubeconfig;
use anyhow::Result;
use freehold_client::{Client, RawRequest};
use freehold_machinery::Value;
use http::Method;
use std::{io::Write, path::PathBuf, time::Duration};

/// How often `--wait` looks.
const POLL: Duration = Duration::from_secs(1);

/// Flags of `freehold encryption`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// An admin's kubeconfig. Default: the first of $KUBECONFIG, otherwise data/admin.kubeconfig.
    #[arg(long, global = true)]
    kubeconfig: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Shows what is encrypted, with which keys, which keys can be removed, and the progress of a rotation.
    Status,
    /// Encrypts everything again with the first key of the file, in the background. Afterwards no other key is needed.
    Rotate {
        /// Wait until it is done.
        #[arg(long)]
        wait: bool,
    },
}

/// Shows or rotates.
pub(crate) async fn run(args: Args) -> Result<()> {
    let client = Client::new(&kubeconfig::platform(args.kubeconfig)?)?;
    let status = match args.command {
        Command::Status => client.get_path("/encryption").await?,
        Command::Rotate { wait } => {
            let mut status = client.json(RawRequest::new(Method::POST, "/encryption/rotate")).await?;
            while wait && status["rotation"]["finished"].is_null() {
                tokio::time::sleep(POLL).await;
                status = client.get_path("/encryption").await?;
            }
            status
        }
    };
    std::io::stdout().write_all(describe(&status).as_bytes())?;
    Ok(())
}

fn on(value: &Value) -> &'static str {
    if value.as_bool().unwrap_or(false) { "on" } else { "off" }
}

fn describe(status: &Value) -> String {
    let trained = &status["trainedDictionaries"];
    let mut lines = vec![
        format!("compression  {}, {trained} trained dictionaries", on(&status["compression"])),
        format!("encryption   {}", on(&status["encryption"])),
    ];
    for (nth, key) in status["keys"].as_array().into_iter().flatten().enumerate() {
        let name = key["name"].as_str().unwrap_or_default();
        let role = match (nth, key["removable"].as_bool()) {
            (0, _) => ", the first: it seals new ones",
            (_, Some(true)) => ": it can be removed from the file",
            _ => "",
        };
        lines.push(format!("key          {name:?} seals {} data keys{role}", key["dataKeys"]));
    }
    let rotation = &status["rotation"];
    if rotation.is_object() {
        let state = match rotation["finished"].as_str() {
            Some(finished) => format!("finished {finished}"),
            None => format!("going on since {}", rotation["started"].as_str().unwrap_or_default()),
        };
        let [number, seen, sealed, failed] =
            ["number", "seen", "sealed", "failed"].map(|field| &rotation[field]);
        lines.push(format!(
            "rotation     {number}, {state}: {seen} values looked at, {sealed} sealed anew, {failed} can't be opened"
        ));
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_key_that_nothing_needs_is_told() {
        let status = json!({
            "compression": true, "encryption": true, "trainedDictionaries": 2,
            "keys": [{"name": "new", "dataKeys": 3, "removable": false}, {"name": "old", "dataKeys": 0, "removable": true}],
            "rotation": {"number": 1, "finished": "2026-01-01T00:00:00Z", "seen": 9, "sealed": 7, "failed": 0},
        });
        let text = describe(&status);
        assert!(text.contains("\"old\" seals 0 data keys: it can be removed from the file"), "{text}");
        assert!(
            text.contains("rotation     1, finished 2026-01-01T00:00:00Z: 9 values looked at, 7 sealed anew"),
            "{text}"
        );
    }
}
