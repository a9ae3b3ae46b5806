//! Commands that start runs, and change what becomes of them.

use crate::{DAGS, RUNS, show};
use anyhow::{Context as _, Result, anyhow, bail};
use freehold_client::{Client, Patch, PatchOptions};
use freehold_machinery::{Value, meta, time};
use freehold_workflow_api::{DAG, GROUP, Parameter, ParameterType, VERSION, names};
use freehold_workflow_engine::{names::scheduled_run, schedule};
use serde_json::json;

/// Runs that one backfill starts at most.
const MAX_BACKFILL: usize = 1000;

/// Arguments of `freehold workflow run`.
#[derive(clap::Args, Debug)]
pub(crate) struct Start {
    /// The DAG.
    dag: String,
    /// The name of the run. Default: the DAG's, with some letters.
    #[arg(long)]
    name: Option<String>,
    /// A parameter: NAME=VALUE. Values of other types than text are JSON.
    #[arg(long = "parameter", short = 'p', value_name = "NAME=VALUE")]
    parameters: Vec<String>,
    /// Wait until it is over; fails unless it succeeds.
    #[arg(long)]
    wait: bool,
}

/// Arguments of `freehold workflow stop`.
#[derive(clap::Args, Debug)]
pub(crate) struct Stop {
    /// The run.
    run: String,
    /// End everything at once, without finally tasks.
    #[arg(long)]
    now: bool,
}

/// Arguments of `freehold workflow retry`.
#[derive(clap::Args, Debug)]
pub(crate) struct Retry {
    /// The run.
    run: String,
    /// A task to be done again that succeeded.
    #[arg(long = "task")]
    tasks: Vec<String>,
}

/// Arguments of `freehold workflow approve`.
#[derive(clap::Args, Debug)]
pub(crate) struct Approve {
    /// The run.
    run: String,
    /// The task.
    task: String,
    /// Refuse instead: the task fails.
    #[arg(long)]
    reject: bool,
    /// Why.
    #[arg(long, default_value = "")]
    message: String,
}

/// Arguments of `freehold workflow backfill`.
#[derive(clap::Args, Debug)]
pub(crate) struct Backfill {
    /// The DAG.
    dag: String,
    /// Ticks after this time (RFC 3339).
    #[arg(long)]
    from: String,
    /// Ticks up to this time (RFC 3339).
    #[arg(long)]
    to: String,
    /// Print the ticks and start nothing.
    #[arg(long)]
    dry_run: bool,
}

fn object(name: Option<&str>, generate: &str, namespace: &str, spec: Value) -> Value {
    let mut metadata = json!({"namespace": namespace});
    match name {
        Some(name) => metadata["name"] = name.into(),
        None => metadata["generateName"] = format!("{generate}-").into(),
    }
    json!({"apiVersion": RUNS.api_version(), "kind": "DAGRun", "metadata": metadata, "spec": spec})
}

async fn dag(client: &Client, namespace: &str, name: &str) -> Result<DAG> {
    let found = client.get_opt(&DAGS, Some(namespace), name).await?;
    match found {
        Some(found) => Ok(serde_json::from_value(found)?),
        None => Err(no_dag(client, namespace, name).await),
    }
}

/// Why there is no DAG of a name: the control plane may lack the kind.
pub(crate) async fn no_dag(client: &Client, namespace: &str, name: &str) -> anyhow::Error {
    match client.get_path(&format!("/apis/{GROUP}/{VERSION}")).await {
        Err(error) if error.is_unserved() => error.into(),
        _ => anyhow!("there is no DAG {name:?} in the namespace {namespace:?}"),
    }
}

/// A value as the parameter's type has it.
fn read(parameter: &Parameter, text: &str) -> Value {
    match parameter.type_ {
        ParameterType::String => text.into(),
        _ => serde_json::from_str(text).unwrap_or_else(|_| text.into()),
    }
}

pub(crate) async fn start(client: &Client, namespace: &str, args: &Start) -> Result<()> {
    let dag = dag(client, namespace, &args.dag).await?;
    let mut parameters = Vec::new();
    for text in &args.parameters {
        let (name, value) =
            text.split_once('=').with_context(|| format!("-p {text:?}: NAME=VALUE is wanted"))?;
        let parameter = dag.spec.parameters.iter().find(|parameter| parameter.name == name);
        let parameter = parameter.with_context(|| format!("DAG {:?} has no parameter {name:?}", args.dag))?;
        parameters.push(json!({"name": name, "value": read(parameter, value)}));
    }
    let given = |name: &str| parameters.iter().any(|parameter| parameter["name"] == name);
    let wanted = |p: &&Parameter| p.default.is_none() && p.value_from.is_none() && !given(&p.name);
    if let Some(missing) = dag.spec.parameters.iter().find(wanted) {
        bail!("DAG {:?} wants a value: -p {}=VALUE", args.dag, missing.name);
    }
    let mut run = object(
        args.name.as_deref(),
        &args.dag,
        namespace,
        json!({"dag": args.dag, "parameters": parameters}),
    );
    run["metadata"]["labels"] = json!({names::DAG: freehold_workflow_engine::names::label(&args.dag)});
    if let Some(instance) = dag.metadata.labels.get(names::INSTANCE) {
        run["metadata"]["labels"][names::INSTANCE] = instance.as_str().into();
    }
    let created = client.create(&RUNS, &run).await?;
    println!("{}", meta::name(&created));
    if args.wait { show::watch(client, namespace, meta::name(&created)).await } else { Ok(()) }
}

