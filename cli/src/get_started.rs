//! `freehold get-started`: the README's quick start against a server, command by command. The README itself is in the
//! program, so that there is one text.

use crate::{kubeconfig, terminal::plain};
use anyhow::{Context as _, Result, bail, ensure};
use std::{
    fs,
    io::{IsTerminal as _, Write as _},
    path::{Path, PathBuf, absolute},
    process::Command,
};

const README: &str = include_str!("../../README.md");
/// Files that the commands name.
const EXAMPLES: [(&str, &str); 5] = [
    ("first-project.yaml", include_str!("../../examples/first-project.yaml")),
    ("app.yaml", include_str!("../../examples/app.yaml")),
    ("crd.yaml", include_str!("../../examples/crd.yaml")),
    ("shop.yaml", include_str!("../../examples/shop.yaml")),
    ("dedicated-project.yaml", include_str!("../../examples/dedicated-project.yaml")),
];
/// The server's URL in the README.
const URL: &str = "https://127.0.0.1:7443";
/// This program in the README.
const PROGRAM: &str = "target/release/freehold";
/// What a comment begins with that says how a command has to fail.
const FAILURE: &str = "# the server ";
/// The first paragraph that needs a provisioner.
const DEDICATED: &str = "A dedicated project";
/// What all examples belong to.
const ORGANIZATION: &str = "acme";

/// Flags of `freehold get-started`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Goes on without asking.
    #[arg(long, short)]
    yes: bool,
    /// Leaves out dedicated projects, where nothing makes them.
    #[arg(long)]
    shared_only: bool,
    /// Deletes the organization of the examples with its projects, and does nothing else.
    #[arg(long)]
    clean: bool,
    /// The folder for the examples and the projects' kubeconfigs.
    #[arg(long, value_name = "FOLDER", default_value = "freehold-get-started")]
    dir: PathBuf,
    /// Kubeconfig of an administrator. Default: the first of $KUBECONFIG, otherwise data/admin.kubeconfig or
    /// ~/.kube/config.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
}

/// A paragraph of the README, or a command below it.
#[derive(Debug, PartialEq, Eq)]
enum Step<'a> {
    Text(&'a str),
    /// A command, and what it says when it has to fail.
    Command(&'a str, Option<&'a str>),
}

/// Walks through the quick start.
///
/// # Errors
/// A command ends otherwise than the README says.
pub(crate) fn run(args: &Args) -> Result<()> {
    let path = absolute(kubeconfig::found(args.kubeconfig.clone())?)?;
    let config = kubeconfig::admin(Some(path.clone()))?;
    let platform = kubeconfig::own::root(&config.server);
    ensure!(
        config.server.trim_end_matches('/') == platform.trim_end_matches('/'),
        "{} leads to {}, not to the platform: name the admin's with --kubeconfig",
        path.display(),
        plain(&config.server)
    );
    let shell = Shell { kubeconfig: path, folder: args.dir.clone() };
    if args.clean {
        return shell.run(
            &format!("kubectl delete organization {ORGANIZATION} --cascade=foreground --ignore-not-found"),
            None,
        );
    }
    fs::create_dir_all(args.dir.join("examples"))
        .with_context(|| format!("{} can't be made", args.dir.display()))?;
    for (name, text) in EXAMPLES {
        fs::write(args.dir.join("examples").join(name), text)?;
    }
    let program = std::env::current_exe()?;
    let program = program.to_str().context("this program's path is no text")?;
    println!("The README's quick start, at {}.", plain(&config.server));
    let asks = !args.yes && std::io::stdin().is_terminal();
    for step in steps(README).iter().take_while(|step| !args.shared_only || !step.is_dedicated()) {
        match step {
            Step::Text(text) => println!("\n{}\n", text.trim_end_matches(':')),
            Step::Command(line, failure) => {
                let line = line.replace(URL, kubeconfig::own::root(&config.server));
                println!("$ {}", plain(line.replace(PROGRAM, "freehold")));
                if asks && !confirmed()? {
                    break;
                }
                shell.run(&line.replace(PROGRAM, &quoted(program)), *failure)?;
            }
        }
    }
    println!("\nThe examples and kubeconfigs are in {}.", args.dir.display());
    println!("`freehold get-started --clean` deletes the organization {ORGANIZATION} with its projects.");
    Ok(())
}

