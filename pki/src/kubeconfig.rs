//! Kubeconfigs, as `kubectl` and the client libraries read them
//! (<https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/>).

use base64::{Engine, engine::general_purpose::STANDARD};

/// What a kubeconfig says.
#[derive(Clone, Debug)]
pub struct KubeconfigParams<'a> {
    /// The name of cluster, user and context.
    pub name: &'a str,
    /// The server's URL; a path is kept.
    pub server: &'a str,
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
    let server = quoted(params.server);
    let namespace = quoted(if params.namespace.is_empty() { "default" } else { params.namespace });
    let user = match &params.user {
        Credentials::ClientCert { cert_pem, key_pem } => format!(
            "client-certificate-data: {}\n    client-key-data: {}",
            STANDARD.encode(cert_pem),
            STANDARD.encode(key_pem)
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
