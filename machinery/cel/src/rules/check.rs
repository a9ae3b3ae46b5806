//! The rules of a CRD when it is written: whether they compile, fit their schema, and cost little enough.

use super::Rules;
use crate::{
    program::{Dialect, Parsed},
    typing::{self, Seen, VariableType, cost, decl::Decl, types::Type},
};
use freehold_machinery::{
    Value,
    schema::{self, Kind, ListType, Rule, Schema},
    status::{FieldError, FieldErrorKind},
};
use std::sync::Arc;

/// What one rule may cost, as often as it can run on one object.
const RULE_LIMIT: u64 = 10_000_000;
/// What all rules of a schema may cost together.
const SCHEMA_LIMIT: u64 = 100_000_000;
/// Rules that are blamed where all together cost too much.
const BLAMED: usize = 4;

/// Checks the rules of a CRD's versions: their syntax, their types against the schema, and what they could cost. Paths
/// are those of Kubernetes: where all versions have the same schema it stands at `spec.validation`. Schemas in which
/// something else is wrong (`found`) are left alone; those that `old` has too are accepted as they are.
pub fn check_crd(crd: &Value, old: Option<&Value>, found: &[FieldError]) -> Vec<FieldError> {
    let versions = versions(crd);
    let same = versions.windows(2).all(|w| w[0].get("schema") == w[1].get("schema"));
    let mut errors = Vec::new();
    for (index, version) in versions.iter().enumerate().take(if same { 1 } else { versions.len() }) {
        let path = match same {
            true => "spec.validation.openAPIV3Schema".to_owned(),
            false => format!("spec.versions[{index}].schema.openAPIV3Schema"),
        };
        let Some(source) = version.pointer("/schema/openAPIV3Schema").filter(|s| !s.is_null()) else {
            continue;
        };
        let is_wrong = found.iter().any(|e| e.field.starts_with(&path));
        let is_known = old.is_some_and(|old| {
            self::versions(old)
                .iter()
                .any(|v| v.get("name") == version.get("name") && v.get("schema") == version.get("schema"))
        });
        if is_wrong || is_known {
            continue;
        }
        if let Ok(schema) = schema::parse::node(source) {
            check_defaults(&schema, &path, &mut errors);
            errors.extend(check_schema(&schema, &path));
        }
    }
    errors
}

fn versions(crd: &Value) -> &[Value] {
    crd.pointer("/spec/versions").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// Whether the defaults of a schema hold by its rules. Rules that don't compile are complained about elsewhere.
fn check_defaults(schema: &Arc<Schema>, path: &str, errors: &mut Vec<FieldError>) {
    if let Some(default) = &schema.default
        && has_rules(schema)
        && let Ok(rules) = Rules::compile(schema)
    {
        errors.extend(rules.validate(default, None).into_iter().map(|mut error| {
            error.field = match error.field.as_str() {
                "<nil>" => format!("{path}.default"),
                below => format!("{path}.default.{below}"),
            };
            error
        }));
    }
    for (name, child) in &schema.properties {
        check_defaults(child, &format!("{path}.properties[{name}]"), errors);
    }
    if let Some(child) = &schema.items {
        check_defaults(child, &format!("{path}.items"), errors);
    }
    if let Some(child) = &schema.additional {
        check_defaults(child, &format!("{path}.additionalProperties"), errors);
    }
}

/// Checks the rules of one schema that stands at `path`.
pub(super) fn check_schema(schema: &Schema, path: &str) -> Vec<FieldError> {
    let mut checker = Checker { errors: Vec::new(), total: 0, expensive: Vec::new() };
    checker.node(schema, path, Around { apart: None, decl: None, count: Some(1), is_root: true });
    if checker.total > SCHEMA_LIMIT {
        for (path, _) in std::mem::take(&mut checker.expensive) {
            let detail =
                "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
            checker.errors.push(FieldError::forbidden(path, detail));
        }
        let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        checker.errors.push(FieldError::forbidden(path, too_much(what, checker.total, SCHEMA_LIMIT)));
    }
    checker.errors
}

/// What is known on the way down.
struct Around<'a> {
    /// The outermost part of the schema whose values can't be told apart between two versions of an object.
    apart: Option<&'a str>,
    /// The schema as CEL sees it, where something around it has rules.
    decl: Option<Arc<Decl>>,
    /// How often a value can stand here; `None` where nothing bounds that.
    count: Option<u64>,
    is_root: bool,
}

