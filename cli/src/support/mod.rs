//! `freehold support-bundle`: what helps somebody else to find out what is wrong with an installation, in one file, without
//! what signs anybody in.
//!
//! ```text
//! versions.json  doctor.txt  health/  metrics.txt  flags.txt
//! objects/GROUP/RESOURCE.json     Freehold's own kinds in the core plane
//! infra/                          what dedicated pairs consist of, and their events
//! logs/                           of Pods, and of files that are named
//! errors.txt                      what could not be collected, and why
//! ```
//! Nothing of projects' planes is read, and no Secret of any.

mod archive;
mod collect;
mod redact;

use crate::{certs, doctor, kubeconfig, terminal::plain};
use anyhow::{Context as _, Result};
use archive::Archive;
use collect::{Bundle, Cluster};
use freehold_client::{Client, Config};
use std::{
    io::{Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

/// Bytes of the end of a log.
const TAIL: u64 = 4 << 20;

/// Flags of `freehold support-bundle`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The file to write, which must not be there yet. Default: freehold-support-TIME.tar.gz.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    sources: certs::Sources,
    /// Namespace of the chart's release, on the cluster of --infra-kubeconfig.
    #[arg(long, value_name = "NAME", default_value = "freehold-system")]
    namespace: String,
    /// Files with logs of servers, whose last 4 MiB are taken.
    #[arg(long = "log-file", value_name = "FILE", value_delimiter = ',')]
    logs: Vec<PathBuf>,
    /// Objects of a kind that are taken at most.
    #[arg(long, value_name = "NUMBER", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    objects: u64,
}

/// Writes the archive.
///
/// # Errors
/// The kubeconfig can't be used, or the file can't be written. What can't be collected is in the archive's `errors.txt`.
pub(crate) async fn run(args: Args) -> Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let output = args.output.clone().unwrap_or_else(|| format!("freehold-support-{now}.tar.gz").into());
    let core = Client::new(&kubeconfig::platform(args.sources.kubeconfig())?)?;
    let mut bundle = Bundle::default();
    bundle.versions(&core).await;
    bundle.add("doctor.txt", &doctor::report(&args.sources, &core).await);
    bundle.server(&core).await;
    bundle.freehold_kinds(&core, args.objects).await;
    bundle.events("events.json", &core, args.objects).await;
    match args.sources.infra_kubeconfig() {
        Some(path) => {
            let client = Client::new(&Config::from_kubeconfig(path)?)?;
            bundle.cluster(&Cluster { client, release: Some(&args.namespace), limit: args.objects }).await;
        }
        None => {
            let client = core.at("/planes/infra");
            bundle.cluster(&Cluster { client, release: None, limit: args.objects }).await;
        }
    }
    bundle.add("flags.txt", &collect::command_lines(Path::new("/proc")));
    for path in &args.logs {
        let text = tail(path).with_context(|| format!("{} can't be read", path.display()))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        bundle.add(&format!("logs/files/{name}"), &text);
    }
    let files = bundle.finish();
    let mut archive = Archive::create(&output, now)?;
    for (name, content) in &files {
        archive.add(&format!("freehold-support/{name}"), content.as_bytes())?;
    }
    archive.finish().with_context(|| format!("{} can't be written", output.display()))?;
    println!(
        "{}: {} files. Look into it before you send it to somebody.",
        plain(output.display()),
        files.len()
    );
    Ok(())
}

/// The end of a file.
fn tail(path: &Path) -> Result<String> {
    let mut file = std::fs::File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
    let mut bytes = Vec::new();
    file.take(TAIL).read_to_end(&mut bytes)?;
    // A line of which the beginning is missing could hide what a credential is known by.
    let whole = if length > TAIL {
        bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1)
    } else {
        0
    };
    Ok(String::from_utf8_lossy(&bytes[whole..]).into_owned())
}
