//! Runtime cost of calls, in cel-go's units: its `interpreter/runtimecost.go`, its extensions' trackers, and
//! Kubernetes' `library/cost.go` (KEP-2876). The price of a call is known when its expression is compiled; its amount
//! depends on the sizes of the arguments.

use crate::{library, value::elements};
use cel::{
    ExecutionError,
    common::{
        ast::operators,
        types::{CelBytes, CelInt, CelOptional, CelString, Kind},
        value::{CowVal, Val},
    },
};

/// Cost of reading a character.
const PER_CHARACTER: f64 = 0.1;
/// Cost of a character of a regular expression, for each unit of a text.
const PER_REGEX_CHARACTER: f64 = 0.25;
/// Cost of asking the authorizer.
const CHECK: u64 = 350_000;
/// Cost of creating a list.
pub(crate) const LIST: u64 = 10;
/// Cost of creating a map.
pub(crate) const MAP: u64 = 30;
/// Cost of creating an object.
pub(crate) const OBJECT: u64 = 40;

/// How the cost of a call follows from its arguments.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Price {
    /// As much each time.
    Fixed(u64),
    /// Reading the first argument, and where it is 2, writing as much.
    Read(f64),
    /// Writing the result.
    Written,
    /// Reading the first argument as often as the second, a regular expression, may want.
    Regex,
    /// As [`Regex`](Self::Regex), of the first argument's named format over the second.
    Format,
    /// Looking for the second argument in the first.
    Within,
    /// Comparing two values.
    Least,
    /// [`Least`](Self::Least), and 1 for values of Kubernetes' own types.
    Equality,
    /// Reading both arguments.
    Both,
    /// Everything in the first argument.
    Elements,
    /// As many as are in the second argument.
    Items,
    /// Whether a network contains an address, or (`network`) another network, given as text or not.
    Contains { network: bool, text: bool },
    /// Parsing the second argument as a selector.
    Selector,
    /// A list as large as the result.
    Made,
    /// A list of what is in the lists of the first argument.
    Flatten,
    /// Comparing all items of that argument with one another.
    Compared(usize),
    /// Comparing all items of one argument with all of the other, that many times.
    Crossed(f64),
}

/// An argument or result. What failed has size 1.
pub(crate) type Outcome<'b> = Result<CowVal<'b, 'static>, ExecutionError>;

impl Price {
    /// The price of a function, by its full name and by the overload where the types leave one.
    pub(crate) fn of(function: &str, overload: Option<&str>) -> Self {
        let overload = overload.unwrap_or_default();
        Self::of_lists(overload).or_else(|| Self::of_kubernetes(function, overload)).unwrap_or_else(|| {
            match overload {
                "starts_with_string" | "ends_with_string" | "string_to_bytes" | "bytes_to_string"
                | "strings_quote" | "string_format" => Self::Read(1.0),
                "in_list" => Self::Items,
                "less_string"
                | "greater_string"
                | "less_equals_string"
                | "greater_equals_string"
                | "less_bytes"
                | "greater_bytes"
                | "less_equals_bytes"
                | "greater_equals_bytes" => Self::Least,
                "add_string" | "add_bytes" => Self::Both,
                "matches_string" => Self::Regex,
                "contains_string" => Self::Within,
                _ if function == operators::NOT_EQUALS => Self::Least,
                _ => Self::Fixed(1),
            }
        })
    }

    fn of_lists(overload: &str) -> Option<Self> {
        Some(match overload {
            "list_slice" | "lists_range" | "list_reverse" => Self::Made,
            "list_flatten" | "list_flatten_int" => Self::Flatten,
            "list_distinct" => Self::Compared(0),
            "list_sets_contains_list" | "list_sets_intersects_list" => Self::Crossed(1.0),
            "list_sets_equivalent_list" => Self::Crossed(2.0),
            name if name.starts_with("list_") && name.ends_with("_sort") => Self::Compared(0),
            name if name.starts_with("list_") && name.ends_with("_sortByAssociatedKeys") => Self::Compared(1),
            _ => return None,
        })
    }

    fn of_kubernetes(function: &str, overload: &str) -> Option<Self> {
        let text = overload.ends_with("_string");
        Some(match function {
            "check" => Self::Fixed(CHECK),
            "fieldSelector" | "labelSelector" => Self::Selector,
            "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => Self::Elements,
            "ip" if overload == "cidr_ip" => Self::Fixed(1),
            "url"
            | "lowerAscii"
            | "upperAscii"
            | "substring"
            | "trim"
            | "jsonpatch.escapeKey"
            | "cidr"
            | "isIP"
            | "isCIDR"
            | "ip"
            | "quantity"
            | "isQuantity"
            | "semver"
            | "isSemver" => Self::Read(1.0),
            "replace" | "split" | "ip.isCanonical" => Self::Read(2.0),
            "join" => Self::Written,
            "find" | "findAll" => Self::Regex,
            "containsIP" => Self::Contains { network: false, text },
            "containsCIDR" => Self::Contains { network: true, text },
            "validate" => Self::Format,
            operators::EQUALS => Self::Equality,
            _ => return None,
        })
    }

