//! The caller's own kubeconfig, turned to a project: who they are there is who they are on the platform.

use anyhow::{Context, Result, ensure};
use freehold_api::urls::project_url;
use freehold_machinery::Value;
use serde_json::json;
use std::path::{Path, absolute};

/// What a URL of the server goes on with below its root.
const CONTEXTS: [&str; 4] = ["/organizations/", "/projects/", "/users/", "/planes/"];
/// Fields that name a file.
const FILES: [&str; 4] = ["certificate-authority", "client-certificate", "client-key", "tokenFile"];

/// A kubeconfig with the user and the cluster of the current context of another one, at a project. Paths in that one start at
/// `base`.
///
/// # Errors
/// It can't be read, or lacks what its current context names.
pub(super) fn turned(
    text: &str,
    base: &Path,
    project: &str,
    host: impl FnOnce(&str) -> Result<Option<super::address::Address>>,
) -> Result<String> {
    let whole: Value = freehold_client::kubeconfig_as(text)?;
    let current = whole["current-context"].as_str().unwrap_or_default();
    ensure!(!current.is_empty(), "the kubeconfig is empty or has no current-context");
    let context = entry(&whole, "contexts", "context", current)?;
    let refers = |field: &str| context[field].as_str().unwrap_or_default();
    let mut cluster = rebased(entry(&whole, "clusters", "cluster", refers("cluster"))?.clone(), base)?;
    let user = rebased(entry(&whole, "users", "user", refers("user"))?.clone(), base)?;
    let server = cluster["server"].as_str().unwrap_or_default();
    let server = project_url(root(server), project);
    let (server, name) = host(&server)?.unwrap_or((server, None));
    cluster["server"] = server.into();
    if let Some(name) = name {
        cluster["tls-server-name"] = name.into();
    }
    let made = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": project,
        "clusters": [{"name": project, "cluster": cluster}],
        "users": [{"name": project, "user": user}],
        "contexts": [{"name": project, "context": {"cluster": project, "user": project, "namespace": "default"}}],
    });
    // JSON is YAML, and every client reads it.
    Ok(format!("{made:#}\n"))
}

/// What an entry of a list of named ones says.
///
/// # Errors
/// There is none of that name.
pub(crate) fn entry<'a>(whole: &'a Value, list: &str, field: &str, name: &str) -> Result<&'a Value> {
    let found = whole[list].as_array().into_iter().flatten().find(|entry| entry["name"] == name);
    let found = found.map(|entry| &entry[field]).filter(|entry| entry.is_object());
    found.with_context(|| format!("the kubeconfig has no {field} {name:?}"))
}

/// A cluster or a user whose files are named by absolute paths.
///
/// # Errors
/// A path is no text.
pub(crate) fn rebased(mut part: Value, base: &Path) -> Result<Value> {
    for field in FILES {
        if let Some(path) = part.get_mut(field) {
            rebase(path, base)?;
        }
    }
    // A command without a slash is looked for in the PATH.
    if let Some(command) = part.pointer_mut("/exec/command")
        && command.as_str().is_some_and(|command| command.contains('/'))
    {
        rebase(command, base)?;
    }
    Ok(part)
}

fn rebase(path: &mut Value, base: &Path) -> Result<()> {
    if let Some(text) = path.as_str().filter(|text| !text.is_empty()) {
        let whole = absolute(base.join(text))?;
        *path = whole.to_str().context("a path that is no text")?.into();
    }
    Ok(())
}

/// The server's URL without the context that it leads to.
pub(crate) fn root(server: &str) -> &str {
    let path = server.find("://").map_or(0, |at| at + 3);
    let ends = CONTEXTS.iter().filter_map(|context| server[path..].find(context));
    ends.min().map_or(server, |at| &server[..path + at])
}

/// A name that can stand in a URL and a kubeconfig.
///
/// # Errors
/// It is no name of a project.
pub(crate) fn check_name(project: &str) -> Result<()> {
    let problems = freehold_machinery::names::dns1123_subdomain(project);
    ensure!(problems.is_empty(), "{project:?} is no name of a project");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "apiVersion: v1\nkind: Config\ncurrent-context: me\nclusters:\n\
        - {name: other, cluster: {server: https://other}}\n\
        - {name: s, cluster: {server: 'https://projects/users/ann', certificate-authority: ca.crt}}\nusers:\n\
        - name: ann\n  user:\n    exec: {apiVersion: client.authentication.k8s.io/v1, command: ./login, args: [a]}\n\
        contexts:\n- {name: me, context: {cluster: s, user: ann, namespace: x}}\n";

    #[test]
    fn the_callers_own_identity_is_kept_as_it_stands() {
        let made = turned(OWN, Path::new("/home/ann"), "web", |_| Ok(None)).unwrap();
        let made: Value = freehold_client::kubeconfig_as(&made).unwrap();
        let cluster =
            json!({"server": "https://projects/projects/web", "certificate-authority": "/home/ann/ca.crt"});
        assert_eq!(made["clusters"], json!([{"name": "web", "cluster": cluster}]));
        let exec = &made["users"][0]["user"]["exec"];
        assert_eq!(exec["command"], "/home/ann/login");
        assert_eq!((exec["args"][0].as_str(), made["users"].as_array().unwrap().len()), (Some("a"), 1));
    }

    #[test]
    fn a_kubeconfig_that_leads_nowhere_is_refused() {
        for (from, to) in [("current-context: me", "current-context: you"), ("user: ann,", "user: bob,")] {
            assert!(turned(&OWN.replace(from, to), Path::new("/"), "web", |_| Ok(None)).is_err(), "{to}");
        }
        assert!(check_name("web").is_ok() && check_name("../web").is_err() && check_name("").is_err());
    }
}
