//! How a value is taken apart: a [`Schema`] as structured-merge-diff sees it.
//!
//! A place in an object can allow a scalar, a list and a map at once (without a schema it allows all three); which of
//! them counts is told by the value that stands there. The rules are those of `kube-openapi/pkg/schemaconv`.
//! Metadata of an object has one schema for all types, whatever the type's own schema says of it.

use super::element::PathElement;
use freehold_machinery::{
    Value,
    schema::{Kind, ListType, Schema},
};
use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

/// What may stand at a place.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape<'a> {
    /// A whole object.
    Root(Option<&'a Schema>),
    /// What a schema says; the flag tells that a parent keeps unknown fields.
    Typed(&'a Schema, bool),
    /// Anything: maps are granular, lists atomic.
    Deduced,
    /// Anything, as one value.
    Untyped,
}

/// The types of scalars that are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scalar {
    Number,
    String,
    Boolean,
    Any,
}

/// How the items of a list are told apart.
#[derive(Clone, Copy, Debug)]
pub(super) enum Relation<'a> {
    Atomic,
    Set,
    Keyed(&'a [Box<str>]),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct ListForm<'a> {
    pub(super) relation: Relation<'a>,
    pub(super) items: Shape<'a>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct MapForm<'a> {
    pub(super) atomic: bool,
    fields: Option<&'a BTreeMap<Box<str>, Arc<Schema>>>,
    /// Whether `apiVersion`, `kind` and `metadata` are there whatever `fields` says.
    object: bool,
    /// Whether it or a parent keeps unknown fields.
    preserve: bool,
    additional: Option<&'a Schema>,
}

/// What a value at a place is taken for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form<'a> {
    Scalar(Scalar),
    List(ListForm<'a>),
    Map(MapForm<'a>),
}

#[derive(Clone, Copy)]
struct Atom<'a> {
    scalar: Option<Scalar>,
    list: Option<ListForm<'a>>,
    map: Option<MapForm<'a>>,
}

impl<'a> Shape<'a> {
    fn atom(self) -> Atom<'a> {
        let open = |atomic, items| Atom {
            scalar: Some(Scalar::Any),
            list: Some(ListForm { relation: Relation::Atomic, items }),
            map: Some(MapForm { atomic, fields: None, object: false, preserve: true, additional: None }),
        };
        match self {
            Self::Deduced => open(false, Self::Untyped),
            Self::Untyped => open(true, Self::Untyped),
            Self::Root(schema) => Atom { scalar: None, list: None, map: Some(root(schema)) },
            Self::Typed(schema, preserve) => typed(schema, preserve || schema.preserve_unknown),
        }
    }

    /// What `value` is taken for. Where the schema does not allow it, or where it is `null` or absent, that is the
    /// first of map, scalar and list that the schema allows.
    pub(super) fn form(self, value: Option<&Value>) -> Form<'a> {
        let atom = self.atom();
        let fitting = match value {
            Some(Value::Object(_)) => atom.map.map(Form::Map),
            Some(Value::Array(_)) => atom.list.map(Form::List),
            Some(Value::Null) | None => None,
            Some(_) => atom.scalar.map(Form::Scalar),
        };
        fitting
            .or(atom.map.map(Form::Map))
            .or(atom.scalar.map(Form::Scalar))
            .or(atom.list.map(Form::List))
            .unwrap_or(Form::Scalar(Scalar::Any))
    }

    /// What two values at one place are taken for: one form, or one each where they differ.
    pub(super) fn forms(self, left: Option<&Value>, right: Option<&Value>) -> (Form<'a>, Option<Form<'a>>) {
        match (left, right) {
            (_, None) => (self.form(left), None),
            (None, _) => (self.form(right), None),
            _ => {
                let (l, r) = (self.form(left), self.form(right));
                let alike = std::mem::discriminant(&l) == std::mem::discriminant(&r);
                if alike { (r, None) } else { (l, Some(r)) }
            }
        }
    }

    /// Whether it is taken as one value when it is a list or map.
    pub(super) fn is_atomic(self) -> bool {
        match self.form(None) {
            Form::Map(map) => map.atomic,
            Form::List(list) => matches!(list.relation, Relation::Atomic),
            Form::Scalar(_) => false,
        }
    }

    /// The place below, for walks over field sets rather than values.
    pub(super) fn below(self, element: &PathElement) -> Option<Shape<'a>> {
        let atom = self.atom();
        match element {
            PathElement::Field(name) => atom.map?.child(name),
            _ => Some(atom.list?.items),
        }
    }

    /// Whether `element` is a field that the schema names (rather than a key of a map).
    pub(super) fn names(self, element: &PathElement) -> bool {
        matches!(element, PathElement::Field(name) if self.atom().map.is_some_and(|map| map.field(name).is_some()))
    }
}

fn root(schema: Option<&Schema>) -> MapForm<'_> {
    match schema {
        Some(schema) => MapForm { atomic: false, object: true, ..map_form(schema, schema.preserve_unknown) },
        None => MapForm { atomic: false, fields: None, object: true, preserve: true, additional: None },
    }
}

