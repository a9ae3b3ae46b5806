//! `freehold workflow server`, and accounts for it.

use anyhow::{Context as _, Result, anyhow, bail};
use freehold_client::Config;
use freehold_workflow_server::{App, Authentication, OidcOptions, Options, TlsFiles, create_account, serve};
use freehold_workflow_store::{Credentials, Database, Location, LogStore, Purged, Role};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How often old history is looked for.
const PURGE: Duration = Duration::from_secs(600);

/// Where history is kept.
#[derive(clap::Args, Clone, Debug)]
pub struct HistoryArgs {
    /// A file of SQLite, or postgres://USER@HOST/NAME.
    #[arg(long, default_value = "workflow.db", env = "FREEHOLD_WORKFLOW_DATABASE")]
    pub database: String,
    /// Where logs are kept: a folder, or s3://BUCKET/PREFIX?endpoint=URL&region=NAME with AWS_ACCESS_KEY_ID and
    /// AWS_SECRET_ACCESS_KEY.
    #[arg(long)]
    pub logs: Option<String>,
}

/// Opens the place where logs are kept, with the credentials of the environment.
///
/// # Errors
/// A place that is none.
pub(crate) fn log_store(place: &str) -> Result<LogStore> {
    let text = |name: &str| std::env::var(name).unwrap_or_default();
    let credentials = Credentials {
        access_key: text("AWS_ACCESS_KEY_ID"),
        secret_key: text("AWS_SECRET_ACCESS_KEY"),
        session_token: Some(text("AWS_SESSION_TOKEN")).filter(|token| !token.is_empty()),
    };
    LogStore::open(place, credentials).map_err(|error| anyhow!("--logs: {error}"))
}

impl HistoryArgs {
    /// Opens the history.
    ///
    /// # Errors
    /// An address that is none, or a database that can't be used.
    pub async fn open(&self) -> Result<Database> {
        let location = Location::parse(&self.database)?;
        Database::open(&location).await.with_context(|| format!("history in {location:?}"))
    }
}

/// Arguments of `freehold workflow server`.
#[derive(clap::Args, Clone, Debug)]
pub struct ServerArgs {
    #[command(flatten)]
    history: HistoryArgs,
    /// Where to listen. Without a certificate only on a loopback address.
    #[arg(long, default_value = "127.0.0.1:8090")]
    listen: SocketAddr,
    /// The certificate chain in PEM, read again when it changes.
    #[arg(long, requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The certificate's key in PEM.
    #[arg(long, requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Wants clients to have a certificate that one of these signed.
    #[arg(long, requires = "tls_cert")]
    client_ca: Option<PathBuf>,
    /// The plane or cluster by which controllers record their runs.
    #[arg(long, default_value = "core")]
    plane: String,
    /// Knows callers by local accounts and acts with the kubeconfig's identity, instead of forwarding callers' tokens.
    #[arg(long)]
    stand_alone: bool,
    /// Accepts tokens of this OpenID Connect issuer as well.
    #[arg(long, requires_all = ["stand_alone", "oidc_audience"])]
    oidc_issuer: Option<String>,
    /// The audience of the issuer's tokens.
    #[arg(long)]
    oidc_audience: Option<String>,
    /// Certificates that the issuer's is checked against, in PEM.
    #[arg(long)]
    oidc_ca: Option<PathBuf>,
    /// The claim with the roles viewer, editor and admin.
    #[arg(long, default_value = "roles")]
    oidc_role_claim: String,
    /// Deletes runs from the history so many days after their creation. Default: never.
    #[arg(long)]
    keep_days: Option<u32>,
}

/// Arguments of `freehold workflow account`: the password is read from standard input.
#[derive(clap::Args, Clone, Debug)]
pub struct AccountArgs {
    #[command(flatten)]
    history: HistoryArgs,
    /// The account's name.
    name: String,
    /// viewer, editor or admin.
    #[arg(long, default_value = "viewer")]
    role: String,
}

