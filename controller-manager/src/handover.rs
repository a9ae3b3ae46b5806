//! Planes in which others control: those of projects whose class says so (`controllers: External`), and, where it is about
//! volumes and addresses, of projects whose Pods run on shared clusters.
//!
//! A project that is being deleted is taken back, because nobody else is sure to finish what it holds.

use crate::context::Context;
use crate::kinds::CLASSES;
use crate::object::text;
use crate::project::ProjectView;
use freehold_machinery::{PlaneId, Value};
use freehold_runtime::{Control, Informer, Interest, Key, Planes, Store};

/// Controllers that work in every plane, as nobody else could: they hold the platform's keys, or look after its own kinds.
const ALWAYS: &[&str] = &["certificate-signing", "service-account-token", "api-rollout"];

/// Controllers that make Pods. Nothing runs in the core plane, which all organizations share: one of them could fill it with
/// a single object.
const WORKLOADS: &[&str] =
    &["deployment", "replica-set", "replication-controller", "stateful-set", "daemon-set", "job", "cron-job"];

/// Controllers whose work a shared cluster does for the Pods that it runs: the state that the syncer brings back from it would
/// be undone here.
const OF_CLUSTERS: &[&str] = &["persistentvolume-binder-controller", "service-lb-controller"];

/// Whether a controller leaves a plane alone.
pub(crate) fn leaves(controller: &str, plane: &PlaneId, planes: &Planes) -> bool {
    let is_left = match planes.control(plane) {
        Control::Ours => false,
        Control::Cluster => OF_CLUSTERS.contains(&controller),
        Control::Others => !ALWAYS.contains(&controller),
    };
    is_left || plane.is_core() && WORKLOADS.contains(&controller)
}

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
    use freehold_client::{Client, Config, Identity};
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

    #[test]
    fn claims_and_addresses_of_pods_on_a_shared_cluster_are_left_to_it() {
        let nowhere = Config::new("http://127.0.0.1:1", "", Identity::None);
        let planes = Planes::all(Client::new(&nowhere).unwrap());
        let plane: PlaneId = "p".parse().unwrap();
        planes.hand_over(&plane, Control::Cluster);
        for (controller, left) in [
            ("persistentvolume-binder-controller", true),
            ("service-lb-controller", true),
            ("deployment", false),
        ] {
            assert_eq!(leaves(controller, &plane, &planes), left, "{controller}");
        }
    }

    #[test]
    fn nothing_makes_pods_in_the_core_plane() {
        let nowhere = Config::new("http://127.0.0.1:1", "", Identity::None);
        let planes = Planes::all(Client::new(&nowhere).unwrap());
        for (controller, plane, left) in [
            ("job", PlaneId::core(), true),
            ("job", PlaneId::infra(), false),
            ("namespace", PlaneId::core(), false),
        ] {
            assert_eq!(leaves(controller, &plane, &planes), left, "{controller} {plane}");
        }
    }
}
