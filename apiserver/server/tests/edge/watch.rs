use crate::client::{Lines, PATIENCE, Running, request};
use freehold_apiserver_registry::WatchEvent;
use freehold_machinery::Status;
use http_body_util::BodyExt;
use serde_json::json;
use std::sync::Arc;
use tokio::time::timeout;

const WATCH: &str = "/api/v1/namespaces/default/configmaps?watch=1";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test]
async fn events_come_as_lines_of_json() {
    let server = Running::start(|_| {}).await;
    let admin = server.admin();
    admin.make("", "a", "1").await;
    let mut lines = Lines::of(&admin, WATCH, "application/json;stream=watch").await;
    let first = lines.next().await.unwrap();
    assert_eq!((&first["type"], &first["object"]["metadata"]["name"]), (&json!("ADDED"), &json!("a")));
    admin.send("PUT", &format!("{MAPS}/a"), &[], r#"{"metadata":{"name":"a"}}"#).await;
    admin.send("DELETE", &format!("{MAPS}/a"), &[], "").await;
    assert_eq!(lines.next().await.unwrap()["type"], "MODIFIED");
    assert_eq!(lines.next().await.unwrap()["type"], "DELETED");
    server.memory.send(WatchEvent::Bookmark(7, true));
    let expected = json!({"type": "BOOKMARK", "object": {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {
        "resourceVersion": "7", "annotations": {"k8s.io/initial-events-end": "true"},
    }}});
    assert_eq!(lines.next().await.unwrap(), expected);
    server.memory.send(WatchEvent::Error(Status::expired("too old")));
    let error = lines.next().await.unwrap();
    assert_eq!(
        (&error["type"], &error["object"]["code"], &error["object"]["kind"]),
        (&json!("ERROR"), &json!(410), &json!("Status"))
    );
    assert_eq!(lines.next().await, None);
}

#[tokio::test]
async fn a_watch_has_the_shape_that_was_asked_for() {
    let server = Running::start(|_| {}).await;
    let admin = server.admin();
    admin.make("", "a", "1").await;
    let mut tables = Lines::of(&admin, WATCH, "application/json;as=Table;v=v1;g=meta.k8s.io").await;
    let first = tables.next().await.unwrap()["object"].clone();
    assert_eq!((&first["kind"], &first["rows"][0]["cells"][0]), (&json!("Table"), &json!("a")));
    assert_eq!(first["columnDefinitions"][0]["name"], "Name");
    admin.make("", "b", "1").await;
    let second = tables.next().await.unwrap()["object"].clone();
    assert_eq!((&second["columnDefinitions"], &second["rows"][0]["cells"][0]), (&json!(null), &json!("b")));
    let mut partial =
        Lines::of(&admin, WATCH, "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io").await;
    assert_eq!(partial.next().await.unwrap()["object"]["kind"], "PartialObjectMetadata");
    let refused = admin.accept(WATCH, "text/html").await.failure();
    assert_eq!(
        refused,
        (
            406,
            "NotAcceptable".into(),
            "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, \
             application/vnd.kubernetes.protobuf, application/json;stream=watch, \
             application/vnd.kubernetes.protobuf;stream=watch"
                .into()
        )
    );
}

#[tokio::test]
async fn events_come_as_frames_of_protobuf() {
    let server = Running::start(|_| {}).await;
    let admin = server.admin();
    admin.make("", "a", "1").await;
    let accept = "application/vnd.kubernetes.protobuf;stream=watch";
    let response = admin.open(request("GET", WATCH, &[("accept", accept)], "")).await;
    assert_eq!(response.headers()["content-type"], accept);
    server.memory.send(WatchEvent::Bookmark(7, false));
    server.memory.send(WatchEvent::Error(Status::expired("too old")));
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let mut rest = &bytes[..];
    for (name, kind) in [("ADDED", "ConfigMap"), ("BOOKMARK", "ConfigMap"), ("ERROR", "Status")] {
        let length = u32::from_be_bytes(rest[..4].try_into().unwrap()) as usize;
        let (frame, after) = rest[4..].split_at(length);
        rest = after;
        let start = frame.windows(4).position(|w| w == b"k8s\0").expect("an envelope");
        assert_eq!(&frame[2..2 + name.len()], name.as_bytes());
        assert_eq!(freehold_machinery_protobuf::decode(&frame[start..]).unwrap()["kind"], kind);
    }
    assert!(rest.is_empty(), "the error is the last");
}

#[tokio::test]
async fn a_watch_from_a_compacted_revision_gets_410() {
    let server = Running::start(|_| {}).await;
    let got = server.admin().get(&format!("{WATCH}&resourceVersion=1")).await.failure();
    assert_eq!(got, (410, "Expired".into(), "too old resource version: 1 (5)".into()));
}

#[tokio::test]
async fn a_watch_ends_when_its_time_is_up() {
    let server = Running::start(|_| {}).await;
    let mut lines = Lines::of(&server.admin(), &format!("{WATCH}&timeoutSeconds=1"), "*/*").await;
    assert_eq!(lines.next().await, None);
}

#[tokio::test]
async fn a_watch_whose_client_goes_away_is_freed() {
    let server = Running::start(|_| {}).await;
    let admin = server.admin();
    let lines = Lines::of(&admin, WATCH, "*/*").await;
    assert_eq!(Arc::strong_count(&server.memory.watches), 2);
    drop(lines);
    let freed = async {
        while Arc::strong_count(&server.memory.watches) > 1 {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, freed).await.expect("the watch is dropped with its client");
}

#[tokio::test]
async fn the_deprecated_watch_prefix_watches_one_object() {
    let server = Running::start(|_| {}).await;
    let admin = server.admin();
    admin.make("", "a", "1").await;
    let mut lines = Lines::of(&admin, "/api/v1/watch/namespaces/default/configmaps/a", "*/*").await;
    assert_eq!(lines.next().await.unwrap()["type"], "ADDED");
}
