//! Archives that nobody exported: what is in them is looked at as if it were created, and nothing of a refused one is kept.

use crate::{contains_all, names};
use freehold_tests_integration::{Http, World, facts};
use http::Method;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

facts!(world:
    an_imported_object_is_checked_as_one_that_is_created,
    a_refused_archive_is_answered_and_not_broken_off,
);

pub(crate) const ARCHIVE: &str = "application/vnd.freehold.archive";

/// Keys, behind the plane's own part, and values.
type Records = Vec<(&'static str, Vec<u8>)>;

/// An archive of these keys, behind the plane's own part, and values.
pub(crate) fn archive(records: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let header = json!({"kind": "plane", "revision": 1, "created": "2026-01-01T00:00:00Z"}).to_string();
    let mut bytes = b"freehold archive 1\n".to_vec();
    let part = |bytes: &mut Vec<u8>, part: &[u8]| {
        bytes.extend(u32::try_from(part.len()).expect("a short part").to_be_bytes());
        bytes.extend(part);
    };
    part(&mut bytes, header.as_bytes());
    for (key, value) in records {
        bytes.push(1);
        part(&mut bytes, format!("planes/a/{key}").as_bytes());
        bytes.extend([1_u64.to_be_bytes(), 1_u64.to_be_bytes()].concat());
        part(&mut bytes, value);
    }
    bytes.push(0);
    bytes.extend((records.len() as u64).to_be_bytes());
    let digest = Sha256::digest(&bytes);
    bytes.extend(digest);
    bytes
}

fn stored(object: &Value) -> Vec<u8> {
    [&[1], object.to_string().as_bytes()].concat()
}

pub(crate) fn map(name: &str, more: &Value) -> Vec<u8> {
    let mut object = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default", "uid": "6d4e8a9e-0000-4000-8000-000000000000"}});
    for (field, value) in more.as_object().into_iter().flatten() {
        object[field] = value.clone();
    }
    stored(&object)
}

/// A definition of `things.example.com` with a rule.
fn definition(rule: &str) -> Value {
    let size = json!({"type": "integer", "minimum": 1});
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"size": size},
        "x-kubernetes-validations": [{"rule": rule}]}}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com", "uid": "6d4e8a9e-0000-4000-8000-000000000001"},
        "spec": {"group": "example.com", "scope": "Namespaced", "conversion": {"strategy": "None"},
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]},
        "status": {"acceptedNames": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "storedVersions": ["v1"], "conditions": [{"type": "NamesAccepted", "status": "True"}, {"type": "Established", "status": "True"}]}})
}

fn thing(size: i64) -> Vec<u8> {
    stored(&json!({"apiVersion": "example.com/v1", "kind": "Thing", "spec": {"size": size},
        "metadata": {"name": "a", "namespace": "default", "uid": "6d4e8a9e-0000-4000-8000-000000000002"}}))
}

const MAP: &str = "core/configmaps/default/a";
const DEFINITION: &str = "apiextensions.k8s.io/customresourcedefinitions/things.example.com";
const THING: &str = "example.com/things/default/a";

