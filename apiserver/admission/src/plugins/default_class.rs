//! Default classes of storage and ingress for objects that name none.

use crate::{Attributes, Lookup, Plugin, Verb};
use freehold_machinery::{Result, Value, meta};
use std::{cmp::Reverse, sync::Arc};

/// Claims get the default StorageClass
/// (<https://kubernetes.io/docs/concepts/storage/storage-classes/#default-storageclass>).
pub struct DefaultStorageClass;

impl Plugin for DefaultStorageClass {
    fn name(&self) -> &'static str {
        "DefaultStorageClass"
    }

    fn admit(&self, attributes: &mut Attributes<'_>, lookup: &dyn Lookup) -> Result<()> {
        const DEFAULT: [&str; 2] = [
            "storageclass.kubernetes.io/is-default-class",
            "storageclass.beta.kubernetes.io/is-default-class",
        ];
        let names_none = |claim: &Value| {
            claim["spec"]["storageClassName"].is_null()
                && meta::annotation(claim, "volume.beta.kubernetes.io/storage-class").is_none()
        };
        if !creates(attributes, "", "persistentvolumeclaims", names_none) {
            return Ok(());
        }
        let class = default(attributes, lookup, "storage.k8s.io", "storageclasses", &DEFAULT);
        set(attributes, "storageClassName", class.as_deref());
        Ok(())
    }
}

/// Ingresses get the default IngressClass
/// (<https://kubernetes.io/docs/concepts/services-networking/ingress/#default-ingress-class>).
pub struct DefaultIngressClass;

impl Plugin for DefaultIngressClass {
    fn name(&self) -> &'static str {
        "DefaultIngressClass"
    }

    fn admit(&self, attributes: &mut Attributes<'_>, lookup: &dyn Lookup) -> Result<()> {
        const GROUP: &str = "networking.k8s.io";
        const DEFAULT: [&str; 1] = ["ingressclass.kubernetes.io/is-default-class"];
        let names_none = |ingress: &Value| {
            ingress["spec"]["ingressClassName"].is_null()
                && meta::annotation(ingress, "kubernetes.io/ingress.class").is_none()
        };
        if !creates(attributes, GROUP, "ingresses", names_none) {
            return Ok(());
        }
        let class = default(attributes, lookup, GROUP, "ingressclasses", &DEFAULT);
        set(attributes, "ingressClassName", class.as_deref());
        Ok(())
    }
}

fn creates(
    attributes: &Attributes<'_>,
    group: &str,
    resource: &str,
    names_none: impl Fn(&Value) -> bool,
) -> bool {
    attributes.verb == Verb::Create
        && attributes.is(group, resource)
        && attributes.object().is_some_and(names_none)
}

/// The class that is marked as default: of several the newest, then the first by name.
fn default(
    attributes: &Attributes<'_>,
    lookup: &dyn Lookup,
    group: &str,
    resource: &str,
    marks: &[&str],
) -> Option<Arc<Value>> {
    let marked = |class: &Arc<Value>| marks.iter().any(|mark| meta::annotation(class, mark) == Some("true"));
    let mut classes = lookup.list(attributes.plane, group, resource, "");
    classes.retain(marked);
    let made = |class: &Value| meta::text(class, "creationTimestamp").to_owned();
    classes.into_iter().min_by_key(|class| (Reverse(made(class)), meta::name(class).to_owned()))
}

fn set(attributes: &mut Attributes<'_>, field: &str, class: Option<&Value>) {
    if let (Some(object), Some(class)) = (attributes.object.as_deref_mut(), class) {
        object["spec"][field] = meta::name(class).into();
    }
}
