//! Conditions of Argo (`{{a}} == b && !({{c}} > 3)`) as CEL.

use crate::text::{Resolve, cel_path, only_reference, quote};

/// Brackets and negations within each other.
const MAX_DEPTH: usize = 32;

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Operator(&'static str),
    /// A reference, as CEL.
    Reference(String),
    Literal(String),
}

const OPERATORS: [&str; 13] = ["==", "!=", "<=", ">=", "=~", "!~", "&&", "||", "<", ">", "!", "(", ")"];

/// Translates a condition.
///
/// # Errors
/// What in it has no counterpart.
pub(crate) fn condition(text: &str, resolve: &Resolve<'_>) -> Result<String, String> {
    let tokens = tokens(text, resolve)?;
    let mut parser = Parser { tokens, at: 0, depth: 0 };
    let translated = parser.any()?;
    match parser.tokens.get(parser.at) {
        None => Ok(translated),
        Some(token) => Err(format!("{token:?} is not supported in a condition")),
    }
}

fn tokens(text: &str, resolve: &Resolve<'_>) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        if let Some(operator) = OPERATORS.iter().find(|operator| rest.starts_with(**operator)) {
            tokens.push(Token::Operator(operator));
            rest = &rest[operator.len()..];
        } else if rest.starts_with("{{") {
            let end = rest.find("}}").ok_or("{{ without }}")?;
            let inner = rest[2..end].trim();
            if inner.starts_with('=') {
                return Err(format!("expression {{{{{inner}}}}} is not supported"));
            }
            tokens.push(Token::Reference(cel_path(&resolve(inner)?)));
            rest = &rest[end + 2..];
        } else if let Some(quote) = rest.chars().next().filter(|c| matches!(c, '"' | '\'')) {
            let end = rest[1..].find(quote).ok_or("a quote that does not end")? + 1;
            let inner = &rest[1..end];
            tokens.push(match only_reference(inner) {
                Some(reference) => Token::Reference(cel_path(&resolve(reference)?)),
                None if inner.contains("{{") => {
                    return Err(format!("{inner:?}: a reference within a text is not supported"));
                }
                None => Token::Literal(inner.to_owned()),
            });
            rest = &rest[end + 1..];
        } else {
            let end =
                rest.find(|c: char| !(c.is_alphanumeric() || "_-./:%".contains(c))).unwrap_or(rest.len());
            if end == 0 {
                return Err(format!(
                    "{:?} is not supported in a condition",
                    rest.chars().next().unwrap_or_default()
                ));
            }
            tokens.push(Token::Literal(rest[..end].to_owned()));
            rest = &rest[end..];
        }
        rest = rest.trim_start();
    }
    Ok(tokens)
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
    depth: usize,
}

impl Parser {
    fn operator(&mut self, wanted: &[&'static str]) -> Option<&'static str> {
        let Some(Token::Operator(operator)) = self.tokens.get(self.at) else { return None };
        let found = wanted.iter().find(|w| *w == operator)?;
        self.at += 1;
        Some(found)
    }

    fn any(&mut self) -> Result<String, String> {
        let mut left = self.all()?;
        while self.operator(&["||"]).is_some() {
            left = format!("{left} || {}", self.all()?);
        }
        Ok(left)
    }

    fn all(&mut self) -> Result<String, String> {
        let mut left = self.one()?;
        while self.operator(&["&&"]).is_some() {
            left = format!("{left} && {}", self.one()?);
        }
        Ok(left)
    }

    fn one(&mut self) -> Result<String, String> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(format!("more than {MAX_DEPTH} levels"));
        }
        let translated = if self.operator(&["!"]).is_some() {
            format!("!({})", self.one()?)
        } else if self.operator(&["("]).is_some() {
            let inner = self.any()?;
            self.operator(&[")"]).ok_or("a bracket that does not close")?;
            format!("({inner})")
        } else {
            self.comparison()?
        };
        self.depth -= 1;
        Ok(translated)
    }

    fn operand(&mut self) -> Result<Token, String> {
        let token = self.tokens.get(self.at).cloned().ok_or("the condition ends too early")?;
        self.at += 1;
        match token {
            Token::Operator(operator) => Err(format!("{operator} where a value is wanted")),
            value => Ok(value),
        }
    }

