//! Options of the verbs, from the query or the body, checked as kube-apiserver checks them.

use crate::query::Query;
use freehold_apiserver_registry::{DeleteOptions, FieldValidation, ListOptions, WatchOptions, WriteOptions};
use freehold_machinery::{
    Status, Value, go,
    status::{FieldError, FieldErrorKind},
};
use http::{HeaderMap, header};
use serde_json::json;

/// Longest field manager, in bytes.
const LONGEST_MANAGER: usize = 128;

/// Which write the options are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Write {
    Create,
    Update,
    Patch,
    Apply,
}

impl Write {
    fn kind(self) -> &'static str {
        match self {
            Self::Create => "CreateOptions",
            Self::Update => "UpdateOptions",
            Self::Patch | Self::Apply => "PatchOptions",
        }
    }
}

/// Options of create, update and patch. 422 about `CreateOptions` and the like, as Kubernetes answers.
pub(crate) fn write(write: Write, query: &Query, headers: &HeaderMap) -> Result<WriteOptions, Status> {
    let mut errors = Vec::new();
    let manager = query.text("fieldManager");
    if write == Write::Apply && manager.is_empty() {
        errors.push(FieldError::required("fieldManager", "is required for apply patch"));
    }
    // Other writes do not know it.
    if write == Write::Patch && query.get("force").is_some() {
        errors.push(FieldError::forbidden("force", "may not be specified for non-apply patch"));
    }
    check_manager(manager, &mut errors);
    let dry_run = dry_run(&query.all("dryRun").collect::<Vec<_>>(), &mut errors);
    let field_validation = match query.text("fieldValidation") {
        "" | "Warn" => FieldValidation::Warn,
        "Strict" => FieldValidation::Strict,
        "Ignore" => FieldValidation::Ignore,
        other => {
            let supported = ["", "Ignore", "Strict", "Warn"];
            errors.push(FieldError::not_supported("fieldValidation", json!(other), &supported));
            FieldValidation::Warn
        }
    };
    refuse(write.kind(), errors)?;
    let field_manager = if manager.is_empty() { manager_of_agent(headers) } else { manager.to_owned() };
    let force = query.flag("force").unwrap_or(false);
    Ok(WriteOptions { dry_run, field_manager, field_validation, force, admitted: false })
}

fn refuse(kind: &str, errors: Vec<FieldError>) -> Result<(), Status> {
    if errors.is_empty() { Ok(()) } else { Err(Status::invalid("meta.k8s.io", kind, "", &errors)) }
}

fn dry_run(given: &[&str], errors: &mut Vec<FieldError>) -> bool {
    if given.iter().any(|v| *v != "All") {
        errors.push(FieldError::not_supported("dryRun", json!(given), &["All"]));
    }
    !given.is_empty()
}

fn check_manager(manager: &str, errors: &mut Vec<FieldError>) {
    if manager.len() > LONGEST_MANAGER {
        let detail = format!("may not be more than {LONGEST_MANAGER} bytes");
        errors.push(FieldError::new(FieldErrorKind::TooLong, "fieldManager", detail));
    }
    if let Some((at, c)) = manager.char_indices().find(|(_, c)| c.is_control()) {
        let detail = format!("invalid character U+{:04X} (at position {at})", u32::from(c));
        errors.push(FieldError::invalid("fieldManager", json!(manager), detail));
    }
}

/// What stands before the first `/` of the user agent, printable characters only, at most 128 bytes.
fn manager_of_agent(headers: &HeaderMap) -> String {
    let agent = headers.get(header::USER_AGENT).and_then(|v| v.to_str().ok()).unwrap_or("");
    let prefix = agent.split('/').next().unwrap_or("");
    prefix.chars().filter(|c| !c.is_control()).take(LONGEST_MANAGER).collect()
}

