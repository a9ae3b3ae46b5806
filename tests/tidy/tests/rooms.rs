//! Sizes of crates and files, and knots of imports between the modules of a crate.
//!
//! `make rooms` prints what is measured. What is beyond a limit stands in a table, with the figure that it has: such a table
//! only gets shorter, and its figures only get smaller.

use freehold_tests_tidy::{
    imports::Imports,
    source::{blank, functions, lines_outside_tests, without_tests},
    workspace::{SourceFile, files, packages},
};

/// Lines of a crate outside its tests.
const MAX_CRATE: usize = 10_000;
/// Lines of a file.
const MAX_FILE: usize = 600;
/// Modules of a crate each of which imports all others.
const MAX_KNOT: usize = 3;

/// Crates that have more lines.
const LARGE_CRATES: &[(&str, usize)] = &[];

/// Files that have more lines.
const LONG_FILES: &[(&str, usize)] = &[];

/// Crates whose largest knot has more modules.
const KNOTTED_CRATES: &[(&str, usize)] = &[
    // Verbs on exports and the registry that they belong to.
    ("apiserver/registry", 8),
    ("apiserver/planes", 8),
    ("tenancy/api", 6),
    ("tenancy/controllers", 6),
    ("tenancy/decide", 4),
    ("workflow/api", 5),
    ("workflow/cli", 5),
    ("workflow/controller", 16),
    ("workflow/convert", 10),
    ("workflow/server", 8),
    // What is measured, on which server, and as what it is reported.
    ("tests/bench", 4),
];

/// A crate and its source, tests aside.
struct Room {
    folder: String,
    files: Vec<SourceFile>,
}

/// All crates of the workspace, by folder.
fn rooms() -> Vec<Room> {
    let all = files(&[".rs"]);
    let mut folders: Vec<String> = packages().into_iter().map(|package| package.folder).collect();
    folders.sort();
    let owner = |path: &str| {
        let of = folders.iter().filter(|folder| path.starts_with(&format!("{folder}/")));
        of.max_by_key(|folder| folder.len())
    };
    let of = |folder: &String| {
        let own = all.iter().filter(|file| !file.is_test() && owner(&file.path) == Some(folder));
        Room { folder: folder.clone(), files: own.cloned().collect() }
    };
    folders.iter().map(of).collect()
}

impl Room {
    fn lines(&self) -> usize {
        self.files.iter().map(|file| lines_outside_tests(&file.text)).sum()
    }

    fn imports(&self) -> Imports {
        let source = format!("{}/src/", self.folder);
        let of = |file: &'_ SourceFile| file.path.strip_prefix(&source).map(str::to_owned);
        let own: Vec<(String, &str)> =
            self.files.iter().filter_map(|file| Some((of(file)?, file.text.as_str()))).collect();
        Imports::of(own.iter().map(|(path, text)| (path.as_str(), *text)))
    }

    /// How many modules its largest knot has, and which they are; 1 where there is none.
    fn knot(&self) -> (usize, String) {
        let imports = self.imports();
        let knots = imports.knots();
        let Some(largest) = knots.first() else { return (1, String::new()) };
        let name = |path: &[String]| if path.is_empty() { "lib".to_owned() } else { path.join("::") };
        (largest.len(), largest.iter().map(|path| name(path)).collect::<Vec<_>>().join(", "))
    }

    /// Its longest functions with their lines.
    fn longest(&self, count: usize) -> Vec<(usize, String)> {
        let of = |file: &SourceFile| functions(&without_tests(&blank(&file.text)));
        let all = self.files.iter().flat_map(|file| of(file).into_iter().map(move |found| (file, found)));
        let mut all: Vec<(usize, String)> = all
            .map(|(file, found)| (found.lines, format!("{}:{} {}", file.path, found.line, found.name)))
            .collect();
        all.sort_by(|a, b| b.cmp(a));
        all.truncate(count);
        all
    }
}

/// Compares figures with a limit and with the table of those beyond it: each is at most the limit, or stands there as it is.
fn hold(what: &str, limit: usize, beyond: &[(&str, usize)], found: &[(String, usize, String)]) {
    let mut wrong = Vec::new();
    for (name, figure, more) in found {
        let listed = beyond.iter().find(|(known, _)| known == name).map(|(_, figure)| *figure);
        match listed {
            None if *figure > limit => wrong.push(format!("{name} has {figure}: {more}")),
            Some(known) if known != *figure && *figure > limit => {
                let advice = if *figure < known { "write the smaller figure" } else { "it may only shrink" };
                wrong.push(format!("{name} has {figure}, and the table says {known}; {advice}: {more}"));
            }
            Some(_) if *figure <= limit => {
                wrong.push(format!("{name} has {figure}: take it out of the table"));
            }
            _ => {}
        }
    }
    let gone = beyond.iter().filter(|(name, _)| !found.iter().any(|(known, ..)| known == name));
    wrong.extend(gone.map(|(name, _)| format!("{name} is gone: take it out of the table")));
    assert!(wrong.is_empty(), "{what}, {limit} at most:\n{}", wrong.join("\n"));
}

#[test]
fn no_crate_has_more_than_10_000_lines_outside_tests() {
    let found = rooms().into_iter().map(|room| {
        let lines = room.lines();
        (room.folder, lines, "divide it, where few modules import each other".to_owned())
    });
    hold("lines of a crate outside tests", MAX_CRATE, LARGE_CRATES, &found.collect::<Vec<_>>());
}

#[test]
fn no_file_is_longer_than_600_lines() {
    let all = files(&[".rs", ".ts", ".tsx"]).into_iter().filter(|file| !file.is_test());
    let found = all.map(|file| (file.path, file.text.lines().count(), "divide it".to_owned()));
    hold("lines of a file", MAX_FILE, LONG_FILES, &found.collect::<Vec<_>>());
}

#[test]
fn no_knot_of_imports_has_more_than_three_modules() {
    let found = rooms().into_iter().map(|room| {
        let (size, modules) = room.knot();
        (room.folder, size, modules)
    });
    hold("modules that import each other", MAX_KNOT, KNOTTED_CRATES, &found.collect::<Vec<_>>());
}

#[test]
fn every_crate_is_measured() {
    println!("{:<24} {:>6} {:>5}  longest functions", "crate", "lines", "knot");
    for room in rooms() {
        let longest = room.longest(2).into_iter().map(|(lines, name)| format!("{lines} {name}"));
        let (knot, longest) = (room.knot().0, longest.collect::<Vec<_>>().join(", "));
        println!("{:<24} {:>6} {:>5}  {longest}", room.folder, room.lines(), knot);
        assert!(!room.files.is_empty(), "{} has no source", room.folder);
    }
}
