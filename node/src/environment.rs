//! The variables of a container.

use crate::expand::expand;
use crate::sources::{Sources, list, text};
use freehold_machinery::{Value, meta};
use std::collections::{BTreeMap, HashMap};

/// What a Pod's own fields say, with the address that it has here.
pub(crate) struct Downward<'a> {
    /// The Pod.
    pub(crate) pod: &'a Value,
    /// Its address.
    pub(crate) pod_ip: &'a str,
    /// Its node's name.
    pub(crate) node: &'a str,
    /// Its node's address.
    pub(crate) host_ip: &'a str,
}

impl Downward<'_> {
    /// A field by its path, as the downward API names it; empty for one that is not there or not offered.
    pub(crate) fn field(&self, path: &str) -> String {
        let keyed = |prefix: &str| path.strip_prefix(prefix)?.strip_suffix("']").map(str::to_owned);
        if let Some(key) = keyed("metadata.labels['") {
            return meta::label(self.pod, &key).unwrap_or_default().to_owned();
        }
        if let Some(key) = keyed("metadata.annotations['") {
            return meta::annotation(self.pod, &key).unwrap_or_default().to_owned();
        }
        match path {
            "metadata.name" => meta::name(self.pod).to_owned(),
            "metadata.namespace" => meta::namespace(self.pod).to_owned(),
            "metadata.uid" => meta::uid(self.pod).to_owned(),
            "metadata.labels" => quoted_lines(&self.pod["metadata"]["labels"]),
            "metadata.annotations" => quoted_lines(&self.pod["metadata"]["annotations"]),
            "spec.nodeName" => self.node.to_owned(),
            "spec.serviceAccountName" => text(&self.pod["spec"]["serviceAccountName"]).unwrap_or_default(),
            "status.podIP" | "status.podIPs" => self.pod_ip.to_owned(),
            "status.hostIP" | "status.hostIPs" => self.host_ip.to_owned(),
            _ => String::new(),
        }
    }
}

/// Labels or annotations as a file shows them: `key="value"`, one a line.
fn quoted_lines(map: &Value) -> String {
    let entries: BTreeMap<_, _> = map.as_object().into_iter().flatten().collect();
    let lines: Vec<String> =
        entries.iter().map(|(k, v)| format!("{k}={:?}", v.as_str().unwrap_or_default())).collect();
    lines.join("\n")
}

/// The variables of a container, in the order in which they were given, later ones over earlier ones. The error says
/// what is missing, in kubelet's words.
pub(crate) fn environment(
    container: &Value,
    downward: &Downward<'_>,
    sources: &Sources,
) -> Result<HashMap<String, String>, String> {
    let mut all = HashMap::new();
    for source in list(&container["envFrom"]) {
        add_all(&mut all, source, sources)?;
    }
    for variable in list(&container["env"]) {
        let Some(name) = text(&variable["name"]) else { continue };
        let value = match variable["valueFrom"].as_object() {
            None => Some(expand(variable["value"].as_str().unwrap_or_default(), &all)),
            Some(_) => value_from(&variable["valueFrom"], downward, sources)?,
        };
        if let Some(value) = value {
            all.insert(name, value);
        }
    }
    Ok(all)
}

fn add_all(all: &mut HashMap<String, String>, source: &Value, sources: &Sources) -> Result<(), String> {
    let prefix = source["prefix"].as_str().unwrap_or_default();
    let rows = [
        ("secret", &source["secretRef"], &sources.secrets),
        ("configmap", &source["configMapRef"], &sources.config_maps),
    ];
    for (kind, reference, objects) in rows {
        let Some(name) = text(&reference["name"]) else { continue };
        match objects.get(&name) {
            Some(content) => {
                all.extend(content.iter().map(|(key, value)| {
                    (format!("{prefix}{key}"), String::from_utf8_lossy(value).into_owned())
                }))
            }
            None if reference["optional"] == true => {}
            None => return Err(format!("{kind} {name:?} not found")),
        }
    }
    Ok(())
}

