//! AlwaysPullImages: every Pod pulls its images, so that none runs without the credentials for them
//! (<https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#alwayspullimages>).

use crate::{
    Attributes, Lookup, Plugin, Verb,
    json::{aggregate, items},
};
use freehold_machinery::{Result, Status, Value, status::FieldError};
use std::collections::BTreeSet;

const ALWAYS: &str = "Always";
/// Lists of containers, in the order in which they are judged.
const LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// The plugin.
pub struct AlwaysPullImages;

impl Plugin for AlwaysPullImages {
    fn name(&self) -> &'static str {
        "AlwaysPullImages"
    }

    fn admit(&self, attributes: &mut Attributes<'_>, _: &dyn Lookup) -> Result<()> {
        if !has_new(attributes) {
            return Ok(());
        }
        let Some(pod) = attributes.object.as_deref_mut() else { return Ok(()) };
        for list in LISTS {
            for container in pod["spec"].get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                set(container, "imagePullPolicy");
            }
        }
        for volume in pod["spec"].get_mut("volumes").and_then(Value::as_array_mut).into_iter().flatten() {
            volume.get_mut("image").into_iter().for_each(|image| set(image, "pullPolicy"));
        }
        Ok(())
    }

    fn validate(&self, attributes: &Attributes<'_>, _: &dyn Lookup) -> Result<()> {
        let Some(pod) = attributes.object().filter(|_| has_new(attributes)) else { return Ok(()) };
        let mut wrong = Vec::new();
        let mut judge = |holder: &Value, field: &str, path: String| {
            let policy = holder[field].as_str().unwrap_or_default();
            if policy != ALWAYS {
                let path = format!("{path}.{field}");
                let error = FieldError::not_supported(path, policy.into(), &[ALWAYS]);
                wrong.push(attributes.forbidden(&error.to_string()).message);
            }
        };
        for list in LISTS {
            for (at, container) in items(pod, &format!("/spec/{list}")).enumerate() {
                judge(container, "imagePullPolicy", format!("spec.{list}[{at}]"));
            }
        }
        for (at, volume) in items(pod, "/spec/volumes").enumerate() {
            volume.get("image").into_iter().for_each(|image| {
                judge(image, "pullPolicy", format!("spec.volumes[{at}].image"));
            });
        }
        aggregate(wrong).map_or(Ok(()), |message| Err(Status::new(500, "", message)))
    }
}

fn set(holder: &mut Value, field: &str) {
    if let Some(holder) = holder.as_object_mut() {
        holder.insert(field.to_owned(), ALWAYS.into());
    }
}

/// Whether this is about a Pod with images that it did not have.
fn has_new(attributes: &Attributes<'_>) -> bool {
    let writes = attributes.is("", "pods") && matches!(attributes.verb, Verb::Create | Verb::Update);
    let Some(pod) = attributes.object().filter(|_| writes) else { return false };
    let Some(old) = attributes.old else { return true };
    let had: BTreeSet<&str> = images(old).collect();
    images(pod).any(|image| !had.contains(image))
}

fn images(pod: &Value) -> impl Iterator<Item = &str> {
    let containers = LISTS.into_iter().flat_map(|list| pod["spec"][list].as_array().into_iter().flatten());
    containers.map(|container| container["image"].as_str().unwrap_or_default())
}
