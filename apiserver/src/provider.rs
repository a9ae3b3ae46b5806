//! A provider's view: the planes that consume an export, all at once or one, with the export's types and what each consumer
//! accepted of its claims.
//!
//! The provider's project decides who uses the view; each consumer decides, by its binding, what the view shows of it.

use crate::local::LocalBackend;
use crate::view::annotating;
use freehold_api::keys;
use freehold_apiserver_cache::{Annotations, Entry};
use freehold_apiserver_catalog::TypeSet;
use freehold_apiserver_planes::{
    Consumers, Planes, ProviderScope, Target,
    apis::{Binding, Claim, Export},
};
use freehold_apiserver_registry::{Across, Object, Operation, Patch, Versions, View, WriteOptions};
use freehold_machinery::{GroupResource, PlaneId, ResourceType, Result, Status, User, Value, meta};
use std::sync::Arc;

/// How the users of providers are called in consumers' planes; nobody authenticates under such a name.
const PROVIDER: &str = "system:freehold:provider:";
/// The extra key with the name of who acted for the provider.
const ACTOR: &str = "apis.freehold.dev/user";
/// The annotation in which clients of kcp look for the cluster of an object, as `/clusters/<name>` takes it.
const KCP_CLUSTER: &str = "kcp.io/cluster";
/// Verbs that act on many objects at once, or on connections: no claim is about those.
const UNCLAIMED: [&str; 2] = ["deletecollection", "connect"];

/// Whether a type is one of the export's own.
fn is_exported(export: &Export, ty: &ResourceType) -> bool {
    ty.since > 0
        && ty.storage.resource.rsplit_once(':').is_some_and(|(_, identity)| *identity == *export.identity)
}

/// The resource of an operation as claims name it.
fn resource(op: &Operation) -> String {
    match &op.subresource {
        None => op.ty.plural.clone(),
        Some(subresource) => format!("{}/{subresource}", op.ty.plural),
    }
}

/// What of a type a consumer lets its provider at; `None` for all of it. 403 for nothing.
fn granted(export: &Export, binding: &Binding, op: &Operation, verb: &str) -> Result<Option<Vec<Claim>>> {
    if is_exported(export, &op.ty) && verb != "connect" {
        return Ok(None);
    }
    let claims = match UNCLAIMED.contains(&verb) {
        true => Vec::new(),
        false => binding.granted(export, verb, &op.ty.group, &resource(op)),
    };
    if claims.is_empty() {
        let why =
            format!("the consumer has not accepted a claim of APIExport {:?} to {verb} it", export.name);
        return Err(Status::forbidden(&op.ty.group_resource(), op.name.as_deref().unwrap_or_default(), &why));
    }
    Ok(Some(claims))
}

/// 403 for a kind of Kubernetes that the view does not show, because nobody claims or accepts it.
pub(crate) fn withheld(scope: &ProviderScope, resource: &GroupResource, verb: &str) -> Option<Status> {
    let export = scope.check_exists().ok()?;
    TypeSet::builtin().by_resource(&resource.group, &resource.resource)?;
    let is_about = |claim: &&Claim| {
        claim.0.group == resource.group && claim.0.resource.split('/').next() == Some(&resource.resource)
    };
    let claim = format!("a claim of APIExport {:?} to {verb} it", export.name);
    let why = match (export.claims.iter().find(is_about), &scope.consumers) {
        (None, _) => format!("APIExport {:?} does not claim it", export.name),
        (Some(_), Consumers::All) => format!("no consumer has accepted {claim}"),
        (Some(_), _) => format!("the consumer has not accepted {claim}"),
    };
    Some(Status::forbidden(resource, "", &why))
}

fn selects(claims: &[Claim], object: &Value) -> bool {
    claims.iter().any(|claim| claim.selects(meta::name(object), |key| meta::label(object, key)))
}

