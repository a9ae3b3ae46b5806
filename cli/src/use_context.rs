//! `freehold use`: makes a project, an organization or the platform the current context of a kubeconfig, as the user of
//! its present one.

use crate::kubeconfig::{self, own};
use anyhow::{Context as _, Result};
use freehold_api::urls::{organization_url, project_url};
use freehold_machinery::Value;
use serde_json::json;
use std::{
    fs::{self, OpenOptions},
    io::Write,
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

/// Flags of `freehold use`.
#[derive(clap::Args)]
#[group(id = "target", required = true, args = ["project", "organization", "platform"])]
pub(crate) struct Args {
    /// The project.
    project: Option<String>,
    /// An organization's view in place of a project.
    #[arg(long = "org", value_name = "ORGANIZATION")]
    organization: Option<String>,
    /// The platform itself in place of a project.
    #[arg(long)]
    platform: bool,
    /// The file to change. Default: the first of $KUBECONFIG, otherwise data/admin.kubeconfig.
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
    let path = kubeconfig::found(args.kubeconfig.clone())?;
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
    let text = fs::read_to_string(&path).with_context(|| format!("{} can't be read", path.display()))?;
    let changed = turned(freehold_client::kubeconfig_as(&text)?, &target)?;
    replace(&path, &freehold_client::yaml(&changed)?)
        .with_context(|| format!("{} can't be written", path.display()))?;
    println!("Switched to context {:?} in {}.", target.name(), path.display());
    Ok(())
}

/// The kubeconfig with a context for the target, which is its current one. Everything else stays.
fn turned(mut whole: Value, target: &Target<'_>) -> Result<Value> {
    let current = whole["current-context"].as_str().unwrap_or_default();
    let context = own::entry(&whole, "contexts", "context", current)?.clone();
    let refers = |field: &str| context[field].as_str().unwrap_or_default();
    let mut cluster = own::entry(&whole, "clusters", "cluster", refers("cluster"))?.clone();
    let server = cluster["server"].as_str().unwrap_or_default();
    cluster["server"] = target.url(own::root(server)).into();
    let name = target.name();
    let mut made = json!({"cluster": name, "user": refers("user")});
    if matches!(target, Target::Project(_)) {
        made["namespace"] = "default".into();
    }
    put(&mut whole, "clusters", json!({"name": name, "cluster": cluster}))?;
    put(&mut whole, "contexts", json!({"name": name, "context": made}))?;
    whole["current-context"] = name.into();
    Ok(whole)
}

/// Puts an entry into a list of named ones, in place of the one that has its name.
fn put(whole: &mut Value, list: &str, entry: Value) -> Result<()> {
    let entries = whole[list].as_array_mut().with_context(|| format!("the kubeconfig has no {list}"))?;
    match entries.iter_mut().find(|known| known["name"] == entry["name"]) {
        Some(known) => *known = entry,
        None => entries.push(entry),
    }
    Ok(())
}

/// Replaces a file as a whole; who reads it meanwhile sees the old or the new text. Its mode stays.
fn replace(path: &Path, text: &str) -> Result<()> {
    // What a link leads to is replaced, and not the link.
    let path = fs::canonicalize(path)?;
    let mode = fs::metadata(&path)?.permissions().mode();
    let mut beside = path.clone().into_os_string();
    beside.push(format!(".{}", std::process::id()));
    let beside = PathBuf::from(beside);
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode & 0o777).open(&beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, &path)
    })();
    if written.is_err() {
        drop(fs::remove_file(&beside));
    }
    Ok(written?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "apiVersion: v1\nkind: Config\ncurrent-context: web\npreferences: {colors: true}\nclusters:\n\
        - {name: web, cluster: {server: 'https://h:7443/projects/web', certificate-authority: ca.crt}}\nusers:\n\
        - {name: ann, user: {token: t}}\ncontexts:\n\
        - {name: web, context: {cluster: web, user: ann, namespace: shop}}\n";

    fn made(target: &Target<'_>) -> Value {
        turned(freehold_client::kubeconfig_as(OWN).unwrap(), target).unwrap()
    }

    #[test]
    fn a_context_is_added_with_the_same_user_and_the_rest_stays() {
        let made = made(&Target::Organization("acme"));
        assert_eq!(made["current-context"], "organization/acme");
        assert_eq!(made["preferences"]["colors"], true);
        assert_eq!(made["clusters"].as_array().unwrap().len(), 2);
        assert_eq!(made["clusters"][1]["cluster"]["server"], "https://h:7443/organizations/acme");
        assert_eq!(made["clusters"][1]["cluster"]["certificate-authority"], "ca.crt");
        assert_eq!(made["contexts"][1]["context"], json!({"cluster": "organization/acme", "user": "ann"}));
        assert_eq!(made["users"].as_array().unwrap().len(), 1);
    }

    #[test]
    fn a_context_of_that_name_is_replaced() {
        let made = made(&Target::Project("web"));
        assert_eq!(made["contexts"].as_array().unwrap().len(), 1);
        assert_eq!(made["contexts"][0]["context"]["namespace"], "default");
        assert_eq!(made["clusters"][0]["cluster"]["server"], "https://h:7443/projects/web");
    }

    #[test]
    fn a_file_is_replaced_with_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        fs::write(&path, OWN).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        replace(&path, "new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
