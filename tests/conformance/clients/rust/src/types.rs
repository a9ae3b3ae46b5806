//! Types of the user's own: CRDs derived from Rust.

use crate::{Place, code};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, CustomResource, CustomResourceExt as _, KubeSchema, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    runtime::{conditions, wait::await_condition},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Something that the derived schema says much of.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, KubeSchema)]
#[kube(group = "rust.example.com", version = "v1", kind = "Foo", namespaced, shortname = "fo")]
#[kube(status = "FooStatus", derive = "PartialEq", derive = "Default")]
#[kube(scale(spec_replicas_path = ".spec.replicas", status_replicas_path = ".status.replicas"))]
#[kube(printcolumn(name = "Info", type_ = "string", json_path = ".spec.info"))]
#[kube(validation = "self.metadata.name != 'forbidden'")]
#[derive(PartialEq, Default)]
pub struct FooSpec {
    /// Shown in a column.
    pub info: String,
    #[serde(default = "one")]
    #[x_kube(validation = ("self < 10", "too many"))]
    pub replicas: i32,
    #[serde(default)]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub tags: Vec<String>,
    #[serde(default)]
    #[x_kube(validation = "self == oldSelf || oldSelf == ''")]
    pub once: String,
}

fn one() -> i32 {
    1
}

/// What a controller would say.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
pub struct FooStatus {
    #[serde(default)]
    replicas: i32,
    #[serde(default)]
    is_bad: bool,
}

/// Applies a CRD, and waits until it is served.
///
/// # Errors
/// The server's refusal, or a definition that is not served in time.
pub async fn establish(client: &Client, crd: &CustomResourceDefinition) -> Result<()> {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let name = crd.name_any();
    crds.patch(&name, &PatchParams::apply("rust").force(), &Patch::Apply(crd)).await?;
    await_condition(crds, &name, conditions::is_crd_established()).await?;
    Ok(())
}

pub async fn a_derived_crd_is_applied_and_its_objects_are_typed(place: Place) -> Result<()> {
    establish(&place.client, &Foo::crd()).await?;
    let foos: Api<Foo> = place.api();
    let foo = Foo::new("baz", FooSpec { info: "old".into(), replicas: 2, ..FooSpec::default() });
    let made = foos.create(&PostParams::default(), &foo).await?;
    ensure!(made.spec == foo.spec && made.metadata.generation == Some(1), "{made:?}");
    let applied = json!({"apiVersion": "rust.example.com/v1", "kind": "Foo", "metadata": {"name": "baz"},
        "spec": {"info": "new", "tags": ["a"]}});
    let params = PatchParams::apply("rust-test").force();
    let patched = foos.patch("baz", &params, &Patch::Apply(&applied)).await?;
    ensure!(patched.spec.info == "new" && patched.spec.replicas == 2 && patched.metadata.generation == Some(2));
    let again = foos.patch("baz", &params, &Patch::Apply(&applied)).await?;
    ensure!(again.resource_version() == patched.resource_version(), "the same again changes nothing");
    let status = json!({"status": {"is_bad": true, "replicas": 2}, "spec": {"info": "not through status"}});
    let patched = foos.patch_status("baz", &PatchParams::default(), &Patch::Merge(&status)).await?;
    ensure!(patched.status.is_some_and(|status| status.is_bad) && patched.spec.info == "new");
    let scale = foos.get_scale("baz").await?;
    ensure!(scale.status.context("a status")?.replicas == 2);
    foos.patch_scale("baz", &PatchParams::default(), &Patch::Merge(json!({"spec": {"replicas": 3}}))).await?;
    ensure!(foos.get("baz").await?.spec.replicas == 3);
    foos.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    ensure!(foos.list(&ListParams::default()).await?.items.is_empty());
    Ok(())
}

