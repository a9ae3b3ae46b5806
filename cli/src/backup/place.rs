//! Where backups are: one file, a folder, or a bucket of an S3-compatible store.
//!
//! In folders and buckets a backup has its time as its name, `freehold-20261126T210900Z.backup`. Everything else there is left
//! alone.

use anyhow::{Context, Result, bail, ensure};
use freehold_s3::{Address, Bucket, Config, Upload};
use futures_util::TryStreamExt as _;
use jiff::{Timestamp, civil::DateTime, tz::TimeZone};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// The form of the time in a backup's name.
const TIME: &str = "%Y%m%dT%H%M%SZ";
/// What a name begins and ends with.
const NAME: (&str, &str) = ("freehold-", ".backup");
/// Bytes that are read of a file at a time.
const PIECE: usize = 256 << 10;

/// How an S3-compatible store is reached. Keys and region come from `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`,
/// `AWS_SESSION_TOKEN` and `AWS_REGION`.
#[derive(Clone, Default, clap::Args)]
pub(crate) struct S3Args {
    /// URL of an S3-compatible store. Default: $AWS_ENDPOINT_URL_S3, $AWS_ENDPOINT_URL, or Amazon's.
    #[arg(long, value_name = "URL")]
    s3_endpoint: Option<String>,
    /// The authority of that store's certificate, a PEM file. Default: those that this machine trusts.
    #[arg(long, value_name = "FILE")]
    s3_ca: Option<PathBuf>,
}

impl S3Args {
    fn config(&self) -> Result<Config> {
        let mut config = Config::from_variables(|name| std::env::var(name).ok())
            .context("the store's keys come from environment variables")?;
        if let Some(endpoint) = &self.s3_endpoint {
            config.endpoint = Some(endpoint.clone());
        }
        config.ca_pem = self.s3_ca.as_deref().map(crate::store::read).transpose()?;
        Ok(config)
    }
}

/// A place for backups.
pub(crate) enum Place {
    /// This file alone.
    File(PathBuf),
    /// A folder of backups.
    Folder(PathBuf),
    /// The objects below a prefix of a bucket; `prefix` is empty or ends with a slash.
    Bucket {
        bucket: Box<Bucket>,
        /// As people write it.
        address: String,
        prefix: String,
    },
}

/// A backup in a place of several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    /// Its name there.
    pub(crate) name: String,
    /// Its size in bytes.
    pub(crate) size: u64,
}

impl Place {
    /// Reads a place as people write it: `s3://BUCKET/PREFIX`, a folder that is there or ends with a slash, or a file.
    ///
    /// # Errors
    /// The store's address or its keys can't be used.
    pub(crate) fn parse(text: &str, s3: &S3Args) -> Result<Self> {
        if let Some(found) = Address::parse(text)? {
            let bucket = Box::new(Bucket::new(&s3.config()?, &found.bucket)?);
            let prefix = if found.prefix.is_empty() { String::new() } else { format!("{}/", found.prefix) };
            let address = format!("s3://{}/{prefix}", found.bucket);
            return Ok(Self::Bucket { bucket, address, prefix });
        }
        let path = PathBuf::from(text);
        Ok(if text.ends_with('/') || path.is_dir() { Self::Folder(path) } else { Self::File(path) })
    }

    /// Takes a place of several backups apart from the name of one, where the text names one.
    ///
    /// # Errors
    /// The store's address or its keys can't be used.
    pub(crate) fn parse_one(text: &str, s3: &S3Args) -> Result<(Self, Option<String>)> {
        if text.starts_with("s3://")
            && let Some((folder, name)) = text.rsplit_once('/')
            && time(name).is_some()
        {
            return Ok((Self::parse(folder, s3)?, Some(name.to_owned())));
        }
        Ok((Self::parse(text, s3)?, None))
    }

