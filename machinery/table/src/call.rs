//! Cell functions with their arguments, found by the text of a column.

use crate::{
    cells::{Arguments, COMMON, Function},
    cluster,
    jsonpath::JsonPath,
    network, pods, workloads,
};
use freehold_machinery::Value;
use jiff::Timestamp;

/// A function with its arguments.
pub(crate) struct Call {
    function: Function,
    arguments: Arguments,
}

impl Call {
    /// Finds a function by the text of a column. `None` for one that doesn't exist.
    pub(crate) fn parse(text: &'static str) -> Option<Self> {
        let mut words = text.split(' ');
        let name = words.next()?;
        let tables = [COMMON, pods::CELLS, workloads::CELLS, network::CELLS, cluster::CELLS];
        let (_, function) = tables.into_iter().flatten().find(|(known, _)| *known == name)?;
        let mut arguments = Arguments { paths: Vec::new(), word: "" };
        for word in words {
            if word.starts_with('.') {
                arguments.paths.push(JsonPath::parse(word).ok()?);
            } else {
                arguments.word = word;
            }
        }
        Some(Self { function: *function, arguments })
    }

    pub(crate) fn run(&self, object: &Value, now: Timestamp) -> Value {
        (self.function)(object, &self.arguments, now)
    }
}
