//! How to reach a server, and as whom.

use crate::{Error, Kubeconfig, Result};
use http::Uri;
use std::path::Path;
use std::time::Duration;

/// How to reach a server, and as whom.
#[derive(Clone)]
pub struct Config {
    /// `https://host[:port][/prefix]`; `http://` is accepted for tests and local proxies. Requests go below the prefix.
    pub server: String,
    /// The certificates that the server's is checked against, in PEM. Nothing else is trusted.
    pub ca_pem: String,
    /// The name that the server's certificate is for, where that is not the URL's host.
    pub server_name: Option<String>,
    /// Who is asking.
    pub identity: Identity,
    /// What the server's logs and managed fields name this client by.
    pub user_agent: String,
    /// How long a request may take, watches aside.
    pub timeout: Duration,
    /// How many bytes an answer may have, watches aside.
    pub max_response_bytes: usize,
}

/// Who is asking.
#[derive(Clone, Default)]
pub enum Identity {
    /// Nobody in particular.
    #[default]
    None,
    /// The holder of a private key.
    ClientCert {
        /// The certificate and what signed it, in PEM.
        cert_pem: String,
        /// Its key, in PEM.
        key_pem: String,
    },
    /// The bearer of a token.
    Token(String),
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::None => "nobody",
            Self::ClientCert { .. } => "client certificate",
            Self::Token(_) => "token",
        })
    }
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config").field("server", &self.server).field("identity", &self.identity).finish()
    }
}

impl Config {
    /// A configuration with the usual limits: 30 s and 64 MiB.
    pub fn new(server: impl Into<String>, ca_pem: impl Into<String>, identity: Identity) -> Self {
        Self {
            server: server.into(),
            ca_pem: ca_pem.into(),
            server_name: None,
            identity,
            user_agent: concat!("freehold/", env!("CARGO_PKG_VERSION")).to_owned(),
            timeout: Duration::from_secs(30),
            max_response_bytes: 64 << 20,
        }
    }

    /// Sets another `User-Agent` than `freehold/VERSION`.
    pub fn user_agent(mut self, user_agent: impl Into<String>) -> Self {
        self.user_agent = user_agent.into();
        self
    }

    /// Reads the current context of a kubeconfig file. Relative paths in it start at its folder.
    ///
    /// # Errors
    /// [`Error::Config`] where the file cannot be read, or for the reasons of [`Kubeconfig::config`].
    pub fn from_kubeconfig(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path)
            .map_err(|e| Error::Config(format!("kubeconfig {}: {e}", path.display())))?;
        Kubeconfig::parse(&text)?.config(None, path.parent())
    }

    /// Reads the current context of a kubeconfig's text, which must not refer to files by relative paths.
    ///
    /// # Errors
    /// [`Error::Config`] for text that is no kubeconfig, or for the reasons of [`Kubeconfig::config`].
    pub fn from_kubeconfig_text(text: &str) -> Result<Self> {
        Kubeconfig::parse(text)?.config(None, None)
    }

    /// The server's address, taken apart.
    pub(crate) fn target(&self) -> Result<Target> {
        let bad = |why: &str| Error::Config(format!("server {:?}: {why}", self.server));
        let uri: Uri = self.server.parse().map_err(|_| bad("not a URL"))?;
        let tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(bad("https:// is wanted")),
        };
        let host = uri.host().filter(|h| !h.is_empty()).ok_or_else(|| bad("no host"))?;
        let port = uri.port_u16().unwrap_or(if tls { 443 } else { 80 });
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        Ok(Target {
            tls,
            name: self.server_name.clone().unwrap_or_else(|| bare.to_owned()),
            host: bare.to_owned(),
            port,
            authority: uri.authority().map(ToString::to_string).unwrap_or_default(),
            prefix: uri.path().trim_end_matches('/').to_owned(),
        })
    }
}

/// A server's address, taken apart.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Target {
    pub(crate) tls: bool,
    pub(crate) name: String,
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) authority: String,
    pub(crate) prefix: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_url_is_taken_apart() {
        let rows = [
            ("https://a.example/projects/web/", "a.example", 443, "/projects/web", true),
            ("https://[::1]:6443", "::1", 6443, "", true),
            ("http://127.0.0.1:8080", "127.0.0.1", 8080, "", false),
        ];
        for (url, host, port, prefix, tls) in rows {
            let target = Config::new(url, "", Identity::None).target().unwrap();
            assert_eq!(
                (target.host.as_str(), target.port, target.prefix.as_str(), target.tls),
                (host, port, prefix, tls)
            );
        }
        for url in ["", "a.example", "ftp://a.example", "/x"] {
            assert!(Config::new(url, "", Identity::None).target().is_err(), "{url}");
        }
    }
}