    /// The place, or a backup in it, as messages name it.
    pub(crate) fn describe(&self, name: &str) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Folder(path) => path.join(name).display().to_string(),
            Self::Bucket { address, .. } => format!("{address}{name}"),
        }
    }

    /// All backups there, by their times.
    ///
    /// # Errors
    /// It can't be read, or is one file.
    pub(crate) async fn list(&self) -> Result<BTreeMap<Timestamp, Stored>> {
        let all: Vec<Stored> = match self {
            Self::File(path) => {
                bail!("{} is no folder: a folder or s3://BUCKET/PREFIX has backups", path.display())
            }
            Self::Folder(path) => {
                let entries =
                    std::fs::read_dir(path).with_context(|| format!("{} can't be read", path.display()))?;
                let files = entries.flatten().filter_map(|entry| {
                    let metadata = entry.metadata().ok().filter(std::fs::Metadata::is_file)?;
                    Some(Stored { name: entry.file_name().into_string().ok()?, size: metadata.len() })
                });
                files.collect()
            }
            Self::Bucket { bucket, prefix, .. } => {
                let objects = bucket.list(prefix).await?.into_iter();
                let below = objects.filter_map(|object| {
                    Some(Stored {
                        name: object.key.strip_prefix(prefix.as_str())?.to_owned(),
                        size: object.size,
                    })
                });
                below.collect()
            }
        };
        Ok(all.into_iter().filter_map(|stored| Some((time(&stored.name)?, stored))).collect())
    }

    /// The backup of this name, or the latest one.
    ///
    /// # Errors
    /// There is none, or the place can't be read.
    pub(crate) async fn find(&self, name: Option<&str>) -> Result<String> {
        if let (Self::File(path), None) = (self, name) {
            return Ok(path.display().to_string());
        }
        let all = self.list().await?;
        let found = match name {
            Some(name) => all.into_values().find(|stored| stored.name == name),
            None => all.into_values().next_back(),
        };
        let what = name.map_or_else(|| "backup".to_owned(), |name| format!("backup {name:?}"));
        Ok(found.with_context(|| format!("there is no {what} in {}", self.describe("")))?.name)
    }

    /// Removes a backup.
    ///
    /// # Errors
    /// It can't be removed.
    pub(crate) async fn remove(&self, name: &str) -> Result<()> {
        match self {
            Self::File(path) => std::fs::remove_file(path)?,
            Self::Folder(path) => std::fs::remove_file(path.join(name))?,
            Self::Bucket { bucket, prefix, .. } => bucket.delete(&format!("{prefix}{name}")).await?,
        }
        Ok(())
    }

    /// Begins a backup, which is there once the sink was completed.
    ///
    /// # Errors
    /// The place can't be written.
    pub(crate) async fn create(&self, now: Timestamp) -> Result<(Sink, String)> {
        let name = name(now);
        match self {
            Self::File(path) => Ok((Sink::file(path)?, path.display().to_string())),
            Self::Folder(path) => {
                std::fs::create_dir_all(path).with_context(|| format!("{} can't be made", path.display()))?;
                Ok((Sink::file(&path.join(&name))?, name))
            }
            Self::Bucket { bucket, prefix, .. } => {
                let upload = bucket.upload(&format!("{prefix}{name}")).await?;
                Ok((Sink::Upload(Box::new(upload)), name))
            }
        }
    }

    /// Reads a backup, piece by piece.
    ///
    /// # Errors
    /// It can't be read, or `take` fails.
    pub(crate) async fn read(&self, name: &str, mut take: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let path = match self {
            Self::File(path) => path.clone(),
            Self::Folder(path) => path.join(name),
            Self::Bucket { bucket, prefix, .. } => {
                let mut pieces = bucket.get(&format!("{prefix}{name}")).await?;
                while let Some(piece) = pieces.try_next().await? {
                    take(&piece)?;
                }
                return Ok(());
            }
        };
        let mut file = File::open(&path).with_context(|| format!("{} can't be read", path.display()))?;
        let mut piece = vec![0; PIECE];
        loop {
            match file.read(&mut piece)? {
                0 => return Ok(()),
                length => take(&piece[..length])?,
            }
        }
    }
}

/// A backup that is being written.
pub(crate) enum Sink {
    /// A file that has `.part` behind its name until it is complete. Only its owner can read it.
    File { out: File, part: PathBuf, file: PathBuf },
    /// An object, which is not there until it is complete.
    Upload(Box<Upload>),
}

