//! From the text of a JSON path to its steps.

use super::{Filter, InvalidPath, JsonPath, Operand, Operator, Step};
use freehold_machinery::Value;

const LENGTH: usize = 4096;
const DEPTH: usize = 8;

type Parsed<T> = Result<T, InvalidPath>;

pub(super) fn path(text: &str) -> Parsed<JsonPath> {
    if text.len() > LENGTH {
        return fail(format!("a JSON path has at most {LENGTH} bytes"));
    }
    let inner = match text.strip_prefix('{') {
        Some(rest) => rest.strip_suffix('}').ok_or_else(|| InvalidPath("unclosed action".to_owned()))?,
        None => text,
    };
    if inner.is_empty() {
        return fail("a JSON path is empty");
    }
    let mut parser = Parser { rest: inner, depth: 0 };
    let path = parser.path()?;
    if parser.rest.is_empty() { Ok(path) } else { fail(format!("unexpected {:?}", parser.rest)) }
}

fn fail<T>(why: impl Into<String>) -> Parsed<T> {
    Err(InvalidPath(why.into()))
}

struct Parser<'a> {
    rest: &'a str,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn eat(&mut self, token: &str) -> bool {
        let rest = self.rest.strip_prefix(token);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn expect(&mut self, token: &str) -> Parsed<()> {
        if self.eat(token) { Ok(()) } else { fail(format!("{token:?} is missing before {:?}", self.rest)) }
    }

    fn skip_spaces(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn path(&mut self) -> Parsed<JsonPath> {
        let mut steps = Vec::new();
        if !self.eat("$") && !self.eat("@") && !self.rest.starts_with(['.', '[']) {
            steps.extend(self.field()?);
        }
        loop {
            if self.eat("..") {
                steps.push(Step::Descend);
                steps.extend(self.field()?);
            } else if self.eat(".") {
                steps.extend(self.field()?);
            } else if self.eat("[") {
                steps.push(self.bracket()?);
            } else {
                return Ok(JsonPath { steps });
            }
        }
    }

    /// A field's name after a dot; none before a bracket or at the end.
    fn field(&mut self) -> Parsed<Option<Step>> {
        if self.eat("*") {
            return Ok(Some(Step::Wildcard));
        }
        let mut name = String::new();
        while let Some(c) = self.rest.chars().next() {
            if c == '\\' {
                self.rest = &self.rest[1..];
                let escaped = self.rest.chars().next();
                let escaped = escaped.ok_or_else(|| InvalidPath("a backslash ends the path".to_owned()))?;
                name.push(escaped);
                self.rest = &self.rest[escaped.len_utf8()..];
            } else if matches!(c, '.' | '[' | ']' | ')' | '=' | '!' | '<' | '>' | ' ' | '{' | '}') {
                break;
            } else {
                name.push(c);
                self.rest = &self.rest[c.len_utf8()..];
            }
        }
        Ok((!name.is_empty()).then(|| Step::Field(name.into())))
    }

    fn bracket(&mut self) -> Parsed<Step> {
        self.skip_spaces();
        if self.eat("?(") {
            return self.filter();
        }
        let mut steps = Vec::new();
        loop {
            self.skip_spaces();
            steps.push(self.element()?);
            self.skip_spaces();
            if !self.eat(",") {
                break;
            }
        }
        self.expect("]")?;
        Ok(if steps.len() == 1 { steps.remove(0) } else { Step::Union(steps) })
    }

    fn element(&mut self) -> Parsed<Step> {
        if self.eat("*") {
            return Ok(Step::Wildcard);
        }
        if self.rest.starts_with(['\'', '"']) {
            return Ok(Step::Field(self.quoted()?.into()));
        }
        let start = self.integer()?;
        if !self.eat(":") {
            let index = start.ok_or_else(|| InvalidPath(format!("invalid array index {:?}", self.rest)))?;
            return Ok(Step::Index(index));
        }
        let end = self.integer()?;
        let step = if self.eat(":") { self.integer()?.unwrap_or(1) } else { 1 };
        if step < 1 {
            return fail("the step of a slice is positive");
        }
        Ok(Step::Slice { start, end, step })
    }

    fn integer(&mut self) -> Parsed<Option<i64>> {
        let sign = usize::from(self.rest.starts_with('-'));
        let digits = self.rest[sign..].find(|c: char| !c.is_ascii_digit()).unwrap_or(self.rest.len() - sign);
        if digits == 0 {
            return Ok(None);
        }
        let (number, rest) = self.rest.split_at(sign + digits);
        self.rest = rest;
        number.parse().map(Some).or_else(|_| fail(format!("{number} is too large")))
    }

    fn quoted(&mut self) -> Parsed<String> {
        let quote = self.rest.chars().next().unwrap_or('\'');
        let mut text = String::new();
        let mut chars = self.rest.char_indices().skip(1);
        while let Some((at, c)) = chars.next() {
            if c == quote {
                self.rest = &self.rest[at + 1..];
                return Ok(text);
            }
            text.push(if c == '\\' { chars.next().map_or('\\', |(_, escaped)| escaped) } else { c });
        }
        fail("unterminated quoted string")
    }

    fn filter(&mut self) -> Parsed<Step> {
        self.depth += 1;
        if self.depth > DEPTH {
            return fail("filters are nested too deep");
        }
        let left = self.operand()?;
        self.skip_spaces();
        let test = match self.operator() {
            Some(operator) => Some((operator, self.operand()?)),
            None => None,
        };
        self.skip_spaces();
        self.expect(")")?;
        self.skip_spaces();
        self.expect("]")?;
        self.depth -= 1;
        Ok(Step::Filter(Filter { left, test }))
    }

    fn operator(&mut self) -> Option<Operator> {
        const OPERATORS: [(&str, Operator); 6] = [
            ("==", Operator::Equal),
            ("!=", Operator::NotEqual),
            ("<=", Operator::LessOrEqual),
            (">=", Operator::GreaterOrEqual),
            ("<", Operator::Less),
            (">", Operator::Greater),
        ];
        OPERATORS.into_iter().find(|(token, _)| self.eat(token)).map(|(_, operator)| operator)
    }

    fn operand(&mut self) -> Parsed<Operand> {
        self.skip_spaces();
        if self.rest.starts_with(['@', '$']) {
            return self.path().map(Operand::Path);
        }
        if self.rest.starts_with(['\'', '"']) {
            return Ok(Operand::Constant(Value::String(self.quoted()?)));
        }
        let end = self.rest.find([')', ' ', '=', '!', '<', '>']).unwrap_or(self.rest.len());
        let (literal, rest) = self.rest.split_at(end);
        self.rest = rest;
        let constant: Result<Value, _> = serde_json::from_str(literal);
        constant.map(Operand::Constant).or_else(|_| fail(format!("{literal:?} is no constant")))
    }
}
