//! Expressions over the outcomes of tasks: `build && (test.failed || !lint.skipped)`.
//!
//! A name alone means that the task succeeded. Outcomes are `succeeded`, `failed`, `skipped` and `done`, in any case.

/// An expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Depends {
    /// Whether a task has an outcome.
    Is(String, Outcome),
    /// Whether it is not so.
    Not(Box<Depends>),
    /// Whether all are so.
    All(Vec<Depends>),
    /// Whether one is so.
    Any(Vec<Depends>),
}

/// How a task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It succeeded.
    Succeeded,
    /// It failed.
    Failed,
    /// It was left out.
    Skipped,
    /// It ended, whichever way.
    Done,
}

/// Brackets and negations within each other that an expression may have.
const MAX_DEPTH: usize = 32;

impl Depends {
    /// Reads an expression.
    ///
    /// # Errors
    /// What is wrong with it and where.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parser = Parser { tokens: tokens(text)?, at: 0, depth: 0 };
        let expression = parser.any()?;
        match parser.peek() {
            None => Ok(expression),
            Some(token) => Err(format!("unexpected {token:?}")),
        }
    }

    /// The tasks that it names, each as often as it does.
    pub fn tasks(&self) -> Vec<&str> {
        match self {
            Self::Is(task, _) => vec![task],
            Self::Not(inner) => inner.tasks(),
            Self::All(inner) | Self::Any(inner) => inner.iter().flat_map(Self::tasks).collect(),
        }
    }

    /// Whether it holds, given what each task's outcome is.
    pub fn holds(&self, is: &impl Fn(&str, Outcome) -> bool) -> bool {
        match self {
            Self::Is(task, outcome) => is(task, *outcome),
            Self::Not(inner) => !inner.holds(is),
            Self::All(inner) => inner.iter().all(|inner| inner.holds(is)),
            Self::Any(inner) => inner.iter().any(|inner| inner.holds(is)),
        }
    }
}

struct Parser {
    tokens: Vec<String>,
    at: usize,
    depth: usize,
}

impl Parser {
    fn peek(&self) -> Option<&str> {
        self.tokens.get(self.at).map(String::as_str)
    }

    fn take(&mut self, token: &str) -> bool {
        let found = self.peek() == Some(token);
        self.at += usize::from(found);
        found
    }

    fn any(&mut self) -> Result<Depends, String> {
        let mut parts = vec![self.all()?];
        while self.take("||") {
            parts.push(self.all()?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Depends::Any(parts) })
    }

    fn all(&mut self) -> Result<Depends, String> {
        let mut parts = vec![self.one()?];
        while self.take("&&") {
            parts.push(self.one()?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Depends::All(parts) })
    }

    fn one(&mut self) -> Result<Depends, String> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(format!("more than {MAX_DEPTH} levels of brackets"));
        }
        let parsed = self.operand();
        self.depth -= 1;
        parsed
    }

    fn operand(&mut self) -> Result<Depends, String> {
        if self.take("!") {
            return Ok(Depends::Not(Box::new(self.one()?)));
        }
        if self.take("(") {
            let inner = self.any()?;
            return if self.take(")") { Ok(inner) } else { Err("a bracket is not closed".into()) };
        }
        let word = self.peek().ok_or("the name of a task is wanted at the end")?.to_owned();
        self.at += 1;
        let (task, outcome) = match word.split_once('.') {
            None => (word.as_str(), Outcome::Succeeded),
            Some((task, outcome)) => (task, read_outcome(outcome)?),
        };
        match task.chars().all(is_name) && !task.is_empty() {
            true => Ok(Depends::Is(task.to_owned(), outcome)),
            false => Err(format!("the name of a task is wanted in the place of {word:?}")),
        }
    }
}

fn read_outcome(text: &str) -> Result<Outcome, String> {
    match text.to_ascii_lowercase().as_str() {
        "succeeded" => Ok(Outcome::Succeeded),
        "failed" => Ok(Outcome::Failed),
        "skipped" => Ok(Outcome::Skipped),
        "done" => Ok(Outcome::Done),
        _ => Err(format!("unknown outcome {text:?}: succeeded, failed, skipped and done are known")),
    }
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-' || c == '_'
}

fn tokens(text: &str) -> Result<Vec<String>, String> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '(' | ')' | '!' => 1,
            '&' | '|' if rest.chars().nth(1) == Some(first) => 2,
            c if is_name(c) => rest.find(|c| !is_name(c) && c != '.').unwrap_or(rest.len()),
            other => return Err(format!("unexpected {other:?}")),
        };
        tokens.push(rest[..length].to_owned());
        rest = rest[length..].trim_start();
    }
    Ok(tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_hold_as_they_read() {
        let is = |task: &str, outcome: Outcome| {
            let known = [("ok", Outcome::Succeeded), ("bad-1", Outcome::Failed), ("none", Outcome::Skipped)];
            outcome == Outcome::Done || known.contains(&(task, outcome))
        };
        for (text, holds) in [
            ("ok", true),
            ("bad-1", false),
            ("bad-1.Failed && ok", true),
            ("!(ok && none.skipped) || bad-1", false),
            ("bad-1 || ok && none", false),
            ("bad-1.done&&!none", true),
        ] {
            assert_eq!(Depends::parse(text).unwrap().holds(&is), holds, "{text}");
        }
        for bad in ["", "a &&", "(a", "a b", "a.gone", "a & b", ".failed", "a)"] {
            assert!(Depends::parse(bad).is_err(), "{bad}");
        }
        assert!(Depends::parse(&"!".repeat(100)).is_err());
    }
}
