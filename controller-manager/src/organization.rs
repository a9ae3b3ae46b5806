//! Organizations: each has a namespace in the core plane, and stays while it has projects.

use freehold_api::keys::{DELETE_PROJECTS, ORGANIZATION, READY, TERMINATING, organization_namespace};
use freehold_api::urls::organization_path;
use freehold_client::{Client, DeleteOptions, ListOptions, PatchOptions};
use freehold_controllers_context::kinds::{NAMESPACES, ORGANIZATIONS, PROJECTS};
use freehold_controllers_context::object::{finalizer_patch, generation, status_patch, text};
use freehold_controllers_context::project::ProjectView;
use freehold_controllers_context::{Context, Reconcile};
use freehold_machinery::{PlaneId, Value, meta};
use freehold_runtime::{
    EventType, Key, Outcome, Queue, Reconciled, Recorder, Store,
    conditions::{self, Set},
};
use jiff::Timestamp;
use serde_json::json;
use std::time::Duration;

/// Keeps an organization until its projects and its namespace are gone.
const FINALIZER: &str = ORGANIZATION;
/// How often a deletion that waits is looked at without a cause.
const WAIT: Duration = Duration::from_secs(2);

/// What can be done for an organization.
#[derive(Debug, PartialEq)]
enum Action {
    AddFinalizer,
    CreateNamespace,
    DeleteNamespace,
    RemoveFinalizer,
    /// All projects that are left, as somebody asked for.
    DeleteProjects,
    SetStatus(Value),
    Warn(&'static str, String),
}

/// What is known of an organization.
struct Observed<'a> {
    organization: &'a Value,
    /// Its namespace, as far as it is known; `None` where it has not been asked for.
    namespace: NamespaceState,
    projects: usize,
    now: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum NamespaceState {
    Absent,
    Active,
    Terminating,
}

fn decide(observed: &Observed<'_>) -> Vec<Action> {
    if meta::is_deleting(observed.organization) {
        decide_deletion(observed)
    } else {
        decide_presence(observed)
    }
}

fn decide_presence(observed: &Observed<'_>) -> Vec<Action> {
    let Observed { organization, namespace, now, .. } = *observed;
    let mut actions = Vec::new();
    if !meta::finalizers(organization).contains(&FINALIZER) {
        actions.push(Action::AddFinalizer);
    }
    if namespace == NamespaceState::Absent {
        actions.push(Action::CreateNamespace);
    }
    let name = organization_namespace(meta::name(organization));
    let ready = if namespace == NamespaceState::Terminating {
        ("False", "NamespaceTerminating", format!("namespace {name} is being deleted"))
    } else {
        ("True", "Ready", String::new())
    };
    let mut status = organization["status"].clone();
    status["namespace"] = name.into();
    set_status(&mut actions, organization, status, READY, (ready.0, ready.1, &ready.2), now);
    actions
}

fn decide_deletion(observed: &Observed<'_>) -> Vec<Action> {
    let Observed { organization, namespace, projects, now } = *observed;
    if !meta::finalizers(organization).contains(&FINALIZER) {
        return Vec::new();
    }
    if projects == 0 && namespace == NamespaceState::Absent {
        return vec![Action::RemoveFinalizer];
    }
    let mut actions = Vec::new();
    let asked = meta::annotation(organization, DELETE_PROJECTS) == Some("true");
    let (reason, message) = if projects > 0 && asked {
        actions.push(Action::DeleteProjects);
        ("DeletingProjects", format!("{projects} projects are being deleted"))
    } else if projects > 0 {
        ("ProjectsRemain", format!("{projects} projects must be deleted first"))
    } else {
        ("NamespaceRemains", "waiting for the organization's namespace to be deleted".to_owned())
    };
    set_status(
        &mut actions,
        organization,
        organization["status"].clone(),
        TERMINATING,
        ("True", reason, &message),
        now,
    );
    let told = actions.iter().any(|action| matches!(action, Action::SetStatus(_)));
    if projects > 0 && told && !asked {
        actions.push(Action::Warn(reason, message));
    } else if projects == 0 && namespace == NamespaceState::Active {
        actions.push(Action::DeleteNamespace);
    }
    actions
}

/// Adds the action that sets a condition, unless the status is as it should be.
fn set_status(
    actions: &mut Vec<Action>,
    organization: &Value,
    mut status: Value,
    type_: &str,
    (state, reason, message): (&str, &str, &str),
    now: Timestamp,
) {
    let generation = Some(generation(organization));
    status["observedGeneration"] = generation.into();
    conditions::set(
        &mut status["conditions"],
        Set { type_, status: state, reason, message, generation },
        now,
    );
    if status != organization["status"] {
        actions.push(Action::SetStatus(status));
    }
}

struct Organizations {
    client: Client,
    organizations: Store<Value>,
    projects: Store<ProjectView>,
    recorder: Recorder,
}

/// Starts the controller.
pub(crate) fn start(context: &mut Context) {
    let queue = Queue::new();
    context.organizations().enqueue_into(&queue);
    let on_projects = queue.clone();
    context.projects().on_change(move |change| {
        let gone = change.new.is_none().then_some(change.old.as_ref()).flatten();
        if let Some(project) = gone {
            on_projects.add(Key::new(change.key.plane.clone(), "", &project.organization));
        }
    });
    let (organizations, projects) = (context.organizations().store(), context.projects().store());
    context.resync(&organizations, &queue);
    let client = context.core.everywhere();
    let (waits, more) = (organizations.clone(), projects.clone());
    let controller =
        Organizations { client, organizations, projects, recorder: Recorder::new("organization") };
    context.control("organization", 8, &queue, &[&waits, &more], controller);
}

impl Reconcile for Organizations {
    type Key = Key;

