//! Estimated cost of calls: of cel-go, of its extensions, and of Kubernetes' libraries.

use super::{Coster, Entry, LIST, OBJECT, Type, range::Range};
use cel::{
    IdedExpr,
    common::ast::{Expr, LiteralValue, operators},
};

/// Cost of reading a character.
const PER_CHARACTER: f64 = 0.1;
/// Cost of a character of a regular expression, for each character of a text.
const PER_REGEX_CHARACTER: f64 = 0.25;
/// Cost of asking the authorizer.
const CHECK: u64 = 350_000;
/// Bytes of an address.
const ADDRESS: Range = Range { min: 4, max: 16 };

/// Functions that only look at what is there.
const NOMINAL: [&str; 38] = [
    "serviceAccount",
    "path",
    "group",
    "resource",
    "subresource",
    "namespace",
    "name",
    "allowed",
    "reason",
    "error",
    "errored",
    "masked",
    "prefixLength",
    "family",
    "isUnspecified",
    "isLoopback",
    "isLinkLocalMulticast",
    "isLinkLocalUnicast",
    "isGlobalUnicast",
    "format.named",
    "sign",
    "asInteger",
    "isInteger",
    "asApproximateFloat",
    "isGreaterThan",
    "isLessThan",
    "compareTo",
    "add",
    "sub",
    "major",
    "minor",
    "patch",
    "getScheme",
    "getHostname",
    "getHost",
    "getPort",
    "getEscapedPath",
    "getQuery",
];

/// A call as its costs are looked up.
struct Args<'a> {
    id: u64,
    overload: &'static str,
    target: Option<&'a IdedExpr>,
    args: &'a [IdedExpr],
    costs: &'a [Range],
}

type Estimate = (Range, Option<Range>);

fn just(cost: Range) -> Option<Estimate> {
    Some((cost, None))
}

