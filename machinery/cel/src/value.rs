//! JSON as CEL values, by schema.
//!
//! Objects and lists are shared, so that a comprehension that binds each item to its variable copies a pointer. A
//! schema decides what a value is: a number of type `number` is a double, a string of format `date-time` a timestamp, a
//! list of type `set` is equal to one with the same items in another order.

use crate::escape::escape;
use cel::{
    ExecutionError,
    common::{
        traits::{Adder, Container, Indexer, Iterable, Iterator as ValIterator, Sizer, Zeroer},
        types::{CelDouble, CelInt, CelList, CelString, CelUInt, Kind as CelKind, LIST_TYPE, MAP_TYPE, Type},
        value::{CowVal, StaticVal, Val},
    },
};
use std::{any::Any, sync::Arc};

/// A value that owns everything it is made of.
pub(crate) type Owned = Box<dyn Val>;

/// Whether two values are equal, whatever types of lists and maps they are.
pub(crate) fn equal(a: &dyn Val, b: &dyn Val) -> bool {
    match (a.get_type().kind(), b.get_type().kind()) {
        (CelKind::List, CelKind::List) => {
            let (left, right) = (elements(a), elements(b));
            let unordered = |v: &dyn Val| v.downcast_ref::<List>().is_some_and(|l| *l.order != Order::List);
            if left.len() != right.len() {
                return false;
            }
            if unordered(a) || unordered(b) {
                return left.iter().all(|x| right.iter().any(|y| equal(x.as_ref(), y.as_ref())));
            }
            left.iter().zip(&right).all(|(x, y)| equal(x.as_ref(), y.as_ref()))
        }
        (CelKind::Map, CelKind::Map) => {
            let size = |v: &dyn Val| v.as_sizer().map(|s| *s.size().inner());
            let (Some(left), Some(right)) = (a.as_indexer(), b.as_indexer()) else { return false };
            let same = |key: &dyn Val| match (left.get(key), right.get(key)) {
                (Ok(x), Ok(y)) => equal(x.as_ref(), y.as_ref()),
                _ => false,
            };
            size(a) == size(b) && elements(a).iter().all(|key| same(key.as_ref()))
        }
        _ => a.equals(b),
    }
}

/// The items of a list, or the keys of a map.
pub(crate) fn elements<'v>(value: &(dyn Val + 'v)) -> Vec<Box<dyn Val + 'v>> {
    let mut out = Vec::new();
    if let Some(iterable) = value.as_iterable() {
        let mut items = iterable.iter();
        while let Some(item) = items.next() {
            out.push(item.clone_as_boxed());
        }
    }
    out
}

fn index(idx: &dyn Val) -> Option<i64> {
    if let Some(int) = idx.downcast_ref::<CelInt>() {
        return Some(*int.inner());
    }
    if let Some(uint) = idx.downcast_ref::<CelUInt>() {
        return i64::try_from(*uint.inner()).ok();
    }
    let double = *idx.downcast_ref::<CelDouble>()?.inner();
    (double.fract() == 0.0).then_some(double as i64)
}

fn no_overload(a: &dyn Val, b: &dyn Val) -> ExecutionError {
    let names = vec![a.get_type().name().to_owned(), b.get_type().name().to_owned()];
    ExecutionError::no_such_overload("_[_]", names)
}

/// What the order of a list's items means.
#[derive(Debug, PartialEq)]
pub(crate) enum Order {
    List,
    Set,
    Map(Vec<String>),
}

/// A list of an object.
#[derive(Clone, Debug)]
pub(crate) struct List {
    pub(crate) items: Arc<[Owned]>,
    pub(crate) order: Arc<Order>,
}

impl List {
    /// A list of values that are there already.
    pub(crate) fn of(items: Vec<Owned>) -> Self {
        Self { items: items.into(), order: Arc::new(Order::List) }
    }
}

impl StaticVal for List {}

impl Val for List {
    fn get_type(&self) -> &Type {
        &LIST_TYPE
    }

