//! Schemas as CEL sees them: types, and the largest sizes of their values.
//!
//! The sizes are those of `SchemaDeclType` in `k8s.io/apiserver/pkg/cel/common`: costs are estimated from them.

use super::types::{Fields, Type};
use crate::escape::escape;
use freehold_machinery::{
    Value,
    schema::{Kind, Schema},
};
use std::{collections::BTreeMap, sync::Arc};

/// Bytes that a request may have.
const MAX_REQUEST: i64 = 3 << 20;
/// Bytes of the longest point in time or duration, in quotes.
const MAX_TIME: i64 = 32;
/// Bytes of a date, in quotes.
const DATE: i64 = 12;

/// A schema as CEL sees it.
#[derive(Debug)]
pub(crate) struct Decl {
    pub(crate) kind: DeclKind,
    /// The most items, entries or bytes that a value can have.
    pub(crate) max_elements: i64,
    /// The fewest bytes of JSON that a value can have.
    pub(crate) min_size: i64,
}

/// What kind of value a schema describes.
#[derive(Debug)]
pub(crate) enum DeclKind {
    Simple(Type),
    List(Arc<Decl>),
    /// A map from strings.
    Map(Arc<Decl>),
    /// Fields by their names in CEL.
    Object(BTreeMap<Box<str>, Arc<Decl>>),
}

impl Decl {
    /// What CEL sees of a schema; `None` where it sees nothing, as it does of values without a type. `is_whole`: of an
    /// object with kind and metadata.
    pub(crate) fn of(schema: &Schema, is_whole: bool) -> Option<Arc<Self>> {
        let checks = schema.checks.as_deref();
        let max_length = checks.and_then(|c| c.max_length).map(|n| bounded(n) * 4);
        if schema.int_or_string {
            let max = max_length.unwrap_or(MAX_REQUEST - 2);
            return Some(simple(Type::Dyn, max, 1));
        }
        match schema.kind? {
            Kind::Array => {
                let items = schema.items.as_deref()?;
                let item = Self::of(items, items.embedded_resource)?;
                let fits = (MAX_REQUEST - 2) / (item.min_size + 1);
                let max = checks.and_then(|c| c.max_items).map_or(fits, bounded);
                Some(Arc::new(Self { kind: DeclKind::List(item), max_elements: max, min_size: 2 }))
            }
            Kind::Object => match schema.additional.as_deref().filter(|_| !is_whole) {
                Some(values) => {
                    let value = Self::of(values, values.embedded_resource)?;
                    let fits = (MAX_REQUEST - 2) / (value.min_size + 6);
                    let max = checks.and_then(|c| c.max_properties).map_or(fits, bounded);
                    Some(Arc::new(Self { kind: DeclKind::Map(value), max_elements: max, min_size: 2 }))
                }
                None => Some(object(schema, is_whole)),
            },
            Kind::String => Some(string(schema, max_length)),
            Kind::Boolean => Some(simple(Type::Bool, 0, 4)),
            Kind::Number => Some(simple(Type::Double, 0, 1)),
            Kind::Integer => Some(simple(Type::Int, 0, 1)),
        }
    }

    /// Its type. Objects are named by where they stand.
    pub(crate) fn ty(self: &Arc<Self>, name: &str) -> Type {
        match &self.kind {
            DeclKind::Simple(ty) => ty.clone(),
            DeclKind::List(item) => Type::list(item.ty(&format!("{name}.@idx"))),
            DeclKind::Map(value) => Type::map(Type::String, value.ty(&format!("{name}.@elem"))),
            DeclKind::Object(_) => Type::object(name, Fields::Declared(self.clone())),
        }
    }

    /// A field, by its name in CEL.
    pub(crate) fn field(&self, name: &str) -> Option<&Arc<Self>> {
        match &self.kind {
            DeclKind::Object(fields) => fields.get(name),
            _ => None,
        }
    }

    /// Items of a list, values of a map.
    pub(crate) fn element(&self) -> Option<&Arc<Self>> {
        match &self.kind {
            DeclKind::List(inner) | DeclKind::Map(inner) => Some(inner),
            _ => None,
        }
    }

