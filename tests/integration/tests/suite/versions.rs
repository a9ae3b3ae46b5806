//! What `resourceVersion` and `resourceVersionMatch` mean to gets, lists and watches, and what kube-apiserver says of the
//! combinations that mean nothing: each row was asked of kube-apiserver 1.36 too.
//! <https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions>

use crate::{PATIENCE, items, names, text};
use freehold_tests_integration::{Engine, Http, Server, World, facts, until};
use http::Method;
use serde_json::{Value, json};

facts!(world:
    a_get_is_the_latest_or_not_older_than_what_it_names,
    a_list_is_as_of_what_it_names,
    a_page_is_as_of_what_it_names,
    a_watch_begins_with_what_there_is_or_after_what_it_names,
    a_watch_of_related_objects_alone_has_all_deletions,
    what_contradicts_itself_is_refused_in_the_words_of_kubernetes,
    what_is_made_has_no_version_that_counts,
);

mod expiry {
    use super::*;

    facts!(engine: tokens_and_revisions_outlive_a_restart_and_expire_by_age);
}

/// A namespace of its own with four ConfigMaps: its URL, and the resource versions of each.
struct Place {
    http: Http,
    maps: String,
    versions: Vec<u64>,
}

impl Place {
    fn new(world: &World, name: &str) -> Self {
        let kubectl = world.namespace("versions", name);
        // It is made by a controller, and not counted on here.
        kubectl.ok(&["wait", "--for=create", "configmap/kube-root-ca.crt", "--timeout=120s"]);
        kubectl.ok(&["delete", "configmap", "kube-root-ca.crt"]);
        kubectl.ok(&["wait", "--for=create", "configmap/kube-root-ca.crt", "--timeout=120s"]);
        Self::filled(Http::of(&kubectl), format!("/api/v1/namespaces/{name}/configmaps"))
    }

    fn filled(http: Http, maps: String) -> Self {
        let make = |nth: usize| {
            let map = json!({"metadata": {"name": format!("m{nth}"), "labels": {"of": "test"}}});
            let made = http.json(Method::POST, &maps, &map);
            assert_eq!(made.code, 201, "{made:?}");
            version(&made.body)
        };
        let versions = (1..=4).map(make).collect();
        Self { http, maps, versions }
    }

    /// The names of a list, its resource version and whether there is more.
    fn list(&self, query: &str) -> (Vec<String>, u64, bool) {
        let answer = self.http.get(&format!("{}?labelSelector=of%3Dtest&{query}", self.maps));
        assert_eq!(answer.code, 200, "{query}: {answer:?}");
        let names = names(&answer.body).into_iter().map(str::to_owned).collect();
        (names, version(&answer.body), !text(&answer.body, "/metadata/continue").is_empty())
    }

    /// What a watch of one second sends: `TYPE name`, and `ERROR code`.
    fn watch(&self, query: &str) -> Vec<String> {
        let path = format!("{}?watch=true&timeoutSeconds=1&labelSelector=of%3Dtest&{query}", self.maps);
        let answer = self.http.get(&path).body;
        let lines = match &answer {
            Value::String(lines) => {
                lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
            }
            Value::Object(_) => vec![answer],
            _ => Vec::new(),
        };
        let told = |event: &Value| {
            let object = &event["object"];
            let end = object["metadata"]["annotations"]["k8s.io/initial-events-end"].as_str();
            match text(event, "/type") {
                "BOOKMARK" => format!("BOOKMARK {}", end.unwrap_or_default()),
                "" => format!("{} {}", event["code"], text(event, "/message")),
                ty => format!("{ty} {}", text(object, "/metadata/name")),
            }
        };
        lines.iter().map(told).collect()
    }

    fn refusal(&self, path: &str) -> (u16, String) {
        let answer = self.http.get(path);
        (answer.code, text(&answer.body, "/message").to_owned())
    }
}

fn version(object: &Value) -> u64 {
    text(object, "/metadata/resourceVersion").parse().expect("a resource version is a number")
}

/// A resource version that is not reached soon.
const FUTURE: u64 = 1 << 40;

