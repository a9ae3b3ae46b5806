//! The pages of which browsers may send requests here.

use http::{HeaderValue, header, request::Parts};
use regex::Regex;

/// The pages of which browsers may send requests here (`--cors-allowed-origins`): regular expressions for `Origin`.
#[derive(Clone, Debug, Default)]
pub struct Origins(Vec<Regex>);

/// Why a list of origins can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OriginsError {
    /// An empty expression would match every page.
    #[error("an expression is empty")]
    Empty,
    /// No regular expression.
    #[error("{0:?} is no regular expression: {1}")]
    Broken(String, String),
    /// It would match hosts that only contain the one that is meant (CVE-2022-1996).
    #[error("{0:?} does not pin to start/end of host in the origin header")]
    Loose(String),
}

/// Most bytes that a compiled expression takes.
const MAX_EXPRESSION: usize = 1 << 20;

impl Origins {
    /// Reads expressions. Each has to say where the host begins (`^` or `//`) and ends (`$` or `:`), as kube-apiserver
    /// wants it.
    ///
    /// # Errors
    /// Fails at the first expression that is none, or does not say where the host begins and ends.
    pub fn parse<S: AsRef<str>>(expressions: &[S]) -> Result<Self, OriginsError> {
        let read = |text: &S| {
            let text = text.as_ref();
            let has = |marks: [&str; 2]| marks.iter().any(|mark| text.contains(mark));
            match text {
                "" => Err(OriginsError::Empty),
                _ if !has(["^", "//"]) || !has(["$", ":"]) => Err(OriginsError::Loose(text.to_owned())),
                _ => {
                    let built = regex::RegexBuilder::new(text).size_limit(MAX_EXPRESSION).build();
                    built.map_err(|error| OriginsError::Broken(text.to_owned(), error.to_string()))
                }
            }
        };
        expressions.iter().map(read).collect::<Result<_, _>>().map(Self)
    }

    /// Returns the origin of a request from such a page.
    pub(crate) fn allowed<'a>(&self, parts: &'a Parts) -> Option<&'a HeaderValue> {
        let origin = parts.headers.get(header::ORIGIN)?;
        let text = origin.to_str().ok()?;
        self.0.iter().any(|known| known.is_match(text)).then_some(origin)
    }
}