    /// How often a value can stand in an object, where nothing around it bounds that.
    pub(crate) fn max_cardinality(&self) -> u64 {
        u64::try_from(MAX_REQUEST / (self.min_size + 1)).unwrap_or(0)
    }
}

fn bounded(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX).min(i64::MAX / 8)
}

fn simple(ty: Type, max_elements: i64, min_size: i64) -> Arc<Decl> {
    Arc::new(Decl { kind: DeclKind::Simple(ty), max_elements, min_size })
}

fn string(schema: &Schema, max_length: Option<i64>) -> Arc<Decl> {
    match schema.format.as_deref() {
        Some("byte") => simple(Type::Bytes, max_length.map_or(MAX_REQUEST - 2, |n| n / 4), 2),
        Some("duration") => simple(Type::Duration, MAX_TIME, 3),
        Some("date") => simple(Type::Timestamp, DATE, DATE),
        Some("date-time") => simple(Type::Timestamp, MAX_TIME, 21),
        _ => {
            let allowed = schema.checks.as_deref().map_or(&[][..], |c| &c.allowed);
            let longest = allowed.iter().filter_map(Value::as_str).map(|v| bounded(v.len() as u64)).max();
            let max = max_length.or((!allowed.is_empty()).then(|| longest.unwrap_or(0)));
            simple(Type::String, max.unwrap_or(MAX_REQUEST - 2), 2)
        }
    }
}

fn object(schema: &Schema, is_whole: bool) -> Arc<Decl> {
    let (mut fields, mut min_size) = (BTreeMap::new(), 2);
    for (name, property) in &schema.properties {
        if is_whole && matches!(&**name, "kind" | "apiVersion" | "metadata") {
            continue;
        }
        let Some(decl) = Decl::of(property, property.embedded_resource) else { continue };
        if schema.required.contains(name) && property.default.is_none() {
            min_size += bounded(name.len() as u64) + decl.min_size + 4;
        }
        if let Some(key) = escape(name) {
            fields.insert(key.into_owned().into_boxed_str(), decl);
        }
    }
    if is_whole {
        for (name, decl) in identity(schema) {
            if schema.required.iter().any(|r| &**r == name) {
                min_size += bounded(name.len() as u64) + decl.min_size + 4;
            }
            fields.insert(name.into(), decl);
        }
    }
    Arc::new(Decl { kind: DeclKind::Object(fields), max_elements: 0, min_size })
}

/// Kind, version and names of a whole object: as the schema has them if it has all of them, plain strings otherwise.
fn identity(schema: &Schema) -> [(&'static str, Arc<Decl>); 3] {
    let own = |name: &str| schema.properties.get(name).filter(|s| s.kind == Some(Kind::String));
    let metadata = schema.properties.get("metadata").filter(|s| s.kind == Some(Kind::Object));
    let named = |name: &str| {
        let field = metadata.and_then(|m| m.properties.get(name));
        field.is_some_and(|s| s.kind == Some(Kind::String))
    };
    let text = || simple(Type::String, MAX_REQUEST - 2, 2);
    let of = |schema: Option<&Arc<Schema>>| schema.and_then(|s| Decl::of(s, false));
    // Of an embedded object, expressions see its names alone.
    let metadata = metadata.filter(|_| !schema.embedded_resource);
    let given = match (of(own("kind")), of(own("apiVersion")), of(metadata)) {
        (Some(kind), Some(version), Some(meta)) if named("name") && named("generateName") => {
            Some((kind, version, meta))
        }
        _ => None,
    };
    let (kind, version, meta) = given.unwrap_or_else(|| {
        let names = BTreeMap::from([("name".into(), text()), ("generateName".into(), text())]);
        let meta = Decl { kind: DeclKind::Object(names), max_elements: 0, min_size: 2 };
        (text(), text(), Arc::new(meta))
    });
    [("kind", kind), ("apiVersion", version), ("metadata", meta)]
}