/// Options of list, and of what deletecollection selects. 400 for what is no number, 422 for what contradicts itself.
pub(crate) fn list(query: &Query) -> Result<ListOptions, Status> {
    let options = ListOptions {
        label_selector: query.text("labelSelector").to_owned(),
        field_selector: query.text("fieldSelector").to_owned(),
        resource_version: query.text("resourceVersion").to_owned(),
        resource_version_match: query.text("resourceVersionMatch").to_owned(),
        limit: query.number("limit")?.map_or(0, |n| usize::try_from(n).unwrap_or(0)),
        continue_token: query.text("continue").to_owned(),
        shown: None,
    };
    query.number("timeoutSeconds")?;
    let mut errors = Vec::new();
    check_match(&options, false, &mut errors);
    if query.flag("sendInitialEvents").is_some() {
        errors.push(FieldError::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
    }
    refuse("ListOptions", errors)?;
    Ok(options)
}

/// Options of a watch.
pub(crate) fn watch(query: &Query) -> Result<WatchOptions, Status> {
    query.number("limit")?;
    let list = ListOptions {
        label_selector: query.text("labelSelector").to_owned(),
        field_selector: query.text("fieldSelector").to_owned(),
        resource_version: query.text("resourceVersion").to_owned(),
        resource_version_match: query.text("resourceVersionMatch").to_owned(),
        continue_token: query.text("continue").to_owned(),
        ..ListOptions::default()
    };
    let send_initial_events = query.flag("sendInitialEvents");
    let mut errors = Vec::new();
    check_match(&list, true, &mut errors);
    check_initial_events(&list, send_initial_events, &mut errors);
    refuse("ListOptions", errors)?;
    Ok(WatchOptions {
        list,
        bookmarks: query.flag("allowWatchBookmarks").unwrap_or(false),
        send_initial_events,
        related_only: query.flag("relatedOnly").unwrap_or(false),
        ..WatchOptions::default()
    })
}

const MATCH: &str = "resourceVersionMatch";

fn check_match(options: &ListOptions, watch: bool, errors: &mut Vec<FieldError>) {
    let (given, version) = (options.resource_version_match.as_str(), options.resource_version.as_str());
    if watch || given.is_empty() {
        return;
    }
    if version.is_empty() {
        errors.push(FieldError::forbidden(
            MATCH,
            "resourceVersionMatch is forbidden unless resourceVersion is provided",
        ));
    }
    if !options.continue_token.is_empty() {
        errors.push(FieldError::forbidden(
            MATCH,
            "resourceVersionMatch is forbidden when continue is provided",
        ));
    }
    if !matches!(given, "Exact" | "NotOlderThan") {
        errors.push(FieldError::not_supported(MATCH, json!(given), &["Exact", "NotOlderThan", ""]));
    }
    if given == "Exact" && version == "0" {
        let detail = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
        errors.push(FieldError::forbidden(MATCH, detail));
    }
}

fn check_initial_events(list: &ListOptions, send: Option<bool>, errors: &mut Vec<FieldError>) {
    let given = list.resource_version_match.as_str();
    let mut forbidden = |detail| errors.push(FieldError::forbidden(MATCH, detail));
    if send.is_some() && given != "NotOlderThan" {
        forbidden("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan");
    }
    if send.is_none() && !given.is_empty() {
        forbidden("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided");
    }
    // A watch that begins with what there is counts as one that says so.
    let implied = send.is_none() && matches!(list.resource_version.as_str(), "" | "0");
    if !given.is_empty() && given != "NotOlderThan" {
        errors.push(FieldError::not_supported(MATCH, json!(given), &["NotOlderThan"]));
    }
    if !list.continue_token.is_empty() && (implied || !given.is_empty()) {
        let detail = "resourceVersionMatch is forbidden when continue is provided";
        errors.push(FieldError::forbidden(MATCH, detail));
    }
}

/// `DeleteOptions` from the query, for requests without a body.
pub(crate) fn delete_from_query(query: &Query) -> Result<DeleteOptions, Status> {
    let text = |key: &str| query.get(key).map(str::to_owned);
    let dry: Vec<&str> = query.all("dryRun").collect();
    check_delete(
        DeleteOptions {
            dry_run: false,
            grace_period: query.number("gracePeriodSeconds")?,
            propagation: text("propagationPolicy"),
            orphan_dependents: query.flag("orphanDependents"),
            uid: text("uid").filter(|uid| !uid.is_empty()),
            resource_version: None,
        },
        &dry,
    )
}

const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";

/// `DeleteOptions` from a decoded body. 400 where it is another kind or a field has the wrong type.
pub(crate) fn delete_from_body(body: &Value) -> Result<DeleteOptions, Status> {
    #[derive(serde::Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    struct Wire {
        dry_run: Option<Vec<String>>,
        grace_period_seconds: Option<i64>,
        propagation_policy: Option<String>,
        orphan_dependents: Option<bool>,
        preconditions: Option<Preconditions>,
    }
    #[derive(serde::Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    struct Preconditions {
        uid: Option<String>,
        resource_version: Option<String>,
    }
    let text = |field: &str| body[field].as_str().unwrap_or_default();
    if !matches!(text("kind"), "" | "DeleteOptions") {
        let (kind, version) = (text("kind"), text("apiVersion"));
        return Err(Status::bad_request(format!(
            "no kind {kind:?} is registered for version {version:?} in scheme \"pkg/runtime/scheme.go:111\""
        )));
    }
    let schema = freehold_apiserver_catalog::schema_of_definition(DELETE_OPTIONS);
    if let Some(why) = schema.and_then(|schema| go::mismatch(body, schema)) {
        return Err(Status::bad_request(why));
    }
    let wire: Wire = serde::Deserialize::deserialize(body)
        .map_err(|e| Status::bad_request(format!("DeleteOptions cannot be read: {e}")))?;
    let preconditions = wire.preconditions.unwrap_or_default();
    let dry = wire.dry_run.unwrap_or_default();
    check_delete(
        DeleteOptions {
            dry_run: false,
            grace_period: wire.grace_period_seconds,
            propagation: wire.propagation_policy,
            orphan_dependents: wire.orphan_dependents,
            uid: preconditions.uid,
            resource_version: preconditions.resource_version,
        },
        &dry.iter().map(String::as_str).collect::<Vec<_>>(),
    )
}