fn value_from(from: &Value, downward: &Downward<'_>, sources: &Sources) -> Result<Option<String>, String> {
    if let Some(path) = text(&from["fieldRef"]["fieldPath"]) {
        return Ok(Some(downward.field(&path)));
    }
    let rows = [
        ("Secret", "secret", &from["secretKeyRef"], &sources.secrets),
        ("ConfigMap", "configmap", &from["configMapKeyRef"], &sources.config_maps),
    ];
    for (kind, lower, reference, objects) in rows {
        let Some(name) = text(&reference["name"]) else { continue };
        let key = reference["key"].as_str().unwrap_or_default();
        return match objects.get(&name).map(|content| content.get(key)) {
            Some(Some(value)) => Ok(Some(String::from_utf8_lossy(value).into_owned())),
            _ if reference["optional"] == true => Ok(None),
            Some(None) => {
                let namespace = meta::namespace(downward.pod);
                Err(format!("couldn't find key {key} in {kind} {namespace}/{name}"))
            }
            None => Err(format!("{lower} {name:?} not found")),
        };
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn resolve(container: &Value) -> Result<HashMap<String, String>, String> {
        let pod =
            json!({"metadata": {"name": "p", "namespace": "n", "uid": "u", "labels": {"a": "b", "c": "d"}}});
        let content = BTreeMap::from([("k".to_owned(), b"v".to_vec())]);
        let sources = Sources {
            secrets: BTreeMap::from([("s".to_owned(), content.clone())]),
            config_maps: BTreeMap::from([("c".to_owned(), content)]),
            ..Sources::default()
        };
        let downward = Downward { pod: &pod, pod_ip: "127.64.0.1", node: "here", host_ip: "127.0.0.1" };
        environment(container, &downward, &sources)
    }

    #[test]
    fn variables_come_from_values_fields_and_objects() {
        let field = |path: &str| json!({"fieldRef": {"fieldPath": path}});
        let all = resolve(&json!({
            "envFrom": [{"prefix": "P_", "configMapRef": {"name": "c"}}, {"secretRef": {"name": "none", "optional": true}}],
            "env": [
                {"name": "PLAIN", "value": "x"},
                {"name": "SECOND", "value": "$(PLAIN)-$(P_k)-$(LATER)"},
                {"name": "LATER", "value": "y"},
                {"name": "IP", "valueFrom": field("status.podIP")},
                {"name": "NAME", "valueFrom": field("metadata.name")},
                {"name": "LABEL", "valueFrom": field("metadata.labels['c']")},
                {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                {"name": "NONE", "valueFrom": {"secretKeyRef": {"name": "s", "key": "z", "optional": true}}},
            ],
        }))
        .unwrap();
        let rows = [
            ("PLAIN", "x"),
            ("SECOND", "x-v-$(LATER)"),
            ("IP", "127.64.0.1"),
            ("NAME", "p"),
            ("LABEL", "d"),
            ("SECRET", "v"),
            ("P_k", "v"),
        ];
        for (name, value) in rows {
            assert_eq!(all.get(name).map(String::as_str), Some(value), "{name}");
        }
        assert!(!all.contains_key("NONE"));
    }

    #[test]
    fn what_is_missing_is_named() {
        let rows = [
            (json!({"secretKeyRef": {"name": "x", "key": "k"}}), "secret \"x\" not found"),
            (json!({"secretKeyRef": {"name": "s", "key": "x"}}), "couldn't find key x in Secret n/s"),
            (json!({"configMapKeyRef": {"name": "x", "key": "k"}}), "configmap \"x\" not found"),
        ];
        for (from, message) in rows {
            let container = json!({"env": [{"name": "A", "valueFrom": from}]});
            assert_eq!(resolve(&container).unwrap_err(), message);
        }
    }
}
