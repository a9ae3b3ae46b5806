//! Pages that repeat what the code says are compared with it, so that they can't drift apart.

use freehold_tests_tidy::workspace::{files, packages, top};

fn page(name: &str) -> String {
    std::fs::read_to_string(top().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The folders that the code map has a paragraph for: each begins with the folder, in bold code.
fn mapped(architecture: &str) -> Vec<&str> {
    let map =
        architecture.split("\n## ").find(|section| section.starts_with("Code map\n")).unwrap_or_default();
    let names = map.lines().filter_map(|line| line.strip_prefix("**`")?.split_once("`**: "));
    names.map(|(folder, _)| folder).collect()
}

#[test]
fn the_code_map_has_a_paragraph_for_each_crate_and_no_other() {
    let text = page("ARCHITECTURE.md");
    let (mapped, packages) = (mapped(&text), packages());
    let mut wrong = Vec::new();
    for package in packages.iter().filter(|package| !mapped.contains(&package.folder.as_str())) {
        wrong.push(format!(
            "{0} is missing: add a paragraph \"**`{0}`**: what it is for. *Its invariant.*\"",
            package.folder
        ));
    }
    for (index, folder) in mapped.iter().enumerate() {
        if !packages.iter().any(|package| package.folder == *folder) {
            wrong.push(format!("{folder} is no crate of the workspace: remove its paragraph"));
        }
        if mapped[..index].contains(folder) {
            wrong.push(format!("{folder} stands there twice"));
        }
    }
    assert!(wrong.is_empty(), "ARCHITECTURE.md, section \"Code map\":\n{}", wrong.join("\n"));
}

/// The table of filters in a page: the source file that its marker names, and the call of each row.
fn filters(page: &str) -> (String, Vec<String>) {
    let (_, rest) = page.split_once("<!-- filters of ").expect("a marker where the table of filters begins");
    let (file, rest) = rest.split_once(": begin -->").expect("the file is named in the marker");
    let (table, _) = rest.split_once("<!-- filters of ").expect("a marker where the table of filters ends");
    let rows = table.lines().filter(|line| line.starts_with("| ")).skip(1);
    let calls = rows.filter_map(|row| row.split(" | ").nth(1)).map(|call| call.trim_matches('`').to_owned());
    (file.to_owned(), calls.filter(|call| !call.starts_with("---")).collect())
}

#[test]
fn the_filters_of_the_page_are_those_of_the_code_in_order() {
    let (file, calls) = filters(&page("docs/design/requests.md"));
    assert!(calls.len() > 10, "the table of filters in docs/design/requests.md was read: {calls:?}");
    let path = top().join(&file);
    let code = std::fs::read_to_string(&path).unwrap_or_else(|error| {
        panic!(
            "{file}: {error}; name the file that lists the filters in docs/design/requests.md's two markers"
        )
    });
    // Definitions stand behind the list, or before it: only calls count.
    let code: String = code.lines().filter(|line| !line.contains("fn ")).collect::<Vec<_>>().join("\n");
    let mut at = 0;
    for call in calls {
        let found = code[at..].find(&call);
        let found = found.unwrap_or_else(|| {
            panic!(
                "{file} does not call `{call}` where docs/design/requests.md has it: put its row where the call is, \
                 or remove it"
            )
        });
        at += found + call.len();
    }
}

/// Backticked words of a page that name a file of source.
fn named(page: &str) -> impl Iterator<Item = &str> {
    page.split('`').skip(1).step_by(2).filter(|word| word.ends_with(".rs") && !word.contains([' ', '*', '{']))
}

#[test]
fn source_files_that_pages_name_are_there() {
    let sources: Vec<String> = files(&[".rs"]).into_iter().map(|file| format!("/{}", file.path)).collect();
    let mut wrong = Vec::new();
    for page in files(&[".md"]) {
        let is_about_code = page.path.starts_with("docs/design/")
            || ["ARCHITECTURE.md", "CONTRIBUTING.md", "README.md", "docs/glossary.md"]
                .contains(&page.path.as_str());
        if !is_about_code {
            continue;
        }
        // Pages shorten `apiserver/registry/src/write.rs` to `registry/src/write.rs` or `write.rs`.
        let there = |name: &str| sources.iter().any(|path| path.ends_with(&format!("/{name}")));
        let strange = named(&page.text).filter(|name| !there(name));
        wrong.extend(strange.map(|name| format!("{}: `{name}`", page.path)));
    }
    assert!(
        wrong.is_empty(),
        "files that pages name and that are gone; name those they became:\n{}",
        wrong.join("\n")
    );
}

/// The files that a page links, relative to its own folder, without their anchors.
fn linked(page: &str) -> impl Iterator<Item = &str> {
    let targets = page.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let own = targets.filter(|target| !target.contains("://") && !target.starts_with(['#', '<']));
    own.map(|target| target.split('#').next().unwrap_or(target))
}

#[test]
fn links_between_pages_lead_somewhere() {
    let mut wrong = Vec::new();
    for page in files(&[".md"]) {
        let folder = top().join(&page.path).parent().map(std::path::Path::to_owned).unwrap_or_default();
        let broken = linked(&page.text).filter(|target| !folder.join(target).exists());
        wrong.extend(broken.map(|target| format!("{}: {target}", page.path)));
    }
    assert!(wrong.is_empty(), "links to files that are not there:\n{}", wrong.join("\n"));
}

#[test]
fn the_glossary_is_linked_where_newcomers_begin() {
    for name in ["README.md", "CONTRIBUTING.md", "ARCHITECTURE.md"] {
        assert!(page(name).contains("docs/glossary.md"), "{name} does not link docs/glossary.md");
    }
}
