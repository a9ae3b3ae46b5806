//! The exports of all planes, for the registry.

use async_trait::async_trait;
use freehold_api::{apis::LimitedConsumer, resourcemanager, rollouts::RolloutStage};
use freehold_apiserver_admission::bundle::Bundle;
use freehold_apiserver_cache::Entry;
use freehold_apiserver_planes::{
    Planes,
    apis::{self, Access, Consumer, Referrer},
};
use freehold_apiserver_registry::{
    ConsumerKind, Exports, FoundExport, FoundRollout, Members, Operation, Owner, ProviderLimit, ReferredBy,
    Seeker, Terms, bound_schemas,
};
use freehold_apiserver_storage::ObjectPath;
use freehold_machinery::{
    PlaneId, ResourceType, Result, Value,
    crd::references::{Named, Reference},
};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::json;
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

/// Consumers that a message names.
const NAMED: usize = 3;
/// Exports whose policies are kept compiled; over it the table starts anew.
const MAX_BUNDLES: usize = 1024;

/// The exports that this server knows.
pub(crate) struct KnownExports(Arc<Planes>, Bundles);

/// Compiled policies and webhooks by the identity of their export, with the revision that it was written at.
type Bundles = Mutex<HashMap<Box<str>, (u64, Arc<Bundle>)>>;

impl KnownExports {
    /// The exports of these planes.
    pub(crate) fn new(planes: Arc<Planes>) -> Self {
        Self(planes, Bundles::default())
    }

    /// Waits until everything that was committed before is known.
    async fn current(&self) -> Result<()> {
        self.0.directory().current().await?;
        self.0.apis().ready().await;
        Ok(())
    }
}

impl KnownExports {
    /// Whether the project of a plane has labels.
    async fn has_labels(&self, plane: &PlaneId, labels: &BTreeMap<String, String>) -> Result<bool> {
        if labels.is_empty() {
            return Ok(true);
        }
        let Some(info) = self.0.directory().by_plane(plane) else { return Ok(false) };
        let path = ObjectPath {
            group: resourcemanager::GROUP.to_owned(),
            resource: "projects".to_owned(),
            namespace: None,
            name: info.name.to_string(),
        };
        let project = self.0.stored(&PlaneId::core(), &path).await?;
        let has = |project: Arc<Entry>| {
            labels.iter().all(|(key, value)| project.label(key) == Some(value.as_str()))
        };
        Ok(project.is_some_and(has))
    }
}

#[async_trait]
impl Exports for KnownExports {
    async fn find(&self, project: &str, name: &str, seeker: Seeker<'_>) -> Result<Option<FoundExport>> {
        self.current().await?;
        let provider = match project {
            apis::SYSTEM => Some(PlaneId::core()),
            project => self.0.directory().named(project).map(|info| info.plane.clone()),
        };
        let apis = self.0.apis();
        let Some(export) = provider.and_then(|plane| apis.export(&plane, name)) else { return Ok(None) };
        let labels = Deserialize::deserialize(seeker.labels).unwrap_or_default();
        let consumer = Consumer { plane: seeker.plane, organization: seeker.organization, labels: &labels };
        Ok(Some(FoundExport {
            plane: export.plane.clone(),
            identity: export.identity.to_string(),
            types: apis.types_for(&export, consumer),
            claims: export.claims.iter().filter_map(|claim| serde_json::to_value(&claim.0).ok()).collect(),
            defaults: export
                .defaults
                .iter()
                .filter_map(|claim| serde_json::to_value(&claim.0).ok())
                .collect(),
            terms: Some(apis::terms_digest(&export.terms))
                .filter(|digest| !digest.is_empty())
                .map(|digest| Terms { digest, text: export.terms.clone() }),
            is_open: export.is_for(seeker.organization)
                && self.has_labels(seeker.plane, &export.project_labels).await?,
            missing: apis.missing(&export).into_iter().map(Into::into).collect(),
        }))
    }

    async fn serves(&self, plane: &PlaneId, ty: &ResourceType) -> Result<bool> {
        let types = self.0.types_of(plane).await?;
        let served = types.find(&ty.group, &ty.version, &ty.plural);
        Ok(served.is_some_and(|served| served.storage == ty.storage))
    }

    async fn rollout(&self, provider: &PlaneId, export: &str) -> Result<Option<FoundRollout>> {
        self.current().await?;
        let apis = self.0.apis();
        let rollout = apis.export(provider, export).and_then(|export| apis.rollout(&export));
        Ok(rollout.map(|rollout| FoundRollout {
            name: rollout.name.to_string(),
            schemas: rollout.schemas.iter().map(|name| Value::from(&**name)).collect(),
            forced: rollout.forced.as_ref().map(ToString::to_string),
            is_at_end: rollout.is_at_end(),
        }))
    }