struct Checker {
    errors: Vec<FieldError>,
    total: u64,
    /// The most expensive expressions, by their paths.
    expensive: Vec<(String, u64)>,
}

impl Checker {
    fn node(&mut self, schema: &Schema, path: &str, mut around: Around<'_>) {
        if !has_rules(schema) {
            return;
        }
        if around.decl.is_none() && !schema.rules.is_empty() {
            around.decl = Decl::of(schema, around.is_root || schema.embedded_resource);
        }
        let below = |apart, decl: Option<&Arc<Decl>>| Around {
            apart,
            decl: decl.cloned(),
            count: around.count.zip(most_children(schema)).map(|(count, most)| count.saturating_mul(most)),
            is_root: false,
        };
        let own = around.decl.as_deref();
        if let Some(child) = &schema.additional {
            let around = below(around.apart, own.and_then(Decl::element));
            self.node(child, &format!("{path}.additionalProperties"), around);
        }
        for (name, child) in &schema.properties {
            let decl = own.and_then(|own| own.field(&crate::escape::escape(name)?));
            self.node(child, &format!("{path}.properties[{name}]"), below(around.apart, decl));
        }
        if let Some(child) = &schema.items {
            let apart = around.apart.or((schema.list_type != Some(ListType::Map)).then_some(path));
            self.node(child, &format!("{path}.items"), below(apart, own.and_then(Decl::element)));
        }
        if schema.rules.is_empty() {
            return;
        }
        let at = format!("{path}.x-kubernetes-validations");
        match around.decl {
            Some(decl) => self.rules(schema, &at, &decl, around.apart, around.count),
            None => {
                let detail = "internal error: failed to construct type information for x-kubernetes-validations rules: unable to convert structural schema to CEL declarations";
                self.errors.push(FieldError::new(FieldErrorKind::Internal, at, detail));
            }
        }
    }

    fn rules(
        &mut self,
        schema: &Schema,
        path: &str,
        decl: &Arc<Decl>,
        apart: Option<&str>,
        count: Option<u64>,
    ) {
        let seen = VariableType::Schema(Seen::of(decl.clone()));
        let times = count.unwrap_or_else(|| decl.max_cardinality());
        for (index, rule) in schema.rules.iter().enumerate() {
            if rule.rule.trim().is_empty() {
                continue;
            }
            let at = |field: &str| format!("{path}[{index}].{field}");
            let old = match rule.optional_old_self == Some(true) {
                true => VariableType::Optional(Box::new(seen.clone())),
                false => seen.clone(),
            };
            let variables = [("self", seen.clone()), ("oldSelf", old)];
            let compiled = compile(&rule.rule, &variables, decl, &Type::Bool);
            let uses_old = compiled.as_ref().is_ok_and(|c| c.uses_old);
            match compiled {
                Ok(compiled) => {
                    self.observe(at("rule"), "estimated rule cost", compiled.cost.saturating_mul(times));
                    self.message(rule, &variables, decl, at("messageExpression"));
                }
                Err(detail) => self.errors.push(FieldError::invalid_shown(at("rule"), shown(rule), detail)),
            }
            match (uses_old, apart) {
                (true, Some(list)) => {
                    let detail = format!(
                        "oldSelf cannot be used on the uncorrelatable portion of the schema within {list}"
                    );
                    self.errors.push(FieldError::invalid(at("rule"), (*rule.rule).into(), detail));
                }
                (false, _) => {
                    let detail = "may not be set if oldSelf is not used in rule";
                    let set = rule.optional_old_self.map(|set| (at("optionalOldSelf"), set));
                    self.errors.extend(set.map(|(at, set)| FieldError::invalid(at, set.into(), detail)));
                }
                _ => {}
            }
        }
    }

