//! Where two answers differ.

use crate::Answer;
use anyhow::{Context, Result};
use regex::Regex;
use serde::Deserialize;
use serde_json::{Value, json};
use std::{collections::BTreeSet, fmt};

/// One place in which an answer is not what kube-apiserver gave.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// `scenario/request`.
    pub request: String,
    /// JSON pointer into the answer: `/status`, `/headers/...`, `/body/...`.
    pub at: String,
    /// What kube-apiserver gave; `None` for nothing.
    pub theirs: Option<Value>,
    /// What came here.
    pub ours: Option<Value>,
}

impl Difference {
    /// Where it is, as [`open`] lists it.
    pub fn place(&self) -> String {
        format!("{} {}", self.request, self.at)
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show =
            |value: &Option<Value>| value.as_ref().map_or_else(|| "nothing".to_owned(), Value::to_string);
        let (theirs, ours) = (show(&self.theirs), show(&self.ours));
        write!(f, "{} {}\n  kube-apiserver: {theirs}\n  here:           {ours}", self.request, self.at)
    }
}

/// A difference that is meant.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Meant {
    /// `scenario/request`, as a regular expression, or `*` for all.
    pub request: String,
    /// A regular expression for its place, from its beginning.
    pub at: String,
    /// Why.
    pub reason: String,
}

/// Reads `differences.yaml`: the differences that are meant, with their reasons.
///
/// # Errors
/// A file that cannot be read or parsed.
pub fn meant() -> Result<Vec<Meant>> {
    let text = std::fs::read_to_string(crate::path("differences.yaml"))?;
    serde_saphyr::from_str(&text).context("differences.yaml")
}

/// Reads `open.txt`: the differences that are still to be closed, `scenario/request place` a line.
///
/// # Errors
/// A file that cannot be read.
pub fn open() -> Result<BTreeSet<String>> {
    let text = std::fs::read_to_string(crate::path(OPEN)).context(OPEN)?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// Writes `open.txt`, which [`open`] reads.
///
/// # Errors
/// A file that cannot be written.
pub fn write_open(places: &BTreeSet<String>) -> Result<()> {
    let lines: String = places.iter().map(|place| format!("{place}\n")).collect();
    std::fs::write(crate::path(OPEN), lines).context(OPEN)
}

const OPEN: &str = "open.txt";

/// Returns differences without a reason, and reasons without a difference.
///
/// # Errors
/// A pattern in `differences.yaml` that cannot be compiled.
pub fn unexplained<'a>(
    found: &'a [Difference],
    meant: &'a [Meant],
) -> Result<(Vec<&'a Difference>, Vec<&'a Meant>)> {
    let rule = |meant: &Meant| -> Result<[Regex; 2], regex::Error> {
        let request = if meant.request == "*" { ".*" } else { &meant.request };
        Ok([Regex::new(&format!("^(?:{request})$"))?, Regex::new(&format!("^{}", meant.at))?])
    };
    let rules: Vec<(&Meant, [Regex; 2])> =
        meant.iter().map(|m| Ok((m, rule(m)?))).collect::<Result<_, regex::Error>>()?;
    let covers = |(_, [request, at]): &(&Meant, [Regex; 2]), difference: &Difference| {
        request.is_match(&difference.request) && at.is_match(&difference.at)
    };
    let unmeant = found.iter().filter(|difference| !rules.iter().any(|rule| covers(rule, difference)));
    let idle = rules.iter().filter(|rule| !found.iter().any(|difference| covers(rule, difference)));
    Ok((unmeant.collect(), idle.map(|(meant, _)| *meant).collect()))
}

/// All differences of two answers.
pub fn compare(scenario: &str, theirs: &Answer, ours: &Answer) -> Vec<Difference> {
    let mut found = Vec::new();
    let request = format!("{scenario}/{}", theirs.name);
    let whole =
        |answer: &Answer| json!({"status": answer.status, "headers": answer.headers, "body": answer.body});
    let (mut theirs, mut ours) = (whole(theirs), whole(ours));
    by_manager(&mut theirs);
    by_manager(&mut ours);
    walk(&request, String::new(), Some(&theirs), Some(&ours), &mut found);
    found
}

/// Managed fields in the order of their managers: otherwise it follows from the seconds in which they were written.
fn by_manager(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(by_manager),
        Value::Object(fields) => {
            if let Some(Value::Array(entries)) = fields.get_mut("managedFields") {
                let key = |entry: &Value| {
                    ["manager", "operation", "subresource", "apiVersion"]
                        .map(|field| entry[field].to_string())
                };
                entries.sort_by_key(key);
            }
            fields.values_mut().for_each(by_manager);
        }
        _ => {}
    }
}

/// Goes through two values at once and collects where they differ.
pub(crate) fn walk(
    request: &str,
    at: String,
    theirs: Option<&Value>,
    ours: Option<&Value>,
    found: &mut Vec<Difference>,
) {
    match (theirs, ours) {
        (Some(Value::Object(a)), Some(Value::Object(b))) => {
            let mut keys: Vec<&String> = a.keys().chain(b.keys()).collect();
            keys.sort();
            keys.dedup();
            for key in keys {
                let escaped = key.replace('~', "~0").replace('/', "~1");
                walk(request, format!("{at}/{escaped}"), a.get(key), b.get(key), found);
            }
        }
        (Some(Value::Array(a)), Some(Value::Array(b))) => {
            for index in 0..a.len().max(b.len()) {
                walk(request, format!("{at}/{index}"), a.get(index), b.get(index), found);
            }
        }
        (a, b) if a == b => {}
        (a, b) => {
            found.push(Difference { request: request.to_owned(), at, theirs: a.cloned(), ours: b.cloned() })
        }
    }
}
