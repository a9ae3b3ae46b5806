//! Definitions of others, written for these tests, and what becomes of them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use freehold_workflow_convert::{Converted, convert, convert_with, parse};
use serde_json::{Value, json};

fn one(text: &str) -> Converted {
    let documents = parse(text).unwrap();
    assert_eq!(documents.len(), 1);
    convert(&documents).remove(0)
}

fn made(text: &str) -> Vec<Value> {
    let converted = one(text);
    assert!(converted.problems.is_empty(), "{:#?}", converted.problems);
    converted.objects
}

fn refused(text: &str) -> Vec<String> {
    let converted = one(text);
    assert!(converted.objects.is_empty());
    converted.problems.into_iter().map(|problem| problem.path).collect()
}

const COIN: &str = "
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {generateName: coin-}
spec:
  entrypoint: main
  arguments: {parameters: [{name: side, value: heads}]}
  onExit: report
  templates:
  - name: main
    steps:
    - - {name: toss, template: toss}
    - - {name: won, template: say, when: '{{steps.toss.outputs.result}} == {{workflow.parameters.side}}',
         arguments: {parameters: [{name: text, value: 'it was {{steps.toss.outputs.result}}'}]}}
      - {name: each, template: say, withItems: [1, two], arguments: {parameters: [{name: text, value: '{{item}}'}]}}
    - - {name: after, template: nested}
  - name: toss
    script: {image: 'python:3', command: [python], source: 'print(\"heads\")'}
    retryStrategy: {limit: '2', backoff: {duration: 5s, factor: 2}}
  - name: say
    inputs: {parameters: [{name: text}]}
    container: {image: busybox, command: [echo], args: ['{{inputs.parameters.text}} $(params.x)'], imagePullPolicy: Always}
  - name: nested
    dag:
      tasks:
      - {name: a, template: say, arguments: {parameters: [{name: text, value: '{{workflow.parameters.side}}'}]}}
      - {name: b, depends: 'a.Failed || a.Succeeded', template: pause}
  - name: pause
    suspend: {duration: '20'}
  - name: report
    container: {image: busybox, command: [echo, '{{workflow.status}}']}
";

#[test]
fn steps_of_argo_become_tasks_in_their_order() {
    let objects = made(COIN);
    assert_eq!(objects.len(), 2);
    let dag = &objects[0]["spec"];
    assert_eq!(objects[0]["metadata"]["name"], "coin");
    assert_eq!(dag["parameters"][0]["default"], "heads");
    let tasks = dag["tasks"].as_array().unwrap();
    assert_eq!(
        tasks.iter().map(|t| t["name"].as_str().unwrap()).collect::<Vec<_>>(),
        ["toss", "won", "each", "after"]
    );
    assert_eq!(tasks[0]["outputs"][0], json!({"name": "result", "type": "string", "from": "Log"}));
    assert_eq!(tasks[0]["retry"]["backoff"]["factorPercent"], 200);
    assert_eq!(tasks[1]["when"], "string(tasks.toss.outputs.result) == string(params.side)");
    assert_eq!(tasks[1]["parameters"][0]["value"], "it was $(tasks.toss.outputs.result)");
    assert_eq!(tasks[1]["args"][0], "$(params.text) $$(params.x)");
    assert_eq!(
        tasks[1]["pod"]["spec"]["containers"][0],
        json!({"name": "main", "imagePullPolicy": "Always"})
    );
    assert_eq!(tasks[2]["forEach"]["items"], json!([1, "two"]));
    // `won` may be left out, and `after` runs all the same.
    assert!(
        tasks[3]["depends"].as_str().unwrap().contains("(won.succeeded || (won.skipped && !toss.failed))"),
        "{}",
        tasks[3]
    );
    assert_eq!(tasks[3]["dag"]["name"], "coin-nested");
    assert_eq!(tasks[3]["parameters"][0], json!({"name": "workflow_side", "value": "$(params.side)"}));
    assert_eq!(dag["finally"][0]["command"][1], "$(run.phase)");
    let nested = &objects[1]["spec"];
    assert_eq!(nested["tasks"][0]["parameters"][0]["value"], "$(params.workflow_side)");
    assert_eq!(nested["tasks"][1]["depends"], "a.failed || a.succeeded");
    assert_eq!(nested["tasks"][1]["wait"]["duration"], "20");
}

