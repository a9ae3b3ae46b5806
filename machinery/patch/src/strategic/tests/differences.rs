//! A patch that is made of the difference between two objects, as clients make it, gives the other object.

use super::*;
use serde_json::Map;
use std::collections::BTreeMap;

/// Lists that are merged by a key, whether their items keep only what is named, and lists of plain values that are merged.
const KEYED: [(&str, &str, bool); 4] = [
    ("containers", "name", false),
    ("env", "name", false),
    ("ports", "containerPort", false),
    ("volumes", "name", true),
];
const PLAIN: &str = "finalizers";
/// A map of which only what is named is kept.
const RETAINED: &str = "strategy";

fn object_of(fields: impl IntoIterator<Item = (String, Value)>) -> Value {
    Value::Object(
        fields.into_iter().filter(|(_, value)| value != &json!([]) && value != &json!({})).collect(),
    )
}

/// The items of a list, each with its key. Their order is any.
fn keyed(
    keys: &'static [&'static str],
    key: &'static str,
    rest: impl Strategy<Value = Value> + 'static,
) -> impl Strategy<Value = Value> {
    let items = prop::collection::vec(prop::option::of(rest), keys.len());
    let named = items.prop_map(move |items| {
        let items = items.into_iter().zip(keys).filter_map(|(item, name)| {
            let mut item = item?;
            item[key] = name.parse::<u16>().map_or_else(|_| json!(name), |port| json!(port));
            Some(item)
        });
        items.collect::<Vec<_>>()
    });
    named.prop_shuffle().prop_map(Value::from)
}

fn text() -> impl Strategy<Value = Value> {
    "[01]".prop_map(Value::from)
}

fn fields(of: &'static [&'static str]) -> impl Strategy<Value = Value> {
    let values = prop::collection::vec(prop::option::of(text()), of.len());
    values.prop_map(move |values| {
        let named = of.iter().zip(values).filter_map(|(name, value)| Some(((*name).to_owned(), value?)));
        Value::Object(named.collect())
    })
}

fn container() -> impl Strategy<Value = Value> {
    let env = keyed(&["A", "B", "C"], "name", fields(&["value"]));
    let ports = keyed(&["80", "81"], "containerPort", fields(&["name"]));
    let command = prop::collection::vec(text(), 0..3).prop_map(Value::from);
    (env, ports, command, prop::option::of(text())).prop_map(|(env, ports, command, image)| {
        let named =
            [("env", env), ("ports", ports), ("command", command), ("image", image.unwrap_or(json!([])))];
        object_of(named.map(|(name, value)| (name.to_owned(), value)))
    })
}

fn deployment() -> impl Strategy<Value = Value> {
    let labels = prop::collection::btree_map("[ab]", text(), 0..3)
        .prop_map(|map: BTreeMap<String, Value>| Value::Object(map.into_iter().collect()));
    let finalizers =
        prop::sample::subsequence(vec!["a", "b", "c"], 0..4).prop_shuffle().prop_map(|all| json!(all));
    let strategy = fields(&["type", "rollingUpdate"]);
    let volumes = keyed(&["v", "w"], "name", fields(&["emptyDir", "secret"]));
    let containers = keyed(&["p", "q", "r"], "name", container());
    let replicas = prop::option::of(0..3);
    (labels, finalizers, strategy, volumes, containers, replicas).prop_map(
        |(labels, finalizers, strategy, volumes, containers, replicas)| {
            let of = |rows: &[(&str, Value)]| {
                object_of(rows.iter().map(|(name, value)| ((*name).to_owned(), value.clone())))
            };
            let pod = of(&[("containers", containers), ("volumes", volumes)]);
            let spec = of(&[
                ("template", of(&[("spec", pod)])),
                ("strategy", strategy),
                ("replicas", replicas.map_or(json!([]), Value::from)),
            ]);
            of(&[("metadata", of(&[("labels", labels), ("finalizers", finalizers)])), ("spec", spec)])
        },
    )
}

fn is_retained(field: &str) -> bool {
    field == RETAINED || KEYED.iter().any(|(name, _, retained)| *name == field && *retained)
}

/// What makes `to` of `from`: both are what stands in `field`.
fn difference(field: &str, from: &Map<String, Value>, to: &Map<String, Value>) -> Map<String, Value> {
    let mut patch = Map::new();
    for key in from.keys().filter(|key| !to.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    for (key, after) in to {
        match (from.get(key), after) {
            (Some(before), after) if before == after => {}
            (Some(Value::Object(before)), Value::Object(after)) => {
                patch.insert(key.clone(), difference(key, before, after).into());
            }
            (Some(Value::Array(before)), Value::Array(after)) => lists(key, before, after, &mut patch),
            (_, after) => drop(patch.insert(key.clone(), after.clone())),
        }
    }
    if is_retained(field) && !patch.is_empty() {
        patch.insert("$retainKeys".to_owned(), to.keys().cloned().collect());
    }
    patch
}

fn lists(field: &str, before: &[Value], after: &[Value], patch: &mut Map<String, Value>) {
    let order = format!("$setElementOrder/{field}");
    if field == PLAIN {
        let only = |these: &[Value], those: &[Value]| -> Value {
            these.iter().filter(|v| !those.contains(v)).cloned().collect()
        };
        patch.insert(field.to_owned(), only(after, before));
        patch.insert(format!("$deleteFromPrimitiveList/{field}"), only(before, after));
        patch.insert(order, after.into());
        return;
    }
    let Some((_, key, _)) = KEYED.iter().find(|(name, ..)| *name == field) else {
        return drop(patch.insert(field.to_owned(), after.into()));
    };
    let of = |list: &[Value], item: &Value| list.iter().find(|other| other[key] == item[key]).cloned();
    let mut items: Vec<Value> = Vec::new();
    for item in after {
        match of(before, item) {
            Some(old) if old == *item => {}
            Some(Value::Object(old)) => {
                let mut changed = difference(field, &old, item.as_object().unwrap());
                changed.insert((*key).to_owned(), item[key].clone());
                items.push(changed.into());
            }
            _ => items.push(item.clone()),
        }
    }
    let gone = before.iter().filter(|item| of(after, item).is_none());
    items.extend(gone.map(|item| json!({*key: item[key], "$patch": "delete"})));
    patch.insert(field.to_owned(), items.into());
    patch.insert(order, after.iter().map(|item| json!({*key: item[key]})).collect());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn a_difference_as_a_strategic_patch_gives_the_other_object(from in deployment(), to in deployment()) {
        let patch = Value::Object(difference("", from.as_object().unwrap(), to.as_object().unwrap()));
        let patched = strategic(&from, &patch, &DEPLOYMENT).unwrap();
        prop_assert_eq!(patched, to, "{}", patch);
    }
}
