//! The type checker: what Kubernetes' compiler says about an expression before it ever runs.

pub(crate) mod checker;
pub(crate) mod cost;
pub(crate) mod decl;
mod declarations;
pub(crate) mod errors;
mod format;
mod literals;
pub(crate) mod types;

pub(crate) use declarations::Declarations;
pub(crate) use literals::broken_regex;

use crate::program::{CompileError, Dialect, Parsed};
use checker::Checked;
use decl::Decl;
use freehold_machinery::schema::Schema;
use std::{
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
    Outputs(Vec<(String, OutputType)>),
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

    /// The same under a name (`Object` for whole built-in objects).
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        Self { name: name.into(), ..self }
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
            Self::Outputs(outputs) => {
                let fields = outputs.iter().map(|(name, ty)| (Box::from(name.as_str()), ty.0.clone()));
                Type::object("kubernetes.variables", Fields::Given(Arc::new(fields.collect())))
            }
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

#[cfg(test)]
mod tests;