/// Where commands run.
struct Shell {
    kubeconfig: PathBuf,
    folder: PathBuf,
}

impl Shell {
    fn run(&self, line: &str, failure: Option<&str>) -> Result<()> {
        let folder: &Path = if self.folder.is_dir() { &self.folder } else { Path::new(".") };
        let mut command = Command::new("sh");
        command.args(["-c", line]).current_dir(folder).env("KUBECONFIG", &self.kubeconfig);
        let Some(failure) = failure else {
            let status = command.status()?;
            ensure!(status.success(), "this command failed ({status}): {line}");
            return Ok(());
        };
        let output = command.output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        eprint!("{}", plain(&said));
        ensure!(
            !output.status.success() && said.contains(failure),
            "this command should have failed: {line}"
        );
        Ok(())
    }
}

/// Asks whether to go on.
fn confirmed() -> Result<bool> {
    print!("  [Enter] runs it, q ends ");
    std::io::stdout().flush()?;
    let mut line = String::new();
    if std::io::stdin().read_line(&mut line)? == 0 {
        bail!("the input has ended");
    }
    Ok(!line.trim_start().starts_with('q'))
}

/// A word of a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

impl Step<'_> {
    fn is_dedicated(&self) -> bool {
        matches!(self, Self::Text(text) if text.starts_with(DEDICATED))
    }
}

/// The steps between the quick start's title and the next one: paragraphs that have commands below them, and the commands.
/// Blocks that build are left out, as is what names a kubeconfig.
fn steps(readme: &str) -> Vec<Step<'_>> {
    let quick_start = readme.split("\n## ").find(|part| part.starts_with("Quick start")).unwrap_or_default();
    let mut steps = Vec::new();
    let mut parts = quick_start.split("\n```");
    while let (Some(text), Some(block)) = (parts.next(), parts.next()) {
        let all: Vec<_> = block.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let is_setup = |line: &&&str| line.starts_with("make ") || line.starts_with("export ");
        let commands: Vec<_> = all.iter().filter(|line| !is_setup(line)).copied().collect();
        if commands.is_empty() {
            continue;
        }
        // What stands above a setup is about how to start a server.
        if commands.len() == all.len() {
            steps.extend(text.trim().rsplit("\n\n").next().map(Step::Text));
        }
        steps.extend(commands.into_iter().map(|line| match line.split_once(FAILURE) {
            Some((command, rest)) => {
                // The comment's `the server ` belongs to what is said.
                let said = &line[line.len() - rest.len() - FAILURE.len() + 2..];
                Step::Command(command.trim_end(), Some(said))
            }
            None => Step::Command(line.split("   #").next().unwrap_or(line).trim_end(), None),
        }));
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_readme_has_steps_and_all_their_files_are_here() {
        let steps = steps(README);
        let commands: Vec<&str> = steps
            .iter()
            .filter_map(|step| match step {
                Step::Command(line, _) => Some(*line),
                Step::Text(_) => None,
            })
            .collect();
        assert_eq!(commands[0], "kubectl apply -f examples/first-project.yaml");
        assert!(
            commands.iter().all(|line| line.starts_with("kubectl ") || line.starts_with(PROGRAM)),
            "{commands:?}"
        );
        for file in commands.iter().filter_map(|line| line.split("examples/").nth(1)) {
            assert!(EXAMPLES.iter().any(|(name, _)| *name == file), "{file}");
        }
        let failing = Step::Command(
            "kubectl --kubeconfig analytics.kubeconfig get shops",
            Some("the server doesn't have a resource type \"shops\""),
        );
        assert!(steps.contains(&failing), "{steps:?}");
        assert!(steps.iter().any(Step::is_dedicated));
    }
}
