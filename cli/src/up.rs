//! `freehold up`: everything in one process.

use crate::{
    components,
    data_dir::{DataDir, VALIDITY},
    stop,
};
use anyhow::{Context, Result};
use freehold_apiserver::{ApiServer, Config, EtcdOptions, Limits, StoreConfig, open_store, seal};
use freehold_machinery::PlaneId;
use std::{
    io::Write,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
};
use tokio_util::sync::CancellationToken;

/// Names that a server has wherever it runs: those of a plane's own `kubernetes` service among them.
const NAMES: [&str; 8] = [
    "localhost",
    "127.0.0.1",
    "::1",
    "10.96.0.1",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
];

/// Flags of `freehold up`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where keys, kubeconfigs and, without --etcd, all objects are kept.
    #[arg(long, default_value = "data")]
    data_dir: PathBuf,
    /// Where to listen. Port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:7443")]
    listen: SocketAddr,
    /// The URL under which clients reach this server, where it is not the address it listens on.
    #[arg(long)]
    external_url: Option<String>,
    /// Keep objects in this etcd (several endpoints with commas) instead of the data directory.
    #[arg(long, value_delimiter = ',')]
    etcd: Vec<String>,
    /// What stands before each key in etcd.
    #[arg(long, default_value = "/freehold/")]
    etcd_prefix: String,
    /// How objects are compressed when they are written: `zstd` or `none`. Either reads what the other wrote.
    #[arg(long, default_value = "zstd")]
    compression: Compression,
    /// Encrypt objects in the store with the keys in this file, an `EncryptionConfiguration` with `aesgcm`.
    #[arg(long, value_name = "FILE")]
    encryption_keys: Option<PathBuf>,
    /// Programs that Pods may run: `IMAGE=PATH`, several times. `freehold` is this program.
    #[arg(long = "image")]
    images: Vec<String>,
}

/// How objects are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Compression {
    Zstd,
    None,
}

/// A server that listens, and what its components need to reach it.
pub(crate) struct Serving {
    /// The data directory.
    pub(crate) data: DataDir,
    /// The server's own address, as a URL.
    pub(crate) local_url: String,
    /// The URL that kubeconfigs name.
    pub(crate) external_url: String,
    /// Programs that Pods may run.
    pub(crate) images: Vec<(String, PathBuf)>,
}

fn store_config(args: &Args, data: &DataDir) -> StoreConfig {
    if args.etcd.is_empty() {
        return StoreConfig::Embedded(data.join("store"));
    }
    let options = EtcdOptions { prefix: args.etcd_prefix.clone(), ..EtcdOptions::new(args.etcd.clone()) };
    StoreConfig::Etcd(Box::new(options))
}

/// The host of `https://HOST[:PORT][/PATH]`.
fn host(url: &str) -> Option<&str> {
    let authority = url.strip_prefix("https://")?.split('/').next()?;
    let host = match authority.strip_prefix('[') {
        Some(v6) => v6.split(']').next()?,
        None => authority.rsplit_once(':').map_or(authority, |(host, _)| host),
    };
    (!host.is_empty()).then_some(host)
}

