//! Argo CD: an AppProject for each tenant, and Secrets for its repositories and clusters.
//!
//! Argo CD checks AppProjects in its own server alone: one that is written to the cluster has to be right already.

use super::{Input, Integration, KeptKind, Refusal};
use freehold_machinery::{Map, Value};
use freehold_tenancy_api::integration::{
    ArgoCdCluster, ArgoCdConfig, ArgoCdRepository, ArgoCdRole, ExtensionSpec, GroupKind,
    IntegrationConfigSpec, SecretRef,
};
use serde_json::json;
use std::collections::BTreeSet;

/// Argo CD.
#[derive(Clone, Copy, Debug)]
pub struct ArgoCd;

/// Destinations of one AppProject. A tenant with more namespaces has further ones, `TENANT-2` and so on.
const DESTINATIONS: usize = 500;
/// The label by which Argo CD knows what a Secret is.
const SECRET_TYPE: &str = "argocd.argoproj.io/secret-type";
/// Credentials that are copied from a tenant's Secret.
const CREDENTIALS: [&str; 6] =
    ["username", "password", "bearerToken", "sshPrivateKey", "tlsClientCertData", "tlsClientCertKey"];
/// Actions on Applications.
const ACTIONS: [&str; 9] = ["get", "create", "update", "delete", "sync", "override", "action/*", "logs", "*"];
/// What members of a role may do with Applications.
const MEMBERS: [(&str, &[&str]); 3] =
    [("owner", &["*"]), ("editor", &["get", "create", "update", "delete", "sync"]), ("viewer", &["get"])];

fn invalid(message: String) -> Refusal {
    Refusal::new("Invalid", message)
}

impl Integration for ArgoCd {
    fn kinds(&self) -> &'static [KeptKind] {
        &[
            KeptKind { api_version: "argoproj.io/v1alpha1", kind: "AppProject", plural: "appprojects" },
            KeptKind { api_version: "v1", kind: "Secret", plural: "secrets" },
        ]
    }

    fn namespace<'a>(&self, config: &'a IntegrationConfigSpec) -> &'a str {
        &config.argo_cd.namespace
    }

    fn secrets(&self, extension: &ExtensionSpec) -> Vec<SecretRef> {
        let repositories =
            extension.argo_cd.repositories.iter().filter_map(|repository| repository.secret.clone());
        repositories.chain(extension.argo_cd.clusters.iter().map(|cluster| cluster.secret.clone())).collect()
    }

    fn objects(
        &self,
        config: &IntegrationConfigSpec,
        extension: &ExtensionSpec,
        input: &Input,
    ) -> Result<Vec<Value>, Refusal> {
        let config = &config.argo_cd;
        let mut objects = projects(config, extension, input)?;
        for (at, repository) in extension.argo_cd.repositories.iter().enumerate() {
            objects.push(repository_secret(config, repository, at, input)?);
        }
        for cluster in &extension.argo_cd.clusters {
            objects.push(cluster_secret(config, cluster, input)?);
        }
        Ok(objects)
    }

    fn narrowed(
        &self,
        config: &IntegrationConfigSpec,
        extension: &ExtensionSpec,
        existing: &Value,
        namespaces: &[String],
    ) -> Option<Value> {
        let destinations = existing["spec"]["destinations"].as_array()?;
        let own = config.argo_cd.server.as_str();
        let is_within = |destination: &&Value| {
            let server = destination["server"].as_str().unwrap_or_default();
            let namespace = destination["namespace"].as_str().unwrap_or_default();
            match server == own {
                true => namespaces.iter().any(|name| name == namespace),
                false => extension.argo_cd.clusters.iter().any(|cluster| cluster.server == server),
            }
        };
        let within: Vec<Value> = destinations.iter().filter(is_within).cloned().collect();
        if within.len() == destinations.len() {
            return None;
        }
        let mut narrowed = existing.clone();
        narrowed["spec"]["destinations"] = within.into();
        Some(narrowed)
    }
}

/// The names of a tenant's AppProjects.
fn project_name(tenant: &str, nth: usize) -> String {
    if nth == 0 { tenant.to_owned() } else { format!("{tenant}-{}", nth + 1) }
}

