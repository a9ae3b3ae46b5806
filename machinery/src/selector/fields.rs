//! Field selectors, as `k8s.io/apimachinery/pkg/fields` reads them.

use super::{MAX_LENGTH, MAX_TERMS};
use std::fmt;

/// One condition on one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldRequirement {
    /// The field's path as clients spell it (`spec.nodeName`).
    pub field: String,
    /// The value to compare with, unescaped.
    pub value: String,
    /// `!=` rather than `=`.
    pub negated: bool,
}

/// A field selector: all requirements must hold. Without any it selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields {
    requirements: Vec<FieldRequirement>,
}

impl Fields {
    /// Parses the value of `fieldSelector=`: `a=b,c!=d`, with `\,`, `\=` and `\\` in values.
    ///
    /// # Errors
    /// Kubernetes' message for a term that cannot be read, for a selector over [`MAX_LENGTH`] bytes or [`MAX_TERMS`]
    /// terms.
    pub fn parse(selector: &str) -> Result<Self, String> {
        if selector.len() > MAX_LENGTH {
            return Err(format!("invalid selector: longer than {MAX_LENGTH} bytes"));
        }
        let mut terms: Vec<&str> =
            split_terms(selector).into_iter().filter(|term| !term.is_empty()).collect();
        if terms.len() > MAX_TERMS {
            return Err(format!("invalid selector: more than {MAX_TERMS} terms"));
        }
        terms.sort_unstable();
        let requirement = |term: &&str| {
            let (field, negated, value) = split_term(term)
                .ok_or_else(|| format!("invalid selector: '{selector}'; can't understand '{term}'"))?;
            Ok(FieldRequirement { field: field.to_owned(), value: unescape(value)?, negated })
        };
        Ok(Self { requirements: terms.iter().map(requirement).collect::<Result<_, String>>()? })
    }

    /// Checks that every path of the selector is `supported`.
    ///
    /// # Errors
    /// Kubernetes' `field label not supported: PATH` for the first path that is not.
    pub fn check(&self, supported: impl Fn(&str) -> bool) -> Result<(), String> {
        match self.requirements.iter().find(|r| !supported(&r.field)) {
            Some(requirement) => Err(format!("field label not supported: {}", requirement.field)),
            None => Ok(()),
        }
    }

    /// Whether fields satisfy all requirements; `lookup` gives a field's value, and an absent one counts as empty.
    pub fn matches<S: AsRef<str>>(&self, lookup: impl Fn(&str) -> Option<S>) -> bool {
        self.requirements.iter().all(|requirement| {
            let value = lookup(&requirement.field);
            let equal = value.as_ref().map_or("", AsRef::as_ref) == requirement.value;
            equal != requirement.negated
        })
    }

    /// The requirements, ordered by their text.
    pub fn requirements(&self) -> &[FieldRequirement] {
        &self.requirements
    }

    /// Whether everything is selected.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// The value that `field` must have, where the selector says so.
    pub fn exact(&self, field: &str) -> Option<&str> {
        self.requirements.iter().find(|r| r.field == field && !r.negated).map(|r| r.value.as_str())
    }
}

impl fmt::Display for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, requirement) in self.requirements.iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            let operator = if requirement.negated { "!=" } else { "=" };
            write!(f, "{comma}{}{operator}{}", requirement.field, escape(&requirement.value))?;
        }
        Ok(())
    }
}

/// Splits at commas that are not escaped.
fn split_terms(selector: &str) -> Vec<&str> {
    let (mut terms, mut start, mut escaped) = (Vec::new(), 0, false);
    for (i, c) in selector.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                terms.push(&selector[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    terms.push(&selector[start..]);
    terms
}

/// Field, whether it is negated, and the value as it is written: split at the first operator.
fn split_term(term: &str) -> Option<(&str, bool, &str)> {
    term.char_indices().find_map(|(i, _)| {
        let rest = &term[i..];
        let operators = [("!=", true), ("==", false), ("=", false)];
        operators.iter().find_map(|(op, negated)| Some((&term[..i], *negated, rest.strip_prefix(op)?)))
    })
}

fn unescape(value: &str) -> Result<String, String> {
    let mut result = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => result.push(c),
                other => {
                    let other = other.map(String::from).unwrap_or_default();
                    return Err(format!("invalid field selector: invalid escape sequence: \\{other}"));
                }
            },
            ',' | '=' => {
                return Err(format!("invalid field selector: unescaped character in value: {}", c as u32));
            }
            c => result.push(c),
        }
    }
    Ok(result)
}

fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_selectors_match_as_in_kubernetes() {
        let fields = |path: &str| match path {
            "metadata.name" => Some("web"),
            "spec.nodeName" => Some("a,b"),
            _ => None,
        };
        let rows = [
            ("", true),
            ("metadata.name=web", true),
            ("metadata.name==web", true),
            ("metadata.name!=web", false),
            ("metadata.name=api", false),
            ("metadata.name=web,spec.nodeName=a\\,b", true),
            ("spec.nodeName!=c", true),
            ("status.phase=", true),
            ("status.phase!=", false),
            (",metadata.name=web,", true),
        ];
        for (selector, expected) in rows {
            assert_eq!(Fields::parse(selector).unwrap().matches(fields), expected, "{selector}");
        }
    }

    #[test]
    fn malformed_field_selectors_get_kubernetes_texts() {
        let rows = [
            ("metadata.name", "invalid selector: 'metadata.name'; can't understand 'metadata.name'"),
            ("a=b\\c", "invalid field selector: invalid escape sequence: \\c"),
            ("a=b\\", "invalid field selector: invalid escape sequence: \\"),
            ("a=b=c", "invalid field selector: unescaped character in value: 61"),
        ];
        for (selector, expected) in rows {
            assert_eq!(Fields::parse(selector).unwrap_err(), expected, "{selector}");
        }
        assert!(Fields::parse(&"a=b,".repeat(MAX_TERMS + 1)).unwrap_err().contains("more than"));
        assert!(Fields::parse(&"a".repeat(MAX_LENGTH + 1)).unwrap_err().contains("longer than"));
    }

    #[test]
    fn fields_give_their_exact_values_and_reject_unknown_paths() {
        let fields = Fields::parse("spec.nodeName=n1,metadata.name!=x").unwrap();
        assert_eq!(fields.exact("spec.nodeName"), Some("n1"));
        assert_eq!(fields.exact("metadata.name"), None);
        assert_eq!(fields.to_string(), "metadata.name!=x,spec.nodeName=n1");
        assert_eq!(
            fields.check(|f| f == "metadata.name").unwrap_err(),
            "field label not supported: spec.nodeName"
        );
        assert_eq!(fields.check(|_| true), Ok(()));
    }
}