impl Coster<'_> {
    pub(super) fn function(
        &mut self,
        id: u64,
        function: &'static str,
        overload: &'static str,
        target: Option<&IdedExpr>,
        args: &[IdedExpr],
        costs: &[Range],
    ) -> Estimate {
        let call = Args { id, overload, target, args, costs };
        let of_args = costs.iter().fold(Range::fixed(0), |sum, cost| sum.add(*cost));
        let of_library = self.of_lists(&call).or_else(|| self.of_kubernetes(function, &call));
        if let Some((cost, size)) = of_library {
            return (cost.add(of_args), size);
        }
        self.of_language(&call, of_args).unwrap_or((Range::fixed(1).add(of_args), None))
    }

    /// Sets and lists of cel-go's extensions.
    fn of_lists(&self, call: &Args<'_>) -> Option<Estimate> {
        let list =
            |factor: f64, size: Range| Some((size.scale(factor).add(Range::fixed(1 + LIST)), Some(size)));
        let square = |size: Range| size.multiply(size);
        let (target, args) = (call.target.map(|t| self.node_size(t)), call.args);
        match (call.overload, target, args) {
            ("list_sets_contains_list" | "list_sets_intersects_list", _, [a, b]) => {
                just(self.node_size(a).multiply(self.node_size(b)).add(Range::fixed(1)))
            }
            ("list_sets_equivalent_list", _, [a, b]) => {
                just(self.node_size(a).multiply(self.node_size(b)).scale(2.0).add(Range::fixed(1)))
            }
            ("list_slice", Some(size), [start, end]) => {
                let (start, end) = (integer(start).unwrap_or(0), integer(end).unwrap_or(size.max));
                list(1.0, Range::fixed(end.wrapping_sub(start)))
            }
            ("lists_range", None, [end]) => list(1.0, Range::fixed(integer(end).unwrap_or(u64::MAX))),
            ("list_reverse", Some(size), []) => list(1.0, size),
            ("list_flatten", Some(size), []) => list(1.0, size),
            ("list_flatten_int", Some(size), [depth]) => {
                list(integer(depth).unwrap_or(u64::MAX) as f64, size)
            }
            ("list_distinct", Some(size), []) => list(2.0, square(size)),
            (overload, Some(size), []) if overload.ends_with("_sort") => {
                list(sort_factor(overload), square(size))
            }
            (overload, Some(_), [keys]) if overload.ends_with("_sortByAssociatedKeys") => {
                list(sort_factor(overload), square(self.node_size(keys)))
            }
            _ => None,
        }
    }

    /// Kubernetes' libraries, and what it prices anew.
    fn of_kubernetes(&self, function: &str, call: &Args<'_>) -> Option<Estimate> {
        let target = call.target.map(|t| self.node_size(t));
        let first = call.args.first().map(|a| self.node_size(a));
        let read = |size: Range| size.scale(PER_CHARACTER);
        let again = |size: Range| size.scale(2.0 * PER_CHARACTER);
        match function {
            "check" => just(Range::fixed(CHECK)),
            name if NOMINAL.contains(&name) => just(Range::fixed(1)),
            "fieldSelector" | "labelSelector" => {
                let size = first.filter(|_| call.args.len() == 1)?;
                let requirements = size.scale(0.5).scale((LIST + OBJECT) as f64);
                just(Range::fixed(LIST).add(read(size)).add(requirements))
            }
            "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => {
                let size = target?;
                just(match self.element(call.target?) {
                    Some((Type::String | Type::Bytes, item)) => {
                        size.multiply(Range::fixed(1).add(read(item)))
                    }
                    Some(_) => size,
                    None => read(size),
                })
            }
            "ip" if call.overload == "cidr_ip" => just(Range::fixed(1)),
            "cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver" | "isSemver" => {
                just(read(first?))
            }
            "ip.isCanonical" => just(again(first?)),
            "containsIP" | "containsCIDR" => {
                let mut cost = read(ADDRESS.add(ADDRESS));
                if function == "containsCIDR" {
                    cost = cost.add(read(ADDRESS)).add(Range::fixed(1));
                }
                if call.overload.ends_with("_string") {
                    cost = cost.add(read(first?));
                }
                just(cost)
            }
            "validate" => just(read(first?).scale(128.0 * PER_REGEX_CHARACTER)),
            operators::EQUALS => self.equality(call),
            _ => self.of_text(function, call),
        }
    }

    /// Functions that read a text and make another.
    fn of_text(&self, function: &str, call: &Args<'_>) -> Option<Estimate> {
        let target = call.target.map(|t| self.node_size(t));
        let first = call.args.first().map(|a| self.node_size(a));
        let read = |size: Range| size.scale(PER_CHARACTER);
        let again = |size: Range| size.scale(2.0 * PER_CHARACTER);
        match function {
            "url" | "jsonpatch.escapeKey" => {
                let size = first.filter(|_| call.args.len() == 1)?;
                Some((read(size), Some(size)))
            }
            "lowerAscii" | "upperAscii" | "substring" | "trim" => Some((read(target?), target)),
            "replace" => {
                let (from, to) = (first?, self.node_size(call.args.get(1)?));
                Some((again(target?), Some(replaced(target?, from, to))))
            }
            "split" => {
                let limit = call.args.get(1).and_then(signed).map(|n| n as u64);
                let max = limit.unwrap_or(target?.max);
                Some((again(target?), Some(Range { min: 0, max })))
            }
            "join" => {
                let size = self.joined(call.target?, first);
                Some((read(size), Some(size)))
            }
            "find" | "findAll" => {
                let (size, regex) = (target?, first?.scale(PER_REGEX_CHARACTER));
                let cost = read(size.add(Range::fixed(1))).multiply(regex);
                Some((cost, Some(Range { min: 0, max: size.max })))
            }
            _ => None,
        }
    }

    /// Equality of values of Kubernetes' own types.
    fn equality(&self, call: &Args<'_>) -> Option<Estimate> {
        let [a, b] = call.args else { return None };
        let ty = self.checked.ty(a.id);
        if ty != self.checked.ty(b.id) {
            return None;
        }
        let name = match ty {
            Type::Opaque(name, _) => name,
            Type::Object(object) => &object.name,
            _ => return None,
        };
        match &**name {
            "net.IP" | "net.CIDR" | "kubernetes.Quantity" | "kubernetes.Semver" => just(Range::fixed(1)),
            "kubernetes.NamedFormat" => just(Range { min: 1, max: 64 }.scale(PER_CHARACTER)),
            "kubernetes.URL" => {
                let max = self.size(b).map_or(1, |size| size.max);
                just(Range { min: 1, max }.scale(PER_CHARACTER))
            }
            name if name.starts_with("kubernetes.authorization.") => just(Range::fixed(1)),
            _ => None,
        }
    }

    /// The language's own functions and operators.
    fn of_language(&mut self, call: &Args<'_>, of_args: Range) -> Option<Estimate> {
        let target = call.target.map(|t| self.size_or_unknown(t));
        let sizes: Vec<Range> = call.args.iter().map(|a| self.size_or_unknown(a)).collect();
        let read = |size: Range| size.scale(PER_CHARACTER).add(of_args);
        match (call.overload, sizes.as_slice()) {
            ("string_format", _) => just(read(target?)),
            ("string_to_bytes", [size]) => {
                Some((read(*size), Some(Range { min: size.min, max: size.max.wrapping_mul(4) })))
            }
            ("bytes_to_string", [size]) => {
                Some((read(*size), Some(Range { min: size.min / 4, max: size.max })))
            }
            ("strings_quote", [size]) => {
                let max = size.max.wrapping_mul(2).wrapping_add(2);
                Some((read(*size), Some(Range { min: size.min.wrapping_add(2), max })))
            }
            ("starts_with_string" | "ends_with_string", [size]) => just(read(*size)),
            ("in_list", [_, list]) => just(list.scale(1.0).add(of_args)),
            ("matches_string", [regex]) => {
                let text = target?.add(Range::fixed(1)).scale(PER_CHARACTER);
                just(text.multiply(regex.scale(PER_REGEX_CHARACTER)).add(of_args))
            }
            ("contains_string", [part]) => {
                let cost = target?.scale(PER_CHARACTER).multiply(part.scale(PER_CHARACTER));
                just(cost.add(of_args))
            }
            ("logical_or" | "logical_and", [..]) => {
                let (left, right) = (*call.costs.first()?, *call.costs.get(1)?);
                just(Range { min: left.min, max: left.add(right).max })
            }
            ("conditional", [_, yes, no]) => {
                let entry = Entry::union(self.entry(&call.args[1]), self.entry(&call.args[2]));
                if let Some(entry) = entry {
                    self.entries.insert(call.id, entry);
                }
                let cost = call.costs[0].add(call.costs[1].union(call.costs[2]));
                Some((cost, Some(yes.union(*no))))
            }
            ("add_string" | "add_bytes" | "add_list", [a, b]) => {
                let size = a.add(*b);
                if let Some(entry) = Entry::union(self.entry(&call.args[0]), self.entry(&call.args[1])) {
                    self.entries.insert(call.id, entry);
                }
                let own = if call.overload == "add_list" { Range::fixed(1).add(of_args) } else { read(size) };
                Some((own, Some(size)))
            }
            (
                "less_string"
                | "greater_string"
                | "less_equals_string"
                | "greater_equals_string"
                | "less_bytes"
                | "greater_bytes"
                | "less_equals_bytes"
                | "greater_equals_bytes"
                | "equals"
                | "not_equals",
                [a, b],
            ) => {
                let max = a.max.min(b.max);
                just(read(Range { min: u64::from(max > 0), max }))
            }
            _ => None,
        }
    }

    /// The size of a value, from the schema where nothing else says it.
    fn node_size(&self, expr: &IdedExpr) -> Range {
        self.size_or_unknown(expr)
    }

    /// The type and size of what is in a list.
    fn element(&self, list: &IdedExpr) -> Option<(Type, Range)> {
        let item = match self.checked.ty(list.id) {
            Type::List(item) => (**item).clone(),
            Type::Map(pair) => pair.0.clone(),
            Type::Opaque(_, inner) => inner.first()?.clone(),
            _ => return None,
        };
        let mut path = self.path(list);
        if path.first().is_some_and(|step| step == "@result" || step == "__result__") {
            path.clear();
        }
        let size = match path.is_empty() {
            true => None,
            false => {
                path.push("@items".to_owned());
                self.declared(&path)
            }
        };
        Some((item, size.unwrap_or(Range::UNKNOWN)))
    }

    /// The size of a list's items in one text.
    fn joined(&self, list: &IdedExpr, separator: Option<Range>) -> Range {
        let count = self.node_size(list);
        let items = self.element(list).map_or(Range::fixed(0), |(_, item)| count.multiply(item));
        let Some(separator) = separator else { return items };
        let between = Range { min: count.min.saturating_sub(1), max: count.max.saturating_sub(1) };
        items.add(separator.multiply(between))
    }
}

