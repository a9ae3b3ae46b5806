//! Projects.

use crate::Operation;
use freehold_machinery::{PlaneId, Value, meta};
use serde_json::json;

/// What keeps a project until its control plane is gone; the project controller removes it.
const FINALIZER: &str = "resourcemanager.freehold.dev/project";

/// Begins a project with the finalizer that its controller would add at once: one write less for each.
pub(super) fn create(op: &Operation, object: &mut Value) {
    hold(&op.plane, object);
}

fn hold(plane: &PlaneId, object: &mut Value) {
    let mut finalizers = meta::finalizers(object);
    if *plane == PlaneId::core() && !finalizers.contains(&FINALIZER) {
        finalizers.push(FINALIZER);
        let finalizers: Value = finalizers.into();
        meta::set(object, "finalizers", finalizers);
    }
}

/// The annotation of an organization that takes its projects along when it is deleted: set by somebody, or by a delete that
/// asked for it with the propagation `Foreground`.
pub(crate) const DELETE_PROJECTS: &str = "resourcemanager.freehold.dev/delete-projects";

/// Notes that an organization's projects go first, where the delete asked for that: the finalizer that says so is the garbage
/// collector's, and goes with what that one sees.
pub(super) fn end_organization(organization: &mut Value) {
    if !meta::finalizers(organization).contains(&"foregroundDeletion") {
        return;
    }
    let annotations = meta::metadata_mut(organization).entry("annotations").or_insert_with(|| json!({}));
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.insert(DELETE_PROJECTS.to_owned(), "true".into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_of_the_core_plane_begins_with_its_finalizer() {
        let web: PlaneId = "web".parse().unwrap();
        let rows = [
            (PlaneId::core(), json!({}), json!([FINALIZER])),
            (PlaneId::core(), json!({"finalizers": ["a/b"]}), json!(["a/b", FINALIZER])),
            (PlaneId::core(), json!({"finalizers": [FINALIZER]}), json!([FINALIZER])),
            (web, json!({"finalizers": ["a/b"]}), json!(["a/b"])),
        ];
        for (plane, metadata, expected) in rows {
            let mut project = json!({"metadata": metadata});
            hold(&plane, &mut project);
            assert_eq!(project["metadata"]["finalizers"], expected, "{plane}");
        }
    }

    #[test]
    fn an_organization_that_is_deleted_in_the_foreground_takes_its_projects_along() {
        let ended = |finalizers: Value| {
            let mut organization = json!({"metadata": {"finalizers": finalizers}});
            end_organization(&mut organization);
            meta::annotation(&organization, DELETE_PROJECTS).map(str::to_owned)
        };
        assert_eq!(ended(json!(["a/b", "foregroundDeletion"])).as_deref(), Some("true"));
        assert_eq!(ended(json!(["a/b"])), None);
    }
}
