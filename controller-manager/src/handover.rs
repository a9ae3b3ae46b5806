//! Planes in which others control: those of projects whose class says so (`controllers: External`), and, where it is about
//! volumes and addresses, of projects whose Pods run on shared clusters.
//!
//! A project that is being deleted is taken back, because nobody else is sure to finish what it holds.

use freehold_controllers_context::Context;
use freehold_controllers_context::kinds::CLASSES;
use freehold_controllers_context::object::text;
use freehold_controllers_context::project::ProjectView;
use freehold_machinery::{PlaneId, Value};
use freehold_runtime::{Control, Informer, Interest, Key, Planes, Store};

/// Who controls in the plane of a project.
fn control(project: &ProjectView, class: Option<&Value>) -> Control {
    let Some(class) = class else { return Control::Ours };
    match text(class, "/spec/controllers") {
        "External" if !project.deleting => Control::Others,
        _ if class["spec"]["workloads"].is_object() => Control::Cluster,
        _ => Control::Ours,
    }
}

fn settle(planes: &Planes, project: &ProjectView, classes: &Store<Value>) {
    let Some(plane) = &project.plane else { return };
    let class = Key::new(PlaneId::core(), "", project.class());
    planes.hand_over(plane, control(project, classes.get(&class).as_deref()));
}

/// Follows projects and classes from now on. Nothing is controlled before both are known.
pub(crate) fn follow(context: &mut Context) {
    let mut informer = Informer::new(&context.core, Interest::objects(CLASSES));
    let classes = informer.store();
    let projects = context.projects().store();
    let (planes, all, known) = (context.planes.clone(), projects.clone(), classes.clone());
    informer.on_change(move |change| {
        for (_, project) in all.in_plane(&PlaneId::core()) {
            if *project.class() == *change.key.name {
                settle(&planes, &project, &known);
            }
        }
    });
    let (planes, known) = (context.planes.clone(), classes.clone());
    context.projects().on_change(move |change| {
        if let Some(project) = change.new.as_deref() {
            settle(&planes, project, &known);
        }
    });
    context.run_informer(informer);
    context.wait_for(classes);
    context.wait_for(projects);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_project_is_controlled_by_others_as_its_class_says_until_it_is_deleted() {
        let external = json!({"spec": {"controllers": "External", "workloads": {}}});
        let own = json!({"spec": {"controllers": "Freehold"}});
        let on_clusters = json!({"spec": {"controllers": "Freehold", "workloads": {}}});
        let seen = |metadata: Value| ProjectView::of(json!({ "metadata": metadata })).unwrap();
        let project = seen(json!({"uid": "u"}));
        assert_eq!(control(&project, Some(&external)), Control::Others);
        assert_eq!(control(&project, Some(&own)), Control::Ours);
        assert_eq!(control(&project, Some(&on_clusters)), Control::Cluster);
        assert_eq!(control(&project, None), Control::Ours);
        let deleting = seen(json!({"uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z"}));
        assert_eq!(control(&deleting, Some(&external)), Control::Cluster);
    }
}
