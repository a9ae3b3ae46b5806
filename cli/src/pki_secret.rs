//! The Secret of a Kubernetes cluster that holds the files of core servers: created once, and never replaced.

use crate::pki::{FILES, Pki, read, write};
use anyhow::{Context, Result, bail};
use base64::{Engine, prelude::BASE64_STANDARD};
use freehold_client::{Client, Config, Resource};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Flags of the Secret.
#[derive(clap::Args)]
pub(crate) struct SecretArgs {
    /// Keep the files in this Secret of a cluster: it is created from --dir if absent, and otherwise fills --dir.
    #[arg(long, value_name = "NAMESPACE/NAME", requires = "cluster_kubeconfig", value_parser = SecretName::parse)]
    secret: Option<SecretName>,
    /// The kubeconfig of the cluster with the Secret.
    #[arg(long, value_name = "FILE", requires = "secret")]
    cluster_kubeconfig: Option<PathBuf>,
}

/// A Secret's namespace and name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SecretName {
    namespace: String,
    name: String,
}

impl SecretName {
    fn parse(text: &str) -> Result<Self, String> {
        match text.split_once('/') {
            Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
                Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
            }
            _ => Err("it must be NAMESPACE/NAME".to_owned()),
        }
    }

    fn object(&self, data: Value) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": {"name": self.name, "namespace": self.namespace},
            "data": data,
        })
    }
}

impl SecretArgs {
    /// Opens a directory; with a Secret both have the same files afterwards.
    ///
    /// # Errors
    /// The cluster refuses, the Secret lacks a file, or the directory has files of its own that differ from the Secret's.
    pub(crate) async fn open_or_make(&self, dir: &Path) -> Result<Pki> {
        let (Some(secret), Some(kubeconfig)) = (&self.secret, &self.cluster_kubeconfig) else {
            return Pki::open_or_make(dir);
        };
        let client = Client::new(&Config::from_kubeconfig(kubeconfig)?)?;
        let secrets = Resource::namespaced("", "v1", "secrets");
        let place = format!("Secret {}/{}", secret.namespace, secret.name);
        let failed = || format!("{place} can't be read or made");
        let existing = client.get_opt(&secrets, Some(&secret.namespace), &secret.name).await;
        if let Some(found) = existing.with_context(failed)? {
            return fill(dir, &found).with_context(|| place);
        }
        let pki = Pki::open_or_make(dir)?;
        match client.create(&secrets, &secret.object(data(dir)?)).await {
            Err(error) if error.is_already_exists() => {
                bail!(
                    "{place} was created by another process meanwhile: remove {} and try again",
                    dir.display()
                )
            }
            made => made.with_context(failed).map(|_| pki),
        }
    }
}

/// A Secret's data from a directory.
fn data(dir: &Path) -> Result<Value> {
    let encode = |file: &&str| {
        let text = read(&dir.join(file))?.with_context(|| format!("{file} is missing"))?;
        Ok(((*file).to_owned(), Value::from(BASE64_STANDARD.encode(text))))
    };
    FILES.iter().map(encode).collect()
}

/// Fills a directory from a Secret.
fn fill(dir: &Path, secret: &Value) -> Result<Pki> {
    std::fs::create_dir_all(dir).with_context(|| format!("directory {} can't be created", dir.display()))?;
    for file in FILES {
        let data = secret["data"][file].as_str().with_context(|| format!("{file} is missing"))?;
        let bytes = BASE64_STANDARD.decode(data).with_context(|| format!("{file} is not base64"))?;
        let text = String::from_utf8(bytes).with_context(|| format!("{file} is no text"))?;
        let path = dir.join(file);
        match read(&path)? {
            Some(own) if own != text => bail!("{} differs from it", path.display()),
            Some(_) => {}
            None => write(&path, &text)?,
        }
    }
    Pki::open(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_gives_another_directory_the_same_files() {
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let made = Pki::open_or_make(first.path()).unwrap();
        let name = SecretName::parse("freehold/pki").unwrap();
        let secret = name.object(data(first.path()).unwrap());
        let filled = fill(second.path(), &secret).unwrap();
        assert_eq!(filled.ca.key_pem(), made.ca.key_pem());
        assert_eq!(filled.service_account_key, made.service_account_key);
        fill(second.path(), &secret).unwrap();
    }

    #[test]
    fn a_secret_that_lacks_a_file_or_differs_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        Pki::open_or_make(dir.path()).unwrap();
        let name = SecretName::parse("freehold/pki").unwrap();
        let mut secret = name.object(data(dir.path()).unwrap());
        secret["data"]["ca.key"] = BASE64_STANDARD.encode("other").into();
        let refused = fill(dir.path(), &secret).err().map(|error| format!("{error:#}"));
        assert!(refused.unwrap().ends_with("ca.key differs from it"));
        let empty = name.object(json!({}));
        let refused = fill(dir.path(), &empty).err().map(|error| format!("{error:#}"));
        assert_eq!(refused.as_deref(), Some("ca.crt is missing"));
    }

    #[test]
    fn a_secret_is_named_with_its_namespace() {
        for wrong in ["pki", "/pki", "a/", "a/b/c"] {
            assert!(SecretName::parse(wrong).is_err(), "{wrong}");
        }
    }
}
