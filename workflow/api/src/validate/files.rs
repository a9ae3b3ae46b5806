//! Artifacts, kept results and notifications.

use super::{Check, duplicate, is_word};
use crate::dag::DagSpec;
use crate::task::{TaskKind, TaskTemplate};
use freehold_machinery::status::FieldError;
use std::collections::HashSet;

/// Checks artifacts and memoization of a task whose other outputs have these names.
pub(super) fn check<'a>(check: &mut Check, at: &str, of: &'a TaskTemplate, names: &mut HashSet<&'a str>) {
    let is_pod = of.kind() == Some(TaskKind::Pod);
    if let Some(memoize) = &of.memoize {
        let at = format!("{at}.memoize");
        if !is_pod {
            check.add(FieldError::forbidden(at.as_str(), "only results of containers are kept"));
        }
        if memoize.key.is_empty() {
            check.add(FieldError::required(format!("{at}.key"), "what the result depends on"));
        }
        if !memoize.cache.is_empty() && !is_word(&memoize.cache) {
            check.invalid(format!("{at}.cache"), memoize.cache.as_str(), "must be letters, digits, - and _");
        }
        check.duration(|| format!("{at}.maxAge"), &memoize.max_age);
    }
    let Some(artifacts) = &of.artifacts else { return };
    let at = format!("{at}.artifacts");
    if !is_pod {
        check.add(FieldError::forbidden(at.as_str(), "only containers have artifacts"));
    } else if of.command.is_empty() && of.script.is_empty() {
        let why = "a task with artifacts says its command or script: that of its image is not known before";
        check.add(FieldError::required(at.trim_end_matches("artifacts").to_owned() + "command", why));
    }
    let mut inputs = HashSet::new();
    for (n, input) in artifacts.inputs.iter().enumerate() {
        let at = format!("{at}.inputs[{n}]");
        named(check, &at, &input.name, &input.path);
        if !inputs.insert(input.name.as_str()) {
            check.add(duplicate(format!("{at}.name"), &input.name));
        }
        if input.key.is_empty() {
            check.add(FieldError::required(format!("{at}.key"), "the key of an artifact"));
        } else if !input.key.contains("$(") && !is_key(&input.key) {
            check.invalid(format!("{at}.key"), input.key.as_str(), KEY);
        }
    }
    for (n, output) in artifacts.outputs.iter().enumerate() {
        let at = format!("{at}.outputs[{n}]");
        named(check, &at, &output.name, &output.path);
        if !names.insert(output.name.as_str()) {
            check.add(duplicate(format!("{at}.name"), &output.name));
        }
        if !output.key.is_empty() && !output.key.contains("$(") && !is_relative(&output.key) {
            check.invalid(format!("{at}.key"), output.key.as_str(), KEY);
        }
    }
}

const KEY: &str =
    "must be runs/... or named/..., of parts that are no . and .., with letters, digits and -._";

fn named(check: &mut Check, at: &str, name: &str, path: &str) {
    if !is_word(name) {
        check.invalid(format!("{at}.name"), name, "must be letters, digits, - and _");
    }
    if !path.starts_with('/') && !path.starts_with("$(") {
        check.invalid(format!("{at}.path"), path, "must be an absolute path");
    }
}

/// Whether a text is the key of an artifact of a namespace.
pub fn is_key(key: &str) -> bool {
    (key.starts_with("runs/") || key.starts_with("named/")) && is_relative(key)
}

/// Whether a key stays below where it begins, whatever a store makes of it.
pub fn is_relative(key: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    key.len() <= 768
        && key
            .split('/')
            .all(|part| !part.is_empty() && part != "." && part != ".." && part.chars().all(is_plain))
}

pub(super) fn notifications(check: &mut Check, spec: &DagSpec) {
    let webhooks = spec.notifications.iter().flat_map(|notifications| &notifications.webhooks);
    for (n, webhook) in webhooks.enumerate() {
        let at = format!("spec.notifications.webhooks[{n}]");
        let rest = webhook.url.strip_prefix("https://").or_else(|| webhook.url.strip_prefix("http://"));
        let host = rest.map(|rest| rest.split(['/', '?', '#']).next().unwrap_or_default());
        if host.is_none_or(|host| host.is_empty() || host.contains('@')) {
            check.invalid(
                format!("{at}.url"),
                webhook.url.as_str(),
                "must be an http or https URL without a user",
            );
        }
        if webhook.secret_key_ref.as_ref().is_some_and(|key| key.name.is_empty() || key.key.is_empty()) {
            check.add(FieldError::required(format!("{at}.secretKeyRef"), "name and key"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_stay_where_they_begin() {
        for good in ["runs/u/a/0/x.tar.gz", "named/a", "named/releases/v1.2"] {
            assert!(is_key(good), "{good}");
        }
        let bad = [
            "",
            "other/a",
            "runs",
            "runs/",
            "runs/../x",
            "named/a//b",
            "named/./a",
            "/named/a",
            "named/a b",
            "named/a%2e",
        ];
        for bad in bad {
            assert!(!is_key(bad), "{bad}");
        }
    }
}
