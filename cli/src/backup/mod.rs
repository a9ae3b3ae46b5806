//! `freehold backup` and `freehold restore`: all that a server keeps, in a file, a folder or a bucket, and back.
//!
//! A backup is checked on its way, and appears when it is complete. What `verify` says it has restored into an empty store.

mod place;
mod retention;
mod seal;

use crate::{kubeconfig, store::EtcdArgs};
use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use freehold_apiserver::{
    Retention as History, StoreConfig,
    backup::{self, Summary},
};
use freehold_client::{Client, Config, RawRequest};
use futures_util::Stream;
use jiff::Timestamp;
use place::{Place, S3Args, ensure_several};
use retention::Retention;
use seal::{Keys, Opener, Sealer};
use std::fmt::Display;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Where objects are kept that no server is asked for.
#[derive(clap::Args)]
struct OfflineStore {
    /// The data directory of a stopped server.
    #[arg(long, conflicts_with = "etcd")]
    data_dir: Option<PathBuf>,
    #[command(flatten)]
    etcd: EtcdArgs,
}

impl OfflineStore {
    fn config(&self) -> Result<Option<StoreConfig>> {
        match &self.data_dir {
            Some(dir) => Ok(Some(StoreConfig::Embedded(dir.join("store"), History::default()))),
            None => Ok(self.etcd.options()?.map(|options| StoreConfig::Etcd(Box::new(options)))),
        }
    }
}

/// How backups are kept.
#[derive(Clone, clap::Args)]
struct Keeping {
    /// File with the keys of encrypted backups, 32 bytes in base64 on a line. The first one encrypts, all of them decrypt.
    #[arg(long, value_name = "FILE")]
    backup_key: Option<PathBuf>,
    #[command(flatten)]
    s3: S3Args,
}

impl Keeping {
    fn keys(&self) -> Result<Option<Keys>> {
        self.backup_key.as_deref().map(Keys::read).transpose()
    }
}

/// Flags of `freehold backup`.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct BackupArgs {
    #[command(subcommand)]
    command: Option<BackupCommand>,
    /// The file to write; or a folder (with a slash at its end) or s3://BUCKET/PREFIX, where the backup has its time as its
    /// name. It appears when it is complete and was checked.
    #[arg(required = true)]
    file: Option<String>,
    /// Kubeconfig of an admin of the server to back up. Default: the first of $KUBECONFIG, otherwise
    /// data/admin.kubeconfig.
    #[arg(long, conflicts_with_all = ["data_dir", "etcd"])]
    kubeconfig: Option<PathBuf>,
    /// URL of the server, if it is not that of the kubeconfig.
    #[arg(long, conflicts_with_all = ["data_dir", "etcd"])]
    server: Option<String>,
    #[command(flatten)]
    offline: OfflineStore,
    #[command(flatten)]
    keeping: Keeping,
    #[command(flatten)]
    retention: Retention,
}

/// What is done with backups that are there.
#[derive(clap::Subcommand)]
enum BackupCommand {
    /// Lists the backups of a folder or bucket, the latest first.
    List(PlaceArgs),
    /// Restores a backup into an empty store of its own, and says what it has. Default: the latest one.
    Verify(PlaceArgs),
    /// Removes backups that no rule keeps. The latest one stays in any case.
    Prune(PruneArgs),
}

/// Flags of the commands about backups that are there.
#[derive(clap::Args)]
struct PlaceArgs {
    /// A folder, s3://BUCKET/PREFIX, or one backup.
    place: String,
    #[command(flatten)]
    keeping: Keeping,
}

/// Flags of `freehold backup prune`.
#[derive(clap::Args)]
struct PruneArgs {
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    retention: Retention,
}

/// Flags of `freehold restore`.
#[derive(clap::Args)]
pub(crate) struct RestoreArgs {
    /// The backup: a file or an object, or a folder or s3://BUCKET/PREFIX for its latest one.
    file: String,
    /// Number of revisions by which the restored store is ahead of the backup: more than were made since, so that
    /// clients list again and never meet a revision twice. Default: 1000000000 in a data directory, 10000 in an etcd.
    #[arg(long)]
    bump_revision: Option<u64>,
    #[command(flatten)]
    offline: OfflineStore,
    #[command(flatten)]
    keeping: Keeping,
}

fn say(text: impl Display) -> Result<()> {
    Ok(writeln!(std::io::stdout(), "{text}")?)
}

/// Runs `freehold backup`.
pub(crate) async fn backup(args: BackupArgs) -> Result<()> {
    match &args.command {
        None => write(&args).await,
        Some(BackupCommand::List(args)) => list(args).await,
        Some(BackupCommand::Verify(args)) => verify(args).await,
        Some(BackupCommand::Prune(args)) => {
            let place = Place::parse(&args.place.place, &args.place.keeping.s3)?;
            ensure!(
                args.retention.is_asked(),
                "name what to keep: --keep-last, --keep-daily, --keep-weekly, --keep-monthly"
            );
            prune(&place, &args.retention).await
        }
    }
}

/// Writes a backup, and removes those that are no longer wanted.
async fn write(args: &BackupArgs) -> Result<()> {
    let place = Place::parse(args.file.as_deref().unwrap_or_default(), &args.keeping.s3)?;
    if args.retention.is_asked() {
        ensure_several(&place)?;
    }
    let keys = args.keeping.keys()?;
    let (summary, name) = match args.offline.config()? {
        Some(store) => save(backup::pieces_of_store(&store).await?, &place, keys.as_ref()).await?,
        None => save(online(args).await?, &place, keys.as_ref()).await?,
    };
    let Summary { revision, keys, .. } = summary;
    say(format_args!("{}: {keys} keys as of revision {revision}", place.describe(&name)))?;
    if args.retention.is_asked() {
        prune(&place, &args.retention).await?;
    }
    Ok(())
}

