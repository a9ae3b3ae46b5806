//! Validation of names, label keys, label values and finalizers.
//!
//! Each rule gives a list of messages, empty for a good value, in the words of
//! `k8s.io/apimachinery/pkg/api/validate/content`, because clients and people read them.
//! [`validate_metadata`] and [`validate_metadata_update`] put them together for `metadata` of an object.

mod metadata;

pub use metadata::{validate_embedded_metadata, validate_metadata, validate_metadata_update};

const DNS1123_LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const DNS1123_SUBDOMAIN: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const DNS1035_LABEL: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const LABEL_KEY: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";

/// What a resource asks of the names of its objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum NameRule {
    /// A DNS subdomain: the rule of almost everything, custom resources too.
    #[default]
    Dns1123Subdomain,
    /// A DNS subdomain, of kinds that declare it as the format `k8s-long-name` and get that format's messages.
    LongName,
    /// A DNS label.
    Dns1123Label,
    /// A DNS label that starts with a letter.
    Dns1035Label,
    /// Anything that fits into one segment of a URL path.
    PathSegment,
    /// A form of which the kind's own rules say everything.
    Special,
}

impl NameRule {
    /// The rule of a resource. Custom resources and all that are not listed have DNS subdomains.
    pub fn of(group: &str, resource: &str) -> Self {
        match (group, resource) {
            ("", "namespaces" | "services") => Self::Dns1123Label,
            ("rbac.authorization.k8s.io", _) | ("apiregistration.k8s.io", "apiservices") => Self::PathSegment,
            ("policy", "poddisruptionbudgets") => Self::PathSegment,
            ("networking.k8s.io", "ipaddresses") => Self::Special,
            ("", "replicationcontrollers") | ("resource.k8s.io", "deviceclasses") => Self::LongName,
            ("apps", "statefulsets") => Self::Dns1123Label,
            ("", "events") | ("certificates.k8s.io", "certificatesigningrequests") => Self::PathSegment,
            _ => Self::Dns1123Subdomain,
        }
    }

    /// What is wrong with a name; with `prefix`, with a `generateName`, to which something will be appended.
    pub fn check(self, name: &str, prefix: bool) -> Vec<String> {
        if self == Self::Special {
            return Vec::new();
        }
        if self == Self::PathSegment {
            return if prefix { path_segment_prefix(name) } else { path_segment_name(name) };
        }
        let masked = if prefix { mask_trailing_dash(name) } else { name.to_owned() };
        match self {
            Self::Dns1123Label => dns1123_label(&masked),
            Self::Dns1035Label => dns1035_label(&masked),
            Self::LongName => long_name(&masked),
            _ => dns1123_subdomain(&masked),
        }
    }
}

/// A prefix may end with a dash, as something follows. (The two last bytes make way for one letter, as in Kubernetes.)
fn mask_trailing_dash(name: &str) -> String {
    if name.len() > 1 && name.ends_with('-') {
        let cut: String = name.chars().take(name.chars().count().saturating_sub(2)).collect();
        return cut + "a";
    }
    name.to_owned()
}

fn regex_error(message: &str, regex: &str, examples: &[&str]) -> String {
    let quoted: Vec<String> = examples.iter().map(|e| format!("'{e}'")).collect();
    // The two blanks are Kubernetes'.
    let eg = quoted.join(",  or ");
    format!("{message} (e.g. {eg}, regex used for validation is '{regex}')")
}

fn max_length(value: &str, limit: usize, unit: &str) -> Option<String> {
    (value.len() > limit).then(|| format!("must be no more than {limit} {unit}"))
}

fn lower(c: u8) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit()
}

/// Whether all bytes are `inner`, the first is `first` and the last is `last`.
fn shape(value: &str, first: fn(u8) -> bool, inner: fn(u8) -> bool, last: fn(u8) -> bool) -> bool {
    let bytes = value.as_bytes();
    let edges = |b: &[u8]| b.first().is_some_and(|c| first(*c)) && b.last().is_some_and(|c| last(*c));
    edges(bytes) && bytes.iter().all(|c| inner(*c))
}

fn label_shape(value: &str) -> bool {
    shape(value, lower, |c| lower(c) || c == b'-', lower)
}

fn subdomain_shape(value: &str) -> bool {
    value.split('.').all(label_shape)
}

fn label_key_shape(value: &str) -> bool {
    let edge: fn(u8) -> bool = |c| c.is_ascii_alphanumeric();
    shape(value, edge, |c| c.is_ascii_alphanumeric() || b"-_.".contains(&c), edge)
}

/// What keeps a value from being a DNS label (RFC 1123) of at most 63 bytes.
pub fn dns1123_label(value: &str) -> Vec<String> {
    let mut errors: Vec<String> = max_length(value, 63, "characters").into_iter().collect();
    if !label_shape(value) {
        errors.push(if subdomain_shape(value) {
            "must not contain dots".to_owned()
        } else {
            regex_error(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', \
                 and must start and end with an alphanumeric character",
                DNS1123_LABEL,
                &["my-name", "123-abc"],
            )
        });
    }
    errors
}

