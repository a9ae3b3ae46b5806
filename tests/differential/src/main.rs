//! Records kube-apiserver's answers, and shows where another API's differ.
//!
//! `freehold-tests-differential record KUBECONFIG [requests [SCENARIO] | examples | rules [FILE]]` writes `recorded/`;
//! `against KUBECONFIG requests [SCENARIO]` and `against KUBECONFIG rules [FILE [KIND]]` print what differs from it.

use anyhow::{Context, Result, bail};
use freehold_client::{Client, Config};
use freehold_tests_differential::{
    Answer, compare, compare_outcomes, examples, judge, kinds, load, meant, path, run, save, scenarios,
    unexplained,
};
use std::collections::BTreeMap;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let mode = args.next().context("usage: freehold-tests-differential record|against KUBECONFIG [WHAT]")?;
    let kubeconfig = args.next().context("a kubeconfig")?;
    let client = Client::new(&Config::from_kubeconfig(kubeconfig)?)?;
    let what = args.next().unwrap_or_default();
    let (only, kind) = (args.next(), args.next());
    if mode == "against" {
        return match what.as_str() {
            "requests" => requests_against(&client, only.as_deref()).await,
            _ => against(&client, only.as_deref(), kind.as_deref()).await,
        };
    }
    if mode != "record" {
        bail!("record or against, not {mode}");
    }
    let all = what.is_empty();
    if all || what == "requests" {
        record_requests(&client, only.as_deref()).await?;
    }
    if all || what == "examples" {
        record_examples(&client).await?;
    }
    if all || what == "rules" {
        record_rules(&client, only.as_deref()).await?;
    }
    Ok(())
}

async fn record_requests(client: &Client, only: Option<&str>) -> Result<()> {
    std::fs::create_dir_all(path("recorded"))?;
    for scenario in scenarios()? {
        if only.is_some_and(|only| only != scenario.name) {
            continue;
        }
        let answers = run(client, &scenario).await?;
        let file = path("recorded").join(format!("{}.json", scenario.name));
        std::fs::write(&file, format!("{}\n", serde_json::to_string_pretty(&answers)?))?;
        println!("{}: {} answers", scenario.name, answers.len());
    }
    Ok(())
}

/// Records the verdicts on the examples in the repository, or on those that `tools/get crds` has just fetched.
async fn record_examples(client: &Client) -> Result<()> {
    if examples::folders().1.is_dir() {
        examples::Published::collect()?.save()?;
    }
    let verdicts = examples::run(client, &examples::Published::load()?).await?;
    std::fs::write(path("examples.json"), format!("{}\n", serde_json::to_string_pretty(&verdicts)?))?;
    println!("examples: {} verdicts", verdicts.len());
    Ok(())
}

async fn record_rules(client: &Client, only: Option<&str>) -> Result<()> {
    for (file, kinds) in kinds()? {
        if only.is_some_and(|only| only != file) {
            continue;
        }
        let mut outcomes = BTreeMap::new();
        for kind in &kinds {
            let found = judge(client, kind, 1).await?;
            println!("{file}: {}: {} answers", kind.name, found.len());
            let refused =
                |what: &str| found.iter().find(|o| o.name.trim_end() == what).filter(|o| o.status >= 300);
            for first in ["create", "update", "status"] {
                if let Some(outcome) = refused(first) {
                    println!("  the whole object is refused: {first}: {}", outcome.body["message"]);
                }
            }
            outcomes.insert(kind.name.clone(), found);
        }
        save(&file, &outcomes)?;
    }
    Ok(())
}

async fn requests_against(client: &Client, only: Option<&str>) -> Result<()> {
    let meant = meant()?;
    for scenario in scenarios()? {
        if only.is_some_and(|only| only != scenario.name) {
            continue;
        }
        let recorded = std::fs::read_to_string(path("recorded").join(format!("{}.json", scenario.name)))?;
        let theirs: Vec<Answer> = serde_json::from_str(&recorded)?;
        let ours = run(client, &scenario).await?;
        let found: Vec<_> =
            theirs.iter().zip(&ours).flat_map(|(a, b)| compare(&scenario.name, a, b)).collect();
        unexplained(&found, &meant)?.0.iter().for_each(|difference| println!("{difference}"));
    }
    Ok(())
}

async fn against(client: &Client, only: Option<&str>, kind: Option<&str>) -> Result<()> {
    for (file, kinds) in kinds()? {
        if only.is_some_and(|only| only != file) {
            continue;
        }
        let recorded = load(&file)?;
        for kind in kinds.iter().filter(|k| kind.is_none_or(|kind| k.name == kind)) {
            let Some(theirs) = recorded.get(&kind.name) else { bail!("{}: record it", kind.name) };
            let ours = judge(client, kind, 1).await?;
            let (mut places, mut requests) = (0, 0);
            for (theirs, ours) in theirs.iter().zip(&ours) {
                let found = compare_outcomes(&kind.name, theirs, ours);
                places += found.len();
                requests += usize::from(!found.is_empty());
                found.iter().for_each(|difference| println!("{difference}"));
            }
            eprintln!("{}: {} answers, {requests} differ in {places} places", kind.name, ours.len());
            if theirs.len() != ours.len() {
                eprintln!("{}: {} were recorded", kind.name, theirs.len());
            }
        }
    }
    Ok(())
}
