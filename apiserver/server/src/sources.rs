//! Where a request came from: the connection's address and, of proxies that are trusted, what they say of theirs.
//!
//! `X-Forwarded-For` is anybody's to send. It is believed from the end, as far as those who wrote it are trusted; the rest
//! of it is removed before anything looks at it or it is passed on.

use http::{HeaderMap, HeaderName, HeaderValue};
use ipnet::IpNet;
use std::net::{IpAddr, SocketAddr};

/// Addresses that are read of a request's headers.
const MAX: usize = 16;
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

/// The last addresses of a header, in order: what stands behind the last entry that is none. Some proxies add a port.
fn addresses(headers: &HeaderMap, name: &HeaderName) -> Vec<IpAddr> {
    let all = headers.get_all(name).into_iter().map(|value| value.to_str().unwrap_or_default());
    let all: Vec<&str> = all.flat_map(|value| value.split(',')).map(str::trim).collect();
    let read = |entry: &&str| {
        let with_port = || entry.parse().ok().map(|address: SocketAddr| address.ip());
        entry.parse().ok().or_else(with_port)
    };
    let mut last: Vec<IpAddr> = all.iter().rev().map_while(read).take(MAX).collect();
    last.reverse();
    last
}

/// Leaves of the headers what trusted proxies say. `is_proxy`: the client proved that it is a front proxy.
pub(crate) fn verify(headers: &mut HeaderMap, remote: SocketAddr, is_proxy: bool, trusted: &[IpNet]) {
    if !headers.contains_key(&FORWARDED_FOR) && !headers.contains_key(&REAL_IP) {
        return;
    }
    let trusts = |ip: &IpAddr| trusted.iter().any(|net| net.contains(&ip.to_canonical()));
    let mut believed = is_proxy || trusts(&remote.ip());
    let mut said = addresses(headers, &FORWARDED_FOR);
    if said.is_empty() {
        said.extend(addresses(headers, &REAL_IP).first());
    }
    headers.remove(REAL_IP);
    headers.remove(FORWARDED_FOR);
    let mut kept = Vec::new();
    for ip in said.into_iter().rev().take_while(|ip| std::mem::replace(&mut believed, trusts(ip))) {
        kept.insert(0, ip.to_string());
    }
    if let Ok(kept) = HeaderValue::from_str(&kept.join(", "))
        && !kept.is_empty()
    {
        headers.insert(FORWARDED_FOR, kept);
    }
}

/// Adds the client to what is passed on to another server, as each proxy does.
pub(crate) fn forward(headers: &mut HeaderMap, remote: SocketAddr) {
    let all = all(headers, remote).join(", ");
    if let Ok(all) = HeaderValue::from_str(&all) {
        headers.insert(FORWARDED_FOR, all);
    }
}

/// The addresses that a request came through, of verified headers: the first client first, the connection's own last.
pub(crate) fn all(headers: &HeaderMap, remote: SocketAddr) -> Vec<String> {
    let mut found = addresses(headers, &FORWARDED_FOR);
    let own = remote.ip().to_canonical();
    if found.last() != Some(&own) {
        found.push(own);
    }
    found.iter().map(IpAddr::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_proxies_say_counts_from_the_end_as_far_as_they_are_trusted() {
        let net = ["10.0.0.0/8".parse().unwrap()];
        // Client, whether it is a front proxy, header, value, sources.
        let rows = [
            ("192.0.2.1:5", false, "x-other", "10.0.0.1", "192.0.2.1"),
            ("192.0.2.1:5", false, "x-forwarded-for", "127.0.0.1", "192.0.2.1"),
            ("192.0.2.1:5", false, "x-real-ip", "127.0.0.1", "192.0.2.1"),
            ("192.0.2.1:5", true, "x-forwarded-for", "127.0.0.1", "127.0.0.1 192.0.2.1"),
            ("10.0.0.1:5", false, "x-forwarded-for", "127.0.0.1", "127.0.0.1 10.0.0.1"),
            ("[::ffff:10.0.0.1]:5", false, "x-forwarded-for", "127.0.0.1", "127.0.0.1 10.0.0.1"),
            ("10.0.0.1:5", false, "x-real-ip", "192.0.2.9", "192.0.2.9 10.0.0.1"),
            // What stands before an address that is not trusted was said by that one.
            ("10.0.0.1:5", false, "x-forwarded-for", "1.1.1.1, 192.0.2.9", "192.0.2.9 10.0.0.1"),
            (
                "10.0.0.1:5",
                false,
                "x-forwarded-for",
                "1.1.1.1, 192.0.2.9, 10.0.0.2",
                "192.0.2.9 10.0.0.2 10.0.0.1",
            ),
            ("10.0.0.1:5", false, "x-forwarded-for", "nobody", "10.0.0.1"),
            ("10.0.0.1:5", false, "x-forwarded-for", "1.1.1.1, unknown", "10.0.0.1"),
            ("10.0.0.1:5", false, "x-forwarded-for", "1.1.1.1, 192.0.2.9:443", "192.0.2.9 10.0.0.1"),
            ("10.0.0.1:5", false, "x-forwarded-for", "[2001:db8::1]:443", "2001:db8::1 10.0.0.1"),
            ("127.0.0.1:5", true, "x-forwarded-for", "127.0.0.1", "127.0.0.1"),
        ];
        for (remote, is_proxy, name, value, expected) in rows {
            let remote = remote.parse().unwrap();
            let mut headers = HeaderMap::new();
            headers.insert(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
            verify(&mut headers, remote, is_proxy, &net);
            assert_eq!(all(&headers, remote).join(" "), expected, "{remote} {name}: {value}");
            forward(&mut headers, remote);
            assert_eq!(headers["x-forwarded-for"], expected.replace(' ', ", ").as_str());
        }
    }
}
