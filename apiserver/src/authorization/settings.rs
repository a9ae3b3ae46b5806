//! An `AuthorizationConfiguration` of `apiserver.config.k8s.io/v1`, read as strictly as kube-apiserver reads it.

use super::{authorizer::Authorizer, webhook::Webhook};
use anyhow::{Context, Result, bail, ensure};
use freehold_client::{Client, Config as ClientConfig};
use freehold_machinery::names;
use freehold_machinery_cel::{Program, VariableType, type_of};
use serde::Deserialize;
use std::{path::Path, sync::Arc, time::Duration};

const API_VERSION: &str = "apiserver.config.k8s.io/v1";
/// Authorizers that a configuration may name.
const MOST_AUTHORIZERS: usize = 16;
/// Match conditions of one (kube-apiserver's number).
const MOST_CONDITIONS: usize = 64;
/// Longest time for an answer (likewise).
const LONGEST: Duration = Duration::from_secs(30);
/// For how long it counts that a webhook allowed, and that it did not, where the file does not say (likewise).
const COUNTS: (Duration, Duration) = (Duration::from_secs(300), Duration::from_secs(30));

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Configuration {
    api_version: String,
    kind: String,
    #[serde(default)]
    authorizers: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default)]
    name: String,
    webhook: Option<WebhookEntry>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct WebhookEntry {
    #[serde(rename = "authorizedTTL")]
    authorized_ttl: String,
    cache_authorized_requests: Option<bool>,
    #[serde(rename = "unauthorizedTTL")]
    unauthorized_ttl: String,
    cache_unauthorized_requests: Option<bool>,
    timeout: String,
    subject_access_review_version: String,
    match_condition_subject_access_review_version: String,
    failure_policy: String,
    connection_info: Connection,
    match_conditions: Vec<Condition>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Connection {
    #[serde(rename = "type")]
    kind: String,
    kube_config_file: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Condition {
    expression: String,
}

/// Those whom a configuration names, in order. An error says what is wrong, and where.
pub(super) fn read(text: &str) -> Result<Vec<Authorizer>> {
    let read: Configuration = serde_saphyr::from_str(text)?;
    ensure!(
        read.api_version == API_VERSION && read.kind == "AuthorizationConfiguration",
        "it is no AuthorizationConfiguration of {API_VERSION}"
    );
    let listed = read.authorizers;
    ensure!(
        !listed.is_empty(),
        "authorizers: Required value: at least one authorization mode must be defined"
    );
    ensure!(listed.len() <= MOST_AUTHORIZERS, "authorizers: Too many: {}", listed.len());
    let mut names: Vec<&str> = Vec::new();
    let mut chain = Vec::new();
    for (at, entry) in listed.iter().enumerate() {
        let at = format!("authorizers[{at}]");
        let name = entry.name.as_str();
        ensure!(!name.is_empty(), "{at}.name: Required value");
        ensure!(!names.contains(&name), "{at}.name: Duplicate value: {name:?}");
        let wrong = names::dns1123_subdomain(name);
        ensure!(
            wrong.is_empty(),
            "{at}.name: Invalid value: {name:?}: authorizer name is invalid: {}",
            wrong.join(", ")
        );
        names.push(name);
        chain.push(match (entry.kind.as_str(), &entry.webhook) {
            ("", _) => bail!("{at}.type: Required value"),
            ("RBAC", None) if chain.iter().any(|one| matches!(one, Authorizer::Own)) => {
                bail!("{at}.type: Duplicate value: \"RBAC\"")
            }
            ("RBAC", None) => Authorizer::Own,
            ("RBAC", Some(_)) => {
                bail!("{at}.webhook: Invalid value: may only be specified when type=Webhook")
            }
            ("Webhook", None) => bail!("{at}.webhook: Required value: required when type=Webhook"),
            ("Webhook", Some(webhook)) => {
                Authorizer::Webhook(Box::new(webhook.open(name).with_context(|| format!("{at}.webhook"))?))
            }
            (other, _) => {
                bail!("{at}.type: Unsupported value: {other:?}: supported values: \"RBAC\", \"Webhook\"")
            }
        });
    }
    Ok(chain)
}

/// A duration as Go writes it; `default` where it is not given or nothing.
fn duration(field: &str, text: &str, default: Duration) -> Result<Duration> {
    if text.is_empty() {
        return Ok(default);
    }
    let nanos = freehold_machinery::time::parse_duration(text);
    let nanos = nanos.with_context(|| format!("{field}: Invalid value: {text:?}"))?;
    ensure!(nanos >= 0, "{field}: Invalid value: {text:?}: must be > 0s");
    Ok(if nanos == 0 { default } else { Duration::from_nanos(nanos.unsigned_abs()) })
}

impl WebhookEntry {
    fn open(&self, name: &str) -> Result<Webhook> {
        let timeout = duration("timeout", &self.timeout, Duration::ZERO)?;
        ensure!(!timeout.is_zero(), "timeout: Required value");
        ensure!(timeout <= LONGEST, "timeout: Invalid value: {:?}: must be > 0s and <= 30s", self.timeout);
        let version = self.subject_access_review_version.as_str();
        ensure!(
            matches!(version, "v1" | "v1beta1"),
            "subjectAccessReviewVersion: Unsupported value: {version:?}: supported values: \"v1\", \"v1beta1\""
        );
        let denies_on_error = match self.failure_policy.as_str() {
            "Deny" => true,
            "NoOpinion" => false,
            other => {
                bail!(
                    "failurePolicy: Unsupported value: {other:?}: supported values: \"Deny\", \"NoOpinion\""
                )
            }
        };
        let counts = |field, text: &str, cached: Option<bool>, default| {
            let time = duration(field, text, default)?;
            Ok::<_, anyhow::Error>(if cached == Some(false) { Duration::ZERO } else { time })
        };
        Ok(Webhook {
            name: name.to_owned(),
            client: self.connection_info.connect(timeout)?,
            version: version.to_owned(),
            denies_on_error,
            allowed_counts: counts(
                "authorizedTTL",
                &self.authorized_ttl,
                self.cache_authorized_requests,
                COUNTS.0,
            )?,
            others_count: counts(
                "unauthorizedTTL",
                &self.unauthorized_ttl,
                self.cache_unauthorized_requests,
                COUNTS.1,
            )?,
            conditions: self.conditions()?,
            answers: Default::default(),
            places: Webhook::places(),
        })
    }

    fn conditions(&self) -> Result<Vec<Arc<Program>>> {
        let listed = &self.match_conditions;
        let version = self.match_condition_subject_access_review_version.as_str();
        let field = "matchConditionSubjectAccessReviewVersion";
        ensure!(
            !version.is_empty() || listed.is_empty(),
            "{field}: Required value: required if match conditions are specified"
        );
        ensure!(
            matches!(version, "" | "v1"),
            "{field}: Unsupported value: {version:?}: supported values: \"v1\""
        );
        let count = listed.len();
        ensure!(
            count <= MOST_CONDITIONS,
            "matchConditions: Too many: {count}: must have at most {MOST_CONDITIONS} items"
        );
        let mut seen: Vec<&str> = Vec::new();
        let mut compiled = Vec::new();
        for (at, Condition { expression }) in listed.iter().enumerate() {
            let field = format!("matchConditions[{at}].expression");
            ensure!(!expression.trim().is_empty(), "{field}: Required value");
            ensure!(!seen.contains(&expression.as_str()), "{field}: Duplicate value: {expression:?}");
            seen.push(expression);
            let wrong = || format!("{field}: Invalid value: {expression:?}");
            let ty = type_of(expression, &[("request", request())]).with_context(wrong)?;
            ensure!(ty.is_bool(), "{}: must evaluate to bool but got {ty}", wrong());
            compiled.push(Program::compile(expression).with_context(wrong)?);
        }
        Ok(compiled)
    }
}

impl Connection {
    fn connect(&self, timeout: Duration) -> Result<Client> {
        let kind = self.kind.as_str();
        ensure!(!kind.is_empty(), "connectionInfo.type: Required value");
        ensure!(
            kind == "KubeConfigFile",
            "connectionInfo.type: Unsupported value: {kind:?}: supported values: \"KubeConfigFile\""
        );
        let field = "connectionInfo.kubeConfigFile";
        let file = self.kube_config_file.as_deref().unwrap_or_default();
        ensure!(!file.is_empty(), "{field}: Required value");
        ensure!(Path::new(file).is_absolute(), "{field}: Invalid value: {file:?}: must be an absolute path");
        let config = ClientConfig::from_kubeconfig(file).context(field)?;
        let config = ClientConfig { timeout, max_response_bytes: super::webhook::LARGEST_ANSWER, ..config };
        Client::new(&config).context(field)
    }
}

/// What conditions are about: the spec of a SubjectAccessReview.
fn request() -> VariableType {
    let strings = || VariableType::List(Box::new(VariableType::String));
    let texts = |names: &[&'static str]| names.iter().map(|name| (*name, VariableType::String)).collect();
    let requirement = || {
        let fields =
            vec![("key", VariableType::String), ("operator", VariableType::String), ("values", strings())];
        VariableType::Object("kubernetes.SelectorRequirement", fields)
    };
    let selector = |name| {
        let requirements = VariableType::List(Box::new(requirement()));
        let fields = vec![("rawSelector", VariableType::String), ("requirements", requirements)];
        VariableType::Object(name, fields)
    };
    let mut resource: Vec<(&'static str, VariableType)> =
        texts(&["namespace", "verb", "group", "version", "resource", "subresource", "name"]);
    resource.push(("fieldSelector", selector("kubernetes.FieldSelectorAttributes")));
    resource.push(("labelSelector", selector("kubernetes.LabelSelectorAttributes")));
    let fields = vec![
        ("resourceAttributes", VariableType::Object("kubernetes.ResourceAttributes", resource)),
        (
            "nonResourceAttributes",
            VariableType::Object("kubernetes.NonResourceAttributes", texts(&["path", "verb"])),
        ),
        ("user", VariableType::String),
        ("groups", strings()),
        ("extra", VariableType::Map(Box::new(strings()))),
        ("uid", VariableType::String),
    ];
    VariableType::Object("kubernetes.SubjectAccessReviewSpec", fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KUBECONFIG: &str = r#"{"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1/authorize"}}],
        "users": [{"name": "u", "user": {}}]}"#;

    fn configuration(file: &Path, change: &str) -> String {
        let (from, to) = change.split_once(" -> ").unwrap_or(("", ""));
        let text = format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n\
             - type: Webhook\n  name: ours.example.com\n  webhook:\n    timeout: 3s\n    subjectAccessReviewVersion: v1\n\
             \x20   matchConditionSubjectAccessReviewVersion: v1\n    failurePolicy: Deny\n\
             \x20   connectionInfo: {{type: KubeConfigFile, kubeConfigFile: {}}}\n    matchConditions:\n\
             \x20   - expression: has(request.resourceAttributes)\n- {{type: RBAC, name: rbac}}\n",
            file.display()
        );
        if from.is_empty() { text } else { text.replacen(from, to, 1) }
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("kubeconfig");
        std::fs::write(&file, KUBECONFIG).unwrap();
        let chain = read(&configuration(&file, "")).unwrap();
        assert!(matches!(chain.as_slice(), [Authorizer::Webhook(_), Authorizer::Own]));
        let rows = [
            ("v1\nkind -> v1alpha1\nkind", "no AuthorizationConfiguration"),
            ("name: ours.example.com -> name: rbac", "authorizers[1].name: Duplicate value"),
            ("name: ours.example.com -> name: A_B", "authorizers[0].name: Invalid value"),
            ("type: RBAC -> type: Node", "authorizers[1].type: Unsupported value"),
            ("timeout: 3s -> timeout: 31s", "must be > 0s and <= 30s"),
            ("timeout: 3s -> timeout: 0s", "timeout: Required value"),
            ("timeout: 3s -> authorizedTTL: 3", "timeout: Required value"),
            ("failurePolicy: Deny -> failurePolicy: Allow", "failurePolicy: Unsupported value"),
            ("ReviewVersion: v1\n -> ReviewVersion: v2\n", "subjectAccessReviewVersion: Unsupported value"),
            ("type: KubeConfigFile -> type: InClusterConfig", "connectionInfo.type: Unsupported value"),
            ("kubeConfigFile: / -> kubeConfigFile: ./", "must be an absolute path"),
            ("has(request.resourceAttributes) -> request.user", "must evaluate to bool"),
            ("has(request.resourceAttributes) -> request.usr == ''", "undefined field"),
            ("has(request.resourceAttributes) -> ' '", "Required value"),
            ("failurePolicy -> failPolicy", "failPolicy"),
        ];
        for (change, wanted) in rows {
            let error = read(&configuration(&file, change)).err().map(|error| format!("{error:#}"));
            let error = error.unwrap_or_else(|| panic!("{change} is taken"));
            assert!(error.contains(wanted), "{change}: {error}");
        }
    }
}