    fn cel_type() -> &'static Type {
        &LIST_TYPE
    }

    fn as_adder<'b, 'v>(&'b self) -> Option<&'b (dyn Adder + 'v)>
    where
        Self: 'v,
    {
        Some(self)
    }

    fn as_container(&self) -> Option<&dyn Container> {
        Some(self)
    }

    fn as_indexer<'b, 'v>(&'b self) -> Option<&'b (dyn Indexer + 'v)>
    where
        Self: 'v,
    {
        Some(self)
    }

    fn as_iterable<'b, 'v>(&'b self) -> Option<&'b (dyn Iterable + 'v)>
    where
        Self: 'v,
    {
        Some(self)
    }

    fn as_sizer(&self) -> Option<&dyn Sizer> {
        Some(self)
    }

    fn as_zeroer(&self) -> Option<&dyn Zeroer> {
        Some(self)
    }

    fn equals(&self, other: &dyn Val) -> bool {
        other.get_type().kind() == CelKind::List && equal(self, other)
    }

    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v> {
        Box::new(self.clone())
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

impl Adder for List {
    /// Sets take what they don't have yet; maps by key take the other's item in the place of their own.
    fn add<'b, 'v>(&'b self, rhs: &(dyn Val + 'v)) -> Result<CowVal<'b, 'v>, ExecutionError>
    where
        Self: 'v,
    {
        let mut out: Vec<Box<dyn Val + 'v>> = self.items.iter().map(|i| i.clone_as_boxed()).collect();
        for item in elements(rhs) {
            let at = match &*self.order {
                Order::List => None,
                Order::Set => out.iter().position(|o| equal(o.as_ref(), item.as_ref())),
                Order::Map(keys) => out.iter().position(|o| same_keys(o.as_ref(), item.as_ref(), keys)),
            };
            match at {
                Some(at) => out[at] = item,
                None => out.push(item),
            }
        }
        Ok(CowVal::owned(CelList::from(out)))
    }
}

fn same_keys(a: &dyn Val, b: &dyn Val, keys: &[String]) -> bool {
    let (Some(a), Some(b)) = (a.as_indexer(), b.as_indexer()) else { return false };
    keys.iter().all(|key| {
        let key = CelString::from(escape(key).unwrap_or_default().into_owned());
        match (a.get(&key), b.get(&key)) {
            (Ok(x), Ok(y)) => equal(x.as_ref(), y.as_ref()),
            (Err(_), Err(_)) => true,
            _ => false,
        }
    })
}

impl Container for List {
    fn contains(&self, value: &dyn Val) -> Result<bool, ExecutionError> {
        Ok(self.items.iter().any(|i| equal(i.as_ref(), value)))
    }
}

impl Indexer for List {
    fn get<'b, 'v>(&'b self, idx: &dyn Val) -> Result<CowVal<'b, 'v>, ExecutionError>
    where
        Self: 'v,
    {
        let at = index(idx).ok_or_else(|| no_overload(self, idx))?;
        let item = usize::try_from(at).ok().and_then(|i| self.items.get(i));
        item.map(|i| CowVal::Borrowed(i.as_ref())).ok_or(ExecutionError::IndexOutOfBounds(at.into()))
    }

    fn steal<'v>(self: Box<Self>, idx: &dyn Val) -> Result<Box<dyn Val + 'v>, ExecutionError>
    where
        Self: 'v,
    {
        self.get(idx).map(CowVal::into_owned)
    }
}

impl Iterable for List {
    fn iter<'b, 'v>(&'b self) -> Box<dyn ValIterator<'b, 'v> + 'b>
    where
        Self: 'v,
    {
        Box::new(Items(self.items.iter()))
    }
}

struct Items<'b>(std::slice::Iter<'b, Owned>);

impl<'b, 'v> ValIterator<'b, 'v> for Items<'b> {
    fn next(&mut self) -> Option<&'b (dyn Val + 'v)> {
        self.0.next().map(|v| v.as_ref() as &(dyn Val + 'v))
    }
}

impl Sizer for List {
    fn size(&self) -> CelInt {
        (self.items.len() as i64).into()
    }
}

impl Zeroer for List {
    fn is_zero_value(&self) -> bool {
        self.items.is_empty()
    }
}

/// An object, or a map of one. Keys are sorted.
#[derive(Clone, Debug)]
pub(crate) struct Map {
    pub(crate) fields: Arc<Vec<(CelString<'static>, Owned)>>,
    /// With the fields that are null.
    pub(crate) size: usize,
}

impl Map {
    /// A map of values that are there already.
    pub(crate) fn of(fields: impl Iterator<Item = (String, Owned)>) -> Self {
        let mut fields: Vec<_> = fields.map(|(name, value)| (CelString::from(name), value)).collect();
        fields.sort_by(|a, b| a.0.inner().cmp(b.0.inner()));
        Self { size: fields.len(), fields: Arc::new(fields) }
    }

    /// The value of a field, by its name in CEL.
    pub(crate) fn field(&self, name: &str) -> Option<&Owned> {
        let at = self.fields.binary_search_by(|(key, _)| key.inner().cmp(name)).ok()?;
        Some(&self.fields[at].1)
    }

    fn find(&self, key: &dyn Val) -> Option<&Owned> {
        let name = key.downcast_ref::<CelString<'_>>()?.inner();
        let escaped = || self.fields.iter().find(|(key, _)| escape(key.inner()).as_deref() == Some(name));
        self.field(name)
            .or_else(|| self.field(&escape(name)?))
            .or_else(|| name.contains("__").then(escaped).flatten().map(|(_, value)| value))
    }
}

impl StaticVal for Map {}

impl Val for Map {
    fn get_type(&self) -> &Type {
        &MAP_TYPE
    }

    fn cel_type() -> &'static Type {
        &MAP_TYPE
    }

    fn as_container(&self) -> Option<&dyn Container> {
        Some(self)
    }

    fn as_indexer<'b, 'v>(&'b self) -> Option<&'b (dyn Indexer + 'v)>
    where
        Self: 'v,
    {
        Some(self)
    }

    fn as_iterable<'b, 'v>(&'b self) -> Option<&'b (dyn Iterable + 'v)>
    where
        Self: 'v,
    {
        Some(self)
    }

    fn as_sizer(&self) -> Option<&dyn Sizer> {
        Some(self)
    }

    fn as_zeroer(&self) -> Option<&dyn Zeroer> {
        Some(self)
    }

    fn equals(&self, other: &dyn Val) -> bool {
        other.get_type().kind() == CelKind::Map && equal(self, other)
    }

    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v> {
        Box::new(self.clone())
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

impl Container for Map {
    fn contains(&self, key: &dyn Val) -> Result<bool, ExecutionError> {
        Ok(self.find(key).is_some())
    }
}

impl Indexer for Map {
    fn get<'b, 'v>(&'b self, key: &dyn Val) -> Result<CowVal<'b, 'v>, ExecutionError>
    where
        Self: 'v,
    {
        let Some(name) = key.downcast_ref::<CelString<'_>>() else { return Err(no_overload(self, key)) };
        let found = self.find(key).map(|v| CowVal::Borrowed(v.as_ref() as &(dyn Val + 'v)));
        found.ok_or_else(|| ExecutionError::no_such_key(name.inner()))
    }

    fn steal<'v>(self: Box<Self>, key: &dyn Val) -> Result<Box<dyn Val + 'v>, ExecutionError>
    where
        Self: 'v,
    {
        self.get(key).map(CowVal::into_owned)
    }
}

impl Iterable for Map {
    fn iter<'b, 'v>(&'b self) -> Box<dyn ValIterator<'b, 'v> + 'b>
    where
        Self: 'v,
    {
        Box::new(Keys(self.fields.iter()))
    }
}

struct Keys<'b>(std::slice::Iter<'b, (CelString<'static>, Owned)>);

impl<'b, 'v> ValIterator<'b, 'v> for Keys<'b> {
    fn next(&mut self) -> Option<&'b (dyn Val + 'v)> {
        self.0.next().map(|(key, _)| key as &(dyn Val + 'v))
    }
}

impl Sizer for Map {
    fn size(&self) -> CelInt {
        (self.size as i64).into()
    }
}

impl Zeroer for Map {
    fn is_zero_value(&self) -> bool {
        self.fields.is_empty()
    }
}
