//! The `APIService` objects of CRDs: they come, change and go in the commit that does so with the CRD.

use crate::{Operation, Registry};
use freehold_apiserver_cache::{Below, ListRequest, Seen, codec};
use freehold_apiserver_ledger::Also;
use freehold_apiserver_storage::{Change, Expect, Key, ObjectPath};
use freehold_machinery::{
    Result, Value,
    api_service::{self, CUSTOM, GROUP, Managed, RESOURCE},
    meta,
};
use std::collections::BTreeSet;
use uuid::Uuid;

const CRD_GROUP: &str = "apiextensions.k8s.io";
const CRDS: &str = "customresourcedefinitions";

/// Whether an operation is about a CRD itself.
fn is_crd(op: &Operation) -> bool {
    op.ty.group == CRD_GROUP && op.ty.plural == CRDS && op.subresource.is_none()
}

fn path_of(name: &str) -> ObjectPath {
    ObjectPath {
        group: GROUP.to_owned(),
        resource: RESOURCE.to_owned(),
        namespace: None,
        name: name.to_owned(),
    }
}

/// A new registration, as it is stored.
fn registration(group: &str, version: &str) -> Value {
    let now = freehold_apiserver_operation::now();
    let mut object = api_service::local(group, version, CUSTOM, Managed::Always);
    api_service::set_condition(&mut object, api_service::local_condition(&now));
    object["status"]["conditions"][0]["lastTransitionTime"] = now.clone().into();
    meta::set(&mut object, "uid", Uuid::new_v4().to_string());
    meta::set(&mut object, "creationTimestamp", now);
    object
}

impl Registry {
    /// All that holds and changes together with an object that becomes `new`; `None` where it goes.
    pub(crate) async fn companions(
        &self,
        op: &Operation,
        new: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<Vec<Also>> {
        let mut also = self.registrations(op, new, old).await?;
        also.extend(self.platform_changes(op, new, old).await?);
        also.extend(self.resting_on(op, new, old).await?);
        Ok(also)
    }

    /// What changes among the registrations when a CRD becomes `new`; `None` where it goes.
    ///
    /// What somebody has written by hand under such a name is left alone.
    pub(crate) async fn registrations(
        &self,
        op: &Operation,
        new: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<Vec<Also>> {
        if !is_crd(op) {
            return Ok(Vec::new());
        }
        let served: BTreeSet<_> = new.into_iter().flat_map(api_service::of_crd).collect();
        let mut gone: BTreeSet<_> =
            old.into_iter().flat_map(api_service::of_crd).filter(|gv| !served.contains(gv)).collect();
        let mut changes = Vec::new();
        for (group, version) in served {
            let name = api_service::name(group, version);
            let (found, own) = self.cache.get_for_update(&op.plane, &path_of(&name)).await?;
            if found.is_none() {
                let made = codec::encode(&registration(group, version));
                changes.extend(self.with_registration(op, &name, own, |key| Change::Put(key, made)));
            }
        }
        if !gone.is_empty() {
            let others = self.other_crds(op).await?;
            gone.retain(|gv| !others.iter().flat_map(api_service::of_crd).any(|other| other == *gv));
        }
        for (group, version) in gone {
            let name = api_service::name(group, version);
            let (found, own) = self.cache.get_for_update(&op.plane, &path_of(&name)).await?;
            if found.is_some_and(|entry| api_service::is_of_crd(&entry.value())) {
                let below = own.below;
                changes.extend(self.with_registration(op, &name, own, |key| crate::delete::gone(key, below)));
            }
        }
        Ok(changes)
    }

    fn with_registration(
        &self,
        op: &Operation,
        name: &str,
        own: Seen,
        change: impl FnOnce(Key) -> Change,
    ) -> Option<Also> {
        // What a class doesn't allow to be deleted stays.
        (own.below != Below::Kept).then(|| {
            let key = Key::object(&op.plane, &path_of(name));
            (Expect { key: key.clone(), modified: own.own }, Some(change(key)))
        })
    }

    /// The plane's other CRDs of the same group.
    async fn other_crds(&self, op: &Operation) -> Result<Vec<Value>> {
        let group = op.name().split_once('.').map_or("", |(_, group)| group);
        let request = ListRequest { plane: &op.plane, group: CRD_GROUP, resource: CRDS, namespace: None };
        let listed = self.cache.list(request).await?.objects;
        let of_group = |name: &str| name.split_once('.').is_some_and(|(_, rest)| rest == group);
        let others = listed.iter().filter(|entry| of_group(entry.name()) && entry.name() != op.name());
        Ok(others.map(|entry| entry.value()).collect())
    }

    /// Whether deleting an `APIService` makes it anew: that of a CRD which is still there.
    pub(crate) async fn registered_anew(&self, op: &Operation, last: &Value) -> Result<Option<Value>> {
        if op.ty.group != GROUP || op.ty.plural != RESOURCE {
            return Ok(None);
        }
        let (group, version) = (&last["spec"]["group"], &last["spec"]["version"]);
        let (Some(group), Some(version)) = (group.as_str(), version.as_str()) else { return Ok(None) };
        // What can't be created has no definition.
        let served = op.types.version(group, version);
        let custom =
            served.is_some_and(|v| v.types.iter().any(|ty| ty.custom && ty.verbs.contains(&"create")));
        Ok(custom.then(|| registration(group, version)))
    }
}
