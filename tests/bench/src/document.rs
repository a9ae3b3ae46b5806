//! `docs/benchmarks.md`: the table of goals and the tables of each part, between markers that name them. Everything else
//! in it is for people.

use crate::goals;
use crate::options::Options;
use crate::report::{Report, Table};
use anyhow::{Context, Result};
use std::fmt::Write as _;

/// The part's markers stand above this line when they are new.
const END: &str = "<!-- end of the tables -->";

/// Replaces the tables of one part, and the goals that it measured.
pub(crate) fn write(options: &Options, machine: &str, part: &str, report: &Report) -> Result<()> {
    let path = &options.document;
    let mut text =
        std::fs::read_to_string(path).with_context(|| format!("{} can't be read", path.display()))?;
    let goals = between(&text, "goals")
        .with_context(|| format!("{} has no markers for the goals", path.display()))?;
    let goals = goals::table(goals, &report.reached);
    text = replace(&text, "goals", &goals).unwrap_or(text);
    if between(&text, part).is_none() {
        text = text.replace(END, &format!("<!-- {part}: begin -->\n<!-- {part}: end -->\n\n{END}"));
    }
    text = replace(&text, part, &render(machine, report))
        .with_context(|| format!("{} has no markers for {part}", path.display()))?;
    std::fs::write(path, text).with_context(|| format!("{} can't be written", path.display()))
}

fn markers(part: &str) -> (String, String) {
    (format!("<!-- {part}: begin -->"), format!("<!-- {part}: end -->"))
}

fn between<'a>(text: &'a str, part: &str) -> Option<&'a str> {
    let (begin, end) = markers(part);
    Some(text.split_once(&begin)?.1.split_once(&end)?.0)
}

/// Puts tables between a part's markers; `None` when a marker is missing.
pub(crate) fn replace(text: &str, part: &str, tables: &str) -> Option<String> {
    let (begin, end) = markers(part);
    let (before, rest) = text.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}{begin}\n{tables}{end}{after}"))
}

fn render(machine: &str, report: &Report) -> String {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args = if args.is_empty() { String::new() } else { format!(" ARGS=\"{}\"", args.join(" ")) };
    let mut text = format!("`make bench{args}`. {machine}\n");
    for table in &report.tables {
        render_table(&mut text, table);
    }
    text
}

fn render_table(text: &mut String, table: &Table) {
    let kinds = table.kinds();
    let mut headings: Vec<&str> = kinds.iter().map(|kind| kind.heading()).collect();
    if headings.contains(&"kube-apiserver") {
        headings.push("better by");
    }
    // Writing to a String can't fail.
    let _ = writeln!(text, "\n### {}\n\n| | {} |", table.title, headings.join(" | "));
    let _ = writeln!(text, "| --- |{}", " ---: |".repeat(headings.len()));
    for (index, (name, _)) in table.rows.iter().enumerate() {
        let _ = writeln!(text, "| {name} | {} |", table.cells(index, &kinds).join(" | "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Value;
    use crate::subject::Kind;

    #[test]
    fn only_what_is_between_the_markers_of_a_part_changes() {
        let text = "a\n<!-- idle: begin -->\nold\n<!-- idle: end -->\nb\n";
        let expected = "a\n<!-- idle: begin -->\nnew\n<!-- idle: end -->\nb\n";
        assert_eq!(replace(text, "idle", "new\n").as_deref(), Some(expected));
        assert_eq!(replace(text, "verbs", "new\n"), None);
    }

    #[test]
    fn a_table_has_a_column_for_each_server_that_was_measured() {
        let mut report = Report::default();
        report.add("Idle", "threads", Kind::Embedded, Value::Count(3));
        report.add("Idle", "memory", Kind::Kube, Value::Bytes(2_000_000));
        let mut text = String::new();
        render_table(&mut text, &report.tables[0]);
        let expected = "\n### Idle\n\n| | embedded | kube-apiserver | better by |\n| --- | ---: | ---: | ---: |\n\
                        | threads | 3 |  |  |\n| memory |  | 2.0 MB |  |\n";
        assert_eq!(text, expected);
    }
}