/// What keeps a value from being a DNS subdomain (RFC 1123) of at most 253 bytes.
pub fn dns1123_subdomain(value: &str) -> Vec<String> {
    let mut errors: Vec<String> = max_length(value, 253, "characters").into_iter().collect();
    if !subdomain_shape(value) {
        errors.push(regex_error(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
             and must start and end with an alphanumeric character",
            DNS1123_SUBDOMAIN,
            &["example.com"],
        ));
    }
    errors
}

/// Checks a DNS subdomain like [`dns1123_subdomain`], in the words of names that are checked by declared formats.
pub fn long_name(value: &str) -> Vec<String> {
    let in_bytes = |why: String| match why.strip_suffix(" 253 characters") {
        Some(start) => format!("{start} 253 bytes"),
        None => why,
    };
    dns1123_subdomain(value).into_iter().map(in_bytes).collect()
}

/// What keeps a value from being a DNS label (RFC 1035) of at most 63 bytes.
pub fn dns1035_label(value: &str) -> Vec<String> {
    let mut errors: Vec<String> = max_length(value, 63, "characters").into_iter().collect();
    if !shape(value, |c| c.is_ascii_lowercase(), |c| lower(c) || c == b'-', lower) {
        errors.push(regex_error(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', \
             start with an alphabetic character, and end with an alphanumeric character",
            DNS1035_LABEL,
            &["my-name", "abc-123"],
        ));
    }
    errors
}

fn label_key_error() -> String {
    regex_error(
        "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
        LABEL_KEY,
        &["MyName", "my.name", "123-abc"],
    )
}

/// What keeps a value from being a qualified name (`example.com/MyName`), the form of label keys and finalizers.
pub fn qualified_name(value: &str) -> Vec<String> {
    let parts: Vec<&str> = value.split('/').collect();
    let (prefix, name) = match parts.as_slice() {
        [name] => (None, *name),
        [prefix, name] => (Some(*prefix), *name),
        _ => {
            let base = label_key_error();
            return vec![format!(
                "a valid label key {base} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    let mut errors = Vec::new();
    match prefix {
        Some("") => errors.push("prefix part must be non-empty".to_owned()),
        Some(prefix) => errors.extend(long_name(prefix).into_iter().map(|m| format!("prefix part {m}"))),
        None => {}
    }
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else if let Some(message) = max_length(name, 63, "bytes") {
        errors.push(format!("name part {message}"));
    }
    if !label_key_shape(name) {
        errors.push(format!("name part {}", label_key_error()));
    }
    errors
}

/// What keeps a value from being the value of a label: empty, or at most 63 bytes of a restricted alphabet.
pub fn label_value(value: &str) -> Vec<String> {
    let mut errors: Vec<String> = max_length(value, 63, "bytes").into_iter().collect();
    if !value.is_empty() && !label_key_shape(value) {
        errors.push(regex_error(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', \
             and must start and end with an alphanumeric character",
            "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?",
            &["MyValue", "my_value", "12345"],
        ));
    }
    errors
}

/// What keeps a value from being one segment of a URL path.
pub fn path_segment_name(value: &str) -> Vec<String> {
    match value {
        "." | ".." => vec![format!("may not be '{value}'")],
        _ => path_segment_prefix(value),
    }
}

/// What keeps a value from being the beginning of a segment of a URL path.
pub fn path_segment_prefix(value: &str) -> Vec<String> {
    ["/", "%"].iter().filter(|c| value.contains(**c)).map(|c| format!("may not contain '{c}'")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_refused_in_the_words_of_kubernetes() {
        let long = "x".repeat(254);
        let rows: &[(NameRule, &str, bool, &str)] = &[
            (NameRule::Dns1123Subdomain, "a.b-c", false, ""),
            (NameRule::Dns1123Subdomain, "a-", true, ""),
            (
                NameRule::Dns1123Subdomain,
                "A_b",
                false,
                "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
            ),
            (NameRule::Dns1123Subdomain, &long, false, "must be no more than 253 characters"),
            (NameRule::Dns1123Label, "a.b", false, "must not contain dots"),
            (
                NameRule::Dns1035Label,
                "1a",
                false,
                "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')",
            ),
            (NameRule::PathSegment, "system:node", false, ""),
            (NameRule::PathSegment, "..", false, "may not be '..'"),
            (NameRule::PathSegment, "a/b", false, "may not contain '/'"),
        ];
        for (rule, name, prefix, want) in rows {
            assert_eq!(rule.check(name, *prefix).join("; "), *want, "{name:?}");
        }
    }

    #[test]
    fn qualified_names_have_at_most_one_prefix() {
        for good in ["a", "A_b.c-d", "example.com/Name"] {
            assert!(qualified_name(good).is_empty(), "{good:?}");
        }
        for (bad, want) in [
            ("", "name part must be non-empty; name part must consist of"),
            ("/a", "prefix part must be non-empty"),
            ("A/a", "prefix part a lowercase RFC 1123 subdomain"),
            ("a/b/c", "a valid label key must consist of alphanumeric characters"),
        ] {
            let got = qualified_name(bad).join("; ");
            assert!(got.starts_with(want), "{bad:?}: {got}");
        }
    }

    #[test]
    fn label_values_may_be_empty_but_not_odd() {
        assert!(label_value("").is_empty());
        assert!(label_value("a_B.c").is_empty());
        assert_eq!(label_value("-").len(), 1);
        assert_eq!(label_value(&"x".repeat(64)), ["must be no more than 63 bytes"]);
    }
}