fn typed(schema: &Schema, preserve: bool) -> Atom<'_> {
    let scalar = |scalar| Atom { scalar: Some(scalar), list: None, map: None };
    if schema.int_or_string {
        return scalar(Scalar::Any);
    }
    match schema.kind {
        Some(Kind::Object) => Atom { scalar: None, list: None, map: Some(map_form(schema, preserve)) },
        Some(Kind::Array) => Atom { scalar: None, list: Some(list_form(schema, preserve)), map: None },
        Some(Kind::Integer | Kind::Number) => scalar(Scalar::Number),
        Some(Kind::Boolean) => scalar(Scalar::Boolean),
        Some(Kind::String) => match schema.format.as_deref() {
            None | Some("byte") => scalar(Scalar::String),
            Some(_) => scalar(Scalar::Any),
        },
        None => Atom {
            scalar: Some(Scalar::Any),
            list: Some(list_form(schema, preserve)),
            map: Some(map_form(schema, preserve)),
        },
    }
}

fn map_form(schema: &Schema, preserve: bool) -> MapForm<'_> {
    MapForm {
        atomic: schema.atomic_map,
        fields: Some(&schema.properties),
        object: schema.embedded_resource,
        preserve,
        additional: schema.additional.as_deref(),
    }
}

fn list_form(schema: &Schema, preserve: bool) -> ListForm<'_> {
    let relation = match (schema.list_type, &schema.patch_merge_key) {
        (Some(ListType::Set), _) => Relation::Set,
        (Some(ListType::Map), _) => Relation::Keyed(&schema.list_map_keys),
        (None, Some(key)) if schema.patch_strategies.merge => Relation::Keyed(std::slice::from_ref(key)),
        (None, None) if schema.patch_strategies.merge => Relation::Set,
        _ => Relation::Atomic,
    };
    ListForm {
        relation,
        items: schema.items.as_deref().map_or(Shape::Untyped, |items| Shape::Typed(items, preserve)),
    }
}

impl<'a> MapForm<'a> {
    /// The field `name`, where the schema names it.
    pub(super) fn field(&self, name: &str) -> Option<Shape<'a>> {
        if self.object {
            match name {
                "metadata" => return Some(Shape::Typed(metadata(), false)),
                "apiVersion" | "kind" => return Some(Shape::Typed(text(), false)),
                _ => {}
            }
        }
        self.fields?.get(name).map(|schema| Shape::Typed(schema, self.preserve))
    }

    /// The field or map key `name`; `None` where the schema does not allow it.
    pub(super) fn child(&self, name: &str) -> Option<Shape<'a>> {
        self.field(name).or_else(|| match self.additional {
            Some(schema) => Some(Shape::Typed(schema, self.preserve)),
            None if self.preserve || self.is_free() => {
                Some(if self.atomic { Shape::Untyped } else { Shape::Deduced })
            }
            None => None,
        })
    }

    /// Whether anything may be in it because no field is named.
    fn is_free(&self) -> bool {
        self.fields.is_some_and(BTreeMap::is_empty)
    }
}

impl ListForm<'_> {
    /// How the list names `item`. Fails for what can't be an item of such a list.
    pub(super) fn element(&self, item: &Value) -> Result<PathElement, &'static str> {
        match (self.relation, item) {
            (Relation::Atomic, _) => Err("invalid indexing of non-associative list"),
            (Relation::Keyed(keys), Value::Object(map)) => {
                let fields: Vec<_> = keys
                    .iter()
                    .filter_map(|key| {
                        Some((key.clone(), map.get(&**key).or_else(|| self.default_of(key))?.clone()))
                    })
                    .collect();
                if fields.is_empty() {
                    return Err("associative list with keys has an element that omits all key fields");
                }
                Ok(PathElement::key(fields))
            }
            (Relation::Keyed(_), Value::Null) => {
                Err("associative list with keys may not have a null element")
            }
            (Relation::Keyed(_), _) => Err("associative list with keys may not have non-map elements"),
            (Relation::Set, Value::Object(_)) => {
                Err("associative list without keys has an element that's a map type")
            }
            (Relation::Set, Value::Array(_)) => Err("not supported: associative list with lists as elements"),
            (Relation::Set, Value::Null) => {
                Err("associative list without keys has an element that's an explicit null")
            }
            (Relation::Set, _) => Ok(PathElement::value(item.clone())),
        }
    }

    fn default_of(&self, key: &str) -> Option<&Value> {
        match self.items {
            // What a struct always has in its JSON has its zero for a default.
            Shape::Typed(schema, _) => schema.properties.get(key)?.default.as_ref().or_else(|| {
                let zero = schema.zeros.iter().find(|(name, zero)| **name == *key && !zero.is_null());
                let reference = || (schema.properties.len() == 1 && key == "name").then(nothing);
                zero.map(|(_, zero)| zero).or_else(reference)
            }),
            _ => None,
        }
    }
}

/// The name that a reference by name alone (`LocalObjectReference`) has where it has none.
fn nothing() -> &'static Value {
    static NOTHING: OnceLock<Value> = OnceLock::new();
    NOTHING.get_or_init(|| "".into())
}

fn text() -> &'static Schema {
    static TEXT: OnceLock<Schema> = OnceLock::new();
    TEXT.get_or_init(|| Schema { kind: Some(Kind::String), ..Schema::default() })
}

/// `ObjectMeta`: finalizers are a set, owner references are told apart by uid and taken as one value each.
fn metadata() -> &'static Schema {
    static METADATA: OnceLock<Arc<Schema>> = OnceLock::new();
    METADATA.get_or_init(freehold_machinery::schema::object_meta)
}
