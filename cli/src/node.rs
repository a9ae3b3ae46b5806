//! `freehold node`: runs the Pods of one control plane as processes of this machine.

use crate::{node_serving, pki::VALIDITY, stop, terminal::plain, up::parse_image};
use anyhow::{Context, Result};
use freehold_client::{Client, Config as ClientConfig};
use freehold_node::{Config, Images, LogServer};
use freehold_pki::Authority;
use std::path::PathBuf;

/// The names that the log server has.
const HOSTS: [&str; 2] = ["127.0.0.1", "localhost"];

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
    /// Leave Pods that no node has to a scheduler, instead of taking all of them.
    #[arg(long)]
    external_scheduler: bool,
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
    let service = root(&client.server);
    let (name, server) = (args.name.clone(), plain(&client.server));
    let client = Client::new(&client.user_agent(format!("freehold-node/{}", env!("CARGO_PKG_VERSION"))))?;
    eprintln!(
        "Asking {server} for a serving certificate, for {} s at most.",
        node_serving::PATIENCE.as_secs()
    );
    let logs = log_server(&client, &args.name).await?;
    let node = Config {
        service,
        client,
        base_path: String::new(),
        node_name: args.name,
        takes_waiting: !args.external_scheduler,
        data_dir: args.data_dir,
        images: Images::new(images),
        logs,
    };
    let node = node.build().await?;
    eprintln!("Node {name:?} runs Pods of {server}; Ctrl-C ends it.");
    node.run(stop).await;
    Ok(())
}

/// Where logs are served: to the server of the control plane, if that signs a certificate for this node.
async fn log_server(client: &Client, name: &str) -> Result<LogServer> {
    let listen = ([127, 0, 0, 1], 0).into();
    match node_serving::certificate(client, name, &HOSTS).await {
        Ok(certificate) => Ok(LogServer {
            listen,
            cert_pem: certificate.cert_pem,
            key_pem: certificate.key_pem,
            client_ca_pem: certificate.client_ca_pem,
            client_names: vec![freehold_apiserver::KUBELET_CLIENT.to_owned()],
        }),
        Err(error) => {
            let error = format!("{error:#}");
            tracing::warn!(error, "the server can't read logs here: there is no serving certificate");
            // Nobody has a certificate of this authority.
            let authority = Authority::generate("freehold-node")?;
            let serving = authority.issue_server(&HOSTS, VALIDITY)?;
            Ok(LogServer {
                listen,
                cert_pem: serving.cert_pem,
                key_pem: serving.key_pem.clone(),
                client_ca_pem: authority.cert_pem().to_owned(),
                client_names: Vec::new(),
            })
        }
    }
}

/// Host and port of a server's URL. What follows them no client in a Pod can say, nor need it: the token of its service
/// account leads to its control plane.
pub(crate) fn root(server: &str) -> Option<(String, u16)> {
    let rest = server.strip_prefix("https://")?;
    let rest = rest.split('/').next().unwrap_or(rest);
    let (host, port) = match rest.rsplit_once(':').filter(|(_, port)| !port.ends_with(']')) {
        Some((host, port)) => (host, port.parse().ok()?),
        None => (rest, 443),
    };
    Some((host.trim_matches(['[', ']']).to_owned(), port))
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
            ("https://127.0.0.1:6443/projects/web", Some(("127.0.0.1", 6443))),
            ("http://127.0.0.1:6443", None),
        ];
        for (server, expected) in rows {
            assert_eq!(root(server), expected.map(|(host, port)| (host.to_owned(), port)), "{server}");
        }
    }
}
