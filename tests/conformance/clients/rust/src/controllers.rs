//! Controllers, as `kube-runtime` runs them.

use crate::{Place, owned, types::establish};
use anyhow::{Result, ensure};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Api, Client, CustomResource, CustomResourceExt as _, Resource as _, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    runtime::{
        controller::{Action, Controller},
        finalizer::{Event, finalizer},
        wait::{await_condition, conditions},
        watcher,
    },
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::{sync::Arc, time::Duration};

/// What a ConfigMap is made from.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "rust.example.com", version = "v1", kind = "ConfigMapGenerator", namespaced)]
#[kube(shortname = "cmg")]
struct ConfigMapGeneratorSpec {
    content: String,
}

async fn generate(generator: Arc<ConfigMapGenerator>, client: Arc<Client>) -> kube::Result<Action> {
    let maps: Api<ConfigMap> =
        Api::namespaced((*client).clone(), generator.namespace().as_deref().unwrap_or_default());
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": generator.name_any(), "ownerReferences": [generator.controller_owner_ref(&())]},
        "data": {"content": generator.spec.content},
    });
    maps.patch(&generator.name_any(), &PatchParams::apply("generator").force(), &Patch::Apply(map)).await?;
    Ok(Action::requeue(Duration::from_secs(300)))
}

pub async fn a_controller_owns_what_it_makes(place: Place) -> Result<()> {
    establish(&place.client, &ConfigMapGenerator::crd()).await?;
    let generators: Api<ConfigMapGenerator> = place.api();
    let maps: Api<ConfigMap> = place.api();
    let controller = Controller::new(generators.clone(), watcher::Config::default())
        .owns(maps.clone(), watcher::Config::default())
        .run(generate, |_, _, _| Action::requeue(Duration::from_secs(1)), Arc::new(place.client.clone()))
        .for_each(|_| futures::future::ready(()));
    let running = tokio::spawn(controller);
    let generator = ConfigMapGenerator::new("a", ConfigMapGeneratorSpec { content: "one".into() });
    generators.create(&PostParams::default(), &generator).await?;
    let has = |content: &'static str| {
        move |map: Option<&ConfigMap>| {
            map.and_then(|map| map.data.as_ref()).is_some_and(|data| data.get("content").is_some_and(|c| c == content))
        }
    };
    let made = await_condition(maps.clone(), "a", has("one")).await?.expect("the condition wants one");
    let patch = Patch::Merge(json!({"spec": {"content": "two"}}));
    generators.patch("a", &PatchParams::default(), &patch).await?;
    await_condition(maps.clone(), "a", has("two")).await?;
    // What is taken from it comes back, and what it owns goes with its owner.
    maps.delete("a", &DeleteParams::default()).await?;
    let again = await_condition(maps.clone(), "a", has("two")).await?.expect("the condition wants one");
    ensure!(again.uid() != made.uid());
    running.abort();
    generators.delete("a", &DeleteParams::default()).await?;
    let uid = again.uid().unwrap_or_default();
    await_condition(maps, "a", conditions::is_deleted(&uid)).await?;
    Ok(())
}

#[derive(Debug)]
struct Failed(String);

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failed {}

impl From<kube::Error> for Failed {
    fn from(error: kube::Error) -> Self {
        Self(error.to_string())
    }
}

/// Copies a ConfigMap into a Secret, and removes the copy before the ConfigMap goes.
async fn sync(map: Arc<ConfigMap>, client: Arc<Client>) -> Result<Action, Failed> {
    let namespace = map.namespace().unwrap_or_default();
    let maps: Api<ConfigMap> = Api::namespaced((*client).clone(), &namespace);
    let secrets: Api<Secret> = Api::namespaced((*client).clone(), &namespace);
    let outcome = finalizer(&maps, "rust.example.com/sync", map, |event| async {
        match event {
            Event::Apply(map) => {
                let mut secret = Secret { string_data: map.data.clone(), ..Secret::default() };
                secret.metadata.name = Some(map.name_any());
                secrets.patch(&map.name_any(), &PatchParams::apply("syncer"), &Patch::Apply(&secret)).await?;
            }
            Event::Cleanup(map) => {
                secrets.delete(&map.name_any(), &DeleteParams::default()).await.map(drop).or_else(|error| match error {
                    kube::Error::Api(status) if status.code == 404 => Ok(()),
                    other => Err(other),
                })?;
            }
        }
        Ok::<_, kube::Error>(Action::await_change())
    });
    outcome.await.map_err(|error| Failed(error.to_string()))
}

pub async fn finalizers_run_before_an_object_goes(place: Place) -> Result<()> {
    let maps: Api<ConfigMap> = place.api();
    let secrets: Api<Secret> = place.api();
    let controller = Controller::new(maps.clone(), watcher::Config::default().labels("sync=yes"))
        .run(sync, |_, _, _| Action::requeue(Duration::from_secs(1)), Arc::new(place.client.clone()))
        .for_each(|_| futures::future::ready(()));
    let running = tokio::spawn(controller);
    let map = place.config_map("a", &[("sync", "yes")], &[("k", "v")]).await?;
    let copied = |secret: Option<&Secret>| {
        secret.and_then(|secret| secret.data.as_ref()).is_some_and(|data| data["k"].0 == b"v")
    };
    await_condition(secrets.clone(), "a", copied).await?;
    ensure!(maps.get("a").await?.finalizers() == ["rust.example.com/sync"]);
    ensure!(owned(&[("k", "v")]) == maps.get("a").await?.data.unwrap_or_default());
    maps.delete("a", &DeleteParams::default()).await?;
    await_condition(maps, "a", conditions::is_deleted(&map.uid().unwrap_or_default())).await?;
    ensure!(secrets.get_opt("a").await?.is_none(), "the copy went first");
    running.abort();
    Ok(())
}
