//! The console: its flags, and the one-time links with which people sign in on a machine that holds the authorities.
//!
//! A link is a file in the data directory, named by the hash of its code. Whoever may write there may do everything anyway.
//! Its first use removes it.

mod serve;

use crate::pki::{Pki, VALIDITY, write};
use anyhow::{Context, Result, ensure};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use freehold_apiserver::{CertificateTokens, Pages, PagesHandler, Payload};
use freehold_client::{Config as ClientConfig, Identity, Kubeconfig};
use freehold_gateway::{Config, Credentials, Gateway, Links, OidcConfig};
use freehold_machinery::user::MASTERS;
use freehold_pki::{Authority, ClientName, Pair};
use serde::{Deserialize, Serialize};
use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    time::{Duration, SystemTime},
};

/// The folder of links, in a data directory.
const FOLDER: &str = "console-links";
/// For how long a link can be used.
const LIFE: Duration = Duration::from_secs(10 * 60);
/// Links at a time.
const LINKS: usize = 100;
/// The life of a session's certificate: somewhat longer than a session.
const CERTIFICATE: Duration = Duration::from_secs(13 * 3600);

/// Flags of the console.
#[derive(Clone, clap::Args)]
#[command(next_help_heading = "Console")]
pub(crate) struct ConsoleArgs {
    /// Serve no console at /console/.
    #[arg(long)]
    no_console: bool,
    #[command(flatten)]
    oidc: OidcArgs,
}

/// Flags of signing in to the console at an issuer.
#[derive(Clone, clap::Args)]
#[command(next_help_heading = "Console")]
struct OidcArgs {
    /// OpenID Connect issuer where people sign in to the console. --authentication-config has to accept its ID tokens.
    #[arg(long, value_name = "URL", requires = "console_oidc_client_id")]
    console_oidc_issuer: Option<String>,
    /// The console's client id at that issuer.
    #[arg(long, value_name = "ID", requires = "console_oidc_issuer")]
    console_oidc_client_id: Option<String>,
    /// File with the console's secret at that issuer, for a confidential client.
    #[arg(long, value_name = "FILE", requires = "console_oidc_issuer")]
    console_oidc_client_secret_file: Option<PathBuf>,
    /// File with the authority of the issuer's certificate. Default: those that this machine trusts.
    #[arg(long, value_name = "FILE", requires = "console_oidc_issuer")]
    console_oidc_ca_file: Option<PathBuf>,
    /// Scopes to ask for besides openid.
    #[arg(long, value_name = "SCOPES", value_delimiter = ',', default_value = "profile,email")]
    console_oidc_scopes: Vec<String>,
}

/// A console whose server may not listen yet.
#[derive(Clone, Default)]
pub(crate) struct Console {
    gateway: Arc<OnceLock<Gateway>>,
    /// What sessions that began with a link show the server in place of their certificates, so that they share connections.
    tokens: CertificateTokens,
}

impl Console {
    /// What the server serves; `None` where the console is switched off.
    pub(crate) fn pages(&self, args: &ConsoleArgs) -> Option<Pages> {
        let gateway = self.gateway.clone();
        let handler: PagesHandler = Arc::new(move |request| {
            let gateway = gateway.clone();
            Box::pin(async move {
                match gateway.get() {
                    Some(gateway) => gateway.answer(request).await.map(Payload::Boxed),
                    None => starting(),
                }
            })
        });
        let tokens = self.tokens.clone();
        (!args.no_console).then_some(Pages { prefix: freehold_gateway::PREFIX, handler, tokens })
    }

    /// Connects it with its server, which takes `certificates_only` or tokens too.
    pub(crate) fn start(
        &self,
        args: &ConsoleArgs,
        (local_url, external_url): (&str, &str),
        pki: &Pki,
        (links, certificates_only): (PathBuf, bool),
    ) -> Result<()> {
        let authority = pki.ca.clone();
        let tokens = (!certificates_only).then(|| self.tokens.clone());
        let links: Arc<dyn Links> = Arc::new(Folder { folder: links, authority, tokens });
        let origin = origin(external_url)?;
        let gateway = Gateway::new(Config {
            upstream: ClientConfig::new(local_url, pki.ca.cert_pem(), Identity::None),
            public_url: external_url.to_owned(),
            oidc: args.oidc.config(&origin)?,
            origin: Some(origin),
            links: Some(links),
        })?;
        ensure!(self.gateway.set(gateway).is_ok(), "the console was started twice");
        Ok(())
    }
}

