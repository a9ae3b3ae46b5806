//! Records kube-apiserver's answers: `freehold-tests-differential KUBECONFIG` writes `recorded/`.

use anyhow::{Context, Result};
use freehold_client::{Client, Config};
use freehold_tests_differential::{examples, path, run, scenarios};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let kubeconfig = std::env::args().nth(1).context("usage: freehold-tests-differential KUBECONFIG")?;
    let client = Client::new(&Config::from_kubeconfig(kubeconfig)?)?;
    std::fs::create_dir_all(path("recorded"))?;
    for scenario in scenarios()? {
        let answers = run(&client, &scenario).await?;
        let file = path("recorded").join(format!("{}.json", scenario.name));
        std::fs::write(&file, format!("{}\n", serde_json::to_string_pretty(&answers)?))?;
        println!("{}: {} answers", scenario.name, answers.len());
    }
    if examples::folders().1.is_dir() {
        let verdicts = examples::run(&client).await?;
        std::fs::write(path("examples.json"), format!("{}\n", serde_json::to_string_pretty(&verdicts)?))?;
        println!("examples: {} verdicts", verdicts.len());
    }
    Ok(())
}
