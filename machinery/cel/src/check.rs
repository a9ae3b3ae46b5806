//! What can be said about an expression without running it.
//!
//! Kubernetes has a type checker; this is not one. It follows field selections from variables whose schema is known
//! and finds fields that are not declared, and finds names that nothing declares.

use crate::{budget, escape::escape, rewrite::children};
use cel::{
    IdedExpr,
    common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, operators},
};
use freehold_machinery::schema::{Kind, Schema};

/// Names that stand for types and for groups of functions.
const DECLARED: [&str; 25] = [
    "bool",
    "int",
    "uint",
    "double",
    "string",
    "bytes",
    "list",
    "map",
    "type",
    "null_type",
    "dyn",
    "duration",
    "timestamp",
    "optional_type",
    "google",
    "optional",
    "strings",
    "lists",
    "math",
    "sets",
    "cel",
    "format",
    "ip",
    "net",
    "kubernetes",
];

/// All names that an expression uses freely or binds.
pub(crate) fn identifiers(expr: &mut IdedExpr) -> Vec<String> {
    let mut names = Vec::new();
    let mut open = vec![expr];
    while let Some(expr) = open.pop() {
        if let Expr::Ident(name) = &expr.expr
            && !names.contains(name)
        {
            names.push(name.clone());
        }
        open.extend(children(expr));
    }
    names
}

/// The fields that are selected from a variable, each once.
pub(crate) fn fields_of<'e>(expr: &'e IdedExpr, variable: &str) -> Vec<&'e str> {
    let mut fields = Vec::new();
    let mut open = vec![expr];
    while let Some(expr) = open.pop() {
        if let Expr::Select(select) = &expr.expr
            && matches!(&select.operand.expr, Expr::Ident(name) if name == variable)
            && !fields.contains(&select.field.as_str())
        {
            fields.push(&select.field);
        }
        open.extend(parts(expr));
    }
    fields
}

/// A call of a function that nothing declares.
pub(crate) fn unknown_function(expr: &IdedExpr) -> Option<(u64, String)> {
    let own = match &expr.expr {
        Expr::Call(call) if !is_known(call) => Some((expr.id, call.func_name.clone())),
        _ => None,
    };
    own.or_else(|| parts(expr).into_iter().find_map(unknown_function))
}

fn is_known(call: &CallExpr) -> bool {
    let name = call.func_name.as_str();
    // Operators, and what the macros expand to.
    let is_operator = name.starts_with('@') || name.starts_with('_') || name.ends_with('_');
    is_operator || FUNCTIONS.contains(&name)
}

/// The functions that the environment declares. It can't be asked without arguments.
const FUNCTIONS: &[&str] = &[
    "abs",
    "add",
    "asApproximateFloat",
    "asInteger",
    "bitAnd",
    "bitNot",
    "bitOr",
    "bitShiftLeft",
    "bitShiftRight",
    "bitXor",
    "bool",
    "bytes",
    "ceil",
    "charAt",
    "cidr",
    "compareTo",
    "contains",
    "containsCIDR",
    "containsIP",
    "distinct",
    "dns1035Label",
    "dns1035LabelPrefix",
    "dns1123Label",
    "dns1123LabelPrefix",
    "dns1123Subdomain",
    "dns1123SubdomainPrefix",
    "double",
    "duration",
    "dyn",
    "endsWith",
    "equivalent",
    "family",
    "find",
    "findAll",
    "flatten",
    "floor",
    "format",
    "getDate",
    "getDayOfMonth",
    "getDayOfWeek",
    "getDayOfYear",
    "getEscapedPath",
    "getFullYear",
    "getHost",
    "getHostname",
    "getHours",
    "getMilliseconds",
    "getMinutes",
    "getMonth",
    "getPort",
    "getQuery",
    "getScheme",
    "getSeconds",
    "greatest",
    "hasValue",
    "includes",
    "indexOf",
    "int",
    "intersects",
    "ip",
    "isCIDR",
    "isCanonical",
    "isFinite",
    "isGlobalUnicast",
    "isGreaterThan",
    "isIP",
    "isInf",
    "isInteger",
    "isLessThan",
    "isLinkLocalMulticast",
    "isLinkLocalUnicast",
    "isLoopback",
    "isNaN",
    "isQuantity",
    "isSemver",
    "isSorted",
    "isURL",
    "isUnspecified",
    "join",
    "labelValue",
    "lastIndexOf",
    "least",
    "lowerAscii",
    "major",
    "masked",
    "matches",
    "max",
    "min",
    "minor",
    "named",
    "none",
    "of",
    "ofNonZeroValue",
    "optFlatMap",
    "optMap",
    "or",
    "orValue",
    "patch",
    "prefixLength",
    "qualifiedName",
    "quantity",
    "quote",
    "range",
    "replace",
    "reverse",
    "round",
    "semver",
    "sign",
    "size",
    "slice",
    "sort",
    "split",
    "sqrt",
    "startsWith",
    "string",
    "sub",
    "substring",
    "sum",
    "timestamp",
    "trim",
    "trunc",
    "type",
    "uint",
    "unwrapOpt",
    "unwrap",
    "upperAscii",
    "uri",
    "url",
    "uuid",
    "validate",
    "value",
    "byte",
    "date",
    "datetime",
    "first",
    "last",
];

