//! `freehold backup` and `freehold restore`: all that a server keeps, in a file and back.

use crate::{kubeconfig, store::EtcdArgs};
use anyhow::{Result, bail};
use freehold_apiserver::{
    Retention, StoreConfig,
    backup::{self, Summary},
};
use freehold_client::{Client, Config, RawRequest};
use std::{io::Write, path::PathBuf};

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
            Some(dir) => Ok(Some(StoreConfig::Embedded(dir.join("store"), Retention::default()))),
            None => Ok(self.etcd.options()?.map(|options| StoreConfig::Etcd(Box::new(options)))),
        }
    }
}

/// Flags of `freehold backup`.
#[derive(clap::Args)]
pub(crate) struct BackupArgs {
    /// The file to write. It appears when the backup is complete and was checked.
    file: PathBuf,
    /// Kubeconfig of an admin of the server to back up. Default: the first of $KUBECONFIG, otherwise
    /// data/admin.kubeconfig.
    #[arg(long, conflicts_with_all = ["data_dir", "etcd"])]
    kubeconfig: Option<PathBuf>,
    /// URL of the server, if it is not that of the kubeconfig.
    #[arg(long, conflicts_with_all = ["data_dir", "etcd"])]
    server: Option<String>,
    #[command(flatten)]
    place: OfflineStore,
}

/// Flags of `freehold restore`.
#[derive(clap::Args)]
pub(crate) struct RestoreArgs {
    /// The backup.
    file: PathBuf,
    /// Number of revisions by which the restored store is ahead of the backup: more than were made since, so that
    /// clients list again and never meet a revision twice. Default: 1000000000 in a data directory, 10000 in an etcd.
    #[arg(long)]
    bump_revision: Option<u64>,
    #[command(flatten)]
    place: OfflineStore,
}

/// Writes a backup.
pub(crate) async fn backup(args: BackupArgs) -> Result<()> {
    let summary = match args.place.config()? {
        Some(place) => backup::of_store(&place, &args.file).await?,
        None => online(&args).await?,
    };
    let Summary { revision, keys, .. } = summary;
    writeln!(std::io::stdout(), "{}: {keys} keys as of revision {revision}", args.file.display())?;
    Ok(())
}

/// Asks a running server.
async fn online(args: &BackupArgs) -> Result<Summary> {
    let kubeconfig = kubeconfig::chosen(args.kubeconfig.clone(), std::env::var_os("KUBECONFIG"));
    if !kubeconfig.exists() {
        bail!("there is no kubeconfig {}: name the admin's with --kubeconfig", kubeconfig.display());
    }
    let mut config = Config::from_kubeconfig(&kubeconfig)?;
    if let Some(server) = &args.server {
        config.server.clone_from(server);
    }
    let download = Client::new(&config)?.download(&RawRequest::get("/backup")).await?;
    backup::save(download.into_stream(), &args.file).await
}

/// Restores a backup.
pub(crate) async fn restore(args: RestoreArgs) -> Result<()> {
    let Some(place) = args.place.config()? else {
        bail!("name an empty --data-dir DIR, or --etcd URL");
    };
    let Summary { revision, keys, created } = backup::restore(&place, &args.file, args.bump_revision).await?;
    let mut out = std::io::stdout();
    writeln!(
        out,
        "restored {keys} keys of the backup of {created}; the store goes on at revision {revision}"
    )?;
    if let Some(dir) = &args.place.data_dir
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
