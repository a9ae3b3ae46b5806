//! The grammar of label selectors in text.
//!
//! `in` and `notin` are operators only where an operator can stand; elsewhere they are keys and values.

use super::labels::{LabelRequirement, Operator, invalid_key};
use std::collections::BTreeSet;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    End,
    Open,
    Close,
    Comma,
    Not,
    Symbol(Operator),
    Word,
}

/// Reads requirements out of a selector's text.
pub(super) struct Parser<'s> {
    rest: &'s str,
}

const SPECIAL: [char; 7] = ['=', '!', '(', ')', ',', '>', '<'];
const SPACE: [char; 4] = [' ', '\t', '\r', '\n'];

impl<'s> Parser<'s> {
    pub(super) fn new(selector: &'s str) -> Self {
        Self { rest: selector.split('\0').next().unwrap_or_default() }
    }

    /// The next token, its text, and what follows it.
    fn scan(&self) -> (Token, &'s str, &'s str) {
        let text = self.rest.trim_start_matches(SPACE);
        let symbols = [
            ("==", Token::Symbol(Operator::DoubleEquals)),
            ("!=", Token::Symbol(Operator::NotEquals)),
            ("=", Token::Symbol(Operator::Equals)),
            (">", Token::Symbol(Operator::GreaterThan)),
            ("<", Token::Symbol(Operator::LessThan)),
            ("!", Token::Not),
            (",", Token::Comma),
            ("(", Token::Open),
            (")", Token::Close),
        ];
        if text.is_empty() {
            return (Token::End, text, text);
        }
        match symbols.iter().find(|(symbol, _)| text.starts_with(symbol)) {
            Some((symbol, token)) => (*token, &text[..symbol.len()], &text[symbol.len()..]),
            None => {
                let end = text.find(|c| SPECIAL.contains(&c) || SPACE.contains(&c)).unwrap_or(text.len());
                (Token::Word, &text[..end], &text[end..])
            }
        }
    }

    fn peek(&self) -> (Token, &'s str) {
        let (token, text, _) = self.scan();
        (token, text)
    }

    fn next(&mut self) -> (Token, &'s str) {
        let (token, text, rest) = self.scan();
        self.rest = rest;
        (token, text)
    }

    /// All requirements, in the order of the text.
    pub(super) fn parse(mut self) -> Result<Vec<LabelRequirement>, String> {
        let mut requirements = Vec::new();
        loop {
            match self.peek() {
                (Token::Word | Token::Not, _) => {}
                (Token::End, _) => return Ok(requirements),
                (_, text) => {
                    return Err(format!("found '{text}', expected: !, identifier, or 'end of string'"));
                }
            }
            requirements.push(self.requirement().map_err(|e| format!("unable to parse requirement: {e}"))?);
            match self.next() {
                (Token::End, _) => return Ok(requirements),
                (Token::Comma, _) => match self.peek() {
                    (Token::Word | Token::Not, _) => {}
                    (_, text) => return Err(format!("found '{text}', expected: identifier after ','")),
                },
                (_, text) => return Err(format!("found '{text}', expected: ',' or 'end of string'")),
            }
        }
    }

    fn requirement(&mut self) -> Result<LabelRequirement, String> {
        let negated = self.peek().0 == Token::Not;
        if negated {
            self.next();
        }
        let key = match self.next() {
            (Token::Word, key) => key,
            (_, text) => return Err(format!("found '{text}', expected: identifier")),
        };
        if let Some(error) = invalid_key("<nil>", key) {
            return Err(error.to_string());
        }
        if negated {
            return LabelRequirement::new(key, Operator::DoesNotExist, Vec::new());
        }
        if matches!(self.peek().0, Token::End | Token::Comma) {
            return LabelRequirement::new(key, Operator::Exists, Vec::new());
        }
        let operator = self.operator()?;
        let values = match operator {
            Operator::In | Operator::NotIn => self.values()?,
            _ => vec![self.value()?],
        };
        LabelRequirement::new(key, operator, values)
    }

    fn operator(&mut self) -> Result<Operator, String> {
        match self.next() {
            (Token::Symbol(operator), _) => Ok(operator),
            (Token::Word, "in") => Ok(Operator::In),
            (Token::Word, "notin") => Ok(Operator::NotIn),
            (_, text) => Err(format!("found '{text}', expected: in, notin, =, ==, !=, gt, lt")),
        }
    }

    fn value(&mut self) -> Result<String, String> {
        if matches!(self.peek().0, Token::End | Token::Comma) {
            return Ok(String::new());
        }
        match self.next() {
            (Token::Word, value) => Ok(value.to_owned()),
            (_, text) => Err(format!("found '{text}', expected: identifier")),
        }
    }

    /// `(a, b)`; an empty place between commas or parentheses is the empty value.
    fn values(&mut self) -> Result<Vec<String>, String> {
        match self.next() {
            (Token::Open, _) => {}
            (_, text) => return Err(format!("found '{text}' expected: '('")),
        }
        if !matches!(self.peek().0, Token::Word | Token::Comma | Token::Close) {
            return Err(format!("found '{}', expected: ',', ')' or identifier", self.peek().1));
        }
        let mut values = BTreeSet::new();
        let mut wants_value = true;
        loop {
            match (self.next(), wants_value) {
                ((Token::Word, value), true) => {
                    values.insert(value.to_owned());
                    wants_value = false;
                }
                ((token @ (Token::Comma | Token::Close), _), _) => {
                    if wants_value {
                        values.insert(String::new());
                    }
                    if token == Token::Close {
                        return Ok(values.into_iter().collect());
                    }
                    wants_value = true;
                }
                ((_, text), true) => return Err(format!("found '{text}', expected: ',', or identifier")),
                ((_, text), false) => return Err(format!("found '{text}', expected: ',' or ')'")),
            }
        }
    }
}
