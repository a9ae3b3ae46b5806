//! Which module of a crate imports which, and the knots that they make: modules each of which imports all others of them,
//! directly or through others.
//!
//! Imports are paths: in `use`, and in the code where they begin with `crate`, `super`, `self`, or a name that is imported.
//! A path counts for the module that defines what it leads to, and not for those that pass it on with `pub use`. Methods are
//! no paths, so that an `impl` of a type may stand beside what it does.

use crate::source::{blank, without_tests};
use std::collections::{BTreeMap, BTreeSet};

/// The path of a module below its crate: `["chain", "edge"]`; empty for the crate's root.
pub type ModulePath = Vec<String>;

/// An imported path and the name that it gets.
struct Import {
    path: Vec<String>,
    name: String,
    is_public: bool,
}

struct Module {
    imports: Vec<Import>,
    /// Paths in the code itself.
    paths: Vec<Vec<String>>,
    /// Names that are defined here.
    defined: BTreeSet<String>,
    /// All words of the code outside of `use`.
    words: BTreeSet<String>,
}

/// The modules of a crate.
pub struct Imports(BTreeMap<ModulePath, Module>);

/// The modules that one imports, directly or through others.
fn reached<'a>(
    edges: &BTreeMap<&'a ModulePath, BTreeSet<&'a ModulePath>>,
    from: &'a ModulePath,
) -> BTreeSet<&'a ModulePath> {
    let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(next) = open.pop() {
        open.extend(edges.get(next).into_iter().flatten().copied().filter(|to| seen.insert(*to)));
    }
    seen
}

/// The module of a source file, by its path below `src`; `None` for what is no module of a library.
fn module_of(file: &str) -> Option<ModulePath> {
    let path = file.strip_suffix(".rs")?;
    let mut parts: Vec<&str> = path.split('/').collect();
    match parts.as_slice() {
        ["lib" | "main"] => return Some(Vec::new()),
        [.., "mod"] => drop(parts.pop()),
        _ => {}
    }
    Some(parts.into_iter().map(str::to_owned).collect())
}

