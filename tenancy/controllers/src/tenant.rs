//! Creates and adopts the namespaces that Tenants declare, gives members their rights outside of namespaces, and reports.

use crate::observed::{CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, Informers, NAMESPACES, Observed, TENANTS};
use crate::usage::Usages;
use freehold_client::{Client, DeleteOptions, Error, ListOptions, Patch, PatchOptions, Resource};
use freehold_machinery::{Value, meta};
use freehold_runtime::conditions::{self, Set};
use freehold_runtime::{Controller, Key, Outcome, Queue, Reconciled, Scope};
use freehold_tenancy_api::tenant::{DeletionPolicy, Tenant};
use freehold_tenancy_api::{GROUP, TENANT_LABEL, VERSION};
use freehold_tenancy_decide::namespace::covers;
use freehold_tenancy_decide::tenant::{Chain, Step, Taken, cluster_rbac, plan};
use jiff::Timestamp;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

const EXTENSIONS: Resource = Resource::cluster(GROUP, VERSION, "extensions");
/// Keeps a Tenant until its namespaces are released or deleted.
pub const FINALIZER: &str = "tenancy.freehold.dev/namespaces";
/// Tenants reconciled at once.
const WORKERS: usize = 4;
/// How long changes of namespaces are gathered before their tenant counts them.
const GATHER: Duration = Duration::from_millis(250);
/// How soon it is looked again whether a tenant's Extensions and namespaces are gone.
const GONE: Duration = Duration::from_secs(1);
/// How soon a name that was taken is tried again.
const TAKEN: Duration = Duration::from_secs(30);

struct Controlled {
    observed: Observed,
    usages: Usages,
}

/// Starts the controller on informers that do not run yet.
pub(crate) fn start(scope: &Scope, informers: &mut Informers, observed: &Observed, usages: &Usages) {
    let queue = Queue::<Key>::new();
    follow(informers, observed, &queue);
    usages.on_change({
        let queue = queue.clone();
        move |key| queue.add_after(key, GATHER)
    });
    let controlled = Arc::new(Controlled { observed: observed.clone(), usages: usages.clone() });
    let controller = Controller::new("tenancy-tenant", queue).workers(WORKERS).metrics(&scope.metrics);
    let (token, observed) = (scope.token.clone(), observed.clone());
    scope.tasks.spawn(async move {
        if observed.synced(&token).await {
            let reconcile = move |key| {
                let controlled = controlled.clone();
                async move { controlled.reconcile(key).await }
            };
            controller.run(token, reconcile).await;
        }
    });
}

fn follow(informers: &mut Informers, observed: &Observed, queue: &Arc<Queue<Key>>) {
    informers.tenants.enqueue_into(queue);
    let (to, all) = (queue.clone(), observed.clone());
    informers.tenants.on_change(move |change| {
        let spec = |side: &Option<Arc<Tenant>>| side.as_ref().map(|tenant| tenant.spec.clone());
        if spec(&change.old) != spec(&change.new) {
            // Tenants below have got a parent, have lost it, or have one with other owners and classes.
            for name in all.family(&change.key.plane, &change.key.name) {
                if name != *change.key.name {
                    to.add(Key::new(change.key.plane.clone(), "", &name));
                }
            }
        }
    });
    let to = queue.clone();
    informers.namespaces.on_change(move |change| {
        for namespace in [&change.old, &change.new].into_iter().flatten() {
            if let Some(tenant) = namespace.tenant() {
                to.add_after(Key::new(change.key.plane.clone(), "", tenant), GATHER);
            }
        }
    });
    let (to, all) = (queue.clone(), observed.clone());
    informers.quotas.on_change(move |change| {
        for (key, _) in all.tenants.by_index(&change.key.plane, &format!("quota/{}", change.key.name)) {
            to.add(key);
        }
    });
    for (_, informer) in &mut informers.roles {
        let to = queue.clone();
        informer.on_change(move |change| {
            for object in [&change.old, &change.new].into_iter().flatten() {
                if let Some(tenant) = meta::label(object, TENANT_LABEL) {
                    to.add(Key::new(change.key.plane.clone(), "", tenant));
                }
            }
        });
    }
}

impl Controlled {
    async fn reconcile(&self, key: Key) -> Reconciled {
        let Some(tenant) = self.observed.tenants.get(&key) else { return Ok(Outcome::Done) };
        let client = self.observed.planes.client(&key.plane);
        if tenant.metadata.deletion_timestamp.is_some() {
            return self.terminate(&key, &client, &tenant).await;
        }
        let has_finalizer = tenant.metadata.finalizers.iter().any(|finalizer| finalizer == FINALIZER);
        if !has_finalizer && !set_finalizer(&client, &tenant, true).await? {
            return Ok(Outcome::Done);
        }
        let chain = self.observed.chain(&key.plane, &key.name).unwrap_or_default();
        for object in cluster_rbac(&chain) {
            self.keep_role(&key, &client, object).await?;
        }
        let namespace = |name: &str| self.observed.namespaces.get(&Key::new(key.plane.clone(), "", name));
        let (steps, mut taken) = plan(&tenant, Timestamp::now(), namespace);
        for step in steps {
            if let Some(name) = self.step(&client, &tenant, step).await? {
                taken.push(Taken { name, by: None });
            }
        }
        self.report(&key, &client, &tenant, &taken).await?;
        Ok(if taken.is_empty() { Outcome::Done } else { Outcome::After(TAKEN) })
    }

