//! `freehold api`: schemas of exports from CustomResourceDefinitions, and what a binding gives away. Whatever is done here,
//! `kubectl` can do.

use crate::{kubeconfig, terminal};
use anyhow::{Context, Result, bail};
use clap::{Args as ClapArgs, Subcommand};
use freehold_api::{
    apis::{
        ACCESS, ApiBinding, ApiResourceSchemaSpec, BINDINGS, BoundObjects, CLASS_LABEL, GROUP,
        PermissionClaim, SCHEMAS, VERSION,
    },
    rollouts::{ApiRollout, ROLLOUTS, RolloutStage},
    urls,
};
use freehold_client::{Client, Resource};
use freehold_machinery::{Value, meta};
use serde_json::json;
use std::{
    io::Read,
    path::{Path, PathBuf},
};

const OF_BINDINGS: Resource = Resource::cluster(GROUP, VERSION, BINDINGS);
const OF_ROLLOUTS: Resource = Resource::cluster(GROUP, VERSION, ROLLOUTS);
const OF_SCHEMAS: Resource = Resource::cluster(GROUP, VERSION, SCHEMAS);
/// Bytes that a file of definitions can have.
const MAX_FILE: u64 = 16 << 20;

/// Flags of `freehold api`.
#[derive(ClapArgs)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Prints an APIResourceSchema for each CustomResourceDefinition of a file.
    Schema {
        /// The file with definitions in YAML or JSON; `-` for the standard input.
        #[arg(short, long)]
        file: PathBuf,
        /// The first part of the schemas' names, such as v1: PREFIX.PLURAL.GROUP. A new state of a kind needs another one.
        #[arg(long, default_value = "v1")]
        prefix: String,
    },
    /// Prints what a binding gives its provider, in plain words.
    Show {
        /// The binding.
        binding: String,
        /// The project that has it.
        #[arg(long)]
        project: String,
        /// Kubeconfig of the caller. Default: the first of $KUBECONFIG, otherwise data/admin.kubeconfig.
        #[arg(long)]
        kubeconfig: Option<PathBuf>,
    },
    /// Prints where a rollout of an export's schemas stands.
    Rollout {
        /// The APIRollout.
        rollout: String,
        /// The provider's project.
        #[arg(long)]
        project: String,
        /// Kubeconfig of the caller. Default: the first of $KUBECONFIG, otherwise data/admin.kubeconfig.
        #[arg(long)]
        kubeconfig: Option<PathBuf>,
    },
}

/// Runs a subcommand.
pub(crate) async fn run(args: Args) -> Result<()> {
    match args.command {
        Command::Schema { file, prefix } => terminal::documents(schemas(&read(&file)?, &prefix)?.iter()),
        Command::Show { binding, project, kubeconfig } => {
            let client = in_project(&project, kubeconfig)?;
            let found = client.get(&OF_BINDINGS, None, &binding).await?;
            say(&shown(&serde_json::from_value(found)?));
            let path = format!("/apis/{}/{BINDINGS}/{binding}/{ACCESS}", OF_BINDINGS.api_version());
            say(&accessed(&client.get_path(&path).await?));
            Ok(())
        }
        Command::Rollout { rollout, project, kubeconfig } => {
            let found = in_project(&project, kubeconfig)?.get(&OF_ROLLOUTS, None, &rollout).await?;
            say(&rolled(&serde_json::from_value(found)?));
            Ok(())
        }
    }
}

fn in_project(project: &str, kubeconfig: Option<PathBuf>) -> Result<Client> {
    kubeconfig::own::check_name(project)?;
    Ok(Client::new(&kubeconfig::admin(kubeconfig)?)?.at(&urls::project_path(project)))
}

fn say(lines: &[String]) {
    lines.iter().for_each(terminal::say);
}