    /// Values are texts: they are compared as such for equality, and as numbers for order.
    fn comparison(&mut self) -> Result<String, String> {
        let left = self.operand()?;
        let Some(operator) = self.operator(&["==", "!=", "<=", ">=", "<", ">", "=~", "!~"]) else {
            return Ok(match left {
                Token::Literal(text) if text == "true" || text == "false" => text,
                other => format!("{} == \"true\"", as_text(&other)),
            });
        };
        let right = self.operand()?;
        match operator {
            "==" | "!=" => Ok(format!("{} {operator} {}", as_text(&left), as_text(&right))),
            "=~" => Ok(format!("{}.matches({})", as_text(&left), as_text(&right))),
            "!~" => Ok(format!("!{}.matches({})", as_text(&left), as_text(&right))),
            _ => Ok(format!("{} {operator} {}", as_number(&left)?, as_number(&right)?)),
        }
    }
}

fn as_text(token: &Token) -> String {
    match token {
        Token::Reference(path) => format!("string({path})"),
        Token::Literal(text) => quote(text),
        Token::Operator(operator) => (*operator).to_owned(),
    }
}

fn as_number(token: &Token) -> Result<String, String> {
    match token {
        Token::Reference(path) => Ok(format!("double({path})")),
        Token::Literal(text) => {
            text.parse::<f64>().map(|n| format!("{n:?}")).map_err(|_| format!("{text:?} is not a number"))
        }
        Token::Operator(operator) => Ok((*operator).to_owned()),
    }
}

/// A condition on an object's fields, `status.succeeded > 0, status.phase in (A,B)`, as CEL over `object`.
///
/// # Errors
/// What in it has no counterpart.
pub(crate) fn object_condition(text: &str) -> Result<String, String> {
    let mut parts = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (at, operator) = ["==", "!=", ">", "<", "="]
            .iter()
            .find_map(|operator| part.find(operator).map(|at| (at, *operator)))
            .ok_or_else(|| format!("{part:?}: =, ==, !=, < or > is wanted"))?;
        let (field, value) = (part[..at].trim(), part[at + operator.len()..].trim());
        if field.is_empty() || !field.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c)) {
            return Err(format!("{field:?} is no field"));
        }
        let path = cel_path(&format!("object.{field}"));
        let present = presence(field);
        parts.push(match operator {
            ">" | "<" => {
                let number: f64 = value.parse().map_err(|_| format!("{value:?} is not a number"))?;
                format!("{present} && double({path}) {operator} {number:?}")
            }
            "!=" => format!("!({present} && string({path}) == {})", quote(value)),
            _ => format!("{present} && string({path}) == {}", quote(value)),
        });
    }
    if parts.is_empty() { Err("an empty condition".into()) } else { Ok(parts.join(" && ")) }
}

/// Whether a field and all above it are there.
fn presence(field: &str) -> String {
    let words: Vec<&str> = field.split('.').collect();
    let all: Vec<String> = (1..=words.len())
        .map(|n| {
            let above = cel_path(
                &["object"].into_iter().chain(words[..n - 1].iter().copied()).collect::<Vec<_>>().join("."),
            );
            format!("{} in {above}", quote(words[n - 1]))
        })
        .collect();
    all.join(" && ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_become_cel() {
        let resolve =
            |inner: &str| Ok(inner.replace("steps", "tasks").replace("inputs.parameters", "params"));
        for (text, cel) in [
            (
                "{{steps.flip-coin.outputs.result}} == heads",
                "string(tasks[\"flip-coin\"].outputs.result) == \"heads\"",
            ),
            ("'{{inputs.parameters.a}}' != 'x y'", "string(params.a) != \"x y\""),
            (
                "{{item}} > 3 && !({{item}} == 5 || true)",
                "double(item) > 3.0 && !((string(item) == \"5\" || true))",
            ),
            ("{{inputs.parameters.run}}", "string(params.run) == \"true\""),
        ] {
            assert_eq!(condition(text, &resolve).unwrap(), cel, "{text}");
        }
        for refused in
            ["{{a}} ==", "({{a}} == b", "{{=a}} == b", "{{a}} + 1 == 2", "'x{{a}}' == b", &"(".repeat(99)]
        {
            assert!(condition(refused, &resolve).is_err(), "{refused}");
        }
    }

    #[test]
    fn conditions_on_objects_become_cel() {
        assert_eq!(
            object_condition("status.succeeded > 0").unwrap(),
            "\"status\" in object && \"succeeded\" in object.status && double(object.status.succeeded) > 0.0"
        );
        assert!(object_condition("status.phase in (A)").is_err());
    }
}
