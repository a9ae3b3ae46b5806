//! `freehold workflow artifact`: what this program does inside of a task's Pod. It brings artifacts, runs the task's command as
//! if it were not there, and keeps what comes of it.

use anyhow::{Context as _, Result, bail};
use freehold_workflow_outbound::{Body, Networks, Outbound, Request};
use http::Method;
use serde::Deserialize;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Component, Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// The environment variable with the places of artifacts, which the task's command does not see.
const PLACES: &str = "FREEHOLD_ARTIFACTS";
/// This program in its folder.
const PROGRAM: &str = "freehold";
/// Certificates of authorities in that folder, for images that have none.
const AUTHORITIES: &str = "authorities.pem";
/// The exit code where artifacts could not be brought or kept.
const FAILED: i32 = 125;
/// How often a transfer is tried.
const ATTEMPTS: u32 = 4;
/// Bytes that an object may have which is written at once.
const MAX_OBJECT: u64 = 5 << 30;

/// Arguments of `freehold workflow artifact`.
#[derive(clap::Args, Debug)]
pub(crate) struct ArtifactArgs {
    #[command(subcommand)]
    command: ArtifactCommand,
}

#[derive(clap::Subcommand, Debug)]
enum ArtifactCommand {
    /// Copies this program into a folder, for containers that have it mounted.
    Install {
        /// The folder.
        folder: PathBuf,
    },
    /// Brings artifacts, runs a command and keeps artifacts.
    Exec(Exec),
}

/// Flags of `freehold workflow artifact exec`.
#[derive(clap::Args, Debug)]
struct Exec {
    /// Folder for what is on its way.
    #[arg(long)]
    folder: PathBuf,
    /// Folder that is the repository, where that is a volume.
    #[arg(long)]
    store: Option<PathBuf>,
    /// Artifact that is brought: NAME=PATH.
    #[arg(long = "in", value_name = "NAME=PATH")]
    inputs: Vec<String>,
    /// Artifact that is kept: NAME=PATH.
    #[arg(long = "out", value_name = "NAME=PATH")]
    outputs: Vec<String>,
    /// The command.
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// Where artifacts are, as the controller says.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Places {
    inputs: Vec<Place>,
    outputs: Vec<Place>,
    ca: String,
}

/// Where one artifact is.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Place {
    name: String,
    /// A presigned request, or else a file of the store.
    url: String,
    file: String,
    packed: bool,
    optional: bool,
}

/// Runs a command; returns the exit code of the process.
///
/// # Errors
/// Artifacts that cannot be brought or kept, and a command that cannot be run.
pub(crate) async fn run(args: ArtifactArgs) -> Result<i32> {
    match args.command {
        ArtifactCommand::Install { folder } => install(&folder).map(|()| 0),
        ArtifactCommand::Exec(exec) => match exec.run().await {
            Ok(code) => Ok(code),
            Err(error) => {
                eprintln!("freehold: {error:#}");
                Ok(FAILED)
            }
        },
    }
}

fn install(folder: &Path) -> Result<()> {
    let own = std::env::current_exe().context("this program can't be found")?;
    let (part, whole) = (folder.join("freehold.part"), folder.join(PROGRAM));
    fs::copy(&own, &part)
        .with_context(|| format!("{} can't be copied to {}", own.display(), part.display()))?;
    fs::set_permissions(&part, fs::Permissions::from_mode(0o755))?;
    fs::rename(&part, &whole)?;
    let bundle =
        ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];
    if let Some(bundle) = bundle.iter().find(|bundle| Path::new(bundle).is_file()) {
        fs::copy(bundle, folder.join(AUTHORITIES))?;
    }
    Ok(())
}

