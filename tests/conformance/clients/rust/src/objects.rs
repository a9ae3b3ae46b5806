//! Objects of built-in kinds, and their subresources.

use crate::{Place, code};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::{
    apps::v1::Deployment,
    batch::v1::Job,
    certificates::v1::CertificateSigningRequest,
    core::v1::{ConfigMap, Pod, ServiceAccount},
    policy::v1::PodDisruptionBudget,
};
use kube::{
    Api, ResourceExt as _,
    api::{
        DeleteParams, EvictParams, ListParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy,
    },
};
use serde_json::{Value, json};

fn from<K: serde::de::DeserializeOwned>(value: Value) -> Result<K> {
    Ok(serde_json::from_value(value)?)
}

fn pod(name: &str) -> Result<Pod> {
    from(json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "blog"}},
        "spec": {"containers": [{"name": "blog", "image": "registry.example/blog:1"}]},
    }))
}

pub async fn pods_are_made_read_patched_listed_and_deleted(place: Place) -> Result<()> {
    let pods: Api<Pod> = place.api();
    let made = pods.create(&PostParams::default(), &pod("blog")?).await?;
    ensure!(made.uid().is_some() && made.creation_timestamp().is_some(), "{made:?}");
    ensure!(made.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref()) == Some("Always"), "defaulted");
    ensure!(made.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Pending"));
    ensure!(code(pods.create(&PostParams::default(), &pod("blog")?).await)? == 409, "made once");
    let patch = json!({"metadata": {"annotations": {"a": "b"}}, "spec": {"activeDeadlineSeconds": 5}});
    let patched = pods.patch("blog", &PatchParams::default(), &Patch::Merge(&patch)).await?;
    ensure!(patched.spec.and_then(|spec| spec.active_deadline_seconds) == Some(5));
    let listed = pods.list(&ListParams::default().fields("metadata.name=blog").labels("app in (blog)")).await?;
    ensure!(listed.items.len() == 1 && listed.metadata.resource_version.is_some());
    ensure!(pods.list(&ListParams::default().labels("app=other")).await?.items.is_empty());
    ensure!(pods.get_metadata("blog").await?.annotations().contains_key("a"));
    let deleted = pods.delete("blog", &DeleteParams::default().grace_period(0)).await?;
    ensure!(deleted.left().is_none_or(|pod| pod.name_any() == "blog"));
    ensure!(pods.get_opt("blog").await?.is_none());
    ensure!(code(pods.get("blog").await)? == 404);
    Ok(())
}

pub async fn writes_under_an_old_version_conflict(place: Place) -> Result<()> {
    let maps: Api<ConfigMap> = place.api();
    let old = place.config_map("a", &[], &[("k", "1")]).await?;
    let mut new = old.clone();
    new.data = Some([("k".to_owned(), "2".to_owned())].into());
    let new = maps.replace("a", &PostParams::default(), &new).await?;
    ensure!(new.resource_version() != old.resource_version());
    ensure!(code(maps.replace("a", &PostParams::default(), &old).await)? == 409);
    // An entry reads, changes and writes until nobody came between.
    let mut entry = maps.entry("b").await?.or_insert(ConfigMap::default);
    entry.get_mut().data = Some([("k".to_owned(), "3".to_owned())].into());
    entry.commit(&PostParams::default()).await?;
    ensure!(maps.get("b").await?.data.is_some());
    Ok(())
}

pub async fn preconditions_and_dry_runs_are_kept_to(place: Place) -> Result<()> {
    let maps: Api<ConfigMap> = place.api();
    let map = place.config_map("a", &[], &[]).await?;
    let dry = DeleteParams::default().dry_run();
    maps.delete("a", &dry).await?;
    ensure!(maps.get_opt("a").await?.is_some(), "a dry run deletes nothing");
    let wrong = Preconditions { uid: Some("11111111-2222-3333-4444-555555555555".into()), resource_version: None };
    ensure!(code(maps.delete("a", &DeleteParams::default().preconditions(wrong)).await)? == 409);
    let right = Preconditions { uid: map.uid(), resource_version: map.resource_version() };
    maps.delete("a", &DeleteParams::default().preconditions(right)).await?;
    let mut unmade = ConfigMap::default();
    unmade.metadata.generate_name = Some("dry-".into());
    let params = PostParams { dry_run: true, field_manager: Some("me".into()) };
    let made = maps.create(&params, &unmade).await?;
    ensure!(made.name_any().len() == 9 && maps.get_opt(&made.name_any()).await?.is_none(), "{made:?}");
    Ok(())
}

