//! What must hold for whatever bytes a client sends.

use crate::{
    negotiate::{Accepted, Format, Shape},
    path, read, respond,
};
use freehold_tests_fuzz::Fuzz;

const WORDS: &[&str] = &[
    "apiVersion: v1",
    "kind: Pod",
    "metadata:",
    "\n  ",
    "\n- ",
    ": ",
    "&a",
    "*a",
    "<<: *a",
    "|\n",
    ">-\n",
    "---\n",
    "...\n",
    "? ",
    "!!str ",
    "!!int ",
    "!!binary ",
    "%YAML 1.1\n",
    "~",
    "yes",
    "0o7",
    "0x1f",
    ".inf",
    ".nan",
    "1_000",
    "2026-01-01",
    "{a: 1}",
    "[1, 2]",
    "'",
    "\"\\u0000\"",
    "\u{feff}",
    "\t",
];

#[test]
fn yaml_that_is_read_reads_back_as_it_is_written() {
    let seeds = [
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, labels: {b: \"1\"}}\ndata:\n  text: |\n    a\n    b\n",
        "a: &x {m: 0644}\nb: *x\nc: [yes, 'yes', 1e3, ~]\n<<: *x\n",
        "- 1\n- -0.5\n- \"\\u00e4\"\n- >-\n  folded\n  text\n- ? a\n  : b\n",
        "{\"a\": [1, 2.5, true, null, \"x\"], \"a\": {}}",
    ];
    let accepted = Accepted { format: Format::Yaml, shape: Shape::Whole, pretty: false };
    Fuzz::new("bodies in YAML", seeds.map(|text| text.as_bytes().to_vec()), 1_000).words(WORDS).run(
        |bytes| {
            let _ = read::object(bytes, Format::Json);
            match read::object(bytes, Format::Yaml) {
                Ok(body) => {
                    let written = respond::encode(accepted, &body.value).expect("YAML");
                    let again = read::decode(&written, Format::Yaml).expect("what was written");
                    assert_eq!(again.value, body.value, "{}", String::from_utf8_lossy(&written));
                    format!("read {}", body.duplicates.len())
                }
                Err(why) => why,
            }
        },
    );
}

#[test]
fn no_url_breaks_the_reading_of_a_request() {
    let seeds = ["/api/v1/namespaces/a/pods/b/log", "/apis/a.b/v1/c%20d?watch=1", "/%2e%2e/a//b/./c"];
    Fuzz::new("paths", seeds.map(|text| text.as_bytes().to_vec()), 40_000)
        .words(&["%2f", "%2F", "%00", "..", "//", "/apis/", "/api/v1/", "/projects/", "%c3%a4", "?", "&"])
        .run(|bytes| {
            let Ok(uri) = http::Uri::try_from(bytes.as_slice()) else { return "no path".to_owned() };
            let Ok(query) = crate::query::Query::parse(uri.query()) else { return "no query".to_owned() };
            match path::decode(&uri, http::Version::HTTP_2) {
                Ok(path) => match crate::info::RequestInfo::read(&http::Method::GET, &path.text, &query) {
                    Some(info) => format!("{} {} {}", info.verb, info.resource.is_some(), path.odd),
                    None => "nothing is asked for".to_owned(),
                },
                Err(status) => status.message,
            }
        });
}