impl Exec {
    async fn run(&self) -> Result<i32> {
        let text = std::env::var(PLACES).with_context(|| format!("{PLACES} is not set"))?;
        let places: Places =
            serde_json::from_str(&text).with_context(|| format!("{PLACES} can't be read"))?;
        let bundle = fs::read_to_string(self.folder.join(AUTHORITIES)).unwrap_or_default() + &places.ca;
        // Where the store is was decided by whoever may set it up; this is the network of the Pod.
        let networks: Networks = "any".parse().map_err(anyhow::Error::msg)?;
        let outbound = Outbound::new(networks, &bundle);
        for (place, path) in pairs(&places.inputs, &self.inputs)? {
            let brought = self.bring(&outbound, place, &path).await;
            brought.with_context(|| format!("artifact {:?} can't be brought", place.name))?;
        }
        let status = supervise(&self.command).await?;
        if !status.success() {
            return Ok(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)));
        }
        for (place, path) in pairs(&places.outputs, &self.outputs)? {
            let kept = self.keep(&outbound, place, &path).await;
            kept.with_context(|| format!("artifact {:?} can't be kept", place.name))?;
        }
        Ok(0)
    }

    /// A file of the store.
    fn stored(&self, place: &Place) -> Result<PathBuf> {
        let store = self.store.as_ref().context("there is no store")?;
        let relative = Path::new(&place.file);
        let is_inside = relative.components().all(|part| matches!(part, Component::Normal(_)));
        anyhow::ensure!(is_inside && !place.file.is_empty(), "{:?} leaves the store", place.file);
        Ok(store.join(relative))
    }

    async fn bring(&self, outbound: &Outbound, place: &Place, path: &Path) -> Result<()> {
        let temporary = self.folder.join("incoming");
        let source = match place.url.is_empty() {
            true => Some(self.stored(place)?).filter(|file| file.is_file()),
            false => again(|| download(outbound, &place.url, &temporary)).await?.then(|| temporary.clone()),
        };
        let Some(source) = source else {
            anyhow::ensure!(place.optional, "there is none");
            return Ok(());
        };
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).with_context(|| format!("{} can't be made", parent.display()))?;
        }
        match place.packed {
            true => unpack(&source, path)?,
            false => drop(
                fs::copy(&source, path).with_context(|| format!("{} can't be written", path.display()))?,
            ),
        }
        let _ = fs::remove_file(&temporary);
        Ok(())
    }

    async fn keep(&self, outbound: &Outbound, place: &Place, path: &Path) -> Result<()> {
        if fs::symlink_metadata(path).is_err() {
            anyhow::ensure!(place.optional, "{} is not there", path.display());
            return Ok(());
        }
        let temporary = self.folder.join("outgoing");
        let file = match place.packed {
            true => pack(path, &temporary).map(|()| temporary.clone())?,
            false if path.is_file() => path.to_owned(),
            false => bail!("{} is no file: pack it (archive: TarGz)", path.display()),
        };
        let bytes = fs::metadata(&file)?.len();
        anyhow::ensure!(bytes <= MAX_OBJECT, "it has {bytes} bytes; at most {MAX_OBJECT} can be kept");
        match place.url.is_empty() {
            false => again(|| upload(outbound, &place.url, &file)).await?,
            true => {
                let stored = self.stored(place)?;
                fs::create_dir_all(stored.parent().unwrap_or(&stored))?;
                let mut part = stored.clone().into_os_string();
                part.push(".part");
                fs::copy(&file, &part)?;
                fs::rename(&part, &stored)?;
            }
        }
        let _ = fs::remove_file(&temporary);
        Ok(())
    }
}

/// Places with the paths that are given for their names.
fn pairs<'a>(places: &'a [Place], given: &[String]) -> Result<Vec<(&'a Place, PathBuf)>> {
    let paths: HashMap<&str, &str> = given.iter().filter_map(|pair| pair.split_once('=')).collect();
    let path = |place: &Place| paths.get(place.name.as_str()).map(PathBuf::from);
    places
        .iter()
        .map(|place| Ok((place, path(place).with_context(|| format!("no path for {:?}", place.name))?)))
        .collect()
}

/// Tries a transfer again that failed.
async fn again<T, F: Future<Output = Result<T>>>(transfer: impl Fn() -> F) -> Result<T> {
    let mut wait = Duration::from_millis(500);
    for _ in 1..ATTEMPTS {
        match transfer().await {
            Ok(done) => return Ok(done),
            Err(error) => eprintln!("freehold: {error:#}; trying again in {wait:?}"),
        }
        tokio::time::sleep(wait).await;
        wait *= 4;
    }
    transfer().await
}

/// Whether there was something.
async fn download(outbound: &Outbound, url: &str, file: &Path) -> Result<bool> {
    let answer = outbound.send(Request::new(Method::GET, url)).await?;
    if answer.status == http::StatusCode::NOT_FOUND {
        return Ok(false);
    }
    answer.succeeded().await?.save(file).await?;
    Ok(true)
}

async fn upload(outbound: &Outbound, url: &str, file: &Path) -> Result<()> {
    let request = Request { body: Body::File(file.to_owned()), ..Request::new(Method::PUT, url) };
    outbound.send(request).await?.succeeded().await?;
    Ok(())
}

/// Packs a file or folder under the name `artifact`.
fn pack(path: &Path, into: &Path) -> Result<()> {
    let file = File::create(into).with_context(|| format!("{} can't be written", into.display()))?;
    let gzip = flate2::write::GzEncoder::new(BufWriter::new(file), flate2::Compression::fast());
    let mut archive = tar::Builder::new(gzip);
    archive.follow_symlinks(false);
    let packed = match path.is_dir() {
        true => archive.append_dir_all("artifact", path),
        false => archive.append_path_with_name(path, "artifact"),
    };
    packed.with_context(|| format!("{} can't be packed", path.display()))?;
    archive.into_inner()?.finish()?.flush()?;
    Ok(())
}

