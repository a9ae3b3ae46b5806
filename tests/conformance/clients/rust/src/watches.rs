//! Watches, and what is built on them.

use crate::Place;
use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, pin_mut};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::{
    Api, Resource as _, ResourceExt as _,
    core::PartialObjectMeta,
    api::{DeleteParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams},
    runtime::{
        WatchStreamExt as _,
        events::{Event, EventType, Recorder, Reporter},
        reflector,
        wait::{Condition as _, await_condition, conditions, delete::delete_and_finalize},
        watcher,
    },
};
use serde_json::json;
use std::collections::BTreeSet;

pub async fn a_watcher_sees_each_change(place: Place) -> Result<()> {
    let maps: Api<ConfigMap> = place.api();
    place.config_map("before", &[("seen", "yes")], &[]).await?;
    let events = watcher(maps.clone(), watcher::Config::default().labels("seen=yes")).boxed();
    pin_mut!(events);
    let mut seen = Vec::new();
    while let Some(event) = events.try_next().await? {
        match event {
            watcher::Event::Init => seen.push("init".to_owned()),
            watcher::Event::InitApply(map) => seen.push(format!("has {}", map.name_any())),
            watcher::Event::InitDone => {
                seen.push("done".to_owned());
                place.config_map("after", &[("seen", "yes")], &[]).await?;
                place.config_map("other", &[], &[]).await?;
                let into = json!({"metadata": {"labels": {"seen": "yes"}}});
                maps.patch("other", &PatchParams::default(), &Patch::Merge(into)).await?;
                let out = json!({"metadata": {"labels": {"seen": null}}});
                maps.patch("other", &PatchParams::default(), &Patch::Merge(out)).await?;
                maps.delete("before", &DeleteParams::default()).await?;
            }
            watcher::Event::Apply(map) => seen.push(format!("apply {}", map.name_any())),
            watcher::Event::Delete(map) => seen.push(format!("delete {}", map.name_any())),
        }
        if seen.last().is_some_and(|last| last == "delete before") {
            break;
        }
    }
    let expected =
        ["init", "has before", "done", "apply after", "apply other", "delete other", "delete before"];
    ensure!(seen == expected, "{seen:?}");
    Ok(())
}

pub async fn a_streaming_list_ends_with_a_bookmark(place: Place) -> Result<()> {
    let maps: Api<ConfigMap> = place.api();
    place.config_map("a", &[], &[]).await?;
    let params = WatchParams::default().fields("metadata.name=a").initial_events();
    let events = maps.watch(&params, "0").await?;
    pin_mut!(events);
    let mut added = 0;
    while let Some(event) = events.try_next().await? {
        match event {
            WatchEvent::Added(_) => added += 1,
            WatchEvent::Bookmark(bookmark) => {
                let annotations = bookmark.metadata.annotations;
                ensure!(annotations.get("k8s.io/initial-events-end").is_some_and(|end| end == "true"));
                break;
            }
            other => anyhow::bail!("{other:?}"),
        }
    }
    ensure!(added == 1);
    let streaming = watcher(maps, watcher::Config::default().streaming_lists()).boxed();
    pin_mut!(streaming);
    let mut names = BTreeSet::new();
    while let Some(event) = streaming.try_next().await? {
        match event {
            watcher::Event::InitApply(map) => drop(names.insert(map.name_any())),
            watcher::Event::InitDone => break,
            _ => {}
        }
    }
    ensure!(names.contains("a"), "{names:?}");
    Ok(())
}

pub async fn a_reflector_keeps_a_store(place: Place) -> Result<()> {
    let maps: Api<ConfigMap> = place.api();
    place.config_map("a", &[("kept", "yes")], &[("k", "1")]).await?;
    let (reader, writer) = reflector::store();
    let stream = watcher(maps.clone(), watcher::Config::default().labels("kept=yes"))
        .default_backoff()
        .modify(|map| map.managed_fields_mut().clear())
        .reflect(writer)
        .applied_objects();
    let driving = tokio::spawn(stream.for_each(|_| futures::future::ready(())));
    reader.wait_until_ready().await?;
    ensure!(reader.len() == 1 && reader.state()[0].managed_fields().is_empty());
    maps.patch("a", &PatchParams::default(), &Patch::Merge(json!({"data": {"k": "2"}}))).await?;
    let changed = || reader.find(|map| map.data.as_ref().is_some_and(|data| data["k"] == "2"));
    while changed().is_none() {
        tokio::task::yield_now().await;
    }
    maps.delete("a", &DeleteParams::default()).await?;
    while !reader.is_empty() {
        tokio::task::yield_now().await;
    }
    driving.abort();
    Ok(())
}

pub async fn metadata_is_watched_alone(place: Place) -> Result<()> {
    let maps: Api<PartialObjectMeta<ConfigMap>> = place.api();
    place.config_map("a", &[("meta", "yes")], &[("k", "secret")]).await?;
    let events = watcher(maps, watcher::Config::default().labels("meta=yes")).applied_objects().boxed();
    pin_mut!(events);
    let first = events.try_next().await?.context("an object")?;
    ensure!(first.name_any() == "a" && first.labels().contains_key("meta"));
    ensure!(!serde_json::to_string(&first)?.contains("secret"));
    Ok(())
}

pub async fn conditions_are_awaited(place: Place) -> Result<()> {
    let maps: Api<ConfigMap> = place.api();
    let map = place.config_map("a", &[], &[]).await?;
    let is_done = |map: Option<&ConfigMap>| map.is_some_and(|map| map.labels().contains_key("done"));
    let waiting = tokio::spawn(await_condition(maps.clone(), "a", is_done));
    maps.patch("a", &PatchParams::default(), &Patch::Merge(json!({"metadata": {"labels": {"done": ""}}}))).await?;
    ensure!(waiting.await??.is_some_and(|map| is_done.matches_object(Some(&map))));
    let uid = map.uid().context("a uid")?;
    let gone = tokio::spawn(await_condition(maps.clone(), "a", conditions::is_deleted(Box::leak(uid.into_boxed_str()))));
    delete_and_finalize(maps, "a", &DeleteParams::default()).await?;
    gone.await??;
    Ok(())
}

pub async fn events_are_published(place: Place) -> Result<()> {
    let pods: Api<Pod> = place.api();
    let pod = serde_json::from_value(json!({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "a", "image": "a"}]}}))?;
    let pod = pods.create(&PostParams::default(), &pod).await?;
    let recorder = Recorder::new(place.client.clone(), Reporter::from("rust-tests"));
    let event = Event {
        type_: EventType::Normal,
        reason: "Tested".into(),
        note: Some("it was tested".into()),
        action: "Testing".into(),
        secondary: None,
    };
    // The second one is counted in a series of the first.
    for _ in 0..2 {
        recorder.publish(&event, &pod.object_ref(&())).await?;
    }
    let events: Api<k8s_openapi::api::events::v1::Event> = place.api();
    let all = events.list(&Default::default()).await?.items;
    ensure!(all.len() == 1 && all[0].series.as_ref().is_some_and(|series| series.count == 2), "{all:?}");
    let older: Api<k8s_openapi::api::core::v1::Event> = place.api();
    let selected = older.list(&kube::api::ListParams::default().fields("involvedObject.name=a")).await?.items;
    ensure!(selected.len() == 1 && selected[0].reason.as_deref() == Some("Tested"), "{selected:?}");
    Ok(())
}
