//! Tokens between commands: a file for each issuer and client, which its owner alone can read.

use super::at::At;
use anyhow::{Context as _, Result};
use freehold_gateway::openid::claims;
use freehold_pki::write_private;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::ErrorKind,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::PathBuf,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// How long before its end a token is renewed.
const MARGIN: Duration = Duration::from_secs(30);

/// What an issuer gave.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tokens {
    pub(super) id_token: String,
    pub(super) refresh_token: Option<String>,
}

impl Tokens {
    /// The end of the ID token's life by its claim `exp`; long ago where it has none.
    pub(super) fn expires(&self) -> SystemTime {
        let seconds = claims(&self.id_token).and_then(|claims| claims["exp"].as_u64()).unwrap_or(0);
        UNIX_EPOCH.checked_add(Duration::from_secs(seconds)).unwrap_or(UNIX_EPOCH)
    }

    pub(super) fn is_due(&self, now: SystemTime) -> bool {
        now + MARGIN >= self.expires()
    }
}

/// The place of tokens.
pub(super) struct Cache {
    folder: PathBuf,
    name: String,
}

/// A cache that no other command uses meanwhile: many issuers take a refresh token once.
pub(super) struct Locked {
    path: PathBuf,
    _lock: File,
}

impl Cache {
    /// The cache of an issuer, below `$XDG_CACHE_HOME` or `~/.cache`.
    pub(super) fn of(at: &At) -> Result<Self> {
        let home = || std::env::home_dir().map(|home| home.join(".cache"));
        let folder = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
        let folder = folder.or_else(home).context("there is no home directory to keep tokens in")?;
        let key = [&at.issuer_url, &at.client_id, &at.scopes.join(" ")].map(String::as_str).join("\n");
        Ok(Self { folder: folder.join("freehold/tokens"), name: hex::encode(Sha256::digest(key)) })
    }

    /// Waits until no other command uses it.
    pub(super) fn lock(&self) -> Result<Locked> {
        let context = || format!("{} can't be used", self.folder.display());
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder).with_context(context)?;
        let path = self.folder.join(format!("{}.lock", self.name));
        let lock = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
        let lock = lock.with_context(context)?;
        lock.lock().with_context(context)?;
        Ok(Locked { path: self.folder.join(format!("{}.json", self.name)), _lock: lock })
    }
}

impl Locked {
    /// The tokens, where somebody has signed in.
    pub(super) fn read(&self) -> Result<Option<Tokens>> {
        match fs::read(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            // What is no longer understood is as good as gone.
            read => Ok(serde_json::from_slice(&read?).ok()),
        }
    }

    pub(super) fn write(&self, tokens: &Tokens) -> Result<()> {
        write_private(&self.path, &serde_json::to_vec(tokens)?)
            .with_context(|| format!("{} can't be written", self.path.display()))
    }
}
