//! Objects of an Extension: written where they differ, never taken from others, deleted where they are left over.

use freehold_client::{Client, DeleteOptions, Error, ListOptions, Resource};
use freehold_machinery::{Value, meta};
use freehold_tenancy_api::integration::EXTENSION_LABEL;
use freehold_tenancy_decide::integration::{KeptKind, Refusal};

/// The field manager of Extensions' objects.
const MANAGER: &str = "freehold-extension";

/// The type that requests name for a kind.
pub(super) fn resource(kind: &KeptKind) -> Resource {
    let (group, version) = kind.api_version.split_once('/').unwrap_or(("", kind.api_version));
    Resource::dynamic(group, version, kind.plural, true)
}

/// The objects of one Extension.
pub(super) struct Keeping<'a> {
    pub(super) client: &'a Client,
    pub(super) extension: &'a str,
    /// Where they are.
    pub(super) namespace: &'a str,
}

impl Keeping<'_> {
    /// Writes objects that differ, and deletes those that are left over.
    pub(super) async fn keep(
        &self,
        kinds: &[KeptKind],
        wanted: &[Value],
    ) -> Result<Result<(), Refusal>, Error> {
        for object in wanted {
            let Some(kind) = kinds.iter().find(|kind| object["kind"] == kind.kind) else { continue };
            let mut object = object.clone();
            object["metadata"]["labels"][EXTENSION_LABEL] = self.extension.into();
            if let Some(refusal) = self.write(kind, &object).await? {
                return Ok(Err(refusal));
            }
        }
        self.delete_others(kinds, wanted).await?;
        Ok(Ok(()))
    }

    async fn write(&self, kind: &KeptKind, object: &Value) -> Result<Option<Refusal>, Error> {
        let (resource, name) = (resource(kind), meta::name(object));
        let live = match self.client.get(&resource, Some(self.namespace), name).await {
            Ok(live) => Some(live),
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(error),
        };
        if let Some(live) = &live {
            if meta::label(live, EXTENSION_LABEL) != Some(self.extension) {
                let message =
                    format!("{} {}/{name} is there and not of this Extension", kind.kind, self.namespace);
                return Ok(Some(Refusal::new("NameTaken", message)));
            }
            if is_same(live, object) {
                return Ok(None);
            }
        }
        match self.client.apply(&resource, MANAGER, object).await {
            Ok(_) => Ok(None),
            Err(error) if error.is_not_found() => {
                let message =
                    format!("{} cannot be written to namespace {}: {error}", kind.kind, self.namespace);
                Ok(Some(Refusal::new("NotInstalled", message)))
            }
            Err(error) if matches!(error.code(), 400 | 403 | 422) => {
                Ok(Some(Refusal::new("Rejected", format!("{} {name}: {error}", kind.kind))))
            }
            Err(error) => Err(error),
        }
    }

    /// The Extension's objects of a kind; none where the server does not have it.
    async fn live(&self, resource: &Resource) -> Result<Vec<Value>, Error> {
        let options = ListOptions {
            label_selector: format!("{EXTENSION_LABEL}={}", self.extension),
            ..ListOptions::default()
        };
        match self.client.list_all(resource, Some(self.namespace), &options).await {
            Err(error) if error.is_not_found() => Ok(Vec::new()),
            other => other.map(|list| list.items),
        }
    }

    /// Takes out of existing objects what goes too far by now.
    pub(super) async fn narrow(
        &self,
        kinds: &[KeptKind],
        narrowed: impl Fn(&Value) -> Option<Value>,
    ) -> Result<(), Error> {
        for kind in kinds {
            let resource = resource(kind);
            for object in self.live(&resource).await?.iter().filter_map(&narrowed) {
                self.client.update(&resource, &object).await?;
            }
        }
        Ok(())
    }

    /// Deletes the Extension's objects beside the wanted ones.
    pub(super) async fn delete_others(&self, kinds: &[KeptKind], wanted: &[Value]) -> Result<(), Error> {
        for kind in kinds {
            let resource = resource(kind);
            for object in self.live(&resource).await? {
                let stays =
                    wanted.iter().any(|w| w["kind"] == kind.kind && meta::name(w) == meta::name(&object));
                if stays {
                    continue;
                }
                let options = DeleteOptions::uid(meta::uid(&object));
                match self.client.delete(&resource, Some(self.namespace), meta::name(&object), &options).await
                {
                    Err(error) if !error.is_not_found() && !error.is_conflict() => return Err(error),
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

/// Whether an object is exactly as wanted: a further destination or credential is a difference too.
fn is_same(live: &Value, wanted: &Value) -> bool {
    let labels = wanted["metadata"]["labels"].as_object().into_iter().flatten();
    ["spec", "data", "type"].iter().all(|part| match wanted.get(part) {
        Some(value) => without_empty(&live[part]) == without_empty(value),
        None => true,
    }) && labels.into_iter().all(|(key, value)| live["metadata"]["labels"][key] == *value)
}

/// A value without fields that say nothing.
fn without_empty(value: &Value) -> Value {
    let says_nothing = |value: &Value| match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    };
    match value {
        Value::Object(map) => {
            let fields = map.iter().map(|(key, value)| (key.clone(), without_empty(value)));
            Value::Object(fields.filter(|(_, value)| !says_nothing(value)).collect())
        }
        Value::Array(items) => items.iter().map(without_empty).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_further_destination_is_a_difference() {
        let wanted = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"destinations": [{"namespace": "a"}], "roles": []}});
        let live = |destinations: Value| json!({"metadata": {"labels": {"a": "b", "c": "d"}}, "spec": {"destinations": destinations}});
        assert!(is_same(&live(json!([{"namespace": "a"}])), &wanted));
        assert!(!is_same(&live(json!([{"namespace": "a"}, {"namespace": "*"}])), &wanted));
        assert!(!is_same(&live(json!([])), &wanted));
    }
}
