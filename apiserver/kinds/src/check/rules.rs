//! Rules that many kinds share, in Kubernetes' words.

use super::field::{Errors, Field, same};
use freehold_machinery::{Value, names, quantity::Quantity, selector::Labels};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What a rule finds wrong with a string.
pub(super) type NameCheck = fn(&str) -> Vec<String>;

pub(super) const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];

/// Each message that `check` has for the string becomes an error.
pub(super) fn name(field: &Field<'_>, check: NameCheck, errors: &mut Errors) {
    errors.extend(check(field.text()).into_iter().map(|why| field.invalid_as(field.text(), why)));
}

/// Each message that `check` has for a string that may be left out becomes an error.
pub(super) fn optional_name(field: &Field<'_>, check: NameCheck, errors: &mut Errors) {
    if !field.text().is_empty() {
        name(field, check, errors);
    }
}

/// Each message that `check` has for a string that must be there becomes an error.
pub(super) fn required_name(field: &Field<'_>, check: NameCheck, errors: &mut Errors) {
    if field.text().is_empty() {
        errors.push(field.required(""));
    } else {
        name(field, check, errors);
    }
}

/// A string that must be there.
pub(super) fn required(field: &Field<'_>, errors: &mut Errors) {
    if field.is_empty() {
        errors.push(field.required(""));
    }
}

/// A string that must be there and be one of `supported`.
pub(super) fn one_of(field: &Field<'_>, supported: &[&str], errors: &mut Errors) {
    if field.text().is_empty() {
        errors.push(field.required(""));
    } else {
        optional_one_of(field, supported, errors);
    }
}

/// A string that is one of `supported` where it is there.
pub(super) fn optional_one_of(field: &Field<'_>, supported: &[&str], errors: &mut Errors) {
    if field.is_set() && !supported.contains(&field.text()) {
        errors.push(field.not_supported(supported));
    }
}

/// A number that is not negative where it is there.
pub(super) fn nonnegative(field: &Field<'_>, errors: &mut Errors) {
    if field.int().is_some_and(|n| n < 0) {
        errors.push(field.invalid("must be greater than or equal to 0"));
    }
}

/// A number within bounds where it is there.
pub(super) fn within(field: &Field<'_>, low: i64, high: i64, errors: &mut Errors) {
    if field.int().is_some_and(|n| !(low..=high).contains(&n)) {
        errors.push(field.invalid(format!("must be between {low} and {high}, inclusive")));
    }
}

/// The number of a port; zero where it is absent.
pub(super) fn port_number(field: &Field<'_>, errors: &mut Errors) {
    let port = field.int().unwrap_or(0);
    if !(1..=65_535).contains(&port) {
        errors.push(field.invalid_as(port, "must be between 1 and 65535, inclusive"));
    }
}

