//! Values that expressions gave, for other expressions and as JSON.

use crate::convert::convert;
use crate::{
    library,
    value::{List, Map, Owned, elements},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use cel::common::{
    types::{
        CelBool, CelBytes, CelDouble, CelDuration, CelInt, CelNull, CelString, CelTimestamp, CelUInt,
        Kind as CelKind,
    },
    value::Val,
};
use freehold_machinery::Value;

/// Levels of lists and maps that become JSON; what is deeper is no object that could be stored.
const MAX_DEPTH: usize = 120;

/// What an expression gave, with its CEL type.
#[derive(Debug)]
pub struct Computed(pub(crate) Owned);

impl Clone for Computed {
    fn clone(&self) -> Self {
        Self(self.0.clone_as_boxed())
    }
}

impl Computed {
    /// A copy of what an evaluation gave, which may borrow from that. A value of a type that can't be copied is null.
    pub(crate) fn copy(value: &dyn Val) -> Self {
        Self(owned(value))
    }

    /// JSON as a CEL value that is converted once, however many expressions read it.
    pub fn of(value: &Value) -> Self {
        Self(convert(value, None))
    }

    /// The boolean that it is.
    pub fn as_bool(&self) -> Option<bool> {
        self.0.downcast_ref::<CelBool>().map(|b| *b.inner())
    }

    /// The string that it is.
    pub fn as_str(&self) -> Option<&str> {
        self.0.downcast_ref::<CelString<'_>>().map(|s| s.inner())
    }

    /// Whether it is null.
    pub fn is_null(&self) -> bool {
        self.0.downcast_ref::<CelNull>().is_some()
    }

    /// The name of its type.
    pub fn type_name(&self) -> String {
        self.0.get_type().name().to_owned()
    }

    /// The JSON that stands for it; `None` for types that have none, and for what is nested too deeply.
    pub fn to_json(&self) -> Option<Value> {
        json(self.0.as_ref(), 0)
    }
}

fn owned(value: &dyn Val) -> Owned {
    macro_rules! copied {
        ($($ty:ty),*) => { $(if let Some(known) = value.downcast_ref::<$ty>() { return Box::new(known.clone()); })* };
    }
    copied!(CelBool, CelInt, CelUInt, CelDouble, CelDuration, CelTimestamp, List, Map);
    if let Some(text) = value.downcast_ref::<CelString<'_>>() {
        return Box::new(CelString::from(text.inner().to_owned()));
    }
    if let Some(bytes) = value.downcast_ref::<CelBytes<'_>>() {
        return Box::new(CelBytes::from(bytes.inner().to_vec()));
    }
    match value.get_type().kind() {
        CelKind::List => {
            Box::new(List::of(elements(value).iter().map(|item| owned(item.as_ref())).collect()))
        }
        CelKind::Map => {
            let field = |key: &(dyn Val + '_)| {
                let name = key.downcast_ref::<CelString<'_>>()?.inner().to_owned();
                Some((name, owned(value.as_indexer()?.get(key).ok()?.as_ref())))
            };
            Box::new(Map::of(elements(value).iter().filter_map(|key| field(key.as_ref()))))
        }
        _ => library::copy(value).unwrap_or_else(|| Box::new(CelNull)),
    }
}

fn json(value: &dyn Val, depth: usize) -> Option<Value> {
    if depth > MAX_DEPTH {
        return None;
    }
    match value.get_type().kind() {
        CelKind::List => {
            let items = elements(value);
            items
                .iter()
                .map(|item| json(item.as_ref(), depth + 1))
                .collect::<Option<Vec<_>>>()
                .map(Value::Array)
        }
        CelKind::Map => {
            let indexer = value.as_indexer()?;
            let mut map = freehold_machinery::Map::new();
            for key in elements(value) {
                let name = key.downcast_ref::<CelString<'_>>()?.inner().to_owned();
                let item = indexer.get(key.as_ref()).ok()?;
                map.insert(name, json(item.as_ref(), depth + 1)?);
            }
            Some(Value::Object(map))
        }
        _ => scalar(value),
    }
}

fn scalar(value: &dyn Val) -> Option<Value> {
    if let Some(text) = value.downcast_ref::<CelString<'_>>() {
        return Some(text.inner().into());
    }
    if let Some(int) = value.downcast_ref::<CelInt>() {
        return Some((*int.inner()).into());
    }
    if let Some(flag) = value.downcast_ref::<CelBool>() {
        return Some((*flag.inner()).into());
    }
    if let Some(double) = value.downcast_ref::<CelDouble>() {
        return serde_json::Number::from_f64(*double.inner()).map(Value::Number);
    }
    if let Some(uint) = value.downcast_ref::<CelUInt>() {
        return Some((*uint.inner()).into());
    }
    if value.downcast_ref::<CelNull>().is_some() {
        return Some(Value::Null);
    }
    if let Some(bytes) = value.downcast_ref::<CelBytes<'_>>() {
        return Some(STANDARD.encode(bytes.inner()).into());
    }
    if let Some(time) = value.downcast_ref::<CelTimestamp>() {
        return Some(time.inner().to_rfc3339().into());
    }
    let duration = value.downcast_ref::<CelDuration>()?;
    Some(format!("{}s", duration.inner().num_milliseconds() as f64 / 1000.0).into())
}
