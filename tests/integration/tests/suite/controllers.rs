//! Kubernetes' controllers over the objects of a project: Jobs, CronJobs, disruption budgets, rollouts. Pods run nowhere here:
//! their statuses are written as a node would write them.

use crate::{PATIENCE, items, text};
use freehold_tests_integration::{Kubectl, World, facts, until};
use serde_json::{Value, json};
use std::time::Instant;

facts!(world:
    a_job_counts_each_of_its_pods_once_and_is_deleted_when_its_time_is_over,
    an_indexed_job_goes_on_where_one_index_fails,
    a_suspended_job_waits_and_one_with_a_failure_policy_fails_at_once,
    a_cron_job_starts_a_job_and_keeps_its_history,
    a_budget_lets_as_many_pods_go_as_it_can_spare,
    a_rollout_that_is_scaled_paused_and_taken_back_says_so,
);

/// Waits for a condition; one that does not come true tells what there is instead.
fn waited<T>(kubectl: &Kubectl, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    until(what, PATIENCE + PATIENCE, || {
        let found = look();
        if found.is_none() && begun.elapsed() > PATIENCE {
            let all = kubectl.run(&["get", "jobs,pods,serviceaccounts", "-o", "yaml"]).stdout;
            let events = kubectl.run(&["get", "events"]).stdout;
            panic!("waited {PATIENCE:?} in vain: {what}. There is:\n{all}\n{events}");
        }
        found
    })
}

/// Writes the status of every pod that `fate` has one for, and makes it be seen by waiting for nothing.
fn play(kubectl: &Kubectl, selector: &str, fate: impl Fn(&Value) -> Option<Value>) {
    let pods = kubectl.json(&["get", "pods", "-l", selector]);
    for pod in items(&pods) {
        if matches!(text(pod, "/status/phase"), "Succeeded" | "Failed") {
            continue;
        }
        if let Some(status) = fate(pod) {
            let patch = json!({ "status": status }).to_string();
            let name = text(pod, "/metadata/name");
            // It may be gone by now.
            kubectl.run(&["patch", "pod", name, "--subresource=status", "--type=merge", "-p", &patch]);
        }
    }
}

fn ended(phase: &str, code: i64) -> Option<Value> {
    let at = "2026-01-01T00:00:00Z";
    let state =
        json!({"terminated": {"exitCode": code, "finishedAt": at, "startedAt": at, "reason": "Error"}});
    let container = json!({
        "name": "c", "image": "x", "imageID": "", "ready": false, "restartCount": 0, "state": state, "lastState": {},
    });
    Some(json!({"phase": phase, "containerStatuses": [container]}))
}

fn ready() -> Option<Value> {
    let condition = json!({"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    Some(json!({"phase": "Running", "conditions": [condition]}))
}

fn job(name: &str, spec: Value) -> String {
    let mut job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec});
    job["spec"]["template"] = json!({
        "metadata": {"labels": {"job": name}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "registry.example/x"}]},
    });
    job.to_string()
}

/// Plays the pods of a Job until it has a condition; gives its status.
fn played(kubectl: &Kubectl, name: &str, end: &str, fate: impl Fn(&Value) -> Option<Value>) -> Value {
    waited(kubectl, &format!("{name} is {end}"), || {
        play(kubectl, &format!("job={name}"), &fate);
        let job = kubectl.json(&["get", "job", name]);
        has(&job, end).then(|| job["status"].clone())
    })
}

fn has(object: &Value, condition: &str) -> bool {
    let list = object.pointer("/status/conditions").and_then(Value::as_array);
    list.into_iter().flatten().any(|c| c["type"] == condition && c["status"] == "True")
}

fn reason<'a>(status: &'a Value, condition: &str) -> &'a str {
    let list = status["conditions"].as_array();
    list.into_iter().flatten().find(|c| c["type"] == condition).map_or("", |c| text(c, "/reason"))
}

