//! The little of XML that answers of the S3 API need: texts of elements, by name.
//!
//! Attributes, comments and namespaces are passed over. An answer that is cut or nested wrongly gives fewer elements, and
//! never a panic.

/// Texts of all elements of a name, in order, as they stand between their tags.
pub(crate) fn all<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    let (open, close) = (format!("<{name}"), format!("</{name}>"));
    let (mut found, mut rest) = (Vec::new(), text);
    while let Some(at) = rest.find(&open) {
        rest = &rest[at + open.len()..];
        // `<Key>` and not `<KeyCount>`.
        if !rest.starts_with(['>', ' ', '/', '\t', '\n', '\r']) {
            continue;
        }
        let Some(end) = rest.find('>') else { break };
        let empty = rest[..end].ends_with('/');
        rest = &rest[end + 1..];
        if empty {
            found.push("");
            continue;
        }
        let Some(end) = rest.find(&close) else { break };
        found.push(&rest[..end]);
        rest = &rest[end + close.len()..];
    }
    found
}

/// The text of the first element of a name, with entities resolved.
pub(crate) fn text(xml: &str, name: &str) -> Option<String> {
    all(xml, name).first().map(|text| unescape(text))
}

/// Resolves XML's five entities, and characters by number.
pub(crate) fn unescape(text: &str) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find('&') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let entity = rest.find(';').filter(|end| *end <= 10).map(|end| &rest[1..end]);
        match entity.and_then(|entity| Some((character(entity)?, entity.len() + 2))) {
            Some((character, length)) => {
                out.push(character);
                rest = &rest[length..];
            }
            None => {
                out.push('&');
                rest = &rest[1..];
            }
        }
    }
    out.push_str(rest);
    out
}

fn character(entity: &str) -> Option<char> {
    let number = |digits: &str, radix| u32::from_str_radix(digits, radix).ok().and_then(char::from_u32);
    match entity {
        "amp" => Some('&'),
        "lt" => Some('<'),
        "gt" => Some('>'),
        "quot" => Some('"'),
        "apos" => Some('\''),
        _ => match entity.strip_prefix('#')?.strip_prefix('x') {
            Some(digits) => number(digits, 16),
            None => number(entity.strip_prefix('#')?, 10),
        },
    }
}

/// A text as it stands between tags.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_found_by_their_whole_name() {
        let xml = "<R xmlns='a'><KeyCount>2</KeyCount><C><Key>a &amp; b</Key></C><C><Key>&#x2F;c&#47;</Key></C><Key/></R>";
        assert_eq!(all(xml, "C").len(), 2);
        let keys: Vec<String> = all(xml, "Key").into_iter().map(unescape).collect();
        assert_eq!(keys, ["a & b", "/c/", ""]);
        assert_eq!(text(xml, "KeyCount").as_deref(), Some("2"));
        assert_eq!(text(xml, "Absent"), None);
    }

    #[test]
    fn what_is_no_xml_gives_nothing() {
        for bad in ["", "<", "<Key", "<Key>", "<Key>a</Ke", "</Key>", "&", "&#xffffffff;", "&#x;"] {
            assert!(all(bad, "Key").is_empty(), "{bad}");
            assert_eq!(unescape(bad), bad);
        }
    }

    #[test]
    fn escaping_is_undone() {
        let text = "a<b>&\"c\"&amp;";
        assert_eq!(unescape(&escape(text)), text);
    }
}
