//! Expressions: compiled once per process, evaluated within a budget.

use crate::convert::convert;
use crate::{
    Computed, check,
    library::{authz::Authorizer, env},
    macros::repeat_targets,
    plan::{self, Node},
    run::{Bound, Run},
    typing::{self, Declarations, VariableType, checker::Checked, errors},
    value::Owned,
    walk::{children, measure},
};
use cel::{
    ExecutionError, IdedExpr, ParseErrors,
    common::{
        ast::SourceInfo,
        types::{CelBool, CelOptional, CelString},
        value::Val,
    },
};
use freehold_machinery::{Value, schema::Schema};
use parking_lot::Mutex;
use std::{
    cell::Cell,
    collections::{HashMap, hash_map::DefaultHasher},
    hash::{Hash, Hasher},
    sync::{Arc, LazyLock, Weak},
};

/// Characters that an expression may have.
const MAX_SOURCE: usize = 16 << 10;
/// Levels that an expression may have: it is walked recursively when it runs.
const MAX_DEPTH: usize = 80;
/// Nodes that an expression may have once macros are expanded.
const MAX_NODES: usize = 20_000;
/// The stack of the thread that parses. The parser goes as deep as the source is nested.
const PARSER_STACK: usize = 256 << 20;
/// An expression that is no longer, and has no more brackets and the like, is parsed where there is the stack of any thread.
const SHORT: usize = 96;
const FEW: usize = 4;
/// What one evaluation may cost (`PerCallLimit` of Kubernetes).
const PER_CALL: u64 = 1_000_000;
/// What the evaluations of one request may cost together (`RuntimeCELCostBudget` of Kubernetes).
const PER_REQUEST: u64 = 10_000_000;
/// What the match conditions of one webhook or policy may cost together (`RuntimeCELCostBudgetMatchConditions`).
const PER_CONDITIONS: u64 = 2_500_000;
/// Evaluations that one budget allows, whatever they cost: constants cost nothing.
const MAX_EVALUATIONS: u64 = 4_000_000;

/// What the evaluations of one request may still cost together, in cel-go's units.
#[derive(Debug)]
pub struct Budget {
    left: Cell<u64>,
    evaluations: Cell<u64>,
    is_spent: Cell<bool>,
}

impl Default for Budget {
    fn default() -> Self {
        Self::of(PER_REQUEST)
    }
}

impl Budget {
    /// The budget of match conditions.
    pub fn of_conditions() -> Self {
        Self::of(PER_CONDITIONS)
    }

    /// One of so many equal parts of it.
    #[must_use]
    pub fn divided(self, parts: u64) -> Self {
        let parts = parts.max(1);
        self.left.set(self.left.get() / parts);
        self.evaluations.set(self.evaluations.get() / parts);
        self
    }

    fn of(left: u64) -> Self {
        Self { left: Cell::new(left), evaluations: Cell::new(MAX_EVALUATIONS), is_spent: Cell::new(false) }
    }

    /// Whether nothing is left.
    pub fn is_spent(&self) -> bool {
        self.is_spent.get() || self.left.get() == 0
    }

    /// What is left.
    #[cfg(test)]
    pub(crate) fn left(&self) -> u64 {
        self.left.get()
    }

