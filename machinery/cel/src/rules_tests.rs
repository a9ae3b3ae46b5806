use super::*;
use freehold_machinery::schema;
use serde_json::json;

fn rules(schema: Value) -> Rules {
    Rules::compile(&schema::parse(&schema).unwrap()).unwrap_or_else(|e| panic!("{e:?}"))
}

fn spec(spec: Value) -> Value {
    json!({"type": "object", "properties": {"spec": spec}})
}

fn shown_errors(errors: &[FieldError]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn broken_rules_are_reported_in_the_words_of_kubernetes() {
    let with = |rule: Value| {
        spec(json!({
        "type": "object", "x-kubernetes-validations": [rule],
        "properties": {"min": {"type": "integer"}, "max": {"type": "integer"}, "x-y": {"type": "object", "additionalProperties": {"type": "string"}}}}))
    };
    let rows = [
        (json!({"rule": "self.min <= self.max"}), "spec: Invalid value: failed rule: self.min <= self.max"),
        (json!({"rule": "self.min <= self.max", "message": "too small "}), "spec: Invalid value: too small"),
        (
            json!({"rule": "self.min <= self.max", "messageExpression": "'%d > %d'.format([self.min, self.max])"}),
            "spec: Invalid value: 3 > 2",
        ),
        (
            json!({"rule": "self.min <= self.max", "message": "m", "reason": "FieldValueForbidden", "fieldPath": ".min"}),
            "spec.min: Forbidden: m",
        ),
        (
            json!({"rule": "self.min <= self.max", "message": "m", "reason": "FieldValueRequired", "fieldPath": "['x-y']"}),
            "spec.x-y: Required value: m",
        ),
        (
            json!({"rule": "self.x__dash__y.size() == 0"}),
            "spec: Invalid value: \"object\": no such key: x__dash__y evaluating rule: self.x__dash__y.size() == 0",
        ),
    ];
    for (rule, want) in rows {
        let got = rules(with(rule.clone())).validate(&json!({"spec": {"min": 3, "max": 2}}), None);
        assert_eq!(shown_errors(&got), [want], "{rule}");
    }
    let scalar = spec(json!({"type": "string", "x-kubernetes-validations": [{"rule": "self == 'a'"}]}));
    let got = rules(scalar).validate(&json!({"spec": "b"}), None);
    assert_eq!(shown_errors(&got), ["spec: Invalid value: \"b\": failed rule: self == 'a'"]);
    let root = json!({"type": "object", "x-kubernetes-validations": [{"rule": "self.metadata.name == 'a'", "message": "m"}]});
    let got = rules(root).validate(&json!({"metadata": {"name": "b"}}), None);
    assert_eq!(shown_errors(&got), ["<nil>: Invalid value: m"]);
}

#[test]
fn transition_rules_run_where_there_is_an_old_value() {
    let item = json!({"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer",
        "x-kubernetes-validations": [{"rule": "self >= oldSelf", "message": "must grow"}]}}});
    let schema = spec(json!({"type": "object", "properties": {
        "fixed": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "is immutable"}]},
        "maybe": {"type": "string", "x-kubernetes-validations": [{"rule": "oldSelf.hasValue() || self == 'first'", "message": "starts as first", "optionalOldSelf": true}]},
        "list": {"type": "array", "items": item, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]},
        "set": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "is fixed"}]},
    }}));
    let rules = rules(schema);
    let object = |spec: Value| json!({ "spec": spec });
    let old =
        object(json!({"fixed": "a", "list": [{"k": "x", "v": 5}, {"k": "y", "v": 1}], "set": ["a", "b"]}));
    assert_eq!(shown_errors(&rules.validate(&old, None)), [""; 0]);
    assert_eq!(shown_errors(&rules.validate(&old, Some(&old))), [""; 0]);
    let new = object(
        json!({"fixed": "b", "maybe": "second", "list": [{"k": "y", "v": 2}, {"k": "z", "v": 0}, {"k": "x", "v": 4}], "set": ["b", "a"]}),
    );
    assert_eq!(
        shown_errors(&rules.validate(&new, Some(&old))),
        [
            "spec.fixed: Invalid value: \"b\": is immutable",
            "spec.list[2].v: Invalid value: 4: must grow",
            "spec.maybe: Invalid value: \"second\": starts as first",
        ]
    );
}

#[test]
fn what_was_wrong_and_did_not_change_is_let_through() {
    let positive =
        json!({"type": "integer", "x-kubernetes-validations": [{"rule": "self > 0", "message": "m"}]});
    let rules = rules(spec(json!({"type": "object", "properties": {
        "a": positive, "list": {"type": "array", "items": positive}}})));
    let old = json!({"spec": {"a": 0, "list": [0, 1]}});
    assert_eq!(rules.validate(&old, None).len(), 2);
    assert_eq!(shown_errors(&rules.validate(&old, Some(&old))), [""; 0]);
    let new = json!({"spec": {"a": 0, "list": [0, 2]}});
    assert_eq!(shown_errors(&rules.validate(&new, Some(&old))), ["spec.list[0]: Invalid value: 0: m"]);
}

