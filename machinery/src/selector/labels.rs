//! Label selectors, as `k8s.io/apimachinery/pkg/labels` reads them.

use super::{MAX_LENGTH, MAX_TERMS, lexer::Parser};
use crate::{Value, names, status::FieldError};
use std::fmt;

/// How a label is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `=`.
    Equals,
    /// `==`.
    DoubleEquals,
    /// `!=`.
    NotEquals,
    /// `in (a,b)`.
    In,
    /// `notin (a,b)`.
    NotIn,
    /// `key`.
    Exists,
    /// `!key`.
    DoesNotExist,
    /// `> 1`.
    GreaterThan,
    /// `< 1`.
    LessThan,
}

impl Operator {
    fn symbol(self) -> &'static str {
        match self {
            Self::Equals => "=",
            Self::DoubleEquals => "==",
            Self::NotEquals => "!=",
            Self::In => " in ",
            Self::NotIn => " notin ",
            Self::GreaterThan => ">",
            Self::LessThan => "<",
            Self::Exists | Self::DoesNotExist => "",
        }
    }
}

/// One condition on one label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelRequirement {
    /// The label's key.
    pub key: String,
    /// How it is compared.
    pub operator: Operator,
    /// With what; sorted, each once.
    pub values: Vec<String>,
}

impl LabelRequirement {
    /// Creates a requirement after checking key and values, and that the operator takes as many values.
    ///
    /// # Errors
    /// Kubernetes' messages for every fault, in brackets where there are several.
    pub fn new(key: &str, operator: Operator, mut values: Vec<String>) -> Result<Self, String> {
        values.sort();
        values.dedup();
        let mut errors: Vec<FieldError> = invalid_key("key", key).into_iter().collect();
        errors.extend(misfit(operator, &values));
        for (i, value) in values.iter().enumerate() {
            let problems = names::label_value(value);
            if !problems.is_empty() {
                errors.push(invalid(format!("values[{i}][{key}]"), value.as_str(), problems.join("; ")));
            }
        }
        match &errors[..] {
            [] => Ok(Self { key: key.to_owned(), operator, values }),
            [one] => Err(one.to_string()),
            many => Err(format!("[{}]", many.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))),
        }
    }

    fn holds(&self, value: Option<&str>) -> bool {
        let listed = |value: &str| self.values.iter().any(|own| own == value);
        match self.operator {
            Operator::Equals | Operator::DoubleEquals | Operator::In => value.is_some_and(listed),
            Operator::NotEquals | Operator::NotIn => !value.is_some_and(listed),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::GreaterThan | Operator::LessThan => {
                let number = |text: &str| text.parse::<i64>().ok();
                let Some((own, value)) =
                    self.values.first().and_then(|own| number(own)).zip(value.and_then(number))
                else {
                    return false;
                };
                if self.operator == Operator::GreaterThan { value > own } else { value < own }
            }
        }
    }
}

/// What is wrong with a label's key, told of `field`.
pub(super) fn invalid_key(field: &str, key: &str) -> Option<FieldError> {
    let problems = names::qualified_name(key);
    (!problems.is_empty()).then(|| invalid(field.to_owned(), key, problems.join("; ")))
}

fn invalid(field: String, value: impl Into<Value>, detail: impl Into<String>) -> FieldError {
    FieldError::invalid(field, value.into(), detail)
}

/// What is wrong with the number or type of values.
fn misfit(operator: Operator, values: &[String]) -> Option<FieldError> {
    let wrong = |detail: &str| Some(invalid("values".to_owned(), values, detail));
    match (operator, values) {
        (Operator::In | Operator::NotIn, []) => {
            wrong("for 'in', 'notin' operators, values set can't be empty")
        }
        (Operator::Equals | Operator::DoubleEquals | Operator::NotEquals, [] | [_, _, ..]) => {
            wrong("exact-match compatibility requires one single value")
        }
        (Operator::Exists | Operator::DoesNotExist, [_, ..]) => {
            wrong("values set must be empty for exists and does not exist")
        }
        (Operator::GreaterThan | Operator::LessThan, [value]) if value.parse::<i64>().is_err() => {
            let detail = "for 'Gt', 'Lt' operators, the value must be an integer";
            Some(invalid("values[0]".to_owned(), value.as_str(), detail))
        }
        (Operator::GreaterThan | Operator::LessThan, [] | [_, _, ..]) => {
            wrong("for 'Gt', 'Lt' operators, exactly one value is required")
        }
        _ => None,
    }
}