fn starting() -> http::Response<Payload> {
    let mut reply = http::Response::new(Payload::empty());
    *reply.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE;
    reply
}

impl ConsoleArgs {
    /// Whether there is a console.
    pub(crate) fn is_on(&self) -> bool {
        !self.no_console
    }
}

impl OidcArgs {
    fn config(&self, origin: &str) -> Result<Option<OidcConfig>> {
        let (Some(issuer), Some(client_id)) = (&self.console_oidc_issuer, &self.console_oidc_client_id)
        else {
            return Ok(None);
        };
        ensure!(issuer.starts_with("https://"), "--console-oidc-issuer must be https://..., not {issuer:?}");
        let read = |path: &Option<PathBuf>| path.as_deref().map(crate::store::read).transpose();
        Ok(Some(OidcConfig {
            issuer: issuer.clone(),
            client_id: client_id.clone(),
            client_secret: read(&self.console_oidc_client_secret_file)?.map(|text| text.trim().to_owned()),
            scopes: self.console_oidc_scopes.clone(),
            ca_pem: read(&self.console_oidc_ca_file)?,
            origin: origin.to_owned(),
        }))
    }
}

/// `https://HOST[:PORT]` of a URL.
fn origin(url: &str) -> Result<String> {
    let uri: http::Uri = url.parse().with_context(|| format!("{url:?} is no URL"))?;
    let authority = uri.authority().with_context(|| format!("{url:?} names no host"))?;
    Ok(format!("https://{authority}"))
}

/// Whom a link signs in.
#[derive(Serialize, Deserialize)]
struct Link {
    user: String,
    groups: Vec<String>,
    /// Seconds since 1970.
    expires: u64,
}

fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(u64::MAX, |passed| passed.as_secs())
}

/// The links of a data directory, and the authority that vouches for those who use them.
struct Folder {
    folder: PathBuf,
    authority: Arc<Authority>,
    /// What stands for certificates; `None` where the server takes certificates alone.
    tokens: Option<CertificateTokens>,
}

impl Folder {
    fn credentials(&self, link: &Link) -> Result<Credentials> {
        let name = ClientName { user: &link.user, groups: &link.groups, plane: None };
        let Pair { cert_pem, key_pem } = self.authority.issue_client(&name, CERTIFICATE.min(VALIDITY))?;
        let Some(tokens) = &self.tokens else { return Ok(Credentials::Certificate { cert_pem, key_pem }) };
        let lease = tokens.issue(&cert_pem)?;
        Ok(Credentials::Leased { token: lease.secret().to_owned(), lease: Arc::new(lease) })
    }
}

/// The file of a code: its hash, so that the folder's content signs nobody in.
fn file_of(code: &str) -> String {
    uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_URL, format!("freehold-console-link:{code}").as_bytes())
        .to_string()
}

impl Links for Folder {
    fn redeem(&self, code: &str) -> Option<Credentials> {
        let taken = self.folder.join(format!("{}.used", uuid::Uuid::new_v4()));
        // Of several who use a link at once, one renames it.
        fs::rename(self.folder.join(file_of(code)), &taken).ok()?;
        let text = fs::read(&taken);
        let removed = fs::remove_file(&taken);
        let link: Link = serde_json::from_slice(&text.ok()?).ok()?;
        removed.ok()?;
        if now() >= link.expires {
            return None;
        }
        let issued = self.credentials(&link);
        issued.inspect_err(|error| tracing::error!(%error, "failed to issue a session's certificate")).ok()
    }
}

/// The folder of links in a data directory.
pub(crate) fn folder(data: &Path) -> PathBuf {
    data.join(FOLDER)
}

