//! Templates, their revisions, and the instances that keep their objects in namespaces.
//!
//! ```text
//!  Template              --> TemplateRevision for each change                       (revisions)
//!  TemplateGroupInstance --> a TemplateInstance in each namespace, wave by wave     (group)
//!  TemplateInstance      --> rendered (render, helm), compared, applied with the rights of a
//!                            service account or of its creator                      (instance, apply)
//! ```

mod apply;
mod group;
mod helm;
mod instance;
mod render;
mod revisions;
mod views;
mod world;

pub use helm::HelmOptions;

use crate::running::control;
use freehold_client::Resource;
use freehold_runtime::{Change, Informer, Interest, Key, Planes, Queue, Scope, Store};
use freehold_tenancy_api::{GROUP, VERSION};
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use views::{GroupView, InstanceView, RevisionView, TemplateView};
use world::Worlds;

const TEMPLATES: Resource = Resource::cluster(GROUP, VERSION, "templates");
const REVISIONS: Resource = Resource::cluster(GROUP, VERSION, "templaterevisions");
const INSTANCES: Resource = Resource::namespaced(GROUP, VERSION, "templateinstances");
const GROUPS: Resource = Resource::cluster(GROUP, VERSION, "templategroupinstances");

/// How many instances of one plane are worked on at once.
const WORKERS: usize = 32;
/// How long results of instances are gathered before their group looks at them.
const GATHERING: Duration = Duration::from_millis(300);

/// How the template controllers run.
#[derive(Clone, Debug, Default)]
pub struct TemplateOptions {
    /// Whether the annotation that names an instance's creator is believed. Only where admission writes it, so that nobody
    /// else can.
    pub trust_creators: bool,
    /// How charts are rendered.
    pub helm: HelmOptions,
}

impl TemplateOptions {
    /// Options from the environment: `FREEHOLD_TENANCY_TRUST_CREATORS=true`, `FREEHOLD_TENANCY_HELM=/path/of/helm`,
    /// `FREEHOLD_TENANCY_CHARTS=https://charts.example.com/,oci://registry.example.com/` (prefixes of allowed sources; all,
    /// where the controllers serve one plane and the variable is not set).
    pub fn from_environment(scope: &Scope) -> Self {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        Self {
            trust_creators: variable("FREEHOLD_TENANCY_TRUST_CREATORS").as_deref() == Some("true"),
            helm: HelmOptions {
                program: variable("FREEHOLD_TENANCY_HELM").unwrap_or_else(|| "helm".to_owned()).into(),
                sources: match variable("FREEHOLD_TENANCY_CHARTS") {
                    Some(list) => list.split(',').map(|prefix| prefix.trim().to_owned()).collect(),
                    None if scope.planes.only().is_some() => vec!["https://".into(), "oci://".into()],
                    None => Vec::new(),
                },
            },
        }
    }
}

/// What the controllers share.
struct Shared {
    planes: Planes,
    options: TemplateOptions,
    templates: Store<TemplateView>,
    revisions: Store<RevisionView>,
    instances: Store<InstanceView>,
    groups: Store<GroupView>,
    worlds: Worlds,
    helm: helm::Helm,
    template_queue: Arc<Queue<Key>>,
    instance_queue: Arc<Queue<Key>>,
    group_queue: Arc<Queue<Key>>,
    applied: Mutex<HashMap<Key, apply::Memory>>,
}

/// The controllers of templates, by the names that `--controllers` takes.
const NAMES: [&str; 3] = ["template", "template-instance", "template-group-instance"];

/// Starts the controllers of templates.
pub fn start_templates_with(scope: &Scope, options: TemplateOptions) {
    start_some(scope, options, &NAMES.into_iter().collect());
}

