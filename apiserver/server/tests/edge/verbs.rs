use crate::client::Running;
use freehold_apiserver_registry::FieldValidation;
use serde_json::json;
use std::sync::atomic::Ordering::SeqCst;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// The old path of watches of these.
const WATCHED: &str = "/api/v1/watch/namespaces/default/configmaps";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
const PROTOBUF: &str = freehold_machinery_protobuf::MEDIA_TYPE;

#[tokio::test]
async fn an_object_lives_through_all_verbs() {
    let server = Running::start(|_| {}).await;
    let admin = server.admin();
    let made = admin.make("", "a", "1").await;
    assert_eq!(made.json()["metadata"]["resourceVersion"], "1");
    assert_eq!(made.headers["warning"], r#"299 - "be \"careful\"""#);
    assert!(!made.header("audit-id").is_empty() && made.header("cache-control") == "no-cache, private");
    assert_eq!(
        admin.send("POST", MAPS, &[], r#"{"metadata":{"name":"a"}}"#).await.failure(),
        (409, "AlreadyExists".into(), "configmaps \"a\" already exists".into())
    );
    let got = admin.get(&format!("{MAPS}/a")).await;
    assert_eq!(
        (got.code, got.header("content-type"), &got.json()["data"]),
        (200, "application/json", &json!({"k": "1"}))
    );
    let body = json!({"metadata": {"name": "a"}, "data": {"k": "2"}}).to_string();
    let put = admin
        .send("PUT", &format!("{MAPS}/a?fieldValidation=Strict&dryRun=All"), &[("user-agent", "me/1")], body)
        .await;
    assert_eq!(put.code, 200);
    let (options, _) = server.memory.last.lock().unwrap().clone().unwrap();
    assert_eq!((options.dry_run, options.field_manager.as_str()), (true, "me"));
    assert_eq!(options.field_validation, FieldValidation::Strict);
    let yaml = "metadata:\n  name: b\ndata: {k: \"3\"}\n";
    assert_eq!(admin.send("POST", MAPS, &[("content-type", "application/yaml")], yaml).await.code, 201);
    let list = admin.get(&format!("{MAPS}?limit=1")).await.json();
    assert_eq!((list["kind"].as_str(), list["apiVersion"].as_str()), (Some("ConfigMapList"), Some("v1")));
    assert_eq!(
        list["metadata"],
        json!({"resourceVersion": "3", "continue": "more\"", "remainingItemCount": 1})
    );
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    let gone = admin
        .send(
            "DELETE",
            &format!("{MAPS}/a"),
            &[],
            r#"{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":0}"#,
        )
        .await;
    assert_eq!((gone.code, gone.json()["status"].as_str().unwrap().to_owned()), (200, "Success".to_owned()));
    assert_eq!(server.memory.deleted_with.lock().unwrap().as_ref().unwrap().grace_period, Some(0));
    assert_eq!(
        admin.get(&format!("{MAPS}/a")).await.failure(),
        (404, "NotFound".into(), "configmaps \"a\" not found".into())
    );
    assert_eq!(admin.send("DELETE", MAPS, &[], "").await.json()["kind"], "ConfigMapList");
}

#[tokio::test]
async fn an_object_comes_in_the_shape_that_was_asked_for() {
    let server = Running::start(|_| {}).await;
    let admin = server.admin();
    admin.make("", "a", "1").await;
    admin.make("", "b", "2").await;
    let (one, all) = (format!("{MAPS}/a"), MAPS.to_owned());
    let metadata = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
    let metadata_list = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    // path, Accept -> content type, kind
    let rows = [
        (&one, "*/*", "application/json", "ConfigMap"),
        (&one, "application/yaml", "application/yaml", ""),
        (&one, TABLE, "application/json", "Table"),
        (&all, TABLE, "application/json", "Table"),
        (&one, metadata, "application/json", "PartialObjectMetadata"),
        (&all, metadata_list, "application/json", "PartialObjectMetadataList"),
        (&one, PROTOBUF, PROTOBUF, ""),
        (&all, "application/vnd.kubernetes.protobuf, application/json", PROTOBUF, ""),
    ];
    for (path, accept, content_type, kind) in rows {
        let got = admin.accept(path, accept).await;
        assert_eq!((got.code, got.header("content-type")), (200, content_type), "{accept}");
        if content_type == "application/json" {
            assert_eq!(got.json()["kind"], kind, "{accept}");
        }
    }
    for (path, accept, like) in [
        (&one, PROTOBUF.to_owned(), "*/*"),
        (&all, PROTOBUF.to_owned(), "*/*"),
        (&one, metadata.replace("application/json", PROTOBUF), metadata),
        (&all, metadata_list.replace("application/json", PROTOBUF), metadata_list),
    ] {
        let (binary, mut json) =
            (admin.accept(path, &accept).await.body, admin.accept(path, like).await.json());
        // Items of a list do not say of which kind they are there.
        for item in json.get_mut("items").and_then(|items| items.as_array_mut()).into_iter().flatten() {
            let map = item.as_object_mut().unwrap();
            map.remove("kind");
            map.remove("apiVersion");
        }
        assert_eq!(freehold_machinery_protobuf::decode(&binary).unwrap(), json, "{accept}");
    }
    let missing = admin.accept(&format!("{MAPS}/none"), PROTOBUF).await;
    let status = freehold_machinery_protobuf::decode(&missing.body).unwrap();
    assert_eq!((missing.code, &status["kind"], &status["code"]), (404, &json!("Status"), &json!(404)));
    assert!(admin.accept(&one, "application/yaml").await.text().contains("kind: ConfigMap\n"));
    let table = admin.accept(&all, TABLE).await.json();
    assert_eq!(table["columnDefinitions"][0]["name"], "Name");
    assert_eq!(table["rows"][1]["cells"][0], "b");
    assert_eq!(table["rows"][1]["object"]["kind"], "PartialObjectMetadata");
    let partial = admin.accept(&one, metadata).await.json();
    assert_eq!((&partial["metadata"]["name"], &partial["data"]), (&json!("a"), &json!(null)));
    let pretty = admin.send("GET", &one, &[("user-agent", "curl/8")], "").await;
    assert!(pretty.text().starts_with("{\n  \"apiVersion\""), "{}", pretty.text());
    let head = admin.send("HEAD", &one, &[], "").await;
    assert_eq!((head.code, head.body.len()), (405, 0));
    for (document, code) in
        [("/api", 405), ("/api/v1", 405), ("/apis/apps/v1", 405), ("/version", 405), ("/apis", 200)]
    {
        assert_eq!(admin.send("HEAD", document, &[], "").await.code, code, "{document}");
    }
    let head = admin.send("HEAD", "/apis", &[], "").await;
    assert_eq!(head.header("content-length"), admin.get("/apis").await.body.len().to_string());
}

#[tokio::test]
async fn a_list_over_projects_tells_the_project_of_each_row() {
    let server = Running::start(|_| {}).await;
    let admin = server.admin();
    let body =
        json!({"metadata": {"name": "a", "annotations": {"resourcemanager.freehold.dev/project": "web"}}});
    admin.send("POST", MAPS, &[], body.to_string()).await;
    let table = admin.accept("/organizations/acme/api/v1/configmaps", TABLE).await.json();
    assert_eq!(
        (&table["columnDefinitions"][0]["name"], &table["rows"][0]["cells"][0]),
        (&json!("Project"), &json!("web"))
    );
    assert_eq!(admin.accept(MAPS, TABLE).await.json()["columnDefinitions"][0]["name"], "Name");
}

#[tokio::test]
async fn a_large_answer_is_compressed_for_who_takes_it() {
    let server = Running::start(|_| {}).await;
    let admin = server.admin();
    for name in ["a", "b", "c"] {
        admin.make("", name, &"x".repeat(60_000)).await;
    }
    let plain = admin.get(MAPS).await;
    assert_eq!(plain.header("content-length"), plain.body.len().to_string());
    let packed = admin.send("GET", MAPS, &[("accept-encoding", "gzip")], "").await;
    assert_eq!((packed.header("content-encoding"), packed.header("vary")), ("gzip", "Accept-Encoding"));
    let mut unpacked = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&packed.body[..]), &mut unpacked).unwrap();
    assert_eq!(unpacked, plain.body);
    let small = admin.send("GET", &format!("{MAPS}/a"), &[("accept-encoding", "gzip")], "").await;
    assert_eq!(small.header("content-encoding"), "");
}

