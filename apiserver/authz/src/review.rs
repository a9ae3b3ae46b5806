//! SubjectAccessReview and its relatives
//! (<https://kubernetes.io/docs/reference/access-authn-authz/authorization/#checking-api-access>).

use crate::{
    Attributes, Decision, Policy, Rule, Selector, Selectors,
    iam::{GRANTED, SYSTEM},
};
use freehold_machinery::{Map, Status, User, Value, meta, status::FieldError, status::FieldErrorKind};
use serde_json::json;

const GROUP: &str = "authorization.k8s.io";

/// Whose access a review is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `SelfSubjectAccessReview`: the one's who asks.
    Own,
    /// `SubjectAccessReview`: that of the spec.
    Any,
    /// `LocalSubjectAccessReview`: that of the spec, in the review's own namespace.
    Local,
}

/// Checks an access review as kube-apiserver does.
///
/// # Errors
/// 422 with every invalid field.
pub fn validate(kind: Kind, review: &Value) -> Result<(), Status> {
    let spec = &review["spec"];
    let given = |field: &str| spec.get(field).is_some_and(|value| !value.is_null());
    let mut errors = Vec::new();
    match (given("resourceAttributes"), given("nonResourceAttributes")) {
        (true, true) => errors.push(FieldError::invalid(
            "spec.nonResourceAttributes",
            shown(&spec["nonResourceAttributes"]),
            "cannot be specified in combination with resourceAttributes",
        )),
        (false, false) => errors.push(FieldError::invalid(
            "spec.resourceAttributes",
            Value::Null,
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        )),
        _ => {}
    }
    let user_given =
        !text(spec, "user").is_empty() || spec["groups"].as_array().is_some_and(|g| !g.is_empty());
    if kind != Kind::Own && !user_given {
        errors.push(FieldError::invalid(
            "spec.user",
            "".into(),
            "at least one of user or group must be specified",
        ));
    }
    for field in ["fieldSelector", "labelSelector"] {
        errors.extend(selector_errors(&spec["resourceAttributes"], field));
    }
    if kind == Kind::Local {
        errors.extend(local_errors(review));
    }
    if errors.is_empty() { Ok(()) } else { Err(Status::invalid(GROUP, "", "", &errors)) }
}

/// Attributes as messages show them: by the names of the struct inside the server.
fn shown(attributes: &Value) -> Value {
    json!({"Path": text(attributes, "path"), "Verb": text(attributes, "verb")})
}