/// Where a rollout stands: what it does, and each stage.
fn rolled(rollout: &ApiRollout) -> Vec<String> {
    let (spec, status) = (&rollout.spec, &rollout.status);
    let mut lines = vec![
        format!(
            "{} gives export {:?} the schemas {}: {:?}",
            rollout.metadata.name,
            spec.export,
            spec.schemas.join(", "),
            status.phase
        ),
        format!("{} of {} consumers have them.", status.updated, status.consumers),
    ];
    for (nth, stage) in spec.stages.iter().enumerate() {
        let state = if nth < status.stage as usize { "served" } else { "waits" };
        lines.push(format!("  stage {}: {}: {state}", nth + 1, selected(stage)));
    }
    if let Some(force) = &spec.force {
        lines.push(format!("Objects may become invalid, because: {}", force.reason));
    }
    if !status.message.is_empty() {
        lines.push(format!("{}: {}", status.reason, status.message));
    }
    lines
}

/// The consumers of a stage in plain words.
fn selected(stage: &RolloutStage) -> String {
    let percent = stage.percent.map(|percent| format!("{percent} %"));
    let organizations = Some(stage.organizations.join(", ")).filter(|names| !names.is_empty());
    let organizations = organizations.map(|names| format!("organizations {names}"));
    let labels: Vec<String> = stage.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let labels = (!labels.is_empty()).then(|| format!("bindings labelled {}", labels.join(",")));
    percent.into_iter().chain(organizations).chain(labels).collect::<Vec<_>>().join(" and ")
}

fn read(file: &Path) -> Result<Vec<Value>> {
    let mut text = String::new();
    let named = || format!("{} can't be read", file.display());
    if file.as_os_str() == "-" {
        std::io::stdin().take(MAX_FILE).read_to_string(&mut text).with_context(named)?;
    } else {
        let opened = std::fs::File::open(file).with_context(named)?;
        opened.take(MAX_FILE).read_to_string(&mut text).with_context(named)?;
    }
    serde_saphyr::from_multiple(&text).with_context(named)
}

/// The schemas of the definitions among objects.
fn schemas(objects: &[Value], prefix: &str) -> Result<Vec<Value>> {
    let is_definition = |object: &&Value| object["kind"] == "CustomResourceDefinition";
    let found: Vec<Value> =
        objects.iter().filter(is_definition).map(|crd| schema(crd, prefix)).collect::<Result<_>>()?;
    if found.is_empty() {
        bail!("there is no CustomResourceDefinition in it");
    }
    Ok(found)
}

fn schema(crd: &Value, prefix: &str) -> Result<Value> {
    let name = meta::name(crd);
    let mut spec: ApiResourceSchemaSpec = serde_json::from_value(crd["spec"].clone())
        .with_context(|| format!("{name:?} is no CustomResourceDefinition"))?;
    // Versions that are not served are no one's concern, but for the stored one.
    spec.versions.retain(|version| version["served"] == true || version["storage"] == true);
    Ok(json!({
        "apiVersion": OF_SCHEMAS.api_version(), "kind": "APIResourceSchema",
        "metadata": {"name": format!("{prefix}.{name}")}, "spec": spec,
    }))
}

