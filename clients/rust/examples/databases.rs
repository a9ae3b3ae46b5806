//! Sets the phase of each `Database` of all consumers of an export, and ends when a number of them has it.
//!
//! `databases PROJECT EXPORT COUNT`, with a kubeconfig of the provider's project in `KUBECONFIG`.

use anyhow::{Context as _, bail};
use freehold_clients_rust::{Action, Consumers, Request, Store, run};
use kube::{
    Api, Config,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams},
    config::KubeConfigOptions,
};
use serde_json::json;
use std::collections::HashSet;
use tokio::sync::mpsc;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [project, export, count] = &args[..] else { bail!("usage: databases PROJECT EXPORT COUNT") };
    let count: usize = count.parse().context("COUNT is a number")?;
    let config = Config::from_kubeconfig(&KubeConfigOptions::default()).await?;
    let consumers = Consumers::new(config, project, export)?;
    let ty = ApiResource::from_gvk(&GroupVersionKind::gvk("db.example.com", "v1", "Database"));
    let store: Store<DynamicObject> = Store::default();
    let (up, mut told) = mpsc::unbounded_channel();
    let reconcile = |request: Request| {
        let (consumers, ty, store, up) = (consumers.clone(), ty.clone(), store.clone(), up.clone());
        async move { bring_up(&consumers, &ty, &store, request, &up).await }
    };
    let all = Api::all_with(consumers.all(), &ty);
    let running = run(all, store.clone(), 16, reconcile);
    let counting = async {
        let mut seen = HashSet::new();
        while seen.len() < count {
            seen.extend(told.recv().await);
        }
        println!("{} databases of all consumers are up", seen.len());
        // Whoever counts the watches on the server looks now, and ends this with a line.
        let _ = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new())).await;
    };
    tokio::select! {
        () = running => bail!("the watch ended"),
        () = counting => {}
    }
    std::process::exit(0)
}

async fn bring_up(
    consumers: &Consumers,
    ty: &ApiResource,
    store: &Store<DynamicObject>,
    request: Request,
    up: &mpsc::UnboundedSender<Request>,
) -> anyhow::Result<Action> {
    let Some(object) = store.get(&request) else { return Ok(Action::Wait) };
    let phase = format!("up in {}", request.consumer);
    if object.data["status"]["phase"] == phase.as_str() {
        // Nobody counts any more when the program ends.
        let _ = up.send(request);
        return Ok(Action::Wait);
    }
    let one: Api<DynamicObject> =
        Api::namespaced_with(consumers.one(&request.consumer)?, &request.namespace, ty);
    let patch = Patch::Merge(json!({"status": {"phase": phase}}));
    one.patch_status(&request.name, &PatchParams::default(), &patch).await?;
    Ok(Action::Wait)
}