/// Names under which this server's certificate is valid.
fn names(listen: IpAddr, external_url: Option<&str>) -> Vec<String> {
    let mut names: Vec<String> = NAMES.into_iter().map(str::to_owned).collect();
    let listen = Some(listen).filter(|ip| !ip.is_unspecified()).map(|ip| ip.to_string());
    let external = external_url.and_then(host).map(str::to_owned);
    for name in [listen, external].into_iter().flatten() {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

async fn serve(args: &Args) -> Result<(ApiServer, Serving)> {
    let images = args.images.iter().map(|image| parse_image(image)).collect::<Result<_>>()?;
    if let Some(url) = &args.external_url {
        host(url).with_context(|| format!("--external-url must be https://HOST[:PORT], not {url:?}"))?;
    }
    let data = DataDir::open(&args.data_dir)?;
    let raw = open_store(&store_config(args, &data)).await?;
    let compression = args.compression == Compression::Zstd;
    let sealed = seal(raw, compression, args.encryption_keys.as_deref()).await?;
    let names = names(args.listen.ip(), args.external_url.as_deref());
    let front_proxy_user =
        freehold_pki::ClientName { user: components::FRONT_PROXY, groups: &[], plane: None };
    let config = Config {
        listen: args.listen,
        plane: PlaneId::core(),
        store: Arc::new(sealed.clone()),
        sealed: Some(sealed),
        serving: data.ca.issue_server(&names, VALIDITY)?,
        client_ca: data.ca.cert_pem().to_owned(),
        serving_ca: data.ca.cert_pem().to_owned(),
        front_proxy_ca: Some(data.front_proxy_ca.cert_pem().to_owned()),
        front_proxy_names: vec![front_proxy_user.user.to_owned()],
        front_proxy: Some(data.front_proxy_ca.issue_client(&front_proxy_user, VALIDITY)?),
        node_client: Some(data.master("freehold-apiserver")?),
        service_account_key: data.service_account_key.clone(),
        cache: Default::default(),
        limits: Limits::default(),
        own_store: args.etcd.is_empty(),
    };
    let server = config.build().await?;
    let mut address = server.local_addr();
    if address.ip().is_unspecified() {
        address.set_ip(if address.is_ipv6() {
            [0, 0, 0, 0, 0, 0, 0, 1].into()
        } else {
            [127, 0, 0, 1].into()
        });
    }
    let local_url = format!("https://{address}");
    let external_url = args.external_url.clone().unwrap_or_else(|| local_url.clone());
    Ok((server, Serving { data, local_url, external_url, images }))
}

fn parse_image(text: &str) -> Result<(String, PathBuf)> {
    let (name, path) =
        text.split_once('=').with_context(|| format!("--image wants IMAGE=PATH, not {text:?}"))?;
    Ok((name.to_owned(), path.into()))
}

/// Runs until Ctrl-C or SIGTERM.
pub(crate) async fn run(args: Args) -> Result<()> {
    let stop = stop::on_signal()?;
    let (server, serving) = serve(&args).await?;
    let kubeconfig = serving.data.write_admin_kubeconfig(&serving.external_url)?;
    // The server outlives its clients: they finish their work, a node stops its processes, and only then it goes.
    let server_stop = CancellationToken::new();
    let running = tokio::spawn(server.run(server_stop.clone()));
    let components = components::start(&serving, stop.clone()).await?;
    announce(&serving.external_url, &kubeconfig)?;
    stop.cancelled().await;
    eprintln!("freehold: stopping");
    let _ = tokio::time::timeout(components::STOP, components.finished()).await;
    server_stop.cancel();
    running.await.context("the server ended badly")
}

/// Tells scripts that the server is ready, in one line, and people what they can do now.
fn announce(url: &str, kubeconfig: &Path) -> Result<()> {
    let file = kubeconfig.display();
    let program = std::env::args_os().next().unwrap_or_else(|| "freehold".into());
    let program = Path::new(&program).display();
    let mut out = std::io::stdout().lock();
    writeln!(out, "ready url={url} kubeconfig={file}")?;
    writeln!(out, "\nFreehold serves {url}; Ctrl-C stops it, and everything is kept.")?;
    writeln!(out, "The admin's kubeconfig is {file}\n\nTry, in another terminal:\n")?;
    writeln!(out, "  export KUBECONFIG={file}")?;
    writeln!(
        out,
        "  kubectl apply -f examples/first-project.yaml && kubectl wait --for=condition=Ready project/web"
    )?;
    writeln!(out, "  {program} kubeconfig web > web.kubeconfig")?;
    writeln!(out, "  kubectl --kubeconfig web.kubeconfig get namespaces")?;
    out.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_names_where_clients_reach_the_server() {
        let names = names([0, 0, 0, 0].into(), Some("https://plane.example.com:6443/x"));
        assert!(names.contains(&"plane.example.com".to_owned()), "{names:?}");
        assert!(!names.contains(&"0.0.0.0".to_owned()), "{names:?}");
        assert_eq!(host("https://[fd00::1]:7443"), Some("fd00::1"));
        assert_eq!(host("http://a"), None);
        assert_eq!(host("https://:1"), None);
    }
}
