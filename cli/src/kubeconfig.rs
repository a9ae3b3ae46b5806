//! `freehold kubeconfig PROJECT`: prints a kubeconfig for a project, with the caller's own identity, or with that of the
//! project's admin, which the project controller keeps in a Secret.

mod address;
pub(crate) mod change;
mod exec;
mod masters;
pub(crate) mod own;

pub(crate) use exec::VERSION as EXEC_VERSION;

use address::Address;
use anyhow::{Context, Result, anyhow, bail};
use freehold_api::keys;
use freehold_client::{Client, Config, Identity, Resource};
use freehold_machinery::user::MASTERS;
use freehold_pki::{CertificateInfo, certificates_der};
use masters::Masters;
use std::{
    ffi::OsString,
    io::{ErrorKind, Write},
    path::{Path, PathBuf},
};

/// Flags of `freehold kubeconfig`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The project.
    project: String,
    /// Use the identity of the project's admin, which is not a person's and which owners can read. Members of
    /// system:masters on the platform always get it, so that no file of a project contains their own identity.
    #[arg(long)]
    admin: bool,
    /// Kubeconfig of the caller. Default: the first of $KUBECONFIG, otherwise data/admin.kubeconfig or ~/.kube/config.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Use the control plane's own host, PROJECT.DOMAIN, instead of its path, if the server was started with this
    /// --domain.
    #[arg(long, value_parser = crate::names::domain)]
    domain: Option<String>,
    /// Keep the server's address, and name the host in TLS only, so that it needs no DNS entry.
    #[arg(long, requires = "domain")]
    keep_address: bool,
}

/// What `freehold up` writes where it is told no other data directory.
const DEFAULT: &str = "data/admin.kubeconfig";

/// The kubeconfig to use. An empty variable counts for nothing, as with kubectl.
pub(crate) fn chosen(flag: Option<PathBuf>, variable: Option<OsString>) -> PathBuf {
    chosen_at(flag, variable, std::env::home_dir())
}

fn chosen_at(flag: Option<PathBuf>, variable: Option<OsString>, home: Option<PathBuf>) -> PathBuf {
    let named = || std::env::split_paths(&variable?).find(|path| !path.as_os_str().is_empty());
    flag.or_else(named).unwrap_or_else(|| default(home))
}

/// The kubeconfig of a server that was started here, otherwise kubectl's.
fn default(home: Option<PathBuf>) -> PathBuf {
    let own = home.map(|home| home.join(".kube/config")).filter(|_| !Path::new(DEFAULT).exists());
    own.unwrap_or_else(|| DEFAULT.into())
}

pub(crate) fn found(flag: Option<PathBuf>) -> Result<PathBuf> {
    let named = flag.is_some();
    let kubeconfig = chosen(flag, std::env::var_os("KUBECONFIG"));
    if !kubeconfig.exists() && named {
        bail!("there is no kubeconfig {}", kubeconfig.display());
    }
    if !kubeconfig.exists() {
        bail!("there is no kubeconfig {}: name the admin's with --kubeconfig", kubeconfig.display());
    }
    Ok(kubeconfig)
}

/// The config of an admin or owner.
pub(crate) fn admin(flag: Option<PathBuf>) -> Result<Config> {
    let path = found(flag)?;
    let mut config = Config::from_kubeconfig(&path)?;
    if matches!(config.identity, Identity::None)
        && let Some(identity) = exec::identity(&path)?
    {
        config.identity = identity;
    }
    Ok(config)
}

/// The config of an admin or owner, at the platform, though their current context may be that of a project or an organization.
///
/// # Errors
/// There is no kubeconfig, or it can't be read.
pub(crate) fn platform(flag: Option<PathBuf>) -> Result<Config> {
    let mut config = admin(flag)?;
    config.server = own::root(&config.server).to_owned();
    Ok(config)
}

/// What the admin of a project signs in with.
pub(crate) async fn of_project(client: &Client, caller: &Config, name: &str) -> Result<Masters> {
    let projects = Resource::cluster("resourcemanager.freehold.dev", "v1alpha1", "projects");
    let project = client.get(&projects, None, name).await?;
    let Some(organization) = project["spec"]["ownerRef"]["name"].as_str() else {
        bail!("project {name:?} has no owner");
    };
    let namespace = keys::organization_namespace(organization);
    let secrets = Resource::namespaced("", "v1", "secrets");
    let secret = keys::kubeconfig_secret(name);
    let found = client.get(&secrets, Some(&namespace), &secret).await.map_err(|error| match error {
        error if error.is_not_found() => {
            anyhow!("project {name:?} has no kubeconfig yet; wait for its condition Ready")
        }
        error => anyhow!(error).context(format!("the kubeconfig of project {name:?} can't be read")),
    })?;
    Masters::read(&project, &found, caller)
        .with_context(|| format!("Secret {secret:?} was changed; wait until the controller recreates it"))
}

/// Whether an identity is in `system:masters`. A file with it would give the whole platform away.
fn is_master(identity: &Identity) -> bool {
    let Identity::ClientCert { cert_pem, .. } = identity else { return false };
    let info = certificates_der(cert_pem).ok().and_then(|ders| CertificateInfo::parse(ders.first()?).ok());
    info.is_some_and(|info| {
        info.planes().is_empty() && info.organizations.iter().any(|group| group == MASTERS)
    })
}

/// Prints a kubeconfig for a project.
pub(crate) async fn run(args: Args) -> Result<()> {
    own::check_name(&args.project)?;
    let path = found(args.kubeconfig.clone())?;
    let host = |server: &str| address(&args, server);
    // What a plugin says is not asked for: only a certificate tells that somebody is a master.
    let caller = Config::from_kubeconfig(&path);
    let text = if args.admin || caller.as_ref().is_ok_and(|caller| is_master(&caller.identity)) {
        let mut caller = caller?;
        caller.server = own::root(&caller.server).to_owned();
        let client = Client::new(&caller)?;
        of_project(&client, &caller, &args.project).await?.kubeconfig(host)?
    } else {
        let own = std::fs::read_to_string(&path)?;
        own::turned(&own, path.parent().unwrap_or(Path::new("")), &args.project, host)?
    };
    match std::io::stdout().write_all(text.as_bytes()) {
        // A pipe into `head` is no failure.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}

/// The address of the project's own host, where that is asked for.
fn address(args: &Args, server: &str) -> Result<Option<Address>> {
    let Some(domain) = &args.domain else { return Ok(None) };
    anyhow::ensure!(!args.project.contains('.'), "a project with dots in its name has no host of its own");
    let host = format!("{}.{domain}", args.project);
    let address = freehold_pki::host_address(server, &host, args.keep_address);
    address.map(Some).context("the kubeconfig's server is not https")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_comes_before_the_variable_and_an_empty_variable_counts_for_nothing() {
        let rows = [
            (Some("a"), Some("b"), "a"),
            (None, Some("b"), "b"),
            (None, Some(":b:c"), "b"),
            (None, Some(""), "/home/ann/.kube/config"),
            (None, None, "/home/ann/.kube/config"),
        ];
        for (flag, variable, expected) in rows {
            let path =
                chosen_at(flag.map(PathBuf::from), variable.map(OsString::from), Some("/home/ann".into()));
            assert_eq!(path, PathBuf::from(expected), "{flag:?} {variable:?}");
        }
        assert_eq!(default(None), PathBuf::from(DEFAULT));
    }
}