    async fn reconcile(&self, key: Key) -> Reconciled {
        let Some(organization) = self.organizations.get(&key) else { return Ok(Outcome::Done) };
        let deleting = meta::is_deleting(&organization);
        let observed = Observed {
            organization: &organization,
            namespace: self.namespace(&organization, deleting).await?,
            projects: self.projects.count_by_index(&key.plane, &key.name),
            now: Timestamp::now(),
        };
        for action in decide(&observed) {
            self.act(&organization, action).await?;
        }
        Ok(if deleting { Outcome::After(WAIT) } else { Outcome::Done })
    }
}

impl Organizations {
    async fn namespace(
        &self,
        organization: &Value,
        deleting: bool,
    ) -> Result<NamespaceState, freehold_client::Error> {
        let name = organization_namespace(meta::name(organization));
        // An organization whose status names its namespace has it: no need to look each time.
        if !deleting
            && text(organization, "/status/namespace") == name
            && conditions::is_true(&organization["status"]["conditions"], READY)
        {
            return Ok(NamespaceState::Active);
        }
        Ok(match self.client.get_opt(&NAMESPACES, None, &name).await? {
            None => NamespaceState::Absent,
            Some(namespace) if meta::is_deleting(&namespace) => NamespaceState::Terminating,
            Some(_) => NamespaceState::Active,
        })
    }

    async fn act(&self, organization: &Value, action: Action) -> Result<(), freehold_client::Error> {
        let name = meta::name(organization);
        let namespace = organization_namespace(name);
        match action {
            Action::AddFinalizer => self.finalizer(organization, true).await,
            // What was counted may be behind: a project that was made last must not lose its organization.
            Action::RemoveFinalizer if self.has_projects(name).await? => Ok(()),
            Action::RemoveFinalizer => self.finalizer(organization, false).await,
            Action::CreateNamespace => {
                let object = json!({
                    "apiVersion": "v1", "kind": "Namespace",
                    "metadata": {"name": namespace, "labels": {ORGANIZATION: name}},
                });
                match self.client.create(&NAMESPACES, &object).await {
                    Err(error) if !error.is_already_exists() => Err(error),
                    _ => Ok(()),
                }
            }
            Action::DeleteProjects => self.delete_projects(name).await,
            Action::DeleteNamespace => {
                match self.client.delete(&NAMESPACES, None, &namespace, &DeleteOptions::default()).await {
                    Err(error) if !error.is_not_found() => Err(error),
                    _ => Ok(()),
                }
            }
            Action::SetStatus(status) => {
                let options = PatchOptions::status();
                self.client
                    .patch(&ORGANIZATIONS, None, name, &status_patch(&status), &options)
                    .await
                    .map(drop)
            }
            Action::Warn(reason, message) => {
                self.recorder.event(&self.client, organization, EventType::Warning, reason, &message).await;
                Ok(())
            }
        }
    }