/// The operation in the one plane that it is about.
///
/// # Errors
/// 403 for what the consumer has not accepted, 405 for a write over all consumers.
pub(crate) async fn in_one(
    backend: &LocalBackend,
    scope: &ProviderScope,
    op: Operation,
    verb: &str,
) -> Result<Operation> {
    let export = scope.check_exists()?;
    let by = op.user.name.clone();
    let Consumers::One(plane) = &scope.consumers else {
        return Err(Status::method_not_allowed(&op.ty.group_resource(), verb));
    };
    let planes = &backend.planes;
    if let Some(suspended) = planes.suspended(plane).await {
        return Err(suspended);
    }
    let not_found = || Status::not_found(&op.ty.group_resource(), plane.as_str());
    let binding = planes.apis().binding(plane, export).ok_or_else(not_found)?;
    let claims = granted(export, &binding, &op, verb)?;
    let types = planes.types_of(plane).await?;
    let served = types.find(&op.ty.group, &op.ty.version, &op.ty.plural);
    // Where a definition of the consumer's has the name, its objects are not the export's.
    let Some(ty) = served.filter(|served| served.storage == op.ty.storage).cloned() else {
        return Err(Status::no_such_resource());
    };
    let op = Operation { ty, plane: plane.clone(), types, user: Arc::new(actor(scope, &op.user)), ..op };
    if let Some(claims) = claims.filter(|_| verb != "create") {
        let whole = Operation { subresource: None, ..op.clone() };
        let object = backend.registry.get(&whole, "").await?.value();
        if !selects(&claims, &object) {
            return Err(unselected(export, &op));
        }
        check_identity(&op, verb, &object)?;
    }
    let done = (verb, &*op.ty.group, &*resource(&op));
    planes.apis().note_access(&export.identity, Some(&op.plane), done, &by);
    Ok(op)
}

/// Secrets that make whoever reads them somebody in the plane: a controller fills the one with a token of any account that it
/// names, and the other is a credential as it stands.
const IDENTITIES: [&str; 2] = ["kubernetes.io/service-account-token", "bootstrap.kubernetes.io/token"];

/// A provider hands out no identities of the consumer's plane: what is done with them would pass its view by, and go on when
/// the binding is gone. The type of a Secret never changes.
fn check_identity(op: &Operation, verb: &str, object: &Value) -> Result<()> {
    let is_secret = op.ty.group.is_empty() && op.ty.plural == "secrets";
    let is_identity = || object["type"].as_str().is_some_and(|named| IDENTITIES.contains(&named));
    if !is_secret || !matches!(verb, "create" | "update" | "patch") || !is_identity() {
        return Ok(());
    }
    let why = "a provider writes no Secrets with identities of the consumer's control plane";
    Err(Status::forbidden(&op.ty.group_resource(), meta::name(object), why))
}

fn unselected(export: &Export, op: &Operation) -> Status {
    let why = format!("it is not among the objects that the consumer lets APIExport {:?} at", export.name);
    Status::forbidden(&op.ty.group_resource(), op.name.as_deref().unwrap_or_default(), &why)
}

/// Checks an object that is to be made, or put in the place of another: it has to be one that the claims are about.
///
/// # Errors
/// 403 for any other.
pub(crate) fn check_body(
    planes: &Planes,
    scope: &ProviderScope,
    op: &Operation,
    verb: &str,
    body: &Value,
) -> Result<()> {
    let export = scope.check_exists()?;
    let Some(binding) = planes.apis().binding(&op.plane, export) else { return Err(op_gone(op)) };
    match granted(export, &binding, op, verb)? {
        Some(claims) if !selects(&claims, body) => Err(unselected(export, op)),
        Some(_) => check_identity(op, verb, body),
        None => Ok(()),
    }
}

/// Checks what a patch would make of an object, as [`check_body`] checks an update. Admission is asked with the patch itself.
///
/// # Errors
/// 403 for what the claims are not about, and what the patch itself is refused for.
pub(crate) async fn check_patch(
    backend: &LocalBackend,
    scope: &ProviderScope,
    op: &Operation,
    patch: &Patch,
    options: &WriteOptions,
) -> Result<()> {
    if op.subresource.is_some() || is_exported(scope.check_exists()?, &op.ty) {
        return Ok(());
    }
    let preview = WriteOptions { dry_run: true, admitted: true, ..options.clone() };
    let made = backend.registry.patch(op, patch, &preview).await?;
    check_body(&backend.planes, scope, op, "patch", &made.object.value())
}

fn op_gone(op: &Operation) -> Status {
    Status::not_found(&op.ty.group_resource(), op.name.as_deref().unwrap_or_default())
}

