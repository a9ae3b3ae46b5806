//! Expressions as they run: names resolved, constants made, prices known.
//!
//! The parts are those that cel-go's planner makes, since its costs count them: a name with all that is selected from it
//! is one attribute, both branches of a condition are attributes that cost nothing themselves, lists and maps of constants
//! are constants.

use crate::{
    escape::unescape,
    library::env,
    macros::INSERT,
    price::{self, Price},
    typing::{
        Declarations,
        checker::{Checked, qualified},
        types::Type,
    },
    value::{List, Owned, elements},
};
use cel::{
    Context, IdedExpr,
    common::{
        ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue, SelectExpr, operators},
        types::{CelBool, CelMap, CelMapKey, CelString, Kind},
        value::Val,
    },
};
use std::{collections::HashMap, sync::Arc};

/// Functions that are called once, when the expression is compiled, where their argument is constant.
pub(crate) const CONVERSIONS: [&str; 10] =
    ["bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"];

/// A part of an expression.
#[derive(Debug)]
pub(crate) enum Node {
    Const(Owned),
    Attribute(Box<Attribute>),
    And(Box<[Node; 2]>),
    Or(Box<[Node; 2]>),
    Call(Box<Call>),
    /// Items, each with whether it is optional.
    List(Vec<(Node, bool)>),
    Map(Box<MapNode>),
    /// Whether a value is in a constant list.
    Member(Box<Node>, List),
    /// An optional, or where it has no value, something else; `true`: the value itself.
    Otherwise(Box<[Node; 2]>, bool),
    Fold(Box<Fold>),
}

/// A map, or an object: entries, each with whether it is optional, and what making it costs.
#[derive(Debug)]
pub(crate) struct MapNode {
    pub(crate) entries: Vec<(Node, Node, bool)>,
    pub(crate) cost: u64,
}

/// A value, and what is selected from it.
#[derive(Debug)]
pub(crate) struct Attribute {
    pub(crate) base: Base,
    pub(crate) steps: Vec<Arc<Step>>,
    /// The last step asks only whether there is something.
    pub(crate) is_test: bool,
}

/// What an attribute begins with.
#[derive(Debug)]
pub(crate) enum Base {
    Variable(Box<str>),
    /// What a comprehension binds: how many comprehensions further out, and which.
    Local(usize, Slot),
    Node(Node),
    /// `condition ? a : b`; what is selected is selected from each of them.
    Conditional(Node, Box<[Attribute; 2]>),
}

/// One of the variables of a comprehension.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Slot {
    Result,
    First,
    Second,
}

/// A field or an item.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) key: Key,
    pub(crate) optional: bool,
    pub(crate) is_test: bool,
}

/// What a field or an item is found by.
#[derive(Debug)]
pub(crate) enum Key {
    Const(Owned),
    Attribute(Attribute),
    Node(Node),
}

/// A call.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) function: Function,
    pub(crate) args: Vec<Node>,
    pub(crate) price: Price,
    /// All arguments are evaluated, and the call is paid for, also where one of them fails.
    pub(crate) is_eager: bool,
}

