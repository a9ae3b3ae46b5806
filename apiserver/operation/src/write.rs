//! What writes have in common, whoever carries them out.

use crate::Operation;
use freehold_apiserver_admission::{Attributes, Verb};
use freehold_apiserver_storage::ObjectPath;
use freehold_machinery::{ResourceType, Status, User, Value, user::MASTERS};
use jiff::Timestamp;

/// Where a type's object is kept.
pub fn path_of(ty: &ResourceType, namespace: Option<&str>, name: &str) -> ObjectPath {
    ObjectPath {
        group: ty.storage.group.clone(),
        resource: ty.storage.resource.clone(),
        namespace: namespace.filter(|_| ty.namespaced).map(str::to_owned),
        name: name.to_owned(),
    }
}

impl Operation {
    /// The name in the URL; a request without one is of another verb.
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    /// Returns where the object is kept.
    pub fn path(&self) -> ObjectPath {
        path_of(&self.ty, self.namespace.as_deref(), self.name())
    }

    /// Returns the 404 that names the object.
    pub fn not_found(&self) -> Status {
        Status::not_found(&self.ty.group_resource(), self.name())
    }
}

/// Returns a write as admission sees it.
pub fn attributes<'a>(
    op: &'a Operation,
    verb: Verb,
    object: Option<&'a mut Value>,
    old: Option<&'a Value>,
    (dry_run, options): (bool, &'a Value),
) -> Attributes<'a> {
    Attributes {
        plane: &op.plane,
        user: &op.user,
        verb,
        ty: &op.ty,
        namespace: op.namespace.as_deref().unwrap_or_default(),
        name: if verb == Verb::Create && op.subresource.is_none() { "" } else { op.name() },
        subresource: op.subresource.as_deref().unwrap_or_default(),
        object,
        old,
        dry_run,
        options,
        annotations: &op.annotations,
    }
}

/// Returns the present time as objects spell it.
pub fn now() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Whether objects are stored in the version that `ty` serves.
pub fn is_stored(ty: &ResourceType) -> bool {
    let stored = &*ty.storage.api_version;
    match &*ty.group {
        "" => stored == ty.version,
        group => stored.strip_prefix(group).and_then(|rest| rest.strip_prefix('/')) == Some(&*ty.version),
    }
}

/// Returns the server itself, as the author of what no user writes.
pub fn server() -> User {
    User { name: "system:apiserver".into(), groups: vec![MASTERS.to_owned()], ..User::default() }
}
