//! Projects: each has a control plane, a kubeconfig for it, and goes completely.
//!
//! A shared plane exists as soon as its project does, and a project begins with its finalizer, so that one is ready after
//! two requests: its kubeconfig, then its status.

mod decide;
mod fork;
mod teardown;
mod view;

use crate::context::{Context, RESYNC, Reconcile};
use crate::expectations::{Expectations, NOT_YET};
use crate::kinds::{CONTROL_PLANES, PROJECTS, SECRETS};
use crate::object::{finalizer_patch, status_patch, text};
use crate::plane::{Actions, Refusal};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use decide::{Action, Observed, SecretView, decide};
use freehold_api::keys::{
    KUBECONFIG_KEY, ORGANIZATION, PROJECT, READY, kubeconfig_secret, organization_namespace,
};
use freehold_api::urls::{plane_path, project_path, project_url};
use freehold_client::{Client, DeleteOptions, Error, PatchOptions, RawRequest};
use freehold_controller_manager_runtime::{
    EventType, Informer, Interest, Key, Outcome, Queue, Reconciled, Recorder, Store, conditions,
};
use freehold_machinery::{PlaneId, Value, meta};
use freehold_pki::{Authority, ClientName, Credentials, KubeconfigParams, kubeconfig};
use jiff::Timestamp;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use std::sync::Arc;
use std::time::Duration;
pub(crate) use view::ProjectView;

/// Annotation of a kubeconfig Secret: what it was made from.
const HASH: &str = "resourcemanager.freehold.dev/kubeconfig-hash";
/// Annotation of a kubeconfig Secret: when its certificate ends, in seconds since 1970.
const EXPIRES: &str = "resourcemanager.freehold.dev/certificate-expires";
/// Another value has all kubeconfigs made anew.
const KIND_OF_KUBECONFIG: &str = "signed by the authority of the plane's clients";
/// The name that a project's kubeconfig signs in with.
const ADMIN: &str = "freehold:project-admin";
/// When a fork that can't be made yet is looked at again.
const FORK_AGAIN: Duration = Duration::from_secs(2);
/// When a pair that did not answer is asked again.
const ANSWER_AGAIN: Duration = Duration::from_secs(2);
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
    written: Expectations<Key>,
    secrets_written: Expectations<Key>,
    recorder: Recorder,
    actions: Actions,
    terms: Terms,
}

/// What kubeconfigs are made from.
struct Terms {
    external_url: String,
    ca_pem: String,
    signing: Option<Arc<Authority>>,
    validity: Duration,
}

/// The index entry of a project: its organization.
pub(crate) fn organization_index(_: &Key, project: &ProjectView) -> Vec<String> {
    vec![project.organization.to_string()]
}