/// What is called.
#[derive(Debug)]
pub(crate) enum Function {
    /// An operator, or one of the functions that this crate has itself.
    Own(&'static str),
    /// A function of the environment.
    Global(Box<str>),
    /// A function with a target: a call of it on the names `@0`, `@1` and so on.
    Member(Box<IdedExpr>),
}

/// A comprehension.
#[derive(Debug)]
pub(crate) struct Fold {
    pub(crate) range: Node,
    pub(crate) initial: Node,
    pub(crate) condition: Node,
    pub(crate) step: FoldStep,
    pub(crate) result: Node,
    /// Whether keys and values are bound, not only one of them.
    pub(crate) both: bool,
}

/// What a round makes of the result so far.
#[derive(Debug)]
pub(crate) enum FoldStep {
    /// Another value.
    Value(Node),
    /// Appends the items of another list, where the guard holds.
    Append { guard: Option<Node>, list: Node },
    /// Inserts one entry, or the entries of another map, where the guard holds.
    Insert { guard: Option<Node>, args: Vec<Node> },
}

/// Functions that run in this crate: name, arguments with the target, and the name under which they are known.
const OWN: [(&str, usize, &str); 26] = [
    (operators::EQUALS, 2, operators::EQUALS),
    (operators::NOT_EQUALS, 2, operators::NOT_EQUALS),
    (operators::LOGICAL_NOT, 1, operators::LOGICAL_NOT),
    (operators::NEGATE, 1, operators::NEGATE),
    (operators::NOT_STRICTLY_FALSE, 1, operators::NOT_STRICTLY_FALSE),
    (operators::ADD, 2, operators::ADD),
    (operators::SUBSTRACT, 2, operators::SUBSTRACT),
    (operators::MULTIPLY, 2, operators::MULTIPLY),
    (operators::DIVIDE, 2, operators::DIVIDE),
    (operators::MODULO, 2, operators::MODULO),
    (operators::LESS, 2, operators::LESS),
    (operators::LESS_EQUALS, 2, operators::LESS_EQUALS),
    (operators::GREATER, 2, operators::GREATER),
    (operators::GREATER_EQUALS, 2, operators::GREATER_EQUALS),
    (operators::IN, 2, operators::IN),
    ("format", 2, "format"),
    ("matches", 2, "matches"),
    ("replace", 3, "replace"),
    ("replace", 4, "replace"),
    ("join", 1, "join"),
    ("join", 2, "join"),
    ("indexOf", 3, "indexOf"),
    ("lastIndexOf", 3, "lastIndexOf"),
    ("lists.range", 1, "lists.range"),
    (INSERT, 2, INSERT),
    (INSERT, 3, INSERT),
];

/// What is wrong with an expression: a part's id, and a name that stands for nothing there.
pub(crate) type Unknown = (u64, String);

/// The plan of an expression of which the types are known as far as `checked` says.
///
/// # Errors
/// Objects of types that none has.
pub(crate) fn plan(expr: &IdedExpr, checked: &Checked) -> Result<Node, Unknown> {
    Planner { checked, frames: Vec::new() }.node(expr)
}

/// The names that a comprehension binds.
struct Frame<'e> {
    result: &'e str,
    first: Option<&'e str>,
    second: Option<&'e str>,
}

struct Planner<'e> {
    checked: &'e Checked,
    frames: Vec<Frame<'e>>,
}

impl<'e> Planner<'e> {
    fn node(&mut self, expr: &'e IdedExpr) -> Result<Node, Unknown> {
        Ok(match &expr.expr {
            Expr::Literal(literal) => Node::Const(literal.to_val().into_owned()),
            Expr::Ident(name) => self.ident(expr, name),
            Expr::Select(select) => self.select(expr, select)?,
            Expr::Call(call) => self.call(expr, call)?,
            Expr::List(list) => {
                let item = |(index, item): (usize, &'e IdedExpr)| {
                    Ok((self.node(item)?, list.optional_indices.contains(&index)))
                };
                list_of(list.elements.iter().enumerate().map(item).collect::<Result<_, Unknown>>()?)
            }
            Expr::Map(map) => {
                let mut entries = Vec::with_capacity(map.entries.len());
                for entry in &map.entries {
                    let EntryExpr::MapEntry(entry) = &entry.expr else { continue };
                    entries.push((self.node(&entry.key)?, self.node(&entry.value)?, entry.optional));
                }
                map_of(entries)
            }
            Expr::Struct(object) => {
                let name = object.type_name.trim_start_matches('.');
                if name != "JSONPatch" && name != "Object" && !name.starts_with("Object.") {
                    return Err((expr.id, object.type_name.clone()));
                }
                let mut entries = Vec::with_capacity(object.entries.len());
                for entry in &object.entries {
                    let EntryExpr::StructField(field) = &entry.expr else { continue };
                    let key = Node::Const(Box::new(CelString::from(unescape(&field.field))));
                    entries.push((key, self.node(&field.value)?, field.optional));
                }
                Node::Map(Box::new(MapNode { entries, cost: price::OBJECT }))
            }
            Expr::Comprehension(comprehension) => self.fold(comprehension)?,
            Expr::Unspecified => return Err((expr.id, String::new())),
        })
    }

    fn local(&self, name: &str) -> Option<Base> {
        self.frames.iter().rev().enumerate().find_map(|(depth, frame)| {
            let slot = match name {
                name if name == frame.result => Slot::Result,
                name if Some(name) == frame.first => Slot::First,
                name if Some(name) == frame.second => Slot::Second,
                _ => return None,
            };
            Some(Base::Local(depth, slot))
        })
    }

