//! Which addresses may be reached.

use ipnet::IpNet;
use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

/// The networks in which webhooks and aggregated servers may be: a list of CIDRs and the words `public` (addresses that
/// are reached through the Internet), `any` and `none`, separated by commas.
///
/// The default is `public`: what only the machine or network of the server reaches (loopback, link-local with the
/// metadata services of clouds, private ranges) is nothing that a plane's users may make it ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Networks {
    public: bool,
    listed: Vec<IpNet>,
}

impl Default for Networks {
    fn default() -> Self {
        Self { public: true, listed: Vec::new() }
    }
}

impl FromStr for Networks {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut networks = Self { public: false, listed: Vec::new() };
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            match part {
                "none" => {}
                "public" => networks.public = true,
                "any" => networks
                    .listed
                    .extend([IpNet::from(ipnet::Ipv4Net::default()), IpNet::from(ipnet::Ipv6Net::default())]),
                cidr => {
                    let net = cidr.parse::<IpNet>().or_else(|_| cidr.parse::<IpAddr>().map(IpNet::from));
                    networks
                        .listed
                        .push(net.map_err(|_| format!("{cidr:?} is no CIDR, and not public, any or none"))?);
                }
            }
        }
        Ok(networks)
    }
}

impl fmt::Display for Networks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let listed = self.listed.iter().map(IpNet::to_string);
        let parts: Vec<String> = self.public.then(|| "public".to_owned()).into_iter().chain(listed).collect();
        f.write_str(if parts.is_empty() { "none".to_owned() } else { parts.join(",") }.as_str())
    }
}

impl Networks {
    /// Whether an address may be connected to. An IPv4 address in an IPv6 one is judged as what it leads to.
    pub fn allows(&self, address: IpAddr) -> bool {
        let address = plain(address);
        self.public && is_public(address) || self.listed.iter().any(|net| net.contains(&address))
    }
}

/// The IPv4 address that an IPv6 one stands for (mapped, NAT64, 6to4), or the address itself.
fn plain(address: IpAddr) -> IpAddr {
    let IpAddr::V6(six) = address else { return address };
    let v4 = |high: u16, low: u16| {
        let [a, b] = high.to_be_bytes();
        let [c, d] = low.to_be_bytes();
        IpAddr::V4(Ipv4Addr::new(a, b, c, d))
    };
    match six.segments() {
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => v4(high, low),
        [0x2002, high, low, ..] => v4(high, low),
        _ => address,
    }
}

fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(four) => is_public_v4(four),
        IpAddr::V6(six) => is_public_v6(six),
    }
}

/// IANA's special-purpose registry (RFC 6890 and its updates) is not public.
fn is_public_v4(address: Ipv4Addr) -> bool {
    let special = match address.octets() {
        [0, ..] | [240..=255, ..] => true,
        [100, second, ..] => second & 0xc0 == 64,
        [192, 0, 0, _] | [192, 88, 99, _] => true,
        [198, 18 | 19, ..] => true,
        _ => false,
    };
    !special
        && !address.is_loopback()
        && !address.is_private()
        && !address.is_link_local()
        && !address.is_multicast()
        && !address.is_documentation()
}

/// Of IPv6, what is global unicast (2000::/3) without its special parts (2001::/23, documentation).
fn is_public_v6(address: Ipv6Addr) -> bool {
    match address.segments() {
        [0x2001, 0..=0x1ff, ..] | [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => false,
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_public_addresses_are_reached_unless_an_operator_says_more() {
        let networks = Networks::default();
        for inside in [
            "127.0.0.1",
            "127.64.0.9",
            "0.0.0.0",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "100.127.255.255",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "192.0.2.1",
            "::1",
            "::",
            "fe80::1",
            "fc00::1",
            "fd00:ec2::254",
            "ff02::1",
            "2001:db8::1",
            "2001::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "64:ff9b::a9fe:a9fe",
            "2002:7f00:1::",
            "::127.0.0.1",
        ] {
            assert!(!networks.allows(inside.parse().unwrap()), "{inside}");
        }
        for outside in ["1.1.1.1", "100.128.0.1", "172.32.0.1", "2606:4700::1111", "64:ff9b::101:101"] {
            assert!(networks.allows(outside.parse().unwrap()), "{outside}");
        }
    }

    #[test]
    fn an_operator_names_networks() {
        let networks: Networks = "127.64.0.0/10, 10.0.0.7".parse().unwrap();
        assert!(networks.allows("127.64.3.4".parse().unwrap()));
        assert!(networks.allows("::ffff:10.0.0.7".parse().unwrap()));
        assert!(!networks.allows("127.0.0.1".parse().unwrap()));
        assert!(!networks.allows("1.1.1.1".parse().unwrap()));
        assert!("any".parse::<Networks>().unwrap().allows("127.0.0.1".parse().unwrap()));
        assert!(!"none".parse::<Networks>().unwrap().allows("1.1.1.1".parse().unwrap()));
        assert!("private".parse::<Networks>().is_err());
    }
}
