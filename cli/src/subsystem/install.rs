//! Applies the objects of a subsystem to any Kubernetes API, and takes them away again.

use crate::terminal;
use anyhow::{Context, Result, bail};
use freehold_client::{Client, DeleteOptions, ListOptions, Resource};
use freehold_machinery::{Value, crd, meta};
use freehold_runtime::Subsystem;
use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

const CRDS: Resource = Resource::cluster("apiextensions.k8s.io", "v1", "customresourcedefinitions");
/// The owner of applied fields.
pub(super) const MANAGER: &str = "freehold-install";
/// Longest wait for a definition to be served, or for it to be gone.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often it is looked at.
const POLL: Duration = Duration::from_millis(100);

/// The group whose kinds are not on each server.
const ADMISSION: &str = "admissionregistration.k8s.io/";

/// Objects of a subsystem beside those that every plane has.
#[derive(Default)]
pub(super) struct Extras {
    /// Objects that are left out where the server has no such kind.
    pub(super) optional: Vec<Value>,
    /// What runs the subsystem in the cluster.
    pub(super) workloads: Vec<Value>,
}

/// Prints the objects of a subsystem as YAML documents.
pub(super) fn print(subsystem: &Subsystem, extras: &Extras) -> Result<()> {
    let (crds, manifests) = ((subsystem.crds)(), (subsystem.manifests)());
    terminal::documents(crds.iter().chain(&manifests).chain(&extras.workloads))
}

/// Applies definitions, waits until they are served, and applies everything else. Returns how many objects it applied.
pub(super) async fn apply(client: &Client, subsystem: &Subsystem, extras: &Extras) -> Result<usize> {
    let crds = (subsystem.crds)();
    for crd in &crds {
        let applied = client.apply(&CRDS, MANAGER, crd).await;
        applied.with_context(|| format!("failed to apply CustomResourceDefinition {:?}", meta::name(crd)))?;
    }
    for crd in &crds {
        wait_established(client, meta::name(crd)).await?;
    }
    Ok(crds.len() + apply_others(client, subsystem, extras).await?)
}

/// Applies what a subsystem has beside its definitions. Returns how many objects it applied.
pub(super) async fn apply_others(client: &Client, subsystem: &Subsystem, extras: &Extras) -> Result<usize> {
    let manifests = (subsystem.manifests)();
    let mut types = Types::new(client);
    let mut applied = 0;
    for object in manifests.iter().chain(&extras.optional).chain(&extras.workloads) {
        let named = || {
            format!(
                "failed to apply {} {:?}",
                object["kind"].as_str().unwrap_or_default(),
                meta::name(object)
            )
        };
        let Some(resource) = types.find_unless_absent(object).await.with_context(named)? else { continue };
        client.apply(&resource, MANAGER, object).await.with_context(named)?;
        applied += 1;
    }
    Ok(applied)
}

/// Refuses while there are objects of a subsystem's kinds.
pub(super) async fn check_empty(client: &Client, subsystem: &Subsystem) -> Result<()> {
    for crd in &(subsystem.crds)() {
        if let Some(left) = remaining(client, crd).await? {
            bail!("there are still objects, such as {left}: delete them, or add --delete-objects");
        }
    }
    Ok(())
}

/// Deletes what [`apply_others`] applied, in the opposite order.
pub(super) async fn remove_others(client: &Client, subsystem: &Subsystem, extras: &Extras) -> Result<()> {
    let manifests = (subsystem.manifests)();
    let mut types = Types::new(client);
    for object in manifests.iter().chain(&extras.optional).rev() {
        let Some(resource) = types.find_unless_absent(object).await? else { continue };
        delete(client, &resource, Some(meta::namespace(object)), meta::name(object)).await?;
    }
    Ok(())
}

/// Deletes the definitions of a subsystem, with all objects of them.
pub(super) async fn remove_definitions(client: &Client, subsystem: &Subsystem) -> Result<()> {
    let crds = (subsystem.crds)();
    for crd in crds.iter().rev() {
        delete(client, &CRDS, None, meta::name(crd)).await?;
    }
    for crd in &crds {
        wait_gone(client, meta::name(crd)).await?;
    }
    Ok(())
}

async fn delete(client: &Client, resource: &Resource, namespace: Option<&str>, name: &str) -> Result<()> {
    match client.delete(resource, namespace, name, &DeleteOptions::default()).await {
        Err(error) if !error.is_not_found() => {
            Err(error).with_context(|| format!("failed to delete {resource} {name:?}"))
        }
        _ => Ok(()),
    }
}