impl Imports {
    /// Reads the modules of a crate: paths of files below its `src`, and their text.
    pub fn of<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let read = files.into_iter().filter_map(|(file, text)| Some((module_of(file)?, Module::read(text))));
        Self(read.collect())
    }

    /// Each module with those that it imports.
    pub fn edges(&self) -> BTreeMap<&ModulePath, BTreeSet<&ModulePath>> {
        let edges = |(path, module): (&'_ ModulePath, &'_ Module)| {
            let used = module.imports.iter().filter(|i| !i.is_public || module.words.contains(&i.name));
            let paths = used.map(|import| &import.path).chain(&module.paths);
            let found: Vec<ModulePath> =
                paths.filter_map(|to| self.resolve(self.absolute(path, to)?, &mut Vec::new())).collect();
            let to = found.iter().filter_map(|to| self.0.get_key_value(to));
            to.map(|(to, _)| to).filter(|to| *to != path).collect()
        };
        self.0.iter().map(|(path, module)| (path, edges((path, module)))).collect()
    }

    /// Knots of two modules or more, the largest first.
    pub fn knots(&self) -> Vec<Vec<&ModulePath>> {
        let edges = self.edges();
        let reach: BTreeMap<&ModulePath, BTreeSet<&ModulePath>> =
            self.0.keys().map(|path| (path, reached(&edges, path))).collect();
        let mut knots: Vec<Vec<&ModulePath>> = Vec::new();
        for (path, reaches) in &reach {
            let is_new = !knots.iter().any(|knot| knot.contains(path));
            if is_new && reaches.contains(path) {
                knots.push(reaches.iter().copied().filter(|to| reach[to].contains(path)).collect());
            }
        }
        knots.retain(|knot| knot.len() > 1);
        knots.sort_by_key(|knot| std::cmp::Reverse(knot.len()));
        knots
    }

    /// A path from the crate's root; `None` where it leads out of the crate.
    fn absolute(&self, from: &ModulePath, path: &[String]) -> Option<Vec<String>> {
        let first = path.first()?;
        match first.as_str() {
            "crate" => return Some(path[1..].to_vec()),
            "self" => return Some([from.as_slice(), &path[1..]].concat()),
            "super" => {
                let ups = path.iter().take_while(|part| *part == "super").count();
                let kept = from.len().checked_sub(ups)?;
                return Some([&from[..kept], &path[ups..]].concat());
            }
            _ => {}
        }
        let child = [from.as_slice(), std::slice::from_ref(first)].concat();
        if self.0.contains_key(&child) {
            return Some([from.as_slice(), path].concat());
        }
        let module = self.0.get(from)?;
        let import = module.imports.iter().find(|i| i.name == *first && i.path.as_slice() != path)?;
        let is_inside = matches!(import.path[0].as_str(), "crate" | "super" | "self");
        let base = is_inside.then(|| self.absolute(from, &import.path)).flatten()?;
        Some([base.as_slice(), &path[1..]].concat())
    }

    /// The module that defines what a path from the root leads to.
    fn resolve(&self, path: Vec<String>, before: &mut Vec<Vec<String>>) -> Option<ModulePath> {
        if before.contains(&path) {
            return None;
        }
        before.push(path.clone());
        let mut at = Vec::new();
        for (index, part) in path.iter().enumerate() {
            let child = [at.as_slice(), std::slice::from_ref(part)].concat();
            if self.0.contains_key(&child) {
                at = child;
                continue;
            }
            let module = self.0.get(&at)?;
            if module.defined.contains(part) {
                return Some(at);
            }
            let rest = &path[index + 1..];
            if let Some(import) = module.imports.iter().find(|i| i.name == *part) {
                let base = self.absolute(&at, &import.path)?;
                return self.resolve([base.as_slice(), rest].concat(), before);
            }
            let everything = module.imports.iter().filter(|i| i.name == "*");
            let bases = everything.filter_map(|i| self.absolute(&at, &i.path[..i.path.len() - 1]));
            let mut through = bases.filter_map(|base| {
                let found = self.resolve([base.as_slice(), &path[index..]].concat(), before)?;
                self.0[&found].defined.contains(part).then_some(found)
            });
            return through.next().or(Some(at));
        }
        Some(at)
    }
}

impl Module {
    fn read(text: &str) -> Self {
        let text = without_tests(&blank(text));
        let (mut imports, mut code) = (Vec::new(), String::with_capacity(text.len()));
        let mut rest = text.as_str();
        while let Some((before, is_public, tree, after)) = next_use(rest) {
            code.push_str(before);
            code.push('\n');
            leaves(tree, &[], &mut |path, name| imports.push(Import { path, name, is_public }));
            rest = after;
        }
        code.push_str(rest);
        let words = words(&code).map(|(_, word)| word.to_owned()).collect();
        let (paths, defined) = (paths(&code, &imports), defined(&code));
        Self { imports, paths, defined, words }
    }
}

/// The next `use` of a text: what is before it, whether it is public, its tree, and what follows.
fn next_use(text: &str) -> Option<(&str, bool, &str, &str)> {
    let mut words = words(text);
    let at = words.find(|(at, word)| *word == "use" && starts_item(&text[..*at]))?.0;
    let end = at + text[at..].find(';')?;
    let before = text[..at].trim_end();
    let line = before.rsplit(['\n', ';', '{', '}']).next().unwrap_or_default().trim_start();
    let is_public = before.len() == text[..at].trim_end_matches([' ', '\t']).len() && line.starts_with("pub");
    Some((&text[..at], is_public, &text[at + "use".len()..end], &text[end + 1..]))
}

/// Whether an item can begin behind a text: at a line's beginning, with nothing but its visibility before it.
fn starts_item(before: &str) -> bool {
    let line = before.rsplit(['\n', ';', '{', '}']).next().unwrap_or_default().trim();
    line.is_empty() || line == "pub" || line.starts_with("pub(") && line.ends_with(')')
}

