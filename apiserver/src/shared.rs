//! What the servers on one etcd must have in common: authorities and the key of tokens. The store keeps their digests, so
//! that a server which has others says so at its start, instead of refusing what its neighbours have signed.

use anyhow::{Context, Result, bail};
use freehold_apiserver_storage::{Change, Commit, Committed, Expect, Key, Store};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

/// Something that servers share: its file's name, and what is in it.
pub(crate) type Part<'a> = (&'static str, &'a str);

/// Compares what this server has with what the store says, or says it first. With `replace` the store is told anew.
pub(crate) async fn agree(store: &dyn Store, parts: &[Part<'_>], replace: bool) -> Result<()> {
    let key = Key::system("authorities");
    let digest = |text: &str| hex::encode(Sha256::digest(text.trim().as_bytes()));
    let own: Map<String, Value> =
        parts.iter().map(|(name, text)| ((*name).to_owned(), digest(text).into())).collect();
    loop {
        let found = store.get(&key).await?;
        if let Some(there) = &found {
            let record: Map<String, Value> =
                serde_json::from_slice(&there.value).context("what the store says of its authorities")?;
            let other = parts.iter().find(|(name, _)| record.get(*name) != own.get(*name));
            match other {
                None => return Ok(()),
                Some((name, _)) if !replace => bail!(
                    "the objects in this etcd belong to servers with another {name}: give this one their files \
                     with --pki-dir, or make its own the right ones with --replace-authorities"
                ),
                Some(_) => {}
            }
        }
        let commit = Commit {
            expect: vec![Expect { key: key.clone(), modified: found.map_or(0, |kv| kv.modified) }],
            changes: vec![Change::Put(key.clone(), Value::Object(own.clone()).to_string().into())],
        };
        if let Committed::Done(_) = store.commit(commit).await? {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use freehold_apiserver_storage_embedded::Embedded;

    #[tokio::test]
    async fn a_server_with_other_files_is_told_which() {
        let dir = tempfile::tempdir().unwrap();
        let store = Embedded::open(dir.path()).unwrap();
        let (first, second) = ([("ca.crt", "one"), ("key", "x")], [("ca.crt", "two"), ("key", "x")]);
        agree(&*store, &first, false).await.unwrap();
        agree(&*store, &first, false).await.unwrap();
        let refused = agree(&*store, &second, false).await.unwrap_err().to_string();
        assert!(refused.contains("another ca.crt"), "{refused}");
        agree(&*store, &second, true).await.unwrap();
        assert!(agree(&*store, &first, false).await.is_err());
    }
}
