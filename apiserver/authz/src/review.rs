//! Access reviews: questions about authorization, asked as objects.

use crate::{Attributes, Decision, Rule};
use freehold_machinery::{Status, User, Value};
use serde_json::json;

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or("")
}

/// What the `spec` of an access review asks, for `user`. 422 where it asks nothing, or two things.
pub fn access_review_attributes<'a>(
    kind: &str,
    spec: &'a Value,
    user: &'a User,
) -> Result<Attributes<'a>, Status> {
    use freehold_machinery::status::FieldError;
    let (resource, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    if resource.is_object() == path.is_object() {
        let field = "spec.resourceAttributes";
        let error = if resource.is_object() {
            FieldError::invalid(
                "spec.nonResourceAttributes",
                path.clone(),
                "cannot be specified in combination with resourceAttributes",
            )
        } else {
            FieldError::invalid(
                field,
                Value::Null,
                "exactly one of nonResourceAttributes or resourceAttributes must be specified",
            )
        };
        return Err(Status::invalid("authorization.k8s.io", kind, "", &[error]));
    }
    let empty = Attributes {
        user,
        verb: "",
        group: "",
        version: "",
        resource: "",
        subresource: "",
        namespace: "",
        name: "",
        path: "",
    };
    if path.is_object() {
        return Ok(Attributes { verb: text(path, "verb"), path: text(path, "path"), ..empty });
    }
    Ok(Attributes {
        verb: text(resource, "verb"),
        group: text(resource, "group"),
        version: text(resource, "version"),
        resource: text(resource, "resource"),
        subresource: text(resource, "subresource"),
        namespace: text(resource, "namespace"),
        name: text(resource, "name"),
        ..empty
    })
}

/// The `status` of an access review.
pub fn access_review_status(decision: &Decision) -> Value {
    let mut status = json!({"allowed": decision.allowed});
    if !decision.reason.is_empty() {
        status["reason"] = decision.reason.clone().into();
    }
    status
}

/// The `status` of a SelfSubjectRulesReview.
pub fn rules_review_status(rules: &[Rule]) -> Value {
    let (paths, resources): (Vec<&Rule>, Vec<&Rule>) = rules.iter().partition(|rule| !rule.paths.is_empty());
    let values = |rules: Vec<&Rule>| rules.into_iter().map(Rule::to_value).collect::<Vec<_>>();
    json!({"resourceRules": values(resources), "nonResourceRules": values(paths), "incomplete": false})
}