    async fn has_projects(&self, organization: &str) -> Result<bool, freehold_client::Error> {
        let own = self.client.at(&organization_path(organization));
        Ok(!own.list(&PROJECTS, None, &ListOptions::default()).await?.items.is_empty())
    }

    async fn delete_projects(&self, organization: &str) -> Result<(), freehold_client::Error> {
        for (key, project) in self.projects.by_index(&PlaneId::core(), organization) {
            if project.deleting {
                continue;
            }
            match self.client.delete(&PROJECTS, None, &key.name, &DeleteOptions::default()).await {
                Err(error) if !error.is_not_found() => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    async fn finalizer(&self, organization: &Value, present: bool) -> Result<(), freehold_client::Error> {
        let Some(patch) = finalizer_patch(organization, FINALIZER, present) else { return Ok(()) };
        let name = meta::name(organization);
        match self.client.patch(&ORGANIZATIONS, None, name, &patch, &PatchOptions::default()).await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn organization(deleting: bool) -> Value {
        let mut object =
            json!({"metadata": {"name": "acme", "generation": 1, "finalizers": [FINALIZER]}, "spec": {}});
        if deleting {
            object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        }
        object
    }

    fn decided(organization: &Value, namespace: NamespaceState, projects: usize) -> Vec<Action> {
        decide(&Observed { organization, namespace, projects, now: Timestamp::UNIX_EPOCH })
    }

    #[test]
    fn a_new_organization_gets_a_finalizer_a_namespace_and_is_ready() {
        let mut new = organization(false);
        new["metadata"]["finalizers"] = json!([]);
        let actions = decided(&new, NamespaceState::Absent, 0);
        assert_eq!(actions[..2], [Action::AddFinalizer, Action::CreateNamespace]);
        let Action::SetStatus(status) = &actions[2] else { panic!("{actions:?}") };
        assert_eq!(status["namespace"], "organization-acme");
        assert!(conditions::is_true(&status["conditions"], "Ready"));
        let mut settled = organization(false);
        settled["status"] = status.clone();
        assert_eq!(decided(&settled, NamespaceState::Active, 3), []);
    }

    #[test]
    fn a_deletion_waits_for_projects_then_for_the_namespace() {
        let deleting = organization(true);
        let waiting = decided(&deleting, NamespaceState::Active, 2);
        let Action::SetStatus(status) = &waiting[0] else { panic!("{waiting:?}") };
        assert_eq!(status["conditions"][0]["message"], "2 projects must be deleted first");
        assert!(matches!(waiting[1], Action::Warn("ProjectsRemain", _)));
        assert_eq!(decided(&deleting, NamespaceState::Active, 0)[1..], [Action::DeleteNamespace]);
        assert_eq!(decided(&deleting, NamespaceState::Absent, 0), [Action::RemoveFinalizer]);
    }

    #[test]
    fn a_deletion_takes_projects_along_where_somebody_asked_for_that() {
        let mut deleting = organization(true);
        deleting["metadata"]["annotations"] = json!({DELETE_PROJECTS: "true"});
        let actions = decided(&deleting, NamespaceState::Active, 2);
        assert_eq!(actions[0], Action::DeleteProjects);
        let Action::SetStatus(status) = &actions[1] else { panic!("{actions:?}") };
        assert_eq!(status["conditions"][0]["reason"], "DeletingProjects");
        assert_eq!(actions.len(), 2, "no warning");
        assert_eq!(decided(&deleting, NamespaceState::Active, 0)[1..], [Action::DeleteNamespace]);
    }

    #[test]
    fn an_organization_without_a_spec_is_tolerated() {
        assert!(!decided(&json!({"metadata": {"name": "x"}}), NamespaceState::Terminating, 0).is_empty());
    }
}
