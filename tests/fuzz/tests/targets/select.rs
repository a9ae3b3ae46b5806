//! Selectors of labels and fields.

use freehold_machinery::selector::{Fields, Labels};
use freehold_tests_fuzz::Fuzz;

fn seeds(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

#[test]
fn a_label_selector_that_is_read_reads_back_as_it_is_written() {
    let seeds =
        seeds(&["a=b,c!=d", "e in (f,g),h notin (i)", "j,!k,l>1,m<2", "x.io/y==z", "in in (in)", "a in ()"]);
    let words = [" in ", " notin ", "==", "!=", "example.com/name", ">", "<", "()", ",", "!", "-1"];
    Fuzz::new("label selectors", seeds, 20_000).words(&words).run(|bytes| {
        let Ok(text) = std::str::from_utf8(bytes) else { return "no text".to_owned() };
        match Labels::parse(text) {
            Ok(labels) => {
                let written = labels.to_string();
                assert_eq!(Labels::parse(&written), Ok(labels.clone()), "{written}");
                let found = [None, Some("b"), Some("1"), Some("")].map(|value| labels.matches(|_| value));
                format!("{} {found:?}", labels.requirements().len())
            }
            Err(why) => why,
        }
    });
}

#[test]
fn a_field_selector_that_is_read_reads_back_as_it_is_written() {
    let seeds = seeds(&["metadata.name=a", "spec.nodeName!=b,status.phase==c", "a=b\\,c\\=d\\\\"]);
    Fuzz::new("field selectors", seeds, 20_000).words(&["metadata.name", "==", "!=", "\\", ","]).run(
        |bytes| {
            let Ok(text) = std::str::from_utf8(bytes) else { return "no text".to_owned() };
            match Fields::parse(text) {
                Ok(fields) => {
                    let written = fields.to_string();
                    assert_eq!(Fields::parse(&written), Ok(fields.clone()), "{written}");
                    format!("{} {}", fields.requirements().len(), fields.matches(|_| Some("b")))
                }
                Err(why) => why,
            }
        },
    );
}
