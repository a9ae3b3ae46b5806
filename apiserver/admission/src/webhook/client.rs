//! Where a webhook is.

use base64::{Engine, prelude::BASE64_STANDARD};
use freehold_machinery::Value;
use std::sync::Arc;

/// `WebhookClientConfig`, of admission and of conversions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClientConfig {
    /// The host.
    pub at: At,
    /// The path, with a slash before it.
    pub path: String,
    /// `caBundle`, PEM; empty where the machine's authorities decide.
    pub ca: Arc<[u8]>,
}

/// The host of a webhook.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum At {
    /// A Service of the plane.
    Service {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// One of its ports.
        port: u16,
    },
    /// The host and port of a URL.
    Url {
        /// As it stands in the URL, with its port where it has one.
        authority: String,
        /// A name or an address, without brackets.
        host: String,
        /// The port, 443 where the URL has none.
        port: u16,
    },
}

impl ClientConfig {
    /// From a `clientConfig`.
    ///
    /// # Errors
    /// Neither a Service nor a URL, or not one that can be read.
    pub fn of(value: &Value) -> Result<Self, String> {
        let text = |value: &Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
        let ca =
            BASE64_STANDARD.decode(text(value, "caBundle")).map_err(|error| format!("caBundle: {error}"))?;
        let ca: Arc<[u8]> = if ca.trim_ascii().is_empty() { Arc::default() } else { ca.into() };
        let service = &value["service"];
        if service.is_object() {
            let port = service["port"].as_u64().unwrap_or(443);
            let at = At::Service {
                namespace: text(service, "namespace"),
                name: text(service, "name"),
                port: u16::try_from(port).map_err(|_| format!("invalid port {port}"))?,
            };
            return Ok(Self { at, path: rooted(&text(service, "path")), ca });
        }
        let url = value["url"].as_str().ok_or("webhook configuration must have either service or URL")?;
        let unparsable = || format!("Unparsable URL: {url:?}");
        let rest = url.strip_prefix("https://").ok_or_else(unparsable)?;
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().map_err(|_| unparsable())?),
            _ => (authority, 443),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() || authority.contains('@') {
            return Err(unparsable());
        }
        Ok(Self { at: At::Url { authority: authority.to_owned(), host, port }, path: rooted(path), ca })
    }

    /// Its URL, as messages name it.
    pub fn url(&self) -> String {
        match &self.at {
            At::Service { namespace, name, port } => {
                format!("https://{name}.{namespace}.svc:{port}{}", self.path)
            }
            At::Url { authority, .. } => format!("https://{authority}{}", self.path),
        }
    }
}

fn rooted(path: &str) -> String {
    if path.starts_with('/') { path.to_owned() } else { format!("/{path}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_service_or_a_url_is_where_a_webhook_is() {
        let service =
            json!({"service": {"name": "hook", "namespace": "shop", "path": "/check"}, "caBundle": "QQ=="});
        let read = ClientConfig::of(&service).unwrap();
        assert_eq!((read.url().as_str(), &*read.ca), ("https://hook.shop.svc:443/check", &b"A"[..]));
        for (url, host, port, path) in [
            ("https://a.example", "a.example", 443, "/"),
            ("https://a.example:8443/x/y", "a.example", 8443, "/x/y"),
            ("https://[fd00::1]:9443/x", "fd00::1", 9443, "/x"),
            ("https://[fd00::1]", "fd00::1", 443, "/"),
        ] {
            let read = ClientConfig::of(&json!({"url": url})).unwrap();
            let At::Url { host: found, port: at, .. } = &read.at else { panic!("{url}") };
            assert_eq!((found.as_str(), *at, read.path.as_str()), (host, port, path), "{url}");
        }
        for bad in ["http://a", "https://", "https://u@a", "https://a:99999", "a"] {
            assert!(ClientConfig::of(&json!({"url": bad})).is_err(), "{bad}");
        }
        assert!(ClientConfig::of(&json!({})).is_err());
    }
}