fn a_get_is_the_latest_or_not_older_than_what_it_names(world: &World) {
    let place = Place::new(world, "gets");
    let (first, last) = (place.versions[0], place.versions[3]);
    let get = |query: &str| place.http.get(&format!("{}/m1?{query}", place.maps));
    for query in
        ["", "resourceVersion=0", &format!("resourceVersion={first}"), &format!("resourceVersion={last}")]
    {
        let found = get(query);
        assert_eq!((found.code, version(&found.body)), (200, first), "{query}");
    }
    let late = get(&format!("resourceVersion={FUTURE}"));
    assert_eq!(late.code, 504, "{late:?}");
    assert!(
        text(&late.body, "/message")
            .starts_with(&format!("Timeout: Too large resource version: {FUTURE}, current: "))
    );
    assert_eq!(late.body["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
    assert_eq!(late.body["details"]["retryAfterSeconds"], 1);
    let wrong = get("resourceVersion=x");
    let words = r#"resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": invalid syntax"#;
    assert_eq!((wrong.code, text(&wrong.body, "/message")), (500, words));
}

fn a_list_is_as_of_what_it_names(world: &World) {
    let place = Place::new(world, "lists");
    let (first, third, last) = (place.versions[0], place.versions[2], place.versions[3]);
    let all = ["m1", "m2", "m3", "m4"].map(str::to_owned);
    for query in [
        "",
        "resourceVersion=0",
        &format!("resourceVersion={first}"),
        &format!("resourceVersion={last}"),
        "resourceVersion=0&resourceVersionMatch=NotOlderThan",
        // A list that may be of any age comes whole.
        "resourceVersion=0&limit=2",
        "resourceVersion=0&limit=2&resourceVersionMatch=NotOlderThan",
        &format!("resourceVersion={first}&resourceVersionMatch=NotOlderThan"),
    ] {
        let (names, at, more) = place.list(query);
        assert!(names == all && at >= last && !more, "{query}: {names:?} at {at}");
    }
    for (at, count) in [(first, 1), (third, 3), (last, 4)] {
        let found = place.list(&format!("resourceVersion={at}&resourceVersionMatch=Exact"));
        assert_eq!(found, (all[..count].to_vec(), at, false));
    }
    for matching in ["", "&resourceVersionMatch=Exact", "&resourceVersionMatch=NotOlderThan"] {
        let late = place.http.get(&format!("{}?resourceVersion={FUTURE}{matching}", place.maps));
        assert_eq!(late.code, 504, "{matching}: {late:?}");
    }
}

fn a_page_is_as_of_what_it_names(world: &World) {
    let place = Place::new(world, "pages");
    let (second, third, last) = (place.versions[1], place.versions[2], place.versions[3]);
    let two = ["m1", "m2"].map(str::to_owned).to_vec();
    let (names, at, more) = place.list("limit=2");
    assert!(names == two && at >= last && more);
    // Without a match, a limit makes a resource version an exact one.
    for matching in ["", "&resourceVersionMatch=Exact"] {
        assert_eq!(
            place.list(&format!("limit=2&resourceVersion={third}{matching}")),
            (two.clone(), third, true)
        );
        assert_eq!(
            place.list(&format!("limit=2&resourceVersion={second}{matching}")),
            (two.clone(), second, false)
        );
    }
    let (names, at, more) =
        place.list(&format!("limit=2&resourceVersion={second}&resourceVersionMatch=NotOlderThan"));
    assert!(names == two && at >= last && more, "{names:?} at {at}");
    let first = place.http.get(&format!("{}?labelSelector=of%3Dtest&limit=2", place.maps)).body;
    let token = text(&first, "/metadata/continue");
    place.http.json(
        Method::POST,
        &place.maps,
        &json!({"metadata": {"name": "m35", "labels": {"of": "test"}}}),
    );
    for query in ["limit=2", "limit=2&resourceVersion=0", "limit=1&resourceVersion=0"] {
        let (names, at, more) = place.list(&format!("{query}&continue={token}"));
        assert_eq!((names, at, more), (["m3", "m4"].map(str::to_owned).to_vec(), version(&first), false));
    }
}

fn a_watch_begins_with_what_there_is_or_after_what_it_names(world: &World) {
    let place = Place::new(world, "watches");
    let (first, last) = (place.versions[0], place.versions[3]);
    let all = ["ADDED m1", "ADDED m2", "ADDED m3", "ADDED m4"];
    assert_eq!(place.watch(""), all);
    assert_eq!(place.watch("resourceVersion=0"), all);
    assert_eq!(place.watch(&format!("resourceVersion={first}")), all[1..]);
    assert_eq!(place.watch(&format!("resourceVersion={last}")), [""; 0]);
    assert_eq!(
        place.watch(&format!("resourceVersion={FUTURE}")),
        [""; 0],
        "a watch waits for what is to come"
    );
    let initial = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    assert_eq!(place.watch(initial), all, "who wants no bookmarks gets none");
    let ended: Vec<_> = all.iter().copied().chain(["BOOKMARK true"]).collect();
    for version in [String::new(), "&resourceVersion=0".to_owned(), format!("&resourceVersion={first}")] {
        assert_eq!(place.watch(&format!("{initial}&allowWatchBookmarks=true{version}")), ended);
    }
    for version in ["", "&resourceVersion=0"] {
        assert_eq!(
            place.watch(&format!("allowWatchBookmarks=true{version}")),
            ended,
            "as if it were asked for"
        );
    }
    let none = "sendInitialEvents=false&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    assert_eq!(place.watch(&format!("{none}&resourceVersion={first}")), all[1..]);
    let over = format!("{}?watch=true&timeoutSeconds=-1&resourceVersion={last}", place.maps);
    assert_eq!(place.http.get(&over).code, 200, "its time is over as it begins");
    assert!(place.watch("resourceVersion=1")[0].contains("too old resource version: 1"));
}

fn a_watch_of_related_objects_alone_has_all_deletions(world: &World) {
    let place = Place::new(world, "related");
    let last = place.versions[3];
    let owner = place.http.get(&format!("{}/m1", place.maps)).body;
    let reference =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "m1", "uid": text(&owner, "/metadata/uid")});
    let metadata = json!({"name": "owned", "labels": {"of": "test"}, "ownerReferences": [reference]});
    assert_eq!(place.http.json(Method::POST, &place.maps, &json!({"metadata": metadata})).code, 201);
    let unrelated = json!({"metadata": {"name": "m5", "labels": {"of": "test"}}});
    assert_eq!(place.http.json(Method::POST, &place.maps, &unrelated).code, 201);
    assert_eq!(place.http.json(Method::DELETE, &format!("{}/m2", place.maps), &json!({})).code, 200);
    // Who has read the latest may count on a watch of a second having all of it.
    assert_eq!(place.list("").0, ["m1", "m3", "m4", "m5", "owned"]);
    assert_eq!(
        place.watch(&format!("relatedOnly=true&resourceVersion={last}")),
        ["ADDED owned", "DELETED m2"]
    );
    assert_eq!(place.watch("relatedOnly=true"), ["ADDED owned"]);
}