    /// Takes what an evaluation cost; whether that much was left.
    fn spend(&self, cost: u64) -> bool {
        let enough = cost <= self.left.get() && self.evaluations.get() > 0 && !self.is_spent.get();
        self.left.set(self.left.get().saturating_sub(cost));
        self.evaluations.set(self.evaluations.get().saturating_sub(1));
        self.is_spent.set(!enough);
        enough
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
pub enum Variable<'a> {
    /// JSON, as its schema sees it.
    Json(&'a Value, Option<&'a Schema>),
    /// JSON that may be absent: an optional.
    Optional(Option<&'a Value>, Option<&'a Schema>),
    /// What another expression gave.
    Computed(&'a Computed),
    /// Fields that are computed when an expression reads them (`variables` of an admission policy). An error is one of
    /// the expression, in these words.
    Lazy(&'a dyn Fn(&str) -> Result<Computed, String>),
    /// The authorizer of an admission policy.
    Authorizer(&'a Authorizer),
}

/// A compiled expression.
pub struct Program {
    plan: Node,
    source: Box<str>,
    identifiers: Vec<String>,
    fields: Vec<(Box<str>, Box<str>)>,
    levels: usize,
}

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Program({:?})", self.source)
    }
}

/// A text, its dialect, and the overloads that its calls mean.
type Meaning = (String, Dialect, u64);
type Known = HashMap<Meaning, Weak<Program>>;

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
    /// Compiles an expression over values of which nothing is known, or finds it among those that are in use somewhere.
    ///
    /// # Errors
    /// Broken syntax, unknown functions, and expressions that are too long or too deep.
    pub fn compile(source: &str) -> Result<Arc<Self>, CompileError> {
        Self::typed(source, &[])
    }

    /// Compiles an expression whose variables are of these types, or finds it: what it costs depends on what the types
    /// leave of the overloads that it can mean. Variables that are not given are of any type. Types that don't fit are no
    /// error here, see [`type_of`](crate::type_of).
    ///
    /// # Errors
    /// See [`compile`](Self::compile).
    pub fn typed(source: &str, variables: &[(&str, VariableType)]) -> Result<Arc<Self>, CompileError> {
        Self::make(Parsed::read(source)?, variables, Dialect::Plain)
    }

    /// Compiles a mutation of an admission policy, in which objects are written with the names of their types
    /// (`Object.metadata{labels: ...}`, `JSONPatch{...}`).
    ///
    /// # Errors
    /// See [`compile`](Self::compile); also types with other names.
    pub fn mutation(source: &str, variables: &[(&str, VariableType)]) -> Result<Arc<Self>, CompileError> {
        Self::make(Parsed::read(source)?, variables, Dialect::Mutation)
    }

    /// What was parsed, in the form in which it runs.
    fn make(
        mut parsed: Parsed,
        variables: &[(&str, VariableType)],
        dialect: Dialect,
    ) -> Result<Arc<Self>, CompileError> {
        let identifiers = check::identifiers(&mut parsed.expr);
        if let Some((id, name)) = check::unknown_function(&parsed.expr) {
            return Err(parsed.complain(vec![(id, undeclared(&name))]));
        }
        let is_free = |name: &&String| {
            !name.starts_with('@')
                && Declarations::all().name(name).is_none()
                && !variables.iter().any(|(known, _)| known == name)
        };
        let free = identifiers.iter().filter(is_free).map(|name| (name.as_str(), VariableType::Dyn));
        let variables: Vec<(&str, VariableType)> = variables.iter().cloned().chain(free).collect();
        let checked = typing::check_leniently(&parsed, &variables, dialect);
        let key = (parsed.source.source.clone(), dialect, meaning(&checked));
        if let Some(known) = COMPILED.lock().get(&key).and_then(Weak::upgrade) {
            return Ok(known);
        }
        if let (Dialect::Plain, Some(id)) = (dialect, check::object(&parsed.expr)) {
            return Err(parsed.complain(vec![(id.0, undeclared(id.1))]));
        }
        let plan = plan::plan(&parsed.expr, &checked)
            .map_err(|(id, name)| parsed.complain(vec![(id, undeclared(&name))]))?;
        let fields = check::fields(&parsed.expr);
        let (source, levels) = (key.0.as_str().into(), parsed.levels);
        Ok(keep(key, Arc::new(Self { plan, source, identifiers, fields, levels })))
    }

    /// The fields that the expression reads of a variable, by their names.
    pub fn fields_of(&self, variable: &str) -> Vec<&str> {
        self.fields.iter().filter(|(name, _)| **name == *variable).map(|(_, field)| &**field).collect()
    }

    /// How many levels the expression has: it is walked recursively when it runs.
    pub fn levels(&self) -> usize {
        self.levels
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
    pub fn is_true(&self, variables: &[(&str, Variable<'_>)], budget: &Budget) -> Result<bool, EvalError> {
        let converted = variables.iter().map(|(name, value)| (*name, value.bound()));
        self.run(converted, budget, |value| value.downcast_ref::<CelBool>().is_some_and(|b| *b.inner()))
    }

    /// Evaluates to a string; `None` where it is something else.
    ///
    /// # Errors
    /// See [`EvalError`].
    pub fn text(
        &self,
        variables: &[(&str, Variable<'_>)],
        budget: &Budget,
    ) -> Result<Option<String>, EvalError> {
        let converted = variables.iter().map(|(name, value)| (*name, value.bound()));
        self.run(converted, budget, |value| {
            value.downcast_ref::<CelString<'_>>().map(|s| s.inner().to_owned())
        })
    }

    /// Evaluates to a value, whatever it is.
    ///
    /// # Errors
    /// See [`EvalError`].
    pub fn value(&self, variables: &[(&str, Variable<'_>)], budget: &Budget) -> Result<Computed, EvalError> {
        let converted = variables.iter().map(|(name, value)| (*name, value.bound()));
        self.run(converted, budget, Computed::copy)
    }

    /// Evaluates with values that are converted already.
    pub(crate) fn run<'a, T>(
        &self,
        variables: impl Iterator<Item = (&'a str, Bound<'a>)>,
        budget: &Budget,
        read: impl FnOnce(&dyn Val) -> T,
    ) -> Result<T, EvalError> {
        let run = Run::new(variables.collect(), PER_CALL.min(budget.left.get()));
        let result = run.whole(&self.plan).map(|value| read(value.as_ref()));
        match budget.spend(run.cost()) {
            false => Err(EvalError::BudgetSpent),
            true if run.is_exceeded() => Err(EvalError::CallLimit),
            true => result.map_err(|e| explain(&e)),
        }
    }
}

#[cfg(test)]
impl Program {
    /// Whether it is true, and what that costs without a limit.
    pub(crate) fn observe(&self, variables: Vec<(&str, Bound<'_>)>) -> (Result<bool, EvalError>, u64) {
        let run = Run::new(variables, u64::MAX);
        let result =
            run.whole(&self.plan).map(|value| value.downcast_ref::<CelBool>().is_some_and(|b| *b.inner()));
        (result.map_err(|e| explain(&e)), run.cost())
    }
}

/// What the calls of an expression mean, as one number.
fn meaning(checked: &Checked) -> u64 {
    let mut calls: Vec<_> = checked.calls.iter().map(|(id, call)| (id, &call.overloads)).collect();
    calls.sort_unstable();
    let mut hasher = DefaultHasher::new();
    calls.hash(&mut hasher);
    hasher.finish()
}

fn undeclared(name: &str) -> String {
    format!("undeclared reference to '{name}' (in container '')")
}

/// Keeps a program for others of the same text.
fn keep(key: Meaning, program: Arc<Program>) -> Arc<Program> {
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
    levels: usize,
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
        // A thread costs more than a short expression does.
        let deeper = source.bytes().filter(|byte| b"([{!-?".contains(byte));
        if source.len() <= SHORT && deeper.count() <= FEW {
            return parse_and_measure(source);
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
    Ok(Parsed { expr, source, levels: depth })
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
        let message = match error.msg.as_str() {
            msg if msg.starts_with("invalid string literal: InvalidUnicode") => "invalid unicode code point",
            msg if msg.starts_with("invalid string literal") || msg.starts_with("invalid bytes literal") => {
                "unable to unescape string"
            }
            msg => msg,
        };
        (line, column, message.to_owned())
    });
    CompileError(format!("compilation failed: {}", errors::show(text, placed.collect())))
}

impl<'a> Variable<'a> {
    fn bound(&self) -> Bound<'a> {
        Bound::Value(match self {
            Self::Json(value, schema) => convert(value, *schema),
            Self::Optional(value, schema) => optional(value.map(|v| convert(v, *schema))),
            Self::Computed(value) => value.0.clone_as_boxed(),
            Self::Lazy(fields) => {
                let fields = *fields;
                return Bound::Lazy(fields);
            }
            Self::Authorizer(authorizer) => Box::new(authorizer.value()),
        })
    }
}

/// An optional around a value.
pub(crate) fn optional(value: Option<Owned>) -> Owned {
    Box::new(value.map_or_else(CelOptional::none, CelOptional::of))
}

fn overflow(left: &cel::Value, right: &cel::Value) -> &'static str {
    let either = |is: fn(&cel::Value) -> bool| is(left) || is(right);
    match () {
        () if either(|v| matches!(v, cel::Value::Timestamp(_))) => "timestamp overflow",
        () if either(|v| matches!(v, cel::Value::UInt(_))) => "unsigned integer overflow",
        () => "integer overflow",
    }
}

/// Returns cel-go's words for a text that is no duration or timestamp; `None` for the errors of other functions.
fn unreadable(function: &str, message: &str) -> Option<&'static str> {
    match function {
        "timestamp" if message.contains("range") => Some("timestamp overflow"),
        "timestamp" => Some("type conversion error from 'string' to 'google.protobuf.Timestamp'"),
        "duration" if message != "range error" => {
            Some("type conversion error from 'string' to 'google.protobuf.Duration'")
        }
        _ => None,
    }
}

/// An error of the interpreter, in the words of cel-go.
pub(crate) fn explain(error: &ExecutionError) -> EvalError {
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
        ExecutionError::Overflow(_, left, right) => overflow(left, right).to_owned(),
        ExecutionError::FunctionError { function, message } if message.starts_with("string parse error") => {
            format!("type conversion error from 'string' to '{function}'")
        }
        ExecutionError::FunctionError { function, message } => {
            match (unreadable(function, message), message.strip_prefix("Type conversion")) {
                (Some(words), _) => words.to_owned(),
                (None, Some(rest)) => format!("type conversion{rest}"),
                (None, None) => message.clone(),
            }
        }
        other => other.to_string(),
    })
}

#[cfg(test)]
#[path = "program_tests.rs"]
mod tests;