    fn ident(&self, expr: &IdedExpr, name: &str) -> Node {
        let name = name.trim_start_matches('.');
        let is_variable = || self.checked.variables.iter().any(|known| known == name);
        let base = match self.local(name) {
            Some(local) => local,
            None if !is_variable() && Declarations::all().name(name).is_some() => match named_type(expr) {
                Some(value) => return Node::Const(value),
                None => Base::Variable(name.into()),
            },
            None => Base::Variable(name.into()),
        };
        Node::Attribute(Box::new(Attribute { base, steps: Vec::new(), is_test: false }))
    }

    fn select(&mut self, expr: &'e IdedExpr, select: &'e SelectExpr) -> Result<Node, Unknown> {
        if let (Type::Meta(_), Some(name)) = (self.checked.ty(expr.id), qualified(expr))
            && Declarations::all().name(&name).is_some()
            && let Some(value) = named_type(expr)
        {
            return Ok(Node::Const(value));
        }
        // A variable with a dot in its name, as `authorizer.requestResource` is.
        if let Some(name) = qualified(expr).filter(|_| !select.test)
            && self.checked.variables.contains(&name)
        {
            let base = Base::Variable(name.into());
            return Ok(Node::Attribute(Box::new(Attribute { base, steps: Vec::new(), is_test: false })));
        }
        let mut attribute = self.attribute(&select.operand)?;
        let key = Key::Const(Box::new(CelString::from(select.field.clone())));
        attribute.push(Arc::new(Step { key, optional: false, is_test: select.test }));
        attribute.is_test = select.test;
        Ok(Node::Attribute(Box::new(attribute)))
    }

    /// What a selection begins with.
    fn attribute(&mut self, expr: &'e IdedExpr) -> Result<Attribute, Unknown> {
        Ok(match self.node(expr)? {
            Node::Attribute(attribute) if !attribute.is_test => *attribute,
            other => Attribute::of(other),
        })
    }

    fn call(&mut self, expr: &'e IdedExpr, call: &'e CallExpr) -> Result<Node, Unknown> {
        if call.target.is_none() {
            match (call.func_name.as_str(), call.args.as_slice()) {
                (operators::LOGICAL_AND, [a, b]) => {
                    return Ok(Node::And(Box::new([self.node(a)?, self.node(b)?])));
                }
                (operators::LOGICAL_OR, [a, b]) => {
                    return Ok(Node::Or(Box::new([self.node(a)?, self.node(b)?])));
                }
                (operators::CONDITIONAL, [condition, yes, no]) => {
                    return self.conditional(condition, yes, no);
                }
                (operators::INDEX, [value, index]) => return self.index(value, index, false),
                (operators::OPT_INDEX | operators::OPT_SELECT, [value, index]) => {
                    return self.index(value, index, true);
                }
                (operators::NEGATE, [IdedExpr { expr: Expr::Literal(literal), .. }]) => {
                    let value = literal.to_val();
                    if let Some(Ok(negative)) = value.as_negator().map(|v| v.negate()) {
                        return Ok(Node::Const(negative));
                    }
                }
                _ => {}
            }
        }
        self.function(expr, call)
    }

    fn conditional(
        &mut self,
        condition: &'e IdedExpr,
        yes: &'e IdedExpr,
        no: &'e IdedExpr,
    ) -> Result<Node, Unknown> {
        let condition = self.node(condition)?;
        let branches = [yes, no].map(|branch| {
            Ok(match self.node(branch)? {
                Node::Attribute(attribute) => *attribute,
                other => Attribute::of(other),
            })
        });
        let [yes, no] = branches;
        let base = Base::Conditional(condition, Box::new([yes?, no?]));
        Ok(Node::Attribute(Box::new(Attribute { base, steps: Vec::new(), is_test: false })))
    }

    fn index(&mut self, value: &'e IdedExpr, index: &'e IdedExpr, optional: bool) -> Result<Node, Unknown> {
        let mut attribute = self.attribute(value)?;
        let key = match self.node(index)? {
            Node::Const(value) => Key::Const(value),
            Node::Attribute(attribute) => Key::Attribute(*attribute),
            other => Key::Node(other),
        };
        attribute.push(Arc::new(Step { key, optional, is_test: false }));
        Ok(Node::Attribute(Box::new(attribute)))
    }

