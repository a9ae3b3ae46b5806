//! Reviews: questions about identity and permission, asked by creating an object that is nowhere kept.

use crate::{call::Call, dispatch, identity, negotiate, respond, respond::Reply};
use freehold_apiserver_authn::review::user_info;
use freehold_apiserver_authz::{access_review_attributes, access_review_status};
use freehold_apiserver_registry::Operation;
use freehold_machinery::{ResourceType, Status, User, Value, meta, status::FieldError};
use hyper::body::Incoming;
use serde_json::json;
use std::collections::BTreeMap;

/// The kinds of review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Review {
    SelfSubjectAccess,
    SubjectAccess,
    LocalSubjectAccess,
    SelfSubjectRules,
    SelfSubject,
    Token,
}

const REVIEWS: [(&str, &str, Review); 6] = [
    ("authorization.k8s.io", "selfsubjectaccessreviews", Review::SelfSubjectAccess),
    ("authorization.k8s.io", "subjectaccessreviews", Review::SubjectAccess),
    ("authorization.k8s.io", "localsubjectaccessreviews", Review::LocalSubjectAccess),
    ("authorization.k8s.io", "selfsubjectrulesreviews", Review::SelfSubjectRules),
    ("authentication.k8s.io", "selfsubjectreviews", Review::SelfSubject),
    ("authentication.k8s.io", "tokenreviews", Review::Token),
];

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
    let mut object = dispatch::object_body(call, op, body).await?.value;
    check_kind(&op.ty, &object)?;
    let status = match review {
        Review::SelfSubject => json!({"userInfo": user_info(&call.user)}),
        Review::Token => token(call, &object).await?,
        Review::SelfSubjectRules => rules(call, &object).await?,
        Review::SelfSubjectAccess => access(call, op, &object["spec"], &call.user).await?,
        Review::SubjectAccess => access(call, op, &object["spec"], &subject(op, &object["spec"])?).await?,
        Review::LocalSubjectAccess => {
            check_namespace(op, &object)?;
            access(call, op, &object["spec"], &subject(op, &object["spec"])?).await?
        }
    };
    meta::metadata_mut(&mut object).entry("creationTimestamp").or_insert(Value::Null);
    object["kind"] = op.ty.kind.clone().into();
    object["apiVersion"] = op.ty.api_version().into();
    object["status"] = status;
    respond::value(accepted, 201, &object)
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

async fn access(call: &Call<'_>, op: &Operation, spec: &Value, user: &User) -> Result<Value, Status> {
    let attributes = access_review_attributes(&op.ty.kind, spec, user)?;
    let decision = call.edge.backend.authorize(&call.target, &attributes).await;
    Ok(match decision {
        Ok(decision) => access_review_status(&decision),
        Err(status) => json!({"allowed": false, "evaluationError": status.message}),
    })
}

/// The user that an access review asks about. An identity in a review is bound to the plane that is asked.
fn subject(op: &Operation, spec: &Value) -> Result<User, Status> {
    let strings = |v: &Value| -> Vec<String> {
        v.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let text = |field: &str| spec[field].as_str().unwrap_or("").to_owned();
    let extra: BTreeMap<String, Vec<String>> = spec["extra"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(k, v)| (k.to_lowercase(), strings(v)))
        .collect();
    let user =
        User { name: text("user"), uid: text("uid"), groups: strings(&spec["groups"]), extra, plane: None };
    if user.name.is_empty() && user.groups.is_empty() {
        let error =
            FieldError::invalid("spec.user", "".into(), "at least one of user or group must be specified");
        return Err(Status::invalid(&op.ty.group, &op.ty.kind, "", &[error]));
    }
    Ok(user)
}

fn check_namespace(op: &Operation, object: &Value) -> Result<(), Status> {
    let asked = object["spec"]["resourceAttributes"]["namespace"].as_str().unwrap_or("");
    if Some(asked) == op.namespace.as_deref() {
        return Ok(());
    }
    let detail = "must match metadata.namespace";
    let error = FieldError::invalid("spec.resourceAttributes.namespace", asked.into(), detail);
    Err(Status::invalid(&op.ty.group, &op.ty.kind, "", &[error]))
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
    call.edge.backend.review_token(&identity::plane_of(Some(&call.target)), &object["spec"]).await
}