impl Sink {
    fn file(file: &Path) -> Result<Self> {
        let mut part = file.as_os_str().to_owned();
        part.push(".part");
        let part = PathBuf::from(part);
        // What is left of a run that was cut off goes; a file or link that somebody else put there is not written through.
        if let Err(error) = std::fs::remove_file(&part)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            return Err(error).with_context(|| format!("{} can't be replaced", part.display()));
        }
        let mut open = File::options();
        let open = open.write(true).create_new(true).mode(0o600);
        let out = open.open(&part).with_context(|| format!("{} can't be written", part.display()))?;
        Ok(Self::File { out, part, file: file.to_owned() })
    }

    /// Adds bytes to the end.
    ///
    /// # Errors
    /// They can't be written.
    pub(crate) async fn write(&mut self, bytes: &[u8]) -> Result<()> {
        match self {
            Self::File { out, .. } => Ok(out.write_all(bytes)?),
            Self::Upload(upload) => Ok(upload.write(bytes).await?),
        }
    }

    /// Makes the backup appear, durably.
    ///
    /// # Errors
    /// It can't be written. Then there is none.
    pub(crate) async fn complete(self) -> Result<()> {
        match self {
            Self::Upload(upload) => Ok(upload.complete().await?),
            Self::File { out, part, file } => {
                out.sync_all()?;
                std::fs::rename(&part, &file)?;
                let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
                Ok(File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?)
            }
        }
    }

    /// Gives the backup up. What went wrong before is what matters, so nothing is said of what fails here.
    pub(crate) async fn abort(self) {
        match self {
            Self::Upload(upload) => {
                let _ = upload.abort().await;
            }
            Self::File { part, .. } => {
                let _ = std::fs::remove_file(part);
            }
        }
    }
}

/// The name of a backup of a time.
fn name(now: Timestamp) -> String {
    format!("{}{}{}", NAME.0, now.to_zoned(TimeZone::UTC).strftime(TIME), NAME.1)
}

/// The time in a backup's name; `None` where it is the name of something else.
fn time(text: &str) -> Option<Timestamp> {
    let middle = text.strip_prefix(NAME.0)?.strip_suffix(NAME.1)?;
    let time = DateTime::strptime(TIME, middle).ok()?.to_zoned(TimeZone::UTC).ok()?.timestamp();
    (name(time) == text).then_some(time)
}

/// Checks that a place can have several backups.
///
/// # Errors
/// It is one file.
pub(crate) fn ensure_several(place: &Place) -> Result<()> {
    ensure!(!matches!(place, Place::File(_)), "retention needs a folder or s3://BUCKET/PREFIX");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_time_and_nothing_else_counts() {
        let now: Timestamp = "2026-11-26T21:09:00Z".parse().unwrap();
        assert_eq!(name(now), "freehold-20261126T210900Z.backup");
        assert_eq!(time(&name(now)), Some(now));
        for other in [
            "freehold-20261126T210900Z.backup.part",
            "freehold-2026.backup",
            "x.backup",
            "freehold-20261326T210900Z.backup",
        ] {
            assert_eq!(time(other), None, "{other}");
        }
    }

    #[tokio::test]
    async fn a_folder_lists_its_backups_alone_and_finds_the_latest() {
        let folder = tempfile::tempdir().unwrap();
        for file in [
            "freehold-20261126T000000Z.backup",
            "freehold-20261127T000000Z.backup",
            "freehold-20261128T000000Z.backup.part",
            "notes",
        ] {
            std::fs::write(folder.path().join(file), "abc").unwrap();
        }
        let place = Place::parse(folder.path().to_str().unwrap(), &S3Args::default()).unwrap();
        let listed: Vec<Stored> = place.list().await.unwrap().into_values().collect();
        assert_eq!((listed.len(), listed[0].size), (2, 3));
        assert_eq!(place.find(None).await.unwrap(), "freehold-20261127T000000Z.backup");
        assert!(place.find(Some("freehold-20200101T000000Z.backup")).await.is_err());
    }

    #[tokio::test]
    async fn a_backup_is_there_only_when_it_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place::Folder(folder.path().to_owned());
        for complete in [false, true] {
            let (mut sink, name) = place.create(Timestamp::UNIX_EPOCH).await.unwrap();
            sink.write(b"content").await.unwrap();
            assert!(!folder.path().join(&name).exists());
            if complete {
                sink.complete().await.unwrap()
            } else {
                sink.abort().await
            }
            assert_eq!(folder.path().join(&name).exists(), complete);
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), usize::from(complete));
        }
    }
}