/// What is wrong with the name of a port (RFC 6335).
pub(super) fn port_name(port: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if port.len() > 15 {
        errors.push("must be no more than 15 characters".to_owned());
    }
    let lower = |c: char| c.is_ascii_lowercase();
    if port.is_empty() || !port.chars().all(|c| lower(c) || c.is_ascii_digit() || c == '-') {
        errors.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !port.contains(lower) {
        errors.push("must contain at least one letter (a-z)".to_owned());
    }
    if port.contains("--") {
        errors.push("must not contain consecutive hyphens".to_owned());
    }
    if port.starts_with('-') || port.ends_with('-') {
        errors.push("must not begin or end with a hyphen".to_owned());
    }
    errors
}

/// A port by number or name.
pub(super) fn port(field: &Field<'_>, errors: &mut Errors) {
    if field.value.is_string() { name(field, port_name, errors) } else { port_number(field, errors) }
}

/// A count that is not negative, or a percentage.
pub(super) fn count_or_percent(field: &Field<'_>, errors: &mut Errors) {
    let Some(text) = field.value.as_str() else { return nonnegative(field, errors) };
    let digits = text.strip_suffix('%');
    if digits.is_none_or(|d| d.is_empty() || !d.bytes().all(|c| c.is_ascii_digit())) {
        errors.push(field.invalid(
            "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', \
             regex used for validation is '[0-9]+%')",
        ));
    }
}

/// The number in a percentage.
fn percent(value: &Value) -> Option<u64> {
    value.as_str()?.strip_suffix('%')?.parse().ok()
}

/// A percentage of at most all.
pub(super) fn at_most_all(field: &Field<'_>, errors: &mut Errors) {
    if percent(field.value).is_some_and(|n| n > 100) {
        errors.push(field.invalid("must not be greater than 100%"));
    }
}

/// Whether a count or percentage is nothing.
pub(super) fn is_none_of_all(value: &Value) -> bool {
    value.is_null() || value == 0 || percent(value) == Some(0)
}

/// A field that stays as it was.
pub(super) fn immutable(field: &Field<'_>, old: &Value, errors: &mut Errors) {
    if !same(field.value, old) {
        errors.push(field.invalid("field is immutable"));
    }
}

/// Keys and values of labels.
pub(super) fn labels(map: &Field<'_>, errors: &mut Errors) {
    for (key, value) in map.entries() {
        errors.extend(names::qualified_name(key).into_iter().map(|why| map.invalid_as(key, why)));
        let text = value.text();
        errors.extend(names::label_value(text).into_iter().map(|why| map.invalid_as(text, why)));
    }
}

/// Keys of annotations, and their size.
pub(super) fn annotations(map: &Field<'_>, errors: &mut Errors) {
    const MOST: usize = 256 << 10;
    let mut size = 0;
    for (key, value) in map.entries() {
        size += key.len() + value.text().len();
        let wrong = names::qualified_name(&key.to_lowercase()).into_iter();
        errors.extend(wrong.map(|why| map.invalid_as(key, why)));
    }
    if size > MOST {
        errors.push(map.too_long(MOST));
    }
}

/// What is wrong with a domain in which labels may begin with underscores.
pub(super) fn underscored_subdomain(name: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if name.len() > 253 {
        errors.push("must be no more than 253 characters".to_owned());
    }
    let label = |label: &str| {
        let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
        let rest = label.strip_prefix('_').unwrap_or(label);
        !rest.is_empty()
            && rest.chars().all(inner)
            && !rest.starts_with(['-', '_'])
            && !rest.ends_with(['-', '_'])
    };
    if !name.split('.').all(label) {
        errors.push(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must \
             start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
             '_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*')"
                .to_owned(),
        );
    }
    errors
}

/// What is wrong with the name of a variable of the environment.
pub(super) fn variable(name: &str) -> Vec<String> {
    if !name.is_empty() && name.bytes().all(|c| (b' '..=b'~').contains(&c) && c != b'=') {
        return Vec::new();
    }
    let why =
        "a valid environment variable name must consist only of printable ASCII characters other than '='";
    vec![why.to_owned()]
}

/// A label selector; an absent one is good.
pub(super) fn label_selector(selector: &Field<'_>, errors: &mut Errors) {
    labels(&selector.get("matchLabels"), errors);
    for expression in selector.get("matchExpressions").items() {
        let values = expression.get("values");
        operator(&expression.get("operator"), &values, errors);
        name(&expression.get("key"), names::qualified_name, errors);
        values.items().for_each(|value| name(&value, names::label_value, errors));
    }
}

