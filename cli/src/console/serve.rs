//! `freehold console serve`: the console as a program of its own, beside API servers elsewhere.

use super::{OidcArgs, origin};
use crate::stop;
use anyhow::{Context, Result, ensure};
use freehold_client::{Config as ClientConfig, Identity};
use freehold_gateway::{CertificateFiles, Config, Gateway, PREFIX};
use std::{io::Write, net::SocketAddr, path::PathBuf, sync::Arc};
use tokio::net::TcpListener;

/// Flags of `freehold console serve`.
#[derive(clap::Args)]
pub(super) struct Args {
    /// The URL of the API servers.
    #[arg(long, value_name = "URL")]
    server: String,
    /// File with the authority of their certificate.
    #[arg(long, value_name = "FILE")]
    server_ca: PathBuf,
    /// The API servers' URL in kubeconfigs. Default: --server.
    #[arg(long, value_name = "URL")]
    external_url: Option<String>,
    /// The console's own URL, as browsers have it: https://HOST[:PORT]. Sessions count there alone.
    #[arg(long, value_name = "URL")]
    console_url: String,
    /// The address to listen on.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8443")]
    listen: SocketAddr,
    /// File with the console's certificate. A renewed one is taken within a minute.
    #[arg(long, value_name = "FILE")]
    tls_cert_file: PathBuf,
    /// File with the certificate's key.
    #[arg(long, value_name = "FILE")]
    tls_private_key_file: PathBuf,
    #[command(flatten)]
    oidc: OidcArgs,
}

/// Serves until Ctrl-C or SIGTERM.
pub(super) async fn run(args: Args) -> Result<()> {
    let stop = stop::on_signal()?;
    ensure!(
        args.console_url.starts_with("https://"),
        "--console-url must be https://..., not {:?}",
        args.console_url
    );
    let own = origin(&args.console_url)?;
    let authority = crate::store::read(&args.server_ca)?;
    let gateway = Gateway::new(Config {
        upstream: ClientConfig::new(&args.server, &authority, Identity::None),
        public_url: args.external_url.unwrap_or(args.server),
        oidc: args.oidc.config(&own)?,
        origin: Some(own.clone()),
        links: None,
    })?;
    let listener = TcpListener::bind(args.listen)
        .await
        .with_context(|| format!("failed to listen on {}", args.listen))?;
    let address = listener.local_addr()?;
    writeln!(std::io::stdout(), "ready url={own}{PREFIX} listen={address}")?;
    let files = CertificateFiles { cert: args.tls_cert_file, key: args.tls_private_key_file };
    Ok(Arc::new(gateway).listen(listener, files, stop).await?)
}
