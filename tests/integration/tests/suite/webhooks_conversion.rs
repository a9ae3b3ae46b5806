//! CRDs whose versions are converted by a webhook.

use crate::{PATIENCE, contains_all, text};
use freehold_tests_integration::{Held, HookServer, Http, Reply, World, facts, until};
use http::Method;
use serde_json::{Value, json};

facts!(world:
    every_verb_speaks_every_version,
    a_conversion_that_fails_is_told_and_harms_only_its_own_versions,
    watchers_of_a_version_share_its_conversions,
    an_organization_sees_each_project_through_its_own_webhook,
);

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Shops, stored as v1 with `hostPort`, converted to v2 with `host` and `port`.
fn shops(client: &Value) -> Value {
    let version = |name: &str, stored: bool, fields: &[&str]| {
        let properties: serde_json::Map<String, Value> =
            fields.iter().map(|field| ((*field).to_owned(), json!({"type": "string"}))).collect();
        let selectable: Vec<Value> =
            fields.iter().map(|field| json!({"jsonPath": format!(".{field}")})).collect();
        json!({"name": name, "served": true, "storage": stored, "selectableFields": selectable, "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}}})
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "shops.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "shops", "singular": "shop", "kind": "Shop", "listKind": "ShopList"},
            "versions": [version("v1", true, &["hostPort"]), version("v1beta2", false, &["host", "port"])],
            "conversion": {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": client}},
        },
    })
}

fn convert(object: &Value, to: &str) -> Value {
    let mut object = object.clone();
    object["apiVersion"] = to.into();
    let map = object.as_object_mut().expect("an object");
    match map.remove("hostPort") {
        Some(both) => {
            let (host, port) = both.as_str().and_then(|both| both.split_once(':')).unwrap_or_default();
            map.insert("host".into(), host.into());
            map.insert("port".into(), port.into());
        }
        None => {
            let part = |field: &str| map.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
            let both = format!("{}:{}", part("host"), part("port"));
            map.retain(|key, _| key != "host" && key != "port");
            map.insert("hostPort".into(), both.into());
        }
    }
    object
}

fn converter() -> HookServer {
    HookServer::start(|path, review| {
        let request = &review["request"];
        let objects = request["objects"].as_array().cloned().unwrap_or_default();
        let to = text(request, "/desiredAPIVersion");
        let mut converted: Vec<Value> = objects.iter().map(|object| convert(object, to)).collect();
        let mut result = json!({"status": "Success"});
        match path {
            "/refuses" => result = json!({"status": "Failed", "message": "no such thing"}),
            "/renames" => converted.iter_mut().for_each(|object| object["metadata"]["name"] = "other".into()),
            "/loses" => drop(converted.pop()),
            "/hangs-up" => return Reply::HangUp,
            "/huge" => return Reply::Endless,
            "/page" => return Reply::Text(200, "<html>".into()),
            "/hangs" => return Reply::Hang,
            "/slow" => return Reply::Slow,
            _ => {}
        }
        let response = json!({"uid": request["uid"], "result": result, "convertedObjects": converted});
        Reply::Json(
            json!({"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1", "response": response}),
        )
    })
}

fn path(version: &str) -> String {
    format!("/apis/example.com/{version}/namespaces/default/shops")
}

fn every_verb_speaks_every_version(world: &World) {
    let kubectl = world.project("conversions");
    let http = Http::of(&kubectl);
    let server = converter();
    let made = http.json(Method::POST, CRDS, &shops(&server.by_url("/convert")));
    assert_eq!(made.code, 201, "{made:?}");
    let shop = json!({"apiVersion": "example.com/v1beta2", "kind": "Shop", "metadata": {"name": "a", "labels": {"x": "y"}}, "host": "h", "port": "1"});
    let made = http.json(Method::POST, &path("v1beta2"), &shop);
    assert_eq!((made.code, text(&made.body, "/host")), (201, "h"), "{made:?}");
    let read = http.get(&format!("{}/a", path("v1")));
    assert_eq!(text(&read.body, "/hostPort"), "h:1", "{read:?}");
    assert_eq!(text(&read.body, "/metadata/labels/x"), "y");
    assert_eq!(text(&read.body, "/apiVersion"), "example.com/v1");
    let mut second =
        json!({"apiVersion": "example.com/v1", "kind": "Shop", "metadata": {"name": "b"}, "hostPort": "i:2"});
    assert_eq!(http.json(Method::POST, &path("v1"), &second).code, 201);
    let calls = server.seen().len();
    let list = http.get(&path("v1beta2"));
    let hosts: Vec<&str> = crate::items(&list.body).map(|item| text(item, "/host")).collect();
    assert_eq!(hosts, ["h", "i"], "{list:?}");
    // A controller that has read them in that version meanwhile leaves nothing to ask.
    assert!(server.seen().len() <= calls + 1, "one call for the whole list");
    for (version, selector, wanted) in [("v1beta2", "host=i", "b"), ("v1", "hostPort=h:1", "a")] {
        let chosen = http.get(&format!("{}?fieldSelector={selector}", path(version)));
        assert_eq!(crate::names(&chosen.body), [wanted], "{selector} selects what {version} shows");
    }
    let merge = "application/merge-patch+json";
    let patched =
        http.send(Method::PATCH, &format!("{}/a", path("v1beta2")), merge, json!({"port": "9"}).to_string());
    assert_eq!((patched.code, text(&patched.body, "/port")), (200, "9"), "{patched:?}");
    let stored = http.get(&format!("{}/a", path("v1")));
    assert_eq!(text(&stored.body, "/hostPort"), "h:9");
    second = http.get(&format!("{}/b", path("v1beta2"))).body;
    second["host"] = "j".into();
    assert_eq!(http.json(Method::PUT, &format!("{}/b", path("v1beta2")), &second).code, 200);
    kubectl.ok(&["apply", "--server-side", "--force-conflicts", "-f", world_file(world, "shop.yaml",
        "apiVersion: example.com/v1beta2\nkind: Shop\nmetadata: {name: b, namespace: default}\nhost: k\nport: '3'\n").as_str()]);
    assert_eq!(text(&http.get(&format!("{}/b", path("v1"))).body, "/hostPort"), "k:3");
    let gone = http.json(Method::DELETE, &format!("{}/a", path("v1beta2")), &json!({}));
    assert_eq!(gone.code, 200);
}

fn world_file(world: &World, name: &str, content: &str) -> String {
    crate::Scratch::new(world, name, content).path().to_owned()
}

fn a_conversion_that_fails_is_told_and_harms_only_its_own_versions(world: &World) {
    let (kubectl, neighbour) = (world.project("conversions-bad"), world.project("conversions-beside"));
    let http = Http::of(&kubectl);
    let server = converter();
    let mut crd = http.json(Method::POST, CRDS, &shops(&server.by_url("/convert"))).body;
    let shop =
        json!({"apiVersion": "example.com/v1", "kind": "Shop", "metadata": {"name": "a"}, "hostPort": "h:1"});
    assert_eq!(http.json(Method::POST, &path("v1"), &shop).code, 201);
    let rows = [
        ("/refuses", "conversion webhook for example.com/v1, Kind=Shop failed: no such thing"),
        (
            "/renames",
            "conversion webhook for example.com/v1, Kind=Shop returned invalid object: must have the same name: a != other",
        ),
        ("/loses", "conversion webhook for example.com/v1, Kind=Shop returned 0 objects, expected 1"),
        ("/hangs-up", "conversion webhook for example.com/v1, Kind=Shop failed: Post "),
        ("/huge", "conversion webhook for example.com/v1, Kind=Shop failed: "),
        ("/page", "conversion webhook for example.com/v1, Kind=Shop failed: "),
    ];
    for (way, said) in rows {
        crd["spec"]["conversion"]["webhook"]["clientConfig"] = server.by_url(way);
        let written = http.json(Method::PUT, &format!("{CRDS}/shops.example.com"), &crd);
        assert_eq!(written.code, 200, "{written:?}");
        crd = written.body;
        let failed = http.get(&format!("{}/a", path("v1beta2")));
        assert_eq!(failed.code, 500, "{way}: {failed:?}");
        contains_all(text(&failed.body, "/message"), &[said]);
        assert_eq!(http.get(&path("v1beta2")).code, 500, "{way}: nor is a list answered by halves");
        assert_eq!(
            http.get(&format!("{}/a", path("v1"))).code,
            200,
            "{way}: the stored version needs nobody"
        );
        assert_eq!(http.get("/api/v1/namespaces/default/configmaps").code, 200);
    }
    // Who waits for one that does not come to an end waits alone.
    let url = format!("{}/projects/conversions-bad{}/a", world.server().url(), path("v1beta2"));
    for way in ["/hangs", "/slow"] {
        crd["spec"]["conversion"]["webhook"]["clientConfig"] = server.by_url(way);
        crd = http.json(Method::PUT, &format!("{CRDS}/shops.example.com"), &crd).body;
        let before = server.seen().len();
        let waiting = Held::get(&kubectl, &url, &[]);
        until(&format!("{way} is asked"), PATIENCE, || (server.seen().len() > before).then_some(()));
        assert_eq!(http.get(&format!("{}/a", path("v1"))).code, 200, "{way}");
        assert_eq!(http.get("/api/v1/namespaces/default/configmaps").code, 200, "{way}");
        assert_eq!(Http::of(&neighbour).get("/api/v1/namespaces/default/configmaps").code, 200, "{way}");
        drop(waiting);
    }
}

fn watchers_of_a_version_share_its_conversions(world: &World) {
    let kubectl = world.project("conversions-watched");
    let http = Http::of(&kubectl);
    let server = converter();
    assert_eq!(http.json(Method::POST, CRDS, &shops(&server.by_url("/convert"))).code, 201);
    let watches: Vec<_> = (0..4)
        .map(|_| {
            kubectl.background(&[
                "get",
                "shops.v1beta2.example.com",
                "--watch",
                "-o",
                "jsonpath={.host} {.port}{'\\n'}",
            ])
        })
        .collect();
    let shop =
        json!({"apiVersion": "example.com/v1", "kind": "Shop", "metadata": {"name": "a"}, "hostPort": "h:1"});
    assert_eq!(http.json(Method::POST, &path("v1"), &shop).code, 201);
    for watch in &watches {
        watch.wait_for("h 1");
    }
    assert!(server.seen().len() <= watches.len() + 1, "{} calls", server.seen().len());
}

fn an_organization_sees_each_project_through_its_own_webhook(world: &World) {
    let projects = ["chain-one", "chain-two"];
    world.organization("chains", &projects);
    let made = projects.map(|project| {
        world.wait_ready(project);
        let (http, server) = (Http::of(&world.server().project(project)), converter());
        let crd = http.json(Method::POST, CRDS, &shops(&server.by_url("/convert")));
        assert_eq!(crd.code, 201, "{crd:?}");
        assert_eq!(http.json(Method::POST, &path("v1"), &shop(project, &format!("{project}:1"))).code, 201);
        (http, server, crd.body)
    });
    let all = world.at("/organizations/chains");
    let http = Http::of(&world.admin());
    let list = |of: &str| http.get(&format!("/organizations/chains/apis/example.com/{of}"));
    let shown = |query: &str| {
        let list = list(&format!("v1beta2/shops{query}"));
        let mut hosts: Vec<String> =
            crate::items(&list.body).map(|item| text(item, "/host").to_owned()).collect();
        hosts.sort();
        (hosts, text(&list.body, "/metadata/continue").to_owned())
    };
    assert_eq!(shown(""), (projects.map(str::to_owned).into(), String::new()));
    assert_eq!(shown("?fieldSelector=host%3Dchain-two").0, ["chain-two"]);
    let (mut paged, next) = shown("?limit=1");
    paged.extend(shown(&format!("?limit=1&continue={next}")).0);
    paged.sort();
    assert_eq!(paged, projects, "page by page");
    let watch = all.background(&[
        "get",
        "shops.v1beta2.example.com",
        "-A",
        "--watch",
        "-o",
        "jsonpath={.host} {.port}{'\\n'}",
    ]);
    watch.wait_for("chain-one 1");
    let (second, other, mut crd) = (&made[1].0, &made[1].1, made[1].2.clone());
    assert_eq!(second.json(Method::POST, &path("v1"), &shop("later", "later:2")).code, 201);
    watch.wait_for("later 2");
    let text_of = |server: &HookServer| format!("{:?}", server.seen());
    assert!(!text_of(&made[0].1).contains("later") && !text_of(&made[0].1).contains("chain-two"));
    assert!(text_of(other).contains("later") && !text_of(other).contains("chain-one"));

    crd["spec"]["conversion"]["webhook"]["clientConfig"] = other.by_url("/refuses");
    assert_eq!(second.json(Method::PUT, &format!("{CRDS}/shops.example.com"), &crd).code, 200);
    let refused = list("v1beta2/shops");
    assert_eq!(refused.code, 500, "{refused:?}");
    let said = ["project \"chain-two\": conversion webhook for example.com/v1, Kind=Shop", "no such thing"];
    contains_all(text(&refused.body, "/message"), &said);
    assert_eq!(crate::items(&list("v1/shops").body).count(), 3);
}

fn shop(name: &str, at: &str) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Shop", "metadata": {"name": name}, "hostPort": at})
}