/// Makes a link that signs somebody in once.
pub(crate) fn link(data: &Path, url: &str, user: &str, groups: Vec<String>) -> Result<String> {
    let folder = folder(data);
    fs::create_dir_all(&folder).with_context(|| format!("{} can't be created", folder.display()))?;
    tidy(&folder)?;
    let random = [uuid::Uuid::new_v4(), uuid::Uuid::new_v4()].map(uuid::Uuid::into_bytes).concat();
    let code = URL_SAFE_NO_PAD.encode(random);
    let link = Link { user: user.to_owned(), groups, expires: now().saturating_add(LIFE.as_secs()) };
    write(&folder.join(file_of(&code)), &serde_json::to_string(&link)?)?;
    // Behind the mark, where browsers keep it from servers, logs and referrers.
    Ok(format!("{}/console/login#code={code}", origin(url)?))
}

/// Removes links that have expired.
fn tidy(folder: &Path) -> Result<()> {
    let mut left = 0;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let link = fs::read(&path).ok().and_then(|text| serde_json::from_slice::<Link>(&text).ok());
        if link.is_none_or(|link| link.expires <= now()) {
            // Whoever used it was faster.
            let _ = fs::remove_file(&path);
        } else {
            left += 1;
        }
    }
    ensure!(
        left < LINKS,
        "{LINKS} links wait to be used in {}: wait ten minutes, or remove them",
        folder.display()
    );
    Ok(())
}

/// Flags of `freehold console`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Prints a link that signs in to the console of a running `freehold up`, once, within ten minutes.
    Link(LinkArgs),
    /// Serves the console beside API servers elsewhere. It has no rights of its own: people sign in with a token or at an issuer.
    Serve(Box<serve::Args>),
}

#[derive(clap::Args)]
struct LinkArgs {
    /// The data directory of the server.
    #[arg(long, default_value = "data")]
    data_dir: PathBuf,
    /// Sign in as this user of the platform. Default: the admin.
    #[arg(long)]
    user: Option<String>,
    /// A group of that user; repeatable.
    #[arg(long = "group", requires = "user")]
    groups: Vec<String>,
}

/// Runs `freehold console`.
pub(crate) async fn run(args: Args) -> Result<()> {
    match args.command {
        Command::Link(args) => print_link(args),
        Command::Serve(args) => serve::run(*args).await,
    }
}

fn print_link(args: LinkArgs) -> Result<()> {
    let kubeconfig = args.data_dir.join("admin.kubeconfig");
    let text = fs::read_to_string(&kubeconfig).with_context(|| {
        format!("{} can't be read: is --data-dir that of a server?", kubeconfig.display())
    })?;
    let server = Kubeconfig::parse(&text)?.config(None, args.data_dir.as_path().into())?.server;
    let (user, groups) = match args.user {
        Some(user) => (user, args.groups),
        None => ("admin".to_owned(), vec![MASTERS.to_owned()]),
    };
    let link = link(&args.data_dir, &server, &user, groups)?;
    writeln!(std::io::stdout(), "{link}")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_counts_once_and_not_when_it_is_old() {
        let data = tempfile::tempdir().unwrap();
        let authority = Arc::new(Authority::generate("test").unwrap());
        let tokens = Some(CertificateTokens::default());
        let links = Folder { folder: folder(data.path()), authority, tokens };
        let url = link(data.path(), "https://127.0.0.1:7443", "jane", vec!["devs".to_owned()]).unwrap();
        let code = url.strip_prefix("https://127.0.0.1:7443/console/login#code=").unwrap();
        assert!(links.redeem("another").is_none());
        assert!(links.redeem("../lock").is_none());
        assert!(matches!(links.redeem(code), Some(Credentials::Leased { .. })));
        assert!(links.redeem(code).is_none(), "used");
        let old = Link { user: "jane".to_owned(), groups: Vec::new(), expires: now() };
        fs::write(folder(data.path()).join(file_of("old")), serde_json::to_string(&old).unwrap()).unwrap();
        assert!(links.redeem("old").is_none(), "expired");
        assert_eq!(fs::read_dir(folder(data.path())).unwrap().count(), 0);
    }
}