/// An object of a definition's kind, if there is one.
async fn remaining(client: &Client, crd: &Value) -> Result<Option<String>> {
    let spec = &crd["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let version =
        spec["versions"].as_array().into_iter().flatten().find(|version| version["storage"] == true);
    let version = version.map(|version| text(&version["name"])).unwrap_or_default();
    let plural = text(&spec["names"]["plural"]);
    let resource = Resource::dynamic(text(&spec["group"]), version, plural, spec["scope"] == "Namespaced");
    let options = ListOptions { limit: 1, ..ListOptions::default() };
    match client.list(&resource, None, &options).await {
        Ok(list) => Ok(list.items.first().map(|object| {
            let (namespace, name) = (meta::namespace(object), meta::name(object));
            let place = if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") };
            format!("{resource} {place}")
        })),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

async fn wait_established(client: &Client, name: &str) -> Result<()> {
    let started = Instant::now();
    loop {
        let crd = client.get(&CRDS, None, name).await?;
        if crd::is_established(&crd) {
            return Ok(());
        }
        if started.elapsed() > PATIENCE {
            bail!("CustomResourceDefinition {name:?} is not Established: look at its conditions");
        }
        tokio::time::sleep(POLL).await;
    }
}

async fn wait_gone(client: &Client, name: &str) -> Result<()> {
    let started = Instant::now();
    while client.get_opt(&CRDS, None, name).await?.is_some() {
        if started.elapsed() > PATIENCE {
            bail!("CustomResourceDefinition {name:?} is still being deleted: an object has a finalizer");
        }
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}

/// The types that a server has, by group and version, read when they are needed.
struct Types<'a> {
    client: &'a Client,
    known: HashMap<String, Value>,
}

impl<'a> Types<'a> {
    fn new(client: &'a Client) -> Self {
        Self { client, known: HashMap::new() }
    }

    /// The type of an object; `None` for a kind of admission that the server does not have. It never gets one later.
    async fn find_unless_absent(&mut self, object: &Value) -> Result<Option<Resource>> {
        let text = |key: &str| object[key].as_str().unwrap_or_default();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        if api_version.starts_with(ADMISSION) {
            let list = self.client.get_path(&format!("/apis/{api_version}")).await?;
            if pick(&list, api_version, kind).is_none() {
                tracing::warn!(kind, name = meta::name(object), "left out: the server has no such kind");
                return Ok(None);
            }
        }
        self.find(object).await.map(Some)
    }

    /// The type of an object. One that was just defined may take a moment to be discovered.
    async fn find(&mut self, object: &Value) -> Result<Resource> {
        let text = |key: &str| object[key].as_str().unwrap_or_default();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        let started = Instant::now();
        loop {
            if let Some(found) = self.known.get(api_version).and_then(|list| pick(list, api_version, kind)) {
                return Ok(found);
            }
            let path = if api_version.contains('/') { "/apis" } else { "/api" };
            match self.client.get_path(&format!("{path}/{api_version}")).await {
                Ok(list) => drop(self.known.insert(api_version.to_owned(), list)),
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error.into()),
            }
            let found = self.known.get(api_version).and_then(|list| pick(list, api_version, kind));
            match found {
                Some(found) => return Ok(found),
                None if started.elapsed() > PATIENCE => bail!("the server has no {api_version} {kind}"),
                None => tokio::time::sleep(POLL).await,
            }
        }
    }
}

/// The resource of a kind in an `APIResourceList`.
fn pick(list: &Value, api_version: &str, kind: &str) -> Option<Resource> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let is_it =
        |one: &&Value| one["kind"] == kind && one["name"].as_str().is_some_and(|name| !name.contains('/'));
    let one = list["resources"].as_array()?.iter().find(is_it)?;
    Some(Resource::dynamic(group, version, one["name"].as_str()?, one["namespaced"] == true))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_kind_is_found_among_resources_and_not_among_their_subresources() {
        let list = json!({"resources": [
            {"name": "widgets/status", "kind": "Widget", "namespaced": true},
            {"name": "widgets", "kind": "Widget", "namespaced": true},
        ]});
        let found = pick(&list, "example.com/v1", "Widget");
        assert_eq!(found, Some(Resource::dynamic("example.com", "v1", "widgets", true)));
        assert_eq!(pick(&list, "example.com/v1", "Gadget"), None);
    }
}
