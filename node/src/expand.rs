//! `$(NAME)` in commands, arguments and variables, as `core/v1 Container.command` defines it, and mount paths in them.

use std::collections::HashMap;
use std::path::Path;

/// Puts variables in: `$(NAME)` becomes its value, `$$` becomes `$`, and what is not known stays as it is.
pub(crate) fn expand(text: &str, variables: &HashMap<String, String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            out.push('$');
            rest = after;
            continue;
        }
        match reference(rest) {
            Some((name, after)) => {
                match variables.get(name) {
                    Some(value) => out.push_str(value),
                    None => {
                        out.push_str("$(");
                        out.push_str(name);
                        out.push(')');
                    }
                }
                rest = after;
            }
            None => out.push('$'),
        }
    }
    out.push_str(rest);
    out
}

/// `(NAME)rest` as name and rest.
fn reference(text: &str) -> Option<(&str, &str)> {
    let inner = text.strip_prefix('(')?;
    inner.split_once(')')
}

/// Puts real directories in the place of mount paths.
///
/// Containers here have no file system of their own, so that a program finds a volume only where it really is. A mount
/// path is replaced wherever it stands as a whole path or as the beginning of one: in `--ca=/etc/x/ca.crt`, not in
/// `/srv/etc/x` nor in `/etc/xy`. The longest mount path wins.
pub(crate) fn rewrite(text: &str, mounts: &[(String, impl AsRef<Path>)]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let begins = !text[..at].ends_with(is_path_char);
        let here = &text[at..];
        let found = mounts
            .iter()
            .filter(|(path, _)| begins && here.starts_with(path.as_str()))
            .filter(|(path, _)| !here[path.len()..].starts_with(|c| is_path_char(c) && c != '/'))
            .max_by_key(|(path, _)| path.len());
        match found {
            Some((path, real)) => {
                out.push_str(&real.as_ref().to_string_lossy());
                at += path.len();
            }
            None => {
                let next = here.chars().next().map_or(1, char::len_utf8);
                out.push_str(&here[..next]);
                at += next;
            }
        }
    }
    out
}

fn is_path_char(c: char) -> bool {
    c.is_alphanumeric() || "/._-".contains(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_put_in_and_unknown_ones_stay() {
        let variables =
            HashMap::from([("A".to_owned(), "1".to_owned()), ("B".to_owned(), "$(A)".to_owned())]);
        let rows = [
            ("$(A)", "1"),
            ("x$(A)y$(A)", "x1y1"),
            ("$(B)", "$(A)"),
            ("$(C)", "$(C)"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$1"),
            ("$A $", "$A $"),
            ("$(A", "$(A"),
            ("ä$(A)ß", "ä1ß"),
        ];
        for (text, expected) in rows {
            assert_eq!(expand(text, &variables), expected, "{text}");
        }
    }

    #[test]
    fn mount_paths_become_real_ones_only_where_they_are_whole_paths() {
        let mounts = [("/etc/x".to_owned(), "/d/1"), ("/etc/x/y".to_owned(), "/d/2")];
        let rows = [
            ("/etc/x", "/d/1"),
            ("--ca=/etc/x/ca.crt", "--ca=/d/1/ca.crt"),
            ("/etc/x/y/z:/etc/x", "/d/2/z:/d/1"),
            ("/etc/xy", "/etc/xy"),
            ("/etc/x-y", "/etc/x-y"),
            ("/srv/etc/x", "/srv/etc/x"),
            ("/etc/x/yz", "/d/1/yz"),
            ("file:///etc/x", "file:///etc/x"),
            ("é=/etc/x", "é=/d/1"),
        ];
        for (text, expected) in rows {
            assert_eq!(rewrite(text, &mounts), expected, "{text}");
        }
    }
}
