//! Projects: each has a control plane, a kubeconfig for it, and goes completely.
//!
//! A shared plane exists as soon as its project does, and a project begins with its finalizer, so that one is ready after
//! two requests: its kubeconfig, then its status.

mod decide;
mod fork;
mod kubeconfig;
mod sleep;
mod teardown;

use crate::plane::{Actions, Refusal};
use crate::turns::Turns;
use decide::{Action, Observed, decide};
use freehold_api::keys::{ORGANIZATION, PROJECT, READY};
use freehold_api::urls::{plane_path, project_path};
use freehold_client::{Client, DeleteOptions, Error, Patch, PatchOptions, RawRequest};
use freehold_controllers_context::expectations::{Expectations, NOT_YET};
use freehold_controllers_context::kinds::{CLASSES, CONTROL_PLANES, PROJECTS, SECRETS};
use freehold_controllers_context::object::{finalizer_patch, status_patch, text};
use freehold_controllers_context::project::ProjectView;
use freehold_controllers_context::{Context, RESYNC, Reconcile};
use freehold_machinery::{PlaneId, Value, meta};
use freehold_runtime::{
    EventType, Informer, Interest, Key, Outcome, Queue, Reconciled, Recorder, Store, conditions,
};
use jiff::Timestamp;
use kubeconfig::{SecretView, Terms, secret_key};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// When a fork that can't be made yet is looked at again.
const FORK_AGAIN: Duration = Duration::from_secs(2);
/// When a pair that did not answer is asked again.
const ANSWER_AGAIN: Duration = Duration::from_secs(2);
/// Projects of one organization that are torn down or forked at once, which their webhooks and sizes can make slow.
const SLOW_AT_ONCE: usize = 4;
/// When a project is looked at again whose organization has as many of those.
const TURN_AGAIN: Duration = Duration::from_secs(2);
/// How long one pass over a plane that is to go may take.
const PASS: Duration = Duration::from_secs(60);
/// Projects reconciled at once.
const WORKERS: usize = 32;

struct Projects {
    core: Client,
    infra: Client,
    root: Client,
    projects: Store<ProjectView>,
    organizations: Store<Value>,
    secrets: Store<SecretView>,
    control_planes: Store<Value>,
    /// After how many seconds pairs of a class sleep, of those that say so.
    sleeping: Store<u64>,
    written: Expectations<Key>,
    secrets_written: Expectations<Key>,
    recorder: Recorder,
    actions: Actions,
    terms: Terms,
    turns: Arc<Turns>,
}

/// Starts the controller.
pub(crate) fn start(context: &mut Context) {
    let queue = Queue::new();
    context.projects().enqueue_into(&queue);
    follow_moves(context);
    let projects = context.projects().store();
    follow_organizations(context, &queue, &projects);
    let secrets = follow_secrets(context, &queue);
    let control_planes = follow_control_planes(context, &queue);
    let sleeping = follow_classes(context, &queue, &control_planes);
    context.resync(&projects, &queue);
    let organizations = context.organizations().store();
    let config = &context.config;
    let terms = Terms {
        external_url: config.external_url.clone(),
        ca_pem: config.ca_pem.clone(),
        signing: config.signing.clone(),
        validity: config.kubeconfig_validity,
    };
    let controller = Projects {
        core: context.core.everywhere(),
        infra: context.infra.everywhere(),
        root: context.core.root(),
        projects: projects.clone(),
        organizations: organizations.clone(),
        secrets: secrets.clone(),
        control_planes: control_planes.clone(),
        sleeping: sleeping.clone(),
        written: Expectations::default(),
        secrets_written: Expectations::default(),
        recorder: Recorder::new("project"),
        actions: Actions(context.core.root()),
        terms,
        turns: Turns::new(SLOW_AT_ONCE),
    };
    context.control(
        "project",
        WORKERS,
        &queue,
        &[&projects, &organizations, &secrets, &control_planes, &sleeping],
        controller,
    );
}

/// The plane that an object's change of mode makes come here (`true`) or go.
fn plane_moved(old: Option<&ProjectView>, new: Option<&ProjectView>) -> Option<bool> {
    let (before, now) = (old?.shared?, new?.shared?);
    (before != now).then_some(now)
}

