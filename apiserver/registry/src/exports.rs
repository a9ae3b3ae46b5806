//! Exports and bindings: what the server writes into their statuses, who may bind, and what keeps them from being deleted.
//!
//! There is no controller to wait for: a binding is decided with its write, as definitions are. The server alone writes the
//! statuses, whatever a client sends: they are computed anew with each write.

mod bundle;
mod change;
mod class;
mod closing;
mod consent;
mod references;
mod rollout;

pub(crate) use bundle::ACCESS;
pub use class::class_bindings;
pub(crate) use references::REFERRERS;
pub use references::ReferredBy;
pub use rollout::{FoundRollout, Members};

use crate::{DeleteOptions, Operation, Owner, ProviderLimit, Registry};
use async_trait::async_trait;
use freehold_apiserver_admission::bundle::Bundle;
use freehold_apiserver_authz::Attributes;
use freehold_apiserver_cache::{ListRequest, Seen};
use freehold_apiserver_storage::ObjectPath;
use freehold_machinery::{
    GroupResource, PlaneId, ResourceType, Result, Status, Value, crd,
    crd::references::{Named, Reference},
    meta,
    status::FieldError,
    user::MASTERS,
};
use serde_json::json;
use std::sync::Arc;

/// The API group.
pub(crate) const GROUP: &str = "apis.freehold.dev";
/// The annotation that lets an export be deleted while projects consume it.
const KEEP_OBJECTS: &str = "apis.freehold.dev/keep-objects";
/// The conditions of a binding.
const CONDITIONS: [&str; 2] = ["Bound", "Ready"];

/// Terms of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// What a binding names to accept them.
    pub digest: String,
    /// The text.
    pub text: String,
}

/// An export, as a binding needs it.
pub struct FoundExport {
    /// The provider's plane.
    pub plane: PlaneId,
    /// What its objects are stored under.
    pub identity: String,
    /// Its types.
    pub types: Arc<[Arc<ResourceType>]>,
    /// What the provider claims, as it stands in the export.
    pub claims: Vec<Value>,
    /// Claims that count as accepted by who does not reject them.
    pub defaults: Vec<Value>,
    /// Terms that who binds it has to accept, with their digest.
    pub terms: Option<Terms>,
    /// Whether projects of an organization may bind it.
    pub is_open: bool,
    /// Schemas that it names and that there are not.
    pub missing: Vec<String>,
}

/// Who would consume an export.
#[derive(Clone, Copy)]
pub struct Seeker<'a> {
    /// The plane.
    pub plane: &'a PlaneId,
    /// The organization that owns it.
    pub organization: &'a str,
    /// The labels of the binding, an object or null.
    pub labels: &'a Value,
}

/// Knows exports of all planes, and proves who binds them.
#[async_trait]
pub trait Exports: Send + Sync + 'static {
    /// The export of a project, as a consumer finds it.
    async fn find(&self, project: &str, name: &str, seeker: Seeker<'_>) -> Result<Option<FoundExport>>;
    /// Whether a plane serves a type now.
    async fn serves(&self, plane: &PlaneId, ty: &ResourceType) -> Result<bool>;
    /// The rollout of an export that is under way.
    async fn rollout(&self, provider: &PlaneId, export: &str) -> Result<Option<FoundRollout>>;
    /// A rollout of a plane that is under way and names a schema.
    async fn rollout_with(&self, plane: &PlaneId, schema: &str) -> Result<Option<String>>;
    /// The consumers of an export, and those among them that any of some stages of a rollout selects.
    async fn members(
        &self,
        provider: &PlaneId,
        export: &str,
        rollout: &str,
        stages: &[Value],
    ) -> Result<Members>;
    /// The proof that a plane may consume an export; `None` where this server can't prove anything.
    fn prove(&self, consumer: &PlaneId, provider: &PlaneId, export: &str) -> Option<String>;
    /// Whether a proof is right.
    fn is_proved(&self, consumer: &PlaneId, provider: &str, export: &str, proof: &str) -> bool;
    /// What objects of an export are stored under; empty for one of the platform, whose objects are stored as a definition's.
    fn identity(&self, provider: &PlaneId, export: &str) -> String;
    /// The digest of terms, empty for none.
    fn terms_digest(&self, terms: &str) -> String;
    /// How many objects of an exported type its provider lets a consumer have, one limit for each kind of consumer.
    fn limits(&self, ty: &ResourceType, consumer: &Owner) -> Vec<ProviderLimit>;
    /// Policies and webhooks that come with the export of a type.
    fn bundle(&self, ty: &ResourceType) -> Option<Arc<Bundle>>;
    /// What comes with an export that a plane consumes, and what its provider did there of late, in the fields of a
    /// `BindingAccess`; `None` where it does not consume it.
    fn access(&self, consumer: &PlaneId, provider: &str, export: &str) -> Option<Value>;
    /// The fields of an exported type that name objects.
    fn references(&self, ty: &ResourceType) -> Arc<[Reference]>;
    /// Whether an object that is named in an operation is there, in a project of its organization.
    async fn has_referent(&self, op: &Operation, field: &Reference, named: &Named) -> Result<bool>;
    /// Who names the object of an operation, in projects of its organization.
    async fn referrers(&self, op: &Operation) -> Result<Vec<ReferredBy>>;
    /// The class of a plane, where it brings a binding of that name.
    fn class_with(&self, plane: &PlaneId, binding: &str) -> Option<String>;
    /// An object of an export, `(resource, project/namespace/name)`, in a plane of a class that has it from the class alone.
    async fn object_in_class(
        &self,
        class: &str,
        provider: &str,
        export: &str,
    ) -> Result<Option<(String, String)>>;
    /// The names of projects that consume an export, a few of them, and how many they are.
    async fn consumers(&self, provider: &PlaneId, export: &str) -> Result<(usize, Vec<String>)>;
    /// An export of a plane that names a schema.
    async fn export_with(&self, plane: &PlaneId, schema: &str) -> Result<Option<String>>;
    /// The schemas among these that a plane does not have.
    async fn missing(&self, plane: &PlaneId, schemas: Vec<String>) -> Result<Vec<String>>;
}

fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(object: &'a Value, path: &str) -> &'a [Value] {
    object.pointer(path).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// Where an object of a kind of the group is kept.
fn api_path(resource: &str, name: &str) -> ObjectPath {
    ObjectPath {
        group: GROUP.to_owned(),
        resource: resource.to_owned(),
        namespace: None,
        name: name.to_owned(),
    }
}

/// A condition, with the time of the last change of its status.
fn condition(
    old: Option<&Value>,
    kind: &str,
    (status, reason, message): (bool, &str, &str),
    generation: &Value,
) -> Value {
    let status = if status { "True" } else { "False" };
    let before = old.and_then(|old| list(old, "/status/conditions").iter().find(|c| c["type"] == kind));
    let since =
        before.filter(|before| before["status"] == status).map(|before| before["lastTransitionTime"].clone());
    json!({
        "type": kind, "status": status, "reason": reason, "message": message, "observedGeneration": generation,
        "lastTransitionTime": since.unwrap_or_else(|| freehold_apiserver_operation::now().into()),
    })
}

impl Registry {
    fn exports(&self) -> Result<&Arc<dyn Exports>> {
        self.exports.as_ref().ok_or_else(Status::no_such_resource)
    }

    /// Fills in what the server says of an object of `apis.freehold.dev`.
    pub(crate) async fn settle_api(
        &self,
        op: &Operation,
        draft: &mut Value,
        old: Option<&Value>,
    ) -> Result<()> {
        match op.ty.plural.as_str() {
            "apiresourceschemas" => check_schema(op, draft, old),
            "apiexports" => self.settle_export(op, draft, old).await,
            "apibindings" => self.settle_binding(op, draft, old).await,
            "apirollouts" => self.settle_rollout(op, draft, old).await,
            _ => Ok(()),
        }
    }

    /// Refuses a definition whose type the plane has from a binding.
    pub(crate) fn check_unbound(op: &Operation, definition: &Value) -> Result<()> {
        let (group, plural) = (text(definition, "/spec/group"), text(definition, "/spec/names/plural"));
        match op.types.by_resource(group, plural) {
            Some(ty) if ty.since > 0 => {
                let why = "an APIBinding of this control plane serves that resource";
                Err(Status::conflict(&op.ty.group_resource(), op.name(), why))
            }
            _ => Ok(()),
        }
    }

    async fn settle_export(&self, op: &Operation, draft: &mut Value, old: Option<&Value>) -> Result<()> {
        let exports = self.exports()?;
        let names =
            list(draft, "/spec/schemas").iter().filter_map(Value::as_str).map(str::to_owned).collect();
        let missing = exports.missing(&op.plane, names).await?;
        consent::check_defaults(op, draft)?;
        bundle::check(op, draft, old)?;
        let used = match old {
            Some(old) => self.check_change(op, draft, old).await?,
            None => None,
        };
        let found = match missing.first() {
            None => (true, "Ready", String::new()),
            Some(name) => (false, "SchemaNotFound", format!("there is no APIResourceSchema {name:?}")),
        };
        let generation = draft["metadata"]["generation"].clone();
        let condition = condition(old, "Ready", (found.0, found.1, &found.2), &generation);
        let project = self.ledger.tenancy().owner(&op.plane).map(|owner| owner.project);
        let view = project.map(|project| format!("/services/apiexports/{project}/{}", op.name()));
        draft["status"] =
            json!({"identity": exports.identity(&op.plane, op.name()), "conditions": [condition]});
        if let Some(view) = view {
            draft["status"]["view"] = view.into();
        }
        if let Some(used) = used {
            draft["status"]["breakingChange"] = used.into();
        }
        let terms = exports.terms_digest(text(draft, "/spec/terms"));
        if !terms.is_empty() {
            draft["status"]["terms"] = terms.into();
        }
        Ok(())
    }

    async fn settle_binding(&self, op: &Operation, draft: &mut Value, old: Option<&Value>) -> Result<()> {
        let exports = self.exports()?;
        self.check_own_binding(op, old)?;
        let Some(owner) = self.ledger.tenancy().owner(&op.plane) else {
            return Err(Status::forbidden(
                &op.ty.group_resource(),
                op.name(),
                "only projects consume exports",
            ));
        };
        let (project, name) = (text(draft, "/spec/export/project"), text(draft, "/spec/export/name"));
        let labels = &draft["metadata"]["labels"];
        let seeker = Seeker { plane: &op.plane, organization: &owner.organization, labels };
        let found = exports.find(project, name, seeker).await?;
        let known = old.map(|old| (text(old, "/status/plane"), text(old, "/status/proof")));
        let known = known.filter(|(plane, proof)| exports.is_proved(&op.plane, plane, name, proof));
        // Who was let in once stays so, in the plane of that time.
        let kept = known.map(|(plane, proof)| (plane.to_owned(), proof.to_owned()));
        let found =
            found.filter(|found| kept.as_ref().is_none_or(|(plane, _)| *plane == *found.plane.as_str()));
        let proved = match (&kept, &found) {
            (Some(kept), _) => Some(kept.clone()),
            (None, Some(found)) if self.may_bind(op, found, name).await? => {
                if let Some(why) = consent::unaccepted(draft, found) {
                    let unaccepted = (false, "TermsNotAccepted", why.as_str());
                    draft["status"] = statuses(draft, old, &[unaccepted, unaccepted]);
                    return Ok(());
                }
                let proof =
                    exports.prove(&op.plane, &found.plane, name).ok_or_else(Status::no_such_resource)?;
                Some((found.plane.to_string(), proof))
            }
            (None, _) => None,
        };
        let (Some((plane, proof)), true) = (proved, found.is_some() || old.is_some()) else {
            if old.is_none() {
                let why = format!("project {project:?} has no such export, or it may not be bound here");
                return Err(Status::forbidden(&GroupResource::new(GROUP, "apiexports"), name, &why));
            }
            let refused = (
                false,
                "NotAllowed",
                "nobody who may bind the export has bound it here; write the binding again as such a user",
            );
            draft["status"] = statuses(draft, old, &[refused, refused]);
            return Ok(());
        };
        let defaults = match (&kept, &found) {
            (None, Some(found)) => consent::defaults(draft, &found.defaults),
            _ => old
                .map(|old| consent::defaults(draft, list(old, "/status/defaultClaims")))
                .unwrap_or_default(),
        };
        let bound = match &found {
            None => (false, "ExportNotFound", "the export is gone".to_owned()),
            Some(found) => outcome(op, found),
        };
        let ready = match &found {
            Some(found) if bound.0 => answered(draft, found, &defaults),
            _ => (false, bound.1, bound.2.clone()),
        };
        let mut status = statuses(draft, old, &[(bound.0, bound.1, &bound.2), (ready.0, ready.1, &ready.2)]);
        status["plane"] = plane.clone().into();
        status["proof"] = proof.into();
        let identity = plane.parse().map(|plane: PlaneId| exports.identity(&plane, name)).unwrap_or_default();
        status["identity"] = identity.into();
        let pending = found.as_ref().map(|found| pending(draft, found, &defaults)).unwrap_or_default();
        if !pending.is_empty() {
            status["pendingClaims"] = pending.into();
        }
        status["schemas"] = match &found {
            Some(found) => bound_schemas(&found.types),
            None => old.map(|old| list(old, "/status/schemas").to_vec()).unwrap_or_default().into(),
        };
        if !defaults.is_empty() {
            status["defaultClaims"] = defaults.into();
        }
        draft["status"] = status;
        Ok(())
    }

    /// Whether the author of a request may bind an export: projects of their organization may, or they have the right in the
    /// provider's project. Identities of another plane mean nothing there.
    async fn may_bind(&self, op: &Operation, found: &FoundExport, name: &str) -> Result<bool> {
        if found.is_open {
            return Ok(true);
        }
        let user = &*op.user;
        if user.from_host || user.plane.as_ref().is_some_and(|home| *home != found.plane) {
            return Ok(false);
        }
        if user.is_in(MASTERS) {
            return Ok(true);
        }
        let asked = Attributes { name, ..Attributes::resource(user, "bind", GROUP, "apiexports") };
        Ok(self.policies.access(&found.plane).await?.authorize(&asked).allowed)
    }

    /// Refuses to delete what others rest on.
    pub(crate) async fn check_api_deletion(
        &self,
        op: &Operation,
        (live, own): (&Value, Seen),
        options: &DeleteOptions,
    ) -> Result<()> {
        if crate::predicates::is_class(&op.ty) {
            return self.check_class_deletion(op, live).await;
        }
        if op.ty.group != GROUP || !op.ty.custom || self.exports.is_none() {
            return Ok(());
        }
        let refuse = |why: String| Err(Status::conflict(&op.ty.group_resource(), op.name(), &why));
        match op.ty.plural.as_str() {
            "apiresourceschemas" => {
                if let Some(export) = self.exports()?.export_with(&op.plane, op.name()).await? {
                    return refuse(format!("APIExport {export:?} names it"));
                }
                match self.exports()?.rollout_with(&op.plane, op.name()).await? {
                    Some(rollout) => refuse(format!("APIRollout {rollout:?} names it")),
                    None => Ok(()),
                }
            }
            "apirollouts" => self.check_rollout_deletion(op, live),
            "apiexports" if meta::annotation(live, KEEP_OBJECTS) != Some("true") => {
                match self.exports()?.consumers(&op.plane, op.name()).await? {
                    (0, _) => Ok(()),
                    (count, some) => refuse(format!(
                        "{count} projects consume it ({}): their objects would be out of reach; to keep them so, annotate it with {KEEP_OBJECTS}=true",
                        some.join(", ")
                    )),
                }
            }
            "apibindings" => {
                class::check_below(op, live, own)?;
                self.check_binding_deletion(op, live, options).await
            }
            _ => Ok(()),
        }
    }

    async fn check_binding_deletion(
        &self,
        op: &Operation,
        live: &Value,
        options: &DeleteOptions,
    ) -> Result<()> {
        let policy = text(live, "/spec/objects");
        if policy == "Keep" {
            return Ok(());
        }
        let refuse = |why: String| Err(Status::conflict(&op.ty.group_resource(), op.name(), &why));
        for schema in list(live, "/status/schemas") {
            let (group, resource) = (text(schema, "/group"), text(schema, "/resource"));
            let stored = match text(live, "/status/identity") {
                "" => resource.to_owned(),
                identity => format!("{resource}:{identity}"),
            };
            let request = ListRequest { plane: &op.plane, group, resource: &stored, namespace: None };
            let objects = self.cache.list(request).await?.objects;
            let Some(one) = objects.first() else { continue };
            if policy != "Delete" {
                return refuse(format!(
                    "there are {} objects of {resource}.{group}, {:?} among them: delete them, or set spec.objects to Delete or Keep",
                    objects.len(),
                    one.name()
                ));
            }
            let Some(ty) = op.types.by_resource(group, resource).filter(|ty| ty.storage.resource == stored)
            else {
                return refuse(format!(
                    "{resource}.{group} is not served any more: set spec.objects to Keep"
                ));
            };
            for entry in &objects {
                let namespace = Some(entry.namespace().to_owned()).filter(|namespace| !namespace.is_empty());
                let name = Some(entry.name().to_owned());
                let one = Operation { ty: ty.clone(), namespace, name, subresource: None, ..op.clone() };
                match Box::pin(self.delete_unasked(&one, options)).await {
                    Err(status) if !status.is_not_found() => return Err(status),
                    _ => {}
                }
            }
            self.cache.catch_up().await?;
            let left = self.cache.list(request).await?.objects.len();
            if left > 0 && !options.dry_run {
                return refuse(format!(
                    "{left} objects of {resource}.{group} are being deleted: their finalizers hold them; delete the binding again when they are gone"
                ));
            }
        }
        Ok(())
    }
}

/// The conditions of a binding.
fn statuses(draft: &Value, old: Option<&Value>, found: &[(bool, &str, &str); 2]) -> Value {
    let generation = &draft["metadata"]["generation"];
    let conditions: Vec<Value> =
        CONDITIONS.iter().zip(found).map(|(kind, found)| condition(old, kind, *found, generation)).collect();
    json!({"conditions": conditions})
}

/// Whether the plane serves what an export has.
fn outcome(op: &Operation, found: &FoundExport) -> (bool, &'static str, String) {
    if let Some(name) = found.missing.first() {
        return (
            false,
            "SchemaNotFound",
            format!("the export names APIResourceSchema {name:?}, which is not there"),
        );
    }
    let taken = found.types.iter().find(|ty| {
        let own = op.types.by_resource(&ty.group, &ty.plural);
        // Objects of a kind of the platform are stored as those of a definition.
        own.is_some_and(|own| own.since == 0 || own.storage.resource != ty.storage.resource)
    });
    match taken {
        None => (true, "Bound", String::new()),
        Some(ty) => {
            let own = op.types.by_resource(&ty.group, &ty.plural);
            let by = match own {
                Some(own) if own.since > 0 => "another APIBinding",
                Some(own) if own.custom => "a CustomResourceDefinition of this control plane",
                _ => "Kubernetes itself",
            };
            (false, "NamingConflict", format!("{}.{} is served by {by}", ty.plural, ty.group))
        }
    }
}

/// The claims of an export that a binding neither accepts nor rejects.
fn pending(draft: &Value, found: &FoundExport, defaults: &[Value]) -> Vec<Value> {
    let answers = ["/spec/acceptedClaims", "/spec/rejectedClaims"].map(|path| list(draft, path));
    let is_answered = |claim: &Value| {
        let same = |one: &Value, path| text(one, path) == text(claim, path);
        answers
            .iter()
            .flat_map(|claims| claims.iter())
            .chain(defaults)
            .any(|one| same(one, "/group") && same(one, "/resource"))
    };
    found.claims.iter().filter(|claim| !is_answered(claim)).cloned().collect()
}

/// Whether every claim of an export was accepted or rejected.
fn answered(draft: &Value, found: &FoundExport, defaults: &[Value]) -> (bool, &'static str, String) {
    if let Some(why) = consent::unaccepted(draft, found) {
        return (false, "TermsChanged", why);
    }
    match pending(draft, found, defaults).first() {
        None => (true, "Ready", String::new()),
        Some(claim) => {
            let (group, resource) = (text(claim, "/group"), text(claim, "/resource"));
            let of = if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") };
            (
                false,
                "ClaimsPending",
                format!("the export claims {of}, which is neither accepted nor rejected"),
            )
        }
    }
}

/// The kinds that a binding brings, one entry for each resource, as its status has them.
pub fn bound_schemas(types: &[Arc<ResourceType>]) -> Value {
    let mut all: Vec<Value> = Vec::new();
    for ty in types {
        let one = json!({"group": ty.group, "resource": ty.plural, "schema": ty.hash.split(':').next().unwrap_or_default()});
        if !all.iter().any(|known| known["group"] == one["group"] && known["resource"] == one["resource"]) {
            all.push(one);
        }
    }
    all.into()
}

/// 422 for a schema that can't be served, or that changes.
fn check_schema(op: &Operation, draft: &Value, old: Option<&Value>) -> Result<()> {
    let invalid = |errors: &[_]| Err(Status::invalid(&op.ty.group, &op.ty.kind, op.name(), errors));
    if let Some(old) = old {
        if old["spec"] == draft["spec"] {
            return Ok(());
        }
        let why = "a schema never changes: create another one, and name it in the export";
        return invalid(&[FieldError::forbidden("spec", why)]);
    }
    let definition = crd::definition_of(&draft["spec"]);
    let mut errors = crd::validate(&definition);
    errors.extend(freehold_machinery_cel::check_crd(&definition, None, &errors));
    for (nth, version) in list(draft, "/spec/versions").iter().enumerate() {
        if let Err((field, why)) = crd::references::references(&version["schema"]["openAPIV3Schema"]) {
            let at = format!("spec.versions[{nth}].schema.openAPIV3Schema");
            errors.push(FieldError::invalid(at, field.into(), format!("x-freehold-reference: {why}")));
        }
    }
    if errors.is_empty() { Ok(()) } else { invalid(&errors) }
}