/// What a binding gives away.
fn shown(binding: &ApiBinding) -> Vec<String> {
    let (spec, status) = (&binding.spec, &binding.status);
    let bound = status.conditions.iter().find(|condition| condition.type_ == "Bound");
    let state = bound
        .map_or_else(|| "not decided yet".to_owned(), |bound| format!("{} ({})", bound.status, bound.reason));
    let mut lines = vec![format!(
        "{} binds export {:?} of project {:?}; Bound: {state}",
        binding.metadata.name, spec.export.name, spec.export.project
    )];
    lines.push("The provider may do anything with objects of:".to_owned());
    lines.extend(status.schemas.iter().map(|one| format!("  {}.{}", one.resource, one.group)));
    if spec.accepted_claims.is_empty() && status.default_claims.is_empty() {
        lines.push("It has no access to anything else.".to_owned());
    } else {
        lines.push("Beside that it may:".to_owned());
        lines.extend(spec.accepted_claims.iter().map(|claim| format!("  {}", words(claim))));
        lines.extend(status.default_claims.iter().map(|claim| format!("  {} (by default)", words(claim))));
    }
    if !spec.rejected_claims.is_empty() {
        lines.push("Rejected claims:".to_owned());
        lines.extend(spec.rejected_claims.iter().map(|claim| format!("  {}", words(claim))));
    }
    let class = binding.metadata.labels.get(CLASS_LABEL);
    if let Some(class) = class {
        lines.push(format!("It comes from ControlPlaneClass {class:?}: the platform changes it."));
    }
    if let Some(bound) = bound.filter(|bound| bound.status != "True" && !bound.message.is_empty()) {
        lines.push(format!("It is not bound: {}", bound.message));
    } else if !spec.accepted_terms.is_empty() {
        lines.push(format!("The terms {} are accepted.", spec.accepted_terms));
    }
    if class.is_some() {
        return lines;
    }
    lines.push(match spec.objects {
        BoundObjects::Refuse => "The binding can't be deleted while there are objects.".to_owned(),
        BoundObjects::Delete => "Deleting the binding deletes its objects.".to_owned(),
        BoundObjects::Keep => "Deleting the binding keeps its objects out of sight.".to_owned(),
    });
    lines
}

/// What an export brings beside its kinds, and what its provider did of late.
fn accessed(access: &Value) -> Vec<String> {
    let list = |field: &str| access[field].as_array().map(Vec::as_slice).unwrap_or_default();
    let text = |value: &Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
    let mut lines = Vec::new();
    if !list("policies").is_empty() || !list("webhooks").is_empty() {
        lines.push("For objects of these kinds, and nothing else, the provider has:".to_owned());
    }
    let kind = |value: &Value| if value["kind"] == "Mutating" { "changes" } else { "checks" };
    let policy = |one: &Value| format!("  policy {}, which {} what is written", text(one, "name"), kind(one));
    lines.extend(list("policies").iter().map(policy));
    let at = |hook: &Value| {
        let url = hook["clientConfig"]["url"].as_str();
        url.map_or_else(|| "a Service of the provider's".to_owned(), str::to_owned)
    };
    let webhook = |one: &Value| {
        let hook = &one["webhook"];
        let (name, at) = (text(hook, "name"), at(hook));
        format!("  webhook {name} at {at}, which {} what is written and sees it", kind(one))
    };
    lines.extend(list("webhooks").iter().map(webhook));
    let conversion = |one: &Value| {
        let (group, resource) = (text(one, "group"), text(one, "resource"));
        format!("A webhook at {} converts {resource}.{group} between versions, and sees them.", at(one))
    };
    lines.extend(list("conversions").iter().map(conversion));
    if list("accesses").is_empty() {
        lines.push("The provider made no requests here since the server started.".to_owned());
        return lines;
    }
    lines.push("What the provider did of late, since the server's start:".to_owned());
    lines.extend(list("accesses").iter().map(|one| {
        let (group, resource) = (text(one, "group"), text(one, "resource"));
        let of = if group.is_empty() { resource } else { format!("{resource}.{group}") };
        let wide = if one["allConsumers"] == true { ", in all consumers at once" } else { "" };
        format!(
            "  {} {of}, {} times, last at {} by {}{wide}",
            text(one, "verb"),
            one["count"],
            text(one, "last"),
            text(one, "user")
        )
    }));
    lines
}