#[test]
fn fields_without_counterpart_are_refused_by_their_path() {
    let workflow = |template: &str| {
        format!(
            "apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata: {{name: w}}\nspec:\n  entrypoint: m\n  templates:\n  \
             - {{name: m, container: {{image: i}}, {template}}}\n"
        )
    };
    for (template, path) in [
        ("outputs: {artifacts: [{name: a, path: /a}]}", "spec.templates[0].outputs.artifacts"),
        ("daemon: true", "spec.templates[0].daemon"),
        ("metrics: {prometheus: []}", "spec.templates[0].metrics"),
        ("somethingNew: {a: 1}", "spec.templates[0].somethingNew"),
        ("sidecars: {a: 1}", "spec.templates[0].sidecars"),
        ("retryStrategy: often", "spec.templates[0].retryStrategy"),
        ("retryStrategy: {retryPolicy: OnError, limit: 1}", "spec.templates[0].retryStrategy.retryPolicy"),
        (
            "synchronization: {semaphore: {configMapKeyRef: {name: a, key: b}}}",
            "spec.templates[0].synchronization.semaphore",
        ),
        ("nodeSelector: {a: '{{pod.name}}'}", "spec.templates[0].nodeSelector.a"),
        ("priorityClassName: '{{=1}}'", "spec.templates[0].priorityClassName"),
    ] {
        assert_eq!(refused(&workflow(template)), [path], "{template}");
    }
    assert_eq!(refused("apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n"), ["kind"]);
}

#[test]
fn a_cron_workflow_has_its_schedule_and_a_reference_is_followed() {
    let cron = parse(
        "apiVersion: argoproj.io/v1alpha1\nkind: CronWorkflow\nmetadata: {name: nightly}\nspec:\n  schedules: ['0 2 * * *']\n  \
         timezone: Europe/Berlin\n  concurrencyPolicy: Replace\n  startingDeadlineSeconds: 60\n  successfulJobsHistoryLimit: 4\n  \
         workflowSpec: {workflowTemplateRef: {name: shared}, arguments: {parameters: [{name: a, value: '2'}]}}\n",
    )
    .unwrap();
    let shared = parse(
        "apiVersion: argoproj.io/v1alpha1\nkind: WorkflowTemplate\nmetadata: {name: shared}\nspec:\n  entrypoint: m\n  arguments: \
         {parameters: [{name: a, value: '1'}, {name: b, value: x}]}\n  templates: [{name: m, container: {image: i, args: \
         ['{{workflow.parameters.a}}{{workflow.parameters.b}}']}}]\n",
    )
    .unwrap();
    assert_eq!(convert(&cron)[0].problems[0].path, "spec.workflowSpec.workflowTemplateRef");
    let converted = convert_with(&cron, &shared).remove(0);
    assert!(converted.problems.is_empty(), "{:?}", converted.problems);
    let spec = &converted.objects[0]["spec"];
    assert_eq!((&spec["schedules"][0], &spec["timeZone"]), (&json!("0 2 * * *"), &json!("Europe/Berlin")));
    assert_eq!((&spec["concurrencyPolicy"], &spec["startingDeadline"]), (&json!("Replace"), &json!("60s")));
    assert_eq!(spec["parameters"][0]["default"], "2");
    assert_eq!(spec["history"]["successful"], 4);
}

#[test]
fn a_kontroler_dag_runs_unchanged() {
    let objects = made(
        "apiVersion: kontroler.greedykomodo/v1alpha1\nkind: DAG\nmetadata: {name: d, labels: {a: b}}\nspec:\n  schedule: '*/5 * * * *'\n  \
         parameters: [{name: URL, defaultValue: x}, {name: KEY, defaultFromSecret: s}]\n  workspace: {enable: true, pvc: \
         {accessModes: [ReadWriteOnce]}}\n  webhook: {url: 'https://h', verifySSL: false}\n  task:\n  - {name: a, image: i, script: \
         \"#!/bin/bash\\nls $URL\", parameters: [URL, KEY], backoff: {limit: 2}, conditional: {enabled: true, retryCodes: [1, 7]}}\n  \
         - {name: b, image: i, command: [sh], runAfter: [a], backoff: {limit: 0}, conditional: {enabled: false, retryCodes: []}, \
         podTemplate: {resources: {limits: {cpu: 1}}, serviceAccountName: sa, activeDeadlineSeconds: 9}}\n",
    );
    let spec = &objects[0]["spec"];
    assert_eq!(spec["tasks"][0]["command"], json!(["/bin/sh"]), "whatever the first line of the script says");
    assert_eq!(spec["tasks"][0]["env"][1], json!({"name": "KEY", "value": "$(params.KEY)"}));
    assert_eq!(spec["tasks"][0]["retry"]["exitCodes"], json!([1, 7]));
    assert_eq!(spec["parameters"][1]["valueFrom"]["secretKeyRef"], json!({"name": "s", "key": "secret"}));
    assert_eq!(spec["tasks"][1]["pod"]["spec"]["serviceAccountName"], "sa");
    assert_eq!((&spec["tasks"][1]["timeout"], &spec["tasks"][1]["retry"]), (&json!("9s"), &Value::Null));
    assert_eq!(spec["workspace"]["mountPath"], "/workspace");
    let run = made(
        "apiVersion: kontroler.greedykomodo/v1alpha1\nkind: DagRun\nmetadata: {name: r}\nspec: {dagName: d, parameters: [{name: URL, value: y}]}\n",
    );
    assert_eq!(run[0]["spec"]["parameters"], json!([{"name": "URL", "value": "y"}]));
    let text = "apiVersion: kontroler.greedykomodo/v1alpha1\nkind: DAG\nmetadata: {name: d}\nspec:\n  dsl: |\n    graph { a -> b }\n    \
         task a { image \"i\" command [\"x\"] }\n    task b { image \"i\" script \"ls\" }\n";
    assert_eq!(made(text)[0]["spec"]["tasks"][1]["runAfter"], json!(["a"]));
}