fn projects(config: &ArgoCdConfig, extension: &ExtensionSpec, input: &Input) -> Result<Vec<Value>, Refusal> {
    let tenant = &extension.argo_cd;
    let sources = sources(config, extension)?;
    let cluster_kinds = cluster_kinds(config, &tenant.cluster_kinds)?;
    let mut destinations: Vec<Value> = input
        .namespaces
        .iter()
        .map(|namespace| json!({"server": config.server, "namespace": namespace}))
        .collect();
    for cluster in &tenant.clusters {
        destinations.extend(cluster_destinations(config, cluster)?);
    }
    let mut chunks: Vec<&[Value]> = destinations.chunks(DESTINATIONS).collect();
    if chunks.is_empty() {
        chunks.push(&[]);
    }
    let one = |(nth, chunk): (usize, &&[Value])| {
        let name = project_name(&input.tenant, nth);
        let spec = json!({
            "description": tenant.description,
            "sourceRepos": sources,
            "destinations": chunk,
            "clusterResourceWhitelist": cluster_kinds,
            "namespaceResourceBlacklist": kinds(&config.denied_kinds),
            "roles": roles(&name, &tenant.roles, input)?,
        });
        Ok(json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject",
            "metadata": {"name": name, "namespace": config.namespace},
            "spec": spec,
        }))
    };
    chunks.iter().enumerate().map(one).collect()
}

fn kinds(kinds: &[GroupKind]) -> Vec<Value> {
    kinds.iter().map(|kind| json!({"group": kind.group, "kind": kind.kind})).collect()
}

fn cluster_kinds(config: &ArgoCdConfig, wanted: &[GroupKind]) -> Result<Vec<Value>, Refusal> {
    match wanted.iter().find(|kind| !config.allowed_cluster_kinds.contains(kind)) {
        Some(GroupKind { group, kind }) => {
            let message = format!(
                "spec.argoCD.clusterKinds: {kind} of {group:?} is not among spec.argoCD.allowedClusterKinds of the integration"
            );
            Err(Refusal::new("NotAllowed", message))
        }
        None => Ok(kinds(wanted)),
    }
}

/// The repositories that Applications may use.
fn sources(config: &ArgoCdConfig, extension: &ExtensionSpec) -> Result<Vec<String>, Refusal> {
    let tenant = &extension.argo_cd;
    let repositories = tenant.repositories.iter().map(|repository| match repository.template {
        true => format!("{}/*", repository.url.trim_end_matches('/')),
        false => repository.url.clone(),
    });
    let all: BTreeSet<String> = tenant.source_repositories.iter().cloned().chain(repositories).collect();
    for source in &all {
        let denied = source.starts_with('!');
        if source.trim_start_matches('!').is_empty() || source == "!*" {
            return Err(invalid(format!("sourceRepositories: {source:?} is no pattern")));
        }
        let allowed = match config.allowed_repositories.as_slice() {
            [] => !source.trim_matches(['*', '/']).is_empty(),
            patterns => patterns.iter().any(|pattern| covers(pattern, source)),
        };
        if !denied && !allowed {
            let message = format!("sourceRepositories: the integration does not allow {source:?}");
            return Err(Refusal::new("NotAllowed", message));
        }
    }
    Ok(all.into_iter().collect())
}

/// Whether a pattern matches all that another matches. `*` stands for any text.
fn covers(pattern: &str, other: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == other };
    if !other.starts_with(start) {
        return false;
    }
    let other = &other[start.len()..];
    if rest.is_empty() {
        return true;
    }
    (0..=other.len()).filter(|at| other.is_char_boundary(*at)).any(|at| covers(rest, &other[at..]))
}

fn roles(project: &str, own: &[ArgoCdRole], input: &Input) -> Result<Vec<Value>, Refusal> {
    let mut names = BTreeSet::new();
    let mut roles = Vec::new();
    let role = |name: &str, groups: &[String], actions: &[&str]| {
        let policy =
            |action: &&str| format!("p, proj:{project}:{name}, applications, {action}, {project}/*, allow");
        json!({"name": name, "groups": groups, "policies": actions.iter().map(policy).collect::<Vec<_>>()})
    };
    for (name, actions) in MEMBERS {
        let groups = input.groups.get(name).cloned().unwrap_or_default();
        check_groups(&groups)?;
        if !groups.is_empty() {
            names.insert(name.to_owned());
            roles.push(role(name, &groups, actions));
        }
    }
    for own in own {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if !own.name.chars().all(plain) || own.name.starts_with('-') || own.name.ends_with('-') {
            return Err(invalid(format!("roles: {:?} is no name of a role", own.name)));
        }
        if !names.insert(own.name.clone()) {
            return Err(invalid(format!("roles: {:?} is there twice", own.name)));
        }
        if let Some(action) = own.actions.iter().find(|action| !ACTIONS.contains(&action.as_str())) {
            return Err(invalid(format!("roles: {action:?} is no action on Applications")));
        }
        check_groups(&own.groups)?;
        let actions: Vec<&str> = own.actions.iter().map(String::as_str).collect();
        roles.push(role(&own.name, &own.groups, &actions));
    }
    Ok(roles)
}

