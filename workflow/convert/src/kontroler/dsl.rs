//! Kontroler's text form of a DAG: `schedule`, `parameters`, `graph` and `task` blocks.

use freehold_machinery::Value;
use serde_json::{Map, json};

/// Bytes of a text.
const MAX_BYTES: usize = 1 << 20;
/// Attempts where a task says nothing.
const BACKOFF: i64 = 3;

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Word(String),
    Text(String),
    Number(i64),
    Sign(&'static str),
}

/// Reads a text as fields of the spec: `schedule`, `parameters` and `task`.
///
/// # Errors
/// What is wrong, and in which line.
pub(super) fn parse(text: &str) -> Result<Map<String, Value>, String> {
    if text.len() > MAX_BYTES {
        return Err(format!("{} bytes; at most {MAX_BYTES}", text.len()));
    }
    let mut parser = Parser { tokens: tokens(text)?, at: 0 };
    let mut spec = Map::new();
    let (mut tasks, mut edges) = (Vec::new(), Vec::new());
    while parser.at < parser.tokens.len() {
        match parser.word()?.as_str() {
            "schedule" => {
                spec.insert("schedule".into(), parser.text()?.into());
            }
            "parameters" => {
                spec.insert("parameters".into(), parser.parameters()?.into());
            }
            "graph" => parser.graph(&mut edges)?,
            "task" => tasks.push(parser.task()?),
            other => return Err(parser.wrong(&format!("unknown block {other:?}"))),
        }
    }
    for (before, after) in edges {
        for name in [&before, &after] {
            if !tasks.iter().any(|task| task["name"] == name.as_str()) {
                return Err(format!("graph: there is no task {name:?}"));
            }
        }
        let task = tasks.iter_mut().find(|task| task["name"] == after.as_str());
        if let Some(list) = task.and_then(|task| task["runAfter"].as_array_mut()) {
            list.push(before.into());
        }
    }
    spec.insert("task".into(), tasks.into());
    Ok(spec)
}

struct Parser {
    tokens: Vec<(usize, Token)>,
    at: usize,
}

impl Parser {
    fn wrong(&self, why: &str) -> String {
        let line = self.tokens.get(self.at.saturating_sub(1)).map_or(0, |(line, _)| *line);
        format!("line {line}: {why}")
    }

    fn next(&mut self) -> Result<Token, String> {
        let token = self.tokens.get(self.at).map(|(_, token)| token.clone());
        self.at += 1;
        token.ok_or_else(|| self.wrong("the text ends too early"))
    }

    fn word(&mut self) -> Result<String, String> {
        match self.next()? {
            Token::Word(word) => Ok(word),
            other => Err(self.wrong(&format!("a name is wanted, not {other:?}"))),
        }
    }

    fn text(&mut self) -> Result<String, String> {
        match self.next()? {
            Token::Text(text) => Ok(text),
            other => Err(self.wrong(&format!("a quoted text is wanted, not {other:?}"))),
        }
    }

    fn sign(&mut self, wanted: &'static str) -> Result<(), String> {
        match self.next()? {
            Token::Sign(sign) if sign == wanted => Ok(()),
            other => Err(self.wrong(&format!("{wanted} is wanted, not {other:?}"))),
        }
    }

    fn takes(&mut self, wanted: &'static str) -> bool {
        let found = matches!(self.tokens.get(self.at), Some((_, Token::Sign(sign))) if *sign == wanted);
        self.at += usize::from(found);
        found
    }

    fn parameters(&mut self) -> Result<Vec<Value>, String> {
        self.sign("{")?;
        let mut parameters = Vec::new();
        while !self.takes("}") {
            let name = self.word()?;
            self.sign("{")?;
            let field = match self.word()?.as_str() {
                "default" => "defaultValue",
                "defaultFromSecret" => "defaultFromSecret",
                other => {
                    return Err(self.wrong(&format!("default or defaultFromSecret is wanted, not {other:?}")));
                }
            };
            parameters.push(json!({"name": name, field: self.text()?}));
            self.sign("}")?;
        }
        Ok(parameters)
    }

    /// `a -> b`, `a -> { b, c }` and `a -> b -> c`.
    fn graph(&mut self, edges: &mut Vec<(String, String)>) -> Result<(), String> {
        self.sign("{")?;
        while !self.takes("}") {
            let mut from = vec![self.word()?];
            while self.takes("->") {
                let mut to = Vec::new();
                if self.takes("{") {
                    while !self.takes("}") {
                        to.push(self.word()?);
                        self.takes(",");
                    }
                } else {
                    to.push(self.word()?);
                }
                for before in &from {
                    edges.extend(to.iter().map(|after| (before.clone(), after.clone())));
                }
                from = to;
            }
        }
        Ok(())
    }

