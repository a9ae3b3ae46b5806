//! AppArmor profiles that annotations name, from before there were fields for them (KEP-24).

use crate::access::{at, list, list_mut, text};
use freehold_machinery::Value;
use serde_json::json;

const ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";
const FIELD: &str = "securityContext.appArmorProfile";
const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];
/// Longest name of a profile, in bytes.
const LONGEST: usize = 4095;

/// The field that says the same as an annotation; `None` where none does.
fn field(annotation: &str) -> Option<Value> {
    match annotation {
        "unconfined" => Some(json!({"type": "Unconfined"})),
        "runtime/default" => Some(json!({"type": "RuntimeDefault"})),
        other => {
            let name = other.strip_prefix("localhost/").filter(|name| !name.is_empty())?;
            Some(json!({"type": "Localhost", "localhostProfile": name}))
        }
    }
}

fn is_valid(profile: &Value) -> bool {
    let name = text(profile, "localhostProfile");
    name == name.trim() && name.len() <= LONGEST
}

/// What to say of an annotation that stands where a field should.
fn deprecated(key: &str) -> String {
    format!("annotations[{key}]: deprecated since v1.30; use the \"appArmorProfile\" field instead")
}

/// Copies what a new pod's annotations say into the fields of those containers that have none, and returns a warning for each.
pub fn copy(pod: &mut Value) -> Vec<String> {
    let annotations = pod["metadata"]["annotations"].as_object();
    let noted: Vec<(String, Option<Value>)> = annotations
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| {
            let container = key.strip_prefix(ANNOTATION)?;
            Some((container.to_owned(), value.as_str().and_then(field).filter(is_valid)))
        })
        .collect();
    if noted.is_empty() || text(pod, "spec.os.name") == "windows" {
        return Vec::new();
    }
    let mut warnings = Vec::new();
    let of_pod = at(pod, "spec.securityContext.appArmorProfile").clone();
    for container in CONTAINERS {
        for container in list_mut(&mut pod["spec"], container) {
            let name = text(container, "name");
            let Some((_, profile)) = noted.iter().find(|(of, _)| of == name) else { continue };
            if !at(container, FIELD).is_null() || profile.as_ref() == Some(&of_pod) {
                continue;
            }
            warnings.push(format!("metadata.{}", deprecated(&format!("{ANNOTATION}{name}"))));
            if let Some(profile) = profile {
                container["securityContext"]["appArmorProfile"] = profile.clone();
            }
        }
    }
    warnings
}

/// What is to be said of a template, of which nothing is copied.
pub fn of_template(template: &Value) -> Vec<String> {
    let of_pod = at(template, "spec.securityContext.appArmorProfile");
    let containers = CONTAINERS.iter().flat_map(|kind| list(&template["spec"], kind));
    let noted = containers.filter_map(|container| {
        let key = format!("{ANNOTATION}{}", text(container, "name"));
        let annotation = template["metadata"]["annotations"].get(&key)?.as_str()?;
        let known = !at(container, FIELD).is_null() || field(annotation).as_ref() == Some(of_pod);
        (!known).then(|| deprecated(&key))
    });
    noted.collect()
}
