//! Licence expressions (SPDX, as `Cargo.toml` has them) against a list of what is allowed.

/// Whether an expression can be met with allowed licences alone.
pub fn is_allowed(expression: &str, allowed: &[String]) -> bool {
    // Old manifests write `MIT/Apache-2.0`.
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    let met = any(&words, &mut at, allowed);
    met && at == words.len()
}

fn any(words: &[&str], at: &mut usize, allowed: &[String]) -> bool {
    let mut met = all(words, at, allowed);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        met |= all(words, at, allowed);
    }
    met
}

fn all(words: &[&str], at: &mut usize, allowed: &[String]) -> bool {
    let mut met = one(words, at, allowed);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        met &= one(words, at, allowed);
    }
    met
}

fn one(words: &[&str], at: &mut usize, allowed: &[String]) -> bool {
    let Some(word) = words.get(*at) else { return false };
    *at += 1;
    if *word == "(" {
        let met = any(words, at, allowed);
        *at += 1;
        return met;
    }
    let mut name = (*word).to_owned();
    if words.get(*at) == Some(&"WITH") {
        name = format!("{name} WITH {}", words.get(*at + 1).unwrap_or(&""));
        *at += 2;
    }
    allowed.contains(&name)
}

/// The strings of a list in a TOML file that has one string a line, as our `deny.toml` does.
pub fn toml_list(toml: &str, key: &str) -> Vec<String> {
    let begin = format!("{key} = [");
    let lines = toml.lines().skip_while(|line| !line.starts_with(&begin)).skip(1);
    let items = lines.take_while(|line| !line.starts_with(']'));
    items.filter_map(|line| line.split('"').nth(1)).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_is_met_by_allowed_licences_alone() {
        let allowed =
            ["MIT", "Apache-2.0", "Unicode-3.0", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned);
        let rows = [
            ("MIT", true),
            ("GPL-3.0", false),
            ("MIT OR GPL-3.0", true),
            ("MIT AND GPL-3.0", false),
            ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
            ("(MIT OR Apache-2.0) AND GPL-3.0", false),
            ("GPL-3.0/MIT", true),
            ("Apache-2.0 WITH LLVM-exception", true),
            ("GPL-2.0 WITH Classpath-exception", false),
            ("", false),
        ];
        for (expression, expected) in rows {
            assert_eq!(is_allowed(expression, &allowed), expected, "{expression:?}");
        }
    }

    #[test]
    fn a_list_is_read_from_toml() {
        let toml = "[licenses]\nallow = [\n    \"MIT\", # why\n    \"ISC\",\n]\nx = [\n  \"y\",\n]\n";
        assert_eq!(toml_list(toml, "allow"), ["MIT", "ISC"]);
    }
}
