//! Reviews: questions about identity and permission, asked by creating an object that is nowhere kept.

use crate::{
    bodies,
    call::Call,
    info::RequestInfo,
    negotiate,
    options::{self, Write},
    respond,
    respond::Reply,
};
use freehold_apiserver_authn::review::user_info;
use freehold_apiserver_authz::{Attributes, review};
use freehold_apiserver_planes::Target;
use freehold_apiserver_registry::Operation;
use freehold_machinery::{PlaneId, ResourceType, Status, Value, go, meta};
use freehold_machinery_patch::apply;
use hyper::body::Incoming;
use serde_json::json;

/// The kinds of review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Review {
    Access(review::Kind),
    SelfSubjectRules,
    SelfSubject,
    Token,
}

const REVIEWS: [(&str, &str, Review); 6] = [
    ("authorization.k8s.io", "selfsubjectaccessreviews", Review::Access(review::Kind::Own)),
    ("authorization.k8s.io", "subjectaccessreviews", Review::Access(review::Kind::Any)),
    ("authorization.k8s.io", "localsubjectaccessreviews", Review::Access(review::Kind::Local)),
    ("authorization.k8s.io", "selfsubjectrulesreviews", Review::SelfSubjectRules),
    ("authentication.k8s.io", "selfsubjectreviews", Review::SelfSubject),
    ("authentication.k8s.io", "tokenreviews", Review::Token),
];

/// The annotation of an access review that asks for what allows or what is missing, in words, as its reason.
const EXPLAIN: &str = "iam.freehold.dev/explain";

/// Whether a request is a question about access. Those about a dedicated plane are answered here, where all is known.
pub(crate) fn is_about_access(info: &RequestInfo) -> bool {
    info.resource.as_ref().is_some_and(|path| path.group == "authorization.k8s.io" && info.verb == "create")
}

/// Which review a resource is, if it is one.
pub(crate) fn find(ty: &ResourceType) -> Option<Review> {
    REVIEWS.iter().find(|(group, resource, _)| *group == ty.group && *resource == ty.plural).map(|r| r.2)
}

/// Answers a review: the object that was sent, with a status.
pub(crate) async fn serve(
    call: &Call<'_>,
    review: Review,
    op: &Operation,
    body: Incoming,
) -> Result<Reply, Status> {
    let accepted = negotiate::document(&call.parts.headers, call.query)?;
    let mut object = bodies::object_body(call, op, body).await?.value;
    check_kind(&op.ty, &object)?;
    if let Some(why) = op.ty.schema.get().and_then(|schema| go::mismatch(&object, schema)) {
        let (kind, version) = (&op.ty.kind, &op.ty.version);
        return Err(Status::bad_request(format!(
            "{kind} in version {version:?} cannot be handled as a {kind}: {why}"
        )));
    }
    if let Some(namespace) = &op.namespace {
        meta::set(&mut object, "namespace", namespace.clone());
    }
    let options = options::write(Write::Create, call.query, &call.parts.headers)?;
    if !object["metadata"].is_object() {
        object["metadata"] = json!({});
    }
    let warnings = call.edge.backend.admit_review(&call.target, op, &mut object, &options).await?;
    let status = match review {
        Review::SelfSubject => json!({"userInfo": user_info(&call.user)}),
        Review::Token => token(call, &object).await?,
        Review::SelfSubjectRules => rules(call, &object).await?,
        Review::Access(kind) => access(call, kind, &object).await?,
    };
    let now = freehold_machinery::time::format_seconds(jiff::Timestamp::now());
    if review == Review::SelfSubject {
        meta::set(&mut object, "creationTimestamp", now.clone());
    }
    object["kind"] = op.ty.kind.clone().into();
    object["apiVersion"] = op.ty.api_version().into();
    if let Some(map) = object.as_object_mut() {
        map.remove("status");
    }
    let api_version = op.ty.api_version();
    let manager = apply::Options {
        manager: &options.field_manager,
        force: false,
        api_version: &api_version,
        kind: &op.ty.kind,
        subresource: "",
        now: &now,
        schema: op.ty.schema.get().map(|schema| &**schema),
        reset_fields: None,
    };
    apply::update(None, &mut object, &manager);
    object["status"] = status;
    let mut reply = respond::value(accepted, 201, &object)?;
    respond::warn(&mut reply, &warnings);
    Ok(reply)
}

/// 400 for an object of another kind or version than the URL's.
fn check_kind(ty: &ResourceType, object: &Value) -> Result<(), Status> {
    let (kind, version) =
        (object["kind"].as_str().unwrap_or(""), object["apiVersion"].as_str().unwrap_or(""));
    let expected = ty.api_version();
    if (kind.is_empty() || kind == ty.kind) && (version.is_empty() || version == expected) {
        return Ok(());
    }
    let message = format!(
        "the API version in the data ({version}, Kind={kind}) does not match the expected API version ({expected}, Kind={})",
        ty.kind
    );
    Err(Status::bad_request(message))
}

async fn access(call: &Call<'_>, kind: review::Kind, object: &Value) -> Result<Value, Status> {
    review::validate(kind, object)?;
    let named = (kind != review::Kind::Own).then(|| review::subject(&object["spec"]));
    let attributes = review::attributes(&object["spec"], named.as_ref().unwrap_or(&call.user));
    let explain = object["metadata"]["annotations"][EXPLAIN] == "true";
    Ok(match call.edge.backend.authorize(&call.target, &attributes).await {
        Ok(mut decision) => {
            if explain {
                decision.reason = call.edge.backend.explain(&call.target, &attributes).await?;
            }
            if named.is_some() && !sees_platform(call).await? {
                decision.reason = review::without_platform(&decision.reason, is_project(&call.target));
            }
            review::status(&decision)
        }
        Err(status) => json!({"allowed": false, "evaluationError": status.message}),
    })
}

/// Whether a target is the plane of a project, whose ClusterRoleBindings are its own.
fn is_project(target: &Target) -> bool {
    match target {
        Target::Local(plane) => !plane.is_core(),
        Target::Dedicated(_) => true,
        _ => false,
    }
}

/// Whether the caller may read what the platform gives to others.
async fn sees_platform(call: &Call<'_>) -> Result<bool, Status> {
    let bindings =
        Attributes::resource(&call.user, "list", "rbac.authorization.k8s.io", "clusterrolebindings");
    let core = Target::Local(PlaneId::core());
    Ok(call.user.plane.is_none() && call.edge.backend.authorize(&core, &bindings).await?.allowed)
}

async fn rules(call: &Call<'_>, object: &Value) -> Result<Value, Status> {
    match object["spec"]["namespace"].as_str().unwrap_or("") {
        "" => Err(Status::bad_request("no namespace on request")),
        namespace => call.edge.backend.rules_for(&call.target, &call.user, namespace).await,
    }
}

async fn token(call: &Call<'_>, object: &Value) -> Result<Value, Status> {
    if object["spec"]["token"].as_str().unwrap_or("").is_empty() {
        return Err(Status::bad_request("token is required for TokenReview in authentication"));
    }
    call.edge.backend.review_token(&call.target, &object["spec"]).await
}
