//! Doc comments of Rust source, each with the item below it.
//!
//! Like [`source`](crate::source) this scans lines and does not parse: enough to hold first words, lengths and sections.

/// A doc comment and the first lines of its item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doc {
    /// The line that the comment begins in, from 1.
    pub line: usize,
    /// Its text, a string for each line, without `///` or `//!`.
    pub text: Vec<String>,
    /// The signature below it on one line, up to its `{` or `;`; empty for comments of modules.
    pub item: String,
}

impl Doc {
    /// The words of the whole comment.
    pub fn words(&self) -> usize {
        self.text.iter().map(|line| line.split_whitespace().count()).sum()
    }

    /// Whether the item is a function that other crates can call.
    pub fn is_public_function(&self) -> bool {
        let Some(rest) = self.item.strip_prefix("pub ") else { return false };
        let mut words = rest.split_whitespace();
        words.find(|word| !matches!(*word, "const" | "async")) == Some("fn")
    }

    /// Whether the function gives back a `Result`.
    pub fn returns_result(&self) -> bool {
        let Some((_, returned)) = self.item.rsplit_once("->") else { return false };
        let path = returned.trim().split(['<', ' ', '{']).next().unwrap_or_default();
        path.rsplit("::").next() == Some("Result")
    }

    /// Whether it has a section on errors, as rustdoc's guidelines name it.
    pub fn tells_errors(&self) -> bool {
        self.text.iter().any(|line| line.trim() == "# Errors")
    }
}

/// All doc comments of a source file, in order.
pub fn docs(source: &str) -> Vec<Doc> {
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let mut found = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let Some(marker) = marker(lines[at]) else {
            at += 1;
            continue;
        };
        let length = lines[at..].iter().take_while(|line| line.starts_with(marker)).count();
        let text = lines[at..at + length].iter().map(|line| line[marker.len()..].trim().to_owned());
        let item = if marker == "///" { item(&lines[at + length..]) } else { String::new() };
        found.push(Doc { line: at + 1, text: text.collect(), item });
        at += length;
    }
    found
}

fn marker(line: &str) -> Option<&'static str> {
    // Four slashes are an ordinary comment.
    ["//!", "///"].into_iter().find(|marker| line.starts_with(marker) && !line.starts_with("////"))
}

/// The signature behind attributes and ordinary comments.
fn item(lines: &[&str]) -> String {
    let mut rest = lines.iter();
    let mut open = 0_usize;
    let first = rest.find(|line| {
        let is_attribute = open > 0 || line.starts_with("#[");
        if is_attribute {
            open = (open + line.matches('[').count()).saturating_sub(line.matches(']').count());
        }
        !is_attribute && !line.starts_with("//")
    });
    let Some(first) = first else { return String::new() };
    let mut item = (*first).to_owned();
    while !item.contains('{') && !item.ends_with(';') && !item.ends_with(',') {
        let Some(line) = rest.next() else { break };
        item = format!("{item} {line}");
    }
    // A list of parameters or generics over several lines.
    while item.contains("fn ") && !item.contains('{') && !item.ends_with(';') {
        let Some(line) = rest.next() else { break };
        item = format!("{item} {line}");
    }
    item
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_is_read_with_the_signature_below_it() {
        let source = "//! A module.\n\n/// Reads\n/// it.\n#[must_use = \"a [b]\"]\npub async fn read(\n    a: u8,\n) \
                      -> io::Result<u8> {\n}\n/// A field.\nname: String,\n";
        let found = docs(source);
        assert_eq!(found[0], Doc { line: 1, text: vec!["A module.".into()], item: String::new() });
        assert_eq!(found[1].text, ["Reads", "it."]);
        assert_eq!(found[1].item, "pub async fn read( a: u8, ) -> io::Result<u8> {");
        assert_eq!(found[2].item, "name: String,");
        assert_eq!(found.len(), 3);
    }

    #[test]
    fn public_functions_and_their_results_are_told_apart() {
        let rows = [
            ("pub fn a() -> Result<u8> {", true, true),
            ("pub const fn a() -> Option<Result<u8>> {", true, false),
            ("pub async fn a() -> std::io::Result<()> where T: X {", true, true),
            ("pub fn a() -> Vec<u8> {", true, false),
            ("pub(crate) fn a() -> Result<u8> {", false, true),
            ("pub struct Result {", false, false),
        ];
        for (item, public, result) in rows {
            let doc = Doc { line: 1, text: Vec::new(), item: item.to_owned() };
            assert_eq!((doc.is_public_function(), doc.returns_result()), (public, result), "{item}");
        }
    }
}
