use super::*;
use crate::{resource::Conversion, schema as schemas, status::FieldError};
use serde_json::json;

fn widget(schema: Value) -> Value {
    let mut crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"], "categories": ["all"]},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema},
                "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
                "additionalPrinterColumns": [{"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas"}],
                "selectableFields": [{"jsonPath": ".spec.color"}],
            }],
        },
    });
    default(&mut crd);
    prepare_status(&mut crd, None);
    crd
}

fn good_schema() -> Value {
    json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"replicas": {"type": "integer", "default": 1}, "color": {"type": "string"}}},
        "status": {"type": "object", "properties": {"replicas": {"type": "integer"}}},
    }})
}

fn shown(errors: &[FieldError]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn a_crd_becomes_a_type() {
    let crd = widget(good_schema());
    assert_eq!(shown(&validate(&crd)), [""; 0]);
    let types = compile(&crd).unwrap();
    assert_eq!(types.len(), 1);
    let widget = &types[0];
    assert_eq!((&*widget.list_kind, &*widget.singular, widget.namespaced), ("WidgetList", "widget", true));
    assert_eq!(widget.subresources.iter().map(|s| s.name.as_str()).collect::<Vec<_>>(), ["status", "scale"]);
    assert_eq!(widget.selectable_fields, ["spec.color"]);
    assert_eq!(widget.columns[0].name, "Replicas");
    assert_eq!(widget.storage.api_version, "example.com/v1");
    assert_eq!(widget.hash.len(), 64);
    let mut object = json!({"spec": {}, "metadata": {"name": "a", "odd": 1}});
    let schema = widget.schema.get().unwrap();
    schemas::default(&mut object, schema);
    assert_eq!(object["spec"]["replicas"], 1);
    assert_eq!(schemas::unknown_fields(&object, schema), ["metadata.odd"]);
}

#[test]
fn equal_types_have_equal_hashes() {
    let hash = |crd: &Value| compile(crd).unwrap()[0].hash.clone();
    let mut other = widget(good_schema());
    assert_eq!(hash(&widget(good_schema())), hash(&other));
    other["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["description"] =
        json!("new");
    assert_ne!(hash(&widget(good_schema())), hash(&other));
}

#[test]
fn long_names_over_many_fields_are_refused_before_any_is_looked_at() {
    let wrong: Value = (0..3_000).map(|n| (format!("p{n}"), json!({"type": "none"}))).collect();
    let named = |length: usize| {
        let long = json!({"n".repeat(length): {"type": "object", "properties": wrong}});
        validate(&widget(json!({"type": "object", "properties": long})))
    };
    assert!(named(100).len() >= 3_000);
    let errors = named(400_000);
    let told: usize = errors.iter().map(|error| error.to_string().len()).sum();
    assert!(!errors.is_empty() && told < 10_000, "{} errors, {told} bytes", errors.len());
}

/// Changes to a good CRD, and the errors that they bring.
#[test]
fn crds_are_refused_in_the_words_of_kubernetes() {
    const SCHEMA: &str = "/spec/versions/0/schema/openAPIV3Schema";
    let rows = [
        (
            "/metadata/name".to_owned(),
            json!("a.b"),
            vec!["metadata.name: Invalid value: \"a.b\": must be spec.names.plural+\".\"+spec.group"],
        ),
        (
            "/spec/scope".to_owned(),
            json!("Planet"),
            vec!["spec.scope: Unsupported value: \"Planet\": supported values: \"Cluster\", \"Namespaced\""],
        ),
        (
            "/spec/names/listKind".to_owned(),
            json!("Widget"),
            vec!["spec.names.listKind: Invalid value: \"Widget\": kind and listKind may not be the same"],
        ),
        (
            "/spec/versions/0/additionalPrinterColumns/0/type".to_owned(),
            json!("int"),
            vec![
                "spec.additionalPrinterColumns[0].type: Invalid value: \"int\": must be one of boolean,date,integer,number,string",
            ],
        ),
        (
            "/spec/versions/0/subresources/scale/specReplicasPath".to_owned(),
            json!(".status.r"),
            vec![
                "spec.subresources.scale.specReplicasPath: Invalid value: \".status.r\": should be a json path under .spec",
            ],
        ),
        (
            "/spec/versions/0/selectableFields/0/jsonPath".to_owned(),
            json!(".spec.shape"),
            vec![
                "spec.selectableFields[0].jsonPath: Invalid value: \".spec.shape\": is an invalid path: does not refer to a valid field",
            ],
        ),
        (
            "/spec/versions/0/schema".to_owned(),
            json!(null),
            vec![
                "spec.versions[0].schema.openAPIV3Schema: Required value",
                "spec.selectableFields[0].jsonPath: Invalid value: \".spec.color\": is an invalid path: does not refer to a valid field",
            ],
        ),
        (
            format!("{SCHEMA}/properties/spec/properties/replicas/default"),
            json!("x"),
            vec![
                "spec.validation.openAPIV3Schema.properties[spec].properties[replicas].default: Invalid value: \"string\":  in body must be of type integer: \"string\"",
            ],
        ),
        (
            format!("{SCHEMA}/properties/spec/properties/replicas"),
            json!({"description": "untyped"}),
            vec![
                "spec.validation.openAPIV3Schema.properties[spec].properties[replicas].type: Required value: must not be empty for specified object fields",
            ],
        ),
        (
            format!("{SCHEMA}/properties/spec/properties/replicas/type"),
            json!("int"),
            vec![
                "spec.validation.openAPIV3Schema.properties[spec].properties[replicas].type: Unsupported value: \"int\": supported values: \"array\", \"boolean\", \"integer\", \"number\", \"object\", \"string\"",
            ],
        ),
        (
            format!("{SCHEMA}/properties/status"),
            json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": {"type": "object", "properties": {"k": {"type": "string"}}}}),
            vec![
                "spec.validation.openAPIV3Schema.properties[status].items.properties[k].default: Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
            ],
        ),
        (
            format!("{SCHEMA}/properties/spec/x-kubernetes-validations"),
            json!([{"rule": " ", "reason": "Because", "fieldPath": ".nope"}]),
            vec![
                "spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule: Required value: rule is not specified",
                "spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].reason: Unsupported value: \"Because\": supported values: \"FieldValueDuplicate\", \"FieldValueForbidden\", \"FieldValueInvalid\", \"FieldValueRequired\"",
                "spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].fieldPath: Invalid value: \".nope\": must be a valid path",
            ],
        ),
        (
            "/spec/conversion".to_owned(),
            json!({"strategy": "Webhook"}),
            vec![
                "spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook",
                "spec.conversion.conversionReviewVersions: Required value",
            ],
        ),
        (
            "/status/storedVersions".to_owned(),
            json!(["v0", "v1"]),
            vec![
                "status.storedVersions[0]: Invalid value: \"v0\": missing from spec.versions; v0 was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in v0 and removes v0 from status.storedVersions",
            ],
        ),
    ];
    for (pointer, value, want) in rows {
        let mut crd = widget(good_schema());
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        crd.pointer_mut(parent).unwrap()[field] = value;
        assert_eq!(shown(&validate(&crd)), want, "{pointer}");
    }
}

#[test]
fn formats_that_are_not_heeded_are_warned_about_once() {
    let mut crd = widget(good_schema());
    assert_eq!(warnings(&crd, None), [""; 0]);
    let schema = &mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    schema["properties"]["spec"]["properties"]["color"]["format"] = json!("rainbow");
    schema["properties"]["spec"]["properties"]["other"] = json!({"type": "string", "format": "rainbow"});
    assert_eq!(warnings(&crd, None), ["unrecognized format \"rainbow\""]);
    assert_eq!(warnings(&crd, Some(&crd)), [""; 0]);
}

#[test]
fn protected_groups_need_approval() {
    let mut crd = widget(good_schema());
    crd["spec"]["group"] = json!("example.k8s.io");
    crd["metadata"]["name"] = json!("widgets.example.k8s.io");
    assert_eq!(
        shown(&validate(&crd)),
        [
            "metadata.annotations[api-approved.kubernetes.io]: Required value: protected groups must have approval annotation \"api-approved.kubernetes.io\", see https://github.com/kubernetes/enhancements/pull/1111"
        ]
    );
    crd["metadata"]["annotations"] = json!({"api-approved.kubernetes.io": "unapproved, an experiment"});
    assert_eq!(shown(&validate(&crd)), [""; 0]);
}

#[test]
fn an_established_crd_keeps_its_kind_and_scope() {
    let mut old = widget(good_schema());
    old["metadata"]["resourceVersion"] = json!("1");
    set_status(&mut old, None, "2026-01-02T03:04:05Z".parse().unwrap());
    let mut new = old.clone();
    assert_eq!(shown(&validate_update(&new, &old)), [""; 0]);
    new["spec"]["scope"] = json!("Cluster");
    assert_eq!(
        shown(&validate_update(&new, &old)),
        ["spec.scope: Invalid value: \"Cluster\": field is immutable"]
    );
}

#[test]
fn status_says_that_names_are_accepted() {
    let mut crd = widget(good_schema());
    set_status(&mut crd, None, "2026-01-02T03:04:05Z".parse().unwrap());
    assert!(is_established(&crd));
    assert_eq!(
        crd["status"],
        json!({
            "storedVersions": ["v1"],
            "acceptedNames": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList", "shortNames": ["wd"], "categories": ["all"]},
            "conditions": [
                {"type": "NamesAccepted", "status": "True", "reason": "NoConflicts", "message": "no conflicts found", "lastTransitionTime": "2026-01-02T03:04:05Z"},
                {"type": "Established", "status": "True", "reason": "InitialNamesAccepted", "message": "the initial names have been accepted", "lastTransitionTime": "2026-01-02T03:04:05Z"},
            ],
        })
    );
    let before = crd.clone();
    set_status(&mut crd, None, "2027-01-02T03:04:05Z".parse().unwrap());
    assert_eq!(crd, before, "nothing changed, so nothing is written");
}

#[test]
fn a_name_that_is_taken_is_not_accepted() {
    let mut first = widget(good_schema());
    set_status(&mut first, None, "2026-01-02T03:04:05Z".parse().unwrap());
    let mut second = widget(good_schema());
    second["metadata"]["name"] = json!("gadgets.example.com");
    second["spec"]["names"] =
        json!({"plural": "gadgets", "singular": "gadget", "kind": "Widget", "listKind": "GadgetList"});
    assert_eq!(name_conflict(&first, [&first].into_iter()), None);
    let conflict = name_conflict(&second, [&first].into_iter()).unwrap();
    assert_eq!((conflict.reason, &*conflict.message), ("KindConflict", "\"Widget\" is already in use"));
    set_status(&mut second, Some(&conflict), "2026-01-02T03:04:05Z".parse().unwrap());
    assert!(!is_established(&second));
    assert_eq!(
        second["status"]["acceptedNames"],
        json!({"plural": "gadgets", "singular": "gadget", "kind": "", "listKind": "GadgetList"})
    );
    assert_eq!(second["status"]["conditions"][1]["reason"], "NotAccepted");
}

#[test]
fn versions_rank_as_kubernetes_ranks_them() {
    let ranked = ["v10", "v2", "v1", "v3beta1", "v1beta2", "v1beta1", "v2alpha1", "bar", "foo"];
    for pair in ranked.windows(2) {
        assert!(compare_versions(pair[0], pair[1]).is_gt(), "{pair:?}");
    }
}

#[test]
fn a_deprecated_version_names_the_one_to_use() {
    let mut crd = widget(good_schema());
    let mut newer = crd["spec"]["versions"][0].clone();
    crd["spec"]["versions"][0]["deprecated"] = json!(true);
    (newer["name"], newer["storage"]) = (json!("v2"), json!(false));
    crd["spec"]["versions"].as_array_mut().unwrap().push(newer);
    crd["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://a"}}});
    assert_eq!(shown(&validate(&crd)), [""; 0]);
    let types = compile(&crd).unwrap();
    assert_eq!(
        types[0].deprecation.as_deref(),
        Some("example.com/v1 Widget is deprecated; use example.com/v2 Widget")
    );
    assert_eq!(types[1].deprecation, None);
    assert!(matches!(types[1].storage.conversion, Conversion::Webhook(_)));
}

/// With FREEHOLD_CRDS naming a folder of folders of CRDs as YAML or JSON, those of well-known projects are tried too.
#[test]
fn crds_of_the_world_are_accepted() {
    let Some(folder) = std::env::var_os("FREEHOLD_CRDS") else { return };
    let mut count = 0;
    for project in std::fs::read_dir(&folder).expect("FREEHOLD_CRDS names a folder") {
        for file in std::fs::read_dir(project.unwrap().path()).into_iter().flatten() {
            let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
            let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
            for mut crd in documents.into_iter().filter(|one| one["kind"] == "CustomResourceDefinition") {
                accepted(&mut crd);
                count += 1;
            }
        }
    }
    assert!(count > 0, "there are no CRDs in FREEHOLD_CRDS");
}

fn accepted(crd: &mut Value) {
    let name = crd["metadata"]["name"].clone();
    default(crd);
    prepare_status(crd, None);
    assert_eq!(shown(&validate(crd)), [""; 0], "{name}");
    for compiled in compile(crd).unwrap() {
        assert!(compiled.schema.get().is_some(), "{name}");
    }
}
