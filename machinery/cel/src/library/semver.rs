//! Semantic versions: `semver('1.2.3')`.

use super::{opaque::opaque, outcome::failed};
use cel::{
    DeclarationError, Env, ExecutionError, add_member_overload, add_overload,
    common::types::{CelBool, CelInt, CelString},
};
use freehold_machinery::go::quote;
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

/// A version in which a leading `v`, leading zeros and missing numbers are put right.
fn normal(text: &str) -> Result<String, String> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let without_zeros = |part: &str| match part.trim_start_matches('0') {
        _ if part.len() < 2 => part.to_owned(),
        rest if rest.starts_with(|c: char| c.is_ascii_digit()) => rest.to_owned(),
        rest => format!("0{rest}"),
    };
    let mut parts: Vec<String> = text.splitn(3, '.').map(without_zeros).collect();
    if parts.len() < 3 && parts.last().is_some_and(|last| last.contains(['+', '-'])) {
        return Err("short version cannot contain PreRelease/Build meta data".to_owned());
    }
    parts.resize(3, "0".to_owned());
    Ok(parts.join("."))
}

/// Reads a version; errors are those of the library that Kubernetes reads them with.
fn parse(text: &str, lenient: bool) -> Result<Version, String> {
    if lenient {
        return parse(&normal(text)?, false);
    }
    if text.is_empty() {
        return Err("Version string empty".to_owned());
    }
    let parts: Vec<&str> = text.splitn(3, '.').collect();
    let [major, minor, rest] = parts.as_slice() else {
        return Err("No Major.Minor.Patch elements found".to_owned());
    };
    let (major, minor) = (number("major", major)?, number("minor", minor)?);
    let (rest, build) = rest.split_once('+').map_or((*rest, None), |(rest, build)| (rest, Some(build)));
    let (patch, pre) = rest.split_once('-').map_or((rest, None), |(patch, pre)| (patch, Some(pre)));
    let patch = number("patch", patch)?;
    let mut words = Vec::new();
    for word in pre.into_iter().flat_map(|pre| pre.split('.')) {
        words.push(prerelease(word)?);
    }
    for word in build.into_iter().flat_map(|build| build.split('.')) {
        if word.is_empty() {
            return Err("Build meta data is empty".to_owned());
        }
        if !is_word(word) {
            return Err(format!("Invalid character(s) found in build meta data {}", quote(word)));
        }
    }
    Ok(Version { numbers: [major, minor, patch], pre: words })
}

fn is_number(text: &str) -> bool {
    text.bytes().all(|c| c.is_ascii_digit())
}

fn is_word(text: &str) -> bool {
    text.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-')
}

fn has_leading_zero(text: &str) -> bool {
    text.len() > 1 && text.starts_with('0')
}

fn read(text: &str) -> Result<u64, String> {
    let why = if text.is_empty() { "invalid syntax" } else { "value out of range" };
    text.parse().map_err(|_| format!("strconv.ParseUint: parsing {}: {why}", quote(text)))
}

fn number(what: &str, text: &str) -> Result<u64, String> {
    if !is_number(text) {
        return Err(format!("Invalid character(s) found in {what} number {}", quote(text)));
    }
    if has_leading_zero(text) {
        let what = format!("{}{}", what[..1].to_ascii_uppercase(), &what[1..]);
        return Err(format!("{what} number must not contain leading zeroes {}", quote(text)));
    }
    read(text)
}

fn prerelease(word: &str) -> Result<String, String> {
    if word.is_empty() {
        return Err("Prerelease is empty".to_owned());
    }
    if is_number(word) {
        if has_leading_zero(word) {
            let what = "Numeric PreRelease version must not contain leading zeroes";
            return Err(format!("{what} {}", quote(word)));
        }
        read(word)?;
    } else if !is_word(word) {
        return Err(format!("Invalid character(s) found in prerelease {}", quote(word)));
    }
    Ok(word.to_owned())
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
    parse(text.inner(), *lenient.inner()).map(Semver).map_err(|why| failed("semver", why))
}

fn is_semver(text: &CelString<'_>) -> CelBool {
    parse(text.inner(), false).is_ok().into()
}

fn is_semver_normal(text: &CelString<'_>, lenient: &CelBool) -> CelBool {
    parse(text.inner(), *lenient.inner()).is_ok().into()
}

fn number_at(this: &Semver, at: usize) -> CelInt {
    // As in Kubernetes, where it wraps.
    this.0.numbers[at].cast_signed().into()
}

fn major(this: &Semver) -> CelInt {
    number_at(this, 0)
}

fn minor(this: &Semver) -> CelInt {
    number_at(this, 1)
}

fn patch(this: &Semver) -> CelInt {
    number_at(this, 2)
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
