//! Operators, and the functions whose results can be larger than their arguments.

use crate::{
    library,
    macros::INSERT,
    price::Outcome,
    run::{ITEM, Run},
    value::{List, Owned, elements, equal},
};
use cel::{
    ExecutionError,
    common::{
        ast::operators,
        types::{CelBool, CelBytes, CelInt, CelMap, CelMapKey, CelString, Kind},
        value::{CowVal, Val},
    },
};
use freehold_machinery::schema::pattern;
use std::{cmp::Ordering, collections::HashMap};

/// The entries of a map that is being made.
pub(crate) type Entries = HashMap<CelMapKey<'static>, Box<dyn Val>>;

type Args<'e> = Vec<CowVal<'e, 'static>>;

/// Calls a function of [`plan`](crate::plan)'s list.
pub(crate) fn apply<'e>(name: &str, args: Args<'e>, run: &Run<'_>) -> Outcome<'e> {
    let truth = |value: bool| Ok(CowVal::owned(CelBool::from(value)));
    match name {
        operators::EQUALS => truth(equal(args[0].as_ref(), args[1].as_ref())),
        operators::NOT_EQUALS => truth(!equal(args[0].as_ref(), args[1].as_ref())),
        operators::LESS => compare(name, &args, |order| order == Ordering::Less),
        operators::LESS_EQUALS => compare(name, &args, |order| order != Ordering::Greater),
        operators::GREATER => compare(name, &args, |order| order == Ordering::Greater),
        operators::GREATER_EQUALS => compare(name, &args, |order| order != Ordering::Less),
        operators::IN => contains(args[0].as_ref(), args[1].as_ref()).and_then(truth),
        "format" => {
            run.effort(args.iter().map(|arg| weight(arg.as_ref())).fold(0, u64::saturating_add))?;
            let made = library::formatting::format(text(&args, 0, name)?, args[1].as_ref())?;
            Ok(CowVal::owned(CelString::from(made)))
        }
        "matches" => matches(&args),
        "replace" => replace(&args, run),
        "join" => join(&args, run),
        "indexOf" | "lastIndexOf" => index_from(name, &args),
        "lists.range" => range(&args, run),
        INSERT => inserted(args),
        _ => arithmetic(name, &args, run),
    }
}

fn wrong(name: &str, args: &[CowVal<'_, '_>]) -> ExecutionError {
    ExecutionError::no_such_overload(name, args.iter().map(|a| a.get_type().name().to_owned()).collect())
}

fn arithmetic<'e>(name: &str, args: &Args<'e>, run: &Run<'_>) -> Outcome<'e> {
    let none = || wrong(name, args);
    let value = args[0].as_ref();
    let result = match (name, args.get(1).map(CowVal::as_ref)) {
        (operators::ADD, Some(other)) => {
            run.effort(shallow(value).saturating_add(shallow(other)))?;
            value.as_adder().ok_or_else(none)?.add(other).map(CowVal::into_owned)
        }
        (operators::SUBSTRACT, Some(other)) => {
            value.as_subtractor().ok_or_else(none)?.sub(other).map(CowVal::into_owned)
        }
        (operators::MULTIPLY, Some(other)) => {
            value.as_multiplier().ok_or_else(none)?.mul(other).map(CowVal::into_owned)
        }
        (operators::DIVIDE, Some(other)) => {
            value.as_divider().ok_or_else(none)?.div(other).map(CowVal::into_owned)
        }
        (operators::MODULO, Some(other)) => {
            value.as_modder().ok_or_else(none)?.modulo(other).map(CowVal::into_owned)
        }
        (operators::NEGATE, None) => value.as_negator().ok_or_else(none)?.negate(),
        _ => return Err(none()),
    };
    result.map(CowVal::Owned).map_err(|error| match error {
        ExecutionError::UnsupportedBinaryOperator(..) | ExecutionError::UnexpectedType { .. } => none(),
        error => error,
    })
}

