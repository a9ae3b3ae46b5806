//! Expressions: compiled once per process, evaluated within a budget.

use crate::{
    Computed,
    budget::{PURSE, Purse},
    check,
    library::{authz::Authorizer, env},
    macros::repeat_targets,
    rewrite::{children, lower, measure, objects_as_maps, rewrite},
    typing::{self, VariableType, errors},
    value::{self, Owned, convert},
};
use cel::{
    Context, ExecutionError, IdedExpr, ParseErrors,
    common::{
        ast::SourceInfo,
        types::{CelBool, CelOptional, CelString},
        value::Val,
    },
};
use freehold_machinery::{Value, schema::Schema};
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    sync::{
        Arc, LazyLock, Weak,
        atomic::{AtomicI64, Ordering},
    },
};

/// Characters that an expression may have.
const MAX_SOURCE: usize = 16 << 10;
/// Levels that an expression may have: it is walked recursively when it runs.
const MAX_DEPTH: usize = 80;
/// Nodes that an expression may have once macros are expanded.
const MAX_NODES: usize = 20_000;
/// The stack of the thread that parses. The parser goes as deep as the source is nested.
const PARSER_STACK: usize = 256 << 20;
/// What one evaluation may cost (`PerCallLimit` of Kubernetes).
const PER_CALL: i64 = 1_000_000;

/// What the evaluations of one request may cost together (`RuntimeCELCostBudget` of Kubernetes).
///
/// A unit is about one step of the interpreter, or ten bytes of a string.
#[derive(Debug)]
pub struct Budget {
    left: i64,
}

impl Default for Budget {
    fn default() -> Self {
        Self { left: 10_000_000 }
    }
}

impl Budget {
    /// Whether nothing is left.
    pub fn is_spent(&self) -> bool {
        self.left <= 0
    }
}

/// Why an expression is refused: `compilation failed: ERROR: <input>:1:5: ...`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompileError(pub String);

impl std::fmt::Display for CompileError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CompileError {}

/// Why an expression has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EvalError {
    /// The request's budget is spent.
    BudgetSpent,
    /// This evaluation cost more than one may.
    CallLimit,
    /// Types don't fit: `no such overload`.
    NoOverload,
    /// Anything else, in the words of cel-go: `no such key: x`.
    Failed(String),
}

/// What an expression can name.
#[derive(Debug)]
pub enum Variable<'a> {
    /// JSON, as its schema sees it.
    Json(&'a Value, Option<&'a Schema>),
    /// JSON that may be absent: an optional.
    Optional(Option<&'a Value>, Option<&'a Schema>),
    /// What another expression gave.
    Computed(&'a Computed),
    /// An object of what other expressions gave (`variables` of an admission policy).
    Fields(&'a [(String, Computed)]),
    /// The authorizer of an admission policy.
    Authorizer(&'a Authorizer),
}

/// A compiled expression.
pub struct Program {
    expr: IdedExpr,
    source: Box<str>,
    identifiers: Vec<String>,
}

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Program({:?})", self.source)
    }
}

type Known = HashMap<(String, Dialect), Weak<Program>>;

/// What an expression may be made of.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Dialect {
    /// What Kubernetes allows everywhere.
    Plain,
    /// Also objects with their types' names, `Object.spec{replicas: 1}` and `JSONPatch{op: "remove"}`, which stand for
    /// maps: the mutations of admission policies.
    Mutation,
}

static COMPILED: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);

impl Program {
    /// Compiles an expression, or finds it among those that are in use somewhere.
    ///
    /// # Errors
    /// Broken syntax, unknown functions, and expressions that are too long or too deep.
    pub fn compile(source: &str) -> Result<Arc<Self>, CompileError> {
        Self::find_or_parse(source, Dialect::Plain)
    }

    /// Compiles a mutation of an admission policy, in which objects are written with the names of their types
    /// (`Object.metadata{labels: ...}`, `JSONPatch{...}`).
    ///
    /// # Errors
    /// See [`compile`](Self::compile); also types with other names.
    pub fn compile_mutation(source: &str) -> Result<Arc<Self>, CompileError> {
        Self::find_or_parse(source, Dialect::Mutation)
    }

    fn find_or_parse(source: &str, dialect: Dialect) -> Result<Arc<Self>, CompileError> {
        let key = (source.to_owned(), dialect);
        if let Some(known) = COMPILED.lock().get(&key).and_then(Weak::upgrade) {
            return Ok(known);
        }
        let program = Arc::new(Self::parse(source, dialect)?);
        Ok(keep(key, program))
    }

    fn parse(source: &str, dialect: Dialect) -> Result<Self, CompileError> {
        Self::make(Parsed::read(source)?, dialect)
    }