    async fn rollout_with(&self, plane: &PlaneId, schema: &str) -> Result<Option<String>> {
        self.current().await?;
        Ok(self.0.apis().rollout_with(plane, schema).map(Into::into))
    }

    async fn members(
        &self,
        provider: &PlaneId,
        export: &str,
        rollout: &str,
        stages: &[Value],
    ) -> Result<Members> {
        self.current().await?;
        let apis = self.0.apis();
        let Some(export) = apis.export(provider, export) else { return Ok(Members::default()) };
        // What is no stage was refused with the schema of the kind, and selects nobody.
        let stages: Vec<RolloutStage> =
            stages.iter().filter_map(|stage| RolloutStage::deserialize(stage).ok()).collect();
        let planes = apis.consumers(&export);
        let is_in = |plane: &PlaneId| {
            let any =
                |consumer: Consumer<'_>| stages.iter().any(|stage| apis::selects(stage, rollout, consumer));
            apis.with_consumer(plane, &export, any) == Some(true)
        };
        let selected = match stages.is_empty() {
            true => Default::default(),
            false => planes.iter().filter(|plane| is_in(plane)).cloned().collect(),
        };
        Ok(Members { all: planes.len(), selected })
    }

    fn prove(&self, consumer: &PlaneId, provider: &PlaneId, export: &str) -> Option<String> {
        Some(self.0.apis().proofs()?.prove((consumer, provider.as_str(), export)))
    }

    fn is_proved(&self, consumer: &PlaneId, provider: &str, export: &str, proof: &str) -> bool {
        self.0.apis().proofs().is_some_and(|key| key.verify((consumer, provider, export), proof))
    }

    fn identity(&self, provider: &PlaneId, export: &str) -> String {
        if provider.is_core() { String::new() } else { apis::identity(provider, export) }
    }

    fn terms_digest(&self, terms: &str) -> String {
        apis::terms_digest(terms)
    }

    fn limits(&self, ty: &ResourceType, consumer: &Owner) -> Vec<ProviderLimit> {
        let Some(export) = self.0.apis().export_of(ty).filter(|export| !export.limits.is_empty()) else {
            return Vec::new();
        };
        let Some(provider) = self.0.directory().by_plane(&export.plane) else { return Vec::new() };
        let limit = |kind: LimitedConsumer| {
            let (of, name) = match kind {
                LimitedConsumer::Project => (ConsumerKind::Project, &consumer.project),
                LimitedConsumer::Organization => (ConsumerKind::Organization, &consumer.organization),
            };
            let own = export.limits.iter().filter(|limit| limit.per == kind && limit.resource == ty.plural);
            let count =
                own.map(|limit| limit.overrides.get(&**name).copied().unwrap_or(limit.count)).min()?;
            Some(ProviderLimit {
                kind: of,
                count,
                organization: provider.organization.clone(),
                project: provider.name.clone(),
                export: export.name.clone(),
                revision: export.modified,
            })
        };
        [LimitedConsumer::Project, LimitedConsumer::Organization].into_iter().filter_map(limit).collect()
    }

    fn bundle(&self, ty: &ResourceType) -> Option<Arc<Bundle>> {
        let export = self.0.apis().export_of(ty).filter(|export| !export.admission.is_null())?;
        let current = |(at, _): &&(u64, Arc<Bundle>)| *at == export.modified;
        if let Some((_, bundle)) = self.1.lock().get(&export.identity).filter(current) {
            return Some(bundle.clone());
        }
        // Compiled without the lock: a large one keeps only its own writers waiting.
        let bundle = Arc::new(Bundle::of(&export.name, &export.plane, &export.admission));
        let mut known = self.1.lock();
        if known.len() >= MAX_BUNDLES {
            known.clear();
        }
        known.insert(export.identity.clone(), (export.modified, bundle.clone()));
        Some(bundle)
    }

    fn access(&self, consumer: &PlaneId, provider: &str, export: &str) -> Option<Value> {
        let apis = self.0.apis();
        let export = apis.export(&provider.parse().ok()?, export)?;
        let row = |access: Access| {
            let time = jiff::Timestamp::from_second(access.last).unwrap_or_default();
            json!({
                "verb": access.verb, "group": access.group, "resource": access.resource, "user": access.user,
                "count": access.count, "last": time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
                "allConsumers": access.is_wide,
            })
        };
        let accesses: Vec<Value> = apis.accesses(&export.identity, consumer).into_iter().map(row).collect();
        let list = |field: &str| match &export.admission[field] {
            Value::Array(items) => items.clone(),
            _ => Vec::new(),
        };
        let conversions =
            conversions(&apis.with_consumer(consumer, &export, |one| apis.types_for(&export, one))?);
        Some(json!({
            "policies": list("policies"), "webhooks": list("webhooks"), "conversions": conversions, "accesses": accesses,
        }))
    }