fn check_delete(mut options: DeleteOptions, dry: &[&str]) -> Result<DeleteOptions, Status> {
    let mut errors = Vec::new();
    if let Some(given) = options.propagation.as_deref() {
        if options.orphan_dependents.is_some() {
            let detail = "orphanDependents and deletionPropagation cannot be both set";
            errors.push(FieldError::invalid("propagationPolicy", json!(given), detail));
        } else if !matches!(given, "Foreground" | "Background" | "Orphan") {
            let supported = ["Foreground", "Background", "Orphan", "nil"];
            errors.push(FieldError::not_supported("propagationPolicy", json!(given), &supported));
        }
    }
    options.dry_run = dry_run(dry, &mut errors);
    refuse("DeleteOptions", errors)?;
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(text: &str) -> Query {
        Query::parse(Some(text)).unwrap()
    }

    #[test]
    fn options_that_make_no_sense_get_kubernetes_words() {
        let none = HeaderMap::new();
        let written = |w, q: &str| write(w, &query(q), &none).unwrap_err().message;
        let rows = [
            (
                written(Write::Apply, ""),
                r#"PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch"#,
            ),
            (
                written(Write::Patch, "force=true"),
                r#"PatchOptions.meta.k8s.io "" is invalid: force: Forbidden: may not be specified for non-apply patch"#,
            ),
            (
                written(Write::Create, "dryRun=Some"),
                r#"CreateOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["Some"]: supported values: "All""#,
            ),
            (
                written(Write::Apply, "dryRun=x"),
                r#"PatchOptions.meta.k8s.io "" is invalid: [fieldManager: Required value: is required for apply patch, dryRun: Unsupported value: ["x"]: supported values: "All"]"#,
            ),
            (
                written(Write::Update, "fieldValidation=x"),
                r#"UpdateOptions.meta.k8s.io "" is invalid: fieldValidation: Unsupported value: "x": supported values: "", "Ignore", "Strict", "Warn""#,
            ),
            (
                list(&query("resourceVersionMatch=Exact")).unwrap_err().message,
                r#"ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"#,
            ),
            (
                watch(&query("sendInitialEvents=true")).unwrap_err().message,
                r#"ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"#,
            ),
            (
                delete_from_query(&query("propagationPolicy=x")).unwrap_err().message,
                r#"DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: Unsupported value: "x": supported values: "Foreground", "Background", "Orphan", "nil""#,
            ),
        ];
        for (got, expected) in rows {
            assert_eq!(got, expected);
        }
        assert_eq!(
            written(Write::Create, &format!("fieldManager={}", "m".repeat(129))).matches("Too long").count(),
            1
        );
    }

    #[test]
    fn the_field_manager_is_the_user_agents_first_word_unless_given() {
        let mut headers = HeaderMap::new();
        headers.insert(header::USER_AGENT, "kubectl/v1.36 (linux/amd64)".parse().unwrap());
        assert_eq!(write(Write::Create, &query(""), &headers).unwrap().field_manager, "kubectl");
        assert_eq!(write(Write::Create, &query("fieldManager=me"), &headers).unwrap().field_manager, "me");
    }

    #[test]
    fn delete_options_come_from_the_body_or_the_query() {
        let body = json!({
            "kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0, "propagationPolicy": "Foreground",
            "dryRun": ["All"], "preconditions": {"uid": "u", "resourceVersion": "5"},
        });
        let options = delete_from_body(&body).unwrap();
        assert!(options.dry_run && options.grace_period == Some(0) && options.uid.as_deref() == Some("u"));
        assert_eq!(options.propagation.as_deref(), Some("Foreground"));
        assert_eq!(delete_from_query(&query("uid=u")).unwrap().uid.as_deref(), Some("u"));
        assert!(write(Write::Create, &query("force=true"), &HeaderMap::new()).is_ok());
        assert_eq!(delete_from_body(&json!({"kind": "Pod"})).unwrap_err().code, 400);
        assert_eq!(delete_from_body(&json!({"gracePeriodSeconds": "x"})).unwrap_err().code, 400);
        let options = delete_from_query(&query("gracePeriodSeconds=5&orphanDependents=true")).unwrap();
        assert_eq!(
            (options.grace_period, options.orphan_dependents, options.dry_run),
            (Some(5), Some(true), false)
        );
    }
}