/// Each path of a tree of imports with the name that it gets.
fn leaves(tree: &str, before: &[String], found: &mut dyn FnMut(Vec<String>, String)) {
    let tree = tree.trim();
    let parts = |text: &str| -> Vec<String> {
        text.split("::").map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect()
    };
    if let Some((head, inner)) = tree.split_once('{') {
        let before = [before, &parts(head)].concat();
        let inner = &inner[..inner.rfind('}').unwrap_or(inner.len())];
        let (mut depth, mut begin) = (0_usize, 0);
        for (at, c) in inner.char_indices().chain([(inner.len(), ',')]) {
            match c {
                '{' => depth += 1,
                '}' => depth = depth.saturating_sub(1),
                ',' if depth == 0 => {
                    leaves(&inner[begin..at], &before, found);
                    begin = at + 1;
                }
                _ => {}
            }
        }
        return;
    }
    let (path, name) = tree.split_once(" as ").map_or((tree, None), |(path, name)| (path, Some(name.trim())));
    let mut path = [before, &parts(path)].concat();
    if path.last().is_some_and(|last| last == "self") && path.len() > 1 {
        path.pop();
    }
    let Some(last) = path.last().cloned().filter(|_| !tree.is_empty()) else { return };
    found(path, name.map_or(last, str::to_owned));
}

/// The words of a text with their places.
fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    text.split(move |c| !is_word(c)).filter(|word| !word.is_empty()).map(move |word| {
        // Both are of the same text.
        (word.as_ptr() as usize - text.as_ptr() as usize, word)
    })
}

/// Paths in code that can lead to other modules.
fn paths(code: &str, imports: &[Import]) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for (at, word) in words(code) {
        let is_whole = !code[..at].trim_end().ends_with("::") && !code[..at].ends_with('.');
        let leads = matches!(word, "crate" | "super" | "self")
            || imports.iter().any(|import| import.name == word)
            || word.starts_with(|c: char| c.is_lowercase());
        if !is_whole || !leads || !code[at + word.len()..].starts_with("::") {
            continue;
        }
        let rest = &code[at..];
        let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')).unwrap_or(rest.len());
        let path = rest[..end].trim_end_matches(':').split("::").map(str::to_owned);
        found.push(path.filter(|part| !part.is_empty()).collect());
    }
    found
}

/// Names that code defines, in whatever depth.
fn defined(code: &str) -> BTreeSet<String> {
    const ITEMS: [&str; 10] =
        ["fn", "struct", "enum", "trait", "type", "const", "static", "union", "macro_rules", "mod"];
    let all: Vec<&str> = words(code).map(|(_, word)| word).collect();
    all.windows(2).filter(|pair| ITEMS.contains(&pair[0])).map(|pair| pair[1].to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn knots(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let imports = Imports::of(files.iter().copied());
        let names = |knot: Vec<&ModulePath>| knot.iter().map(|path| path.join("::")).collect();
        imports.knots().into_iter().map(names).collect()
    }

    #[test]
    fn a_knot_is_found_through_trees_of_imports_and_paths_in_code() {
        let files = [
            ("lib.rs", "mod a;\nmod b;\nmod c;\npub use a::A;\n"),
            ("a.rs", "use crate::{b::{self, B}, c};\npub struct A(B);\n"),
            ("b.rs", "pub struct B;\nfn f() { crate::c::f(); }\n"),
            ("c/mod.rs", "mod d;\npub fn f() { d::g() }\n"),
            ("c/d.rs", "pub fn g(_: crate::A) {}\n"),
        ];
        assert_eq!(knots(&files), [["a", "b", "c", "c::d"].map(str::to_owned)]);
    }

    #[test]
    fn what_is_passed_on_comments_and_tests_make_no_knot() {
        let files = [
            ("lib.rs", "mod a;\nmod b;\npub use a::A;\npub use b::*;\n"),
            (
                "a.rs",
                "// use crate::b::B;\npub struct A;\n#[cfg(test)]\nmod tests {\n    use crate::b::B;\n}\n",
            ),
            ("b.rs", "use crate::A;\npub struct B(A);\n"),
        ];
        assert!(knots(&files).is_empty());
        let passed_on = [files[0], ("a.rs", "use crate::B;\npub struct A(B);\n"), files[2]];
        assert_eq!(knots(&passed_on), [["a", "b"].map(str::to_owned)], "through a glob");
    }
}