/// Creates a local account.
///
/// # Errors
/// What is wrong with the name, the role or the password, or a database that can't be used.
pub async fn account(args: AccountArgs) -> Result<()> {
    let role: Role = args.role.parse().map_err(|why: String| anyhow!(why))?;
    let mut password = String::new();
    std::io::stdin().read_line(&mut password).context("the password is read from standard input")?;
    let database = args.history.open().await?;
    create_account(&database, &args.name, password.trim_end_matches(['\r', '\n']), role)
        .await
        .map_err(|why| anyhow!(why))?;
    println!("account {} created with role {}", args.name, role.as_str());
    Ok(())
}

/// Serves until `token` is cancelled.
///
/// # Errors
/// A database, certificate or address that can't be used.
pub async fn run(api: Config, args: ServerArgs, token: CancellationToken) -> Result<()> {
    if args.tls_cert.is_none() && !args.listen.ip().is_loopback() {
        bail!("{} is not a loopback address: give --tls-cert and --tls-key", args.listen);
    }
    let database = args.history.open().await?;
    let tls =
        args.tls_cert.zip(args.tls_key).map(|(cert, key)| TlsFiles { cert, key, client_ca: args.client_ca });
    let oidc = match args.oidc_issuer {
        None => None,
        Some(issuer) => {
            let read =
                |path: &PathBuf| std::fs::read_to_string(path).with_context(|| path.display().to_string());
            Some(OidcOptions {
                issuer,
                audience: args.oidc_audience.unwrap_or_default(),
                ca_pem: args.oidc_ca.as_ref().map(read).transpose()?.unwrap_or_default(),
                name_claim: String::new(),
                role_claim: args.oidc_role_claim,
            })
        }
    };
    let logs = args.history.logs.as_deref().map(log_store).transpose()?;
    let options = Options {
        api,
        plane: args.plane,
        database: database.clone(),
        logs: logs.clone(),
        authentication: if args.stand_alone {
            Authentication::StandAlone(oidc)
        } else {
            Authentication::Forward
        },
        secure_cookies: tls.is_some(),
    };
    let scheme = if tls.is_some() { "https" } else { "http" };
    let serving =
        serve(App::new(options)?, args.listen, tls, token.clone()).await.map_err(|why| anyhow!(why))?;
    println!("serving on {scheme}://{}", serving.address);
    if let Some(days) = args.keep_days {
        tokio::spawn(purge(database, logs, Keep { days, of_each_plane: None }, token));
    }
    serving.ended().await;
    Ok(())
}

/// What of the history is deleted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keep {
    /// Days after which runs go.
    pub(crate) days: u32,
    /// Runs that each plane has at most; `None`: any number.
    pub(crate) of_each_plane: Option<i64>,
}

impl Keep {
    async fn purge(self, database: &Database) -> Result<Purged, freehold_workflow_store::Error> {
        let before = jiff::Timestamp::now().as_millisecond() - i64::from(self.days) * 86_400_000;
        let mut purged = database.purge(before).await?;
        if let Some(keep) = self.of_each_plane {
            let trimmed = database.trim(keep).await?;
            purged.logs.extend(trimmed.logs);
            purged.more |= trimmed.more;
        }
        Ok(purged)
    }
}

/// Deletes what is not kept any longer.
pub(crate) async fn purge(database: Database, logs: Option<LogStore>, keep: Keep, token: CancellationToken) {
    while !token.is_cancelled() {
        let more = match keep.purge(&database).await {
            Ok(purged) => {
                for log in &purged.logs {
                    if let Some(Err(error)) = match &logs {
                        Some(files) => Some(files.remove(log).await),
                        None => None,
                    } {
                        tracing::warn!(%error, "failed to delete a log of a run that is gone");
                    }
                }
                purged.more
            }
            Err(error) => {
                tracing::warn!(%error, "failed to delete old history; will retry");
                false
            }
        };
        let pause = if more { Duration::from_millis(100) } else { PURGE };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = token.cancelled() => return,
        }
    }
}
