//! `freehold tenancy proxy`: an address at which members list what is theirs.

use crate::serve::{MetricsArgs, finish, on_signal, scope};
use anyhow::{Context as _, Result};
use freehold_client::{Client, Config};
use freehold_pki::{Authority, write_private};
use freehold_runtime::Metrics;
use freehold_tenancy_proxy::{Proxy, ProxyMetrics};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

/// How long certificates are valid that the proxy makes.
const VALIDITY: Duration = Duration::from_secs(365 * 24 * 3600);

/// Arguments of `freehold tenancy proxy`.
#[derive(clap::Args, Debug)]
pub(crate) struct ProxyArgs {
    /// Address to listen on.
    #[arg(long, default_value = "127.0.0.1:6444")]
    listen: SocketAddr,
    /// Folder of tls.crt, tls.key and ca.crt, as a Secret of cert-manager has them. Where it has no tls.crt, an
    /// authority and a certificate are made in it.
    #[arg(long, default_value = "tenancy-proxy")]
    certificates: PathBuf,
    /// Name or address of a certificate that is made, beside that of --listen; may be given several times.
    #[arg(long = "name")]
    names: Vec<String>,
    /// Authorities of client certificates, PEM. Their holders are impersonated, which takes the role
    /// tenancy.freehold.dev:proxy-certificates. Default: callers need a token.
    #[arg(long, value_name = "FILE")]
    client_ca: Option<PathBuf>,
    #[command(flatten)]
    metrics: MetricsArgs,
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("failed to read {}", path.display()))
}

/// Makes an authority and a certificate in a folder, unless it has one.
fn ensure_certificate(folder: &Path, names: &[String]) -> Result<()> {
    if folder.join("tls.crt").exists() {
        return Ok(());
    }
    let authority = Authority::generate("freehold-tenancy-proxy")?;
    let pair = authority.issue_server(names, VALIDITY)?;
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        write_private(&path, text.as_bytes()).with_context(|| format!("failed to write {}", path.display()))
    };
    std::fs::create_dir_all(folder).with_context(|| format!("failed to make {}", folder.display()))?;
    write("ca.crt", authority.cert_pem())?;
    write("tls.key", &pair.key_pem)?;
    write("tls.crt", &pair.cert_pem)
}

pub(crate) async fn run(config: Config, client: Client, args: ProxyArgs) -> Result<()> {
    let token = on_signal()?;
    let listener = TcpListener::bind(args.listen)
        .await
        .with_context(|| format!("failed to listen on {}", args.listen))?;
    let local = listener.local_addr()?;
    let mut names = vec![local.ip().to_string(), "localhost".to_owned()];
    names.extend(args.names);
    ensure_certificate(&args.certificates, &names)?;
    let metrics = ProxyMetrics::default();
    let counted = metrics.clone();
    args.metrics.serve(Arc::new(move || counted.render()), &token).await?;
    let scope = scope(client, &Metrics::default(), token.clone());
    let proxy = Proxy {
        listener,
        config,
        cert_pem: read(&args.certificates.join("tls.crt"))?,
        key_pem: read(&args.certificates.join("tls.key"))?,
        client_ca_pem: args.client_ca.as_deref().map(read).transpose()?.unwrap_or_default(),
        metrics,
    };
    proxy.start(&scope)?;
    println!(
        "tenancy proxy serves on https://{local}; clients trust {}",
        args.certificates.join("ca.crt").display()
    );
    token.cancelled().await;
    finish(&scope).await;
    Ok(())
}
