//! StorageObjectInUseProtection: volumes, claims and attributes classes get a finalizer, which a controller removes
//! when nothing uses them any more
//! (<https://kubernetes.io/docs/concepts/storage/persistent-volumes/#storage-object-in-use-protection>).

use crate::{
    Attributes, Lookup, Plugin, Verb,
    json::{list_mut, map_mut},
};
use freehold_machinery::Result;

/// Group and resource, and the finalizer that its objects get.
const PROTECTED: [(&str, &str, &str); 3] = [
    ("", "persistentvolumes", "kubernetes.io/pv-protection"),
    ("", "persistentvolumeclaims", "kubernetes.io/pvc-protection"),
    ("storage.k8s.io", "volumeattributesclasses", "kubernetes.io/vac-protection"),
];

/// The plugin.
pub struct StorageObjectInUseProtection;

impl Plugin for StorageObjectInUseProtection {
    fn name(&self) -> &'static str {
        "StorageObjectInUseProtection"
    }

    fn admit(&self, attributes: &mut Attributes<'_>, _: &dyn Lookup) -> Result<()> {
        let found = PROTECTED.iter().find(|(group, resource, _)| attributes.is(group, resource));
        let Some((_, _, finalizer)) = found.filter(|_| attributes.verb == Verb::Create) else {
            return Ok(());
        };
        let Some(object) = attributes.object.as_deref_mut() else { return Ok(()) };
        map_mut(object, "metadata");
        if let Some(finalizers) = list_mut(&mut object["metadata"], "finalizers")
            && !finalizers.iter().any(|other| other == finalizer)
        {
            finalizers.push((*finalizer).into());
        }
        Ok(())
    }
}