/// Argo CD writes groups into lines of a policy.
fn check_groups(groups: &[String]) -> Result<(), Refusal> {
    match groups.iter().find(|group| group.trim().is_empty() || group.contains([',', '\n', '\r', '\t'])) {
        Some(group) => Err(invalid(format!("roles: {group:?} is no name of a group"))),
        None => Ok(()),
    }
}

fn cluster_destinations(config: &ArgoCdConfig, cluster: &ArgoCdCluster) -> Result<Vec<Value>, Refusal> {
    if cluster.server == config.server || cluster.server.contains(['*', '!']) {
        return Err(Refusal::new(
            "NotAllowed",
            format!("clusters: {:?} is not a cluster of the tenant's own", cluster.server),
        ));
    }
    if let Some(namespace) = cluster.namespaces.iter().find(|namespace| namespace.starts_with('!')) {
        return Err(invalid(format!("clusters: {namespace:?} is no namespace")));
    }
    let namespaces: BTreeSet<&str> = cluster.namespaces.iter().map(String::as_str).collect();
    let namespaces = if namespaces.is_empty() { ["*"].into() } else { namespaces };
    Ok(namespaces
        .into_iter()
        .map(|namespace| json!({"server": cluster.server, "namespace": namespace}))
        .collect())
}

fn secret_data<'a>(secret: &SecretRef, input: &'a Input) -> Result<&'a Map, Refusal> {
    let SecretRef { namespace, name } = secret;
    if !input.namespaces.contains(namespace) {
        return Err(Refusal::new(
            "NotAllowed",
            format!("Secret {namespace}/{name}: the namespace is not the tenant's"),
        ));
    }
    input
        .secrets
        .get(secret)
        .ok_or_else(|| Refusal::new("SecretNotFound", format!("there is no Secret {namespace}/{name}")))
}

fn secret(config: &ArgoCdConfig, name: String, type_: &str, texts: &[(&str, String)], copied: Map) -> Value {
    let mut data = copied;
    for (key, text) in texts {
        data.insert((*key).to_owned(), base64(text).into());
    }
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": name, "namespace": config.namespace, "labels": {SECRET_TYPE: type_}},
        "type": "Opaque", "data": data,
    })
}

fn base64(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text)
}

fn repository_secret(
    config: &ArgoCdConfig,
    repository: &ArgoCdRepository,
    at: usize,
    input: &Input,
) -> Result<Value, Refusal> {
    let mut copied = Map::new();
    if let Some(secret) = &repository.secret {
        let data = secret_data(secret, input)?;
        copied.extend(
            data.iter()
                .filter(|(key, _)| CREDENTIALS.contains(&key.as_str()))
                .map(|(k, v)| (k.clone(), v.clone())),
        );
    }
    let mut texts = vec![("url", repository.url.clone()), ("type", repository.type_.clone())];
    let type_ = if repository.template {
        "repo-creds"
    } else {
        // Only this project uses it, even where others name the same URL.
        texts.push(("project", input.tenant.clone()));
        "repository"
    };
    Ok(secret(config, format!("{}-repository-{at}", input.tenant), type_, &texts, copied))
}