impl fmt::Display for LabelRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let not = if self.operator == Operator::DoesNotExist { "!" } else { "" };
        let values = self.values.join(",");
        let (open, close) =
            if matches!(self.operator, Operator::In | Operator::NotIn) { ("(", ")") } else { ("", "") };
        write!(f, "{not}{}{}{open}{values}{close}", self.key, self.operator.symbol())
    }
}

/// A label selector: all requirements must hold. Without any it selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels {
    requirements: Vec<LabelRequirement>,
}

impl Labels {
    /// Parses the value of `labelSelector=`: `a=b,c!=d,e in (f,g),h notin (i),j,!k,l>1,m<2`.
    ///
    /// # Errors
    /// Kubernetes' message for what cannot be parsed, for a selector over [`MAX_LENGTH`] bytes or [`MAX_TERMS`]
    /// terms.
    pub fn parse(selector: &str) -> Result<Self, String> {
        if selector.len() > MAX_LENGTH {
            return Err(format!("selector is longer than {MAX_LENGTH} bytes"));
        }
        Self::of(Parser::new(selector).parse()?)
    }

    /// Reads a `metav1.LabelSelector` (`matchLabels`, `matchExpressions`). An empty one selects everything. `null`
    /// and absent ones select nothing in Kubernetes: callers decide that before they call.
    ///
    /// # Errors
    /// An unknown operator, an invalid key or value, or more than [`MAX_TERMS`] terms.
    pub fn from_value(selector: &Value) -> Result<Self, String> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut requirements = Vec::new();
        for (key, value) in selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten() {
            requirements.push(LabelRequirement::new(key, Operator::Equals, vec![text(value)])?);
        }
        for expression in selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
            let field = |name| expression.get(name).unwrap_or(&Value::Null);
            let operator = match text(field("operator")).as_str() {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                other => return Err(format!("{other:?} is not a valid label selector operator")),
            };
            let values = field("values").as_array().into_iter().flatten().map(text).collect();
            requirements.push(LabelRequirement::new(&text(field("key")), operator, values)?);
        }
        Self::of(requirements)
    }

    fn of(mut requirements: Vec<LabelRequirement>) -> Result<Self, String> {
        let terms: usize = requirements.iter().map(|r| r.values.len().max(1)).sum();
        if terms > MAX_TERMS {
            return Err(format!("selector has more than {MAX_TERMS} terms"));
        }
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(Self { requirements })
    }

    /// Whether labels satisfy all requirements; `lookup` gives a label's value.
    pub fn matches<'a>(&self, lookup: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements.iter().all(|requirement| requirement.holds(lookup(&requirement.key)))
    }

    /// The requirements, ordered by key.
    pub fn requirements(&self) -> &[LabelRequirement] {
        &self.requirements
    }

    /// Whether everything is selected.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// The first key that must have a single value, and the value.
    pub fn first_exact(&self) -> Option<(&str, &str)> {
        self.requirements.iter().find_map(|requirement| {
            match (requirement.operator, &requirement.values[..]) {
                (Operator::Equals | Operator::DoubleEquals | Operator::In, [value]) => {
                    Some((&*requirement.key, &**value))
                }
                _ => None,
            }
        })
    }

    /// The single value that `key` must have, where its first requirement says so.
    pub fn exact(&self, key: &str) -> Option<&str> {
        let requirement = self.requirements.iter().find(|r| r.key == key)?;
        match (requirement.operator, &requirement.values[..]) {
            (Operator::Equals | Operator::DoubleEquals | Operator::In, [value]) => Some(value),
            _ => None,
        }
    }
}