fn secret_view(secret: Value) -> Option<SecretView> {
    Some(SecretView {
        project: meta::label(&secret, PROJECT)?.to_owned(),
        hash: meta::annotation(&secret, HASH).unwrap_or_default().to_owned(),
        expires: meta::annotation(&secret, EXPIRES).and_then(|e| e.parse().ok()).unwrap_or(0),
    })
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
    context.resync(&projects, &queue);
    let organizations = context.organizations().store();
    let config = &context.config;
    let terms = Terms {
        external_url: config.external_url.clone(),
        ca_pem: config.ca_pem.clone(),
        signing: config.signing.clone(),
        validity: config.certificate_validity,
    };
    let controller = Projects {
        core: context.core.everywhere(),
        infra: context.infra.everywhere(),
        root: context.core.root(),
        projects: projects.clone(),
        organizations: organizations.clone(),
        secrets: secrets.clone(),
        control_planes: control_planes.clone(),
        written: Expectations::default(),
        secrets_written: Expectations::default(),
        recorder: Recorder::new("project"),
        actions: Actions(context.core.root()),
        terms,
    };
    context.control(
        "project",
        WORKERS,
        &queue,
        &[&projects, &organizations, &secrets, &control_planes],
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
    let interest = Interest::projected(SECRETS, secret_view).labels(PROJECT).metadata_only();
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
        let url = project_url(&self.terms.external_url, meta::name(project));
        let organization = Key::new(PlaneId::core(), "", text(project, "/spec/ownerRef/name"));
        let secret = self.secrets.get(&secret_key(project));
        let control_plane = self.control_plane(project);
        decide(&Observed {
            project,
            refused,
            organization_exists: self.organizations.get(&organization).is_some(),
            secret: secret.as_deref(),
            control_plane: control_plane.as_deref(),
            answer,
            hash: &self.terms.hash(project, &url),
            url: &url,
            validity: self.terms.signing.as_ref().map(|_| self.terms.validity),
            now: Timestamp::now(),
        })
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
            self.core.update(&SECRETS, &secret).await
        } else {
            match self.core.create(&SECRETS, &secret).await {
                Err(error) if error.is_already_exists() => self.core.update(&SECRETS, &secret).await,
                created => created,
            }
        };
        self.secrets_written.expect(key, &written?);
        Ok(())
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
            let remaining = teardown::finalize_all(&self.root.at(&base)).await?;
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

fn secret_key(project: &Value) -> Key {
    let namespace = organization_namespace(text(project, "/spec/ownerRef/name"));
    Key::new(PlaneId::core(), &namespace, &kubeconfig_secret(meta::name(project)))
}

impl Terms {
    /// What a kubeconfig is made from, its certificate aside.
    fn hash(&self, project: &Value, url: &str) -> String {
        let mut hasher = Sha256::new();
        for part in [KIND_OF_KUBECONFIG, meta::uid(project), url, &self.ca_pem] {
            hasher.update(part);
            hasher.update([0]);
        }
        if let Some(signing) = &self.signing {
            hasher.update(signing.cert_pem());
        }
        hex::encode(&hasher.finalize()[..8])
    }

    /// The Secret with a new certificate for a project's plane alone. It has no owner reference: this controller removes
    /// it itself, and the garbage collector would ask for the owner of each at its making and every few minutes.
    fn secret(&self, project: &Value, now: Timestamp) -> anyhow::Result<Value> {
        let signing =
            self.signing.as_ref().ok_or_else(|| anyhow::anyhow!("no signing authority is configured"))?;
        let (name, uid, organization) =
            (meta::name(project), meta::uid(project), text(project, "/spec/ownerRef/name"));
        let groups = [freehold_machinery::user::MASTERS.to_owned()];
        let client = ClientName { user: ADMIN, groups: &groups, plane: Some(uid) };
        let pair = signing.for_plane(uid)?.issue_client(&client, self.validity)?;
        let url = project_url(&self.external_url, name);
        let text = kubeconfig(&KubeconfigParams {
            name,
            server: &url,
            ca_pem: &self.ca_pem,
            user: Credentials::ClientCert { cert_pem: &pair.cert_pem, key_pem: &pair.key_pem },
            namespace: "default",
        });
        let expires = now.as_second().saturating_add_unsigned(self.validity.as_secs());
        Ok(json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": {
                "name": kubeconfig_secret(name),
                "namespace": organization_namespace(organization),
                "labels": {PROJECT: name, ORGANIZATION: organization},
                "annotations": {HASH: self.hash(project, &url), EXPIRES: expires.to_string()},
            },
            "data": {KUBECONFIG_KEY: STANDARD.encode(text)},
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms() -> Terms {
        let signing = Authority::generate("test").unwrap();
        Terms {
            external_url: "https://h:6443/".into(),
            ca_pem: signing.cert_pem().to_owned(),
            signing: Some(Arc::new(signing)),
            validity: Duration::from_secs(3600),
        }
    }

    #[test]
    fn a_kubeconfig_signs_in_to_its_plane_alone() {
        let project = json!({
            "metadata": {"name": "web", "uid": "0c1f", "generation": 1}, "spec": {"ownerRef": {"name": "acme"}},
        });
        let (terms, now) = (terms(), Timestamp::from_second(1000).unwrap());
        let secret = terms.secret(&project, now).unwrap();
        assert_eq!(secret["metadata"]["namespace"], "organization-acme");
        let text = STANDARD.decode(secret["data"]["kubeconfig"].as_str().unwrap()).unwrap();
        let config =
            freehold_client::Config::from_kubeconfig_text(std::str::from_utf8(&text).unwrap()).unwrap();
        assert_eq!(config.server, "https://h:6443/projects/web");
        assert!(matches!(config.identity, freehold_client::Identity::ClientCert { .. }));
        let view = secret_view(secret).unwrap();
        let url = project_url(&terms.external_url, "web");
        assert_eq!(
            view,
            SecretView { project: "web".into(), hash: terms.hash(&project, &url), expires: 4600 }
        );
    }

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
