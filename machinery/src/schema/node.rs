//! Nodes of a schema, and the words of definitions that are our own.

use crate::Value;
use std::{collections::BTreeMap, sync::Arc};

/// Bytes of errors of one value that are kept, about; clients choose how much is wrong. At least the first is kept.
pub(crate) const MAX_ERRORS: usize = 4 << 20;

/// A node of a structural schema
/// (<https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#specifying-a-structural-schema>).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Schema {
    /// The JSON type; `None` where anything may stand (then usually with `preserve_unknown` or `int_or_string`).
    pub kind: Option<Kind>,
    /// Whether `null` may stand here.
    pub nullable: bool,
    /// `x-kubernetes-int-or-string`.
    pub int_or_string: bool,
    /// `x-kubernetes-preserve-unknown-fields`: fields not named below are kept.
    pub preserve_unknown: bool,
    /// `x-kubernetes-embedded-resource`: a whole object with kind, apiVersion and metadata.
    pub embedded_resource: bool,
    /// Fields of an object.
    pub properties: BTreeMap<Box<str>, Arc<Schema>>,
    /// Values of a map (`additionalProperties`).
    pub additional: Option<Arc<Schema>>,
    /// Items of an array.
    pub items: Option<Arc<Schema>>,
    /// Fields that must be there.
    pub required: Vec<Box<str>>,
    /// What is filled in where the field is absent.
    pub default: Option<Value>,
    /// OpenAPI format.
    pub format: Option<Box<str>>,
    /// Bounds, patterns, enumerations and logical junctors; most nodes have none.
    pub checks: Option<Box<Checks>>,
    /// `x-kubernetes-list-type`; `None` means atomic.
    pub list_type: Option<ListType>,
    /// `x-kubernetes-list-map-keys`.
    pub list_map_keys: Vec<Box<str>>,
    /// `x-kubernetes-map-type: atomic` (also for structs).
    pub atomic_map: bool,
    /// `x-kubernetes-patch-strategy`, of strategic merge patch.
    pub patch_strategies: PatchStrategies,
    /// `x-kubernetes-patch-merge-key`.
    pub patch_merge_key: Option<Box<str>>,
    /// `x-kubernetes-validations`: CEL rules, in order.
    pub rules: Vec<Rule>,
    /// The Go type behind it, as kube-apiserver's messages name it (`v1.PodSpec`), where the rest doesn't tell.
    pub go: Option<Box<str>>,
    /// What an object of a built-in kind always has here, with its zero value ([`ZEROS`]).
    pub zeros: Vec<(Box<str>, Value)>,
    /// The strings, numbers and flags of a Go struct that may be zero without being absent ([`POINTERS`]).
    pub pointers: Option<Vec<Box<str>>>,
}

/// The word of a definition under which it names the fields that are always there, with their zero values. It is our own,
/// and only in the definitions that built-in kinds are compiled from.
pub const ZEROS: &str = "x-freehold-zeros";

/// The word of a definition under which it names the strings, numbers and flags that are pointers in Go. It is our own, as
/// [`ZEROS`] is.
pub const POINTERS: &str = "x-freehold-pointers";
/// The word under which a definition, or a field of one, names its Go type; ours as well.
pub const GO: &str = "x-freehold-go";

/// JSON types as OpenAPI names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `object`.
    Object,
    /// `array`.
    Array,
    /// `string`.
    String,
    /// `integer`.
    Integer,
    /// `number`.
    Number,
    /// `boolean`.
    Boolean,
}

/// How the items of a list are told apart by server-side apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListType {
    /// The list is one value.
    Atomic,
    /// Items are values, each once.
    Set,
    /// Items are objects named by their keys.
    Map,
}

/// How strategic merge patch treats a field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PatchStrategies {
    /// `merge`: lists are merged item by item.
    pub merge: bool,
    /// `retainKeys`: `$retainKeys` names the keys that stay.
    pub retain_keys: bool,
}

/// Value validations of a [`Schema`] node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Checks {
    /// `enum`.
    pub allowed: Vec<Value>,
    /// `pattern`, as the source has it (RE2 syntax).
    pub pattern: Option<Box<str>>,
    /// `minimum`.
    pub minimum: Option<f64>,
    /// `exclusiveMinimum`.
    pub exclusive_minimum: bool,
    /// `maximum`.
    pub maximum: Option<f64>,
    /// `exclusiveMaximum`.
    pub exclusive_maximum: bool,
    /// `multipleOf`.
    pub multiple_of: Option<f64>,
    /// `minLength`, in characters.
    pub min_length: Option<u64>,
    /// `maxLength`, in characters.
    pub max_length: Option<u64>,
    /// `minItems`.
    pub min_items: Option<u64>,
    /// `maxItems`.
    pub max_items: Option<u64>,
    /// `uniqueItems`.
    pub unique_items: bool,
    /// `minProperties`.
    pub min_properties: Option<u64>,
    /// `maxProperties`.
    pub max_properties: Option<u64>,
    /// `allOf`.
    pub all_of: Vec<Arc<Schema>>,
    /// `anyOf`.
    pub any_of: Vec<Arc<Schema>>,
    /// `oneOf`.
    pub one_of: Vec<Arc<Schema>>,
    /// `not`.
    pub not: Option<Arc<Schema>>,
}

/// A CEL validation rule.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rule {
    /// The expression.
    pub rule: Box<str>,
    /// What to say when it is false.
    pub message: Option<Box<str>>,
    /// An expression that says it.
    pub message_expression: Option<Box<str>>,
    /// The cause's reason.
    pub reason: Option<Box<str>>,
    /// The field to blame, relative to the rule's own.
    pub field_path: Option<Box<str>>,
    /// Whether `oldSelf` is optional.
    pub optional_old_self: Option<bool>,
}