/// Tells controllers over all planes when a project's plane moves between this server and a pair of its own.
fn follow_moves(context: &mut Context) {
    let planes = context.planes.clone();
    context.projects().on_change(move |change| {
        let project = change.new.as_deref().or(change.old.as_deref());
        let Some(plane) = project.and_then(|project| project.plane.clone()) else { return };
        match plane_moved(change.old.as_deref(), change.new.as_deref()) {
            Some(true) => planes.arrive(&plane),
            Some(false) => planes.leave(&plane),
            None if change.new.is_none() => planes.forget(&plane),
            None => {}
        }
    });
}

fn follow_organizations(context: &mut Context, queue: &Arc<Queue<Key>>, projects: &Store<ProjectView>) {
    let (queue, projects) = (queue.clone(), projects.clone());
    context.organizations().on_change(move |change| {
        if change.old.is_none() || change.new.is_none() {
            for (key, _) in projects.by_index(&change.key.plane, &change.key.name) {
                queue.add(key);
            }
        }
    });
}

fn follow_secrets(context: &Context, queue: &Arc<Queue<Key>>) -> Store<SecretView> {
    let interest = Interest::projected(SECRETS, SecretView::of).labels(PROJECT);
    let mut informer = Informer::new(&context.core, interest);
    let queue = queue.clone();
    informer.on_change(move |change| {
        if let Some(secret) = change.new.as_ref().or(change.old.as_ref()) {
            queue.add(Key::new(PlaneId::core(), "", &secret.project));
        }
    });
    context.run_informer(informer)
}

fn follow_control_planes(context: &Context, queue: &Arc<Queue<Key>>) -> Store<Value> {
    let mut informer = Informer::new(&context.infra, Interest::objects(CONTROL_PLANES));
    let queue = queue.clone();
    informer.on_change(move |change| {
        if let Some(control_plane) = change.new.as_ref().or(change.old.as_ref()) {
            queue.add(Key::new(PlaneId::core(), "", text(control_plane, "/spec/projectRef/name")));
        }
    });
    context.run_informer(informer)
}

/// What classes say of the sleep of pairs. Another word of one comes to the projects that have pairs of it.
fn follow_classes(context: &Context, queue: &Arc<Queue<Key>>, control_planes: &Store<Value>) -> Store<u64> {
    let interest = Interest::projected(CLASSES, |class| sleep::after(&class));
    let mut informer = Informer::new(&context.core, interest);
    let (queue, control_planes) = (queue.clone(), control_planes.clone());
    informer.on_change(move |change| {
        if change.old == change.new {
            return;
        }
        for (_, pair) in control_planes.in_plane(&PlaneId::infra()) {
            if text(&pair, "/spec/class") == &*change.key.name {
                queue.add(Key::new(PlaneId::core(), "", text(&pair, "/spec/projectRef/name")));
            }
        }
    });
    context.run_informer(informer)
}

impl Reconcile for Projects {
    type Key = Key;

    async fn reconcile(&self, key: Key) -> Reconciled {
        let seen =
            self.written.are_met(&key, &self.projects) && self.secrets_written.are_met(&key, &self.secrets);
        if !seen {
            return Ok(NOT_YET);
        }
        let Some(view) = self.projects.get(&key) else { return Ok(Outcome::Done) };
        let project = match view.object() {
            Some(project) => project,
            None => match self.core.get_opt(&PROJECTS, None, &key.name).await? {
                Some(project) => project,
                None => return Ok(Outcome::Done),
            },
        };
        let is_slow = meta::is_deleting(&project) || fork::is_wanted(&project);
        let turn = is_slow.then(|| self.turns.take(text(&project, "/spec/ownerRef/name")));
        if matches!(turn, Some(None)) {
            return Ok(Outcome::After(TURN_AGAIN));
        }
        if meta::is_deleting(&project) {
            return self.tear_down(&key, &project).await;
        }
        let mut refused = None;
        // Its finalizer comes first: what was made of a fork goes with the project.
        if fork::is_wanted(&project) && meta::finalizers(&project).contains(&PROJECT) {
            refused = self.fork(&project).await?;
        } else if fork::is_wanted(&project) {
            refused = Some(Refusal::waiting("Forking", "the project is being forked"));
        }
        let answer = self.answer(&project).await;
        let unanswered = answer.as_ref().is_some_and(Result::is_err);
        let mut decision = self.observe_and_decide(&project, refused.as_ref(), answer);
        if unanswered {
            decision.again = Some(ANSWER_AGAIN);
        }
        if refused.is_some_and(|why| !why.is_final) {
            decision.again = Some(FORK_AGAIN);
        }
        if decision.actions.is_empty() {
            view.settle();
        }
        self.act(&key, &project, decision.actions).await?;
        if let Some(control_plane) = self.control_plane(&project) {
            let due = self.settle_sleep(&project, &control_plane).await?;
            decision.again = decision.again.into_iter().chain(due).min();
        }
        // What is due later than that is found by looking at everything from time to time.
        let soon = decision.again.filter(|again| *again < 2 * RESYNC);
        Ok(soon.map_or(Outcome::Done, Outcome::After))
    }
}

