//! The tables of `docs/benchmarks.md`, between markers that name the engine. Everything else in it is for people.

use crate::Options;
use crate::report::{Report, Section};
use anyhow::{Context, Result};
use std::fmt::Write as _;

/// Replaces the tables of the engine that was measured.
pub(crate) fn write(options: &Options, machine: &str, report: &Report) -> Result<()> {
    let path = &options.document;
    let text = std::fs::read_to_string(path).with_context(|| format!("{} can't be read", path.display()))?;
    let engine = options.engine.name();
    let text = replace(&text, engine, &render(machine, report))
        .with_context(|| format!("{} has no markers for the {engine} engine", path.display()))?;
    std::fs::write(path, text).with_context(|| format!("{} can't be written", path.display()))
}

/// `None` when a marker is missing.
fn replace(text: &str, engine: &str, tables: &str) -> Option<String> {
    let (begin, end) = (format!("<!-- {engine}: begin -->"), format!("<!-- {engine}: end -->"));
    let (before, rest) = text.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}{begin}\n{tables}{end}{after}"))
}

fn render(machine: &str, report: &Report) -> String {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args = if args.is_empty() { String::new() } else { format!(" ARGS=\"{}\"", args.join(" ")) };
    let mut text = format!("`make bench{args}`. {machine}\n");
    for section in &report.sections {
        text += &table(section);
    }
    text
}

fn table(section: &Section) -> String {
    let mut text = format!("\n### {}\n\n| | measured | bound |\n| --- | ---: | --- |\n", section.title);
    for figure in &section.figures {
        // Writing to a String can't fail.
        let _ = writeln!(text, "| {} | {} | {} |", figure.name, figure.value, figure.verdict());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_markers_of_an_engine_changes() {
        let text = "a\n<!-- etcd: begin -->\nold\n<!-- etcd: end -->\nb\n";
        let expected = "a\n<!-- etcd: begin -->\nnew\n<!-- etcd: end -->\nb\n";
        assert_eq!(replace(text, "etcd", "new\n").as_deref(), Some(expected));
        assert_eq!(replace(text, "embedded", "new\n"), None);
    }
}
