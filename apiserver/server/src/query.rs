//! The query of a URL.

use crate::path::percent_decode_lossy as decode;
use freehold_machinery::Status;
use std::num::{IntErrorKind, ParseIntError};

/// Most parameters that one request may have.
const MOST: usize = 256;

/// The parameters of a URL, decoded, in order.
#[derive(Debug, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Splits a raw query. A parameter with a broken escape or a semicolon counts as absent, as in Go; 400 where there are more
    /// than 256.
    pub(crate) fn parse(raw: Option<&str>) -> Result<Self, Status> {
        let mut pairs = Vec::new();
        for pair in raw.unwrap_or("").split('&').filter(|p| !p.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let decoded = decode(key, true).zip(decode(value, true));
            let Some((key, value)) = decoded.filter(|_| !pair.contains(';')) else { continue };
            if pairs.len() == MOST {
                return Err(Status::bad_request("the query has too many parameters"));
            }
            pairs.push((key.into_owned(), value.into_owned()));
        }
        Ok(Self(pairs))
    }

    /// The first value of a parameter.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.all(key).next()
    }

    /// The first value of a parameter, empty where it is absent.
    pub(crate) fn text(&self, key: &str) -> &str {
        self.get(key).unwrap_or("")
    }

    /// All values of a parameter.
    pub(crate) fn all<'a>(&'a self, key: &str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    /// A flag, as Kubernetes reads them: anything but `false` and `0` sets it.
    pub(crate) fn flag(&self, key: &str) -> Option<bool> {
        self.get(key).map(|value| !(value.eq_ignore_ascii_case("false") || value == "0"))
    }

    /// A number. 400 in Go's words where it isn't one.
    pub(crate) fn number(&self, key: &str) -> Result<Option<i64>, Status> {
        match self.get(key) {
            None => Ok(None),
            Some(text) => text.parse().map(Some).map_err(|error: ParseIntError| {
                let out_of_range =
                    matches!(error.kind(), IntErrorKind::PosOverflow | IntErrorKind::NegOverflow);
                let why = if out_of_range { "value out of range" } else { "invalid syntax" };
                Status::bad_request(format!("strconv.ParseInt: parsing {text:?}: {why}"))
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_read_as_kubernetes_reads_them() {
        let query = Query::parse(Some(
            "watch&limit=5&labelSelector=a%3Db,c+in+(d)&dryRun=All&dryRun=x&f=False&g=0&h=no",
        ))
        .unwrap();
        assert_eq!(query.flag("watch"), Some(true));
        assert_eq!(query.number("limit").unwrap(), Some(5));
        assert_eq!(query.text("labelSelector"), "a=b,c in (d)");
        assert_eq!(query.all("dryRun").collect::<Vec<_>>(), ["All", "x"]);
        assert_eq!(
            [query.flag("f"), query.flag("g"), query.flag("h"), query.flag("i")],
            [Some(false), Some(false), Some(true), None]
        );
        let wrong = Query::parse(Some("limit=five")).unwrap().number("limit").unwrap_err();
        assert_eq!(
            (wrong.code, wrong.message.as_str()),
            (400, "strconv.ParseInt: parsing \"five\": invalid syntax")
        );
        let far = Query::parse(Some("limit=99999999999999999999")).unwrap().number("limit").unwrap_err();
        assert_eq!(far.message, "strconv.ParseInt: parsing \"99999999999999999999\": value out of range");
        let odd = Query::parse(Some("a=%f&b=1;c=2&d=3&limit=")).unwrap();
        assert_eq!([odd.get("a"), odd.get("b"), odd.get("c"), odd.get("d")], [None, None, None, Some("3")]);
        assert_eq!(
            odd.number("limit").unwrap_err().message,
            "strconv.ParseInt: parsing \"\": invalid syntax"
        );
        assert_eq!(Query::parse(Some(&"a&".repeat(257))).unwrap_err().code, 400);
    }
}
