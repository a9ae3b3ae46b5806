//! The endpoints of the Service `kubernetes` in each project: where Pods of its nodes find the server.

use serde_json::{Value, json};
use std::net::{IpAddr, SocketAddr};

/// The address that is published: that of `--external-url` if it names one, else the one that is listened to, if it is the only
/// one and this is the only server. Servers of one store have to publish the same.
pub(crate) fn address(external_url: Option<&str>, listen: SocketAddr, is_only: bool) -> Option<SocketAddr> {
    match external_url {
        Some(url) => {
            let authority = url.strip_prefix("https://")?.split('/').next()?;
            let bare =
                || authority.trim_matches(['[', ']']).parse().ok().map(|ip: IpAddr| SocketAddr::new(ip, 443));
            authority.parse().ok().or_else(bare)
        }
        None => Some(listen).filter(|listen| is_only && !listen.ip().is_unspecified() && listen.port() != 0),
    }
}

/// The objects, as kube-apiserver makes them (`pkg/controlplane/reconcilers`).
pub(crate) fn endpoints(address: SocketAddr) -> Vec<Value> {
    let (ip, port) = (address.ip().to_string(), address.port());
    let family = if address.is_ipv4() { "IPv4" } else { "IPv6" };
    let ports = json!([{"name": "https", "port": port, "protocol": "TCP"}]);
    let labels = |name: &str, value: &str| json!({"name": "kubernetes", "namespace": "default", "labels": {name: value}});
    vec![
        json!({
            "apiVersion": "v1", "kind": "Endpoints",
            "metadata": labels("endpointslice.kubernetes.io/skip-mirror", "true"),
            "subsets": [{"addresses": [{"ip": ip}], "ports": ports}],
        }),
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": labels("kubernetes.io/service-name", "kubernetes"),
            "addressType": family,
            "endpoints": [{"addresses": [ip], "conditions": {"ready": true}}],
            "ports": ports,
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_published_where_all_servers_have_the_same() {
        let local = "127.0.0.1:7443";
        let rows = [
            (Some("https://10.0.0.1:6443"), local, false, Some("10.0.0.1:6443")),
            (Some("https://10.0.0.1"), local, false, Some("10.0.0.1:443")),
            (Some("https://[fd00::1]"), local, true, Some("[fd00::1]:443")),
            (Some("https://freehold.example.com"), local, true, None),
            (None, local, true, Some(local)),
            (None, local, false, None),
            (None, "0.0.0.0:7443", true, None),
            (None, "127.0.0.1:0", true, None),
        ];
        for (external, listen, is_only, expected) in rows {
            let expected = expected.map(|text| text.parse().unwrap());
            assert_eq!(
                address(external, listen.parse().unwrap(), is_only),
                expected,
                "{external:?} {listen}"
            );
        }
    }
}
