//! `values.yaml` as documentation: each value with the comment above it.

use std::fmt::Write as _;

/// A line of the table of values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its name, with dots.
    pub name: String,
    /// What it is without being set, as it is written.
    pub default: String,
    /// The comment above it; empty where there is none.
    pub comment: String,
}

/// The values of a file in which a mapping with lines of its own is no value.
pub fn rows(text: &str) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut path: Vec<&str> = Vec::new();
    let mut comment: Vec<&str> = Vec::new();
    for line in text.lines() {
        let content = line.trim_start();
        if let Some(words) = content.strip_prefix('#') {
            comment.push(words.trim());
            continue;
        }
        let Some((key, value)) = content.split_once(':') else {
            comment.clear();
            continue;
        };
        path.truncate((line.len() - content.len()) / 2);
        path.push(key);
        if !value.trim().is_empty() {
            let (name, default) = (path.join("."), value.trim().to_owned());
            rows.push(Row { name, default, comment: comment.join(" ") });
        }
        comment.clear();
    }
    rows
}

/// The table of values, in Markdown.
pub fn table(rows: &[Row]) -> String {
    let mut table = "| value | default | what |\n| --- | --- | --- |\n".to_owned();
    for Row { name, default, comment } in rows {
        let escaped = |text: &str| text.replace('|', "\\|");
        // Writing to a String can't fail.
        let _ = writeln!(table, "| `{name}` | `{}` | {} |", escaped(default), escaped(comment));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_has_its_path_and_the_comment_above_it() {
        let rows = rows("# Of the file.\n\na:\n  # One\n  # line.\n  b: 1\n  c: {d: 2}\n# Last.\ne: \"\"\n");
        let told: Vec<(&str, &str, &str)> =
            rows.iter().map(|row| (&*row.name, &*row.default, &*row.comment)).collect();
        assert_eq!(told, [("a.b", "1", "One line."), ("a.c", "{d: 2}", ""), ("e", "\"\"", "Last.")]);
    }
}