/// Starts those of the controllers of templates that are named.
pub(crate) fn start_some(scope: &Scope, options: TemplateOptions, names: &BTreeSet<&str>) {
    if !NAMES.iter().any(|name| names.contains(name)) {
        return;
    }
    let [template_queue, instance_queue, group_queue] = NAMES.map(|name| {
        let queue = Queue::<Key>::new();
        if !names.contains(name) {
            queue.close();
        }
        queue
    });
    let mut templates = Informer::new(&scope.planes, Interest::projected(TEMPLATES, TemplateView::of));
    let mut revisions = Informer::new(
        &scope.planes,
        Interest::projected(REVISIONS, RevisionView::of)
            .index(|_, view: &RevisionView| vec![view.template.clone()]),
    );
    let mut instances = Informer::new(
        &scope.planes,
        Interest::projected(INSTANCES, InstanceView::of).index(|_, view: &InstanceView| view.index()),
    );
    let mut groups = Informer::new(
        &scope.planes,
        Interest::projected(GROUPS, GroupView::of)
            .index(|_, view: &GroupView| vec![view.spec.template.clone()]),
    );
    templates.enqueue_into(&template_queue);
    groups.enqueue_into(&group_queue);
    let shared = Arc::new(Shared {
        planes: scope.planes.clone(),
        helm: helm::Helm::new(options.helm.clone()),
        options,
        templates: templates.store(),
        revisions: revisions.store(),
        instances: instances.store(),
        groups: groups.store(),
        worlds: Worlds::new(scope, &instance_queue, &group_queue),
        template_queue: template_queue.clone(),
        instance_queue: instance_queue.clone(),
        group_queue: group_queue.clone(),
        applied: Mutex::default(),
    });
    let following = shared.clone();
    revisions.on_change(move |change: &Change<RevisionView>| following.revision_changed(change));
    let following = shared.clone();
    instances.on_change(move |change: &Change<InstanceView>| following.instance_changed(change));
    let synced: Vec<_> = [
        Box::pin(wait(shared.templates.clone(), scope)) as futures_util::future::BoxFuture<'static, bool>,
        Box::pin(wait(shared.revisions.clone(), scope)),
        Box::pin(wait(shared.instances.clone(), scope)),
        Box::pin(wait(shared.groups.clone(), scope)),
    ]
    .into();
    let ready = futures_util::FutureExt::shared(async move {
        futures_util::future::join_all(synced).await.into_iter().all(|synced| synced)
    });
    scope.tasks.spawn(templates.run(scope.token.clone()));
    scope.tasks.spawn(revisions.run(scope.token.clone()));
    scope.tasks.spawn(instances.run(scope.token.clone()));
    scope.tasks.spawn(groups.run(scope.token.clone()));
    let when = || Box::pin(ready.clone());
    if names.contains("template") {
        let revising = Arc::new(revisions::Revising(shared.clone()));
        control(scope, "tenancy-template", 2, &template_queue, when(), revising);
    }
    if names.contains("template-instance") {
        let instances = Arc::new(instance::Instances(shared.clone()));
        control(scope, "tenancy-template-instance", WORKERS, &instance_queue, when(), instances);
    }
    if names.contains("template-group-instance") {
        let grouping = Arc::new(group::Grouping(shared));
        control(scope, "tenancy-template-group-instance", 2, &group_queue, when(), grouping);
    }
}

fn wait<T: Send + Sync + 'static>(
    store: Store<T>,
    scope: &Scope,
) -> impl Future<Output = bool> + Send + 'static {
    let token = scope.token.clone();
    async move { store.synced(&token).await }
}

impl Shared {
    /// A new revision concerns the instances and groups that follow the newest one, and its Template's status.
    fn revision_changed(&self, change: &Change<RevisionView>) {
        let Some(view) = change.new.as_deref().or(change.old.as_deref()) else { return };
        let plane = &change.key.plane;
        self.template_queue.add(Key::new(plane.clone(), "", &view.template));
        for (key, instance) in self.instances.by_index(plane, &format!("t/{}", view.template)) {
            if instance.group.is_none() {
                self.instance_queue.add(key);
            }
        }
        for (key, _) in self.groups.by_index(plane, &view.template) {
            self.group_queue.add(key);
        }
    }

    fn instance_changed(&self, change: &Change<InstanceView>) {
        let own = |view: &InstanceView| (view.generation, view.deleting, view.status["applied"].clone());
        let changed = match (&change.old, &change.new) {
            (Some(old), Some(new)) => own(old) != own(new),
            _ => true,
        };
        match (changed, change.initial) {
            (true, false) => self.instance_queue.add(change.key.clone()),
            (true, true) => self.instance_queue.add_routine(change.key.clone()),
            _ => {}
        }
        let group = change.new.as_deref().or(change.old.as_deref()).and_then(|view| view.group.clone());
        if let Some((group, _)) = group {
            self.group_queue.add_after(Key::new(change.key.plane.clone(), "", &group), GATHERING);
        }
    }

    /// The newest revision of a template.
    fn newest(&self, plane: &freehold_machinery::PlaneId, template: &str) -> Option<Arc<RevisionView>> {
        let all = self.revisions.by_index(plane, template).into_iter().map(|(_, view)| view);
        all.max_by_key(|view| view.revision)
    }

    /// A revision of a template by its number.
    fn revision(
        &self,
        plane: &freehold_machinery::PlaneId,
        template: &str,
        number: i64,
    ) -> Option<Arc<RevisionView>> {
        let mut all = self.revisions.by_index(plane, template).into_iter().map(|(_, view)| view);
        all.rfind(|view| view.revision == number)
    }

    /// Ends the watches of a plane without instances and groups.
    fn end_unused(&self, plane: &freehold_machinery::PlaneId) {
        if self.instances.in_plane(plane).is_empty() && self.groups.in_plane(plane).is_empty() {
            self.worlds.end(plane);
            self.applied.lock().retain(|key, _| key.plane != *plane);
        }
    }
}