    fn function(&mut self, expr: &'e IdedExpr, call: &'e CallExpr) -> Result<Node, Unknown> {
        let known = self.checked.calls.get(&expr.id);
        let overload = known.and_then(|known| match known.overloads.as_slice() {
            [one] => Some(*one),
            _ => None,
        });
        let full =
            call.target.as_deref().and_then(qualified).map(|prefix| format!("{prefix}.{}", call.func_name));
        let is_full = |name: &String| {
            known.is_some_and(|known| known.is_qualified) || Declarations::all().function(name).is_some()
        };
        let full = full.filter(is_full);
        let name = full.as_deref().unwrap_or(&call.func_name).trim_start_matches('.');
        let target = call.target.as_deref().filter(|_| full.is_none());
        let args = target.into_iter().chain(&call.args).map(|arg| self.node(arg));
        let args = args.collect::<Result<Vec<_>, _>>()?;
        if let (operators::IN, Some("in_list"), [_, Node::Const(list)]) = (name, overload, args.as_slice())
            && let Some(constant) = constant_set(list.as_ref())
        {
            return Ok(match (constant, args.into_iter().next()) {
                (Some(list), Some(item)) => Node::Member(Box::new(item), list),
                _ => Node::Const(Box::new(CelBool::from(false))),
            });
        }
        if let ("or", None | Some("optional_or_optional"))
        | ("orValue", None | Some("optional_orValue_value")) = (name, overload)
            && args.len() == 2
        {
            let mut args = args.into_iter();
            if let (Some(optional), Some(other)) = (args.next(), args.next()) {
                return Ok(Node::Otherwise(Box::new([optional, other]), name == "orValue"));
            }
            return Err((expr.id, name.to_owned()));
        }
        // What has a constant regular expression is compiled, and called otherwise.
        let is_compiled = matches!(name, "matches" | "find" | "findAll")
            && matches!(args.get(1), Some(Node::Const(regex)) if regex.get_type().kind() == Kind::String);
        let is_eager = args.len() <= 2 && !is_compiled;
        let own = OWN.iter().find(|(own, count, _)| *own == name && *count == args.len());
        let function = match (own, target) {
            (Some((_, _, name)), _) => Function::Own(name),
            (None, None) => Function::Global(name.into()),
            (None, Some(_)) => Function::Member(Box::new(bridge(name, args.len()))),
        };
        let node = Call { price: Price::of(name, overload), function, args, is_eager };
        if let (Function::Global(name), [Node::Const(argument)]) = (&node.function, node.args.as_slice())
            && CONVERSIONS.contains(&&**name)
            && let Some(value) = crate::library::call(name, argument.clone_as_boxed())
        {
            return Ok(Node::Const(value));
        }
        Ok(Node::Call(Box::new(node)))
    }

    fn fold(&mut self, c: &'e ComprehensionExpr) -> Result<Node, Unknown> {
        let (range, initial) = (self.node(&c.iter_range)?, self.node(&c.accu_init)?);
        let second = c.iter_var2.as_deref();
        self.frames.push(Frame { result: &c.accu_var, first: Some(&c.iter_var), second });
        let condition = self.node(&c.loop_cond)?;
        let step = self.step(c)?;
        if let Some(frame) = self.frames.last_mut() {
            (frame.first, frame.second) = (None, None);
        }
        let result = self.node(&c.result)?;
        self.frames.pop();
        Ok(Node::Fold(Box::new(Fold { range, initial, condition, step, result, both: second.is_some() })))
    }