#[test]
fn values_follow_their_schema() {
    let rules = rules(spec(json!({
        "type": "object",
        "properties": {
            "when": {"type": "string", "format": "date-time"}, "long": {"type": "string", "format": "duration"},
            "ratio": {"type": "number"}, "port": {"x-kubernetes-int-or-string": true}, "namespace": {"type": "string"},
        },
        "x-kubernetes-validations": [
            {"rule": "self.when < timestamp('2027-01-01T00:00:00Z')"},
            {"rule": "self.long <= duration('1h')"},
            {"rule": "self.ratio + 0.5 == 1.5"},
            {"rule": "type(self.port) == int ? self.port == 80 : self.port == 'http'"},
            {"rule": "self.__namespace__ == 'ns'"},
        ],
    })));
    for port in [json!(80), json!("http")] {
        let good = json!({"spec": {"when": "2026-01-01T00:00:00Z", "long": "30m", "ratio": 1, "port": port, "namespace": "ns"}});
        assert_eq!(shown_errors(&rules.validate(&good, None)), [""; 0]);
    }
    let bad = json!({"spec": {"when": "2028-01-01T00:00:00Z", "long": "2h", "ratio": 2, "port": 81, "namespace": "x"}});
    assert_eq!(rules.validate(&bad, None).len(), 5);
}

#[test]
fn broken_expressions_are_refused_when_the_crd_is_written() {
    let crd = |rule: Value| {
        json!({"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": {"type": "object", "properties": {
        "list": {"type": "array", "maxItems": 9, "items": {"type": "object", "properties": {"a": {"type": "string", "maxLength": 9}}, "x-kubernetes-validations": [rule]}}}}}}]}})
    };
    const AT: &str = "spec.validation.openAPIV3Schema.properties[list].items.x-kubernetes-validations[0]";
    for (rule, want) in [
        (json!({"rule": "self.a == 'x'"}), String::new()),
        (json!({"rule": "self.a =="}), format!("{AT}.rule: Invalid value: ")),
        (json!({"rule": "self.b == 'x'"}), format!("{AT}.rule: Invalid value: ")),
        (
            json!({"rule": "self.a == oldSelf.a"}),
            format!(
                "{AT}.rule: Invalid value: \"self.a == oldSelf.a\": oldSelf cannot be used on the uncorrelatable portion of the schema within spec.validation.openAPIV3Schema.properties[list]"
            ),
        ),
        (
            json!({"rule": "self.a == 'x'", "optionalOldSelf": true}),
            format!(
                "{AT}.optionalOldSelf: Invalid value: true: may not be set if oldSelf is not used in rule"
            ),
        ),
        (
            json!({"rule": "true", "messageExpression": "nope"}),
            format!("{AT}.messageExpression: Invalid value: "),
        ),
    ] {
        let got = shown_errors(&check_crd(&crd(rule.clone()), None, &[])).join("; ");
        assert!(got.starts_with(&want) && got.is_empty() == want.is_empty(), "{rule}: {got}");
    }
    let got = shown_errors(&check_crd(&crd(json!({"rule": "self.b == 'x'"})), None, &[])).join("; ");
    assert!(
        got.ends_with(
            "compilation failed: ERROR: <input>:1:5: undefined field 'b'\n | self.b == 'x'\n | ....^"
        ),
        "{got}"
    );
}

#[test]
fn equal_types_share_their_rules() {
    let crd = json!({"metadata": {"name": "ws.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
        "names": {"plural": "ws", "singular": "w", "kind": "W", "listKind": "WList"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
            spec(json!({"type": "integer", "x-kubernetes-validations": [{"rule": "self > 1"}]}))}}]}});
    let of = |crd: &Value| Rules::of(&freehold_machinery::crd::compile(crd).unwrap()[0]).unwrap();
    assert!(Arc::ptr_eq(&of(&crd), &of(&crd)));
    assert_eq!(of(&crd).validate(&json!({"spec": 1}), None).len(), 1);
}

/// The CRDs of FREEHOLD_CRDS, a folder of folders of them as YAML or JSON; `None` without the variable.
fn crds() -> Option<Vec<Value>> {
    let mut found = Vec::new();
    for project in
        std::fs::read_dir(std::env::var_os("FREEHOLD_CRDS")?).expect("FREEHOLD_CRDS names a folder")
    {
        for file in std::fs::read_dir(project.unwrap().path()).into_iter().flatten() {
            let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
            let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
            found.extend(
                documents.into_iter().filter(|document| document["kind"] == "CustomResourceDefinition"),
            );
        }
    }
    assert!(!found.is_empty(), "there are no CRDs in FREEHOLD_CRDS");
    Some(found)
}

