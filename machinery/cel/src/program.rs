//! Expressions: compiled once per process, evaluated within a budget.

use crate::{
    Computed,
    budget::{PURSE, Purse},
    check,
    library::env,
    rewrite::{measure, objects_as_maps, rewrite},
    value::{self, Owned, convert},
};
use cel::{
    Context, ExecutionError, IdedExpr,
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
}

/// A compiled expression.
pub struct Program {
    expr: IdedExpr,
    source: SourceInfo,
    identifiers: Vec<String>,
}

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Program({:?})", self.source.source)
    }
}

type Known = HashMap<(String, Dialect), Weak<Program>>;

/// What an expression may be made of.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Dialect {
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
        let mut compiled = COMPILED.lock();
        if compiled.len() >= 1024 && compiled.len() == compiled.capacity() {
            compiled.retain(|_, program| program.strong_count() > 0);
        }
        compiled.insert(key, Arc::downgrade(&program));
        Ok(program)
    }

    fn parse(source: &str, dialect: Dialect) -> Result<Self, CompileError> {
        if source.len() > MAX_SOURCE {
            return Err(CompileError(format!(
                "compilation failed: ERROR: <input>:-1:0: expression code point size exceeds limit: size: {}, limit {MAX_SOURCE}",
                source.len()
            )));
        }
        let (text, thread) = (source.to_owned(), std::thread::Builder::new().stack_size(PARSER_STACK));
        let worker = thread.spawn(move || parse_and_measure(&text));
        let (mut expr, source) = worker
            .map_err(|e| CompileError(format!("compilation failed: {e}")))?
            .join()
            .map_err(|_| CompileError("compilation failed: the parser gave up".to_owned()))??;
        let identifiers = check::identifiers(&mut expr);
        let program = Self { expr, source, identifiers };
        let unknown = check::unknown_function(&program.expr);
        if let Some((id, name)) = unknown {
            return Err(program.error_at(id, &format!("undeclared reference to '{name}' (in container '')")));
        }
        let mut program = program;
        if dialect == Dialect::Mutation
            && let Err((id, name)) = objects_as_maps(&mut program.expr)
        {
            return Err(program.error_at(id, &format!("undeclared reference to '{name}' (in container '')")));
        }
        rewrite(&mut program.expr);
        Ok(program)
    }

    /// The fields that the expression reads of a variable, by their names.
    pub fn fields_of(&self, variable: &str) -> Vec<&str> {
        check::fields_of(&self.expr, variable)
    }

    /// Whether the expression names a variable.
    pub fn uses(&self, variable: &str) -> bool {
        self.identifiers.iter().any(|known| known == variable)
    }

    /// A complaint about names that are neither among `variables` nor declared by anything else, and about fields of
    /// the first variable that its schema does not declare.
    ///
    /// # Errors
    /// The first such complaint.
    pub fn check(&self, variables: &[(&str, Option<&Schema>)], is_root: bool) -> Result<(), CompileError> {
        match check::check(&self.expr, variables, is_root) {
            Some((id, message)) => Err(self.error_at(id, &message)),
            None => Ok(()),
        }
    }

    fn error_at(&self, id: u64, message: &str) -> CompileError {
        let offset = self.source.offset_for(id).map_or(0, |(start, _)| start as usize);
        let before: String = self.source.source.chars().take(offset).collect();
        let line = before.matches('\n').count();
        let column = before.rsplit('\n').next().unwrap_or("").chars().count();
        let shown = self.source.source.lines().nth(line).unwrap_or("");
        let dots = ".".repeat(column);
        CompileError(format!(
            "compilation failed: ERROR: <input>:{}:{}: {message}\n | {shown}\n | {dots}^",
            line + 1,
            column + 1
        ))
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

fn parse_and_measure(text: &str) -> Result<(IdedExpr, SourceInfo), CompileError> {
    let parser = env().parser().enable_ident_escape_syntax(true).max_recursion_depth(250);
    let parsed = parser.parse_with_source_info(text);
    let (mut expr, source) = parsed.map_err(|e| CompileError(format!("compilation failed: {e}")))?;
    let (depth, nodes) = measure(&mut expr);
    if depth > MAX_DEPTH || nodes > MAX_NODES {
        return Err(CompileError(
            "compilation failed: ERROR: <input>:-1:0: expression recursion limit exceeded".to_owned(),
        ));
    }
    Ok((expr, source))
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