/// A selector is one text or several requirements, whose operators need not be known.
fn selector_errors(attributes: &Value, field: &str) -> Vec<FieldError> {
    let Some(selector) = attributes.get(field).filter(|selector| !selector.is_null()) else {
        return Vec::new();
    };
    let at = format!("spec.resourceAttributes.{field}");
    let raw = text(selector, "rawSelector");
    let requirements = selector["requirements"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut errors = Vec::new();
    if !raw.is_empty() && !requirements.is_empty() {
        let detail = "may not specified at the same time as requirements";
        errors.push(FieldError::invalid(format!("{at}.rawSelector"), raw.into(), detail));
    }
    if raw.is_empty() && requirements.is_empty() {
        let detail = format!("when {at} is specified, requirements or rawSelector is required");
        errors.push(FieldError::new(FieldErrorKind::Required, format!("{at}.requirements"), detail));
    }
    for (i, requirement) in requirements.iter().enumerate() {
        let at = format!("{at}.requirements[{i}]");
        let values = requirement["values"].as_array().map_or(0, Vec::len);
        match text(requirement, "operator") {
            "In" | "NotIn" if values == 0 => {
                let detail = "must be specified when `operator` is 'In' or 'NotIn'";
                errors.push(FieldError::new(FieldErrorKind::Required, format!("{at}.values"), detail));
            }
            "Exists" | "DoesNotExist" if values > 0 => {
                let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                errors.push(FieldError::new(FieldErrorKind::Forbidden, format!("{at}.values"), detail));
            }
            _ => {}
        }
        if text(requirement, "key").is_empty() && field == "fieldSelector" {
            errors.push(FieldError::new(FieldErrorKind::Required, format!("{at}.key"), "must be specified"));
        }
    }
    errors
}

fn local_errors(review: &Value) -> Option<FieldError> {
    let spec = &review["spec"];
    let namespace = text(&spec["resourceAttributes"], "namespace");
    if spec.get("nonResourceAttributes").is_some_and(|value| !value.is_null()) {
        let detail = "disallowed on this kind of request";
        return Some(FieldError::new(FieldErrorKind::Forbidden, "spec.nonResourceAttributes", detail));
    }
    (namespace != meta::namespace(review)).then(|| {
        let detail = "must match metadata.namespace";
        FieldError::invalid("spec.resourceAttributes.namespace", namespace.into(), detail)
    })
}

/// The user that the spec of a SubjectAccessReview or LocalSubjectAccessReview names.
pub fn subject(spec: &Value) -> User {
    let strings = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let extra =
        spec["extra"].as_object().into_iter().flatten().filter(|(key, _)| key.to_lowercase() != GRANTED);
    User {
        name: text(spec, "user").to_owned(),
        uid: text(spec, "uid").to_owned(),
        groups: strings(&spec["groups"]),
        extra: extra.map(|(key, values)| (key.to_lowercase(), strings(values))).collect(),
        is_subject: true,
        ..User::default()
    }
}

/// A decision's reason without the bindings of the platform, whose names and roles are not for every caller. In a project
/// ClusterRoleBindings are the project's own.
pub fn without_platform(reason: &str, in_project: bool) -> String {
    let platforms = format!("PolicyBinding {:?}", format!("{SYSTEM}/"));
    let platforms = platforms.trim_end_matches('"');
    let is_platforms =
        |line: &&str| line.contains(platforms) || !in_project && line.contains("ClusterRoleBinding");
    let (hidden, shown): (Vec<&str>, Vec<&str>) = reason.lines().partition(is_platforms);
    match (hidden.is_empty(), shown.is_empty()) {
        (true, _) => reason.to_owned(),
        (false, true) => "allowed by the platform".to_owned(),
        (false, false) => shown.join("\n"),
    }
}

/// What the spec of any access review asks, for `user`.
pub fn attributes<'a>(spec: &'a Value, user: &'a User) -> Attributes<'a> {
    let Some(asked) = spec.get("resourceAttributes").filter(|asked| !asked.is_null()) else {
        let asked = &spec["nonResourceAttributes"];
        return Attributes::path(user, text(asked, "verb"), text(asked, "path"));
    };
    Attributes {
        user,
        verb: text(asked, "verb"),
        group: text(asked, "group"),
        version: text(asked, "version"),
        resource: text(asked, "resource"),
        subresource: text(asked, "subresource"),
        namespace: text(asked, "namespace"),
        name: text(asked, "name"),
        path: "",
        selectors: Selectors {
            fields: Selector::of_review(&asked["fieldSelector"]),
            labels: Selector::of_review(&asked["labelSelector"]),
        },
    }
}

/// The `status` of an access review.
pub fn status(decision: &Decision) -> Value {
    let mut status = json!({"allowed": decision.allowed});
    if decision.denied {
        status["denied"] = true.into();
    }
    if !decision.reason.is_empty() {
        status["reason"] = decision.reason.clone().into();
    }
    status
}

/// Computes the `status` of a SelfSubjectRulesReview from ClusterRoleBindings and the RoleBindings of a namespace
/// (empty: none).
///
/// # Errors
/// 400 where the spec names no namespace.
pub fn rules(policy: &Policy, user: &User, spec: &Value, namespace: &str) -> Result<Value, Status> {
    if text(spec, "namespace").is_empty() {
        return Err(Status::bad_request("no namespace on request"));
    }
    let (rules, errors) = policy.rules_for(user, namespace);
    // Bindings of a namespace give no paths.
    let (everywhere, _) = policy.rules_for(user, "");
    let mut status = json!({"resourceRules": [], "nonResourceRules": [], "incomplete": false});
    add_rules(&mut status, &rules, &everywhere);
    if !errors.is_empty() {
        status["evaluationError"] = errors.join(", ").into();
    }
    Ok(status)
}

/// Adds what a user holds in the namespace, and of what they hold everywhere the paths.
pub(crate) fn add_rules(status: &mut Value, rules: &[Rule], everywhere: &[Rule]) {
    let pick = |fields: &[&str], rule: Value| -> Value {
        let Value::Object(map) = rule else { return rule };
        Value::Object(map.into_iter().filter(|(name, _)| fields.contains(&name.as_str())).collect::<Map>())
    };
    let resources = rules.iter().filter(|rule| !rule.resources.is_empty());
    let resources =
        resources.map(|rule| pick(&["verbs", "apiGroups", "resources", "resourceNames"], rule.to_value()));
    let paths = everywhere.iter().filter(|rule| !rule.urls.is_empty());
    let paths = paths.map(|rule| pick(&["verbs", "nonResourceURLs"], rule.to_value()));
    let mut add = |field: &str, rules: Vec<Value>| {
        if let Some(list) = status[field].as_array_mut() {
            list.extend(rules);
        }
    };
    add("resourceRules", resources.collect());
    add("nonResourceRules", paths.collect());
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_names_no_binding_of_the_platform() {
        let platforms = "IAM: allowed by PolicyBinding \"freehold-system/ops\" of Role \"freehold-system/viewer\" to User \"bob\"";
        let cluster = "RBAC: allowed by ClusterRoleBinding \"ops\" of ClusterRole \"view\" to User \"bob\"";
        let own = "IAM: allowed by PolicyBinding \"organization-acme/ops\" of Role \"freehold-system/viewer\" to User \"bob\"";
        for (reason, in_project, expected) in [
            (platforms, true, "allowed by the platform"),
            (cluster, false, "allowed by the platform"),
            (cluster, true, cluster),
            (own, false, own),
            ("", false, ""),
        ] {
            assert_eq!(without_platform(reason, in_project), expected);
        }
        assert_eq!(
            without_platform(&format!("nothing allows it:\n{platforms}\n{own}"), false),
            format!("nothing allows it:\n{own}")
        );
    }
}