impl fmt::Display for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, requirement) in self.requirements.iter().enumerate() {
            write!(f, "{}{requirement}", if i > 0 { "," } else { "" })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn lookup(key: &str) -> Option<&'static str> {
        match key {
            "app" => Some("web"),
            "tier" => Some("front"),
            "in" => Some("notin"),
            "level" => Some("7"),
            "example.com/empty" => Some(""),
            _ => None,
        }
    }

    #[test]
    fn label_selectors_match_as_in_kubernetes() {
        let rows = [
            ("", true),
            ("app=web", true),
            ("app == web", true),
            ("app!=web", false),
            ("gone!=web", true),
            ("app in (api, web)", true),
            ("app in (api)", false),
            ("app notin (api),tier", true),
            ("gone notin (api)", true),
            ("!gone", true),
            ("!app", false),
            ("app", true),
            ("gone", false),
            ("level>6", true),
            ("level > 7", false),
            ("level<8", true),
            ("app>1", false),
            ("in in (notin,in)", true),
            ("example.com/empty=", true),
            ("example.com/empty in ()", true),
            ("example.com/empty in (,x)", true),
            ("app=web,tier=front,level", true),
            ("app=web,tier=back", false),
        ];
        for (selector, expected) in rows {
            let labels = Labels::parse(selector).unwrap_or_else(|e| panic!("{selector}: {e}"));
            assert_eq!(labels.matches(lookup), expected, "{selector}");
            assert_eq!(Labels::parse(&labels.to_string()), Ok(labels), "{selector}");
        }
    }

    #[test]
    fn malformed_label_selectors_get_kubernetes_texts() {
        let rows = [
            ("app=web,", "found '', expected: identifier after ','"),
            ("app web", "unable to parse requirement: found 'web', expected: in, notin, =, ==, !=, gt, lt"),
            ("=web", "found '=', expected: !, identifier, or 'end of string'"),
            ("app=(web)", "unable to parse requirement: found '(', expected: identifier"),
            ("app in web", "unable to parse requirement: found 'web' expected: '('"),
            ("app in (web", "unable to parse requirement: found '', expected: ',' or ')'"),
            ("app=web tier", "found 'tier', expected: ',' or 'end of string'"),
            ("!=web", "found '!=', expected: !, identifier, or 'end of string'"),
            (
                "level>high",
                "unable to parse requirement: values[0]: Invalid value: \"high\": for 'Gt', 'Lt' operators, the value must be an integer",
            ),
        ];
        for (selector, expected) in rows {
            assert_eq!(Labels::parse(selector).unwrap_err(), expected, "{selector}");
        }
        let key = Labels::parse("-app=web").unwrap_err();
        assert!(
            key.starts_with("unable to parse requirement: <nil>: Invalid value: \"-app\": name part must"),
            "{key}"
        );
        let value = Labels::parse("app=-web").unwrap_err();
        assert!(value.starts_with(
            "unable to parse requirement: values[0][app]: Invalid value: \"-web\": a valid label"
        ));
        let many: Vec<String> = (0..=MAX_TERMS).map(|i| i.to_string()).collect();
        assert!(Labels::parse(&format!("a in ({})", many.join(","))).unwrap_err().contains("more than"));
        assert!(Labels::parse(&"a".repeat(MAX_LENGTH + 1)).unwrap_err().contains("longer than"));
    }

    #[test]
    fn a_label_selector_object_selects_like_its_text() {
        let selector = json!({"matchLabels": {"tier": "front"}, "matchExpressions": [
            {"key": "app", "operator": "In", "values": ["web", "api"]},
            {"key": "gone", "operator": "DoesNotExist"},
        ]});
        let labels = Labels::from_value(&selector).unwrap();
        assert_eq!(labels.to_string(), "app in (api,web),!gone,tier=front");
        assert!(labels.matches(lookup));
        assert_eq!(labels.exact("tier"), Some("front"));
        assert_eq!(labels.exact("app"), None);
        assert!(Labels::from_value(&json!({})).unwrap().is_empty());
        let unknown = json!({"matchExpressions": [{"key": "a", "operator": "Like"}]});
        assert_eq!(
            Labels::from_value(&unknown).unwrap_err(),
            "\"Like\" is not a valid label selector operator"
        );
        let empty = json!({"matchExpressions": [{"key": "a", "operator": "In"}]});
        assert!(Labels::from_value(&empty).unwrap_err().contains("values set can't be empty"));
    }
}