    fn references(&self, ty: &ResourceType) -> Arc<[Reference]> {
        self.0.apis().references_of(ty)
    }

    async fn has_referent(&self, op: &Operation, field: &Reference, named: &Named) -> Result<bool> {
        self.current().await?;
        let (directory, apis) = (self.0.directory(), self.0.apis());
        let Some(home) = directory.by_plane(&op.plane) else { return Ok(false) };
        let info =
            if named.project.is_empty() { Some(home.clone()) } else { directory.named(&named.project) };
        let Some(info) = info.filter(|info| info.organization == home.organization && !info.dedicated) else {
            return Ok(false);
        };
        let Some(export) =
            apis.export_of(&op.ty).filter(|export| apis.binding(&info.plane, export).is_some())
        else {
            return Ok(false);
        };
        let group = if field.group.is_empty() { &op.ty.group } else { &field.group };
        let types = apis.types_of_any(&export);
        let Some(ty) = types.iter().find(|ty| ty.group == *group && ty.plural == field.resource) else {
            return Ok(false);
        };
        let own = op.namespace.clone().unwrap_or_default();
        let namespace = if named.namespace.is_empty() { own } else { named.namespace.clone() };
        if !ty.namespaced && !named.namespace.is_empty() || ty.namespaced && namespace.is_empty() {
            return Ok(false);
        }
        let path = ObjectPath {
            group: ty.storage.group.clone(),
            resource: ty.storage.resource.clone(),
            namespace: Some(namespace).filter(|_| ty.namespaced),
            name: named.name.clone(),
        };
        Ok(self.0.stored(&info.plane, &path).await?.is_some_and(|entry| !entry.is_deleting()))
    }

    async fn referrers(&self, op: &Operation) -> Result<Vec<ReferredBy>> {
        self.current().await?;
        let at = (op.namespace.as_deref().unwrap_or_default(), op.name.as_deref().unwrap_or_default());
        let found = self.0.apis().referrers(&op.ty, &op.plane, at).await?;
        let referrer = |one: Referrer| ReferredBy {
            project: one.project.into(),
            group: one.resource.0.into(),
            resource: one.resource.1.into(),
            namespace: one.namespace.into(),
            name: one.name.into(),
            field: one.field.into(),
            blocks: one.blocks,
        };
        Ok(found.into_iter().map(referrer).collect())
    }

    fn class_with(&self, plane: &PlaneId, binding: &str) -> Option<String> {
        let class = self.0.apis().class_of(plane)?;
        class.bindings.iter().any(|one| *one.name == *binding).then(|| class.class.to_string())
    }

    async fn object_in_class(
        &self,
        class: &str,
        provider: &str,
        export: &str,
    ) -> Result<Option<(String, String)>> {
        self.current().await?;
        let Ok(provider) = provider.parse::<PlaneId>() else { return Ok(None) };
        let apis = self.0.apis();
        match apis.export(&provider, export) {
            Some(export) => apis.object_in_class(class, &export).await,
            None => Ok(None),
        }
    }

    async fn consumers(&self, provider: &PlaneId, export: &str) -> Result<(usize, Vec<String>)> {
        self.current().await?;
        let apis = self.0.apis();
        let Some(export) = apis.export(provider, export) else { return Ok((0, Vec::new())) };
        let planes = apis.consumers(&export);
        let named = planes.iter().filter_map(|plane| self.0.directory().by_plane(plane));
        Ok((planes.len(), named.take(NAMED).map(|info| info.name.to_string()).collect()))
    }

    async fn export_with(&self, plane: &PlaneId, schema: &str) -> Result<Option<String>> {
        self.current().await?;
        Ok(self.0.apis().export_with(plane, schema).map(Into::into))
    }

    async fn missing(&self, plane: &PlaneId, schemas: Vec<String>) -> Result<Vec<String>> {
        self.current().await?;
        let apis = self.0.apis();
        Ok(schemas.into_iter().filter(|name| !apis.has_schema(plane, name)).collect())
    }
}

/// The webhooks of a provider that convert objects, one for each resource.
fn conversions(types: &[Arc<ResourceType>]) -> Vec<Value> {
    let mut found: Vec<Value> = Vec::new();
    for ty in types {
        let Some(webhook) = ty.storage.conversion.of_provider() else { continue };
        let one =
            json!({"group": ty.group, "resource": ty.plural, "clientConfig": webhook.config["clientConfig"]});
        if !found.contains(&one) {
            found.push(one);
        }
    }
    found
}

/// The kinds of an export, as statuses of bindings have them.
pub(crate) fn schemas(planes: &Planes, provider: &str, export: &str) -> Value {
    let provider = provider.parse::<PlaneId>().ok();
    let export = provider.and_then(|plane| planes.apis().export(&plane, export));
    export.map_or_else(|| Value::Array(Vec::new()), |export| bound_schemas(&planes.apis().types_of(&export)))
}
