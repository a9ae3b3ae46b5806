//! Root addresses: beside its path, a project has the host name `<project>.<domain>`, where its control plane begins at `/`.
//!
//! Which project a connection is for is what its TLS handshake asks for (SNI, RFC 6066), once. What a request names as its
//! host (`Host`, `:authority`) may be an address or another name that leads here; where it names a project, it must be that
//! of the connection. A proxy that keeps connections for several hosts can't mix projects up: what does not agree gets 421
//! (RFC 9110, 15.5.20), and is asked again on a connection of its own.

use crate::secure::{Identity, Until};
use freehold_machinery::Status;
use http::{header, request::Parts};
use std::net::SocketAddr;

/// What a connection is: settled when it begins, the same for each of its requests.
pub(crate) struct Connection {
    /// Who is at its other end.
    pub(crate) peer: Identity,
    /// Its address.
    pub(crate) remote: SocketAddr,
    /// The project whose host name was asked for.
    pub(crate) project: Option<String>,
    /// Ends when nobody vouches for the certificate at its other end any more. The connection ends with it by itself, what it
    /// was upgraded to does not.
    pub(crate) distrusted: Until,
}

impl Connection {
    /// Whether a front proxy is at its other end.
    pub(crate) fn is_proxy(&self) -> bool {
        matches!(&self.peer, Ok(Some(peer)) if peer.is_front_proxy())
    }
}

/// The project that a host name is that of: one label, in front of the domain. Ports and case do not matter.
pub(crate) fn project(domain: Option<&str>, host: &str) -> Option<String> {
    let host = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    let label = host.strip_suffix(domain?)?.strip_suffix('.')?;
    (!label.is_empty() && !label.contains('.')).then(|| label.to_owned())
}

/// 421 where a request names the host of a project that its connection is not for.
pub(crate) fn agree(domain: Option<&str>, connection: &Connection, parts: &Parts) -> Result<(), Status> {
    let authority = parts.uri.authority().map(|authority| authority.as_str());
    let headers = parts.headers.get_all(header::HOST).into_iter().filter_map(|host| host.to_str().ok());
    for host in authority.into_iter().chain(headers) {
        let named = project(domain, host);
        if named.is_some() && named != connection.project {
            let why = format!("the connection is not for the host {host:?}: TLS asked for another name");
            return Err(Status::new(421, "MisdirectedRequest", &why));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::{FutureExt, future};
    use http::Request;

    #[test]
    fn a_host_below_the_domain_is_a_project() {
        let rows = [
            ("web.example.com", Some("web")),
            ("WEB.Example.com.", Some("web")),
            ("web.example.com:6443", Some("web")),
            ("example.com", None),
            (".example.com", None),
            ("webexample.com", None),
            ("a.web.example.com", None),
            ("web.example.com.evil.org", None),
            ("[::1]:6443", None),
            ("127.0.0.1:6443", None),
            ("", None),
        ];
        for (host, expected) in rows {
            assert_eq!(project(Some("example.com"), host).as_deref(), expected, "{host}");
            assert_eq!(project(None, host), None, "{host}");
        }
    }

    #[test]
    fn a_host_of_another_project_than_the_connections_is_misdirected() {
        let code = |project: Option<&str>, uri: &str, host: &str| {
            let remote = SocketAddr::from(([127, 0, 0, 1], 1));
            let distrusted = future::pending().boxed().shared();
            let project = project.map(str::to_owned);
            let connection = Connection { peer: Ok(None), remote, project, distrusted };
            let (parts, ()) = Request::get(uri).header("host", host).body(()).unwrap().into_parts();
            agree(Some("example.com"), &connection, &parts).map_err(|status| status.code)
        };
        assert_eq!(code(Some("web"), "/api", "web.example.com:1"), Ok(()));
        assert_eq!(code(Some("web"), "/api", "127.0.0.1:1"), Ok(()), "dialled by its address");
        assert_eq!(code(None, "/api", "127.0.0.1:1"), Ok(()));
        assert_eq!(code(Some("web"), "/api", "shop.example.com"), Err(421));
        assert_eq!(code(None, "/api", "web.example.com"), Err(421));
        assert_eq!(code(Some("web"), "https://shop.example.com/api", "web.example.com"), Err(421));
    }
}