#[tokio::test]
async fn what_makes_no_sense_gets_kubernetes_words() {
    let server = Running::start(|_| {}).await;
    let admin = server.admin();
    admin.make("", "a", "1").await;
    let one = format!("{MAPS}/a");
    let json = "application/json";
    let (scale, limit) = (format!("{one}/scale"), format!("{MAPS}?limit=x"));
    let too_long = "x".repeat(3 * 1024 * 1024 + 1);
    let types = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
    let method = "the server does not allow this method on the requested resource";
    let unknown = "the body of the request was in an unknown format - accepted media types include: ";
    // method, path, content type, body -> code, reason, message
    let rows: Vec<(&str, &str, &str, &str, u16, &str, String)> = vec![
        ("POST", MAPS, json, "{", 400, "BadRequest", "the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: unexpected end of JSON input ({)".into()),
        ("POST", MAPS, json, "[]", 400, "BadRequest", "the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of type struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" } (5b5d)".into()),
        ("POST", MAPS, "text/plain", "{}", 415, "UnsupportedMediaType", format!("{unknown}{types}")),
        ("POST", MAPS, json, &too_long, 413, "RequestEntityTooLarge", "Request entity too large: limit is 3145728".into()),
        ("POST", &one, json, "{}", 405, "MethodNotAllowed", method.into()),
        ("PUT", MAPS, json, "{}", 405, "MethodNotAllowed", method.into()),
        ("POST", "/api/v1/configmaps", json, "{}", 405, "MethodNotAllowed", method.into()),
        ("POST", WATCHED, json, "{}", 405, "MethodNotAllowed", method.into()),
        ("DELETE", WATCHED, json, "", 405, "MethodNotAllowed", method.into()),
        ("PATCH", &one, json, "{}", 415, "UnsupportedMediaType", "415: Unsupported Media Type".into()),
        ("PATCH", &one, "application/merge-patch+json", "{", 400, "BadRequest", "error decoding patch: unexpected end of JSON input".into()),
        ("PATCH", &one, "application/apply-patch+yaml", "{}", 422, "Invalid", "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch".into()),
        ("GET", "/api/v1/nothings", "", "", 404, "NotFound", "the server could not find the requested resource".into()),
        ("GET", "/api/v1/namespaces/default/nodes", "", "", 404, "NotFound", "the server could not find the requested resource".into()),
        ("GET", "/api/v1/configmaps/a", "", "", 404, "NotFound", "the server could not find the requested resource".into()),
        ("GET", &scale, "", "", 404, "NotFound", "the server could not find the requested resource".into()),
        ("GET", &limit, "", "", 400, "BadRequest", "strconv.ParseInt: parsing \"x\": invalid syntax".into()),
        ("GET", "/api/v1/../../version", "", "", 404, "NotFound", "the server could not find the requested resource".into()),
        ("GET", "/api/v1/namespaces/..", "", "", 400, "BadRequest", "Name parameter invalid: \"..\": may not be '..'".into()),
        ("GET", "/planes%2fp1/api", "", "", 400, "BadRequest", "what names a control plane in a path has to be spelled plainly".into()),
        ("GET", "/planes/UPPER/api", "", "", 404, "NotFound", "the server could not find the requested resource".into()),
        ("GET", "/projects/gone/api", "", "", 404, "NotFound", "projects.resourcemanager.freehold.dev \"gone\" not found".into()),
        ("DELETE", &one, json, r#"{"kind":"DeleteOptions","dryRun":["None"]}"#, 422, "Invalid", "DeleteOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"None\"]: supported values: \"All\"".into()),
    ];
    for (method, path, content_type, body, code, reason, message) in rows {
        let headers: &[(&str, &str)] =
            if content_type.is_empty() { &[] } else { &[("content-type", content_type)] };
        let got = admin.send(method, path, headers, body.to_owned()).await.failure();
        assert_eq!(got, (code, reason.to_owned(), message), "{method} {path}");
    }
    let got = admin.accept(&one, "application/cbor").await.failure();
    assert_eq!(
        got,
        (406, "NotAcceptable".into(), format!("406: Not Acceptable\n\nAvailable representations: {types}"))
    );
    let nowhere = admin.get("/nowhere").await;
    assert_eq!((nowhere.code, nowhere.text()), (404, "404 page not found\n".into()));
}

#[tokio::test]
async fn each_kind_of_patch_arrives_as_what_it_is() {
    let server = Running::start(|_| {}).await;
    let admin = server.admin();
    let rows = [
        ("application/json-patch+json", "[]", "json"),
        ("application/merge-patch+json", "{}", "merge"),
        ("application/strategic-merge-patch+json; charset=utf-8", "{}", "strategic"),
        ("application/apply-patch+yaml", "a: 1", "apply"),
    ];
    for (content_type, body, kind) in rows {
        let path = format!("{MAPS}/a?fieldManager=m");
        let got = admin.send("PATCH", &path, &[("content-type", content_type)], body).await;
        assert_eq!(got.json()["data"]["patch"], kind);
    }
    let path = format!("{MAPS}/a?fieldManager=m&force=true");
    admin.send("PATCH", &path, &[("content-type", "application/apply-patch+yaml")], "{}").await;
    assert!(server.memory.last.lock().unwrap().as_ref().unwrap().0.force);
}

#[tokio::test]
async fn a_bug_in_one_request_is_a_500_for_it_alone() {
    let server = Running::start(|_| {}).await;
    let admin = server.admin();
    let got = admin.get(&format!("{MAPS}/panic")).await.failure();
    assert_eq!((got.0, got.1.as_str()), (500, "InternalError"));
    assert_eq!(admin.get("/livez").await.code, 200);
}

#[tokio::test]
async fn too_many_requests_at_a_time_are_told_to_come_again() {
    let server = Running::start(|config| config.limits.read_only = 1).await;
    let admin = server.admin();
    let slow = tokio::spawn({
        let admin = admin.clone();
        async move { admin.get(&format!("{MAPS}/slow")).await.code }
    });
    while server.memory.slow.load(SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    let refused = admin.get(MAPS).await;
    assert_eq!(refused.failure().0, 429);
    assert_eq!(refused.header("retry-after"), "1");
    assert_eq!(admin.get("/livez").await.code, 200, "health is not limited");
    admin.make("", "a", "writes have a limit of their own").await;
    server.memory.go.notify_one();
    assert_eq!(slow.await.unwrap(), 404);
    assert_eq!(admin.get(MAPS).await.code, 200);
}

#[tokio::test]
async fn a_request_that_takes_too_long_gets_504() {
    let server = Running::start(|config| config.limits.request = std::time::Duration::from_millis(50)).await;
    let got = server.admin().get(&format!("{MAPS}/slow")).await.failure();
    assert_eq!(
        got,
        (504, "Timeout".into(), "Timeout: request did not complete within the allotted timeout".into())
    );
}
