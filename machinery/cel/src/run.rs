//! The interpreter: evaluates a [`plan`](crate::plan) and counts what that costs.
//!
//! Costs are counted where cel-go counts them, errors included: what is evaluated beside an error costs too. What no cost
//! of cel-go says, copies of lists and texts that this crate makes where cel-go shares or does not look, is limited as
//! effort ([`MAX_EFFORT`]).

use crate::results::{Growing, item, lazy, present};
use crate::{
    Computed,
    library::{env, invoke},
    ops,
    plan::{Attribute, Base, Call, Fold, FoldStep, Function, Key, MapNode, Node, Slot, Step, argument},
    price,
    value::{List, Owned, elements},
};
use cel::{
    Context, ExecutionError,
    common::{
        ast::operators,
        types::{CelBool, CelInt, CelMap, CelMapKey, CelOptional, CelString, Kind},
        value::{CowVal, Val},
    },
};
use std::{
    cell::{Cell, OnceCell},
    collections::HashMap,
};

/// Bytes, and sixteen times the items, that one evaluation may copy.
const MAX_EFFORT: u64 = 64 << 20;
/// What copying an item of a list counts for.
pub(crate) const ITEM: u64 = 16;

static TRUE: CelBool = CelBool::TRUE;
static FALSE: CelBool = CelBool::FALSE;

/// A value that expressions name.
pub(crate) enum Bound<'r> {
    Value(Owned),
    /// Fields that are computed when they are read.
    Lazy(&'r dyn Fn(&str) -> Result<Computed, String>),
}

/// One evaluation.
pub(crate) struct Run<'r> {
    variables: Vec<(&'r str, Bound<'r>)>,
    limit: u64,
    cost: Cell<u64>,
    effort: Cell<u64>,
}

/// What a comprehension binds in one of its rounds.
struct Scope<'s> {
    outer: Option<&'s Scope<'s>>,
    /// The result so far. It is computed when it is first asked for.
    result: OnceCell<Result<Owned, ExecutionError>>,
    initial: Option<&'s Node>,
    first: Option<CowVal<'s, 'static>>,
    second: Option<CowVal<'s, 'static>>,
}

pub(crate) type Outcome<'e> = price::Outcome<'e>;

fn truth<'e>(value: bool) -> CowVal<'e, 'static> {
    CowVal::Borrowed(if value { &TRUE } else { &FALSE })
}

pub(crate) fn boolean(value: &dyn Val) -> Option<bool> {
    value.downcast_ref::<CelBool>().map(|b| *b.inner())
}

pub(crate) fn no_overload(function: &str, args: &[&dyn Val]) -> ExecutionError {
    ExecutionError::no_such_overload(function, args.iter().map(|a| a.get_type().name().to_owned()).collect())
}

impl<'r> Run<'r> {
    /// An evaluation that is broken off when it costs more than `limit`.
    pub(crate) fn new(variables: Vec<(&'r str, Bound<'r>)>, limit: u64) -> Self {
        Self { variables, limit, cost: Cell::new(0), effort: Cell::new(0) }
    }

    /// What it has cost.
    pub(crate) fn cost(&self) -> u64 {
        self.cost.get()
    }

    /// Whether it was broken off.
    pub(crate) fn is_exceeded(&self) -> bool {
        self.cost.get() > self.limit || self.effort.get() > MAX_EFFORT
    }

    /// Evaluates a whole expression.
    pub(crate) fn whole<'e>(&'e self, node: &'e Node) -> Outcome<'e> {
        self.node(node, None)
    }

    fn charge(&self, cost: u64) -> Result<(), ExecutionError> {
        self.cost.set(self.cost.get().saturating_add(cost));
        self.check()
    }

    /// Counts what is copied.
    pub(crate) fn effort(&self, effort: u64) -> Result<(), ExecutionError> {
        self.effort.set(self.effort.get().saturating_add(effort));
        self.check()
    }

    fn check(&self) -> Result<(), ExecutionError> {
        if self.is_exceeded() {
            Err(ExecutionError::function_error("@cost", "limit exceeded"))
        } else {
            Ok(())
        }
    }