/// A claim in plain words.
fn words(claim: &PermissionClaim) -> String {
    let verbs = match claim.verbs.iter().any(|verb| verb == "*") {
        true => "do anything with".to_owned(),
        false => claim.verbs.join(", "),
    };
    let group = if claim.group.is_empty() { String::new() } else { format!(".{}", claim.group) };
    let mut text = format!("{verbs} {}{group}", claim.resource);
    if !claim.names.is_empty() {
        text.push_str(&format!(" named {}", claim.names.join(" or ")));
    }
    if !claim.labels.is_empty() {
        let labels: Vec<String> = claim.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        text.push_str(&format!(" labelled {}", labels.join(",")));
    }
    if claim.names.is_empty() && claim.labels.is_empty() {
        text.push_str(", all of them");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crd() -> Value {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
                "versions": [
                    {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}},
                    {"name": "v0", "served": false, "storage": false},
                ],
            },
        })
    }

    #[test]
    fn a_schema_has_what_a_definition_says_and_a_name_of_its_own() {
        let schema = schemas(&[json!({"kind": "Other"}), crd()], "v7").unwrap().remove(0);
        assert_eq!(schema["metadata"]["name"], "v7.widgets.example.com");
        assert_eq!(schema["spec"]["names"]["kind"], "Widget");
        assert_eq!(schema["spec"]["versions"].as_array().map(Vec::len), Some(1));
        assert!(schemas(&[json!({"kind": "Other"})], "v1").is_err());
    }

    #[test]
    fn a_conversion_webhook_goes_into_the_schema() {
        let mut crd = crd();
        let conversion = json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"]}});
        crd["spec"]["conversion"] = conversion.clone();
        assert_eq!(schemas(&[crd], "v1").unwrap().remove(0)["spec"]["conversion"], conversion);
    }

    #[test]
    fn a_rollout_is_told_stage_by_stage() {
        let rollout = json!({
            "metadata": {"name": "wide"},
            "spec": {"export": "pg", "schemas": ["v2"], "stages": [
                {"organizations": ["acme"], "labels": {"ring": "canary"}}, {"percent": 50}]},
            "status": {"phase": "Halted", "stage": 1, "updated": 1, "consumers": 4, "reason": "StageRefused", "message": "why"},
        });
        let told = rolled(&serde_json::from_value(rollout).unwrap());
        assert_eq!(
            told,
            [
                "wide gives export \"pg\" the schemas v2: Halted",
                "1 of 4 consumers have them.",
                "  stage 1: organizations acme and bindings labelled ring=canary: served",
                "  stage 2: 50 %: waits",
                "StageRefused: why",
            ]
        );
    }

    #[test]
    fn what_a_provider_brings_and_did_is_told() {
        let told = accessed(&json!({
            "policies": [{"name": "small", "spec": {}}],
            "webhooks": [{"kind": "Mutating", "webhook": {"name": "w.example.com", "clientConfig": {"url": "https://a"}}}],
            "conversions": [{"group": "db.example.com", "resource": "databases", "clientConfig": {"service": {"name": "a"}}}],
            "accesses": [{"verb": "list", "group": "db.example.com", "resource": "databases", "user": "bo", "count": 3,
                "last": "2026-01-01T00:00:00Z", "allConsumers": true}],
        }));
        assert_eq!(
            told,
            [
                "For objects of these kinds, and nothing else, the provider has:",
                "  policy small, which checks what is written",
                "  webhook w.example.com at https://a, which changes what is written and sees it",
                "A webhook at a Service of the provider's converts databases.db.example.com between versions, and sees them.",
                "What the provider did of late, since the server's start:",
                "  list databases.db.example.com, 3 times, last at 2026-01-01T00:00:00Z by bo, in all consumers at once",
            ]
        );
        assert_eq!(accessed(&json!({})).len(), 1);
    }

    #[test]
    fn claims_are_told_in_plain_words() {
        let claim = |given: Value| serde_json::from_value::<PermissionClaim>(given).unwrap();
        let all = claim(json!({"resource": "secrets", "verbs": ["get", "list"]}));
        assert_eq!(words(&all), "get, list secrets, all of them");
        let one = claim(
            json!({"group": "apps", "resource": "deployments", "verbs": ["*"], "names": ["db"], "labels": {"a": "b"}}),
        );
        assert_eq!(words(&one), "do anything with deployments.apps named db labelled a=b");
    }
}
