//! The type checker: the errors of Kubernetes' compiler about an expression, before it runs.

pub(crate) mod checker;
pub(crate) mod cost;
pub(crate) mod decl;
mod declarations;
pub(crate) mod errors;
mod format;
mod literals;
pub(crate) mod types;

pub(crate) use declarations::Declarations;
pub(crate) use literals::{broken_conversion, broken_regex};

use crate::program::{CompileError, Dialect, Parsed};
use checker::Checked;
use decl::Decl;
use freehold_machinery::schema::Schema;
use std::{
    collections::BTreeMap,
    sync::Arc,
    sync::atomic::{AtomicU32, Ordering},
};
use types::{Fields, Type};

/// What a variable can be, for the checker.
#[derive(Clone, Debug)]
pub enum VariableType {
    /// Anything.
    Dyn,
    /// A truth value.
    Bool,
    /// An integer.
    Int,
    /// A string.
    String,
    /// A value of a schema.
    Schema(Seen),
    /// An object with the fields that are given, under a name that errors show
    /// (`kubernetes.AdmissionRequest`).
    Object(&'static str, Vec<(&'static str, VariableType)>),
    /// A list.
    List(Box<VariableType>),
    /// A map from strings.
    Map(Box<VariableType>),
    /// Something that may be absent.
    Optional(Box<VariableType>),
    /// What another expression gives.
    Output(OutputType),
    /// An object of what other expressions give (`variables` of an admission policy).
    Outputs(Outputs),
    /// The authorizer of admission policies.
    Authorizer,
    /// A check of one resource by the authorizer.
    ResourceCheck,
}

/// A schema as CEL sees it, under the name of its type. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Seen {
    pub(crate) decl: Arc<Decl>,
    name: Arc<str>,
}

impl Seen {
    /// A schema; `None` where CEL sees nothing of it, as of values without a type. `is_whole`: of an object with kind
    /// and metadata. The type gets a name of its own that is not to be relied on, as in Kubernetes.
    pub fn new(schema: &Schema, is_whole: bool) -> Option<Self> {
        Decl::of(schema, is_whole).map(Self::of)
    }

    pub(crate) fn of(decl: Arc<Decl>) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(1);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Self { decl, name: format!("selfType{number}").into() }
    }

    /// Gives the type a name (`Object` for whole built-in objects).
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        Self { name: name.into(), ..self }
    }
}

/// The name of the type of [`Outputs`].
const OUTPUTS: &str = "kubernetes.variables";
/// Levels of the type of an output that are kept: outputs that are made of outputs would nest without end.
const OUTPUT_LEVELS: usize = 32;

/// What other expressions give, by names. Cheap to clone, and one more costs the same however many there are.
#[derive(Clone, Debug, Default)]
pub struct Outputs(Arc<BTreeMap<Box<str>, Type>>);

impl Outputs {
    /// Adds an output, in the place of one of the same name. What is in it at more than 32 levels, and the outputs
    /// themselves in one of them, can only be told when it runs.
    pub fn declare(&mut self, name: &str, output: &OutputType) {
        let ty = cut(&output.0, OUTPUT_LEVELS);
        Arc::make_mut(&mut self.0).insert(name.into(), ty);
    }
}

/// A type without what is further down than that many levels.
fn cut(ty: &Type, levels: usize) -> Type {
    let Some(levels) = levels.checked_sub(1) else { return Type::Dyn };
    match ty {
        Type::List(item) => Type::list(cut(item, levels)),
        Type::Map(pair) => Type::map(cut(&pair.0, levels), cut(&pair.1, levels)),
        Type::Meta(Some(inner)) => Type::Meta(Some(Arc::new(cut(inner, levels)))),
        Type::Opaque(name, inner) => {
            Type::Opaque(name.clone(), inner.iter().map(|inner| cut(inner, levels)).collect())
        }
        Type::Object(object) if &*object.name == OUTPUTS => Type::Dyn,
        other => other.clone(),
    }
}

/// The type of what an expression gives.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputType(pub(crate) Type);

