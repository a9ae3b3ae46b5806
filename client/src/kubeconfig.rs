//! Kubeconfig files: the parts that a program without plugins can use
//! (<https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/>).

use crate::{Config, Error, Identity, Result};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::Deserialize;
use std::path::Path;

/// A kubeconfig.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Kubeconfig {
    clusters: Vec<Named<Cluster>>,
    users: Vec<Named<UserEntry>>,
    contexts: Vec<Named<Context>>,
    current_context: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Named<T> {
    name: String,
    #[serde(alias = "cluster", alias = "user", alias = "context")]
    entry: T,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct Cluster {
    server: String,
    certificate_authority: Option<String>,
    certificate_authority_data: Option<String>,
    tls_server_name: Option<String>,
    insecure_skip_tls_verify: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct UserEntry {
    client_certificate: Option<String>,
    client_certificate_data: Option<String>,
    client_key: Option<String>,
    client_key_data: Option<String>,
    token: Option<String>,
    #[serde(rename = "tokenFile")]
    token_file: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Context {
    cluster: String,
    user: String,
    namespace: String,
}

impl Kubeconfig {
    /// Reads a kubeconfig in YAML or JSON.
    ///
    /// # Errors
    /// [`Error::Config`] for text that is neither, or that has another structure.
    pub fn parse(text: &str) -> Result<Self> {
        kubeconfig_as(text)
    }

    /// Its users, by name. Relative paths start at `base`.
    ///
    /// # Errors
    /// A file that a user names can't be read.
    pub fn users(&self, base: Option<&Path>) -> Result<Vec<(String, Identity)>> {
        let users = self.users.iter();
        users.map(|user| Ok((user.name.clone(), user.entry.identity(base)?))).collect()
    }

    /// The name of the user in the current context, where there is one.
    pub fn current_user(&self) -> Option<&str> {
        let current = self.contexts.iter().find(|context| context.name == self.current_context)?;
        Some(current.entry.user.as_str()).filter(|name| !name.is_empty())
    }

    /// The namespace of the current context, where it names one.
    pub fn current_namespace(&self) -> Option<&str> {
        let current = self.contexts.iter().find(|context| context.name == self.current_context)?;
        Some(current.entry.namespace.as_str()).filter(|name| !name.is_empty())
    }

    /// The client configuration of a context (`None`: the current one). Relative paths start at `base`.
    ///
    /// # Errors
    /// [`Error::Config`] for a context, cluster or user that is not in the file, a file that cannot be read, or
    /// `insecure-skip-tls-verify`, which is not supported.
    pub fn config(&self, context: Option<&str>, base: Option<&Path>) -> Result<Config> {
        let wanted = context.unwrap_or(&self.current_context);
        let context = find(&self.contexts, wanted, "context")?;
        let cluster = find(&self.clusters, &context.cluster, "cluster")?;
        if cluster.insecure_skip_tls_verify {
            return Err(Error::Config(
                "insecure-skip-tls-verify is not supported: name the authority with certificate-authority"
                    .into(),
            ));
        }
        let ca = pem(&cluster.certificate_authority_data, &cluster.certificate_authority, base)?
            .unwrap_or_default();
        let identity = match context.user.as_str() {
            "" => Identity::None,
            user => find(&self.users, user, "user")?.identity(base)?,
        };
        let mut config = Config::new(&cluster.server, ca, identity);
        config.server_name.clone_from(&cluster.tls_server_name);
        Ok(config)
    }
}

impl UserEntry {
    fn identity(&self, base: Option<&Path>) -> Result<Identity> {
        let cert = pem(&self.client_certificate_data, &self.client_certificate, base)?;
        let key = pem(&self.client_key_data, &self.client_key, base)?;
        if let (Some(cert_pem), Some(key_pem)) = (cert, key) {
            return Ok(Identity::ClientCert { cert_pem, key_pem });
        }
        if let Some(token) = &self.token {
            return Ok(Identity::Token(token.clone()));
        }
        match &self.token_file {
            Some(path) => Ok(Identity::Token(read(path, base)?.trim().to_owned())),
            None => Ok(Identity::None),
        }
    }
}

/// Reads a kubeconfig, YAML or JSON, as a type of the caller's: one that takes no other fields, or a value that keeps all.
///
/// # Errors
/// It is not YAML, or not of that type.
pub fn kubeconfig_as<T: serde::de::DeserializeOwned>(text: &str) -> Result<T> {
    serde_saphyr::from_str(text).map_err(|e| Error::Config(format!("kubeconfig: {e}")))
}

/// A value as YAML, as `kubectl` writes its files.
///
/// # Errors
/// It has what YAML can't say.
pub fn yaml(value: &freehold_machinery::Value) -> Result<String> {
    serde_saphyr::to_string(value).map_err(|e| Error::Config(format!("YAML: {e}")))
}

fn find<'a, T>(list: &'a [Named<T>], name: &str, what: &str) -> Result<&'a T> {
    let found = list.iter().find(|entry| entry.name == name);
    found.map(|entry| &entry.entry).ok_or_else(|| Error::Config(format!("kubeconfig has no {what} {name:?}")))
}

fn pem(data: &Option<String>, path: &Option<String>, base: Option<&Path>) -> Result<Option<String>> {
    if let Some(data) = data {
        let bytes = STANDARD.decode(data.trim()).map_err(|e| Error::Config(format!("kubeconfig: {e}")))?;
        let text = String::from_utf8(bytes).map_err(|e| Error::Config(format!("kubeconfig: {e}")))?;
        return Ok(Some(text));
    }
    path.as_ref().map(|path| read(path, base)).transpose()
}

fn read(path: &str, base: Option<&Path>) -> Result<String> {
    let path = base.unwrap_or(Path::new("")).join(path);
    std::fs::read_to_string(&path).map_err(|e| Error::Config(format!("{}: {e}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_current_context_decides_server_and_identity() {
        let users = [
            ("client-certificate-data: Y2VydA==\n    client-key-data: a2V5", "client certificate"),
            ("token: abc", "token"),
            ("username: ignored", "nobody"),
        ];
        for (user, identity) in users {
            let text = format!(
                "apiVersion: v1\nkind: Config\nclusters:\n- name: c\n  cluster:\n    server: https://h:1/projects/web\n    \
                 certificate-authority-data: Y2EK\nusers:\n- name: u\n  user:\n    {user}\ncontexts:\n- name: x\n  \
                 context:\n    cluster: c\n    user: u\n    namespace: n\ncurrent-context: x\npreferences: {{}}\n"
            );
            let config = Config::from_kubeconfig_text(&text).unwrap();
            assert_eq!(
                (config.server.as_str(), config.ca_pem.as_str()),
                ("https://h:1/projects/web", "ca\n")
            );
            assert_eq!(format!("{:?}", config.identity), identity);
            assert_eq!(Kubeconfig::parse(&text).unwrap().current_namespace(), Some("n"));
        }
    }

    #[test]
    fn a_kubeconfig_without_its_context_says_so() {
        let text = "apiVersion: v1\nkind: Config\ncurrent-context: a\n";
        let error = Config::from_kubeconfig_text(text).unwrap_err().to_string();
        assert_eq!(error, "client configuration: kubeconfig has no context \"a\"");
    }
}
