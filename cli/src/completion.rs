//! `freehold completion`: what shells complete commands with, and man pages.

use anyhow::{Context as _, Result};
use clap::Command;
use clap_complete::Shell;
use std::{fs, io::Write, path::PathBuf};

/// Flags of `freehold completion`.
#[derive(clap::Args)]
#[group(id = "what", required = true, args = ["shell", "man"])]
pub(crate) struct Args {
    /// The shell. Load it with `source <(freehold completion bash)`.
    shell: Option<Shell>,
    /// Writes a man page for each command into this folder in place of that.
    #[arg(long, value_name = "FOLDER")]
    man: Option<PathBuf>,
}

/// Prints the completions of a shell, or writes the man pages.
///
/// # Errors
/// The folder can't be written to.
pub(crate) fn run(args: &Args, mut program: Command) -> Result<()> {
    if let Some(folder) = &args.man {
        fs::create_dir_all(folder)?;
        return clap_mangen::generate_to(program, folder)
            .with_context(|| format!("{} can't be written to", folder.display()));
    }
    let Some(shell) = args.shell else { return Ok(()) };
    let name = program.get_name().to_owned();
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut program, name, &mut text);
    Ok(std::io::stdout().write_all(&text)?)
}
