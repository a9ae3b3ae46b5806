//! What is kept of each project.

use crate::object::{int, text};
use freehold_api::{ControlPlaneMode, keys::DEFAULT_CLASS};
use freehold_machinery::{PlaneId, Value, meta};
use freehold_runtime::{Key, Store};
use std::sync::{Mutex, PoisonError};

/// What is kept of a project: its object only until there is nothing more to do for it.
#[derive(Debug)]
pub struct ProjectView {
    /// The organization that owns it.
    pub organization: Box<str>,
    /// Its plane.
    pub plane: Option<PlaneId>,
    /// Whether its plane is served by the core server, once its status says so.
    pub shared: Option<bool>,
    /// The class of its plane; empty for the default one, so that most take nothing for it.
    class: Box<str>,
    /// The generation of its credentials.
    pub generation: u32,
    /// Whether its deletion has begun.
    pub deleting: bool,
    /// Its JSON.
    object: Mutex<Option<Box<str>>>,
}

impl ProjectView {
    /// Returns what is kept of a project, its object included.
    pub fn of(project: Value) -> Option<Self> {
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
            generation: generation(&project),
            deleting: meta::is_deleting(&project),
            object: Mutex::new(Some(project.to_string().into())),
        })
    }

    /// The class of its plane.
    pub fn class(&self) -> &str {
        if self.class.is_empty() { DEFAULT_CLASS } else { &self.class }
    }

    /// The project as it was seen; `None` where it was settled and has to be asked for.
    pub fn object(&self) -> Option<Value> {
        let object = self.object.lock().unwrap_or_else(PoisonError::into_inner);
        object.as_deref().and_then(|json| serde_json::from_str(json).ok())
    }

    /// Forgets the object, because nothing is to be done for it as it is.
    pub fn settle(&self) {
        *self.object.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// The generation of a project's credentials.
pub fn generation(project: &Value) -> u32 {
    let raised = int(project, "/spec/controlPlane/credentials/generation");
    raised.and_then(|generation| generation.try_into().ok()).unwrap_or(0)
}

/// The index entries of a project: its organization, and its plane where the credentials of that have been revoked.
pub fn project_index(_: &Key, project: &ProjectView) -> Vec<String> {
    let revoked = project.plane.as_ref().filter(|_| project.generation > 0).map(ToString::to_string);
    std::iter::once(project.organization.to_string()).chain(revoked).collect()
}

/// The generation of a plane's credentials.
pub fn generation_of(projects: &Store<ProjectView>, plane: &PlaneId) -> u64 {
    let raised = projects.by_index(&PlaneId::core(), plane.as_str());
    let own = raised.iter().find(|(_, project)| project.plane.as_ref() == Some(plane));
    own.map_or(0, |(_, project)| project.generation.into())
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