pub async fn json_merge_strategic_and_apply_patches_do_what_they_say(place: Place) -> Result<()> {
    let deployments: Api<Deployment> = place.api();
    let applied = |image: &str, replicas: Option<i32>| {
        let mut object = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
            "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": {
                "metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": image}]}}},
        });
        object["spec"]["replicas"] = json!(replicas);
        object
    };
    let one = PatchParams::apply("one");
    deployments.patch("web", &one, &Patch::Apply(applied("web:1", Some(2)))).await?;
    let json_patch = serde_json::from_value(json!([
        {"op": "test", "path": "/spec/replicas", "value": 2}, {"op": "replace", "path": "/spec/replicas", "value": 3},
    ]))?;
    let patched = deployments.patch("web", &PatchParams::default(), &Patch::Json::<()>(json_patch)).await?;
    ensure!(patched.spec.as_ref().and_then(|spec| spec.replicas) == Some(3));
    let two = PatchParams::apply("two");
    let conflict = deployments.patch("web", &two, &Patch::Apply(applied("web:2", None))).await;
    ensure!(code(conflict)? == 409, "the image is the first manager's");
    let forced = deployments.patch("web", &two.clone().force(), &Patch::Apply(applied("web:2", None))).await?;
    let managers: Vec<_> = forced.managed_fields().iter().filter_map(|f| f.manager.as_deref()).collect();
    ensure!(managers.contains(&"one") && managers.contains(&"two"), "{managers:?}");
    let strategic = json!({"spec": {"template": {"spec": {"containers": [{"name": "side", "image": "side:1"}]}}}});
    let merged = deployments.patch("web", &PatchParams::default(), &Patch::Strategic(strategic)).await?;
    let containers = merged.spec.and_then(|spec| spec.template.spec).context("a spec")?.containers;
    ensure!(containers.iter().map(|c| c.name.as_str()).collect::<Vec<_>>() == ["side", "web"], "{containers:?}");
    Ok(())
}

pub async fn lists_come_in_pages(place: Place) -> Result<()> {
    for index in 0..7 {
        place.config_map(&format!("page-{index}"), &[("page", "yes")], &[]).await?;
    }
    let maps: Api<ConfigMap> = place.api();
    let mut params = ListParams::default().labels("page=yes").limit(3);
    let (mut seen, mut pages) = (Vec::new(), 0);
    loop {
        let page = maps.list(&params).await?;
        pages += 1;
        seen.extend(page.items.iter().map(ConfigMap::name_any));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => break,
        }
    }
    ensure!(pages == 3 && seen.len() == 7 && seen.is_sorted(), "{pages} pages of {seen:?}");
    let deleted = maps.delete_collection(&DeleteParams::default(), &ListParams::default().labels("page=yes")).await?;
    ensure!(deleted.left().is_none_or(|list| list.items.len() == 7));
    ensure!(maps.list(&ListParams::default().labels("page=yes")).await?.items.is_empty());
    Ok(())
}

pub async fn evictions_respect_disruption_budgets(place: Place) -> Result<()> {
    let pods: Api<Pod> = place.api();
    pods.create(&PostParams::default(), &pod("free")?).await?;
    pods.evict("free", &EvictParams::default()).await?;
    ensure!(pods.get_opt("free").await?.is_none_or(|pod| pod.metadata.deletion_timestamp.is_some()));
    pods.create(&PostParams::default(), &pod("held")?).await?;
    pods.patch_status("held", &PatchParams::default(), &Patch::Merge(json!({
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    })))
    .await?;
    let budgets: Api<PodDisruptionBudget> = place.api();
    let budget = from(json!({
        "metadata": {"name": "held"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "blog"}}},
    }))?;
    budgets.create(&PostParams::default(), &budget).await?;
    ensure!(code(pods.evict("held", &EvictParams::default()).await)? == 429, "the budget allows none");
    Ok(())
}

