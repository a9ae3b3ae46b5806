//! From a template to objects.

use super::substitute::{Variables, substitute};
use freehold_machinery::{Map, Value, meta, names};
use freehold_tenancy_api::template::{
    CopiedKind, CopiedObject, INSTANCE_LABEL, MAX_OBJECTS, MAX_RENDERED, TemplateSpec,
};
use serde_json::json;
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// An instance for which objects are rendered.
#[derive(Clone, Copy, Debug)]
pub struct Rendering<'a> {
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name.
    pub instance: &'a str,
    /// The instance's own reference, which its objects get as owner; `None`: they outlive it.
    pub owner: Option<&'a Value>,
}

/// An object, ready to be applied.
#[derive(Clone, Debug, PartialEq)]
pub struct Rendered {
    /// The object.
    pub object: Value,
    /// Whether it lives in the instance's namespace; otherwise it is cluster-scoped.
    pub namespaced: bool,
}

/// Why a template does not become objects.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RenderError {
    /// Why, in CamelCase.
    pub reason: &'static str,
    /// Why, in words.
    pub message: String,
}

impl RenderError {
    /// An error with a reason.
    pub fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}

/// The manifests of a template, with their placeholders replaced.
///
/// # Errors
/// A placeholder that cannot be replaced, with the manifest that has it.
pub fn manifests(template: &TemplateSpec, variables: &Variables) -> Result<Vec<Value>, RenderError> {
    let one = |(at, manifest): (usize, &freehold_tenancy_api::template::Manifest)| {
        substitute(&Value::Object(manifest.0.clone()), variables)
            .map_err(|error| RenderError::new("RenderFailed", format!("spec.manifests[{at}]: {error}")))
    };
    template.manifests.iter().enumerate().map(one).collect()
}

/// The values of a template's chart.
///
/// # Errors
/// A placeholder that cannot be replaced.
pub fn chart_values(values: &Map, variables: &Variables) -> Result<Value, RenderError> {
    substitute(&Value::Object(values.clone()), variables)
        .map_err(|error| RenderError::new("RenderFailed", format!("spec.helm.values: {error}")))
}

/// The copies of a template, with their placeholders replaced.
///
/// # Errors
/// A placeholder that cannot be replaced, or that is no text.
pub fn copies(template: &TemplateSpec, variables: &Variables) -> Result<Vec<CopiedObject>, RenderError> {
    let text = |text: &str, at: usize| match substitute(&text.into(), variables) {
        Ok(Value::String(text)) => Ok(text),
        Ok(_) => Err(RenderError::new("RenderFailed", format!("spec.copies[{at}]: {text:?} is no text"))),
        Err(error) => Err(RenderError::new("RenderFailed", format!("spec.copies[{at}]: {error}"))),
    };
    let one = |(at, copy): (usize, &CopiedObject)| {
        Ok(CopiedObject {
            kind: copy.kind,
            namespace: text(&copy.namespace, at)?,
            name: text(&copy.name, at)?,
            copy_name: text(&copy.copy_name, at)?,
        })
    };
    template.copies.iter().enumerate().map(one).collect()
}

impl Rendered {
    /// The copy of a Secret or ConfigMap.
    pub fn copy_of(source: &Value, copy: &CopiedObject) -> Value {
        let kind = match copy.kind {
            CopiedKind::Secret => "Secret",
            CopiedKind::ConfigMap => "ConfigMap",
        };
        let name = if copy.copy_name.is_empty() { &copy.name } else { &copy.copy_name };
        let mut object = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}});
        for field in ["data", "binaryData", "type", "immutable"] {
            if let Some(value) = source.get(field).filter(|value| !value.is_null()) {
                object[field] = value.clone();
            }
        }
        object
    }
}

/// The objects that `helm template` printed, as parsed documents: empty ones are left out, lists are taken apart.
///
/// # Errors
/// A document that is no object.
pub fn chart_objects(documents: Vec<Value>) -> Result<Vec<Value>, RenderError> {
    let mut objects = Vec::new();
    for document in documents {
        match document {
            Value::Null => {}
            Value::Object(map) if map.get("kind").and_then(Value::as_str) == Some("List") => {
                objects.extend(map.get("items").and_then(Value::as_array).cloned().unwrap_or_default());
            }
            object @ Value::Object(_) => objects.push(object),
            _ => {
                return Err(RenderError::new(
                    "RenderFailed",
                    "the chart prints a document that is no object",
                ));
            }
        }
    }
    Ok(objects)
}

