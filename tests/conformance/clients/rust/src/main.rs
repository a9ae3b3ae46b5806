//! Freehold through `kube` and `kube-runtime`: what their users do, each thing told as a fact.
//!
//! `KUBECONFIG` names a project. Each fact has a namespace of its own, and all run at once; a line `ok NAME` is printed for each
//! that holds. The program fails if one doesn't.

mod controllers;
mod dynamic;
mod objects;
mod types;
mod watches;

use anyhow::{Context as _, Result, ensure};
use futures::future::{BoxFuture, FutureExt as _, join_all};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{Api, Client, Config, ResourceExt as _, api::PostParams};
use std::{collections::BTreeMap, time::Duration};

/// Nothing here takes longer, or it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where a fact is tried.
pub struct Place {
    pub client: Client,
    pub namespace: String,
}

impl Place {
    /// The API of a kind in the fact's namespace.
    pub fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Creates a ConfigMap with labels and data.
    ///
    /// # Errors
    /// The server's refusal, or no answer.
    pub async fn config_map(&self, name: &str, labels: &[(&str, &str)], data: &[(&str, &str)]) -> Result<ConfigMap> {
        let mut map = ConfigMap { data: Some(owned(data)), ..ConfigMap::default() };
        map.metadata.name = Some(name.to_owned());
        map.metadata.labels = Some(owned(labels));
        Ok(self.api().create(&PostParams::default(), &map).await?)
    }
}

fn owned(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// The code of an error that the server answered with.
///
/// # Errors
/// A success, or an error that is not the server's.
pub fn code<T: std::fmt::Debug>(result: kube::Result<T>) -> Result<u16> {
    match result {
        Err(kube::Error::Api(status)) => Ok(status.code),
        other => anyhow::bail!("an error of the server was expected, not {other:?}"),
    }
}

type Fact = (&'static str, fn(Place) -> BoxFuture<'static, Result<()>>);

macro_rules! facts {
    ($($module:ident::$name:ident),* $(,)?) => {
        [$((stringify!($name), |place| $module::$name(place).boxed())),*]
    };
}

const FACTS: &[Fact] = &facts![
    objects::pods_are_made_read_patched_listed_and_deleted,
    objects::writes_under_an_old_version_conflict,
    objects::preconditions_and_dry_runs_are_kept_to,
    objects::json_merge_strategic_and_apply_patches_do_what_they_say,
    objects::lists_come_in_pages,
    objects::evictions_respect_disruption_budgets,
    objects::jobs_have_status_as_a_subresource,
    objects::scale_is_a_subresource,
    objects::tokens_of_service_accounts_are_known,
    objects::signing_requests_are_approved_and_signed,
    objects::ephemeral_containers_are_a_subresource,
    types::a_derived_crd_is_applied_and_its_objects_are_typed,
    types::a_schema_validates_defaults_and_has_rules,
    types::several_versions_are_served,
    watches::a_watcher_sees_each_change,
    watches::a_streaming_list_ends_with_a_bookmark,
    watches::a_reflector_keeps_a_store,
    watches::metadata_is_watched_alone,
    watches::conditions_are_awaited,
    watches::events_are_published,
    controllers::a_controller_owns_what_it_makes,
    controllers::finalizers_run_before_an_object_goes,
    dynamic::discovery_finds_all_groups,
    dynamic::objects_without_types_are_written,
    dynamic::raw_requests_are_answered,
    dynamic::admission_reviews_are_answered,
];

#[tokio::main]
async fn main() -> Result<()> {
    let mut config = Config::infer().await.context("the kubeconfig")?;
    // A refusal that asks to come again is one that a fact waits for.
    config.default_retry = false;
    let client = Client::try_from(config)?;
    let version = client.apiserver_version().await?;
    ensure!(version.major == "1", "{version:?}");
    let outcomes = join_all(FACTS.iter().map(|(name, fact)| check(&client, name, *fact))).await;
    let failed = outcomes.iter().filter(|held| !**held).count();
    ensure!(failed == 0, "{failed} facts do not hold");
    Ok(())
}

async fn check(client: &Client, name: &str, fact: fn(Place) -> BoxFuture<'static, Result<()>>) -> bool {
    let tried = async {
        let namespace = format!("rust-{}", name.replace('_', "-").chars().take(50).collect::<String>());
        let mut object = Namespace::default();
        object.metadata.name = Some(namespace.trim_end_matches('-').to_owned());
        let made = Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &object).await?;
        let place = Place { client: client.clone(), namespace: made.name_any() };
        tokio::time::timeout(PATIENCE, fact(place)).await.context("it took too long")?
    };
    match tried.await {
        Ok(()) => println!("ok {name}"),
        Err(error) => {
            println!("failed {name}: {error:?}");
            return false;
        }
    }
    true
}
