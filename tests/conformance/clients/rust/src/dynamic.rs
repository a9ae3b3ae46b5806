//! Without types: discovery, dynamic objects, raw requests, and what an admission webhook is sent.

use crate::Place;
use anyhow::{Context as _, Result, ensure};
use kube::{
    Api,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, ObjectList, Patch, PatchParams},
    core::admission::{AdmissionRequest, AdmissionResponse, AdmissionReview},
    discovery::{Discovery, Scope, pinned_kind, verbs},
};
use serde_json::json;

pub async fn discovery_finds_all_groups(place: Place) -> Result<()> {
    let client = place.client;
    for discovery in [
        Discovery::new(client.clone()).run().await?,
        Discovery::new(client.clone()).run_aggregated().await?,
    ] {
        let kinds: Vec<String> = discovery
            .groups()
            .flat_map(|group| group.recommended_resources())
            .map(|(resource, _)| format!("{}/{}", resource.group, resource.kind))
            .collect();
        for kind in ["/Pod", "apps/Deployment", "batch/CronJob", "rbac.authorization.k8s.io/Role"] {
            ensure!(kinds.iter().any(|found| found == kind), "{kind} in {kinds:?}");
        }
    }
    let pods = GroupVersionKind::gvk("", "v1", "Pod");
    let (resource, capabilities) = pinned_kind(&client, &pods).await?;
    ensure!(resource.plural == "pods" && capabilities.scope == Scope::Namespaced);
    ensure!(capabilities.supports_operation(verbs::WATCH));
    ensure!(capabilities.subresources.iter().any(|(sub, _)| sub.plural.ends_with("status")));
    Ok(())
}

pub async fn objects_without_types_are_written(place: Place) -> Result<()> {
    let resource = ApiResource::erase::<k8s_openapi::api::core::v1::Service>(&());
    let services: Api<DynamicObject> = Api::namespaced_with(place.client.clone(), &place.namespace, &resource);
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}});
    let made = services.patch("web", &PatchParams::apply("dynamic"), &Patch::Apply(&service)).await?;
    ensure!(made.data["spec"]["clusterIP"].as_str().is_some_and(|ip| ip != "None"), "{:?}", made.data);
    ensure!(made.data["spec"]["ports"][0]["protocol"] == "TCP");
    let all: Api<DynamicObject> = Api::all_with(place.client, &resource);
    let listed = all.list(&ListParams::default().fields(&format!("metadata.namespace={}", place.namespace))).await?;
    ensure!(listed.items.len() == 1 && listed.items[0].metadata.name.as_deref() == Some("web"));
    Ok(())
}

pub async fn raw_requests_are_answered(place: Place) -> Result<()> {
    let get = |path: &str| http::Request::get(path).body(Vec::new());
    ensure!(place.client.request_text(get("/readyz")?).await? == "ok");
    let path = format!("/api/v1/namespaces/{}/serviceaccounts", place.namespace);
    let list: ObjectList<DynamicObject> = place.client.request(get(&path)?).await?;
    ensure!(list.types.kind == "ServiceAccountList");
    let openapi: serde_json::Value = place.client.request(get("/openapi/v3")?).await?;
    let url = openapi["paths"]["apis/apps/v1"]["serverRelativeURL"].as_str().context("a URL")?;
    ensure!(url.contains("?hash="), "{url}");
    Ok(())
}

/// Reads a webhook's request and answers it with `kube`'s own types.
///
/// # Errors
/// A request or answer that `kube`'s types cannot hold.
pub async fn admission_reviews_are_answered(place: Place) -> Result<()> {
    let map = place.config_map("a", &[], &[]).await?;
    let review: AdmissionReview<DynamicObject> = serde_json::from_value(json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {"uid": "u", "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
            "resource": {"group": "", "version": "v1", "resource": "configmaps"}, "name": "a",
            "namespace": place.namespace, "operation": "CREATE", "userInfo": {"username": "jane"},
            "object": serde_json::to_value(&map)?, "dryRun": false},
    }))?;
    let request: AdmissionRequest<DynamicObject> = review.try_into()?;
    let patch = serde_json::from_value(json!([{"op": "add", "path": "/metadata/labels", "value": {"admitted": "modded"}}]))?;
    let answer = AdmissionResponse::from(&request).with_patch(patch)?.into_review();
    let response = answer.response.context("a response")?;
    ensure!(response.allowed && response.uid == "u" && response.patch.is_some());
    // The server takes the same patch.
    let maps: Api<k8s_openapi::api::core::v1::ConfigMap> = place.api();
    let patch: json_patch::Patch = serde_json::from_slice(&response.patch.context("a patch")?)?;
    let patched = maps.patch("a", &PatchParams::default(), &Patch::Json::<()>(patch)).await?;
    ensure!(patched.metadata.labels.is_some_and(|labels| labels["admitted"] == "modded"));
    Ok(())
}
