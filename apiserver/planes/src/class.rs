//! Layers of classes: each change of a class' objects creates a new layer, which all planes of the class stand on from
//! then on.

use crate::{
    Planes,
    base::{custom_registrations, finish, namespace_objects, path_of},
    layers::ClassRecord,
    stored::{self, Origin, Writer},
};
use freehold_apiserver_cache::codec;
use freehold_apiserver_storage::{Change, Commit, Committed, Expect, Key, LayerId, ObjectPath};
use freehold_machinery::{GroupResource, Result, Status, Value};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// How often a commit is tried again when others change the same meanwhile.
const ATTEMPTS: usize = 20;

fn resource() -> GroupResource {
    GroupResource::new("", "classes")
}

/// A layer's identifier, by class and content.
fn identify(class: &str, objects: &BTreeMap<ObjectPath, Value>) -> Result<LayerId> {
    let mut hasher = Sha256::new();
    hasher.update(class);
    for (path, object) in objects {
        hasher.update(format!("\n{path:?}\n{object}"));
    }
    let digest = hex::encode(hasher.finalize());
    format!("class-{}", &digest[..40]).parse().map_err(Status::internal)
}

impl Planes {
    /// Reads a class as of now; `None` where it is absent or being deleted.
    ///
    /// # Errors
    /// 503 where the store does not answer.
    pub async fn class(&self, class: &str) -> Result<Option<Value>> {
        match self.core_object("controlplaneclasses", class).await {
            Ok(entry) if entry.is_deleting() => Ok(None),
            Ok(entry) => Ok(Some(entry.value())),
            Err(status) if status.is_not_found() => Ok(None),
            Err(status) => Err(status),
        }
    }

    /// Makes objects, as they are stored, the layer of a class, and returns the layer's name. Without objects, and
    /// without a rule that keeps what the base brings, the class has no layer and the name is empty. The operation
    /// is idempotent.
    ///
    /// # Errors
    /// 503 where the store does not answer.
    pub async fn install_class(
        &self,
        class: &str,
        objects: Vec<(ObjectPath, Value)>,
        keeps: bool,
    ) -> Result<String> {
        let mut placed: BTreeMap<ObjectPath, Value> = BTreeMap::new();
        // Controllers give these to namespaces that they see made; those of a layer are just there.
        for (path, _) in &objects {
            if path.group.is_empty() && path.resource == "namespaces" {
                for (group, resource, object) in namespace_objects(&path.name, self.layers.ca_pem()) {
                    placed.insert(path_of(group, resource, &object), object);
                }
            }
        }
        let crds = objects.iter().filter(|(path, _)| path.resource == "customresourcedefinitions");
        for (group, resource, object) in custom_registrations(crds.map(|(_, crd)| crd)) {
            placed.insert(path_of(group, resource, &object), object);
        }
        placed.extend(objects);
        if placed.is_empty() && !keeps {
            self.point(class, None).await?;
            return Ok(String::new());
        }
        let layer = identify(class, &placed)?;
        if !stored::is_sealed(&**self.stores.of_layer(&layer), &layer).await? {
            let now = freehold_machinery::time::format_seconds(jiff::Timestamp::now());
            let revision = self.stores.system().revision().await?;
            let origin = Origin { source: format!("class {class}"), organization: None, revision };
            let mut writer =
                Writer::begin(self.stores.of_layer(&layer).clone(), layer.clone(), origin).await?;
            for (path, object) in placed {
                let (_, _, object) = finish((path.group.clone(), path.resource.clone(), object), &now);
                writer.put(&path, codec::encode(&object)).await?;
            }
            writer.seal().await?;
        }
        self.point(class, Some((layer.clone(), keeps))).await?;
        Ok(layer.to_string())
    }

    /// Makes a layer that of a class, in one commit. The one before the last goes: no server can be so far behind.
    async fn point(&self, class: &str, to: Option<(LayerId, bool)>) -> Result<()> {
        let key = Key::class(class);
        for _ in 0..ATTEMPTS {
            let found = self.stores.system().get(&key).await?;
            let before: Option<ClassRecord> =
                found.as_ref().and_then(|found| serde_json::from_slice(&found.value).ok());
            let modified = found.as_ref().map_or(0, |found| found.modified);
            let mut expect = vec![Expect { key: key.clone(), modified }];
            let (change, kept) = match &to {
                None if before.is_none() => return Ok(()),
                None => (Change::Delete(key.clone()), Vec::new()),
                Some((layer, keeps)) => {
                    let layer = layer.to_string();
                    if before.as_ref().is_some_and(|before| before.layer == layer && before.keeps == *keeps) {
                        return Ok(());
                    }
                    let sealed =
                        stored::record(&**self.stores.system(), &layer.parse().map_err(Status::internal)?)
                            .await;
                    let Some((_, sealed)) = sealed?.filter(|(r, _)| r.sealed && !r.released) else {
                        return Err(Status::modified(&resource(), class));
                    };
                    let id: LayerId = layer.parse().map_err(Status::internal)?;
                    expect.push(Expect { key: Key::layer(&id), modified: sealed });
                    let previous = before.as_ref().map(|b| b.layer.clone()).filter(|b| *b != layer);
                    let previous =
                        previous.or_else(|| before.as_ref()?.previous.clone()).filter(|p| *p != layer);
                    let kept = [Some(layer.clone()), previous.clone()].into_iter().flatten().collect();
                    let record = ClassRecord { layer, previous, keeps: *keeps };
                    let value = serde_json::to_vec(&record).map_err(Status::internal)?;
                    (Change::Put(key.clone(), value.into()), kept)
                }
            };
            let commit = Commit { expect, changes: vec![change] };
            if let Committed::Done(revision) = self.stores.system().commit(commit).await? {
                self.cache.wait_for(revision).await?;
                self.upkeep.notify_one();
                return self.drop_layers(before, &kept).await;
            }
        }
        Err(Status::modified(&resource(), class))
    }

    async fn drop_layers(&self, before: Option<ClassRecord>, kept: &[String]) -> Result<()> {
        let Some(before) = before else { return Ok(()) };
        for layer in [Some(before.layer), before.previous].into_iter().flatten() {
            if !kept.contains(&layer) {
                stored::release(self.stores.system(), &layer.parse().map_err(Status::internal)?).await?;
            }
        }
        Ok(())
    }
}
