//! The volumes of a host Pod, and what they refer to.

use crate::Refusal;
use crate::names::{NAME, NAMESPACE, UID, host_name, token_secret};
use crate::pod::{Downward, Referent, Terms};
use crate::tokens::TokenSource;
use freehold_machinery::Value;
use serde_json::json;
use std::collections::BTreeSet;

/// Translates volumes, and collects what they need.
pub(crate) struct Volumes<'a> {
    pod: String,
    terms: &'a Terms<'a>,
    references: BTreeSet<(Referent, String)>,
    tokens: Vec<TokenSource>,
    asked: BTreeSet<Downward>,
}

impl<'a> Volumes<'a> {
    pub(crate) fn new(pod: &str, terms: &'a Terms<'a>) -> Self {
        let (references, tokens, asked) = Default::default();
        Self { pod: pod.to_owned(), terms, references, tokens, asked }
    }

    pub(crate) fn finish(self) -> (BTreeSet<(Referent, String)>, Vec<TokenSource>, BTreeSet<Downward>) {
        (self.references, self.tokens, self.asked)
    }

    /// Notes a reference, and gives the name that it has on the host.
    pub(crate) fn refer(&mut self, kind: Referent, name: &str) -> String {
        self.references.insert((kind, name.to_owned()));
        host_name(name)
    }

    /// The volumes of the host Pod.
    ///
    /// # Errors
    /// A volume of a type that leads out of the project.
    pub(crate) fn translate(&mut self, volumes: Option<&Value>) -> Result<Value, Refusal> {
        let list = volumes.and_then(Value::as_array).into_iter().flatten();
        list.map(|volume| self.volume(volume)).collect()
    }

    /// An image as a volume, which is asked for anew: one that is on the node may be another project's.
    fn image(&self, source: &Value) -> Value {
        let mut image = source.clone();
        if !self.terms.is_privileged() && image.is_object() {
            image["pullPolicy"] = "Always".into();
        }
        image
    }

    fn volume(&mut self, volume: &Value) -> Result<Value, Refusal> {
        let name = volume["name"].as_str().unwrap_or_default();
        let mut sources = volume.as_object().into_iter().flatten().filter(|(key, _)| *key != "name");
        let Some((kind, source)) = sources.next() else { return Ok(json!({"name": name, "emptyDir": {}})) };
        let host = match kind.as_str() {
            "emptyDir" => source.clone(),
            "image" => self.image(source),
            "hostPath" if self.terms.is_privileged() => source.clone(),
            "configMap" => self.named(source, "name", Referent::ConfigMap),
            "secret" => self.named(source, "secretName", Referent::Secret),
            "downwardAPI" => self.downward(source)?,
            "projected" => self.projected(name, source)?,
            "persistentVolumeClaim" => self.named(source, "claimName", Referent::Claim),
            "ephemeral" => {
                // The project's own controller makes the claim, under this name.
                let claim = self.refer(Referent::Claim, &format!("{}-{name}", self.pod));
                return Ok(json!({"name": name, "persistentVolumeClaim": {"claimName": claim}}));
            }
            other => {
                let why = "volumes of this type can't be on a shared cluster";
                return Err(Refusal::field(&format!("volume {name}: {other}"), why));
            }
        };
        Ok(json!({"name": name, kind: host}))
    }

    fn named(&mut self, source: &Value, field: &str, kind: Referent) -> Value {
        let mut host = source.clone();
        if let Some(name) = source[field].as_str() {
            host[field] = self.refer(kind, name).into();
        }
        host
    }

    fn projected(&mut self, volume: &str, source: &Value) -> Result<Value, Refusal> {
        let mut host = source.clone();
        let list = source["sources"].as_array().into_iter().flatten();
        host["sources"] = list.map(|one| self.projection(volume, one)).collect::<Result<Value, _>>()?;
        Ok(host)
    }

    fn projection(&mut self, volume: &str, source: &Value) -> Result<Value, Refusal> {
        let mut parts = source.as_object().into_iter().flatten();
        let Some((kind, source)) = parts.next() else { return Ok(json!({})) };
        Ok(match kind.as_str() {
            "configMap" => json!({kind: self.named(source, "name", Referent::ConfigMap)}),
            "secret" => json!({kind: self.named(source, "name", Referent::Secret)}),
            "downwardAPI" => json!({kind: self.downward(source)?}),
            "serviceAccountToken" => {
                let key = format!("token-{}", self.tokens.len());
                self.tokens.push(TokenSource::of(source, key.clone()));
                let items = json!([{"key": key, "path": source["path"]}]);
                json!({"secret": {"name": token_secret(&self.pod), "items": items}})
            }
            other => {
                let why = "volumes of this type can't be on a shared cluster";
                return Err(Refusal::field(&format!("volume {volume}: projected {other}"), why));
            }
        })
    }

    /// Fields of the Pod that are others on the host are read from annotations there, which follow the project's Pod.
    fn downward(&mut self, source: &Value) -> Result<Value, Refusal> {
        let mut host = source.clone();
        let items = host["items"].as_array_mut().into_iter().flatten();
        for item in items {
            let Some(path) = item["fieldRef"]["fieldPath"].as_str().map(str::to_owned) else { continue };
            if let Some(annotation) = self.annotation(&path) {
                item["fieldRef"]["fieldPath"] = format!("metadata.annotations['{annotation}']").into();
            }
        }
        Ok(host)
    }

    fn annotation(&mut self, path: &str) -> Option<String> {
        let single = path.strip_prefix("metadata.annotations['").and_then(|rest| rest.strip_suffix("']"));
        let asked = match path {
            "metadata.name" => return Some(NAME.to_owned()),
            "metadata.namespace" => return Some(NAMESPACE.to_owned()),
            "metadata.uid" => return Some(UID.to_owned()),
            "metadata.labels" => Downward::Labels,
            "metadata.annotations" => Downward::Annotations,
            _ => Downward::Annotation(single?.to_owned()),
        };
        let key = asked.key();
        self.asked.insert(asked);
        Some(key)
    }
}