fn what_contradicts_itself_is_refused_in_the_words_of_kubernetes(world: &World) {
    let place = Place::new(world, "refused");
    let last = place.versions[3];
    let first = place.http.get(&format!("{}?limit=1", place.maps)).body;
    let token = text(&first, "/metadata/continue");
    let field = |what: &str| format!(r#"ListOptions.meta.k8s.io "" is invalid: {what}"#);
    let matching = |why: &str| format!("resourceVersionMatch: Forbidden: {why}");
    let unset = matching("resourceVersionMatch is forbidden unless resourceVersion is provided");
    let continued = matching("resourceVersionMatch is forbidden when continue is provided");
    let requires = matching("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan");
    let watched =
        matching("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided");
    let unsupported = |value: &str, known: &str| {
        format!(r#"resourceVersionMatch: Unsupported value: "{value}": supported values: {known}"#)
    };
    let continued_version = "specifying resource version is not allowed when using continue".to_owned();
    let other = unsupported("Other", r#""Exact", "NotOlderThan", """#);
    let rows = [
        ("resourceVersionMatch=Exact".to_owned(), 422, field(&unset)),
        ("resourceVersionMatch=NotOlderThan&limit=2".to_owned(), 422, field(&unset)),
        ("resourceVersionMatch=Other".to_owned(), 422, field(&format!("[{unset}, {other}]"))),
        (format!("resourceVersionMatch=Other&resourceVersion={last}"), 422, field(&other)),
        (
            "resourceVersionMatch=Exact&resourceVersion=0".to_owned(),
            422,
            field(&matching(r#"resourceVersionMatch "exact" is forbidden for resourceVersion "0""#)),
        ),
        (
            format!("continue={token}&resourceVersionMatch=Exact&resourceVersion={last}"),
            422,
            field(&continued),
        ),
        (format!("continue={token}&resourceVersionMatch=Exact"), 422, field(&format!("[{unset}, {continued}]"))),
        (
            format!("continue={token}&resourceVersion={last}"),
            400,
            continued_version.clone(),
        ),
        (format!("continue={token}&resourceVersion=x"), 400, continued_version.clone()),
        (format!("continue={token}&resourceVersion=00"), 400, continued_version),
        (
            "continue=garbage".to_owned(),
            400,
            r"invalid continue token: continue key is not valid: invalid character '\u0081' looking for beginning of value"
                .to_owned(),
        ),
        (
            "watch=true&limit=x".to_owned(),
            400,
            r#"strconv.ParseInt: parsing "x": invalid syntax"#.to_owned(),
        ),
        (
            "resourceVersion=x".to_owned(),
            400,
            r#"invalid resource version: resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": invalid syntax"#
                .to_owned(),
        ),
        (
            "sendInitialEvents=true".to_owned(),
            422,
            field("sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list"),
        ),
        ("watch=true&resourceVersionMatch=NotOlderThan".to_owned(), 422, field(&watched)),
        (
            format!("watch=true&resourceVersionMatch=Exact&resourceVersion={last}"),
            422,
            field(&format!("[{watched}, {}]", unsupported("Exact", r#""NotOlderThan""#))),
        ),
        ("watch=true&sendInitialEvents=true".to_owned(), 422, field(&requires)),
        ("watch=true&sendInitialEvents=false".to_owned(), 422, field(&requires)),
        (
            "watch=true&sendInitialEvents=true&resourceVersionMatch=Other".to_owned(),
            422,
            field(&format!("[{requires}, {}]", unsupported("Other", r#""NotOlderThan""#))),
        ),
        (format!("watch=true&continue={token}"), 422, field(&continued)),
        (
            format!("watch=true&continue={token}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"),
            422,
            field(&continued),
        ),
    ];
    for (query, code, words) in rows {
        assert_eq!(place.refusal(&format!("{}?{query}", place.maps)), (code, words), "{query}");
    }
    let (code, words) = place.refusal(&format!("{}?continue=bogus", place.maps));
    assert!(
        code == 400 && words.starts_with("invalid continue token: continue key is not valid: "),
        "{words}"
    );
}

fn what_is_made_has_no_version_that_counts(world: &World) {
    let http = Http::of(&world.namespace("versions", "made"));
    let maps = "/api/v1/namespaces/made/configmaps";
    let map = |name: &str, version: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "resourceVersion": version}});
    for (name, version, code) in
        [("zero", "0", 201), ("none", "", 201), ("word", "x", 201), ("some", "5", 500)]
    {
        assert_eq!(http.json(Method::POST, maps, &map(name, version)).code, code, "{name}");
    }
    let apply = |name: &str, version: &str| {
        let path = format!("{maps}/{name}?fieldManager=test");
        let body = map(name, version).to_string();
        http.send(Method::PATCH, &path, "application/apply-patch+yaml", body).code
    };
    assert_eq!(apply("applied", "1"), 201, "that of an object that is not there means nothing");
    assert_eq!(apply("applied", "0"), 200);
    assert_eq!(apply("applied", "1"), 409);
}

fn tokens_and_revisions_outlive_a_restart_and_expire_by_age(engine: Engine) {
    // Long enough for what is to outlive it, before it is made short.
    let mut server = Server::start(engine);
    let maps = "/api/v1/namespaces/default/configmaps".to_owned();
    let place = Place::filled(Http::of(&server.kubectl()), maps);
    let first = place.http.get(&format!("{}?labelSelector=of%3Dtest&limit=2", place.maps)).body;
    let (token, old) = (text(&first, "/metadata/continue").to_owned(), place.versions[1]);
    assert_eq!(place.http.json(Method::POST, &place.maps, &json!({"metadata": {"name": "m5"}})).code, 201);
    server.restart();
    let place = Place { http: Http::of(&server.kubectl()), ..place };
    let rest = |query: &str| place.http.get(&format!("{}?labelSelector=of%3Dtest&{query}", place.maps));
    let page = rest(&format!("limit=2&continue={token}")).body;
    assert_eq!((names(&page), version(&page)), (vec!["m3", "m4"], version(&first)));
    assert_eq!(place.watch(&format!("resourceVersion={old}")), ["ADDED m3", "ADDED m4"]);
    server.add_args(&["--history-age", "1"]);
    server.restart();
    let place = Place { http: Http::of(&server.kubectl()), ..place };
    let rest = |query: &str| place.http.get(&format!("{}?labelSelector=of%3Dtest&{query}", place.maps));
    let expired = until("the token expires", PATIENCE, || {
        Some(rest(&format!("limit=1&continue={token}"))).filter(|answer| answer.code == 410)
    });
    assert_eq!(text(&expired.body, "/reason"), "Expired");
    let past = rest(&format!("resourceVersion={old}&resourceVersionMatch=Exact"));
    let words = "The resourceVersion for the provided list is too old.";
    assert_eq!(
        (past.code, text(&past.body, "/reason"), text(&past.body, "/message")),
        (410, "Expired", words)
    );
    let inconsistent = text(&expired.body, "/metadata/continue");
    assert!(!inconsistent.is_empty() && inconsistent != token, "{expired:?}");
    // Where a second passes between them, the token of the first page has expired before the second is asked for.
    let last = until("the list goes on", PATIENCE, || {
        let page = rest(&format!("limit=1&continue={inconsistent}")).body;
        assert_eq!(names(&page), ["m3"]);
        let last = rest(&format!("limit=10&continue={}", text(&page, "/metadata/continue")));
        (last.code != 410).then_some(last.body)
    });
    assert!(items(&last).map(|item| text(item, "/metadata/name")).eq(["m4"]));
    assert_eq!(rest(&format!("resourceVersion={old}&resourceVersionMatch=Exact")).code, 410);
    let late = rest(&format!("watch=true&resourceVersion={old}&timeoutSeconds=5"));
    assert!(late.code == 410 || late.body.to_string().contains("410"), "{late:?}");
}
