//! `freehold node`: runs the Pods of one control plane as processes of this machine.

use crate::{pki::VALIDITY, stop, up::parse_image};
use anyhow::{Context, Result};
use freehold_client::{Client, Config as ClientConfig};
use freehold_node::{Config, Images, LogServer};
use freehold_pki::Authority;
use std::path::PathBuf;

/// Flags of `freehold node`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Kubeconfig of the control plane.
    #[arg(long)]
    kubeconfig: PathBuf,
    /// The name of the Node.
    #[arg(long, default_value = "local")]
    name: String,
    /// Folder for the directories of Pods.
    #[arg(long, default_value = "node-data")]
    data_dir: PathBuf,
    /// Programs that Pods may run: `IMAGE=PATH`, repeatable. They run as this user, without isolation.
    #[arg(long = "image", required = true)]
    images: Vec<String>,
}

/// Runs Pods until Ctrl-C or SIGTERM.
pub(crate) async fn run(args: Args) -> Result<()> {
    let stop = stop::on_signal()?;
    let client = ClientConfig::from_kubeconfig(&args.kubeconfig)
        .with_context(|| format!("kubeconfig {} can't be used", args.kubeconfig.display()))?;
    let images = args.images.iter().map(|image| parse_image(image)).collect::<Result<Vec<_>>>()?;
    // Servers don't know this authority: nobody reads logs from here but through the files.
    let authority = Authority::generate("freehold-node")?;
    let serving = authority.issue_server(&["127.0.0.1", "localhost"], VALIDITY)?;
    let service = root(&client.server);
    let node = Config {
        service,
        client: Client::new(&client.user_agent(format!("freehold-node/{}", env!("CARGO_PKG_VERSION"))))?,
        base_path: String::new(),
        node_name: args.name,
        data_dir: args.data_dir,
        images: Images::new(images),
        logs: LogServer {
            listen: ([127, 0, 0, 1], 0).into(),
            cert_pem: serving.cert_pem,
            key_pem: serving.key_pem,
            client_ca_pem: authority.cert_pem().to_owned(),
            client_names: Vec::new(),
        },
    };
    node.build().await?.run(stop).await;
    Ok(())
}

/// Host and port of a server's URL, where nothing follows them.
fn root(server: &str) -> Option<(String, u16)> {
    let rest = server.strip_prefix("https://")?.trim_end_matches('/');
    let (host, port) = match rest.rsplit_once(':').filter(|(_, port)| !port.ends_with(']')) {
        Some((host, port)) => (host, port.parse().ok()?),
        None => (rest, 443),
    };
    (!rest.contains('/')).then(|| (host.trim_matches(['[', ']']).to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_are_told_of_an_api_at_the_root_of_a_host() {
        let rows = [
            ("https://web.projects.example:6443", Some(("web.projects.example", 6443))),
            ("https://web.projects.example/", Some(("web.projects.example", 443))),
            ("https://[::1]:6443", Some(("::1", 6443))),
            ("https://127.0.0.1:6443/projects/web", None),
        ];
        for (server, expected) in rows {
            assert_eq!(root(server), expected.map(|(host, port)| (host.to_owned(), port)), "{server}");
        }
    }
}