#[test]
fn a_tekton_pipeline_becomes_a_dag() {
    let objects = made(
        "apiVersion: tekton.dev/v1\nkind: Pipeline\nmetadata: {name: p}\nspec:\n  params: [{name: url, type: string}, {name: tags, type: \
         array, default: [a]}]\n  workspaces: [{name: src}]\n  tasks:\n  - name: fetch\n    taskRef: {name: clone}\n    params: \
         [{name: url, value: $(params.url)}]\n    workspaces: [{name: out, workspace: src}]\n  - name: build\n    runAfter: [fetch]\n    \
         when: [{input: $(tasks.fetch.results.branch), operator: in, values: [main, dev]}]\n    retries: 2\n    timeout: 1h\n    \
         params: [{name: tag, value: x}]\n    taskSpec:\n      params: [{name: tag}]\n      results: [{name: digest}]\n      steps:\n      \
         - {name: prepare, image: i, script: \"#!/usr/bin/env bash\\nls\"}\n      - {image: j, workingDir: $(workspaces.w.path), script: \
         \"echo $(params.tag) > $(results.digest.path); echo $(date)\"}\n  finally:\n  - {name: tell, taskSpec: {steps: [{image: i, \
         command: [echo, $(tasks.build.status)]}]}}\n",
    );
    let spec = &objects[0]["spec"];
    assert_eq!(spec["tasks"][1]["when"], "string(tasks.fetch.outputs.branch) in [\"main\", \"dev\"]");
    assert_eq!(spec["tasks"][1]["script"], "echo $(params.tag) > /dev/termination-log; echo $(date)");
    assert_eq!(spec["tasks"][1]["pod"]["spec"]["initContainers"][0]["command"][0], "bash");
    assert_eq!(spec["tasks"][1]["retry"]["limit"], 2);
    assert_eq!(spec["finally"][0]["command"][1], "$(tasks.build.phase)");
    let refused = refused(
        "apiVersion: tekton.dev/v1\nkind: Task\nmetadata: {name: t}\nspec: {results: [{name: a}, {name: b}], steps: [{image: i, onError: continue}]}\n",
    );
    assert_eq!(refused, ["spec.results", "spec.steps[0].onError"]);
}

/// Counts what becomes of the definitions in a folder, `FREEHOLD_TEST_WORKFLOW_EXAMPLES`.
#[test]
fn published_examples_are_converted_or_refused_by_a_path() {
    let Some(folder) = std::env::var_os("FREEHOLD_TEST_WORKFLOW_EXAMPLES") else { return };
    let mut files = Vec::new();
    let mut folders = vec![std::path::PathBuf::from(folder)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "yaml") {
                files.push(path);
            }
        }
    }
    files.sort();
    let read = |path: &std::path::PathBuf| parse(&std::fs::read_to_string(path).unwrap());
    let known: Vec<Value> = files.iter().filter_map(|path| read(path).ok()).flatten().collect();
    let (mut made, mut refused, mut broken, mut silent) = (0, 0, 0, 0);
    for path in &files {
        let documents = match read(path) {
            Ok(documents) => documents,
            Err(why) => {
                broken += 1;
                println!("{}: unreadable: {why}", path.display());
                continue;
            }
        };
        let documents: Vec<Value> =
            documents.into_iter().filter(freehold_workflow_convert::is_known).collect();
        if documents.is_empty() {
            println!("{}: no definition", path.display());
            continue;
        }
        let problems: Vec<_> =
            convert_with(&documents, &known).into_iter().flat_map(|converted| converted.problems).collect();
        if problems.is_empty() {
            made += 1;
        } else if problems.iter().all(|problem| !problem.path.is_empty()) {
            refused += 1;
            println!("{}: {}", path.display(), problems[0]);
        } else {
            silent += 1;
            println!(
                "{}: NOT NAMED {:?}",
                path.display(),
                problems.iter().find(|problem| problem.path.is_empty())
            );
        }
    }
    println!("{made} converted, {refused} refused by a path, {silent} refused without, {broken} unreadable");
    assert!((made + refused) * 10 >= (made + refused + silent + broken) * 9);
}