impl Projects {
    /// Asks the pair that a project is to move to whether it answers, through the server that would pass requests on to it;
    /// `None` where there is nothing to ask.
    async fn answer(&self, project: &Value) -> Option<Result<(), String>> {
        let control_plane = self.control_plane(project);
        if !decide::wants_answer(project, control_plane.as_deref()) {
            return None;
        }
        let plane = meta::uid(project).parse().ok()?;
        let request = RawRequest::new(http::Method::GET, format!("{}/pair", plane_path(&plane)));
        Some(self.root.json(request).await.map(drop).map_err(|error| error.to_string()))
    }

    fn observe_and_decide(
        &self,
        project: &Value,
        refused: Option<&Refusal>,
        answer: Option<Result<(), String>>,
    ) -> decide::Decision {
        let organization = Key::new(PlaneId::core(), "", text(project, "/spec/ownerRef/name"));
        let secret = self.secrets.get(&secret_key(project));
        let control_plane = self.control_plane(project);
        decide(&Observed {
            project,
            refused,
            organization_exists: self.organizations.get(&organization).is_some(),
            secret_made: secret.as_ref().is_some_and(|secret| self.terms.made(project, secret)),
            secret: secret.as_deref(),
            control_plane: control_plane.as_deref(),
            answer,
            url: &self.terms.url(project),
            validity: self.terms.signing.as_ref().map(|_| self.terms.validity),
            now: Timestamp::now(),
        })
    }

    /// Puts a pair to rest, or takes it back, where that is due; gives when to look again.
    async fn settle_sleep(&self, project: &Value, control_plane: &Value) -> Result<Option<Duration>, Error> {
        let class = Key::new(PlaneId::core(), "", text(control_plane, "/spec/class"));
        let after = self.sleeping.get(&class).map(|after| *after);
        let (patch, again) = sleep::decide(project, control_plane, after, Timestamp::now());
        let Some(patch) = patch else { return Ok(again) };
        let (name, patch) = (meta::name(control_plane), Patch::Merge(patch));
        match self.infra.patch(&CONTROL_PLANES, None, name, &patch, &PatchOptions::default()).await {
            // Somebody used it meanwhile: the watch tells.
            Err(error) if error.is_not_found() || error.code() == 409 => Ok(again),
            Err(error) => Err(error),
            Ok(_) => Ok(again),
        }
    }

    fn control_plane(&self, project: &Value) -> Option<Arc<Value>> {
        self.control_planes.get(&Key::new(PlaneId::infra(), "", meta::uid(project)))
    }

    /// Does everything but the status at once, then writes the status.
    async fn act(&self, key: &Key, project: &Value, actions: Vec<Action>) -> Result<(), Error> {
        let (statuses, others): (Vec<_>, Vec<_>) =
            actions.into_iter().partition(|action| matches!(action, Action::SetStatus(_)));
        futures_util::future::try_join_all(others.iter().map(|action| self.act_once(key, project, action)))
            .await?;
        for action in &statuses {
            self.act_once(key, project, action).await?;
        }
        Ok(())
    }