fn an_imported_object_is_checked_as_one_that_is_created(world: &World) {
    world.organization("imports", &["imports"]);
    let url = format!("{}/projects/imports", world.server().url());
    let http = Http::of_elsewhere(&world.admin(), &url);
    let import = |records: &[(&str, Vec<u8>)]| http.send(Method::POST, "/archive", ARCHIVE, archive(records));
    let deep = |levels: usize| (0..levels).fold(json!("x"), |inner, _| json!([inner]));
    let nested = format!(
        r#"{{"metadata":{{"name":"a","namespace":"default","uid":"u"}},"data":{}1{}}}"#,
        "[".repeat(200),
        "]".repeat(200)
    );
    let long = definition("self.size > 0 || ".repeat(20_000).trim_end_matches("|| "));
    let rows: Vec<(Records, u16, &str)> = vec![
        (vec![(MAP, map("a", &json!({"data": {"k": 1}})))], 400, "configmaps \"default/a\""),
        (vec![(MAP, map("a", &json!({"data": {"k": deep(119)}})))], 400, "configmaps \"default/a\""),
        (vec![(MAP, map("a", &json!({"data": {"no/key": "v"}})))], 422, "configmaps \"default/a\""),
        (vec![(MAP, map("a", &json!({"kind": "Secret"})))], 400, "not a kind of this resource"),
        (vec![(MAP, map("b", &json!({})))], 400, "another object's value"),
        (vec![("core/configmaps/default/A_", map("A_", &json!({})))], 422, "configmaps \"default/A_\""),
        (
            vec![(
                "core/configmaps/a",
                stored(
                    &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "uid": "u"}}),
                ),
            )],
            400,
            "needs a namespace",
        ),
        (
            vec![(
                MAP,
                stored(
                    &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "default"}}),
                ),
            )],
            400,
            "without a uid",
        ),
        (
            vec![(
                MAP,
                map(
                    "a",
                    &json!({"metadata": {"name": "a", "namespace": "default", "uid": "u", "resourceVersion": "99"}}),
                ),
            )],
            400,
            "resource version",
        ),
        (vec![(MAP, [&[1], nested.as_bytes()].concat())], 400, "recursion"),
        (vec![(MAP, vec![1, b'{', 0xff])], 400, "configmaps"),
        (vec![(".stack", br#"{"layer":"snapshot-x","operation":"x"}"#.to_vec())], 400, "no object's key"),
        (vec![(DEFINITION, stored(&long))], 422, "things.example.com"),
        (vec![(DEFINITION, stored(&definition("self.size >")))], 422, "things.example.com"),
        (
            vec![(DEFINITION, stored(&definition("self.size > 1"))), (THING, thing(0))],
            422,
            "things \"default/a\"",
        ),
        (
            vec![(DEFINITION, stored(&definition("self.size > 1"))), (THING, thing(1))],
            422,
            "things \"default/a\"",
        ),
    ];
    for (row, (records, code, said)) in rows.into_iter().enumerate() {
        let answer = import(&records);
        assert_eq!(answer.code, code, "row {row}: {}", answer.body);
        contains_all(&answer.body.to_string().replace("\\\"", "\""), &[said]);
        assert_eq!(http.get("/api/v1/namespaces/default/secrets").code, 200);
    }
    let good = [
        (DEFINITION, stored(&definition("self.size > 1"))),
        (MAP, map("a", &json!({"data": {"k": "v"}}))),
        (THING, thing(2)),
    ];
    let answer = import(&good);
    assert_eq!(answer.code, 200, "{}", answer.body);
    assert_eq!(names(&http.get("/apis/example.com/v1/things").body), ["a"]);
    assert_eq!(http.get("/api/v1/namespaces/default/configmaps/a").body["data"]["k"], "v");
}

fn a_refused_archive_is_answered_and_not_broken_off(world: &World) {
    let kubectl = world.project("refused-archive");
    kubectl.ok(&["create", "configmap", "there"]);
    let url = format!("{}/projects/refused-archive", world.server().url());
    let http = Http::of_elsewhere(&world.admin(), &url);
    let names: Vec<String> = (0..200).map(|nth| format!("core/configmaps/default/n{nth:03}")).collect();
    let fill = json!({"data": {"fill": "x".repeat(100_000)}});
    let records: Vec<(&str, Vec<u8>)> = names
        .iter()
        .enumerate()
        .map(|(nth, key)| (key.as_str(), map(&format!("n{nth:03}"), &fill)))
        .collect();
    let answer = http.send(Method::POST, "/archive", ARCHIVE, archive(&records));
    assert_eq!(answer.code, 409, "{}", answer.body);
    let mut broken = archive(&records);
    broken[2] = b'x';
    let empty = world.project("refused-archive-2");
    let url = format!("{}/projects/refused-archive-2", world.server().url());
    let answer = Http::of_elsewhere(&world.admin(), &url).send(Method::POST, "/archive", ARCHIVE, broken);
    assert_eq!(answer.code, 400, "{}", answer.body);
    empty.fails(&["get", "configmap", "n000"]);
}