/// Who a provider's user is in a consumer's plane: nobody's member there, with no rights to hand on.
fn actor(scope: &ProviderScope, user: &User) -> User {
    User {
        name: format!("{PROVIDER}{}:{}", scope.project, scope.name),
        extra: [(ACTOR.to_owned(), vec![user.name.clone()])].into(),
        ..User::default()
    }
}

/// What a list or watch shows: objects of consumers, as far as they accept it.
///
/// # Errors
/// 403 where no consumer has accepted it, 404 without an export.
pub(crate) async fn across(
    planes: &Arc<Planes>,
    scope: &ProviderScope,
    op: &Operation,
    verb: &str,
) -> Result<Across> {
    let export = scope.check_exists()?.clone();
    let only = match &scope.consumers {
        Consumers::One(plane) => Some(plane.clone()),
        _ => None,
    };
    let accepts = |plane: &PlaneId| {
        let binding = planes.apis().binding(plane, &export)?;
        granted(&export, &binding, op, verb).ok().map(|_| plane.clone())
    };
    let named = match &only {
        Some(plane) => {
            if let Some(suspended) = planes.suspended(plane).await {
                return Err(suspended);
            }
            let binding = planes.apis().binding(plane, &export).ok_or_else(|| op_gone(op))?;
            granted(&export, &binding, op, verb)?;
            Some(vec![plane.clone()])
        }
        // Objects of the export are found by its identity, wherever they are.
        None if is_exported(&export, &op.ty) => None,
        None => {
            let accepting: Vec<PlaneId> =
                planes.apis().consumers(&export).iter().filter_map(accepts).collect();
            if accepting.is_empty() {
                let why =
                    format!("no consumer has accepted a claim of APIExport {:?} to {verb} it", export.name);
                return Err(Status::forbidden(&op.ty.group_resource(), "", &why));
            }
            Some(accepting)
        }
    };
    let done = (verb, &*op.ty.group, &*resource(op));
    planes.apis().note_access(&export.identity, only.as_ref(), done, &op.user.name);
    let iam = planes.people().iam().await.clone();
    let (op, verb, all) = (op.clone(), verb.to_owned(), planes.clone());
    let name =
        format!("export {}/{} {}", scope.plane, scope.name, only.as_ref().map_or("*", PlaneId::as_str));
    let view = move |plane: &PlaneId| {
        if only.as_ref().is_some_and(|only| only != plane) {
            return None;
        }
        let info = all.directory().by_plane(plane)?;
        if info.suspended.is_some() || iam.read().suspended(&info.organization).is_some() {
            return None;
        }
        let binding = all.apis().binding(plane, &export)?;
        let claims = granted(&export, &binding, &op, &verb).ok()?;
        let annotations = Annotations::new(&[
            (keys::PLANE_ANNOTATION, plane.as_str()),
            (keys::PROJECT, &*info.name),
            (KCP_CLUSTER, &*info.name),
        ]);
        Some(annotating(annotations, move |object| {
            claims.as_ref().is_none_or(|claims| shows(claims, object))
        }))
    };
    // The objects of all consumers are the provider's to see, and so its webhook's to convert.
    Ok(Across { planes: named, view: View::new(&name, view), versions: Versions::OfType })
}

/// Whether claims are about an object. Most are about all of a type, and need not look at it.
fn shows(claims: &[Claim], object: &Object) -> bool {
    let is_all = |claim: &Claim| claim.0.names.is_empty() && claim.0.labels.is_empty();
    let of_entry = |entry: &Entry| {
        let by_name = |claim: &Claim| claim.0.labels.is_empty() && claim.selects(entry.name(), |_| None);
        claims.iter().any(by_name) || selects(claims, &entry.value())
    };
    claims.iter().any(is_all)
        || match object {
            Object::Cached(entry) => of_entry(entry),
            other => selects(claims, &other.value()),
        }
}

/// Checks that a watch of a provider can begin behind a revision.
///
/// # Errors
/// 410 where a consumer has gone or taken something back since: there is no event of what the provider may not see any more.
pub(crate) fn check_since(planes: &Planes, target: &Target, since: &str) -> Result<()> {
    let Target::Provider(scope) = target else { return Ok(()) };
    let Some(since) = since.parse::<u64>().ok().filter(|since| *since > 0) else { return Ok(()) };
    let restricted = planes.apis().restricted(scope.check_exists()?);
    if since >= restricted {
        return Ok(());
    }
    Err(Status::expired(format!("too old resource version: {since} ({restricted})")))
}
