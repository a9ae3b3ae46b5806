//! CEL in policies: conditions, amounts, and texts with `{{ }}` in them.

use freehold_machinery::{Value, schema::Schema};
use freehold_machinery_cel::{Budget, Computed, EvalError, Program, Variable};
use std::sync::Arc;

/// What expressions can name.
pub(crate) const NAMES: [&str; 5] = ["trigger", "user", "requestInfo", "organization", "project"];

/// Longest text that a template gives, in bytes.
const LONGEST: usize = 1024;

/// The values of [`NAMES`], converted once, and what evaluations may still cost.
pub(crate) struct Scope {
    values: [Computed; 5],
    budget: Budget,
}

impl Scope {
    pub(crate) fn new(values: [&Value; 5]) -> Self {
        Self { values: values.map(Computed::of), budget: Budget::default() }
    }

    fn value(&mut self, cel: &Cel) -> Result<Computed, String> {
        let variables: Vec<_> =
            NAMES.iter().zip(&self.values).map(|(name, value)| (*name, Variable::Computed(value))).collect();
        cel.program.value(&variables, &self.budget).map_err(|error| {
            let why = match error {
                EvalError::Failed(why) => why,
                EvalError::NoOverload => "no such overload".to_owned(),
                EvalError::BudgetSpent | EvalError::CallLimit => "it costs too much".to_owned(),
            };
            format!("expression {:?} failed: {why}", cel.source)
        })
    }

    /// Whether a condition holds; an error where it gives neither true nor false.
    pub(crate) fn holds(&mut self, cel: &Cel) -> Result<bool, String> {
        let value = self.value(cel)?;
        let wrong = || format!("expression {:?} gives {} and no bool", cel.source, value.type_name());
        value.as_bool().ok_or_else(wrong)
    }

    /// A whole number that is not negative.
    pub(crate) fn amount(&mut self, cel: &Cel) -> Result<i64, String> {
        let value = self.value(cel)?;
        let amount = value.to_json().and_then(|json| json.as_i64()).filter(|amount| *amount >= 0);
        amount.ok_or_else(|| format!("expression {:?} gives no whole number of at least 0", cel.source))
    }

    /// A template's text.
    pub(crate) fn text(&mut self, template: &Template) -> Result<String, String> {
        let mut text = String::new();
        for part in &template.0 {
            match part {
                Part::Text(literal) => text.push_str(literal),
                Part::Cel(cel) => match self.value(cel)?.to_json() {
                    Some(Value::String(given)) => text.push_str(&given),
                    Some(given @ (Value::Number(_) | Value::Bool(_))) => text.push_str(&given.to_string()),
                    _ => return Err(format!("expression {:?} gives no text", cel.source)),
                },
            }
            if text.len() > LONGEST {
                return Err(format!("a template gives more than {LONGEST} bytes"));
            }
        }
        Ok(text)
    }
}

/// A compiled expression, with its text for messages.
pub(crate) struct Cel {
    program: Arc<Program>,
    source: Box<str>,
}

/// Compiles an expression whose names are known.
pub(crate) fn compile(source: &str) -> Result<Cel, String> {
    let program = Program::compile(source).map_err(|error| error.to_string())?;
    let names: Vec<(&str, Option<&Schema>)> = NAMES.iter().map(|name| (*name, None)).collect();
    program.check(&names, false).map_err(|error| error.to_string())?;
    Ok(Cel { program, source: source.into() })
}

enum Part {
    Text(String),
    Cel(Cel),
}

/// Text with `{{ }}` around what is CEL.
pub(crate) struct Template(Vec<Part>);

impl Template {
    pub(crate) fn compile(source: &str) -> Result<Self, String> {
        let (mut parts, mut rest) = (Vec::new(), source);
        while let Some((before, behind)) = rest.split_once("{{") {
            let (inside, after) =
                behind.split_once("}}").ok_or_else(|| format!("{source:?} has {{{{ without }}}}"))?;
            if !before.is_empty() {
                parts.push(Part::Text(before.to_owned()));
            }
            parts.push(Part::Cel(compile(inside.trim())?));
            rest = after;
        }
        if rest.contains("}}") {
            return Err(format!("{source:?} has }}}} without {{{{"));
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        Ok(Self(parts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn scope() -> Scope {
        let trigger = json!({"metadata": {"name": "web"}, "spec": {"size": 3, "storage": "2Gi"}});
        Scope::new([
            &trigger,
            &json!({"name": "jane"}),
            &json!({"verb": "create"}),
            &json!("acme"),
            &json!(""),
        ])
    }

    #[test]
    fn a_template_is_text_with_expressions_in_it() {
        let rows = [
            ("plain", Ok("plain")),
            ("{{ trigger.metadata.name }}", Ok("web")),
            ("a-{{organization}}-{{trigger.spec.size}}-z", Ok("a-acme-3-z")),
            ("{{ trigger.spec }}", Err(())),
            ("{{ trigger.spec.absent }}", Err(())),
        ];
        for (source, expected) in rows {
            let given = scope().text(&Template::compile(source).unwrap());
            assert_eq!(given.as_deref().map_err(drop), expected, "{source}");
        }
        for broken in ["{{ trigger", "a }} b", "{{ nobody.knows }}", "{{ 1 + }}"] {
            assert!(Template::compile(broken).is_err(), "{broken}");
        }
    }

    #[test]
    fn an_amount_is_a_whole_number_of_at_least_zero() {
        let rows = [
            ("trigger.spec.size * 2", Some(6)),
            ("quantity(trigger.spec.storage).asInteger()", Some(2 << 30)),
            ("0", Some(0)),
            ("-1", None),
            ("'3'", None),
            ("trigger.spec.absent", None),
        ];
        for (source, expected) in rows {
            assert_eq!(scope().amount(&compile(source).unwrap()).ok(), expected, "{source}");
        }
    }

    #[test]
    fn a_condition_that_gives_no_bool_is_an_error() {
        assert_eq!(scope().holds(&compile("user.name == 'jane'").unwrap()), Ok(true));
        assert!(scope().holds(&compile("trigger.spec.size").unwrap()).is_err());
        assert!(scope().holds(&compile("trigger.spec.none == 1").unwrap()).is_err());
    }
}
