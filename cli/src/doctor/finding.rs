//! The outcome of a check.

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) check: &'static str,
    /// What is wrong, and what to do; `Ok` with what was seen where nothing is.
    pub(super) outcome: Result<String, String>,
}

pub(super) fn finding(check: &'static str, outcome: Result<String, String>) -> Finding {
    Finding { check, outcome }
}
