//! `freehold can-i VERB RESOURCE`: asks an access review, and says which binding allows it or what is missing.

use crate::{kubeconfig, terminal};
use anyhow::{Result, bail};
use freehold_api::urls::{organization_path, project_path};
use freehold_client::{Client, Resource};
use serde_json::{Value, json};
use std::path::PathBuf;

/// Flags of `freehold can-i`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// `get`, `list`, `create`, ...
    verb: String,
    /// The resource, with its group (`deployments.apps`), or a path (`/metrics`).
    resource: String,
    /// The object's name.
    name: Option<String>,
    /// Show which binding allows it, or what each binding of the user lacks.
    #[arg(long)]
    explain: bool,
    /// The subresource.
    #[arg(long, default_value = "")]
    subresource: String,
    /// The namespace.
    #[arg(long, short, default_value = "")]
    namespace: String,
    /// In a project's control plane.
    #[arg(long, conflicts_with = "organization")]
    project: Option<String>,
    /// In an organization's view.
    #[arg(long)]
    organization: Option<String>,
    /// Check another user; requires the right to create SubjectAccessReviews there.
    #[arg(long = "as")]
    user: Option<String>,
    /// A group of that other user; repeatable.
    #[arg(long = "as-group", requires = "user")]
    groups: Vec<String>,
    /// Kubeconfig of the caller. Default: the first of $KUBECONFIG, otherwise data/admin.kubeconfig or ~/.kube/config.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
}

/// What is asked.
fn review(args: &Args) -> Value {
    let mut spec = if args.resource.starts_with('/') {
        json!({"nonResourceAttributes": {"verb": args.verb, "path": args.resource}})
    } else {
        let (resource, group) = args.resource.split_once('.').unwrap_or((&args.resource, ""));
        json!({"resourceAttributes": {
            "verb": args.verb, "group": group, "resource": resource, "subresource": args.subresource,
            "namespace": args.namespace, "name": args.name.as_deref().unwrap_or_default(),
        }})
    };
    let kind = match &args.user {
        None => "SelfSubjectAccessReview",
        Some(user) => {
            spec["user"] = user.as_str().into();
            let own = ["system:authenticated"].into_iter();
            spec["groups"] = own.chain(args.groups.iter().map(String::as_str)).collect();
            "SubjectAccessReview"
        }
    };
    json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec,
        "metadata": {"annotations": {"iam.freehold.dev/explain": args.explain.to_string()}},
    })
}

/// Prints `yes` or `no`, and why; fails where it is no.
pub(crate) async fn run(args: Args) -> Result<()> {
    let review = review(&args);
    let mut client = Client::new(&kubeconfig::admin(args.kubeconfig)?)?;
    if let Some(project) = &args.project {
        client = client.at(&project_path(project));
    } else if let Some(organization) = &args.organization {
        client = client.at(&organization_path(organization));
    }
    let own = review["kind"] == "SelfSubjectAccessReview";
    let plural = if own { "selfsubjectaccessreviews" } else { "subjectaccessreviews" };
    let answer = client.create(&Resource::cluster("authorization.k8s.io", "v1", plural), &review).await?;
    let status = &answer["status"];
    let allowed = status["allowed"] == true;
    println!("{}", if allowed { "yes" } else { "no" });
    for field in ["reason", "evaluationError"] {
        if let Some(text) = status[field].as_str().filter(|text| args.explain && !text.is_empty()) {
            terminal::say(text);
        }
    }
    if !allowed {
        let hint = if args.explain { "" } else { "; --explain says what is missing" };
        bail!("it is not allowed{hint}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn a_question_becomes_a_review() {
        let review = |words: &[&str]| review(&Line::parse_from(["can-i"].iter().chain(words)).args);
        let own = review(&["list", "deployments.apps", "-n", "shop", "--explain"]);
        assert_eq!(own["kind"], "SelfSubjectAccessReview");
        assert_eq!(own["spec"]["resourceAttributes"]["group"], "apps");
        assert_eq!(own["metadata"]["annotations"]["iam.freehold.dev/explain"], "true");
        let other = review(&["get", "/metrics", "--as", "ann", "--as-group", "ops"]);
        assert_eq!(other["spec"]["nonResourceAttributes"]["path"], "/metrics");
        assert_eq!(other["spec"]["groups"], json!(["system:authenticated", "ops"]));
    }
}