    /// Takes a step; returns the name of a namespace that somebody else took meanwhile.
    async fn step(&self, client: &Client, tenant: &Tenant, step: Step) -> Result<Option<String>, Error> {
        match step {
            Step::Create(object) => match client.create(&NAMESPACES, &object).await {
                // The informer brings it in a moment, and then it is known whose it is.
                Err(error) if error.is_already_exists() => Ok(None),
                // Its predecessor is still being deleted.
                Err(error) if error.is_conflict() => Ok(Some(meta::name(&object).to_owned())),
                other => other.map(|_| None),
            },
            Step::Adopt { name, uid } => {
                let labels = json!({TENANT_LABEL: tenant.metadata.name});
                let patch = Patch::Merge(json!({"metadata": {"uid": uid, "labels": labels}}));
                let patched = client.patch(&NAMESPACES, None, &name, &patch, &PatchOptions::default()).await;
                match patched {
                    Err(error) if error.is_not_found() || error.is_conflict() => Ok(Some(name)),
                    other => other.map(|_| None),
                }
            }
        }
    }

    async fn keep_role(&self, key: &Key, client: &Client, mut wanted: Value) -> Result<(), Error> {
        let binds = wanted["kind"] == "ClusterRoleBinding";
        let (resource, field) =
            if binds { (CLUSTER_ROLE_BINDINGS, "subjects") } else { (CLUSTER_ROLES, "rules") };
        match self.observed.role(&key.plane, &resource, meta::name(&wanted)) {
            Some(current)
                if covers(&current[field], &wanted[field]) && covers(&wanted[field], &current[field]) =>
            {
                Ok(())
            }
            Some(current) => {
                let version = meta::resource_version(&current).to_owned();
                meta::set(&mut wanted, "resourceVersion", version);
                client.update(&resource, &wanted).await.map(drop)
            }
            None => match client.create(&resource, &wanted).await {
                Err(error) if error.is_already_exists() => {
                    client.apply(&resource, "freehold-tenancy", &wanted).await.map(drop)
                }
                other => other.map(drop),
            },
        }
    }

    async fn terminate(&self, key: &Key, client: &Client, tenant: &Tenant) -> Reconciled {
        self.report(key, client, tenant, &[]).await?;
        if tenant.spec.prevent_deletion {
            return Ok(Outcome::Done);
        }
        if tenant.spec.deletion.argocd == DeletionPolicy::Delete
            && delete_extensions(client, &key.name).await?
        {
            return Ok(Outcome::After(GONE));
        }
        if self.observed.namespaces.count_by_index(&key.plane, &key.name) > 0 {
            return Ok(Outcome::Done);
        }
        // One that was created a moment ago may not be known here yet.
        let options = ListOptions {
            label_selector: format!("{TENANT_LABEL}={}", key.name),
            limit: 1,
            ..ListOptions::default()
        };
        if !client.list(&NAMESPACES, None, &options).await?.items.is_empty() {
            return Ok(Outcome::After(GONE));
        }
        set_finalizer(client, tenant, false).await?;
        Ok(Outcome::Done)
    }

    async fn report(
        &self,
        key: &Key,
        client: &Client,
        tenant: &Tenant,
        taken: &[Taken],
    ) -> Result<(), Error> {
        let chain = self.observed.chain(&key.plane, &key.name).unwrap_or_default();
        let count = |entry: &str| self.observed.namespaces.count_by_index(&key.plane, entry);
        let namespaces = count(&key.name);
        let mut list = json!(tenant.status.conditions);
        let generation = Some(tenant.metadata.generation);
        let quota = self.usages.of(key);
        let facts = Facts { tenant, chain: &chain, taken, namespaces, quota: &quota };
        let quota_exists = self.observed.quota(&key.plane, &tenant.spec.quota).is_some();
        for (type_, problem) in facts.problems(quota_exists) {
            let (status, reason, message) = match &problem {
                Some((reason, message)) => ("False", *reason, message.as_str()),
                None => ("True", "AsExpected", ""),
            };
            conditions::set(&mut list, Set { type_, status, reason, message, generation }, Timestamp::now());
        }
        let status = json!({
            "phase": facts.phase(), "namespaces": namespaces,
            "readyNamespaces": count(&format!("ready/{}", key.name)),
            "quota": quota, "observedGeneration": generation, "conditions": list,
        });
        let old = serde_json::to_value(&tenant.status).unwrap_or_default();
        if covers(&old, &status) && covers(&status, &old) {
            return Ok(());
        }
        // A merge patch would keep counters that the Quota has no more.
        let mut object = json!({
            "apiVersion": freehold_api_version(), "kind": "Tenant",
            "metadata": {"name": tenant.metadata.name, "resourceVersion": tenant.metadata.resource_version},
            "spec": tenant.spec,
        });
        object["status"] = status;
        match client.update_status(&TENANTS, &object).await {
            Err(error) if error.is_not_found() => Ok(()),
            other => other.map(drop),
        }
    }
}