    fn step(&mut self, c: &'e ComprehensionExpr) -> Result<FoldStep, Unknown> {
        let is_result = |expr: &IdedExpr| matches!(&expr.expr, Expr::Ident(name) if *name == c.accu_var);
        let always = matches!(&c.loop_cond.expr, Expr::Literal(LiteralValue::Boolean(b)) if *b.inner());
        let is_hidden = c.accu_var.starts_with('@') && always && is_result(&c.result);
        let (guard, growth) = match call_of(&c.loop_step, operators::CONDITIONAL) {
            Some([guard, growth, otherwise]) if is_result(otherwise) => (Some(guard), growth),
            _ => (None, &c.loop_step),
        };
        let empty_list = matches!(&c.accu_init.expr, Expr::List(list) if list.elements.is_empty());
        let empty_map = matches!(&c.accu_init.expr, Expr::Map(map) if map.entries.is_empty());
        match (call_of(growth, operators::ADD), call_of(growth, INSERT)) {
            (Some([result, list]), _) if is_hidden && empty_list && is_result(result) => {
                let guard = guard.map(|guard| self.node(guard)).transpose()?;
                Ok(FoldStep::Append { guard, list: self.node(list)? })
            }
            (_, Some([result, args @ ..])) if is_hidden && empty_map && is_result(result) => {
                let guard = guard.map(|guard| self.node(guard)).transpose()?;
                let args = args.iter().map(|arg| self.node(arg)).collect::<Result<_, _>>()?;
                Ok(FoldStep::Insert { guard, args })
            }
            _ => Ok(FoldStep::Value(self.node(&c.loop_step)?)),
        }
    }
}

impl Attribute {
    fn of(node: Node) -> Self {
        Self { base: Base::Node(node), steps: Vec::new(), is_test: false }
    }

    fn push(&mut self, step: Arc<Step>) {
        match &mut self.base {
            Base::Conditional(_, branches) => {
                let [yes, no] = &mut **branches;
                yes.push(step.clone());
                no.push(step);
            }
            _ => self.steps.push(step),
        }
    }
}

/// The arguments of a call of an operator.
fn call_of<'e>(expr: &'e IdedExpr, function: &str) -> Option<&'e [IdedExpr]> {
    match &expr.expr {
        Expr::Call(call) if call.func_name == function && call.target.is_none() => Some(&call.args),
        _ => None,
    }
}

/// The type of a name.
fn named_type(expr: &IdedExpr) -> Option<Owned> {
    let context = Context::with_env(env().clone());
    cel::Value::resolve_val(expr, &context).ok().map(|value| value.into_owned())
}

/// A call of a function on `@0`, with the arguments `@1` and so on.
fn bridge(function: &str, count: usize) -> IdedExpr {
    let name = |at: usize| IdedExpr { id: 0, expr: Expr::Ident(argument(at)) };
    let call = CallExpr {
        func_name: function.to_owned(),
        target: Some(Box::new(name(0))),
        args: (1..count).map(name).collect(),
    };
    IdedExpr { id: 0, expr: Expr::Call(call) }
}

/// The name of an argument in a call of a function with a target.
pub(crate) fn argument(at: usize) -> String {
    format!("@{at}")
}

fn list_of(items: Vec<(Node, bool)>) -> Node {
    if !items.iter().all(|(item, optional)| matches!(item, Node::Const(_)) && !optional) {
        return Node::List(items);
    }
    let constants = items.into_iter().filter_map(|(item, _)| match item {
        Node::Const(value) => Some(value),
        _ => None,
    });
    Node::Const(Box::new(List::of(constants.collect())))
}

fn map_of(entries: Vec<(Node, Node, bool)>) -> Node {
    let mut constants: HashMap<CelMapKey<'static>, Owned> = HashMap::with_capacity(entries.len());
    for entry in &entries {
        let (Node::Const(key), Node::Const(value), false) = entry else {
            return Node::Map(Box::new(MapNode { entries, cost: price::MAP }));
        };
        let Ok(key) = CelMapKey::try_from(key.clone_as_boxed()) else {
            return Node::Map(Box::new(MapNode { entries, cost: price::MAP }));
        };
        constants.insert(key, value.clone_as_boxed());
    }
    Node::Const(Box::new(CelMap::from(constants)))
}

/// A constant list in which values are looked up for nothing: `Some(None)` where it is empty, `None` where its items
/// are not all plain ones.
fn constant_set(list: &(dyn Val + 'static)) -> Option<Option<List>> {
    let items = elements(list);
    let plain = |item: &Owned| {
        matches!(item.get_type().kind(), Kind::Boolean | Kind::Double | Kind::Int | Kind::String | Kind::UInt)
    };
    if items.is_empty() {
        return Some(None);
    }
    items.iter().all(plain).then(|| Some(List::of(items)))
}
