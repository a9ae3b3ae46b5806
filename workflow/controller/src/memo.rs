//! Results that are kept: a task with the same key takes them instead of running a Pod.
//!
//! A result is a ControllerRevision: its data never changes, and who may write runs may not write it. Only a task of the same
//! namespace, service account, definition, cache and key takes it; that is compared field by field, whatever its name is.

use crate::kinds::REVISIONS;
use crate::live::{Live, now};
use freehold_client::{Client, DeleteOptions, Error, ListOptions};
use freehold_machinery::{Value, meta};
use freehold_runtime::Key;
use freehold_workflow_api::{Memoize, duration, names};
use freehold_workflow_engine::{NodeId, names::digest, values};
use freehold_workflow_outbound::sign::sha256;
use parking_lot::Mutex;
use serde_json::json;
use std::collections::{BTreeMap, HashMap};

/// Results that a cache keeps.
const MAX_KEPT: usize = 1000;
/// New results after which old ones are looked for.
const LOOK_AFTER: u32 = 64;
/// Bytes of outputs that a kept result may have: it is one object.
const MAX_BYTES: usize = 192 << 10;
/// Caches whose sizes are known at once.
const MAX_CACHES: usize = 4096;

/// How many results each cache has got since old ones were looked for.
#[derive(Debug, Default)]
pub(crate) struct Fresh(Mutex<HashMap<(Key, String), u32>>);

impl Fresh {
    /// Counts a new result. Whether old ones are to be looked for.
    fn count(&self, key: &Key, cache: &str) -> bool {
        let mut counts = self.0.lock();
        if counts.len() > MAX_CACHES {
            counts.clear();
        }
        let of = Key::new(key.plane.clone(), &key.namespace, "");
        // The first of a process looks: what others left is not known.
        let count = counts.entry((of, cache.to_owned())).or_insert(LOOK_AFTER);
        *count += 1;
        let is_time = *count > LOOK_AFTER;
        if is_time {
            *count = 0;
        }
        is_time
    }
}

/// What a result is found by.
#[derive(Debug, PartialEq)]
struct Identity {
    cache: String,
    key: String,
    account: String,
    definition: String,
}

impl Identity {
    fn of(live: &Live, node: NodeId, attempt: u32, memoize: &Memoize) -> Result<Self, String> {
        let (spec, task) = (live.plan.spec(), live.plan.task(node.task));
        let mut template = task.task.template.clone();
        // How often and how long it is tried does not change what comes of it.
        (template.memoize, template.retry) = (None, None);
        (template.timeout, template.start_timeout) = (String::new(), String::new());
        let environment = json!([template, spec.pod, spec.workspace]).to_string();
        let account = match spec.service_account_name.as_str() {
            "" => "default",
            name => name,
        };
        Ok(Self {
            cache: if memoize.cache.is_empty() { "default".into() } else { memoize.cache.clone() },
            key: values::expand_text(&live.run, &live.plan, node, attempt, &memoize.key)?,
            account: account.to_owned(),
            definition: sha256(environment.as_bytes()),
        })
    }

    fn name(&self) -> String {
        let Self { cache, key, account, definition } = self;
        format!("workflow-result-{}", digest(&[cache, key, account, definition]))
    }

    fn data(&self) -> Value {
        let Self { cache, key, account, definition } = self;
        json!({"cache": cache, "key": key, "serviceAccount": account, "definition": definition})
    }

    fn is(&self, data: &Value) -> bool {
        let own = self.data();
        own.as_object().is_some_and(|own| own.iter().all(|(field, value)| data[field] == *value))
    }
}

impl Live {
    fn memoize(&self, node: NodeId) -> Option<&Memoize> {
        self.plan.tasks().get(node.task as usize)?.task.template.memoize.as_ref()
    }

    /// Looks for the result of an earlier task.
    ///
    /// # Errors
    /// A plane that could not be asked.
    pub(crate) async fn remembered(
        &self,
        client: &Client,
        key: &Key,
        node: NodeId,
        attempt: u32,
    ) -> Result<Option<BTreeMap<String, Value>>, Error> {
        let Some(memoize) = self.memoize(node) else { return Ok(None) };
        // A key without a value is told when the Pod is built, or not at all: it is no result.
        let Ok(identity) = Identity::of(self, node, attempt, memoize) else { return Ok(None) };
        let Some(found) = client.get_opt(&REVISIONS, key.ns(), &identity.name()).await? else {
            return Ok(None);
        };
        let data = &found["data"];
        let age = now().saturating_sub(data["at"].as_i64().unwrap_or(0)).max(0).unsigned_abs();
        let is_old = !memoize.max_age.is_empty()
            && duration::parse(&memoize.max_age).is_none_or(|limit| u128::from(age) > limit.as_millis());
        if is_old || !identity.is(data) {
            return Ok(None);
        }
        Ok(serde_json::from_value(data["outputs"].clone()).ok())
    }

    /// Keeps the result of a task.
    ///
    /// # Errors
    /// A plane that does not take it; the task is done again next time.
    pub(crate) async fn remember(
        &self,
        client: &Client,
        key: &Key,
        (node, attempt): (NodeId, u32),
        outputs: &BTreeMap<String, Value>,
        fresh: &Fresh,
    ) -> Result<(), Error> {
        let Some(memoize) = self.memoize(node) else { return Ok(()) };
        let Ok(identity) = Identity::of(self, node, attempt, memoize) else { return Ok(()) };
        let mut data = identity.data();
        data["at"] = now().into();
        data["run"] = self.run.info.name.as_str().into();
        data["outputs"] = json!(outputs);
        if data.to_string().len() > MAX_BYTES {
            return Ok(());
        }
        let revision = json!({
            "apiVersion": "apps/v1", "kind": "ControllerRevision",
            "metadata": {"name": identity.name(), "namespace": &*key.namespace, "labels": {names::CACHE: identity.cache}},
            "data": data, "revision": 1,
        });
        match client.create(&REVISIONS, &revision).await {
            Ok(_) => {}
            Err(error) if error.is_already_exists() => {
                // One that is too old, or of another task. Whoever was first of two at once may win.
                client.delete(&REVISIONS, key.ns(), &identity.name(), &DeleteOptions::default()).await?;
                match client.create(&REVISIONS, &revision).await {
                    Err(error) if error.is_already_exists() => {}
                    created => drop(created?),
                }
            }
            Err(error) => return Err(error),
        }
        if fresh.count(key, &identity.cache) {
            trim(client, key, &identity.cache).await?;
        }
        Ok(())
    }
}

/// Deletes the oldest results beyond those that a cache keeps.
async fn trim(client: &Client, key: &Key, cache: &str) -> Result<(), Error> {
    let options = ListOptions {
        label_selector: format!("{}={cache}", names::CACHE),
        metadata_only: true,
        limit: 500,
        ..ListOptions::default()
    };
    let mut kept = client.list_all(&REVISIONS, key.ns(), &options).await?.items;
    let surplus = kept.len().saturating_sub(MAX_KEPT);
    kept.sort_by_key(|result| meta::text(result, "creationTimestamp").to_owned());
    for result in kept.iter().take(surplus) {
        match client.delete(&REVISIONS, key.ns(), meta::name(result), &DeleteOptions::default()).await {
            Err(error) if error.is_not_found() => {}
            deleted => drop(deleted?),
        }
    }
    Ok(())
}