/// Checks objects and completes them: namespace, label, owner. `is_namespaced` tells by `apiVersion` and kind whether
/// objects live in namespaces; `None` for a kind that is not served.
///
/// # Errors
/// An object without type or name, in another namespace, of a kind that is not served, or twice; more than 500 objects, or
/// more than 10 MB.
pub fn prepare(
    objects: Vec<Value>,
    rendering: &Rendering<'_>,
    is_namespaced: impl Fn(&str, &str) -> Option<bool>,
) -> Result<Vec<Rendered>, RenderError> {
    if objects.len() > MAX_OBJECTS {
        let message = format!("{} objects are rendered; at most {MAX_OBJECTS} are allowed", objects.len());
        return Err(RenderError::new("TooLarge", message));
    }
    let mut seen = BTreeSet::new();
    let mut bytes = 0;
    let mut rendered = Vec::with_capacity(objects.len());
    for (at, object) in objects.into_iter().enumerate() {
        let one = complete(object, at, rendering, &is_namespaced)?;
        bytes += one.object.to_string().len();
        if bytes > MAX_RENDERED {
            return Err(RenderError::new("TooLarge", format!("more than {MAX_RENDERED} bytes are rendered")));
        }
        let kind = one.object["kind"].as_str().unwrap_or_default().to_owned();
        let name = meta::name(&one.object).to_owned();
        let group =
            one.object["apiVersion"].as_str().and_then(|v| v.split_once('/')).map_or("", |(group, _)| group);
        if !seen.insert((group.to_owned(), kind.clone(), name.clone())) {
            return Err(RenderError::new("InvalidObject", format!("{kind} {name} is rendered twice")));
        }
        rendered.push(one);
    }
    Ok(rendered)
}

fn complete(
    mut object: Value,
    at: usize,
    rendering: &Rendering<'_>,
    is_namespaced: &impl Fn(&str, &str) -> Option<bool>,
) -> Result<Rendered, RenderError> {
    let invalid = |message: String| RenderError::new("InvalidObject", message);
    let text = |object: &Value, field: &str| object[field].as_str().unwrap_or_default().to_owned();
    let (api_version, kind) = (text(&object, "apiVersion"), text(&object, "kind"));
    let name = meta::name(&object).to_owned();
    if api_version.is_empty() || kind.is_empty() || name.is_empty() {
        return Err(invalid(format!("object {at}: apiVersion, kind and metadata.name are required")));
    }
    if let Some(problem) = names::path_segment_name(&name).first() {
        return Err(invalid(format!("{kind} {name:?}: {problem}")));
    }
    let namespaced = is_namespaced(&api_version, &kind)
        .ok_or_else(|| RenderError::new("KindNotServed", format!("{kind} of {api_version} is not served")))?;
    let namespace = meta::namespace(&object);
    if namespaced && !namespace.is_empty() && namespace != rendering.namespace {
        let message = format!("{kind} {name}: namespace {namespace:?} is not the instance's");
        return Err(RenderError::new("ForeignNamespace", message));
    }
    encode_secret(&mut object);
    if let Some(map) = object.as_object_mut() {
        map.remove("status");
    }
    for field in [
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "generation",
        "managedFields",
        "ownerReferences",
        "finalizers",
    ] {
        meta::remove(&mut object, field);
    }
    if namespaced {
        meta::set(&mut object, "namespace", rendering.namespace);
        if let Some(owner) = rendering.owner {
            meta::set(&mut object, "ownerReferences", json!([owner]));
        }
    }
    let metadata = meta::metadata_mut(&mut object);
    let labels = metadata.entry("labels").or_insert_with(|| json!({}));
    if !labels.is_object() {
        *labels = json!({});
    }
    labels[INSTANCE_LABEL] = instance_label(rendering.namespace, rendering.instance, namespaced).into();
    Ok(Rendered { object, namespaced })
}

