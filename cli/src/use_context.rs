//! `freehold use`: makes a project, an organization or the platform the current context of a kubeconfig, as the user of
//! its present one.

use crate::kubeconfig::{
    change::{Additions, Files, free_name},
    own,
};
use anyhow::{Result, ensure};
use freehold_api::urls::{organization_url, project_url};
use freehold_machinery::Value;
use serde_json::json;
use std::path::PathBuf;

/// Flags of `freehold use`.
#[derive(clap::Args)]
#[command(group(clap::ArgGroup::new("target").required(true).args(["project", "organization", "platform"])))]
pub(crate) struct Args {
    /// The project.
    project: Option<String>,
    /// An organization's view in place of a project.
    #[arg(long = "org", value_name = "ORGANIZATION")]
    organization: Option<String>,
    /// The platform itself in place of a project.
    #[arg(long)]
    platform: bool,
    /// The file to change. Default: the first of $KUBECONFIG, otherwise data/admin.kubeconfig or ~/.kube/config.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
}

/// Where a context leads.
enum Target<'a> {
    Project(&'a str),
    Organization(&'a str),
    Platform,
}

impl Target<'_> {
    /// The name of the context and of its cluster.
    fn name(&self) -> String {
        match self {
            Self::Project(name) => (*name).to_owned(),
            Self::Organization(name) => format!("organization/{name}"),
            Self::Platform => "platform".to_owned(),
        }
    }

    fn url(&self, root: &str) -> String {
        match self {
            Self::Project(name) => project_url(root, name),
            Self::Organization(name) => organization_url(root, name),
            Self::Platform => root.to_owned(),
        }
    }
}

/// Changes the file.
///
/// # Errors
/// The file can't be read or written, or lacks what its current context names.
pub(crate) fn run(args: &Args) -> Result<()> {
    let files = Files::chosen(args.kubeconfig.clone());
    let target = match (&args.project, &args.organization) {
        (Some(name), _) => {
            own::check_name(name)?;
            Target::Project(name)
        }
        (None, Some(name)) => {
            own::check_name(name)?;
            Target::Organization(name)
        }
        (None, None) => Target::Platform,
    };
    let name = files.change(|merged| {
        let has_current = merged["current-context"].as_str().is_some_and(|name| !name.is_empty());
        ensure!(has_current, "{} is empty or has no current-context", files.first().display());
        additions(merged, &target)
    })?;
    println!("Switched to context {name:?} in {}.", files.first().display());
    Ok(())
}

/// A context for the target, with the user of the current one.
fn additions(merged: &Value, target: &Target<'_>) -> Result<Additions> {
    let current = merged["current-context"].as_str().unwrap_or_default();
    let context = own::entry(merged, "contexts", "context", current)?;
    let refers = |field: &str| context[field].as_str().unwrap_or_default();
    let mut cluster = own::entry(merged, "clusters", "cluster", refers("cluster"))?.clone();
    let server = target.url(own::root(cluster["server"].as_str().unwrap_or_default()));
    let name = free_name(merged, &target.name(), &server);
    cluster["server"] = server.into();
    let mut made = json!({"cluster": name, "user": refers("user")});
    if matches!(target, Target::Project(_)) {
        made["namespace"] = "default".into();
    }
    Ok(Additions {
        cluster: Some(json!({"name": name, "cluster": cluster})),
        user: None,
        context: json!({"name": name, "context": made}),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "apiVersion: v1\nkind: Config\ncurrent-context: web\npreferences: {colors: true}\nclusters:\n\
        - {name: web, cluster: {server: 'https://h:7443/projects/web', certificate-authority: ca.crt}}\nusers:\n\
        - {name: ann, user: {token: t}}\ncontexts:\n\
        - {name: web, context: {cluster: web, user: ann, namespace: shop}}\n";

    fn made(target: &Target<'_>) -> Additions {
        additions(&freehold_client::kubeconfig_as(OWN).unwrap(), target).unwrap()
    }

    #[test]
    fn a_context_has_the_same_user_and_authority() {
        let made = made(&Target::Organization("acme"));
        let cluster =
            json!({"server": "https://h:7443/organizations/acme", "certificate-authority": "ca.crt"});
        assert_eq!(made.cluster.unwrap(), json!({"name": "organization/acme", "cluster": cluster}));
        let context = json!({"cluster": "organization/acme", "user": "ann"});
        assert_eq!(made.context, json!({"name": "organization/acme", "context": context}));
    }

    #[test]
    fn a_context_of_that_name_and_server_is_replaced() {
        let made = made(&Target::Project("web"));
        assert_eq!(made.context["name"], "web");
        assert_eq!(made.context["context"]["namespace"], "default");
        assert_eq!(made.cluster.unwrap()["cluster"]["server"], "https://h:7443/projects/web");
    }
}
