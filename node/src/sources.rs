//! Secrets, ConfigMaps and tokens that a Pod refers to: finding the references, and reading them.

use freehold_client::{Client, Error, Resource};
use freehold_machinery::{Value, meta};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

const SECRETS: Resource = Resource::namespaced("", "v1", "secrets");
const CONFIG_MAPS: Resource = Resource::namespaced("", "v1", "configmaps");
const SERVICE_ACCOUNTS: Resource = Resource::namespaced("", "v1", "serviceaccounts");

/// What a Pod names.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct References {
    /// Secrets.
    pub(crate) secrets: BTreeSet<String>,
    /// ConfigMaps.
    pub(crate) config_maps: BTreeSet<String>,
    /// Tokens of the Pod's service account: audience and seconds of life.
    pub(crate) tokens: BTreeSet<(String, u64)>,
}

/// What it names, read. Absent objects are absent here too.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources {
    /// Content of Secrets by name, then key.
    pub(crate) secrets: BTreeMap<String, BTreeMap<String, Vec<u8>>>,
    /// Content of ConfigMaps by name, then key.
    pub(crate) config_maps: BTreeMap<String, BTreeMap<String, Vec<u8>>>,
    /// Tokens by audience and seconds of life.
    pub(crate) tokens: BTreeMap<(String, u64), String>,
}

impl References {
    /// Everything that a Pod's volumes and containers name.
    pub(crate) fn of(pod: &Value) -> Self {
        let mut all = Self::default();
        for volume in list(&pod["spec"]["volumes"]) {
            all.add_volume(volume);
        }
        for kind in ["initContainers", "containers"] {
            for container in list(&pod["spec"][kind]) {
                all.add_container(container);
            }
        }
        all
    }

    fn add_volume(&mut self, volume: &Value) {
        self.secrets.extend(text(&volume["secret"]["secretName"]));
        self.config_maps.extend(text(&volume["configMap"]["name"]));
        for source in list(&volume["projected"]["sources"]) {
            self.secrets.extend(text(&source["secret"]["name"]));
            self.config_maps.extend(text(&source["configMap"]["name"]));
            if source["serviceAccountToken"].is_object() {
                self.tokens.insert(token_key(&source["serviceAccountToken"]));
            }
        }
    }

    fn add_container(&mut self, container: &Value) {
        for variable in list(&container["env"]) {
            self.secrets.extend(text(&variable["valueFrom"]["secretKeyRef"]["name"]));
            self.config_maps.extend(text(&variable["valueFrom"]["configMapKeyRef"]["name"]));
        }
        for source in list(&container["envFrom"]) {
            self.secrets.extend(text(&source["secretRef"]["name"]));
            self.config_maps.extend(text(&source["configMapRef"]["name"]));
        }
    }

    /// Reads all of it. Tokens are bound to the Pod, so that they end with it.
    pub(crate) async fn read(&self, client: &Client, pod: &Value) -> Result<Sources, Error> {
        let namespace = Some(meta::namespace(pod));
        let mut sources = Sources::default();
        for name in &self.secrets {
            if let Some(secret) = client.get_opt(&SECRETS, namespace, name).await? {
                sources.secrets.insert(name.clone(), decoded(&secret["data"]));
            }
        }
        for name in &self.config_maps {
            if let Some(map) = client.get_opt(&CONFIG_MAPS, namespace, name).await? {
                let mut content = plain(&map["data"]);
                content.extend(decoded(&map["binaryData"]));
                sources.config_maps.insert(name.clone(), content);
            }
        }
        for key in &self.tokens {
            sources.tokens.insert(key.clone(), token(client, pod, key).await?);
        }
        Ok(sources)
    }
}

/// Audience and seconds of life of a projected token, as [`Sources::tokens`] is keyed.
pub(crate) fn token_key(source: &Value) -> (String, u64) {
    let audience = source["audience"].as_str().unwrap_or_default();
    (audience.to_owned(), source["expirationSeconds"].as_u64().unwrap_or(3600))
}

async fn token(client: &Client, pod: &Value, (audience, seconds): &(String, u64)) -> Result<String, Error> {
    let account = text(&pod["spec"]["serviceAccountName"]).unwrap_or_else(|| "default".to_owned());
    let audiences: Vec<&str> = Some(audience.as_str()).filter(|a| !a.is_empty()).into_iter().collect();
    let bound = json!({"apiVersion": "v1", "kind": "Pod", "name": meta::name(pod), "uid": meta::uid(pod)});
    let request = json!({
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": bound},
    });
    let namespace = Some(meta::namespace(pod));
    let answer = client.create_subresource(&SERVICE_ACCOUNTS, namespace, &account, "token", &request).await?;
    text(&answer["status"]["token"]).ok_or_else(|| Error::Decode("a TokenRequest without a token".into()))
}

fn decoded(data: &Value) -> BTreeMap<String, Vec<u8>> {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    let entries = data.as_object().into_iter().flatten();
    entries.filter_map(|(key, v)| Some((key.clone(), STANDARD.decode(v.as_str()?).ok()?))).collect()
}

fn plain(data: &Value) -> BTreeMap<String, Vec<u8>> {
    let entries = data.as_object().into_iter().flatten();
    entries.filter_map(|(key, v)| Some((key.clone(), v.as_str()?.as_bytes().to_vec()))).collect()
}

/// The items of a list; none of anything else.
pub(crate) fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// A string that is not empty.
pub(crate) fn text(value: &Value) -> Option<String> {
    value.as_str().filter(|s| !s.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_names_its_sources_in_volumes_and_variables() {
        let pod = json!({"spec": {
            "volumes": [
                {"name": "a", "secret": {"secretName": "s1"}},
                {"name": "b", "configMap": {"name": "c1"}},
                {"name": "c", "projected": {"sources": [
                    {"secret": {"name": "s2"}}, {"configMap": {"name": "c2"}},
                    {"serviceAccountToken": {"path": "token", "audience": "x", "expirationSeconds": 600}},
                ]}},
            ],
            "containers": [{
                "env": [
                    {"name": "A", "valueFrom": {"secretKeyRef": {"name": "s3", "key": "k"}}},
                    {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "c3", "key": "k"}}},
                ],
                "envFrom": [{"secretRef": {"name": "s4"}}, {"configMapRef": {"name": "c4"}}],
            }],
        }});
        let names = |prefix: &str, n: u8| (1..=n).map(|i| format!("{prefix}{i}")).collect::<BTreeSet<_>>();
        let all = References::of(&pod);
        assert_eq!(all.secrets, names("s", 4));
        assert_eq!(all.config_maps, names("c", 4));
        assert_eq!(all.tokens, BTreeSet::from([("x".to_owned(), 600)]));
    }
}