/// The value of the instance label of an object, which is at most 63 characters long. For cluster-scoped objects it has
/// the instance's namespace, so that no instance of another namespace has the same.
pub fn instance_label(namespace: &str, instance: &str, namespaced: bool) -> String {
    let full = match namespaced {
        true => instance.to_owned(),
        false => format!("{namespace}.{instance}"),
    };
    if full.len() <= 63 {
        return full;
    }
    let mut hasher = DefaultHasher::new();
    full.hash(&mut hasher);
    format!("{}-{:016x}", full[..46].trim_end_matches(['-', '.', '_']), hasher.finish())
}

/// `stringData` is only written: it becomes the `data` that servers make of it.
fn encode_secret(object: &mut Value) {
    if object["kind"] != "Secret" || object["apiVersion"] != "v1" {
        return;
    }
    let Some(map) = object.as_object_mut() else { return };
    let Some(Value::Object(texts)) = map.remove("stringData") else { return };
    let data = map.entry("data").or_insert_with(|| json!({}));
    for (key, text) in texts {
        if let Some(text) = text.as_str() {
            data[key] = base64(text.as_bytes()).into();
        }
    }
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

/// A digest of rendered objects. It tells equal from unequal, and is no protection against people.
pub fn digest(objects: &[Rendered]) -> String {
    let mut hasher = DefaultHasher::new();
    for rendered in objects {
        rendered.object.to_string().hash(&mut hasher);
    }
    format!("{:016x}", hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    const RENDERING: Rendering<'static> = Rendering { namespace: "acme-dev", instance: "web", owner: None };

    fn scope(_: &str, kind: &str) -> Option<bool> {
        match kind {
            "ConfigMap" | "Secret" | "Deployment" => Some(true),
            "ClusterRole" => Some(false),
            _ => None,
        }
    }

    fn config_map(rest: Value) -> Value {
        freehold_machinery_patch::merge(
            &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}),
            &rest,
        )
    }

    #[test]
    fn objects_get_namespace_label_and_owner() {
        let owner = json!({"kind": "TemplateInstance", "name": "web"});
        let rendering = Rendering { owner: Some(&owner), ..RENDERING };
        let given = config_map(json!({"metadata": {"uid": "u", "finalizers": ["x"]}, "status": {"a": 1}}));
        let objects = prepare(vec![given], &rendering, scope).unwrap();
        let expected = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "c", "namespace": "acme-dev", "labels": {INSTANCE_LABEL: "web"}, "ownerReferences": [owner]},
        });
        assert_eq!(objects[0].object, expected);
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "r"}});
        let objects = prepare(vec![role], &rendering, scope).unwrap();
        assert_eq!(
            objects[0].object["metadata"],
            json!({"name": "r", "labels": {INSTANCE_LABEL: "acme-dev.web"}})
        );
    }

    #[test]
    fn objects_that_cannot_be_applied_have_a_reason() {
        let rows = [
            (vec![json!({"kind": "ConfigMap"})], "InvalidObject"),
            (vec![config_map(json!({"metadata": {"name": "a/b"}}))], "InvalidObject"),
            (vec![config_map(json!({})), config_map(json!({}))], "InvalidObject"),
            (vec![config_map(json!({"metadata": {"namespace": "kube-system"}}))], "ForeignNamespace"),
            (
                vec![json!({"apiVersion": "x/v1", "kind": "Unknown", "metadata": {"name": "a"}})],
                "KindNotServed",
            ),
            (vec![config_map(json!({"data": {"a": "x".repeat(MAX_RENDERED)}}))], "TooLarge"),
            (
                (0..=MAX_OBJECTS)
                    .map(|n| config_map(json!({"metadata": {"name": format!("c{n}")}})))
                    .collect(),
                "TooLarge",
            ),
        ];
        for (objects, reason) in rows {
            assert_eq!(prepare(objects, &RENDERING, scope).unwrap_err().reason, reason);
        }
    }

    #[test]
    fn secrets_are_written_as_they_are_read() {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"a": "b"}});
        let objects = prepare(vec![secret], &RENDERING, scope).unwrap();
        assert_eq!(objects[0].object["data"], json!({"a": "Yg=="}));
        assert!(objects[0].object.get("stringData").is_none());
        let long = Rendering { instance: &"i".repeat(100), ..RENDERING };
        let objects = prepare(vec![config_map(json!({}))], &long, scope).unwrap();
        assert!(meta::label(&objects[0].object, INSTANCE_LABEL).unwrap().len() <= 63);
    }
}
