//! Projects.

use crate::Operation;
use freehold_machinery::{PlaneId, Value, meta};

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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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
}