fn compare<'e>(name: &str, args: &Args<'e>, holds: impl Fn(Ordering) -> bool) -> Outcome<'e> {
    let comparer = args[0].as_comparer().ok_or_else(|| wrong(name, args))?;
    let order = comparer.compare(args[1].as_ref()).map_err(|_| wrong(name, args))?;
    Ok(CowVal::owned(CelBool::from(holds(order))))
}

/// Whether a value is in a list, or a key in a map.
pub(crate) fn contains(value: &dyn Val, container: &dyn Val) -> Result<bool, ExecutionError> {
    let types = || vec![value.get_type().name().to_owned(), container.get_type().name().to_owned()];
    let none = || ExecutionError::no_such_overload(operators::IN, types());
    if container.get_type().kind() == Kind::List {
        let mut items = container.as_iterable().ok_or_else(none)?.iter();
        while let Some(item) = items.next() {
            if equal(item, value) {
                return Ok(true);
            }
        }
        return Ok(false);
    }
    container.as_container().ok_or_else(none)?.contains(value).map_err(|_| none())
}

fn text<'a>(args: &'a [CowVal<'_, 'static>], at: usize, name: &str) -> Result<&'a str, ExecutionError> {
    args[at].downcast_ref::<CelString<'_>>().map(CelString::inner).ok_or_else(|| wrong(name, args))
}

fn matches<'e>(args: &Args<'e>) -> Outcome<'e> {
    let (subject, regex) = (text(args, 0, "matches")?, text(args, 1, "matches")?);
    let regex = pattern::compile(regex).map_err(|e| ExecutionError::function_error("matches", e))?;
    Ok(CowVal::owned(CelBool::from(regex.is_match(subject))))
}

fn replace<'e>(args: &Args<'e>, run: &Run<'_>) -> Outcome<'e> {
    let (subject, old, new) =
        (text(args, 0, "replace")?, text(args, 1, "replace")?, text(args, 2, "replace")?);
    let limit = match args.get(3) {
        Some(limit) => *limit.downcast_ref::<CelInt>().ok_or_else(|| wrong("replace", args))?.inner(),
        None => -1,
    };
    let found = if old.is_empty() { subject.chars().count() + 1 } else { subject.matches(old).count() };
    let count = usize::try_from(limit).map_or(found, |limit| limit.min(found));
    run.effort((subject.len() as u64).saturating_add((count as u64).saturating_mul(new.len() as u64)))?;
    Ok(CowVal::owned(CelString::from(subject.replacen(old, new, count))))
}

fn join<'e>(args: &Args<'e>, run: &Run<'_>) -> Outcome<'e> {
    let separator = if args.len() > 1 { text(args, 1, "join")? } else { "" };
    let items = elements(args[0].as_ref());
    let parts: Option<Vec<&str>> =
        items.iter().map(|i| i.downcast_ref::<CelString<'_>>().map(CelString::inner)).collect();
    let parts = parts.ok_or_else(|| wrong("join", args))?;
    run.effort(parts.iter().map(|p| (p.len() + separator.len()) as u64).fold(0, u64::saturating_add))?;
    Ok(CowVal::owned(CelString::from(parts.join(separator))))
}

/// Where a text stands in another, from a character on; backwards for `lastIndexOf`. -1: nowhere.
fn index_from<'e>(name: &str, args: &Args<'e>) -> Outcome<'e> {
    let (text, part) = (text(args, 0, name)?, text(args, 1, name)?);
    let from = *args[2].downcast_ref::<CelInt>().ok_or_else(|| wrong(name, args))?.inner();
    if part.is_empty() {
        return Ok(CowVal::owned(CelInt::from(from)));
    }
    let start = usize::try_from(from);
    let start =
        start.map_err(|_| ExecutionError::function_error(name, format!("index out of range: {from}")))?;
    let mut places = text.char_indices().enumerate().filter(|(_, (at, _))| text[*at..].starts_with(part));
    let length = text.chars().count();
    let found = match name {
        _ if start >= length => None,
        "indexOf" => places.find(|(place, _)| *place >= start),
        _ => places.take_while(|(place, _)| *place <= start).last(),
    };
    Ok(CowVal::owned(CelInt::from(found.map_or(-1, |(place, _)| place as i64))))
}

