//! Unified diffs, with the matches that `difflib` finds.

use std::collections::HashMap;

/// Lines around each change.
const CONTEXT: usize = 3;
/// From how many lines on such as are frequent start no match.
const LONG: usize = 200;

/// A run of lines: whether they are equal, and the ranges in both texts.
#[derive(Clone, Copy, Debug)]
struct Run {
    equal: bool,
    a: (usize, usize),
    b: (usize, usize),
}

/// A unified diff of two texts, without a header; empty where they are equal.
pub fn unified_diff(a: &str, b: &str) -> String {
    let (a, b): (Vec<&str>, Vec<&str>) = (a.split('\n').collect(), b.split('\n').collect());
    let mut out = String::new();
    for group in groups(&runs(&a, &b)) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
        let (from, to) = (range(first.a.0, last.a.1), range(first.b.0, last.b.1));
        out.push_str(&format!("@@ -{from} +{to} @@\n"));
        for run in &group {
            let mut lines = |mark: char, lines: &[&str]| {
                lines.iter().for_each(|line| out.push_str(&format!("{mark}{line}\n")));
            };
            if run.equal {
                lines(' ', &a[run.a.0..run.a.1]);
            } else {
                lines('-', &a[run.a.0..run.a.1]);
                lines('+', &b[run.b.0..run.b.1]);
            }
        }
    }
    out
}

fn range(start: usize, stop: usize) -> String {
    match stop - start {
        1 => (start + 1).to_string(),
        0 => format!("{start},0"),
        length => format!("{},{length}", start + 1),
    }
}

/// Runs with their context, those near each other together.
fn groups(runs: &[Run]) -> Vec<Vec<Run>> {
    if runs.iter().all(|run| run.equal) {
        return Vec::new();
    }
    let (mut groups, mut group) = (Vec::new(), Vec::new());
    for (index, run) in runs.iter().enumerate() {
        if !run.equal {
            group.push(*run);
            continue;
        }
        let length = run.a.1 - run.a.0;
        let head = Run {
            a: (run.a.0, run.a.1.min(run.a.0 + CONTEXT)),
            b: (run.b.0, run.b.1.min(run.b.0 + CONTEXT)),
            ..*run
        };
        let tail = Run {
            a: (run.a.0.max(run.a.1.saturating_sub(CONTEXT)), run.a.1),
            b: (run.b.0.max(run.b.1.saturating_sub(CONTEXT)), run.b.1),
            ..*run
        };
        if index == 0 {
            group.push(tail);
        } else if index + 1 == runs.len() {
            group.push(head);
        } else if length > 2 * CONTEXT {
            group.push(head);
            groups.push(std::mem::replace(&mut group, vec![tail]));
        } else {
            group.push(*run);
        }
    }
    groups.push(group);
    groups
}

fn runs(a: &[&str], b: &[&str]) -> Vec<Run> {
    let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
    for (index, line) in b.iter().enumerate() {
        places.entry(line).or_default().push(index);
    }
    if b.len() >= LONG {
        let frequent = b.len() / 100 + 1;
        places.retain(|_, at| at.len() <= frequent);
    }
    let mut matches = Vec::new();
    let mut open = vec![(0, a.len(), 0, b.len())];
    while let Some((a0, a1, b0, b1)) = open.pop() {
        let (i, j, size) = longest(a, b, &places, (a0, a1), (b0, b1));
        if size > 0 {
            matches.push((i, j, size));
            open.push((a0, i, b0, j));
            open.push((i + size, a1, j + size, b1));
        }
    }
    matches.sort_unstable();
    matches.push((a.len(), b.len(), 0));
    let (mut at, mut found) = ((0, 0), Vec::<Run>::new());
    for (i, j, size) in matches {
        if at.0 < i || at.1 < j {
            found.push(Run { equal: false, a: (at.0, i), b: (at.1, j) });
        }
        if size > 0 {
            match found.last_mut().filter(|run| run.equal) {
                Some(run) => (run.a.1, run.b.1) = (i + size, j + size),
                None => found.push(Run { equal: true, a: (i, i + size), b: (j, j + size) }),
            }
        }
        at = (i + size, j + size);
    }
    found
}

/// The longest equal run that begins with a line of `places`, grown to both sides.
fn longest(
    a: &[&str],
    b: &[&str],
    places: &HashMap<&str, Vec<usize>>,
    (a0, a1): (usize, usize),
    (b0, b1): (usize, usize),
) -> (usize, usize, usize) {
    let (mut i, mut j, mut size) = (a0, b0, 0);
    let mut lengths: HashMap<usize, usize> = HashMap::new();
    for (x, line) in a.iter().enumerate().take(a1).skip(a0) {
        let mut next = HashMap::new();
        for y in places.get(line).into_iter().flatten().copied().filter(|y| (b0..b1).contains(y)) {
            let length = y.checked_sub(1).and_then(|y| lengths.get(&y)).unwrap_or(&0) + 1;
            next.insert(y, length);
            if length > size {
                (i, j, size) = (x + 1 - length, y + 1 - length, length);
            }
        }
        lengths = next;
    }
    while i > a0 && j > b0 && a[i - 1] == b[j - 1] {
        (i, j, size) = (i - 1, j - 1, size + 1);
    }
    while i + size < a1 && j + size < b1 && a[i + size] == b[j + size] {
        size += 1;
    }
    (i, j, size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_shown_with_three_lines_around_them() {
        let a: Vec<String> = (1..=20).map(|n| n.to_string()).collect();
        let mut b = a.clone();
        b[9] = "ten".into();
        let diff = unified_diff(&a.join("\n"), &b.join("\n"));
        assert_eq!(diff, "@@ -7,7 +7,7 @@\n 7\n 8\n 9\n-10\n+ten\n 11\n 12\n 13\n");
        assert_eq!(unified_diff("a\nb", "a\nb"), "");
        assert_eq!(unified_diff("a", "a\nb"), "@@ -1 +1,2 @@\n a\n+b\n");
    }
}
