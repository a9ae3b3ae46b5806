//! IP addresses and networks: `ip('::1')`, `cidr('10.0.0.0/8')`.

use super::{opaque::opaque, outcome::failed};
use cel::{
    DeclarationError, Env, ExecutionError, add_member_overload, add_overload,
    common::{
        types::{CelBool, CelInt, CelString},
        value::Val,
    },
};
use freehold_machinery::go::{
    address::{parse_addr, parse_prefix},
    quote,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

opaque!(
    /// An address.
    Ip(IpAddr), IP = "net.IP", copy_ip
);

opaque!(
    /// A network: an address, whose bits after the prefix may be set, and the length of the prefix.
    Cidr((IpAddr, u8)), CIDR = "net.CIDR", copy_cidr
);

pub(super) fn extension(env: &mut Env) -> Result<(), DeclarationError> {
    env.add_type(IP.to_owned())?;
    env.add_type(CIDR.to_owned())?;
    add_overload!(env, fn ip: (CelString<'_>) -> Result<Ip>)?;
    add_overload!(env, fn is_ip: (CelString<'_>) -> CelBool, name = "isIP")?;
    add_overload!(env, fn is_canonical: (CelString<'_>) -> Result<CelBool>, name = "ip.isCanonical")?;
    add_overload!(env, fn ip_text: (Ip) -> CelString<'_>, name = "string")?;
    add_member_overload!(env, fn family: (Ip) -> CelInt)?;
    add_member_overload!(env, fn is_unspecified: (Ip) -> CelBool)?;
    add_member_overload!(env, fn is_loopback: (Ip) -> CelBool)?;
    add_member_overload!(env, fn is_link_local_multicast: (Ip) -> CelBool)?;
    add_member_overload!(env, fn is_link_local_unicast: (Ip) -> CelBool)?;
    add_member_overload!(env, fn is_global_unicast: (Ip) -> CelBool)?;
    add_overload!(env, fn cidr: (CelString<'_>) -> Result<Cidr>)?;
    add_overload!(env, fn is_cidr: (CelString<'_>) -> CelBool, name = "isCIDR")?;
    add_overload!(env, fn cidr_text: (Cidr) -> CelString<'_>, name = "string")?;
    add_member_overload!(env, fn contains_ip: (Cidr, Ip) -> CelBool, name = "containsIP")?;
    add_member_overload!(env, fn contains_ip_text: (Cidr, CelString<'_>) -> Result<CelBool>, name = "containsIP")?;
    add_member_overload!(env, fn contains_cidr: (Cidr, Cidr) -> CelBool, name = "containsCIDR")?;
    add_member_overload!(env, fn contains_cidr_text: (Cidr, CelString<'_>) -> Result<CelBool>, name = "containsCIDR")?;
    add_member_overload!(env, fn cidr_ip: (Cidr) -> Ip, name = "ip")?;
    add_member_overload!(env, fn masked: (Cidr) -> Cidr)?;
    add_member_overload!(env, fn prefix_length: (Cidr) -> CelInt)
}

/// The bytes of an address, or of a network's prefix; `None` for other values.
pub(super) fn bytes(value: &dyn Val) -> Option<u64> {
    let address = value.downcast_ref::<Ip>().map(|ip| u64::from(bits(ip.0) / 8));
    address.or_else(|| Some(u64::from(value.downcast_ref::<Cidr>()?.0.1.div_ceil(8))))
}

fn parse_ip(text: &str) -> Result<IpAddr, String> {
    let (address, zone) = parse_addr(text).map_err(|why| {
        format!("IP Address {} parse error during conversion from string: {why}", quote(text))
    })?;
    if zone.is_some() {
        return Err(format!("IP address {text:?} with zone value is not allowed"));
    }
    if is_mapped(address) {
        return Err(format!("IPv4-mapped IPv6 address {text:?} is not allowed"));
    }
    Ok(address)
}

fn is_mapped(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some())
}

fn parse_cidr(text: &str) -> Result<(IpAddr, u8), String> {
    const WHAT: &str = "network address parse error during conversion from string";
    let (address, length) = parse_prefix(text).map_err(|why| format!("{WHAT}: {WHAT}: {why}"))?;
    if is_mapped(address) {
        return Err(format!("{WHAT}: IPv4-mapped IPv6 address {text:?} is not allowed"));
    }
    Ok((address, length))
}

fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// The address with its bits after the prefix cleared.
fn mask(address: IpAddr, length: u8) -> IpAddr {
    let host = u32::from(bits(address) - length);
    match address {
        IpAddr::V4(v4) => Ipv4Addr::from_bits(v4.to_bits() & u32::MAX.checked_shl(host).unwrap_or(0)).into(),
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & u128::MAX.checked_shl(host).unwrap_or(0)).into(),
    }
}

fn ip(text: &CelString<'_>) -> Result<Ip, ExecutionError> {
    parse_ip(text.inner()).map(Ip).map_err(|e| failed("ip", e))
}

fn is_ip(text: &CelString<'_>) -> CelBool {
    parse_ip(text.inner()).is_ok().into()
}

fn is_canonical(text: &CelString<'_>) -> Result<CelBool, ExecutionError> {
    let address = parse_ip(text.inner()).map_err(|e| failed("ip.isCanonical", e))?;
    Ok((address.to_string() == text.inner()).into())
}

fn ip_text(this: &Ip) -> CelString<'static> {
    CelString::from(this.0.to_string())
}

fn family(this: &Ip) -> CelInt {
    CelInt::from(if this.0.is_ipv4() { 4 } else { 6 })
}

fn is_unspecified(this: &Ip) -> CelBool {
    this.0.is_unspecified().into()
}

fn is_loopback(this: &Ip) -> CelBool {
    this.0.is_loopback().into()
}

fn is_link_local_multicast(this: &Ip) -> CelBool {
    match this.0 {
        IpAddr::V4(v4) => v4.octets().starts_with(&[224, 0, 0]).into(),
        IpAddr::V6(v6) => (v6.segments()[0] & 0xff0f == 0xff02).into(),
    }
}

fn link_local_unicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

fn is_link_local_unicast(this: &Ip) -> CelBool {
    link_local_unicast(this.0).into()
}

fn is_global_unicast(this: &Ip) -> CelBool {
    let address = this.0;
    let broadcast = address == IpAddr::V4(Ipv4Addr::BROADCAST);
    let local = address.is_unspecified() || address.is_loopback() || link_local_unicast(address);
    (!broadcast && !local && !address.is_multicast()).into()
}

fn cidr(text: &CelString<'_>) -> Result<Cidr, ExecutionError> {
    parse_cidr(text.inner()).map(Cidr).map_err(|e| failed("cidr", e))
}

fn is_cidr(text: &CelString<'_>) -> CelBool {
    parse_cidr(text.inner()).is_ok().into()
}

fn cidr_text(this: &Cidr) -> CelString<'static> {
    CelString::from(format!("{}/{}", this.0.0, this.0.1))
}

fn contains(network: (IpAddr, u8), address: IpAddr) -> bool {
    network.0.is_ipv4() == address.is_ipv4() && mask(network.0, network.1) == mask(address, network.1)
}

fn contains_ip(this: &Cidr, other: &Ip) -> CelBool {
    contains(this.0, other.0).into()
}

fn contains_ip_text(this: &Cidr, other: &CelString<'_>) -> Result<CelBool, ExecutionError> {
    // What is no address has no overload, as in Kubernetes.
    let other = ip(other).map_err(|_| ExecutionError::no_such_overload("containsIP", Vec::new()))?;
    Ok(contains_ip(this, &other))
}

fn contains_cidr(this: &Cidr, other: &Cidr) -> CelBool {
    (this.0.1 <= other.0.1 && contains(this.0, other.0.0)).into()
}

fn contains_cidr_text(this: &Cidr, other: &CelString<'_>) -> Result<CelBool, ExecutionError> {
    cidr(other).map(|other| contains_cidr(this, &other))
}

fn cidr_ip(this: &Cidr) -> Ip {
    Ip(this.0.0)
}

fn masked(this: &Cidr) -> Cidr {
    Cidr((mask(this.0.0, this.0.1), this.0.1))
}

fn prefix_length(this: &Cidr) -> CelInt {
    i64::from(this.0.1).into()
}