/// Unpacks what [`pack`] packed, or an archive with one file or folder at its root: that is put at the path.
fn unpack(from: &Path, path: &Path) -> Result<()> {
    let beside = path.parent().unwrap_or(Path::new("/"));
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".unpacked");
    let temporary = beside.join(name);
    let _ = fs::remove_dir_all(&temporary);
    fs::create_dir(&temporary).with_context(|| format!("{} can't be made", temporary.display()))?;
    let mut start = [0; 2];
    let mut file = File::open(from)?;
    let is_packed = file.read_exact(&mut start).is_ok() && start == [0x1f, 0x8b];
    anyhow::ensure!(is_packed, "it is no compressed archive");
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(BufReader::new(File::open(from)?)));
    archive.set_preserve_permissions(true);
    // What leads out of the folder is left out by the library.
    archive.unpack(&temporary).context("the archive can't be unpacked")?;
    let mut roots = fs::read_dir(&temporary)?.collect::<std::io::Result<Vec<_>>>()?;
    let root = match (roots.pop(), roots.is_empty()) {
        (Some(only), true) => only.path(),
        // Several: the path is the folder that holds them.
        _ => temporary.clone(),
    };
    // An empty folder may be there, as the place where a volume is mounted is.
    move_to(&root, path).with_context(|| format!("{} can't be written", path.display()))?;
    let _ = fs::remove_dir_all(&temporary);
    Ok(())
}

/// Moves a file or folder to a path; the content of a folder into a folder that is there.
fn move_to(from: &Path, path: &Path) -> std::io::Result<()> {
    if !(from.is_dir() && path.is_dir()) {
        return fs::rename(from, path);
    }
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        move_to(&entry.path(), &path.join(entry.file_name()))?;
    }
    Ok(())
}

/// Runs the command to its end, and passes signals on to it.
async fn supervise(words: &[String]) -> Result<ExitStatus> {
    let [program, args @ ..] = words else { bail!("there is no command") };
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    let mut child = tokio::process::Command::new(program)
        .args(args)
        .env_remove(PLACES)
        .spawn()
        .with_context(|| format!("{program:?} can't be run"))?;
    let id = child.id().and_then(|id| i32::try_from(id).ok()).and_then(rustix::process::Pid::from_raw);
    loop {
        let passed = tokio::select! {
            status = child.wait() => return Ok(status?),
            _ = terminate.recv() => rustix::process::Signal::TERM,
            _ = interrupt.recv() => rustix::process::Signal::INT,
            _ = hang_up.recv() => rustix::process::Signal::HUP,
        };
        if let Some(id) = id {
            let _ = rustix::process::kill_process(id, passed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_and_files_come_back_as_they_were() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("tree/below")).unwrap();
        fs::write(at("tree/below/run.sh"), "echo hi").unwrap();
        fs::set_permissions(at("tree/below/run.sh"), fs::Permissions::from_mode(0o750)).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", at("tree/link")).unwrap();
        pack(&at("tree"), &at("packed")).unwrap();
        // Into an empty folder, as a mounted volume is.
        fs::create_dir(at("back")).unwrap();
        unpack(&at("packed"), &at("back")).unwrap();
        assert_eq!(fs::read_to_string(at("back/below/run.sh")).unwrap(), "echo hi");
        assert_eq!(fs::metadata(at("back/below/run.sh")).unwrap().permissions().mode() & 0o777, 0o750);
        assert!(fs::symlink_metadata(at("back/link")).unwrap().is_symlink(), "links stay links");
        fs::write(at("one"), "1").unwrap();
        pack(&at("one"), &at("packed")).unwrap();
        unpack(&at("packed"), &at("again")).unwrap();
        assert_eq!(fs::read_to_string(at("again")).unwrap(), "1");
        assert!(unpack(&at("one"), &at("bad")).is_err(), "text is no archive");
    }

    #[tokio::test]
    async fn the_command_ends_the_container_and_sees_no_places() {
        let folder = tempfile::tempdir().unwrap();
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        assert_eq!(supervise(&words(&["sh", "-c", "exit 3"])).await.unwrap().code(), Some(3));
        assert_eq!(supervise(&words(&["sh", "-c", "kill -9 $$"])).await.unwrap().signal(), Some(9));
        let exec = Exec {
            folder: folder.path().to_owned(),
            store: Some(folder.path().to_owned()),
            inputs: Vec::new(),
            outputs: Vec::new(),
            command: Vec::new(),
        };
        for outside in ["../x", "/etc/passwd", ""] {
            assert!(exec.stored(&Place { file: outside.into(), ..Place::default() }).is_err(), "{outside}");
        }
    }
}