fn cluster_secret(config: &ArgoCdConfig, cluster: &ArgoCdCluster, input: &Input) -> Result<Value, Refusal> {
    let data = secret_data(&cluster.secret, input)?;
    let Some(settings) = data.get("config").cloned() else {
        let SecretRef { namespace, name } = &cluster.secret;
        return Err(Refusal::new("SecretNotFound", format!("Secret {namespace}/{name} has no config")));
    };
    let mut texts = vec![
        ("name", cluster.name.clone()),
        ("server", cluster.server.clone()),
        ("project", input.tenant.clone()),
    ];
    if !cluster.namespaces.is_empty() {
        texts.push(("namespaces", cluster.namespaces.join(",")));
    }
    let copied = Map::from_iter([("config".to_owned(), settings)]);
    Ok(secret(config, format!("{}-cluster-{}", input.tenant, cluster.name), "cluster", &texts, copied))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extension(argo_cd: Value) -> ExtensionSpec {
        serde_json::from_value(json!({"tenant": "acme", "integration": "argo", "argoCD": argo_cd})).unwrap()
    }

    fn config(argo_cd: Value) -> IntegrationConfigSpec {
        serde_json::from_value(json!({"type": "ArgoCD", "argoCD": argo_cd})).unwrap()
    }

    fn input(count: usize) -> Input {
        Input {
            tenant: "acme".into(),
            groups: [("owner".to_owned(), vec!["acme-admins".to_owned()])].into(),
            namespaces: (0..count).map(|n| format!("acme-{n}")).collect(),
            secrets: [(
                SecretRef { namespace: "acme-0".into(), name: "git".into() },
                json!({"username": "dQ==", "password": "cA==", "other": "eA=="})
                    .as_object()
                    .cloned()
                    .unwrap(),
            )]
            .into(),
        }
    }

    #[test]
    fn a_project_is_limited_to_the_tenants_namespaces_and_repositories() {
        let extension = extension(json!({
            "sourceRepositories": ["https://git.example.com/acme/*"],
            "repositories": [{"url": "https://git.example.com/acme/app", "type": "git", "secret": {"namespace": "acme-0", "name": "git"}}],
        }));
        let objects = ArgoCd.objects(&config(json!({})), &extension, &input(2)).unwrap();
        let spec = &objects[0]["spec"];
        assert_eq!(
            spec["destinations"],
            json!([
                {"server": "https://kubernetes.default.svc", "namespace": "acme-0"},
                {"server": "https://kubernetes.default.svc", "namespace": "acme-1"},
            ])
        );
        assert_eq!(
            spec["sourceRepos"],
            json!(["https://git.example.com/acme/*", "https://git.example.com/acme/app"])
        );
        assert_eq!(spec["clusterResourceWhitelist"], json!([]));
        assert_eq!(
            spec["roles"][0]["policies"],
            json!(["p, proj:acme:owner, applications, *, acme/*, allow"])
        );
        let data = &objects[1]["data"];
        assert_eq!(
            (&data["username"], &data["project"], data.get("other")),
            (&json!("dQ=="), &json!("YWNtZQ=="), None)
        );
        assert_eq!(objects[1]["metadata"]["labels"][SECRET_TYPE], "repository");
    }

    #[test]
    fn ten_thousand_namespaces_are_projects_of_at_most_100_kib() {
        let objects = ArgoCd.objects(&config(json!({})), &extension(json!({})), &input(10_000)).unwrap();
        assert_eq!(objects.len(), 20);
        assert_eq!(objects[19]["metadata"]["name"], "acme-20");
        assert!(objects.iter().all(|object| object.to_string().len() < 100 * 1024));
        let none = ArgoCd.objects(&config(json!({})), &extension(json!({})), &input(0)).unwrap();
        assert_eq!(none[0]["spec"]["destinations"], json!([]), "a project without namespaces allows nothing");
    }

    #[test]
    fn what_goes_beyond_the_tenant_is_refused() {
        let rows = [
            (json!({"sourceRepositories": ["*"]}), json!({}), "NotAllowed"),
            (
                json!({"sourceRepositories": ["https://other.example/x"]}),
                json!({"allowedRepositories": ["https://git.example.com/*"]}),
                "NotAllowed",
            ),
            (json!({"clusterKinds": [{"group": "", "kind": "Namespace"}]}), json!({}), "NotAllowed"),
            (json!({"roles": [{"name": "r", "groups": ["a, *"], "actions": ["get"]}]}), json!({}), "Invalid"),
            (
                json!({"roles": [{"name": "r", "groups": [], "actions": ["get, x, allow\np"]}]}),
                json!({}),
                "Invalid",
            ),
            (json!({"roles": [{"name": "owner", "groups": [], "actions": ["get"]}]}), json!({}), "Invalid"),
            (
                json!({"repositories": [{"url": "https://g/x", "secret": {"namespace": "kube-system", "name": "s"}}]}),
                json!({}),
                "NotAllowed",
            ),
            (
                json!({"repositories": [{"url": "https://g/x", "secret": {"namespace": "acme-0", "name": "none"}}]}),
                json!({}),
                "SecretNotFound",
            ),
            (
                json!({"clusters": [{"name": "c", "server": "https://kubernetes.default.svc", "secret": {"namespace": "acme-0", "name": "git"}}]}),
                json!({}),
                "NotAllowed",
            ),
        ];
        for (tenant, settings, reason) in rows {
            let refusal =
                ArgoCd.objects(&config(settings), &extension(tenant.clone()), &input(1)).unwrap_err();
            assert_eq!(refusal.reason, reason, "{tenant}: {refusal}");
        }
        assert!(covers("https://git.example.com/*", "https://git.example.com/a/*"));
        assert!(!covers("https://git.example.com/a/*", "https://git.example.com/*"));
    }
}