async fn patch(client: &Client, namespace: &str, run: &str, spec: Value) -> Result<()> {
    let patch = Patch::Merge(json!({"spec": spec}));
    client.patch(&RUNS, Some(namespace), run, &patch, &PatchOptions::default()).await?;
    Ok(())
}

/// A run that is not over.
async fn live(client: &Client, namespace: &str, name: &str) -> Result<Value> {
    let run = client.get(&RUNS, Some(namespace), name).await?;
    if run["status"]["finishedAt"].is_string() {
        bail!("run {name:?} is over: {}", run["status"]["phase"].as_str().unwrap_or_default());
    }
    Ok(run)
}

pub(crate) async fn set_state(client: &Client, namespace: &str, run: &str, state: &str) -> Result<()> {
    live(client, namespace, run).await?;
    patch(client, namespace, run, json!({"state": state})).await?;
    println!("run {run}: {state} is wanted");
    Ok(())
}

pub(crate) async fn stop(client: &Client, namespace: &str, args: &Stop) -> Result<()> {
    set_state(client, namespace, &args.run, if args.now { "Terminated" } else { "Stopped" }).await
}

pub(crate) async fn retry(client: &Client, namespace: &str, args: &Retry) -> Result<()> {
    let run = client.get(&RUNS, Some(namespace), &args.run).await?;
    if run["status"]["finishedAt"].is_null() {
        bail!("run {:?} is not over; stop it first", args.run);
    }
    if run["status"]["phase"] == "Succeeded" && args.tasks.is_empty() {
        bail!("run {:?} succeeded: name what is done again with --task, or resubmit it", args.run);
    }
    let count = run["spec"]["retry"]["count"].as_u64().unwrap_or(0) + 1;
    let retry = json!({"count": count, "tasks": args.tasks});
    // Decisions of before are not about what is done again.
    let spec = json!({"state": "Running", "retry": retry, "approvals": null});
    patch(client, namespace, &args.run, spec).await?;
    println!("run {}: restart {count}", args.run);
    Ok(())
}

pub(crate) async fn resubmit(client: &Client, namespace: &str, name: &str) -> Result<()> {
    let run = client.get(&RUNS, Some(namespace), name).await?;
    println!("{}", meta::name(&client.create(&RUNS, &freehold_workflow_api::again(&run)).await?));
    Ok(())
}

pub(crate) async fn approve(client: &Client, namespace: &str, args: &Approve) -> Result<()> {
    let run = live(client, namespace, &args.run).await?;
    let status = &run["status"];
    let shown: Vec<&str> =
        status["tasks"].as_array().into_iter().flatten().filter_map(|task| task["name"].as_str()).collect();
    // A status shows a hundred tasks at most.
    let all =
        status["counts"]["total"].as_u64().is_some_and(|total| total > 0 && shown.len() as u64 >= total);
    if all && !shown.contains(&args.task.as_str()) {
        bail!("run {:?} has no task {:?}; it has {}", args.run, args.task, shown.join(", "));
    }
    let decision = if args.reject { "Rejected" } else { "Approved" };
    let by = std::env::var("USER").unwrap_or_default();
    let approval = json!({args.task.as_str(): {"decision": decision, "message": args.message, "by": by}});
    patch(client, namespace, &args.run, json!({"approvals": approval})).await?;
    println!("run {}: {} is {}", args.run, args.task, decision.to_lowercase());
    Ok(())
}

pub(crate) async fn backfill(client: &Client, namespace: &str, args: &Backfill) -> Result<()> {
    let dag = dag(client, namespace, &args.dag).await?;
    let at =
        |text: &str| time::parse(text).with_context(|| format!("{text:?} is no time as RFC 3339 has it"));
    let schedules = schedule::schedules(&dag.spec);
    if schedules.is_empty() {
        bail!("DAG {:?} has no schedule", args.dag);
    }
    let ticks = schedule::ticks_of(&dag.spec, &schedules, at(&args.from)?, at(&args.to)?);
    if ticks.len() > MAX_BACKFILL {
        bail!("{} runs are more than {MAX_BACKFILL} at once; take a shorter time", ticks.len());
    }
    for tick in ticks {
        let name = scheduled_run(&args.dag, &dag.metadata.uid, tick.as_second());
        if !args.dry_run {
            let mut run = object(Some(&name), "", namespace, json!({"dag": args.dag}));
            run["metadata"]["annotations"] = json!({names::TICK: time::format_seconds(tick)});
            match client.create(&RUNS, &run).await {
                Err(error) if error.is_already_exists() => {}
                created => drop(created?),
            }
        }
        println!("{} {name}", time::format_seconds(tick));
    }
    Ok(())
}
