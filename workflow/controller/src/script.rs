//! How a script runs in the one container of its task.

/// Environment variable with a script whose interpreter takes files alone.
pub(crate) const SCRIPT: &str = "FREEHOLD_SCRIPT";

/// The command of a script, and whether the script has to be in [`SCRIPT`].
pub(crate) fn command(given: &[String], script: &str) -> (Vec<String>, bool) {
    let interpreter: Vec<String> =
        match (given, script.strip_prefix("#!").and_then(|rest| rest.lines().next())) {
            ([], Some(line)) => line.split_whitespace().map(str::to_owned).collect(),
            ([], None) => vec!["/bin/sh".to_owned()],
            (given, _) => given.to_vec(),
        };
    if given.len() > 1 {
        // The command says how it takes its script.
        return ([interpreter, vec![script.to_owned()]].concat(), false);
    }
    let name = interpreter.last().map(|word| word.rsplit('/').next().unwrap_or(word)).unwrap_or_default();
    let flag = match name {
        "sh" | "bash" | "ash" | "dash" | "zsh" | "ksh" => Some("-c"),
        name if name.starts_with("python") => Some("-c"),
        "node" | "perl" | "ruby" => Some("-e"),
        "php" => Some("-r"),
        _ => None,
    };
    match flag {
        // `php -r` takes no opening tag and others no line that names them: comments to most, and not to it.
        Some(flag) => ([interpreter, vec![flag.to_owned(), script.to_owned()]].concat(), false),
        None => {
            let words: Vec<String> =
                interpreter.iter().map(|word| format!("'{}'", word.replace('\'', "'\\''"))).collect();
            let run =
                format!("f=$(mktemp) && printf %s \"${SCRIPT}\" > \"$f\" && exec {} \"$f\"", words.join(" "));
            (vec!["/bin/sh".to_owned(), "-c".to_owned(), run], true)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(given: &[&str], script: &str) -> (Vec<String>, bool) {
        command(&given.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>(), script)
    }

    #[test]
    fn a_script_runs_in_its_interpreter_without_a_container_beside_it() {
        // Kontroler ran all scripts in /bin/sh, whatever their first line said, and needed an init container.
        assert_eq!(words(&[], "exit 0"), (vec!["/bin/sh".into(), "-c".into(), "exit 0".into()], false));
        let python = "#!/usr/bin/env python3\nprint(1)";
        assert_eq!(words(&[], python).0, ["/usr/bin/env", "python3", "-c", python]);
        assert_eq!(words(&["bash"], "x").0, ["bash", "-c", "x"]);
        assert_eq!(words(&["bash", "-euc"], "x").0, ["bash", "-euc", "x"]);
        let (other, in_variable) = words(&["lua"], "x");
        assert!(in_variable && other[2].ends_with("exec 'lua' \"$f\""), "{other:?}");
    }
}