    fn task(&mut self) -> Result<Value, String> {
        let mut task = json!({"name": self.word()?, "runAfter": [], "backoff": {"limit": BACKOFF}});
        self.sign("{")?;
        while !self.takes("}") {
            match self.word()?.as_str() {
                field @ ("image" | "script") => task[field] = self.text()?.into(),
                field @ ("command" | "args" | "parameters") => task[field] = self.list()?.into(),
                "retry" => task["conditional"] = json!({"enabled": true, "retryCodes": self.list()?}),
                "backoff" => match self.next()? {
                    Token::Number(limit) => task["backoff"] = json!({"limit": limit}),
                    other => return Err(self.wrong(&format!("a number is wanted, not {other:?}"))),
                },
                other => return Err(self.wrong(&format!("unknown field {other:?}"))),
            }
        }
        Ok(task)
    }

    fn list(&mut self) -> Result<Vec<Value>, String> {
        self.sign("[")?;
        let mut items = Vec::new();
        while !self.takes("]") {
            items.push(match self.next()? {
                Token::Text(text) | Token::Word(text) => text.into(),
                Token::Number(number) => number.into(),
                other => return Err(self.wrong(&format!("an item is wanted, not {other:?}"))),
            });
            self.takes(",");
        }
        Ok(items)
    }
}

fn tokens(text: &str) -> Result<Vec<(usize, Token)>, String> {
    let mut tokens = Vec::new();
    let (mut rest, mut line) = (text, 1);
    while let Some(first) = rest.chars().next() {
        let mut used = first.len_utf8();
        if first.is_whitespace() || first == ';' {
        } else if rest.starts_with("//") {
            used = rest.find('\n').unwrap_or(rest.len());
        } else if let Some(inner) = rest.strip_prefix("\"\"\"") {
            let end = inner.find("\"\"\"").ok_or_else(|| format!("line {line}: a text without end"))?;
            tokens.push((line, Token::Text(inner[..end].to_owned())));
            used = end + 6;
        } else if first == '"' {
            let end = rest[1..].find('"').ok_or_else(|| format!("line {line}: a text without end"))?;
            tokens.push((line, Token::Text(rest[1..=end].to_owned())));
            used = end + 2;
        } else if let Some(sign) =
            ["->", "{", "}", "[", "]", ","].into_iter().find(|sign| rest.starts_with(sign))
        {
            tokens.push((line, Token::Sign(sign)));
            used = sign.len();
        } else {
            let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            // `a->b` is an arrow, not a name with a hyphen.
            used = rest
                .char_indices()
                .find(|(at, c)| !is_word(*c) || rest[*at..].starts_with("->"))
                .map_or(rest.len(), |(at, _)| at);
            let word = &rest[..used];
            tokens.push((
                line,
                match word.parse() {
                    Ok(number) => Token::Number(number),
                    Err(_) if first.is_ascii_alphabetic() || first == '_' => Token::Word(word.to_owned()),
                    Err(_) => return Err(format!("line {line}: unexpected {first:?}")),
                },
            ));
        }
        line += rest[..used].matches('\n').count();
        rest = &rest[used..];
    }
    Ok(tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_become_fields() {
        let text = "schedule \"*/5 * * * *\"\nparameters { A { default \"x\" } B { defaultFromSecret \"s\" } }\n\
             graph { // order\n a -> { b, c }\n b->d }\ntask a { image \"i\" script \"\"\"echo \"hi\"\n\"\"\" retry [1, 2] backoff 5 }\n\
             task b { image \"i\" command [\"sh\"] parameters [A] }\ntask c { image \"i\" }\ntask d { image \"i\" }";
        let spec = parse(text).unwrap();
        assert_eq!(
            spec["parameters"],
            json!([{"name": "A", "defaultValue": "x"}, {"name": "B", "defaultFromSecret": "s"}])
        );
        assert_eq!(spec["task"][0]["conditional"], json!({"enabled": true, "retryCodes": [1, 2]}));
        assert_eq!(spec["task"][3]["runAfter"], json!(["b"]));
        assert_eq!(spec["task"][1]["backoff"]["limit"], 3);
        assert!(parse("graph { a -> b }\ntask a { image \"i\" }").unwrap_err().contains("no task \"b\""));
        assert!(parse("task a { image \"i }").unwrap_err().starts_with("line 1"));
        assert!(parse("\n\nparam x").unwrap_err().starts_with("line 3"));
    }
}
