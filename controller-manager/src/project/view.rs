//! What is kept of each project.

use crate::object::text;
use freehold_api::{ControlPlaneMode, keys::DEFAULT_CLASS};
use freehold_machinery::{PlaneId, Value, meta};
use std::sync::{Mutex, PoisonError};

/// What is kept of a project: its object only until there is nothing more to do for it.
#[derive(Debug)]
pub(crate) struct ProjectView {
    /// The organization that owns it.
    pub(crate) organization: Box<str>,
    /// Its plane.
    pub(crate) plane: Option<PlaneId>,
    /// Whether its plane is served by the core server, once its status says so.
    pub(crate) shared: Option<bool>,
    /// The class of its plane; empty for the default one, so that most take nothing for it.
    class: Box<str>,
    /// The generation of its credentials.
    pub(crate) generation: u32,
    /// Whether its deletion has begun.
    pub(crate) deleting: bool,
    /// Its JSON.
    object: Mutex<Option<Box<str>>>,
}

impl ProjectView {
    pub(crate) fn of(project: Value) -> Option<Self> {
        let mode = text(&project, "/status/controlPlane/mode");
        Some(Self {
            organization: text(&project, "/spec/ownerRef/name").into(),
            plane: meta::uid(&project).parse().ok(),
            shared: Some(mode)
                .filter(|mode| !mode.is_empty())
                .map(|m| m == ControlPlaneMode::Shared.as_str()),
            class: Some(text(&project, "/spec/controlPlane/class"))
                .filter(|c| *c != DEFAULT_CLASS)
                .unwrap_or("")
                .into(),
            generation: super::kubeconfig::generation(&project),
            deleting: meta::is_deleting(&project),
            object: Mutex::new(Some(project.to_string().into())),
        })
    }

    /// The class of its plane.
    pub(crate) fn class(&self) -> &str {
        if self.class.is_empty() { DEFAULT_CLASS } else { &self.class }
    }

    /// The project as it was seen; `None` where it was settled and has to be asked for.
    pub(crate) fn object(&self) -> Option<Value> {
        let object = self.object.lock().unwrap_or_else(PoisonError::into_inner);
        object.as_deref().and_then(|json| serde_json::from_str(json).ok())
    }

    /// Forgets the object, because nothing is to be done for it as it is.
    pub(crate) fn settle(&self) {
        *self.object.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_settled_project_is_known_by_its_organization_and_plane_alone() {
        let project =
            json!({"metadata": {"name": "web", "uid": "u"}, "spec": {"ownerRef": {"name": "acme"}}});
        let view = ProjectView::of(project.clone()).unwrap();
        assert_eq!((view.object(), view.shared), (Some(project), None));
        view.settle();
        assert_eq!((view.object(), &*view.organization), (None, "acme"));
        assert_eq!(view.plane, "u".parse().ok());
    }
}
