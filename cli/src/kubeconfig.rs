//! `freehold kubeconfig PROJECT`: prints the kubeconfig that the project controller keeps in a Secret.

use anyhow::{Context, Result, bail};
use base64::{Engine, prelude::BASE64_STANDARD};
use freehold_api::keys;
use freehold_client::{Client, Config, Resource};
use std::{ffi::OsString, io::Write, path::PathBuf};

/// Flags of `freehold kubeconfig`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The project.
    project: String,
    /// The kubeconfig of an admin or owner. Default: the first of $KUBECONFIG, otherwise data/admin.kubeconfig.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// The control plane's own host, PROJECT.DOMAIN, in place of its path, where the server was started with this --domain.
    #[arg(long, value_parser = crate::core::domain)]
    domain: Option<String>,
    /// Keep the server's address, and ask for the host in TLS alone: it needs no entry in DNS then.
    #[arg(long, requires = "domain")]
    keep_address: bool,
}

/// What `freehold up` writes where it is told no other data directory.
const DEFAULT: &str = "data/admin.kubeconfig";

/// The kubeconfig to use. An empty variable counts for nothing, as with kubectl.
pub(crate) fn chosen(flag: Option<PathBuf>, variable: Option<OsString>) -> PathBuf {
    let named = || std::env::split_paths(&variable?).find(|path| !path.as_os_str().is_empty());
    flag.or_else(named).unwrap_or_else(|| DEFAULT.into())
}

/// The config of an admin or owner.
pub(crate) fn admin(flag: Option<PathBuf>) -> Result<Config> {
    let kubeconfig = chosen(flag, std::env::var_os("KUBECONFIG"));
    if !kubeconfig.exists() {
        bail!("there is no kubeconfig {}: name that of an admin with --kubeconfig", kubeconfig.display());
    }
    Ok(Config::from_kubeconfig(&kubeconfig)?)
}

/// The kubeconfig of a project.
pub(crate) async fn of_project(client: &Client, name: &str) -> Result<String> {
    let projects = Resource::cluster("resourcemanager.freehold.dev", "v1alpha1", "projects");
    let project = client.get(&projects, None, name).await?;
    let Some(organization) = project["spec"]["ownerRef"]["name"].as_str() else {
        bail!("project {name:?} has no owner");
    };
    let namespace = keys::organization_namespace(organization);
    let secrets = Resource::namespaced("", "v1", "secrets");
    let secret = client
        .get(&secrets, Some(&namespace), &keys::kubeconfig_secret(name))
        .await
        .with_context(|| format!("project {name:?} has no kubeconfig yet; wait for its condition Ready"))?;
    let data = secret["data"][keys::KUBECONFIG_KEY].as_str().context("the Secret has no kubeconfig in it")?;
    let bytes = BASE64_STANDARD.decode(data).context("the Secret's kubeconfig is not base64")?;
    String::from_utf8(bytes).context("the Secret's kubeconfig is no text")
}

/// Prints the kubeconfig of a project.
pub(crate) async fn run(args: Args) -> Result<()> {
    let client = Client::new(&admin(args.kubeconfig)?)?;
    let mut text = of_project(&client, &args.project).await?;
    if let Some(domain) = &args.domain {
        anyhow::ensure!(
            !args.project.contains('.'),
            "a project with dots in its name has no host of its own"
        );
        let host = format!("{}.{domain}", args.project);
        text = freehold_pki::at_host(&text, &host, args.keep_address)
            .context("the kubeconfig is no https one")?;
    }
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
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
            (None, Some(""), DEFAULT),
            (None, None, DEFAULT),
        ];
        for (flag, variable, expected) in rows {
            let path = chosen(flag.map(PathBuf::from), variable.map(OsString::from));
            assert_eq!(path, PathBuf::from(expected), "{flag:?} {variable:?}");
        }
    }
}