    /// What was parsed, in the form in which it runs.
    fn make(mut parsed: Parsed, dialect: Dialect) -> Result<Self, CompileError> {
        let identifiers = check::identifiers(&mut parsed.expr);
        if let Some((id, name)) = check::unknown_function(&parsed.expr) {
            return Err(parsed.complain(vec![(id, undeclared(&name))]));
        }
        if dialect == Dialect::Mutation
            && let Err((id, name)) = objects_as_maps(&mut parsed.expr)
        {
            return Err(parsed.complain(vec![(id, undeclared(&name))]));
        }
        lower(&mut parsed.expr);
        rewrite(&mut parsed.expr);
        Ok(Self { expr: parsed.expr, source: parsed.source.source.into(), identifiers })
    }

    /// The fields that the expression reads of a variable, by their names.
    pub fn fields_of(&self, variable: &str) -> Vec<&str> {
        check::fields_of(&self.expr, variable)
    }

    /// Whether the expression names a variable.
    pub fn uses(&self, variable: &str) -> bool {
        self.identifiers.iter().any(|known| known == variable)
    }

    /// A complaint about names that are neither among `variables` nor declared by anything else, about fields that a
    /// schema does not declare, and about types that don't fit.
    ///
    /// # Errors
    /// All such complaints, in one text.
    pub fn check(&self, variables: &[(&str, Option<&Schema>)], is_root: bool) -> Result<(), CompileError> {
        let variables: Vec<(&str, VariableType)> = variables
            .iter()
            .map(|(name, schema)| {
                let seen = schema.and_then(|schema| typing::Seen::new(schema, is_root));
                (*name, seen.map_or(VariableType::Dyn, VariableType::Schema))
            })
            .collect();
        typing::type_of_mutation(&self.source, &variables).map(drop)
    }