fn a_job_counts_each_of_its_pods_once_and_is_deleted_when_its_time_is_over(world: &World) {
    let kubectl = world.namespace("controllers", "jobs");
    kubectl.apply(&job("plain", json!({"completions": 3, "parallelism": 2, "ttlSecondsAfterFinished": 600})));
    let status = played(&kubectl, "plain", "Complete", |_| ended("Succeeded", 0));
    assert_eq!((&status["succeeded"], &status["uncountedTerminatedPods"]), (&json!(3), &json!({})));
    assert_eq!(reason(&status, "SuccessCriteriaMet"), "CompletionsReached");
    let pods = kubectl.json(&["get", "pods", "-l", "job=plain"]);
    assert_eq!(items(&pods).count(), 3);
    for pod in items(&pods) {
        assert!(pod["metadata"].get("finalizers").is_none(), "{pod}");
    }
    kubectl.ok(&["patch", "job", "plain", "--type=merge", "-p", r#"{"spec":{"ttlSecondsAfterFinished":0}}"#]);
    waited(&kubectl, "its time is over", || {
        let left = kubectl.run(&["get", "job", "plain", "--ignore-not-found", "-o", "name"]);
        (left.success && left.stdout.is_empty()).then_some(())
    });
    waited(&kubectl, "its pods are gone", || {
        (items(&kubectl.json(&["get", "pods", "-l", "job=plain"])).count() == 0).then_some(())
    });
}

fn an_indexed_job_goes_on_where_one_index_fails(world: &World) {
    let kubectl = world.namespace("controllers", "indexed");
    let spec =
        json!({"completionMode": "Indexed", "completions": 3, "parallelism": 3, "backoffLimitPerIndex": 0});
    kubectl.apply(&job("each", spec));
    let status = played(&kubectl, "each", "Failed", |pod| {
        match pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"].as_str() {
            Some("1") => ended("Failed", 1),
            _ => ended("Succeeded", 0),
        }
    });
    assert_eq!((&status["completedIndexes"], &status["failedIndexes"]), (&json!("0,2"), &json!("1")));
    assert_eq!(reason(&status, "Failed"), "FailedIndexes");

    let policy = json!({"rules": [{"succeededIndexes": "0"}]});
    let spec =
        json!({"completionMode": "Indexed", "completions": 3, "parallelism": 3, "successPolicy": policy});
    kubectl.apply(&job("first", spec));
    let status = played(&kubectl, "first", "Complete", |pod| {
        let name = text(pod, "/metadata/name");
        if name.starts_with("first-0-") { ended("Succeeded", 0) } else { ready() }
    });
    assert_eq!((reason(&status, "Complete"), &status["completedIndexes"]), ("SuccessPolicy", &json!("0")));
    assert_eq!(status["terminating"], 0);
}

fn a_suspended_job_waits_and_one_with_a_failure_policy_fails_at_once(world: &World) {
    let kubectl = world.namespace("controllers", "suspended");
    kubectl.apply(&job("later", json!({"suspend": true})));
    kubectl.ok(&["wait", "job/later", "--for=condition=Suspended", "--timeout=120s"]);
    assert_eq!(items(&kubectl.json(&["get", "pods", "-l", "job=later"])).count(), 0);
    kubectl.ok(&["patch", "job", "later", "--type=merge", "-p", r#"{"spec":{"suspend":false}}"#]);
    let status = played(&kubectl, "later", "Complete", |_| ended("Succeeded", 0));
    assert_eq!(reason(&status, "Suspended"), "JobResumed");

    let rules = json!([{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]);
    kubectl.apply(&job("strict", json!({"backoffLimit": 6, "podFailurePolicy": {"rules": rules}})));
    let status = played(&kubectl, "strict", "Failed", |_| ended("Failed", 42));
    assert_eq!((reason(&status, "FailureTarget"), &status["failed"]), ("PodFailurePolicy", &json!(1)));
}

fn a_cron_job_starts_a_job_and_keeps_its_history(world: &World) {
    let kubectl = world.namespace("controllers", "cron");
    let template = json!({"spec": {"template": {
        "metadata": {"labels": {"job": "tick"}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "registry.example/x"}]},
    }}});
    let spec = json!({"schedule": "@every 2s", "timeZone": "Europe/Berlin", "successfulJobsHistoryLimit": 0, "jobTemplate": template});
    let cron =
        json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "tick"}, "spec": spec});
    kubectl.apply(&cron.to_string());
    let job = until("a job", PATIENCE, || items(&kubectl.json(&["get", "jobs"])).next().cloned());
    assert_eq!(job["metadata"]["ownerReferences"][0]["kind"], "CronJob");
    let time = text(&job["metadata"]["annotations"], "/batch.kubernetes.io~1cronjob-scheduled-timestamp");
    assert!(time.ends_with("+01:00") || time.ends_with("+02:00"), "{time}");
    until("it is listed as active, or has been", PATIENCE, || {
        let cron = kubectl.json(&["get", "cronjob", "tick"]);
        (!text(&cron, "/status/lastScheduleTime").is_empty()).then_some(())
    });
    kubectl.ok(&["patch", "cronjob", "tick", "--type=merge", "-p", r#"{"spec":{"suspend":true}}"#]);
    until("what succeeded is deleted, as the history has no room", PATIENCE, || {
        play(&kubectl, "job=tick", |_| ended("Succeeded", 0));
        let cron = kubectl.json(&["get", "cronjob", "tick"]);
        let none = items(&kubectl.json(&["get", "jobs"])).count() == 0;
        (none && !text(&cron, "/status/lastSuccessfulTime").is_empty()).then_some(())
    });
}

fn a_budget_lets_as_many_pods_go_as_it_can_spare(world: &World) {
    let kubectl = world.namespace("controllers", "budget");
    kubectl.ok(&["create", "deployment", "web", "--image=registry.example/x", "--replicas=3"]);
    kubectl.ok(&["create", "poddisruptionbudget", "web", "--selector=app=web", "--max-unavailable=1"]);
    let allowed = |number: i64| {
        until(&format!("{number} may go"), PATIENCE, || {
            play(&kubectl, "app=web", |_| ready());
            let budget = kubectl.json(&["get", "pdb", "web"]);
            let healthy = budget["status"]["currentHealthy"] == 3;
            (budget["status"]["disruptionsAllowed"] == number && healthy).then_some(budget)
        })
    };
    let budget = allowed(1);
    assert_eq!(
        (&budget["status"]["expectedPods"], &budget["status"]["desiredHealthy"]),
        (&json!(3), &json!(2))
    );
    assert!(has(&budget, "DisruptionAllowed"), "{budget}");
    kubectl.ok(&["scale", "deployment", "web", "--replicas=4"]);
    until("a pod more is wanted than is healthy", PATIENCE, || {
        let budget = kubectl.json(&["get", "pdb", "web"]);
        (budget["status"]["disruptionsAllowed"] == 0).then_some(())
    });
}

fn a_rollout_that_is_scaled_paused_and_taken_back_says_so(world: &World) {
    let kubectl = world.namespace("controllers", "rollouts");
    kubectl.ok(&["create", "deployment", "web", "--image=registry.example/x:1", "--replicas=2"]);
    let done = || {
        until("the rollout is done", PATIENCE, || {
            play(&kubectl, "app=web", |_| ready());
            let web = kubectl.json(&["get", "deployment", "web"]);
            let current = web["status"]["observedGeneration"] == web["metadata"]["generation"];
            (current
                && web["status"]["availableReplicas"] == web["spec"]["replicas"]
                && web["status"]["updatedReplicas"] == web["spec"]["replicas"]
                && web["status"]["replicas"] == web["spec"]["replicas"])
                .then_some(web)
        })
    };
    let revision =
        |web: &Value| text(&web["metadata"]["annotations"], "/deployment.kubernetes.io~1revision").to_owned();
    assert_eq!(revision(&done()), "1");
    kubectl.ok(&["rollout", "pause", "deployment/web"]);
    until("it says that it is paused", PATIENCE, || {
        let web = kubectl.json(&["get", "deployment", "web"]);
        (reason(&web["status"], "Progressing") == "DeploymentPaused").then_some(())
    });
    kubectl.ok(&["set", "image", "deployment/web", "*=registry.example/x:2"]);
    kubectl.ok(&["scale", "deployment", "web", "--replicas=3"]);
    kubectl.ok(&["rollout", "resume", "deployment/web"]);
    let web = done();
    assert_eq!((revision(&web).as_str(), &web["status"]["terminatingReplicas"]), ("2", &json!(0)));
    until("its end is told", PATIENCE, || {
        let web = kubectl.json(&["get", "deployment", "web"]);
        (reason(&web["status"], "Progressing") == "NewReplicaSetAvailable").then_some(())
    });
    let back = r#"{"metadata":{"annotations":{"deprecated.deployment.rollback.to":"1"}}}"#;
    kubectl.ok(&["patch", "deployment", "web", "--type=merge", "-p", back]);
    until("the first template is back, as the third revision", PATIENCE, || {
        play(&kubectl, "app=web", |_| ready());
        let web = kubectl.json(&["get", "deployment", "web"]);
        let image = text(&web, "/spec/template/spec/containers/0/image");
        (image == "registry.example/x:1" && revision(&web) == "3").then_some(())
    });
}
