//! Commands about definitions: lint, graph, convert.

use crate::{DAGS, RUNS, run::no_dag};
use anyhow::{Context as _, Result, bail};
use freehold_client::Client;
use freehold_machinery::{Value, meta};
use freehold_workflow_api::{DagSpec, GROUP, admission, validate};
use freehold_workflow_convert::{convert as convert_documents, parse};
use std::path::PathBuf;

fn read(path: &std::path::Path) -> Result<Vec<Value>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("{} can't be read", path.display()))?;
    parse(&text).map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))
}

pub(crate) fn lint(files: &[PathBuf]) -> Result<()> {
    let (mut checked, mut count) = (0, 0);
    for path in files {
        for object in read(path)? {
            let kind = object["kind"].as_str().unwrap_or_default();
            let what = format!("{}: {kind} {}", path.display(), meta::name(&object));
            let Some(found) = admission::lint(&object) else {
                eprintln!("{what}: not checked, it is none of {GROUP}");
                continue;
            };
            checked += 1;
            count += found.len();
            for error in found {
                println!("{what}: {}: {}", error.field, error.body());
            }
        }
    }
    match (checked, count) {
        (0, _) => bail!("there is no definition of {GROUP}; freehold workflow convert reads those of others"),
        (1, 0) => eprintln!("1 definition, no error"),
        (checked, 0) => eprintln!("{checked} definitions, no error"),
        (_, 1) => bail!("1 error"),
        (_, count) => bail!("{count} errors"),
    }
    Ok(())
}

pub(crate) fn graph_of_file(path: &str) -> Result<()> {
    let found = read(path.as_ref())?.into_iter().find(|object| object["kind"] == "DAG");
    let dag = found.with_context(|| format!("{path} has no DAG"))?;
    print_graph(&dag)
}

pub(crate) async fn graph(client: &Client, namespace: &str, name: &str) -> Result<()> {
    if let Some(dag) = client.get_opt(&DAGS, Some(namespace), name).await? {
        return print_graph(&dag);
    }
    match client.get_opt(&RUNS, Some(namespace), name).await? {
        Some(run) => {
            bail!("{name:?} is a run; its DAG is {}", run["spec"]["dag"].as_str().unwrap_or_default())
        }
        None => Err(no_dag(client, namespace, name).await),
    }
}

fn print_graph(dag: &Value) -> Result<()> {
    let spec: DagSpec = serde_json::from_value(dag["spec"].clone())?;
    println!("digraph {:?} {{\n  rankdir=LR;\n  node [shape=box];", meta::name(dag));
    for task in spec.tasks.iter().chain(&spec.finally) {
        println!("  {:?};", task.name);
        let depends = freehold_workflow_api::depends::Depends::parse(&task.depends).ok();
        let mut before = validate::dependencies(task);
        before.extend(task.run_after.iter().cloned());
        before.extend(depends.iter().flat_map(|depends| depends.tasks().into_iter().map(str::to_owned)));
        before.sort_unstable();
        before.dedup();
        for before in before {
            println!("  {before:?} -> {:?};", task.name);
        }
    }
    println!("}}");
    Ok(())
}

pub(crate) fn convert(files: &[PathBuf]) -> Result<()> {
    let mut refused = 0;
    for path in files {
        for converted in convert_documents(&read(path)?) {
            for note in &converted.notes {
                eprintln!("{}: {}: note: {note}", path.display(), converted.source);
            }
            for problem in &converted.problems {
                refused += 1;
                eprintln!("{}: {}: {problem}", path.display(), converted.source);
            }
            for object in &converted.objects {
                println!("---\n{}", freehold_client::yaml(object)?.trim_end());
            }
        }
    }
    match refused {
        0 => Ok(()),
        1 => bail!("1 field is not supported"),
        refused => bail!("{refused} fields are not supported"),
    }
}