    /// Evaluates to true, or to something else.
    ///
    /// # Errors
    /// See [`EvalError`].
    pub fn is_true(
        &self,
        variables: &[(&str, Variable<'_>)],
        budget: &mut Budget,
    ) -> Result<bool, EvalError> {
        let converted = variables.iter().map(|(name, value)| (*name, value.to_val()));
        self.run(converted, budget, |value| value.downcast_ref::<CelBool>().is_some_and(|b| *b.inner()))
    }

    /// Evaluates to a string; `None` where it is something else.
    ///
    /// # Errors
    /// See [`EvalError`].
    pub fn text(
        &self,
        variables: &[(&str, Variable<'_>)],
        budget: &mut Budget,
    ) -> Result<Option<String>, EvalError> {
        let converted = variables.iter().map(|(name, value)| (*name, value.to_val()));
        self.run(converted, budget, |value| {
            value.downcast_ref::<CelString<'_>>().map(|s| s.inner().to_owned())
        })
    }

    /// Evaluates to a value, whatever it is.
    ///
    /// # Errors
    /// See [`EvalError`].
    pub fn value(
        &self,
        variables: &[(&str, Variable<'_>)],
        budget: &mut Budget,
    ) -> Result<Computed, EvalError> {
        let converted = variables.iter().map(|(name, value)| (*name, value.to_val()));
        self.run(converted, budget, Computed::copy)
    }

    /// Evaluates with values that are converted already.
    pub(crate) fn run<'a, T>(
        &self,
        variables: impl Iterator<Item = (&'a str, Owned)>,
        budget: &mut Budget,
        read: impl FnOnce(&dyn Val) -> T,
    ) -> Result<T, EvalError> {
        if budget.is_spent() {
            return Err(EvalError::BudgetSpent);
        }
        let allowed = PER_CALL.min(budget.left);
        let purse = Purse(Arc::new(AtomicI64::new(allowed)));
        let mut context = Context::with_env(env().clone());
        context.add_variable_as_val(PURSE, Box::new(purse.clone()));
        for (name, value) in variables {
            context.add_variable_as_val(name, value);
        }
        let result = cel::Value::resolve_val(&self.expr, &context).map(|value| read(value.as_ref()));
        let left = purse.0.load(Ordering::Relaxed);
        // Each evaluation costs something, so that a great many cheap ones end too.
        budget.left -= allowed.saturating_sub(left).clamp(1, allowed);
        match left {
            left if left < 0 && allowed < PER_CALL => Err(EvalError::BudgetSpent),
            left if left < 0 => Err(EvalError::CallLimit),
            _ => result.map_err(|e| explain(&e)),
        }
    }
}

fn undeclared(name: &str) -> String {
    format!("undeclared reference to '{name}' (in container '')")
}

/// Keeps a program for others of the same text.
fn keep(key: (String, Dialect), program: Arc<Program>) -> Arc<Program> {
    let mut compiled = COMPILED.lock();
    if compiled.len() >= 1024 && compiled.len() == compiled.capacity() {
        compiled.retain(|_, program| program.strong_count() > 0);
    }
    compiled.insert(key, Arc::downgrade(&program));
    program
}

/// An expression as it was written, with macros expanded.
pub(crate) struct Parsed {
    pub(crate) expr: IdedExpr,
    source: SourceInfo,
}

impl Parsed {
    /// Parses an expression.
    ///
    /// # Errors
    /// Broken syntax, and expressions that are too long or too deep.
    pub(crate) fn read(source: &str) -> Result<Self, CompileError> {
        if source.len() > MAX_SOURCE {
            let size = source.len();
            return Err(CompileError(format!(
                "compilation failed: ERROR: <input>:-1:0: expression code point size exceeds limit: size: {size}, limit {MAX_SOURCE}"
            )));
        }
        let (text, thread) = (source.to_owned(), std::thread::Builder::new().stack_size(PARSER_STACK));
        let worker = thread.spawn(move || parse_and_measure(&text));
        worker
            .map_err(|e| CompileError(format!("compilation failed: {e}")))?
            .join()
            .map_err(|_| CompileError("compilation failed: the parser gave up".to_owned()))?
    }

    /// Complaints about parts of it, as one error.
    pub(crate) fn complain(&self, complaints: Vec<(u64, String)>) -> CompileError {
        let placed = complaints.into_iter().map(|(id, message)| {
            let (line, column) = errors::place(&self.source, id);
            (line, column, message)
        });
        let shown = errors::show(&self.source.source, placed.collect());
        CompileError(format!("compilation failed: {shown}"))
    }
}

fn parse_and_measure(text: &str) -> Result<Parsed, CompileError> {
    let parsed = env().parser().max_recursion_depth(250).parse_with_source_info(text);
    let (mut expr, mut source) = parsed.map_err(|e| syntax(text, &e))?;
    let mut next = largest_id(&mut expr) + 1;
    repeat_targets(&mut expr, &mut source, &mut next);
    let (depth, nodes) = measure(&mut expr);
    if depth > MAX_DEPTH || nodes > MAX_NODES {
        return Err(CompileError(
            "compilation failed: ERROR: <input>:-1:0: expression recursion limit exceeded".to_owned(),
        ));
    }
    Ok(Parsed { expr, source })
}

fn largest_id(expr: &mut IdedExpr) -> u64 {
    let own = expr.id;
    children(expr).into_iter().map(largest_id).fold(own, u64::max)
}

fn syntax(text: &str, errors: &ParseErrors) -> CompileError {
    let placed = errors.errors.iter().map(|error| {
        let [line, mut column] = [error.pos.0, error.pos.1].map(|n| usize::try_from(n).unwrap_or(0));
        if error.msg == "unsupported syntax: '`'" {
            // The name is complained about, not the dot before it.
            column += 1;
        }
        (line, column, error.msg.clone())
    });
    CompileError(format!("compilation failed: {}", errors::show(text, placed.collect())))
}

impl Variable<'_> {
    fn to_val(&self) -> Owned {
        match self {
            Self::Json(value, schema) => convert(value, *schema),
            Self::Optional(value, schema) => optional(value.map(|v| convert(v, *schema))),
            Self::Computed(value) => value.0.clone_as_boxed(),
            Self::Fields(fields) => {
                let fields = fields.iter().map(|(name, value)| (name.clone(), value.0.clone_as_boxed()));
                Box::new(value::Map::of(fields))
            }
            Self::Authorizer(authorizer) => Box::new(authorizer.value()),
        }
    }
}

/// An optional around a value.
pub(crate) fn optional(value: Option<Owned>) -> Owned {
    Box::new(value.map_or_else(CelOptional::none, CelOptional::of))
}

/// An error of the interpreter, in the words of cel-go.
fn explain(error: &ExecutionError) -> EvalError {
    let number = |v: &cel::Value| match v {
        cel::Value::Int(i) => i.to_string(),
        cel::Value::UInt(u) => u.to_string(),
        other => format!("{other:?}"),
    };
    EvalError::Failed(match error {
        ExecutionError::NoSuchOverload(_)
        | ExecutionError::UnexpectedType { .. }
        | ExecutionError::ValuesNotComparable(..)
        | ExecutionError::UnsupportedBinaryOperator(..) => return EvalError::NoOverload,
        ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
        ExecutionError::UndeclaredReference(name) => format!("no such attribute(s): {name}"),
        ExecutionError::IndexOutOfBounds(at) => format!("index out of bounds: {}", number(at)),
        ExecutionError::DivisionByZero(_) => "division by zero".to_owned(),
        ExecutionError::RemainderByZero(_) => "modulus by zero".to_owned(),
        ExecutionError::Overflow(..) => "integer overflow".to_owned(),
        ExecutionError::FunctionError { message, .. } => message.clone(),
        other => other.to_string(),
    })
}

#[cfg(test)]
#[path = "program_tests.rs"]
mod tests;
