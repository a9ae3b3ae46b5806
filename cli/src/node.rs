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
    /// How to reach the control plane: a project's kubeconfig.
    #[arg(long)]
    kubeconfig: PathBuf,
    /// The name of the Node.
    #[arg(long, default_value = "local")]
    name: String,
    /// Where Pods have their directories.
    #[arg(long, default_value = "node-data")]
    data_dir: PathBuf,
    /// Programs that Pods may run: `IMAGE=PATH`, several times. They run as this user, and nothing isolates them.
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
    let node = Config {
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
