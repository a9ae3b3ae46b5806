//! Semantic versions: `semver('1.2.3')`.

use super::{failed, opaque};
use cel::{
    DeclarationError, Env, ExecutionError, add_member_overload, add_overload,
    common::types::{CelBool, CelInt, CelString},
};
use std::cmp::Ordering;

/// A version; what stands after `+` does not count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Version {
    numbers: [u64; 3],
    pre: Vec<String>,
}

opaque!(
    /// A semantic version.
    Semver(Version), SEMVER = "kubernetes.Semver", copy
);

pub(super) fn extension(env: &mut Env) -> Result<(), DeclarationError> {
    env.add_type(SEMVER.to_owned())?;
    add_overload!(env, fn semver: (CelString<'_>) -> Result<Semver>)?;
    add_overload!(env, fn semver_normal: (CelString<'_>, CelBool) -> Result<Semver>, name = "semver")?;
    add_overload!(env, fn is_semver: (CelString<'_>) -> CelBool)?;
    add_overload!(env, fn is_semver_normal: (CelString<'_>, CelBool) -> CelBool, name = "isSemver")?;
    add_member_overload!(env, fn major: (Semver) -> CelInt)?;
    add_member_overload!(env, fn minor: (Semver) -> CelInt)?;
    add_member_overload!(env, fn patch: (Semver) -> CelInt)?;
    add_member_overload!(env, fn is_greater_than: (Semver, Semver) -> CelBool)?;
    add_member_overload!(env, fn is_less_than: (Semver, Semver) -> CelBool)?;
    add_member_overload!(env, fn compare_to: (Semver, Semver) -> CelInt)
}

/// Reads a version. `lenient`: with a leading `v`, leading zeros and missing numbers.
fn parse(text: &str, lenient: bool) -> Option<Version> {
    let text = if lenient { text.strip_prefix(['v', 'V']).unwrap_or(text) } else { text };
    let (text, build) = text.split_once('+').map_or((text, None), |(t, b)| (t, Some(b)));
    let (core, pre) = text.split_once('-').map_or((text, None), |(c, p)| (c, Some(p)));
    let mut parts: Vec<&str> = core.split('.').collect();
    if lenient {
        parts.resize(parts.len().max(3), "0");
    }
    let [major, minor, patch] = parts.as_slice() else { return None };
    let number = |s: &str| {
        let plain = !s.is_empty()
            && s.bytes().all(|c| c.is_ascii_digit())
            && (lenient || s == "0" || !s.starts_with('0'));
        plain.then(|| s.parse::<u64>().ok()).flatten()
    };
    let words = |s: Option<&str>| -> Option<Vec<String>> {
        let Some(s) = s else { return Some(Vec::new()) };
        let good = |p: &str| !p.is_empty() && p.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-');
        s.split('.').map(|p| good(p).then(|| p.to_owned())).collect()
    };
    words(build)?;
    Some(Version { numbers: [number(major)?, number(minor)?, number(patch)?], pre: words(pre)? })
}

fn compare(a: &Version, b: &Version) -> Ordering {
    let pre = || match (a.pre.is_empty(), b.pre.is_empty()) {
        (true, true) => Ordering::Equal,
        (true, false) => Ordering::Greater,
        (false, true) => Ordering::Less,
        (false, false) => {
            let words = a.pre.iter().zip(&b.pre).map(|(x, y)| compare_word(x, y));
            words.fold(Ordering::Equal, Ordering::then).then(a.pre.len().cmp(&b.pre.len()))
        }
    };
    a.numbers.cmp(&b.numbers).then_with(pre)
}

fn compare_word(a: &str, b: &str) -> Ordering {
    match (a.parse::<u64>(), b.parse::<u64>()) {
        (Ok(a), Ok(b)) => a.cmp(&b),
        (Ok(_), Err(_)) => Ordering::Less,
        (Err(_), Ok(_)) => Ordering::Greater,
        (Err(_), Err(_)) => a.cmp(b),
    }
}

fn semver(text: &CelString<'_>) -> Result<Semver, ExecutionError> {
    semver_normal(text, &CelBool::from(false))
}

fn semver_normal(text: &CelString<'_>, lenient: &CelBool) -> Result<Semver, ExecutionError> {
    let version = parse(text.inner(), *lenient.inner());
    version
        .map(Semver)
        .ok_or_else(|| failed("semver", format!("{:?} is not a semantic version", text.inner())))
}

fn is_semver(text: &CelString<'_>) -> CelBool {
    parse(text.inner(), false).is_some().into()
}

fn is_semver_normal(text: &CelString<'_>, lenient: &CelBool) -> CelBool {
    parse(text.inner(), *lenient.inner()).is_some().into()
}

fn number(this: &Semver, at: usize) -> CelInt {
    i64::try_from(this.0.numbers[at]).unwrap_or(i64::MAX).into()
}

fn major(this: &Semver) -> CelInt {
    number(this, 0)
}

fn minor(this: &Semver) -> CelInt {
    number(this, 1)
}

fn patch(this: &Semver) -> CelInt {
    number(this, 2)
}

fn is_greater_than(this: &Semver, other: &Semver) -> CelBool {
    compare(&this.0, &other.0).is_gt().into()
}

fn is_less_than(this: &Semver, other: &Semver) -> CelBool {
    compare(&this.0, &other.0).is_lt().into()
}

fn compare_to(this: &Semver, other: &Semver) -> CelInt {
    (compare(&this.0, &other.0) as i64).into()
}
