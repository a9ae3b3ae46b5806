//! Addresses of services: those that are taken, and the ranges that they are taken from.

use super::{
    field::{Errors, Field, same},
    rows::{Row, Rule, check},
    rules,
};
use freehold_machinery::{Value, names};
use std::net::IpAddr;

const IMMUTABLE: &str = "field is immutable";
const MOST_RANGES: usize = 2;

const PARENT: &[Row] = &[
    ("group", Rule::Also(|group, errors| rules::optional_name(group, names::dns1123_subdomain, errors))),
    ("resource", Rule::RequiredName(names::path_segment_name)),
    ("name", Rule::RequiredName(names::path_segment_name)),
    ("namespace", Rule::Also(|space, errors| rules::optional_name(space, names::path_segment_name, errors))),
];

/// An IPAddress: its name is the address.
pub(super) fn address(object: &Field<'_>, old: Option<&Value>, errors: &mut Errors) {
    let parent = object.get("spec.parentRef");
    if old.is_none() {
        canonical_address(&object.get("metadata.name"), errors);
    }
    check(&parent, &[("", Rule::There("")), ("", Rule::Fields(PARENT))], errors);
    if old.is_some_and(|old| !same(parent.value, &old["spec"]["parentRef"])) {
        errors.push(parent.invalid(IMMUTABLE));
    }
}

/// An address in the one form in which it is written.
fn canonical_address(name: &Field<'_>, errors: &mut Errors) {
    let before = errors.len();
    let Some(address) = rules::address(name, errors) else { return };
    if matches!(address, IpAddr::V6(six) if six.to_ipv4_mapped().is_some()) {
        errors.push(name.invalid("must not be an IPv4-mapped IPv6 address"));
    }
    if errors.len() == before && name.text() != address.to_string() {
        errors.push(name.invalid(format!("must be in canonical form (\"{address}\")")));
    }
}

/// A ServiceCIDR: one range, or one of each family. A second may come later.
pub(super) fn service_range(object: &Field<'_>, old: Option<&Value>, errors: &mut Errors) {
    let ranges = object.get("spec.cidrs");
    let Some(old) = old else { return ranges_of_families(object, &ranges, errors) };
    let before = old["spec"]["cidrs"].as_array().map(Vec::as_slice).unwrap_or_default();
    match (before.len(), ranges.len()) {
        (a, b) if a == b || (a, b) == (1, 2) => {
            for (range, _) in ranges.items().zip(before).filter(|(range, old)| range.value != *old) {
                errors.push(range.invalid(IMMUTABLE));
            }
            if a != b {
                ranges_of_families(object, &ranges, errors);
            }
        }
        _ => errors.push(ranges.invalid(IMMUTABLE)),
    }
}

fn ranges_of_families(object: &Field<'_>, ranges: &Field<'_>, errors: &mut Errors) {
    if ranges.is_empty() {
        return errors.push(ranges.required("at least one CIDR required"));
    }
    if ranges.len() > MOST_RANGES {
        let spec = object.get("spec").named(ranges.path());
        return errors.push(spec.invalid(format!("may only hold up to {MOST_RANGES} values")));
    }
    let networks: Vec<_> = ranges.items().map(|range| rules::canonical_network(&range, errors)).collect();
    if let [Some(a), Some(b)] = networks.as_slice()
        && a == b
    {
        let detail =
            "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
        errors.push(ranges.invalid(detail));
    }
}