impl OutputType {
    /// Whether it is a truth value.
    pub fn is_bool(&self) -> bool {
        self.0 == Type::Bool
    }

    /// One that can only be told when the expression runs.
    pub fn any() -> Self {
        Self(Type::Dyn)
    }

    /// Whether it is a string.
    pub fn is_string(&self) -> bool {
        self.0 == Type::String
    }

    /// Whether it can only be told when the expression runs.
    pub fn is_dyn(&self) -> bool {
        self.0.is_dyn()
    }
}

/// As errors show it: `list(string)`.
impl std::fmt::Display for OutputType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl VariableType {
    /// Resolves the variable's type once, for use in many expressions.
    #[must_use]
    pub fn ready(self) -> Self {
        Self::Output(OutputType(self.ty()))
    }

    fn ty(&self) -> Type {
        match self {
            Self::Dyn => Type::Dyn,
            Self::Bool => Type::Bool,
            Self::Int => Type::Int,
            Self::String => Type::String,
            Self::Schema(seen) => seen.decl.ty(&seen.name),
            Self::Object(name, fields) => {
                let fields = fields.iter().map(|(name, ty)| (Box::from(*name), ty.ty())).collect();
                Type::object(name, Fields::Given(Arc::new(fields)))
            }
            Self::List(item) => Type::list(item.ty()),
            Self::Map(value) => Type::map(Type::String, value.ty()),
            Self::Optional(inner) => Type::optional(inner.ty()),
            Self::Output(output) => output.0.clone(),
            Self::Outputs(outputs) => Type::object(OUTPUTS, Fields::Given(outputs.0.clone())),
            Self::Authorizer => library("Authorizer"),
            Self::ResourceCheck => library("ResourceCheck"),
        }
    }
}

fn library(name: &str) -> Type {
    Type::object(&format!("kubernetes.authorization.{name}"), Fields::Hidden)
}

/// Checks an expression against what it can name, and gives the type of its value.
///
/// # Errors
/// All that Kubernetes' compiler complains about, in its words, each with its place:
/// `ERROR: <input>:1:5: undefined field 'x'`.
pub fn type_of(source: &str, variables: &[(&str, VariableType)]) -> Result<OutputType, CompileError> {
    typed(source, variables, Dialect::Plain)
}

/// [`type_of`] for the mutations of admission policies, which may make objects (`Object.spec{...}`, `JSONPatch{...}`).
///
/// # Errors
/// See [`type_of`].
pub fn type_of_mutation(
    source: &str,
    variables: &[(&str, VariableType)],
) -> Result<OutputType, CompileError> {
    typed(source, variables, Dialect::Mutation)
}

fn typed(
    source: &str,
    variables: &[(&str, VariableType)],
    dialect: Dialect,
) -> Result<OutputType, CompileError> {
    let parsed = Parsed::read(source)?;
    let checked = check(&parsed, variables, dialect)?;
    Ok(OutputType(checked.ty(parsed.expr.id).clone()))
}

/// Checks what was parsed.
pub(crate) fn check(
    parsed: &Parsed,
    variables: &[(&str, VariableType)],
    dialect: Dialect,
) -> Result<Checked, CompileError> {
    let variables: Vec<(String, Type)> =
        variables.iter().map(|(name, ty)| ((*name).to_owned(), ty.ty())).collect();
    let (checked, mut complaints) = checker::check(&parsed.expr, &variables, dialect == Dialect::Mutation);
    if complaints.is_empty() {
        complaints = literals::check(&parsed.expr, &checked);
    }
    if complaints.is_empty() { Ok(checked) } else { Err(parsed.complain(complaints)) }
}

/// What can be told of the types in an expression, complaints or not.
pub(crate) fn check_leniently(
    parsed: &Parsed,
    variables: &[(&str, VariableType)],
    dialect: Dialect,
) -> Checked {
    let variables: Vec<(String, Type)> =
        variables.iter().map(|(name, ty)| ((*name).to_owned(), ty.ty())).collect();
    checker::check(&parsed.expr, &variables, dialect == Dialect::Mutation).0
}

#[cfg(test)]
mod tests;
