//! What stores keep of templates and instances.

use freehold_machinery::{Value, meta};
use freehold_tenancy_api::template::{
    CREATED_BY_ANNOTATION, TemplateGroupInstanceSpec, TemplateInstanceSpec, TemplateSpec,
};
use freehold_tenancy_decide::target::Targets;
use std::sync::Arc;

/// A Template.
#[derive(Clone, Debug)]
pub(super) struct TemplateView {
    pub(super) uid: String,
    pub(super) generation: i64,
    pub(super) spec: Value,
    pub(super) status: Value,
}

/// A TemplateRevision.
#[derive(Clone, Debug)]
pub(super) struct RevisionView {
    pub(super) template: String,
    pub(super) revision: i64,
    pub(super) content: Value,
    pub(super) parsed: Arc<Result<TemplateSpec, String>>,
}

/// A TemplateInstance.
#[derive(Clone, Debug)]
pub(super) struct InstanceView {
    pub(super) uid: String,
    pub(super) generation: i64,
    pub(super) deleting: bool,
    pub(super) finalizers: Vec<String>,
    pub(super) created_by: Option<String>,
    /// Name and uid of the group that controls it.
    pub(super) group: Option<(String, String)>,
    pub(super) raw_spec: Value,
    pub(super) spec: Result<TemplateInstanceSpec, String>,
    pub(super) status: Value,
}

/// A TemplateGroupInstance.
#[derive(Clone, Debug)]
pub(super) struct GroupView {
    pub(super) uid: String,
    pub(super) generation: i64,
    pub(super) deleting: bool,
    pub(super) created_by: Option<String>,
    pub(super) spec: TemplateGroupInstanceSpec,
    pub(super) targets: Result<Targets, String>,
    pub(super) status: Value,
}

fn generation(object: &Value) -> i64 {
    object["metadata"]["generation"].as_i64().unwrap_or_default()
}

impl TemplateView {
    pub(super) fn of(object: Value) -> Option<Self> {
        Some(Self {
            uid: meta::uid(&object).to_owned(),
            generation: generation(&object),
            spec: object["spec"].clone(),
            status: object["status"].clone(),
        })
    }
}

impl RevisionView {
    pub(super) fn of(object: Value) -> Option<Self> {
        let content = object["spec"]["content"].clone();
        let parsed = serde_json::from_value(content.clone()).map_err(|error| error.to_string());
        Some(Self {
            template: object["spec"]["template"].as_str()?.to_owned(),
            revision: object["spec"]["revision"].as_i64()?,
            content,
            parsed: Arc::new(parsed),
        })
    }
}

impl InstanceView {
    pub(super) fn of(object: Value) -> Option<Self> {
        let owners = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        let group = owners
            .filter(|owner| owner["controller"] == true && owner["kind"] == "TemplateGroupInstance")
            .find_map(|owner| Some((owner["name"].as_str()?.to_owned(), owner["uid"].as_str()?.to_owned())));
        Some(Self {
            uid: meta::uid(&object).to_owned(),
            generation: generation(&object),
            deleting: meta::is_deleting(&object),
            finalizers: meta::finalizers(&object).into_iter().map(str::to_owned).collect(),
            created_by: meta::annotation(&object, CREATED_BY_ANNOTATION).map(str::to_owned),
            group,
            spec: serde_json::from_value(object["spec"].clone()).map_err(|error| format!("spec: {error}")),
            raw_spec: object["spec"].clone(),
            status: object["status"].clone(),
        })
    }

    pub(super) fn index(&self) -> Vec<String> {
        let template = self.spec.as_ref().ok().map(|spec| format!("t/{}", spec.template));
        let group = self.group.as_ref().map(|(_, uid)| format!("g/{uid}"));
        template.into_iter().chain(group).collect()
    }
}

impl GroupView {
    pub(super) fn of(object: Value) -> Option<Self> {
        let spec: TemplateGroupInstanceSpec = serde_json::from_value(object["spec"].clone()).ok()?;
        Some(Self {
            uid: meta::uid(&object).to_owned(),
            generation: generation(&object),
            deleting: meta::is_deleting(&object),
            created_by: meta::annotation(&object, CREATED_BY_ANNOTATION).map(str::to_owned),
            targets: Targets::new(&spec.target),
            spec,
            status: object["status"].clone(),
        })
    }
}