pub async fn jobs_have_status_as_a_subresource(place: Place) -> Result<()> {
    let jobs: Api<Job> = place.api();
    let job: Job = from(json!({
        "metadata": {"name": "pi"}, "status": {"active": 7},
        "spec": {"suspend": true, "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "pi", "image": "perl"}]}}},
    }))?;
    let made = jobs.create(&PostParams::default(), &job).await?;
    ensure!(made.status.is_none_or(|status| status.active.is_none()), "the status is not the maker's");
    let spec = made.spec.context("a spec")?;
    ensure!(spec.backoff_limit == Some(6) && spec.selector.is_some(), "{spec:?}");
    ensure!(code(jobs.patch("pi", &PatchParams::default(), &Patch::Merge(json!({"spec": {"completions": 9}}))).await)? == 422);
    let status = jobs.get_status("pi").await?;
    ensure!(status.name_any() == "pi");
    jobs.delete("pi", &DeleteParams { propagation_policy: Some(PropagationPolicy::Background), ..Default::default() }).await?;
    Ok(())
}

pub async fn scale_is_a_subresource(place: Place) -> Result<()> {
    let deployments: Api<Deployment> = place.api();
    let deployment = from(json!({"metadata": {"name": "web"}, "spec": {"replicas": 0,
        "selector": {"matchLabels": {"app": "web"}}, "template": {"metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "web", "image": "web:1"}]}}}}))?;
    deployments.create(&PostParams::default(), &deployment).await?;
    // Controllers write the deployment meanwhile.
    let scaled = loop {
        let mut scale = deployments.get_scale("web").await?;
        scale.spec.get_or_insert_default().replicas = Some(2);
        match deployments.replace_scale("web", &PostParams::default(), &scale).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            scaled => break scaled?,
        }
    };
    ensure!(scaled.spec.and_then(|spec| spec.replicas) == Some(2));
    let patch = Patch::Merge(json!({"spec": {"replicas": 1}}));
    deployments.patch_scale("web", &PatchParams::default(), &patch).await?;
    ensure!(deployments.get("web").await?.spec.and_then(|spec| spec.replicas) == Some(1));
    Ok(())
}

pub async fn tokens_of_service_accounts_are_known(place: Place) -> Result<()> {
    let accounts: Api<ServiceAccount> = place.api();
    let account = from(json!({"metadata": {"name": "robot"}}))?;
    accounts.create(&PostParams::default(), &account).await?;
    let request = from(json!({"metadata": {}, "spec": {"audiences": [], "expirationSeconds": 600}}))?;
    let token = accounts.create_token_request("robot", &PostParams::default(), &request).await?;
    let token = token.status.context("a token")?.token;
    let reviews = Api::<k8s_openapi::api::authentication::v1::TokenReview>::all(place.client.clone());
    let review = from(json!({"metadata": {}, "spec": {"token": token}}))?;
    let user = reviews.create(&PostParams::default(), &review).await?.status.and_then(|status| status.user);
    let expected = format!("system:serviceaccount:{}:robot", place.namespace);
    ensure!(user.and_then(|user| user.username).as_deref() == Some(expected.as_str()));
    Ok(())
}

pub async fn signing_requests_are_approved_and_signed(place: Place) -> Result<()> {
    let requests: Api<CertificateSigningRequest> = Api::all(place.client.clone());
    let request = from(json!({"metadata": {"generateName": "rust-"}, "spec": {
        "request": include_str!("request.base64").trim(), "signerName": "kubernetes.io/kube-apiserver-client",
        "usages": ["client auth"]}}))?;
    let made = requests.create(&PostParams::default(), &request).await?;
    let name = made.name_any();
    let approval = json!({"status": {"conditions": [
        {"type": "Approved", "status": "True", "reason": "Test", "message": "for a test"}]}});
    requests.patch_approval(&name, &PatchParams::default(), &Patch::Merge(approval)).await?;
    let signed = kube::runtime::wait::await_condition(requests.clone(), &name, |object: Option<&CertificateSigningRequest>| {
        object.and_then(|o| o.status.as_ref()).is_some_and(|status| status.certificate.is_some())
    })
    .await?;
    ensure!(signed.is_some());
    requests.delete(&name, &DeleteParams::default()).await?;
    Ok(())
}

pub async fn ephemeral_containers_are_a_subresource(place: Place) -> Result<()> {
    let pods: Api<Pod> = place.api();
    pods.create(&PostParams::default(), &pod("debugged")?).await?;
    let patch = json!({"spec": {"ephemeralContainers": [{"name": "debug", "image": "debug:1"}]}});
    let patched = pods.patch_ephemeral_containers("debugged", &PatchParams::default(), &Patch::Strategic(patch)).await?;
    ensure!(patched.spec.and_then(|spec| spec.ephemeral_containers).is_some_and(|c| c.len() == 1));
    Ok(())
}