/// The parts of an expression, to read.
fn parts(expr: &IdedExpr) -> Vec<&IdedExpr> {
    match &expr.expr {
        Expr::Call(call) => call.target.as_deref().into_iter().chain(&call.args).collect(),
        Expr::Comprehension(c) => vec![&c.iter_range, &c.accu_init, &c.loop_cond, &c.loop_step, &c.result],
        Expr::List(list) => list.elements.iter().collect(),
        Expr::Map(map) => map.entries.iter().flat_map(|e| entry(&e.expr)).collect(),
        Expr::Struct(strct) => strct.entries.iter().flat_map(|e| entry(&e.expr)).collect(),
        Expr::Select(select) => vec![&*select.operand],
        Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => Vec::new(),
    }
}

fn entry(entry: &EntryExpr) -> Vec<&IdedExpr> {
    match entry {
        EntryExpr::StructField(field) => vec![&field.value],
        EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
    }
}

/// What is known of a value.
#[derive(Clone, Copy)]
enum Known<'a> {
    Nothing,
    /// A value of a schema; `true` for a whole object.
    Schema(&'a Schema, bool),
    /// `metadata` of a whole object, of which only the names can be seen.
    Metadata,
}

/// The first complaint about an expression: where, and what.
pub(crate) fn check(
    expr: &IdedExpr,
    variables: &[(&str, Option<&Schema>)],
    is_root: bool,
) -> Option<(u64, String)> {
    let mut scope: Vec<(String, Known<'_>)> = variables
        .iter()
        .map(|(name, schema)| {
            ((*name).to_owned(), schema.map_or(Known::Nothing, |s| Known::Schema(s, is_root)))
        })
        .collect();
    walk(expr, &mut scope).err()
}

type Walked<'a> = Result<Known<'a>, (u64, String)>;

fn walk<'a>(expr: &IdedExpr, scope: &mut Vec<(String, Known<'a>)>) -> Walked<'a> {
    match &expr.expr {
        Expr::Ident(name) => ident(expr.id, name, scope),
        Expr::Select(select) => {
            let operand = walk(&select.operand, scope)?;
            field(expr.id, operand, &select.field)
        }
        Expr::Comprehension(comprehension) => walk_comprehension(comprehension, scope),
        Expr::Call(call) => walk_call(call, scope),
        _ => {
            for part in parts(expr) {
                walk(part, scope)?;
            }
            Ok(Known::Nothing)
        }
    }
}

fn ident<'a>(id: u64, name: &str, scope: &[(String, Known<'a>)]) -> Walked<'a> {
    if let Some((_, known)) = scope.iter().rev().find(|(bound, _)| bound == name) {
        return Ok(*known);
    }
    let plain = name.trim_start_matches('.');
    if name.starts_with('@') || DECLARED.contains(&plain) {
        return Ok(Known::Nothing);
    }
    Err((id, format!("undeclared reference to '{name}' (in container '')")))
}

fn field<'a>(id: u64, operand: Known<'a>, name: &str) -> Walked<'a> {
    let undefined = || Err((id, format!("undefined field '{name}'")));
    match operand {
        Known::Nothing => Ok(Known::Nothing),
        Known::Metadata if matches!(name, "name" | "generateName") => Ok(Known::Nothing),
        Known::Metadata => undefined(),
        Known::Schema(schema, whole) => {
            let whole = whole || schema.embedded_resource;
            if whole && name == "metadata" {
                return Ok(Known::Metadata);
            }
            let property = schema
                .properties
                .iter()
                .find(|(own, _)| escape(own).as_deref() == Some(name) || &***own == name);
            match property {
                Some((_, child)) => Ok(Known::Schema(child, false)),
                None if schema.kind == Some(Kind::Object)
                    && schema.additional.is_none()
                    && !schema.preserve_unknown =>
                {
                    undefined()
                }
                None => Ok(schema.additional.as_deref().map_or(Known::Nothing, |a| Known::Schema(a, false))),
            }
        }
    }
}

/// The items of a list; keys of a map are strings.
fn items(known: Known<'_>) -> Known<'_> {
    match known {
        Known::Schema(schema, _) => {
            schema.items.as_deref().map_or(Known::Nothing, |i| Known::Schema(i, false))
        }
        _ => Known::Nothing,
    }
}

fn walk_comprehension<'a>(c: &ComprehensionExpr, scope: &mut Vec<(String, Known<'a>)>) -> Walked<'a> {
    let range = walk(&c.iter_range, scope)?;
    let initial = walk(&c.accu_init, scope)?;
    let outer = scope.len();
    scope.push((c.accu_var.clone(), initial));
    scope.push((c.iter_var.clone(), items(range)));
    let inner = walk(&c.loop_cond, scope)
        .and_then(|_| walk(&c.loop_step, scope))
        .and_then(|_| walk(&c.result, scope));
    scope.truncate(outer);
    let result = inner?;
    // `filter` gives items of what it filters.
    Ok(if matches!(&c.accu_init.expr, Expr::List(_)) { Known::Nothing } else { result })
}

fn walk_call<'a>(call: &CallExpr, scope: &mut Vec<(String, Known<'a>)>) -> Walked<'a> {
    let mut first = Known::Nothing;
    if let Some(target) = &call.target {
        walk(target, scope)?;
    }
    for (index, arg) in call.args.iter().enumerate() {
        let known = walk(arg, scope)?;
        if index == usize::from(call.func_name == budget::RANGE || call.func_name == budget::CHARGE) {
            first = known;
        }
    }
    Ok(match (call.func_name.as_str(), first) {
        (operators::INDEX, Known::Schema(schema, _)) => {
            let child = schema.items.as_deref().or(schema.additional.as_deref());
            child.map_or(Known::Nothing, |c| Known::Schema(c, false))
        }
        (budget::RANGE, known) => known,
        _ => Known::Nothing,
    })
}
