//! Deletions of bindings beside creations of their objects.
//!
//! A creation is committed on the condition that the binding which brings its type is as it was. A deletion closes the binding
//! first: what is made before that is found when objects are looked for again, and what comes later is refused.

use super::{api_path, text};
use crate::{Operation, Registry};
use freehold_apiserver_cache::{ListRequest, Seen, codec};
use freehold_apiserver_ledger::newest;
use freehold_apiserver_storage::{Change, Committed, Expect, Key, ObjectPath};
use freehold_machinery::{Result, Status, Value, meta};
use jiff::{SignedDuration, Timestamp};

/// How long a binding stays closed when nobody deletes it in the end. A deletion that takes longer closes it again.
const CLOSED: SignedDuration = SignedDuration::from_secs(30);
/// The part of that within which the deletion has to be committed.
const USED: SignedDuration = SignedDuration::from_secs(20);
/// Since when a binding is closed.
const CLOSING: &str = "closing";

/// Whether a binding was closed less than some time ago.
fn is_closed(binding: &Value, within: SignedDuration) -> bool {
    let since = binding["status"][CLOSING].as_str().and_then(|text| text.parse::<Timestamp>().ok());
    since.is_some_and(|since| Timestamp::now().duration_since(since) < within)
}

impl Registry {
    /// What the creation of an object of a bound type rests on.
    pub(crate) async fn resting_on(
        &self,
        op: &Operation,
        new: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<Vec<(Expect, Option<Change>)>> {
        if new.is_none() || old.is_some() || op.ty.since == 0 {
            return Ok(Vec::new());
        }
        let Some(exports) = &self.exports else { return Ok(Vec::new()) };
        let identity = op.ty.storage.resource.rsplit_once(':').map_or("", |(_, identity)| identity);
        let request =
            ListRequest { plane: &op.plane, group: super::GROUP, resource: "apibindings", namespace: None };
        let mut resting = Vec::new();
        for binding in self.cache.list(request).await?.objects {
            let path = api_path("apibindings", binding.name());
            let (found, own) = self.cache.get_for_update(&op.plane, &path).await?;
            let Some(found) = found.map(|found| found.value()) else { continue };
            if text(&found, "/status/plane").is_empty() || text(&found, "/status/identity") != identity {
                continue;
            }
            if meta::is_deleting(&found) || is_closed(&found, CLOSED) {
                let why = format!("APIBinding {:?}, which brings the kind, is being deleted", binding.name());
                return Err(Status::conflict(&op.ty.group_resource(), op.name(), &why));
            }
            resting.push((Expect { key: Key::object(&op.plane, &path), modified: own.own }, None));
        }
        // What was served when the request came may be so no more.
        match resting.is_empty() && !exports.serves(&op.plane, &op.ty).await? {
            true => Err(Status::no_such_resource()),
            false => Ok(resting),
        }
    }

    /// Closes a binding that is to be deleted and has no objects any more; the revision after which to look again, `None` where
    /// it is closed already, or its objects are kept.
    pub(crate) async fn close_binding(
        &self,
        op: &Operation,
        (path, own): (&ObjectPath, Seen),
        live: &Value,
    ) -> Result<Option<u64>> {
        if op.ty.group != super::GROUP || op.ty.plural != "apibindings" || self.exports.is_none() {
            return Ok(None);
        }
        if text(live, "/spec/objects") == "Keep" || is_closed(live, USED) {
            return Ok(None);
        }
        let mut closed = live.clone();
        closed["status"][CLOSING] = Timestamp::now().to_string().into();
        self.put_binding(op, (path, own), closed).await.map(Some)
    }

    /// Opens a binding again whose deletion was refused.
    pub(crate) async fn reopen_binding(
        &self,
        op: &Operation,
        (path, own): (&ObjectPath, Seen),
        live: &Value,
    ) -> Result<()> {
        if op.ty.group != super::GROUP || live["status"].get(CLOSING).is_none() {
            return Ok(());
        }
        let mut open = live.clone();
        open["status"].as_object_mut().map(|status| status.remove(CLOSING));
        self.put_binding(op, (path, own), open).await.map(drop)
    }

    async fn put_binding(
        &self,
        op: &Operation,
        (path, own): (&ObjectPath, Seen),
        mut binding: Value,
    ) -> Result<u64> {
        meta::remove(&mut binding, "resourceVersion");
        let stored = self.to_stored(op, binding).await?;
        let change = vec![Change::Put(Key::object(&op.plane, path), codec::encode(&stored))];
        Ok(match self.ledger.commit(op, path, own, change, Vec::new()).await? {
            Committed::Done(revision) => revision,
            Committed::Refused(now) => newest(&now),
        })
    }
}
