//! Flags of the store, shared by the commands that open one.

use anyhow::{Context, Result};
use freehold_apiserver::{EtcdOptions, Retention, Sealed, StoreConfig, open_store, seal};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Which etcd, and how to reach it.
#[derive(clap::Args)]
pub(crate) struct EtcdArgs {
    /// Keep objects in this etcd: URLs of its members, separated by commas. When one fails, the next one is tried.
    #[arg(long, value_name = "URLS", value_delimiter = ',')]
    etcd: Vec<String>,
    /// Prefix of each key in etcd.
    #[arg(long, default_value = "/freehold/")]
    etcd_prefix: String,
    /// The authority of etcd's certificate, a PEM file.
    #[arg(long, value_name = "FILE")]
    etcd_ca: Option<PathBuf>,
    /// The client certificate for etcd, a PEM file.
    #[arg(long, value_name = "FILE", requires = "etcd_key")]
    etcd_cert: Option<PathBuf>,
    /// Its key, a PEM file.
    #[arg(long, value_name = "FILE", requires = "etcd_cert")]
    etcd_key: Option<PathBuf>,
    /// User in etcd, if it requires authentication.
    #[arg(long, value_name = "NAME", requires = "etcd_password_file")]
    etcd_user: Option<String>,
    /// File whose first line is the password of that user.
    #[arg(long, value_name = "FILE", requires = "etcd_user")]
    etcd_password_file: Option<PathBuf>,
}

impl EtcdArgs {
    /// Options of the engine; `None` where no etcd is named.
    pub(crate) fn options(&self) -> Result<Option<EtcdOptions>> {
        if self.etcd.is_empty() {
            return Ok(None);
        }
        let bytes = |path: &PathBuf| read(path).map(String::into_bytes);
        let identity = match (&self.etcd_cert, &self.etcd_key) {
            (Some(cert), Some(key)) => Some((bytes(cert)?, bytes(key)?)),
            _ => None,
        };
        let user = match (&self.etcd_user, &self.etcd_password_file) {
            (Some(user), Some(file)) => Some((user.clone(), first_line(&read(file)?))),
            _ => None,
        };
        Ok(Some(EtcdOptions {
            prefix: self.etcd_prefix.clone(),
            ca: self.etcd_ca.as_ref().map(bytes).transpose()?,
            identity,
            user,
            ..EtcdOptions::new(self.etcd.clone())
        }))
    }
}

/// How much history a store keeps.
#[derive(clap::Args)]
pub(crate) struct HistoryArgs {
    /// Seconds for which past revisions stay readable. Lists with a continue token, resumed watches and forks of
    /// earlier revisions need them.
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..))]
    history_age: u32,
    /// Number of latest revisions to keep, however old they are.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    history_revisions: u64,
}

impl HistoryArgs {
    /// As stores take it.
    pub(crate) fn retention(&self) -> Retention {
        Retention { age: Duration::from_secs(self.history_age.into()), revisions: self.history_revisions }
    }
}

/// What is done to objects on their way into the store.
#[derive(clap::Args)]
pub(crate) struct SealArgs {
    /// Compression of objects when they are written: `zstd` or `none`. Each setting reads what the other wrote.
    #[arg(long, default_value = "zstd")]
    compression: Compression,
    /// Encrypt objects in the store with the keys in this file, an `EncryptionConfiguration` with `aesgcm`.
    #[arg(long, value_name = "FILE")]
    encryption_keys: Option<PathBuf>,
}

/// How objects are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Compression {
    Zstd,
    None,
}

impl SealArgs {
    /// Opens a store in which objects are sealed so.
    pub(crate) async fn open(&self, store: &StoreConfig) -> Result<Sealed> {
        let raw = open_store(store).await?;
        seal(raw, self.compression == Compression::Zstd, self.encryption_keys.as_deref()).await
    }

    /// Whether a flag says something about encryption.
    pub(crate) fn encrypts(&self) -> bool {
        self.encryption_keys.is_some()
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

/// A file of text; an error names it.
pub(crate) fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("{} can't be read", path.display()))
}