    fn node<'e>(&'e self, node: &'e Node, scope: Option<&'e Scope<'e>>) -> Outcome<'e> {
        match node {
            Node::Const(value) => Ok(CowVal::Borrowed(value.as_ref())),
            Node::Attribute(attribute) => {
                let value = self.resolve(attribute, scope);
                if !matches!(attribute.base, Base::Conditional(..)) {
                    self.charge(1)?;
                }
                if attribute.is_test {
                    self.cost.set(self.cost.get().saturating_sub(1));
                }
                value
            }
            Node::And(terms) => self.logical(terms, scope, false, operators::LOGICAL_AND),
            Node::Or(terms) => self.logical(terms, scope, true, operators::LOGICAL_OR),
            Node::Call(call) => self.call(call, scope),
            Node::List(items) => {
                let list = self.list(items, scope);
                self.charge(price::LIST)?;
                list
            }
            Node::Map(map) => {
                let made = self.map(map, scope);
                self.charge(map.cost)?;
                made
            }
            Node::Member(item, list) => {
                let value = self.node(item, scope)?;
                ops::contains(value.as_ref(), list).map(truth)
            }
            Node::Otherwise(sides, wants_value) => {
                let [optional, other] = &**sides;
                let value = self.node(optional, scope)?;
                let inner = match value.downcast_ref::<CelOptional<'static>>() {
                    Some(optional) => optional.inner().map(|inner| inner.clone_as_boxed()),
                    None => return Err(no_overload("or", &[value.as_ref()])),
                };
                match inner {
                    Some(inner) if *wants_value => Ok(CowVal::Owned(inner)),
                    Some(_) => Ok(value),
                    None => self.node(other, scope),
                }
            }
            Node::Fold(fold) => self.fold(fold, scope),
        }
    }

    /// `&&` and `||`: an error counts for nothing where the other side decides.
    fn logical<'e>(
        &'e self,
        terms: &'e [Node; 2],
        scope: Option<&'e Scope<'e>>,
        deciding: bool,
        operator: &str,
    ) -> Outcome<'e> {
        let mut error = None;
        for term in terms {
            let value = self.node(term, scope);
            self.check()?;
            match value {
                Ok(value) => match boolean(value.as_ref()) {
                    Some(known) if known == deciding => return Ok(truth(deciding)),
                    Some(_) => {}
                    None => error = error.or_else(|| Some(no_overload(operator, &[value.as_ref()]))),
                },
                Err(why) => error = error.or(Some(why)),
            }
        }
        error.map_or_else(|| Ok(truth(!deciding)), Err)
    }

    fn list<'e>(&'e self, items: &'e [(Node, bool)], scope: Option<&'e Scope<'e>>) -> Outcome<'e> {
        let mut list = Vec::with_capacity(items.len());
        for (item, is_optional) in items {
            let value = self.node(item, scope)?;
            list.extend(present(value, *is_optional)?);
        }
        Ok(CowVal::owned(List::of(list)))
    }

    fn map<'e>(&'e self, map: &'e MapNode, scope: Option<&'e Scope<'e>>) -> Outcome<'e> {
        let mut made: HashMap<CelMapKey<'static>, Owned> = HashMap::with_capacity(map.entries.len());
        for (key, value, is_optional) in &map.entries {
            let key = CelMapKey::try_from(self.node(key, scope)?)?;
            let value = self.node(value, scope)?;
            match present(value, *is_optional)? {
                Some(value) => made.insert(key, value),
                None => made.remove(&key),
            };
        }
        Ok(CowVal::owned(CelMap::from(made)))
    }

    /// The value of an attribute, which itself costs nothing here.
    fn resolve<'e>(&'e self, attribute: &'e Attribute, scope: Option<&'e Scope<'e>>) -> Outcome<'e> {
        let mut steps = attribute.steps.as_slice();
        let base = match &attribute.base {
            Base::Local(depth, slot) => self.local(*depth, *slot, scope)?,
            Base::Node(node) => self.node(node, scope)?,
            Base::Conditional(condition, branches) => {
                let condition = self.node(condition, scope)?;
                let [yes, no] = &**branches;
                return match boolean(condition.as_ref()) {
                    Some(true) => self.resolve(yes, scope),
                    Some(false) => self.resolve(no, scope),
                    None => Err(no_overload(operators::CONDITIONAL, &[condition.as_ref()])),
                };
            }
            Base::Variable(name) => match self.variables.iter().find(|(own, _)| *own == &**name) {
                Some((_, Bound::Value(value))) => CowVal::Borrowed(value.as_ref()),
                Some((_, Bound::Lazy(fields))) => {
                    let unknown = || ExecutionError::UndeclaredReference(name.to_string().into());
                    let (first, rest) = steps.split_first().ok_or_else(unknown)?;
                    steps = rest;
                    let value = lazy(first, *fields).ok_or_else(unknown)?;
                    self.charge(1)?;
                    value?
                }
                None => self.dotted(name)?,
            },
        };
        self.select(base, steps, scope)
    }

    /// A variable with a dot in its name: a field of another one.
    fn dotted<'e>(&'e self, name: &str) -> Outcome<'e> {
        let unknown = || ExecutionError::UndeclaredReference(name.to_owned().into());
        let (outer, field) = name.split_once('.').ok_or_else(unknown)?;
        match self.variables.iter().find(|(own, _)| *own == outer) {
            Some((_, Bound::Value(value))) => {
                let field = CelString::from(field.to_owned());
                item(CowVal::Borrowed(value.as_ref()), &field, false)?.ok_or_else(unknown)
            }
            _ => Err(unknown()),
        }
    }

    fn local<'e>(&'e self, depth: usize, slot: Slot, scope: Option<&'e Scope<'e>>) -> Outcome<'e> {
        let mut found = scope;
        for _ in 0..depth {
            found = found.and_then(|scope| scope.outer);
        }
        let unbound = || ExecutionError::UndeclaredReference("@local".to_owned().into());
        let scope = found.ok_or_else(unbound)?;
        let value = match slot {
            Slot::First => scope.first.as_deref(),
            Slot::Second => scope.second.as_deref(),
            Slot::Result => {
                let initial = || match scope.initial {
                    Some(node) => self.node(node, scope.outer).map(CowVal::into_owned),
                    None => Err(unbound()),
                };
                return match scope.result.get_or_init(initial) {
                    Ok(value) => Ok(CowVal::Borrowed(value.as_ref())),
                    Err(error) => Err(error.clone()),
                };
            }
        };
        value.map(CowVal::Borrowed).ok_or_else(unbound)
    }

    /// What is selected from a value. From an optional, and after an optional step, everything is optional.
    fn select<'e>(
        &'e self,
        mut value: CowVal<'e, 'static>,
        steps: &'e [std::sync::Arc<Step>],
        scope: Option<&'e Scope<'e>>,
    ) -> Outcome<'e> {
        let is_test = steps.last().is_some_and(|step| step.is_test);
        let none = || if is_test { truth(false) } else { CowVal::owned(CelOptional::none()) };
        let mut is_optional = false;
        let unwrapped = match value.downcast_ref::<CelOptional<'static>>().filter(|_| !steps.is_empty()) {
            Some(optional) => match optional.inner() {
                Some(inner) => Some(inner.clone_as_boxed()),
                None => return Ok(none()),
            },
            None => None,
        };
        if let Some(inner) = unwrapped {
            value = CowVal::Owned(inner);
            is_optional = true;
        }
        for step in steps {
            is_optional |= step.optional;
            let key = match &step.key {
                Key::Const(key) => Ok(CowVal::Borrowed(key.as_ref())),
                Key::Attribute(attribute) => self.resolve(attribute, scope),
                Key::Node(node) => self.node(node, scope),
            };
            let found = match key {
                Ok(key) => item(value, key.as_ref(), is_optional || step.is_test),
                Err(error) => Err(error),
            };
            match found {
                Ok(Some(inner)) => {
                    self.charge(1)?;
                    value = if step.is_test { truth(true) } else { inner };
                }
                Ok(None) if is_optional => return Ok(none()),
                Ok(None) => {
                    self.charge(1)?;
                    return Ok(truth(false));
                }
                Err(error) => {
                    self.charge(1)?;
                    return Err(error);
                }
            }
        }
        if is_optional && !is_test {
            Ok(CowVal::owned(CelOptional::of(value.into_owned())))
        } else {
            Ok(value)
        }
    }

    fn call<'e>(&'e self, call: &'e Call, scope: Option<&'e Scope<'e>>) -> Outcome<'e> {
        let mut args: Vec<Outcome<'e>> = Vec::with_capacity(call.args.len());
        for arg in &call.args {
            let value = self.node(arg, scope);
            self.check()?;
            if let (Err(error), false) = (&value, call.is_eager) {
                return Err(error.clone());
            }
            args.push(value);
        }
        if let Function::Own(operators::NOT_STRICTLY_FALSE) = call.function {
            self.charge(1)?;
            let value = args.pop().and_then(Result::ok);
            return Ok(truth(value.is_none_or(|value| boolean(value.as_ref()) != Some(false))));
        }
        let failed = args.iter().find_map(|arg| arg.as_ref().err()).cloned();
        let result = match failed {
            Some(error) => Err(error),
            None => self.apply(&call.function, args.iter().flatten().cloned().collect()),
        };
        self.check()?;
        self.charge(call.price.cost(&args, &result))?;
        result
    }

    fn apply<'e>(&'e self, function: &'e Function, args: Vec<CowVal<'e, 'static>>) -> Outcome<'e> {
        match function {
            Function::Own(operators::LOGICAL_NOT) => match boolean(args[0].as_ref()) {
                Some(value) => Ok(truth(!value)),
                None => Err(no_overload(operators::LOGICAL_NOT, &[args[0].as_ref()])),
            },
            Function::Own(name) => ops::apply(name, args, self),
            Function::Global(name) => invoke(name, args),
            Function::Member(expression) => {
                let mut context: Context<'_, 'static> = Context::with_env(env().clone());
                for (at, arg) in args.into_iter().enumerate() {
                    context.add_variable_as_val(argument(at), arg.into_owned());
                }
                cel::Value::resolve_val(expression, &context).map(|value| CowVal::Owned(value.into_owned()))
            }
        }
    }

    fn fold<'e>(&'e self, fold: &'e Fold, scope: Option<&'e Scope<'e>>) -> Outcome<'e> {
        let range = self.node(&fold.range, scope)?;
        let is_map = range.get_type().kind() == Kind::Map;
        let iterable =
            range.as_iterable().filter(|_| !fold.both || is_map || range.get_type().kind() == Kind::List);
        let iterable = iterable.ok_or_else(|| ExecutionError::UnexpectedType {
            got: range.get_type().name().to_owned(),
            want: "iterable".to_owned(),
        })?;
        let mut made = Growing::of(&fold.step);
        let mut result: OnceCell<Result<Owned, ExecutionError>> = OnceCell::new();
        let mut items = iterable.iter();
        let mut at: i64 = 0;
        while let Some(item) = items.next() {
            let (first, second) = match (fold.both, is_map) {
                (false, _) => (CowVal::Borrowed(item), None),
                (true, true) => {
                    let value = range.as_indexer().map(|map| map.get(item)).transpose()?;
                    (CowVal::Borrowed(item), value)
                }
                (true, false) => (CowVal::owned(CelInt::from(at)), Some(CowVal::Borrowed(item))),
            };
            at += 1;
            let round = Scope {
                outer: scope,
                result: std::mem::take(&mut result),
                initial: Some(&fold.initial),
                first: Some(first),
                second,
            };
            let condition = self.node(&fold.condition, Some(&round));
            self.check()?;
            if condition.is_ok_and(|value| boolean(value.as_ref()) == Some(false)) {
                result = round.result;
                break;
            }
            match &fold.step {
                FoldStep::Value(step) => {
                    let next = self.node(step, Some(&round)).map(CowVal::into_owned);
                    result = OnceCell::from(next);
                }
                FoldStep::Append { guard, list } => self.append(guard.as_ref(), list, &round, &mut made)?,
                FoldStep::Insert { guard, args } => self.insert(guard.as_ref(), args, &round, &mut made)?,
            }
            self.check()?;
        }
        if let Some(made) = made {
            result = OnceCell::from(made.finish());
        }
        let last = Scope { outer: scope, result, initial: Some(&fold.initial), first: None, second: None };
        let value = self.node(&fold.result, Some(&last)).map(CowVal::into_owned);
        value.map(CowVal::Owned)
    }

    /// Whether a guard lets a round through; an error in it is what becomes of the whole.
    fn passes<'e>(
        &'e self,
        guard: Option<&'e Node>,
        round: &'e Scope<'e>,
        made: &mut Option<Growing>,
    ) -> bool {
        let Some(guard) = guard else { return true };
        let error = match self.node(guard, Some(round)) {
            Ok(value) => match boolean(value.as_ref()) {
                Some(value) => return value,
                None => no_overload(operators::CONDITIONAL, &[value.as_ref()]),
            },
            Err(error) => error,
        };
        if let Some(made) = made {
            made.failed = Some(error);
        }
        false
    }

    fn append<'e>(
        &'e self,
        guard: Option<&'e Node>,
        list: &'e Node,
        round: &'e Scope<'e>,
        made: &mut Option<Growing>,
    ) -> Result<(), ExecutionError> {
        if !self.passes(guard, round, made) {
            return self.check();
        }
        let more = self.node(list, Some(round));
        // The result so far is read, and added to.
        self.charge(2)?;
        let Some(made) = made else { return Ok(()) };
        match more {
            Ok(more) => made.list.extend(elements(more.as_ref())),
            Err(error) => made.failed = made.failed.take().or(Some(error)),
        }
        Ok(())
    }

    fn insert<'e>(
        &'e self,
        guard: Option<&'e Node>,
        args: &'e [Node],
        round: &'e Scope<'e>,
        made: &mut Option<Growing>,
    ) -> Result<(), ExecutionError> {
        if !self.passes(guard, round, made) {
            return self.check();
        }
        // The result so far is read.
        self.charge(1)?;
        let Some(made) = made else { return Ok(()) };
        let is_short = args.len() == 1;
        if made.failed.is_some() && !is_short {
            return Ok(());
        }
        let mut values = Vec::with_capacity(args.len());
        for arg in args {
            match self.node(arg, Some(round)) {
                Ok(value) => values.push(value),
                Err(error) => {
                    made.failed = made.failed.take().or(Some(error));
                    return if is_short { self.charge(1) } else { self.check() };
                }
            }
        }
        self.charge(1)?;
        if made.failed.is_none() {
            made.failed = ops::insert(&mut made.map, values).err();
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
