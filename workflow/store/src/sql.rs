//! Statements with numbered values, which both engines understand.

use sqlx::any::{Any, AnyArguments};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, SqlSafeStr as _};
use std::fmt::Write as _;

/// A statement under construction. Text comes from this crate alone; whatever comes from outside is a value.
#[derive(Debug, Default)]
pub(crate) struct Sql {
    text: String,
    values: Vec<Value>,
    once: bool,
}

#[derive(Debug)]
enum Value {
    Text(String),
    Int(Option<i64>),
}

impl Sql {
    pub(crate) fn new(text: &'static str) -> Self {
        Self { text: text.to_owned(), ..Self::default() }
    }

    /// Appends SQL.
    pub(crate) fn push(&mut self, text: &str) -> &mut Self {
        self.text.push_str(text);
        self
    }

    fn value(&mut self, value: Value) -> &mut Self {
        self.values.push(value);
        let _ = write!(self.text, "${}", self.values.len());
        self
    }

    /// Appends a text value.
    pub(crate) fn text(&mut self, value: &str) -> &mut Self {
        self.value(Value::Text(value.to_owned()))
    }

    /// Appends a number.
    pub(crate) fn int(&mut self, value: i64) -> &mut Self {
        self.value(Value::Int(Some(value)))
    }

    /// Appends a number or NULL.
    pub(crate) fn maybe(&mut self, value: Option<i64>) -> &mut Self {
        self.value(Value::Int(value))
    }

    /// Keeps the statement out of the cache of prepared ones, for texts that are seldom the same.
    pub(crate) fn once(&mut self) -> &mut Self {
        self.once = true;
        self
    }

    /// The statement, ready to be executed.
    pub(crate) fn query(self) -> Query<'static, Any, AnyArguments> {
        // Values never reach the text: see `value`.
        let mut query = sqlx::query(AssertSqlSafe(self.text).into_sql_str()).persistent(!self.once);
        for value in self.values {
            query = match value {
                Value::Text(text) => query.bind(text),
                Value::Int(number) => query.bind(number),
            };
        }
        query
    }
}
