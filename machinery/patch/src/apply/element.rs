//! One step of a field path, and its spelling in `FieldsV1`.
//!
//! Spellings are canonical: equal elements have equal text, so that managed fields can be compared as JSON.
//! This module must not know schemas.

use freehold_machinery::Value;
use std::{cmp::Ordering, fmt, sync::Arc};

/// How a value names one of the things in it. Cheap to clone.
#[derive(Clone, Debug)]
pub enum PathElement {
    /// A field of a struct or a key of a map: `f:name`.
    Field(Arc<str>),
    /// An item of an associative list, by its key fields in the order of their names: `k:{"name":"web"}`.
    Key(Arc<[(Box<str>, Value)]>),
    /// An item of a set: `v:"foregroundDeletion"`.
    Value(Arc<Value>),
    /// An item by its position: `i:0`. Nothing here makes these; they are read and kept.
    Index(usize),
}

impl PathElement {
    /// The field or map key `name`.
    pub fn field(name: &str) -> Self {
        Self::Field(Arc::from(name))
    }

    /// The item of an associative list that has these key fields.
    pub fn key(mut fields: Vec<(Box<str>, Value)>) -> Self {
        fields.sort_by(|a, b| a.0.cmp(&b.0));
        Self::Key(fields.into())
    }

    /// The item of a set.
    pub fn value(value: Value) -> Self {
        Self::Value(Arc::new(value))
    }

    /// Compares with a field's name, without making an element of it.
    pub(super) fn cmp_field(&self, name: &str) -> Ordering {
        match self {
            Self::Field(own) => (**own).cmp(name),
            _ => Ordering::Greater,
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
        }
    }

    /// The text in `FieldsV1`.
    pub fn encode(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Key(fields) => {
                let fields: Vec<String> = fields
                    .iter()
                    .map(|(name, value)| format!("{}:{}", json(&Value::from(&**name)), json(value)))
                    .collect();
                format!("k:{{{}}}", fields.join(","))
            }
            Self::Value(value) => format!("v:{}", json(value)),
            Self::Index(index) => format!("i:{index}"),
        }
    }

    /// Reads the text of an element of `FieldsV1`. `None` for kinds of elements that this version does not know,
    /// which are dropped.
    ///
    /// # Errors
    /// A text without a colon behind its kind, or with a key, value or index that cannot be parsed.
    pub fn decode(text: &str) -> Result<Option<Self>, String> {
        let Some((kind, rest)) = text.split_once(':').filter(|(kind, _)| kind.len() == 1) else {
            return Err(format!("missing colon: {text}"));
        };
        let parse = |json: &str| serde_json::from_str::<Value>(json).map_err(|e| e.to_string());
        Ok(Some(match kind {
            "f" => Self::field(rest),
            "v" => Self::value(parse(rest)?),
            "i" => Self::Index(rest.parse().map_err(|_| format!("invalid index: {rest}"))?),
            "k" => match parse(rest)? {
                Value::Object(fields) => Self::key(fields.into_iter().map(|(k, v)| (k.into(), v)).collect()),
                _ => return Err(format!("key is not an object: {rest}")),
            },
            _ => return Ok(None),
        }))
    }
}

/// JSON as Go's encoder writes it: `<`, `>` and `&` escaped, whole floats without a fraction.
fn json(value: &Value) -> String {
    if let Some(whole) = value.as_f64().filter(|f| value.is_f64() && f.fract() == 0.0 && f.abs() < 1e15) {
        return format!("{whole:.0}");
    }
    let text = value.to_string();
    if !text.contains(['<', '>', '&']) {
        return text;
    }
    text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

impl Ord for PathElement {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Field(a), Self::Field(b)) => a.cmp(b),
            (Self::Key(a), Self::Key(b)) => {
                cmp_lists(a, b, |x, y| x.0.cmp(&y.0).then_with(|| cmp_values(&x.1, &y.1)))
            }
            (Self::Value(a), Self::Value(b)) => cmp_values(a, b),
            (Self::Index(a), Self::Index(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for PathElement {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for PathElement {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for PathElement {}

/// As conflicts name it: `.spec`, `[name="web"]`, `[="a"]`, `[0]`.
impl fmt::Display for PathElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(fields) => {
                let fields: Vec<String> =
                    fields.iter().map(|(name, value)| format!("{name}={value}")).collect();
                write!(f, "[{}]", fields.join(","))
            }
            Self::Value(value) => write!(f, "[={value}]"),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

/// A total order over JSON values in which numbers are equal when they are numerically: numbers, strings, booleans,
/// lists, maps, null.
pub(super) fn cmp_values(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => match (a.as_i64(), b.as_i64()) {
            (Some(a), Some(b)) => a.cmp(&b),
            _ => a.as_f64().partial_cmp(&b.as_f64()).unwrap_or(Ordering::Equal),
        },
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Array(a), Value::Array(b)) => cmp_lists(a, b, cmp_values),
        (Value::Object(a), Value::Object(b)) => {
            let (mut a, mut b): (Vec<_>, Vec<_>) = (a.iter().collect(), b.iter().collect());
            a.sort_by_key(|field| field.0);
            b.sort_by_key(|field| field.0);
            cmp_lists(&a, &b, |x, y| x.0.cmp(y.0).then_with(|| cmp_values(x.1, y.1)))
        }
        _ => value_rank(a).cmp(&value_rank(b)),
    }
}

/// Equality of JSON values in which `1` and `1.0` are the same.
pub(super) fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(_), Value::Number(_)) => cmp_values(a, b) == Ordering::Equal,
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        _ => a == b,
    }
}

fn value_rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

fn cmp_lists<T>(a: &[T], b: &[T], cmp: impl Fn(&T, &T) -> Ordering) -> Ordering {
    a.iter().zip(b).map(|(a, b)| cmp(a, b)).find(|o| o.is_ne()).unwrap_or_else(|| a.len().cmp(&b.len()))
}
