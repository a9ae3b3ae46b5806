//! Kubeconfigs, as `kubectl` and the client libraries read them
//! (<https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/>).

use crate::PrivateKey;
use base64::{Engine, engine::general_purpose::STANDARD};

/// What a kubeconfig says.
#[derive(Clone, Debug)]
pub struct KubeconfigParams<'a> {
    /// The name of cluster, user and context.
    pub name: &'a str,
    /// The server's URL; a path is kept.
    pub server: &'a str,
    /// The name that TLS asks for; empty for the host of the server's URL.
    pub tls_server_name: &'a str,
    /// The authorities that clients trust, PEM. Empty: those of the client's machine.
    pub ca_pem: &'a str,
    /// How the client says who it is.
    pub user: Credentials<'a>,
    /// The namespace that is used where a command names none.
    pub namespace: &'a str,
}

/// How a client says who it is.
#[derive(Clone)]
pub enum Credentials<'a> {
    /// A client certificate and its key, PEM.
    ClientCert {
        /// The certificate.
        cert_pem: &'a str,
        /// Its key.
        key_pem: &'a str,
    },
    /// A bearer token.
    Token(&'a str),
    /// A file that holds a bearer token, read again as it changes.
    TokenFile(&'a str),
}

impl std::fmt::Debug for Credentials<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::ClientCert { .. } => "ClientCert",
            Self::Token(_) => "Token",
            Self::TokenFile(_) => "TokenFile",
        })
    }
}

/// A kubeconfig with one cluster, one user and one context, as YAML.
pub fn kubeconfig(params: &KubeconfigParams<'_>) -> String {
    let name = quoted(params.name);
    let authority = match params.ca_pem {
        "" => String::new(),
        pem => format!("\n    certificate-authority-data: {}", STANDARD.encode(pem)),
    };
    let server = match params.tls_server_name {
        "" => quoted(params.server),
        name => format!("{}\n    tls-server-name: {}", quoted(params.server), quoted(name)),
    };
    let namespace = quoted(if params.namespace.is_empty() { "default" } else { params.namespace });
    let user = match &params.user {
        Credentials::ClientCert { cert_pem, key_pem } => format!(
            "client-certificate-data: {}\n    client-key-data: {}",
            STANDARD.encode(cert_pem),
            STANDARD.encode(traditional(key_pem))
        ),
        Credentials::Token(token) => format!("token: {}", quoted(token)),
        Credentials::TokenFile(path) => format!("tokenFile: {}", quoted(path)),
    };
    format!(
        "apiVersion: v1
kind: Config
clusters:
- name: {name}
  cluster:
    server: {server}{authority}
users:
- name: {name}
  user:
    {user}
contexts:
- name: {name}
  context:
    cluster: {name}
    user: {name}
    namespace: {namespace}
current-context: {name}
"
    )
}

/// A key in the form that the most clients read; one that can't be read stays as it is.
fn traditional(key_pem: &str) -> String {
    PrivateKey::from_pem(key_pem).and_then(|key| key.traditional_pem()).unwrap_or_else(|_| key_pem.to_owned())
}

/// Where a project's own host is reached, `https://HOST[:PORT]`, by the server's URL. Where the host has no entry in DNS, the
/// address can be kept: then TLS alone asks for the host (`tls-server-name`, the second part).
/// `None` if the server has no `https` URL.
pub fn host_address(server: &str, host: &str, keep_address: bool) -> Option<(String, Option<String>)> {
    let url = server.strip_prefix("https://")?;
    let authority = url.split('/').next().filter(|authority| !authority.is_empty())?;
    if keep_address {
        return Some((format!("https://{authority}"), Some(host.to_owned())));
    }
    let port = match authority.rsplit_once(':') {
        Some((_, port)) if !port.ends_with(']') => format!(":{port}"),
        _ => String::new(),
    };
    Some((format!("https://{host}{port}"), None))
}

/// A double-quoted YAML scalar.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_a_kubeconfig_says_of_which_kind_it_is() {
        let key = PrivateKey::generate().unwrap();
        let traditional = traditional(key.pem());
        assert!(traditional.starts_with("-----BEGIN EC PRIVATE KEY-----"), "{traditional}");
        let read = PrivateKey::from_pem(&traditional).unwrap();
        assert_eq!(read.public_der().unwrap(), key.public_der().unwrap());
        assert_eq!(super::traditional("nothing"), "nothing");
    }

    #[test]
    fn a_project_has_an_address_of_its_own() {
        let at = |server, keep| host_address(server, "web.example.com", keep);
        let by_path = "https://127.0.0.1:7443/projects/web";
        assert_eq!(at(by_path, false), Some(("https://web.example.com:7443".into(), None)));
        let kept = ("https://127.0.0.1:7443".into(), Some("web.example.com".into()));
        assert_eq!(at(by_path, true), Some(kept));
        assert_eq!(
            at("https://[fd00::1]/projects/web", false),
            Some(("https://web.example.com".into(), None))
        );
        assert_eq!(at("http://127.0.0.1/projects/web", false), None);
        let user = Credentials::Token("t");
        let params = KubeconfigParams {
            name: "web",
            server: "https://h",
            tls_server_name: "web.h",
            ca_pem: "",
            user,
            namespace: "",
        };
        assert!(
            kubeconfig(&params).contains("server: \"https://h\"\n    tls-server-name: \"web.h\"\nusers:")
        );
    }
}
