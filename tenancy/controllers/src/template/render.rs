//! From an instance to the objects that it keeps.

use super::Shared;
use super::helm::Release;
use super::views::{InstanceView, RevisionView};
use super::world::{Watched, World};
use freehold_client::{Client, Resource};
use freehold_machinery::Value;
use freehold_runtime::{Error, Key};
use freehold_tenancy_api::template::{CopiedKind, CopiedObject, TemplateSpec};
use freehold_tenancy_api::{GROUP, TENANT_LABEL, VERSION};
use freehold_tenancy_decide::template::{
    self as decide, Parameters, RenderError, Rendered, Rendering, Variables,
};
use serde_json::json;
use std::collections::HashMap;

const SECRETS: Resource = Resource::namespaced("", "v1", "secrets");
const CONFIG_MAPS: Resource = Resource::namespaced("", "v1", "configmaps");

/// Why an instance is not brought to its state.
pub(super) enum Refusal {
    /// It stays so until something changes.
    Final(RenderError),
    /// It may help to try again.
    Again(Error),
}

impl From<RenderError> for Refusal {
    fn from(error: RenderError) -> Self {
        Self::Final(error)
    }
}

impl From<freehold_client::Error> for Refusal {
    fn from(error: freehold_client::Error) -> Self {
        Self::Again(error.into())
    }
}

/// What an instance is rendered with.
pub(super) struct Wanted<'a> {
    pub(super) revision: &'a RevisionView,
    pub(super) parameters: &'a freehold_machinery::Map,
    /// Whether objects go with the instance.
    pub(super) prune: bool,
}

/// Kinds of rendered objects, by `apiVersion` and kind.
pub(super) type Kinds = HashMap<(String, String), Watched>;

/// Renders an instance, reading copied objects with `client`, which has the rights of the instance's identity.
pub(super) async fn render(
    shared: &Shared,
    world: &World,
    key: &Key,
    instance: &InstanceView,
    wanted: &Wanted<'_>,
    client: &Client,
) -> Result<(Vec<Rendered>, Kinds), Refusal> {
    let template = wanted.revision.parsed.as_ref().as_ref();
    let template = template.map_err(|error| RenderError::new("TemplateInvalid", error.clone()))?;
    let invalid = |error: decide::ParametersError| RenderError::new("ParametersInvalid", error.to_string());
    let parameters = Parameters::new(&template.parameters).map_err(invalid)?;
    let parameters = parameters.apply(wanted.parameters).map_err(invalid)?;
    let namespace = world.namespaces.get(&Key::new(key.plane.clone(), "", &key.namespace));
    let metadata = namespace.as_ref().map(|view| view.metadata.clone()).unwrap_or_default();
    let tenant =
        namespace.as_ref().and_then(|view| view.labels.get(TENANT_LABEL).cloned()).unwrap_or_default();
    let variables = Variables::new(parameters, &key.namespace, &metadata, &tenant, &key.name);
    let mut objects = decide::manifests(template, &variables)?;
    objects.extend(chart(shared, world, key, template, &variables).await?);
    for copy in decide::copies(template, &variables)? {
        objects.push(copied(client, &copy).await?);
    }
    let kinds = kinds(world, &objects).await?;
    let owner = json!({
        "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "TemplateInstance", "name": key.name, "uid": instance.uid,
    });
    let rendering =
        Rendering { namespace: &key.namespace, instance: &key.name, owner: wanted.prune.then_some(&owner) };
    let is_namespaced = |api_version: &str, kind: &str| {
        kinds
            .get(&(api_version.to_owned(), kind.to_owned()))
            .map(|watched| watched.served.resource.namespaced)
    };
    let rendered = decide::prepare(objects, &rendering, is_namespaced)?;
    Ok((rendered, kinds))
}

async fn chart(
    shared: &Shared,
    world: &World,
    key: &Key,
    template: &TemplateSpec,
    variables: &Variables,
) -> Result<Vec<Value>, Refusal> {
    let Some(chart) = &template.helm else { return Ok(Vec::new()) };
    let values = decide::chart_values(&chart.values, variables)?;
    let kube_version = world.version().await;
    let release = Release {
        name: if chart.release_name.is_empty() { &key.name } else { &chart.release_name },
        namespace: &key.namespace,
        values: &values,
        kube_version: &kube_version,
    };
    Ok(shared.helm.render(chart, &release).await?)
}

/// Reads an object that is copied.
async fn copied(client: &Client, copy: &CopiedObject) -> Result<Value, Refusal> {
    let resource = match copy.kind {
        CopiedKind::Secret => &SECRETS,
        CopiedKind::ConfigMap => &CONFIG_MAPS,
    };
    let CopiedObject { namespace, name, .. } = copy;
    match client.get(resource, Some(namespace), name).await {
        Ok(source) => Ok(Rendered::copy_of(&source, copy)),
        Err(error) if error.code() == 403 => Err(RenderError::new("Forbidden", error.to_string()).into()),
        Err(error) if error.is_not_found() => {
            Err(RenderError::new("SourceNotFound", format!("{namespace}/{name}: {error}")).into())
        }
        Err(error) => Err(error.into()),
    }
}

async fn kinds(world: &World, objects: &[Value]) -> Result<Kinds, Refusal> {
    let mut kinds = Kinds::new();
    for object in objects {
        let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
        let id = (text("apiVersion"), text("kind"));
        if kinds.contains_key(&id) || id.0.is_empty() || id.1.is_empty() {
            continue;
        }
        if let Some(watched) = world.kind(&id.0, &id.1).await.map_err(Refusal::Again)? {
            kinds.insert(id, watched);
        }
    }
    Ok(kinds)
}