fn operator(operator: &Field<'_>, values: &Field<'_>, errors: &mut Errors) {
    match operator.text() {
        "In" | "NotIn" if values.is_empty() => {
            errors.push(values.required("must be specified when `operator` is 'In' or 'NotIn'"));
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            errors
                .push(values.forbidden("may not be specified when `operator` is 'Exists' or 'DoesNotExist'"));
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        other => errors.push(operator.invalid_as(other, "not a valid selector operator")),
    }
}

/// A selector of a node: the operators of labels, and comparisons of numbers.
pub(super) fn node_requirement(expression: &Field<'_>, errors: &mut Errors) {
    let (kind, values) = (expression.get("operator"), expression.get("values"));
    match kind.text() {
        "Gt" | "Lt" => {
            if values.len() != 1 {
                let detail = "must be specified single value when `operator` is 'Lt' or 'Gt'";
                errors.push(values.required(detail));
            }
        }
        _ => operator(&kind, &values, errors),
    }
    name(&expression.get("key"), names::qualified_name, errors);
}

/// Whether a selector that is valid chooses these labels; `None` for one that is not.
pub(super) fn chooses(selector: &Value, labels: &Value) -> Option<bool> {
    let selector = Labels::from_value(selector).ok()?;
    Some(selector.matches(|key| labels.get(key).and_then(Value::as_str)))
}

/// Whether a selector has no requirements.
pub(super) fn is_everything(selector: &Field<'_>) -> bool {
    selector.get("matchLabels").is_empty() && selector.get("matchExpressions").is_empty()
}

/// The amount that stands there.
pub(super) fn amount(field: &Field<'_>) -> Option<Quantity> {
    let text = field.value.as_str().map(str::to_owned);
    text.or_else(|| field.value.is_number().then(|| field.value.to_string()))?.parse().ok()
}

/// An amount that is not negative, and a whole number where `whole`.
pub(super) fn resource_amount(field: &Field<'_>, whole: bool, errors: &mut Errors) {
    let Some(amount) = amount(field) else { return };
    if amount.sign() < 0 {
        errors.push(field.invalid("must be greater than or equal to 0"));
    }
    if whole && amount.milli() % 1000 != 0 {
        errors.push(field.invalid("must be an integer"));
    }
}

/// An amount of what there is: not negative.
pub(super) fn basic_amount(field: &Field<'_>, errors: &mut Errors) {
    if let Some(amount) = amount(field).filter(|amount| amount.milli() <= -1000) {
        errors.push(field.invalid_as(amount.milli() / 1000, "must be a valid resource quantity"));
    }
}

/// An amount that is more than nothing.
pub(super) fn positive_amount(field: &Field<'_>, errors: &mut Errors) {
    if amount(field).is_some_and(|amount| amount.sign() <= 0) {
        errors.push(field.invalid("must be greater than zero"));
    }
}

/// An address as the old fields take it: leading zeros in IPv4 are let through.
fn sloppy_address(text: &str) -> Option<IpAddr> {
    if text.contains(':') {
        return text.parse::<Ipv6Addr>().ok().map(IpAddr::V6);
    }
    let parts: Vec<u8> = text
        .split('.')
        .map(|part| part.bytes().all(|c| c.is_ascii_digit()).then(|| part.parse().ok()).flatten())
        .collect::<Option<_>>()?;
    let four: [u8; 4] = parts.try_into().ok()?;
    Some(Ipv4Addr::from(four).into())
}

/// Whether a string is an address.
pub(super) fn is_address(text: &str) -> bool {
    sloppy_address(text).is_some()
}

/// An address.
pub(super) fn address(field: &Field<'_>, errors: &mut Errors) -> Option<IpAddr> {
    let found = sloppy_address(field.text());
    let zero = |part: &str| part.len() > 1 && part.starts_with('0');
    if found.is_some_and(|ip| ip.is_ipv4()) && field.text().split('.').any(zero) {
        errors.push(field.invalid("must not have leading 0s"));
        return None;
    }
    if found.is_none() {
        let detail = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
        errors.push(field.invalid_as(field.text(), detail));
    }
    found
}

/// An address, as a rule.
pub(super) fn legacy_address(field: &Field<'_>, errors: &mut Errors) {
    address(field, errors);
}

/// An address that is reachable from elsewhere.
pub(super) fn endpoint_address(field: &Field<'_>, address: IpAddr, errors: &mut Errors) {
    let (link_local, link_multicast) = match address {
        IpAddr::V4(ip) => (ip.is_link_local(), ip.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(ip) => (ip.segments()[0] & 0xffc0 == 0xfe80, ip.segments()[0] & 0xff0f == 0xff02),
    };
    let unspecified = format!("may not be unspecified ({})", field.text());
    for (bad, detail) in [
        (address.is_unspecified(), unspecified.as_str()),
        (
            address.is_loopback() && !is_of_pods(address),
            "may not be in the loopback range (127.0.0.0/8, ::1/128)",
        ),
        (link_local, "may not be in the link-local range (169.254.0.0/16, fe80::/10)"),
        (link_multicast, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"),
    ] {
        if bad {
            errors.push(field.invalid(detail));
        }
    }
}

/// A network: its bits, their number, and how many of them are fixed.
#[derive(Clone, Copy)]
pub(super) struct Network {
    bits: u128,
    width: u32,
    /// Length of the prefix.
    pub(super) length: u32,
}

impl Network {
    /// Whether it is of IPv6.
    pub(super) fn is_six(&self) -> bool {
        self.width == 128
    }

    /// Whether bits are set behind the prefix.
    pub(super) fn has_host_bits(&self) -> bool {
        let host = u128::MAX.checked_shr(128 - self.width + self.length).unwrap_or(0);
        self.bits & host != 0
    }

    fn parse(text: &str) -> Option<Self> {
        let (address, length) = text.split_once('/')?;
        let (bits, width) = match sloppy_address(address)? {
            IpAddr::V4(ip) => (u128::from(u32::from(ip)), 32),
            IpAddr::V6(ip) => (u128::from(ip), 128),
        };
        let length: u32 = length.parse().ok().filter(|length| *length <= width)?;
        Some(Self { bits, width, length })
    }

    /// Whether all of `other` is in it.
    pub(super) fn contains(&self, other: &Self) -> bool {
        let shift = self.width - self.length;
        let prefix = |bits: u128| bits.checked_shr(shift).unwrap_or(0);
        self.width == other.width && prefix(self.bits) == prefix(other.bits)
    }
}

/// A network in CIDR notation.
pub(super) fn network(field: &Field<'_>, errors: &mut Errors) -> Option<Network> {
    let found = Network::parse(field.text().trim());
    if found.is_none() {
        let detail = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
        errors.push(field.invalid_as(field.text(), detail));
    }
    found
}

/// A network in the one form in which it is written; whether it is of IPv6, where it is a network at all.
pub(super) fn canonical_network(field: &Field<'_>, errors: &mut Errors) -> Option<bool> {
    let before = errors.len();
    let found = network(field, errors)?;
    if found.has_host_bits() {
        errors.push(field.invalid("must not have bits set beyond the prefix length"));
    }
    let six = found.width == 128;
    let address = match u32::try_from(found.bits) {
        Ok(four) if !six => IpAddr::V4(four.into()),
        _ => IpAddr::V6(found.bits.into()),
    };
    let written = format!("{address}/{}", found.length);
    if errors.len() == before && field.text() != written {
        errors.push(field.invalid(format!("must be in canonical form ({written:?})")));
    }
    Some(six)
}

/// A path below another, without `..`.
pub(super) fn no_backsteps(path: &Field<'_>, errors: &mut Errors) {
    if path.text().split('/').any(|part| part == "..") {
        errors.push(path.invalid("must not contain '..'"));
    }
}

/// A relative path without `..`.
pub(super) fn relative_path(path: &Field<'_>, errors: &mut Errors) {
    if path.text().starts_with('/') {
        errors.push(path.invalid("must be a relative path"));
    }
    no_backsteps(path, errors);
}

/// What is wrong with a host of which the first label is `*`.
pub(super) fn wildcard_host(host: &str) -> Vec<String> {
    let rest = host.strip_prefix("*.");
    if rest.is_some_and(|rest| names::dns1123_subdomain(rest).is_empty()) {
        return Vec::new();
    }
    vec![
        "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of \
         lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', \
         regex used for validation is '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
            .to_owned(),
    ]
}

/// What is wrong with a key of a ConfigMap or Secret.
pub(super) fn data_key(key: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if key.len() > 253 {
        errors.push("must be no more than 253 characters".to_owned());
    }
    if key.is_empty() || !key.bytes().all(|c| c.is_ascii_alphanumeric() || b"-._".contains(&c)) {
        errors.push(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  \
             or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
                .to_owned(),
        );
    }
    match key {
        "." => errors.push("must not be '.'".to_owned()),
        ".." => errors.push("must not be '..'".to_owned()),
        _ if key.starts_with("..") => errors.push("must not start with '..'".to_owned()),
        _ => {}
    }
    errors
}

/// Whether Freehold's nodes give such addresses to Pods (127.64.0.0/10), though they are of the loopback. What of them may
/// be reached is another question, which an operator answers.
fn is_of_pods(address: IpAddr) -> bool {
    matches!(address, IpAddr::V4(four) if four.octets()[0] == 127 && four.octets()[1] & 0xc0 == 64)
}