fn freehold_api_version() -> String {
    format!("{}/{}", freehold_tenancy_api::GROUP, freehold_tenancy_api::VERSION)
}

type Problem = Option<(&'static str, String)>;

/// What a Tenant's conditions follow from.
struct Facts<'a> {
    tenant: &'a Tenant,
    chain: &'a Chain,
    taken: &'a [Taken],
    namespaces: usize,
    quota: &'a std::collections::BTreeMap<String, freehold_tenancy_api::tenant::QuotaUse>,
}

impl Facts<'_> {
    fn phase(&self) -> &'static str {
        match () {
            () if self.tenant.metadata.deletion_timestamp.is_some() => "Terminating",
            () if self.chain.tenants.iter().any(|tenant| tenant.spec.cordoned) => "Cordoned",
            () => "Active",
        }
    }

    /// The conditions with what makes them false; the last is `Ready`.
    fn problems(&self, quota_exists: bool) -> Vec<(&'static str, Problem)> {
        let parent = self.chain.problem.as_ref().map(|problem| (problem.reason(), problem.message()));
        let mut problems = vec![
            ("NamespacesAvailable", self.namespaces()),
            ("ParentResolved", parent),
            ("WithinQuota", self.quota(quota_exists)),
            ("Deletable", self.deletion()),
        ];
        let first = problems[..3].iter().find_map(|(_, problem)| problem.clone());
        let ready = match self.tenant.metadata.deletion_timestamp {
            Some(_) => Some(("Terminating", format!("{} namespaces are left", self.namespaces))),
            None => first,
        };
        problems.push(("Ready", ready));
        problems
    }

    fn namespaces(&self) -> Problem {
        let first = self.taken.first()?;
        let (reason, whose) = match &first.by {
            Some(tenant) => ("NamespaceOfOtherTenant", format!("belongs to tenant {tenant:?}")),
            None => ("NamespaceExists", "exists and is not adopted; set `adopt` or delete it".to_owned()),
        };
        let others = match self.taken.len() {
            1 => String::new(),
            more => format!(", and {} more", more - 1),
        };
        Some((reason, format!("namespace {:?} {whose}{others}", first.name)))
    }

    fn quota(&self, exists: bool) -> Problem {
        let name = &self.tenant.spec.quota;
        if name.is_empty() {
            return None;
        }
        if !exists {
            return Some((
                "QuotaMissing",
                format!("quota {name:?} does not exist; nothing is limited by it"),
            ));
        }
        let amount = |text: &str| text.parse::<freehold_machinery::quantity::Quantity>().ok();
        let above = |quota: &&freehold_tenancy_api::tenant::QuotaUse| {
            amount(&quota.used).zip(amount(&quota.hard)).is_some_and(|(used, hard)| used > hard)
        };
        let (counter, quota) = self.quota.iter().find(|(_, quota)| above(quota))?;
        let message = format!("{counter}: {} used of {}; nothing more is let in", quota.used, quota.hard);
        Some(("UsageAboveLimit", message))
    }

    fn deletion(&self) -> Problem {
        let prevented = self.tenant.spec.prevent_deletion;
        prevented.then(|| ("DeletionPrevented", "set `preventDeletion` to false first".to_owned()))
    }
}

/// Deletes the Extensions of a tenant; whether there were any.
async fn delete_extensions(client: &Client, tenant: &str) -> Result<bool, Error> {
    let all = match client.list_all(&EXTENSIONS, None, &ListOptions::default()).await {
        Err(error) if error.is_not_found() => return Ok(false),
        other => other?,
    };
    let mut any = false;
    for extension in all.items.iter().filter(|extension| extension["spec"]["tenant"] == tenant) {
        any = true;
        let options = DeleteOptions::uid(meta::uid(extension));
        match client.delete(&EXTENSIONS, None, meta::name(extension), &options).await {
            Err(error) if !error.is_not_found() && !error.is_conflict() => return Err(error),
            _ => {}
        }
    }
    Ok(any)
}

/// Sets or removes the finalizer; whether the Tenant is still there.
async fn set_finalizer(client: &Client, tenant: &Tenant, wanted: bool) -> Result<bool, Error> {
    let mut finalizers = tenant.metadata.finalizers.clone();
    finalizers.retain(|finalizer| finalizer != FINALIZER);
    if wanted {
        finalizers.push(FINALIZER.to_owned());
    }
    let metadata = json!({"resourceVersion": tenant.metadata.resource_version, "finalizers": finalizers});
    let patch = Patch::Merge(json!({"metadata": metadata}));
    match client.patch(&TENANTS, None, &tenant.metadata.name, &patch, &PatchOptions::default()).await {
        Err(error) if error.is_not_found() => Ok(false),
        other => other.map(|_| true),
    }
}
