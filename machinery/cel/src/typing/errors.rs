//! Complaints about an expression, shown as cel-go shows them: with the line and a mark below it.

use cel::common::ast::SourceInfo;

/// Complaints that are shown; of more, only their number is.
const SHOWN: usize = 100;
/// Bytes of a line that is shown.
const MAX_LINE: usize = 16 << 10;

/// A complaint: line and column (both from one), and what.
pub(crate) type Placed = (usize, usize, String);

/// Where an expression of the source stands: line and column, both from one.
pub(crate) fn place(source: &SourceInfo, id: u64) -> (usize, usize) {
    let offset = source.offset_for(id).map_or(0, |(start, _)| start as usize);
    let (mut line, mut column) = (1, 1);
    for c in source.source.char_indices().take_while(|(at, _)| *at < offset).map(|(_, c)| c) {
        match c {
            '\n' => (line, column) = (line + 1, 1),
            _ => column += 1,
        }
    }
    (line, column)
}

/// All complaints as one text, in the order of their places.
pub(crate) fn show(source: &str, mut complaints: Vec<Placed>) -> String {
    complaints.sort_by_key(|(line, column, _)| (*line, *column));
    let mut shown: Vec<String> =
        complaints.iter().take(SHOWN).map(|complaint| one(source, complaint)).collect();
    if complaints.len() > SHOWN {
        shown.push(format!("{} more errors were truncated", complaints.len() - SHOWN));
    }
    shown.join("\n")
}

fn one(source: &str, (line, column, message): &Placed) -> String {
    let mut out = format!("ERROR: <input>:{line}:{column}: {message}");
    let Some(text) = source.split('\n').nth(line.saturating_sub(1)).filter(|t| t.len() <= MAX_LINE) else {
        return out;
    };
    let text = text.replace('\t', " ");
    out.push_str("\n | ");
    out.push_str(&text);
    out.push_str("\n | ");
    let mut rest = text.chars();
    for c in rest.by_ref().take(column.saturating_sub(1)) {
        out.push(if c.is_ascii() { '.' } else { '\u{ff0e}' });
    }
    out.push(if rest.next().is_none_or(|c| c.is_ascii()) { '^' } else { '\u{ff3e}' });
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_are_shown_in_their_places() {
        let shown = show("a +\n\té.b", vec![(2, 3, "two".to_owned()), (1, 1, "one".to_owned())]);
        assert_eq!(shown, "ERROR: <input>:1:1: one\n | a +\n | ^\nERROR: <input>:2:3: two\n |  é.b\n | .．^");
    }
}