/// Writes a backup that comes in pieces; gives what it has and its name.
async fn save<E>(
    pieces: impl Stream<Item = Result<Bytes, E>>,
    place: &Place,
    keys: Option<&Keys>,
) -> Result<(Summary, String)>
where
    E: std::error::Error + Send + Sync + 'static,
{
    let (mut sink, name) = place.create(Timestamp::now()).await?;
    let mut sealer = keys.map(Sealer::new).transpose()?;
    let written = async {
        let summary = backup::relay(pieces, async |piece: &[u8]| match &mut sealer {
            Some(sealer) => sink.write(&sealer.feed(piece)?).await,
            None => sink.write(piece).await,
        });
        let summary = summary.await?;
        if let Some(sealer) = sealer {
            sink.write(&sealer.finish()?).await?;
        }
        Ok::<_, anyhow::Error>(summary)
    };
    let written = written.await;
    let done = match written {
        Ok(summary) => sink.complete().await.map(|()| summary),
        Err(error) => {
            sink.abort().await;
            Err(error)
        }
    };
    let summary = done.with_context(|| format!("no backup was written to {}", place.describe(&name)))?;
    Ok((summary, name))
}

/// Asks a running server.
async fn online(args: &BackupArgs) -> Result<impl Stream<Item = freehold_client::Result<Bytes>> + use<>> {
    let kubeconfig = kubeconfig::chosen(args.kubeconfig.clone(), std::env::var_os("KUBECONFIG"));
    if !kubeconfig.exists() {
        bail!("there is no kubeconfig {}: name the admin's with --kubeconfig", kubeconfig.display());
    }
    let mut config = Config::from_kubeconfig(&kubeconfig)?;
    if let Some(server) = &args.server {
        config.server.clone_from(server);
    }
    let download = Client::new(&config)?.download(&RawRequest::get("/backup")).await?;
    Ok(download.into_stream())
}

async fn list(args: &PlaceArgs) -> Result<()> {
    let all = Place::parse(&args.place, &args.keeping.s3)?.list().await?;
    say(format_args!("{:24}  {:>14}  NAME", "TIME", "BYTES"))?;
    for (time, stored) in all.into_iter().rev() {
        say(format_args!("{:24}  {:>14}  {}", time.to_string(), stored.size, stored.name))?;
    }
    Ok(())
}

async fn prune(place: &Place, retention: &Retention) -> Result<()> {
    let all = place.list().await?;
    let times = all.keys().copied().collect();
    for time in retention.surplus(&times) {
        let Some(stored) = all.get(&time) else { continue };
        place.remove(&stored.name).await?;
        say(format_args!("removed {}", place.describe(&stored.name)))?;
    }
    Ok(())
}

/// Brings a backup into a folder of this machine, decrypted, as a file that only its owner can read.
async fn fetch(text: &str, keeping: &Keeping, folder: &Path) -> Result<(PathBuf, String)> {
    let (place, name) = Place::parse_one(text, &keeping.s3)?;
    let name = place.find(name.as_deref()).await?;
    let described = place.describe(&name);
    let keys = keeping.keys()?;
    let path = folder.join("backup");
    let mut file = std::fs::File::options().write(true).create_new(true).mode(0o600).open(&path)?;
    let mut opener = Opener::new(keys.as_ref());
    let read = async {
        place.read(&name, |piece| Ok(file.write_all(&opener.feed(piece)?)?)).await?;
        Ok::<_, anyhow::Error>(file.write_all(&opener.finish()?)?)
    };
    read.await.with_context(|| format!("{described} can't be read"))?;
    Ok((path, described))
}

/// A folder that goes with this value.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("freehold-backup-{}", uuid::Uuid::new_v4()));
        let mut builder = std::fs::DirBuilder::new();
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&path).with_context(|| format!("{} can't be made", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The system clears its folder for such files, too.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

async fn verify(args: &PlaceArgs) -> Result<()> {
    let scratch = Scratch::new()?;
    let (file, described) = fetch(&args.place, &args.keeping, &scratch.0).await?;
    let store = StoreConfig::Embedded(scratch.0.join("store"), History::default());
    let restored = backup::restore(&store, &file, None).await;
    let Summary { keys, created, .. } = restored.with_context(|| format!("{described} can't be restored"))?;
    // What is there is read once more, by what servers open it with.
    let pieces = backup::pieces_of_store(&store).await?;
    let again = backup::relay(pieces, async |_: &[u8]| Ok(())).await?;
    ensure!(again.keys == keys, "{described}: of {keys} keys {} were restored", again.keys);
    say(format_args!("{described}: restored {keys} keys of {created} into an empty store"))
}

/// Restores a backup.
pub(crate) async fn restore(args: RestoreArgs) -> Result<()> {
    let Some(place) = args.offline.config()? else {
        bail!("name an empty --data-dir DIR, or --etcd URL");
    };
    let local = Path::new(&args.file).is_file() && args.keeping.backup_key.is_none();
    let scratch = Scratch::new()?;
    let file =
        if local { PathBuf::from(&args.file) } else { fetch(&args.file, &args.keeping, &scratch.0).await?.0 };
    let Summary { revision, keys, created } = backup::restore(&place, &file, args.bump_revision).await?;
    let mut out = std::io::stdout();
    writeln!(
        out,
        "restored {keys} keys of the backup of {created}; the store goes on at revision {revision}"
    )?;
    if let Some(dir) = &args.offline.data_dir
        && !dir.join("pki/ca.key").exists()
    {
        let pki = dir.join("pki");
        writeln!(
            out,
            "Kubeconfigs and tokens of before stay valid if the pki folder of before is copied to {}",
            pki.display()
        )?;
    }
    Ok(())
}