    fn message(&mut self, rule: &Rule, variables: &[(&str, VariableType)], decl: &Arc<Decl>, at: String) {
        let Some(expression) = rule.message_expression.as_deref().filter(|m| !m.is_empty()) else { return };
        match compile(expression, variables, decl, &Type::String) {
            Ok(compiled) => self.observe(at, "estimated messageExpression cost", compiled.cost),
            Err(detail) => {
                let detail = detail.replacen("compilation failed", "messageExpression compilation failed", 1);
                self.errors.push(FieldError::invalid_shown(at, shown(rule), detail));
            }
        }
    }

    /// Counts what an expression can cost.
    fn observe(&mut self, path: String, what: &str, cost: u64) {
        if cost > RULE_LIMIT {
            self.errors.push(FieldError::forbidden(&path, too_much(what, cost, RULE_LIMIT)));
        }
        self.total = self.total.saturating_add(cost);
        if cost >= SCHEMA_LIMIT / 100 {
            self.expensive.push((path, cost));
            self.expensive.sort_by_key(|(_, cost)| std::cmp::Reverse(*cost));
            self.expensive.truncate(BLAMED);
        }
    }
}

/// A rule that compiles.
#[derive(Debug, PartialEq)]
pub(crate) struct Compiled {
    pub(crate) cost: u64,
    pub(crate) uses_old: bool,
}

/// Compiles an expression whose value is of the wanted type; the error is Kubernetes' text.
pub(crate) fn compile(
    source: &str,
    variables: &[(&str, VariableType)],
    decl: &Arc<Decl>,
    wanted: &Type,
) -> Result<Compiled, String> {
    let parsed = Parsed::read(source).map_err(|e| e.0)?;
    let checked = typing::check(&parsed, variables, Dialect::Plain).map_err(|e| e.0)?;
    if checked.ty(parsed.expr.id) != wanted {
        return Err(match wanted {
            Type::Bool => "cel expression must evaluate to a bool".to_owned(),
            _ => format!("messageExpression must evaluate to a {wanted}"),
        });
    }
    if let Some(name) = &checked.unusable {
        return Err(format!("program instantiation failed: reference to undefined type: {name}"));
    }
    let broken = typing::broken_conversion(&parsed.expr).or_else(|| typing::broken_regex(&parsed.expr));
    if let Some(error) = broken {
        return Err(format!("program instantiation failed: {error}"));
    }
    let cost = cost::estimate(&parsed.expr, &checked, Some(decl));
    Ok(Compiled { cost, uses_old: checked.variables.iter().any(|v| v == "oldSelf") })
}

fn has_rules(schema: &Schema) -> bool {
    let children = schema.properties.values().chain(&schema.additional).chain(&schema.items);
    !schema.rules.is_empty() || children.into_iter().any(|child| has_rules(child))
}

/// How many children a value can have; `None` where nothing bounds that.
fn most_children(schema: &Schema) -> Option<u64> {
    let checks = schema.checks.as_deref();
    match schema.kind {
        Some(Kind::Object) if schema.additional.is_some() => checks?.max_properties,
        Some(Kind::Array) => checks?.max_items,
        _ => Some(1),
    }
}

fn too_much(what: &str, cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    let factor = match factor {
        f if f > 100.0 => "more than 100x".to_owned(),
        f if f < 1.5 => format!("{f:.6}x"),
        f => format!("{f:.1}x"),
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
    )
}

/// A rule as Kubernetes shows it in errors: its internal struct.
fn shown(rule: &Rule) -> String {
    let json = |text: &str| freehold_machinery::go::json(&Value::from(text));
    let text = |text: &Option<Box<str>>| json(text.as_deref().unwrap_or(""));
    let reason = rule.reason.as_deref().map_or("null".to_owned(), json);
    let optional = rule.optional_old_self.map_or("null".to_owned(), |o| o.to_string());
    format!(
        "{{\"Rule\":{},\"Message\":{},\"MessageExpression\":{},\"Reason\":{reason},\"FieldPath\":{},\"OptionalOldSelf\":{optional}}}",
        json(&rule.rule),
        text(&rule.message),
        text(&rule.message_expression),
        text(&rule.field_path),
    )
}