    async fn act_once(&self, key: &Key, project: &Value, action: &Action) -> Result<(), Error> {
        match action {
            Action::AddFinalizer => self.finalizer(key, project, true).await,
            Action::WriteSecret => self.write_secret(key, project).await,
            Action::CreateControlPlane => self.create_control_plane(project).await,
            Action::DeleteControlPlane => self.delete_control_plane(project).await,
            Action::SetStatus(status) => self.set_status(key, project, status).await,
        }
    }

    async fn finalizer(&self, key: &Key, project: &Value, present: bool) -> Result<(), Error> {
        let Some(patch) = finalizer_patch(project, PROJECT, present) else { return Ok(()) };
        match self.core.patch(&PROJECTS, None, &key.name, &patch, &PatchOptions::default()).await {
            Ok(answer) => {
                self.written.expect(key, &answer);
                Ok(())
            }
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn set_status(&self, key: &Key, project: &Value, status: &Value) -> Result<(), Error> {
        let options = PatchOptions::status();
        match self.core.patch(&PROJECTS, None, meta::name(project), &status_patch(status), &options).await {
            Ok(answer) => {
                self.written.expect(key, &answer);
                Ok(())
            }
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn write_secret(&self, key: &Key, project: &Value) -> Result<(), Error> {
        let secret = match self.terms.secret(project, Timestamp::now()) {
            Ok(secret) => secret,
            Err(error) => {
                let message = error.to_string();
                self.recorder
                    .event(&self.core, project, EventType::Warning, "KubeconfigFailed", &message)
                    .await;
                return Err(Error::Config(message));
            }
        };
        let written = if self.secrets.get(&secret_key(project)).is_some() {
            self.replace_secret(&secret).await
        } else {
            match self.core.create(&SECRETS, &secret).await {
                Err(error) if error.is_already_exists() => self.replace_secret(&secret).await,
                created => created,
            }
        };
        self.secrets_written.expect(key, &written?);
        Ok(())
    }

    /// Puts a Secret in place of whatever has its name: also of one that somebody made immutable, or of another type.
    async fn replace_secret(&self, secret: &Value) -> Result<Value, Error> {
        let (namespace, name) = (Some(meta::namespace(secret)), meta::name(secret));
        match self.core.update(&SECRETS, secret).await {
            Err(error) if error.code() == 422 => {
                let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
                self.core.patch(&SECRETS, namespace, name, &free, &PatchOptions::default()).await?;
                self.core.delete(&SECRETS, namespace, name, &DeleteOptions::default()).await?;
                self.core.create(&SECRETS, secret).await
            }
            Err(error) if error.is_not_found() => self.core.create(&SECRETS, secret).await,
            updated => updated,
        }
    }

    async fn create_control_plane(&self, project: &Value) -> Result<(), Error> {
        let (name, uid) = (meta::name(project), meta::uid(project));
        let organization = text(project, "/spec/ownerRef/name");
        let class =
            Some(text(project, "/spec/controlPlane/class")).filter(|c| !c.is_empty()).unwrap_or("default");
        let object = json!({
            "apiVersion": CONTROL_PLANES.api_version(), "kind": "ProjectControlPlane",
            "metadata": {"name": uid, "labels": {PROJECT: name, ORGANIZATION: organization}},
            "spec": {"projectRef": {"name": name, "uid": uid}, "organization": organization, "class": class},
        });
        match self.infra.create(&CONTROL_PLANES, &object).await {
            Ok(_) => {
                let message = "a dedicated control plane was asked for";
                self.recorder.event(&self.core, project, EventType::Normal, "Provisioning", message).await;
                Ok(())
            }
            Err(error) if error.is_already_exists() => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn delete_control_plane(&self, project: &Value) -> Result<(), Error> {
        match self.infra.delete(&CONTROL_PLANES, None, meta::uid(project), &DeleteOptions::default()).await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }

    /// One step of a deletion, and when the next one is due.
    async fn tear_down(&self, key: &Key, project: &Value) -> Reconciled {
        if !meta::finalizers(project).contains(&PROJECT) {
            return Ok(Outcome::Done);
        }
        let Ok(plane) = meta::uid(project).parse::<PlaneId>() else {
            self.finalizer(key, project, false).await?;
            return Ok(Outcome::Done);
        };
        let control_plane = self.control_plane(project);
        // Most planes have nothing that wants to be finalized: then they are gone with one request.
        if control_plane.is_none() && self.delete_plane(&plane).await? {
            self.clear(key, project).await?;
            return Ok(Outcome::Done);
        }
        if control_plane.as_ref().is_none_or(|c| !meta::is_deleting(c)) {
            // A pair that answers finalizes its own plane; what a broken one left behind is in the same store.
            let answers = control_plane
                .as_ref()
                .is_some_and(|c| conditions::is_true(&c["status"]["conditions"], READY));
            let base = if answers { project_path(&key.name) } else { plane_path(&plane) };
            let client = self.root.at(&base);
            let remaining = match tokio::time::timeout(PASS, teardown::finalize_all(&client)).await {
                Ok(remaining) => remaining?,
                Err(_) => "webhooks or servers of its own that take too long".to_owned(),
            };
            if !remaining.is_empty() {
                self.progress(key, project, "FinalizersRemain", &format!("waiting for {remaining}")).await?;
                return Ok(Outcome::After(patience(project, Timestamp::now())));
            }
        }
        if control_plane.is_some() {
            self.delete_control_plane(project).await?;
            self.progress(
                key,
                project,
                "ControlPlaneRemains",
                "waiting for the dedicated control plane to be gone",
            )
            .await?;
            return Ok(Outcome::After(Duration::from_secs(10)));
        }
        // What is to be finalized is gone now, unless something came meanwhile.
        if !self.delete_plane(&plane).await? {
            return Ok(Outcome::After(patience(project, Timestamp::now())));
        }
        self.clear(key, project).await?;
        Ok(Outcome::Done)
    }

    async fn progress(&self, key: &Key, project: &Value, reason: &str, message: &str) -> Result<(), Error> {
        match decide::terminating(project, reason, message, Timestamp::now()) {
            Some(status) => self.set_status(key, project, &status).await,
            None => Ok(()),
        }
    }

    /// Removes a plane's keys; `false` where the server says that something in it is to be finalized first.
    async fn delete_plane(&self, plane: &PlaneId) -> Result<bool, Error> {
        match self.root.request(&RawRequest::new(http::Method::DELETE, plane_path(plane))).await {
            Err(error) if error.code() == 409 => Ok(false),
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(true),
        }
    }

    /// Removes the kubeconfig of a plane that is gone, and the finalizer.
    async fn clear(&self, key: &Key, project: &Value) -> Result<(), Error> {
        let secret = secret_key(project);
        match self.core.delete(&SECRETS, secret.ns(), &secret.name, &DeleteOptions::default()).await {
            Err(error) if !error.is_not_found() => return Err(error),
            _ => {}
        }
        self.finalizer(key, project, false).await
    }
}

/// How long to wait before a deletion is looked at again: a quarter of the time that it takes already, so that a quick
/// one is quick and a slow one costs little.
fn patience(project: &Value, now: Timestamp) -> Duration {
    let since = freehold_machinery::time::parse(meta::text(project, "deletionTimestamp")).unwrap_or(now);
    let age = now.duration_since(since).unsigned_abs();
    (age / 4).clamp(Duration::from_millis(200), Duration::from_secs(30))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plane_moves_when_its_mode_in_status_changes() {
        let mode = |mode: &str| ProjectView::of(json!({"status": {"controlPlane": {"mode": mode}}})).unwrap();
        let (shared, dedicated, none) = (mode("Shared"), mode("Dedicated"), mode(""));
        let rows = [
            (Some(&shared), Some(&dedicated), Some(false)),
            (Some(&dedicated), Some(&shared), Some(true)),
            (Some(&shared), Some(&shared), None),
            (Some(&none), Some(&dedicated), None),
            (None, Some(&dedicated), None),
            (Some(&shared), None, None),
        ];
        for (old, new, moved) in rows {
            assert_eq!(plane_moved(old, new), moved, "{old:?} {new:?}");
        }
    }

    #[test]
    fn a_long_deletion_is_looked_at_less_often() {
        let project = json!({"metadata": {"deletionTimestamp": "1970-01-01T00:00:00Z"}});
        for (second, millis) in [(0, 200), (20, 5000), (4000, 30_000)] {
            assert_eq!(patience(&project, Timestamp::from_second(second).unwrap()).as_millis(), millis);
        }
    }
}
