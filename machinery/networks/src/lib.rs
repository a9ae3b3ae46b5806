//! Which addresses may be reached on behalf of a plane's users: by webhooks, aggregated servers, notifications.
//!
//! Pure: names are resolved elsewhere, and the very address that is connected to is asked about.

use ipnet::IpNet;
use std::{
    fmt,
    net::{IpAddr, Ipv4Addr},
    str::FromStr,
    sync::LazyLock,
};

/// The networks in which servers that a plane's users name may be: a list of CIDRs and the words `public` (addresses that
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
    /// No network at all.
    pub fn none() -> Self {
        Self { public: false, listed: Vec::new() }
    }

    /// The addresses at which a machine reaches itself.
    pub fn loopback() -> Self {
        let v4 = ipnet::Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8);
        let v6 = ipnet::Ipv6Net::new_assert(std::net::Ipv6Addr::LOCALHOST, 128);
        Self { public: false, listed: vec![v4.into(), v6.into()] }
    }

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

/// What is not public: IANA's special-purpose registries (RFC 6890 and its updates, read in 2026), multicast, and addresses
/// that look public and are a cloud's own, which answers its machines alone.
///
/// <https://www.iana.org/assignments/iana-ipv4-special-registry>, <https://www.iana.org/assignments/iana-ipv6-special-registry>
const SPECIAL: &[&str] = &[
    "0.0.0.0/8",
    "10.0.0.0/8",
    // Shared addresses, with the metadata service of Alibaba Cloud (100.100.100.200).
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    // With the metadata service of Oracle's classic cloud (192.0.0.192).
    "192.0.0.0/24",
    "192.0.2.0/24",
    // AS112 and AMT: answered by whoever is nearest.
    "192.31.196.0/24",
    "192.52.193.0/24",
    "192.88.99.0/24",
    "192.168.0.0/16",
    "192.175.48.0/24",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "224.0.0.0/4",
    "240.0.0.0/4",
    // Azure's agent and DNS for the machines in it.
    "168.63.129.16/32",
    // Teredo, with an IPv4 address and port in it, is among these, as are benchmarking, ORCHID and drones.
    "2001::/23",
    "2001:db8::/32",
    "2620:4f:8000::/48",
    "3fff::/20",
];

/// IPv6 that is given out to be reached from everywhere; unique local addresses, link-local ones and the rest are not in it.
const GLOBAL: &str = "2000::/3";

fn is_public(address: IpAddr) -> bool {
    static NETWORKS: LazyLock<(Vec<IpNet>, Option<IpNet>)> =
        LazyLock::new(|| (SPECIAL.iter().filter_map(|net| net.parse().ok()).collect(), GLOBAL.parse().ok()));
    let (special, global) = &*NETWORKS;
    let is_given_out = address.is_ipv4() || global.is_some_and(|global| global.contains(&address));
    is_given_out && !special.iter().any(|net| net.contains(&address))
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
            // Clouds' own.
            "168.63.129.16",
            "::ffff:168.63.129.16",
            "64:ff9b::a83f:8110",
            "100.100.100.200",
            "192.0.0.192",
            "fd20:ce::254",
            // The rest of the registries: each block's first and last address.
            "0.255.255.255",
            "192.0.0.8",
            "192.0.0.255",
            "192.31.196.1",
            "192.52.193.1",
            "192.88.99.255",
            "192.175.48.255",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.255",
            "239.255.255.255",
            "240.0.0.1",
            "64:ff9b:1::1",
            "100::1",
            "100:0:0:1::1",
            "2001:1::1",
            "2001:2::1",
            "2001:1ff:ffff::1",
            "2002:a00:1::1",
            "2620:4f:8000::1",
            "3fff:fff::1",
            "5f00::1",
            "fec0::1",
            "4000::1",
        ] {
            assert!(!networks.allows(inside.parse().unwrap()), "{inside}");
        }
        for outside in [
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.1",
            "100.63.255.255",
            "100.128.0.1",
            "168.63.129.15",
            "168.63.129.17",
            "172.32.0.1",
            "198.20.0.1",
            "223.255.255.255",
            "2001:200::1",
            "2606:4700::1111",
            "3fff:1000::1",
            "64:ff9b::101:101",
            "2002:101:101::1",
        ] {
            assert!(networks.allows(outside.parse().unwrap()), "{outside}");
        }
    }

    #[test]
    fn each_special_network_is_one() {
        assert!(SPECIAL.iter().chain([&GLOBAL]).all(|net| net.parse::<IpNet>().is_ok()));
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