pub async fn a_schema_validates_defaults_and_has_rules(place: Place) -> Result<()> {
    let mut crd = Foo::crd();
    // Beside the other fact, which runs at the same time.
    crd.metadata.name = Some("bars.rust.example.com".into());
    let names = &mut crd.spec.names;
    (names.kind, names.plural, names.singular) = ("Bar".into(), "bars".into(), Some("bar".into()));
    names.short_names = None;
    establish(&place.client, &crd).await?;
    let resource = kube::api::ApiResource {
        group: "rust.example.com".into(),
        version: "v1".into(),
        api_version: "rust.example.com/v1".into(),
        kind: "Bar".into(),
        plural: "bars".into(),
    };
    let bars = Api::<kube::api::DynamicObject>::namespaced_with(place.client.clone(), &place.namespace, &resource);
    let bar = |name: &str, spec: serde_json::Value| {
        kube::api::DynamicObject::new(name, &resource).data(json!({"spec": spec}))
    };
    let params = PostParams::default();
    let made = bars.create(&params, &bar("a", json!({"info": "x", "unknown": 1}))).await?;
    ensure!(made.data["spec"] == json!({"info": "x", "replicas": 1, "tags": [], "once": ""}), "{:?}", made.data);
    for (name, spec, part) in [
        ("b", json!({"info": 5}), "must be of type string"),
        ("b", json!({}), "Required value"),
        ("b", json!({"info": "x", "replicas": 10}), "too many"),
        ("b", json!({"info": "x", "tags": ["a", "a"]}), "Duplicate value"),
        ("forbidden", json!({"info": "x"}), "failed rule"),
    ] {
        match bars.create(&params, &bar(name, spec.clone())).await {
            Err(kube::Error::Api(status)) if status.code == 422 && status.message.contains(part) => {}
            other => anyhow::bail!("{spec}: {other:?}"),
        }
    }
    let once = |value: &str| Patch::Merge(json!({"spec": {"once": value}}));
    bars.patch("a", &PatchParams::default(), &once("set")).await?;
    ensure!(code(bars.patch("a", &PatchParams::default(), &once("changed")).await)? == 422);
    let path = format!("/apis/rust.example.com/v1/namespaces/{}/bars?fieldValidation=Strict", place.namespace);
    let body = serde_json::to_vec(&bar("c", json!({"info": "x", "unknown": 1})))?;
    let request = http::Request::post(path).header("content-type", "application/json").body(body)?;
    ensure!(code(place.client.request::<kube::api::DynamicObject>(request).await)? == 400);
    Ok(())
}

mod v1 {
    use super::*;
    /// The older version.
    #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
    #[kube(group = "rust.example.com", version = "v1", kind = "ManyDerive", namespaced)]
    pub struct ManyDeriveSpec {
        pub foo: String,
    }
}

mod v2 {
    use super::*;
    /// The newer version.
    #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
    #[kube(group = "rust.example.com", version = "v2", kind = "ManyDerive", namespaced)]
    pub struct ManyDeriveSpec {
        pub foo: String,
        pub bar: Option<u32>,
    }
}

pub async fn several_versions_are_served(place: Place) -> Result<()> {
    use kube::core::crd::merge_crds;
    let both = merge_crds(vec![v1::ManyDerive::crd(), v2::ManyDerive::crd()], "v1")?;
    establish(&place.client, &both).await?;
    let old: Api<v1::ManyDerive> = place.api();
    let new: Api<v2::ManyDerive> = place.api();
    let object = v1::ManyDerive::new("a", v1::ManyDeriveSpec { foo: "x".into() });
    old.create(&PostParams::default(), &object).await?;
    let read = new.get("a").await?;
    ensure!(read.spec.foo == "x" && read.spec.bar.is_none());
    let all = merge_crds(vec![v1::ManyDerive::crd(), v2::ManyDerive::crd()], "v2")?;
    establish(&place.client, &all).await?;
    new.patch("a", &PatchParams::default(), &Patch::Merge(json!({"spec": {"bar": 7}}))).await?;
    ensure!(new.get("a").await?.spec.bar == Some(7));
    ensure!(old.get("a").await?.spec.foo == "x");
    Ok(())
}