    /// What a call comes to.
    pub(crate) fn cost(self, args: &[Outcome<'_>], result: &Outcome<'_>) -> u64 {
        let size = |at: usize| args.get(at).map_or(1, size_of);
        let read = |size: u64| scaled(size as f64, PER_CHARACTER);
        match self {
            Self::Fixed(cost) => cost,
            Self::Read(times) => scaled(size(0) as f64 * times, PER_CHARACTER),
            Self::Written => scaled(size_of(result) as f64 * 2.0, PER_CHARACTER),
            Self::Regex => regex(size(0), size(1)),
            Self::Format => {
                let format = args
                    .first()
                    .and_then(|a| a.as_ref().ok())
                    .and_then(|a| library::format_regex(a.as_ref()));
                format.map_or(1, |longest| regex(size(1), longest))
            }
            Self::Within => read(size(0)).saturating_mul(read(size(1))),
            Self::Least => read(size(0).min(size(1))),
            Self::Equality => match args.first() {
                Some(Ok(value)) if library::is_own(value.as_ref()) => 1,
                _ => read(size(0).min(size(1))),
            },
            Self::Both => read(size(0).saturating_add(size(1))),
            Self::Elements => {
                args.first().map_or(1, |value| value.as_ref().map_or(1, |v| traversed(v.as_ref())))
            }
            Self::Items => size(1),
            Self::Contains { network, text } => {
                let masked = if network { read(size(0)).saturating_add(1) } else { 0 };
                let parsed = if text { read(size(1)) } else { 0 };
                read(size(0).saturating_mul(2)).saturating_add(masked).saturating_add(parsed)
            }
            Self::Selector => {
                let requirements = scaled(size(1) as f64, 0.5).saturating_mul(LIST + OBJECT);
                LIST.saturating_add(read(size(1))).saturating_add(requirements)
            }
            Self::Made => allocated(1.0, size_of(result)),
            Self::Flatten => {
                let depth = args.get(1).and_then(|a| a.as_ref().ok()?.downcast_ref::<CelInt>());
                allocated(depth.map_or(1.0, |d| *d.inner() as f64), size(0))
            }
            Self::Compared(at) => {
                let first = args.get(at).and_then(|a| first_of(a.as_ref().ok()?.as_ref()));
                let is_text = matches!(first, Some(Kind::String | Kind::Bytes));
                let factor = if is_text { 2.0 + PER_CHARACTER } else { 2.0 };
                allocated(factor, size(at).saturating_mul(size(at)))
            }
            Self::Crossed(times) => 1 + (size(0).saturating_mul(size(1)) as f64 * times) as u64,
        }
    }
}

/// Rounded up; conversions from floating point stop at the largest number.
fn scaled(size: f64, factor: f64) -> u64 {
    (size * factor).ceil() as u64
}

fn regex(text: u64, pattern: u64) -> u64 {
    scaled(1.0 + text as f64, PER_CHARACTER).saturating_mul(scaled(pattern as f64, PER_REGEX_CHARACTER))
}

fn allocated(factor: f64, size: u64) -> u64 {
    ((size as f64 * factor) as u64).saturating_add(1 + LIST)
}

fn size_of(value: &Outcome<'_>) -> u64 {
    value.as_ref().map_or(1, |value| size(value.as_ref()))
}

/// How large a value is: characters of a string, bytes, items, entries; 1 for everything else.
pub(crate) fn size(value: &dyn Val) -> u64 {
    if let Some(text) = value.downcast_ref::<CelString<'_>>() {
        return text.inner().chars().count() as u64;
    }
    if let Some(bytes) = value.downcast_ref::<CelBytes<'_>>() {
        return bytes.inner().len() as u64;
    }
    if let Some(optional) = value.downcast_ref::<CelOptional<'_>>() {
        return optional.inner().map_or(1, size);
    }
    if let Some(bytes) = library::address_bytes(value) {
        return bytes;
    }
    value.as_sizer().map_or(1, |sizer| u64::try_from(*sizer.size().inner()).unwrap_or(0))
}

/// What a walk over everything in a value costs.
fn traversed(value: &dyn Val) -> u64 {
    let read = |bytes: usize| (bytes as f64 * PER_CHARACTER) as u64;
    if let Some(text) = value.downcast_ref::<CelString<'_>>() {
        return read(text.inner().len());
    }
    if let Some(bytes) = value.downcast_ref::<CelBytes<'_>>() {
        return read(bytes.inner().len());
    }
    let sum = |sum: u64, cost: u64| sum.saturating_add(cost);
    match value.get_type().kind() {
        Kind::List => elements(value).iter().map(|item| traversed(item.as_ref())).fold(0, sum),
        Kind::Map => {
            let of_entry = |key: &dyn Val| {
                let value = value.as_indexer().and_then(|map| map.get(key).ok());
                traversed(key).saturating_add(value.map_or(0, |value| traversed(value.as_ref())))
            };
            elements(value).iter().map(|key| of_entry(key.as_ref())).fold(0, sum)
        }
        _ => 1,
    }
}

fn first_of(list: &dyn Val) -> Option<Kind> {
    Some(list.as_iterable()?.iter().next()?.get_type().kind())
}
