//! `freehold apiserver`: the apiserver of one plane, as a dedicated pair runs it.

use crate::stop;
use anyhow::{Context, Result};
use freehold_apiserver::{Config, EtcdOptions, Limits, StoreConfig, open_store};
use freehold_machinery::PlaneId;
use freehold_pki::Pair;
use std::{
    io::Write,
    net::SocketAddr,
    path::{Path, PathBuf},
};

/// Flags of `freehold apiserver`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The plane to serve.
    #[arg(long)]
    plane: PlaneId,
    /// The project whose plane it is.
    #[arg(long, default_value = "")]
    project: String,
    /// The organization that owns the project.
    #[arg(long, default_value = "")]
    organization: String,
    /// The plane's class.
    #[arg(long, default_value = "default")]
    class: String,
    /// Where to listen.
    #[arg(long)]
    listen: SocketAddr,
    /// etcd, or a server that speaks its protocol.
    #[arg(long, value_delimiter = ',', required = true)]
    etcd: Vec<String>,
    /// What stands before each key in etcd.
    #[arg(long, default_value = "/freehold/")]
    etcd_prefix: String,
    /// The authority of etcd's certificate, a PEM file.
    #[arg(long)]
    etcd_ca: Option<PathBuf>,
    /// The client certificate for etcd, a PEM file.
    #[arg(long, requires = "etcd_key")]
    etcd_cert: Option<PathBuf>,
    /// Its key, a PEM file.
    #[arg(long, requires = "etcd_cert")]
    etcd_key: Option<PathBuf>,
    /// The serving certificate, a PEM file.
    #[arg(long)]
    tls_cert: PathBuf,
    /// Its key, a PEM file.
    #[arg(long)]
    tls_key: PathBuf,
    /// The authority of client certificates, a PEM file.
    #[arg(long)]
    client_ca: PathBuf,
    /// The authority of front proxies, a PEM file.
    #[arg(long)]
    front_proxy_ca: Option<PathBuf>,
    /// The common names of front proxies.
    #[arg(long, value_delimiter = ',')]
    front_proxy_names: Vec<String>,
    /// The key of service account tokens, a PEM file.
    #[arg(long)]
    service_account_key: PathBuf,
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("{} can't be read", path.display()))
}

fn read_some(path: Option<&PathBuf>) -> Result<Option<String>> {
    path.map(|path| read(path)).transpose()
}

/// Serves until Ctrl-C or SIGTERM.
pub(crate) async fn run(args: Args) -> Result<()> {
    let stop = stop::on_signal()?;
    tracing::info!(plane = %args.plane, project = args.project, organization = args.organization, class = args.class, "starting");
    let identity = match (&args.etcd_cert, &args.etcd_key) {
        (Some(cert), Some(key)) => Some((read(cert)?.into_bytes(), read(key)?.into_bytes())),
        _ => None,
    };
    let options = EtcdOptions {
        prefix: args.etcd_prefix.clone(),
        ca: read_some(args.etcd_ca.as_ref())?.map(String::into_bytes),
        home: freehold_apiserver::plane_keys(&args.plane),
        identity,
        ..EtcdOptions::new(args.etcd.clone())
    };
    let client_ca = read(&args.client_ca)?;
    let config = Config {
        listen: args.listen,
        plane: args.plane,
        store: open_store(&StoreConfig::Etcd(Box::new(options))).await?,
        sealed: None,
        serving: Pair { cert_pem: read(&args.tls_cert)?, key_pem: read(&args.tls_key)? },
        serving_ca: client_ca.clone(),
        client_ca,
        front_proxy_ca: read_some(args.front_proxy_ca.as_ref())?,
        front_proxy_names: args.front_proxy_names,
        front_proxy: None,
        node_client: None,
        service_account_key: read(&args.service_account_key)?,
        cache: Default::default(),
        limits: Limits::default(),
        own_store: false,
    };
    let server = config.build().await?;
    let mut out = std::io::stdout();
    writeln!(out, "ready url=https://{}", server.local_addr())?;
    out.flush()?;
    server.run(stop).await;
    Ok(())
}