fn sort_factor(overload: &str) -> f64 {
    let is_text = overload.starts_with("list_string_") || overload.starts_with("list_bytes_");
    if is_text { 2.0 + PER_CHARACTER } else { 2.0 }
}

/// How long a text can be in which parts are replaced.
fn replaced(text: Range, from: Range, to: Range) -> Range {
    let (mut count, mut kept) = (Range::fixed(0), Range::fixed(0));
    if from.min == 0 {
        (count.max, kept.max) = (text.max.saturating_add(1), text.max);
    } else if to.max <= from.min {
        kept.max = text.max;
    } else {
        count.max = (text.max as f64 / from.min as f64).ceil() as u64;
    }
    if from.max == 0 {
        (count.min, kept.min) = (text.min.saturating_add(1), text.min);
    } else if from.max <= to.min {
        kept.min = text.min;
    } else {
        count.min = (text.min as f64 / from.max as f64).ceil() as u64;
    }
    count.multiply(to).add(kept)
}

fn signed(expr: &IdedExpr) -> Option<i64> {
    match &expr.expr {
        Expr::Literal(LiteralValue::Int(int)) => Some(*int.inner()),
        _ => None,
    }
}

/// The value of a literal that is an integer; negative ones are nothing.
fn integer(expr: &IdedExpr) -> Option<u64> {
    signed(expr).map(|n| u64::try_from(n).unwrap_or(0))
}