/// With FREEHOLD_CRDS, all rules of its CRDs are compiled.
#[test]
fn rules_of_the_world_compile() {
    for crd in crds().into_iter().flatten() {
        assert_eq!(shown_errors(&check_crd(&crd, None, &[])), [""; 0], "{}", crd["metadata"]["name"]);
    }
}

/// The rules and the schema of one version of a CRD in FREEHOLD_CRDS.
fn of_the_world(name: &str, version: &str) -> Option<(Arc<Schema>, Rules)> {
    let crd = crds()?.into_iter().find(|crd| crd["metadata"]["name"] == name);
    let crd = crd.expect("the CRD is in FREEHOLD_CRDS");
    let versions = crd["spec"]["versions"].as_array().unwrap();
    let version = versions.iter().find(|v| v["name"] == version).expect("the CRD has the version");
    let schema = schema::parse(&version["schema"]["openAPIV3Schema"]).unwrap();
    let rules = Rules::compile(&schema).unwrap();
    Some((schema, rules))
}

#[test]
fn rules_of_the_gateway_api_hold_and_break() {
    let Some((schema, rules)) = of_the_world("gateways.gateway.networking.k8s.io", "v1") else {
        return;
    };
    let gateway = |listeners: Value| {
        let mut gateway = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": {"name": "g"},
            "spec": {"gatewayClassName": "c", "listeners": listeners}});
        schema::default(&mut gateway, &schema);
        assert_eq!(shown_errors(&schema::validate(&gateway, &schema, None)), [""; 0]);
        gateway
    };
    let many: Vec<Value> = (0..64)
        .map(|i| json!({"name": format!("l{i}"), "port": 80, "protocol": "HTTP", "hostname": format!("h{i}.example.com")}))
        .collect();
    assert_eq!(shown_errors(&rules.validate(&gateway(many.into()), None)), [""; 0]);
    let same =
        json!([{"name": "a", "port": 80, "protocol": "HTTP"}, {"name": "b", "port": 80, "protocol": "HTTP"}]);
    assert_eq!(
        shown_errors(&rules.validate(&gateway(same), None)),
        [
            "spec.listeners: Invalid value: Combination of port, protocol and hostname must be unique for each listener"
        ]
    );
    let tls = json!([{"name": "a", "port": 80, "protocol": "HTTP", "tls": {"mode": "Terminate", "certificateRefs": [{"name": "c"}]}}]);
    assert_eq!(
        shown_errors(&rules.validate(&gateway(tls), None)),
        ["spec.listeners: Invalid value: tls must not be specified for protocols ['HTTP', 'TCP', 'UDP']"]
    );
}

#[test]
fn rules_of_http_routes_hold_and_break() {
    let Some((schema, rules)) = of_the_world("httproutes.gateway.networking.k8s.io", "v1") else {
        return;
    };
    let check = |rule: Value| {
        let mut route = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": {"name": "r"},
            "spec": {"parentRefs": [{"name": "g"}], "rules": [rule]}});
        schema::default(&mut route, &schema);
        assert_eq!(shown_errors(&schema::validate(&route, &schema, None)), [""; 0]);
        shown_errors(&rules.validate(&route, None))
    };
    let backend = json!({"name": "b", "port": 80});
    assert_eq!(
        check(
            json!({"matches": [{"path": {"type": "PathPrefix", "value": "/a"}}], "backendRefs": [backend]})
        ),
        [""; 0]
    );
    assert_eq!(
        check(
            json!({"matches": [{"path": {"type": "PathPrefix", "value": "a//b"}}], "backendRefs": [backend]})
        ),
        [
            "spec.rules[0].matches[0].path: Invalid value: value must be an absolute path and start with '/' when type one of ['Exact', 'PathPrefix']",
            "spec.rules[0].matches[0].path: Invalid value: must not contain '//' when type one of ['Exact', 'PathPrefix']",
        ]
    );
    let redirect = json!({"type": "RequestRedirect", "requestRedirect": {"scheme": "https"}});
    assert_eq!(
        check(json!({"filters": [redirect], "backendRefs": [backend]})),
        ["spec.rules[0]: Invalid value: RequestRedirect filter must not be used together with backendRefs"]
    );
    assert_eq!(
        check(json!({"backendRefs": [{"name": "b"}]})),
        ["spec.rules[0].backendRefs[0]: Invalid value: Must have port for Service reference"]
    );
}