/// The numbers from 0 to below another; none below 0.
fn range<'e>(args: &Args<'e>, run: &Run<'_>) -> Outcome<'e> {
    let end = *args[0].downcast_ref::<CelInt>().ok_or_else(|| wrong("lists.range", args))?.inner();
    run.effort(u64::try_from(end).unwrap_or(0).saturating_mul(ITEM))?;
    Ok(CowVal::owned(List::of((0..end).map(|at| Box::new(CelInt::from(at)) as Owned).collect())))
}

/// A map with one more entry, or with those of another.
fn inserted<'e>(mut args: Args<'e>) -> Outcome<'e> {
    let rest = args.split_off(1);
    let map = args[0].downcast_ref::<CelMap<'static>>().ok_or_else(|| wrong("transformMap", &args))?;
    let mut entries: Entries =
        map.inner().iter().map(|(key, value)| (key.clone(), value.clone_as_boxed())).collect();
    insert(&mut entries, rest)?;
    Ok(CowVal::owned(CelMap::from(entries)))
}

/// Adds an entry, given as key and value, or those of a map.
///
/// # Errors
/// What is no key or no map, and keys that are there already.
pub(crate) fn insert(into: &mut Entries, mut args: Args<'_>) -> Result<(), ExecutionError> {
    if let [_, _] = args.as_slice() {
        let value = args.pop().map(CowVal::into_owned);
        return match (args.pop(), value) {
            (Some(key), Some(value)) => add(into, CelMapKey::try_from(key)?, value),
            _ => Ok(()),
        };
    }
    let Some(map) = args.pop() else { return Ok(()) };
    let indexer = map.as_indexer().filter(|_| map.get_type().kind() == Kind::Map);
    let Some(indexer) = indexer else { return Err(wrong("transformMapEntry", &[map])) };
    for key in elements(map.as_ref()) {
        let value = indexer.get(key.as_ref())?.into_owned();
        add(into, CelMapKey::try_from(key)?, value)?;
    }
    Ok(())
}

fn add(into: &mut Entries, key: CelMapKey<'static>, value: Box<dyn Val>) -> Result<(), ExecutionError> {
    if into.contains_key(&key) {
        let shown = match key.inner().downcast_ref::<CelString<'_>>() {
            Some(text) => text.inner().to_owned(),
            None => key.inner().downcast_ref::<CelInt>().map(|i| i.inner().to_string()).unwrap_or_default(),
        };
        let message = format!("insert failed: key {shown} already exists");
        return Err(ExecutionError::function_error("transformMap", message));
    }
    into.insert(key, value);
    Ok(())
}

/// What copying a value takes, without what is in its items.
fn shallow(value: &dyn Val) -> u64 {
    if let Some(text) = value.downcast_ref::<CelString<'_>>() {
        return text.inner().len() as u64;
    }
    if let Some(bytes) = value.downcast_ref::<CelBytes<'_>>() {
        return bytes.inner().len() as u64;
    }
    value.as_sizer().map_or(0, |sizer| u64::try_from(*sizer.size().inner()).unwrap_or(0).saturating_mul(ITEM))
}

/// What showing a value as text takes, about.
fn weight(value: &dyn Val) -> u64 {
    let sum = |sum: u64, part: u64| sum.saturating_add(part);
    match value.get_type().kind() {
        Kind::List => elements(value).iter().map(|item| weight(item.as_ref())).fold(ITEM, sum),
        Kind::Map => {
            let of_value =
                |key: &dyn Val| value.as_indexer().and_then(|map| Some(weight(map.get(key).ok()?.as_ref())));
            let entries = elements(value);
            let parts = entries
                .iter()
                .map(|key| weight(key.as_ref()).saturating_add(of_value(key.as_ref()).unwrap_or(0)));
            parts.fold(ITEM, sum)
        }
        _ if library::is_own(value) => ITEM * 4,
        _ => ITEM.saturating_add(shallow(value)),
    }
}
