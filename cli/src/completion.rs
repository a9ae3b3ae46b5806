//! `freehold completion` and `freehold man`: what shells complete commands with, and man pages.

use anyhow::{Context as _, Result};
use clap::Command;
use clap_complete::Shell;
use std::{fs, io::Write, path::PathBuf};

/// Flags of `freehold completion`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The shell. Load it with `source <(freehold completion bash)`.
    shell: Shell,
}

/// Flags of `freehold man`.
#[derive(clap::Args)]
pub(crate) struct ManArgs {
    /// The folder, which is made where there is none: `~/.local/share/man/man1` is one that man looks at.
    folder: PathBuf,
}

/// Prints the completions of a shell.
///
/// # Errors
/// Nobody reads them.
pub(crate) fn completion(args: &Args, mut program: Command) -> Result<()> {
    let name = program.get_name().to_owned();
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut program, name, &mut text);
    Ok(std::io::stdout().write_all(&text)?)
}

/// Writes a man page for each command.
///
/// # Errors
/// The folder can't be written to.
pub(crate) fn man(args: &ManArgs, program: Command) -> Result<()> {
    let context = || format!("{} can't be written to", args.folder.display());
    fs::create_dir_all(&args.folder).with_context(context)?;
    clap_mangen::generate_to(program, &args.folder).with_context(context)
}
