//! `freehold kubeconfig PROJECT`: prints the kubeconfig that the project controller keeps in a Secret.

use anyhow::{Context, Result, bail};
use base64::{Engine, prelude::BASE64_STANDARD};
use freehold_api::keys;
use freehold_client::{Client, Config, Resource};
use std::{io::Write, path::PathBuf};

/// Flags of `freehold kubeconfig`.
#[derive(clap::Args)]
pub struct Args {
    /// The project.
    project: String,
    /// The kubeconfig of an admin or owner.
    #[arg(long, env = "KUBECONFIG", default_value = "data/admin.kubeconfig")]
    kubeconfig: PathBuf,
}

/// Prints the kubeconfig of a project.
pub async fn run(args: Args) -> Result<()> {
    let config = Config::from_kubeconfig(&args.kubeconfig)
        .with_context(|| format!("kubeconfig {} can't be used", args.kubeconfig.display()))?;
    let client = Client::new(&config)?;
    let projects = Resource::cluster("resourcemanager.freehold.dev", "v1alpha1", "projects");
    let project = client.get(&projects, None, &args.project).await?;
    let Some(organization) = project["spec"]["ownerRef"]["name"].as_str() else {
        bail!("project {:?} has no owner", args.project);
    };
    let namespace = keys::organization_namespace(organization);
    let secrets = Resource::namespaced("", "v1", "secrets");
    let secret = client
        .get(&secrets, Some(&namespace), &keys::kubeconfig_secret(&args.project))
        .await
        .with_context(|| format!("project {:?} has no kubeconfig yet; wait for its condition Ready", args.project))?;
    let data = secret["data"][keys::KUBECONFIG_KEY].as_str().context("the Secret has no kubeconfig in it")?;
    std::io::stdout().write_all(&BASE64_STANDARD.decode(data).context("the Secret's kubeconfig is not base64")?)?;
    Ok(())
}
