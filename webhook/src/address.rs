//! Where an API server finds a webhook.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use freehold_machinery::Value;
use serde_json::json;
use std::net::SocketAddr;

/// Where the API server finds the webhook.
#[derive(Clone, Debug)]
pub enum Address {
    /// `https://HOST:PORT`.
    Url(String),
    /// A Service.
    Service {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
}

impl Address {
    /// The `clientConfig` of a webhook with a path.
    pub fn client_config(&self, bundle: &str, path: &str) -> Value {
        let mut config = json!({"caBundle": STANDARD.encode(bundle)});
        match self {
            Self::Url(url) => config["url"] = format!("{}{path}", url.trim_end_matches('/')).into(),
            Self::Service { namespace, name } => {
                config["service"] = json!({"namespace": namespace, "name": name, "path": path});
            }
        }
        config
    }
}

/// An address with the names that a certificate needs for it.
#[derive(Clone, Debug)]
pub struct Place {
    /// Where the API server finds the webhook.
    pub address: Address,
    /// Names and addresses of its certificate.
    pub names: Vec<String>,
}

impl Place {
    /// The place of a webhook that listens on `local`: behind a Service (`NAMESPACE/NAME`), at a URL, or at that address.
    ///
    /// # Errors
    /// A Service that is not `NAMESPACE/NAME`.
    pub fn new(local: SocketAddr, service: Option<&str>, url: Option<String>) -> Result<Self, String> {
        let mut names = vec![local.ip().to_string(), "localhost".to_owned()];
        let address = match (service, url) {
            (Some(service), _) => {
                let (namespace, name) =
                    service.split_once('/').ok_or_else(|| format!("{service:?} is not NAMESPACE/NAME"))?;
                names.push(format!("{name}.{namespace}.svc"));
                Address::Service { namespace: namespace.to_owned(), name: name.to_owned() }
            }
            (None, Some(url)) => {
                let host = url.trim_start_matches("https://").split(['/', ':']).next().unwrap_or_default();
                names.push(host.to_owned());
                Address::Url(url)
            }
            (None, None) => Address::Url(format!("https://{local}")),
        };
        names.sort_unstable();
        names.dedup();
        Ok(Self { address, names })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_have_the_name_by_which_the_server_calls() {
        let local: SocketAddr = "127.0.0.1:9".parse().unwrap();
        for (service, url, name) in [
            (Some("ops/hook"), None, "hook.ops.svc"),
            (None, Some("https://hook.example.com:8443"), "hook.example.com"),
            (None, None, "127.0.0.1"),
        ] {
            let place = Place::new(local, service, url.map(str::to_owned)).unwrap();
            assert!(place.names.iter().any(|have| have == name), "{name}: {:?}", place.names);
        }
        assert!(Place::new(local, Some("hook"), None).is_err());
    }
}
