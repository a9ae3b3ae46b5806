//! Upper bound of an expression's cost before it runs: the estimates of cel-go's `checker/cost.go`, with the sizes that
//! a schema allows. A rule that could cost too much is refused with its CRD.

mod calls;
mod range;

use super::{
    checker::{Checked, qualified},
    decl::{Decl, DeclKind},
    types::Type,
};
use cel::{
    IdedExpr,
    common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue, MapExpr, SelectExpr},
};
use range::Range;
use std::{collections::HashMap, sync::Arc};

/// What making a list costs.
const LIST: u64 = 10;
/// What making a map costs.
const MAP: u64 = 30;
/// What making an object costs.
const OBJECT: u64 = 40;

/// The most that an expression can cost, in cel-go's units; `root` is the schema of its variables.
pub(crate) fn estimate(expr: &IdedExpr, checked: &Checked, root: Option<&Arc<Decl>>) -> u64 {
    let mut coster = Coster {
        checked,
        root,
        paths: HashMap::new(),
        locals: Vec::new(),
        sizes: HashMap::new(),
        entries: HashMap::new(),
    };
    coster.cost(expr).max
}

/// How large the keys and values of a list or map are.
#[derive(Clone, Copy)]
struct Entry {
    is_list: bool,
    key: Range,
    value: Range,
}

impl Entry {
    fn union(a: Option<Self>, b: Option<Self>) -> Option<Self> {
        let (a, b) = (a?, b?);
        Some(Self { is_list: a.is_list, key: a.key.union(b.key), value: a.value.union(b.value) })
    }
}

/// What is known of a variable that the expression itself binds.
#[derive(Clone, Default)]
struct Local {
    path: Vec<String>,
    size: Option<Range>,
    entry: Option<Entry>,
}

struct Coster<'a> {
    checked: &'a Checked,
    root: Option<&'a Arc<Decl>>,
    /// Where in the schema the value of an expression stands.
    paths: HashMap<u64, Vec<String>>,
    locals: Vec<(String, Local)>,
    sizes: HashMap<u64, Range>,
    entries: HashMap<u64, Entry>,
}

impl Coster<'_> {
    fn cost(&mut self, expr: &IdedExpr) -> Range {
        match &expr.expr {
            Expr::Literal(_) | Expr::Unspecified => Range::fixed(0),
            Expr::Ident(name) => {
                let path = match self.local(name) {
                    Some(local) => local.path.clone(),
                    None => vec![name.trim_start_matches('.').to_owned()],
                };
                self.paths.insert(expr.id, path);
                Range::fixed(1)
            }
            Expr::Select(select) => self.select(expr, select),
            Expr::Call(call) => self.call(expr, call),
            Expr::List(list) => {
                let mut item = Range { min: if list.elements.is_empty() { 0 } else { u64::MAX }, max: 0 };
                let mut sum = Range::fixed(LIST);
                for element in &list.elements {
                    sum = sum.add(self.cost(element));
                    item = item.union(self.size_or_unknown(element));
                }
                self.entries.insert(expr.id, Entry { is_list: true, key: Range::fixed(1), value: item });
                sum
            }
            Expr::Map(map) => self.map(expr.id, map),
            Expr::Struct(object) => object.entries.iter().fold(Range::fixed(OBJECT), |sum, entry| {
                let EntryExpr::StructField(field) = &entry.expr else { return sum };
                sum.add(self.cost(&field.value))
            }),
            Expr::Comprehension(comprehension) if is_bind(comprehension) => self.bind(expr.id, comprehension),
            Expr::Comprehension(comprehension) => self.comprehension(expr.id, comprehension),
        }
    }

    fn local(&self, name: &str) -> Option<&Local> {
        self.locals.iter().rev().find(|(own, _)| own == name).map(|(_, local)| local)
    }

    fn select(&mut self, expr: &IdedExpr, select: &SelectExpr) -> Range {
        let id = expr.id;
        // The name of a type: its operand was not looked at.
        if let (Type::Meta(_), Some(name)) = (self.checked.ty(id), qualified(expr)) {
            self.paths.insert(id, vec![name]);
            return Range::fixed(1);
        }
        let mut sum = self.cost(&select.operand);
        if select.test {
            return sum;
        }
        let target = self.checked.ty(select.operand.id);
        if matches!(target, Type::Map(_) | Type::Object(_) | Type::Param(_)) {
            sum = sum.add(Range::fixed(1));
        }
        let mut path = self.path(&select.operand);
        path.push(select.field.clone());
        self.paths.insert(id, path);
        sum
    }

    fn map(&mut self, id: u64, map: &MapExpr) -> Range {
        let empty = Range { min: if map.entries.is_empty() { 0 } else { u64::MAX }, max: 0 };
        let (mut key, mut value, mut sum) = (empty, empty, Range::fixed(MAP));
        for entry in &map.entries {
            let EntryExpr::MapEntry(entry) = &entry.expr else { continue };
            sum = sum.add(self.cost(&entry.key)).add(self.cost(&entry.value));
            key = key.union(self.size_or_unknown(&entry.key));
            value = value.union(self.size_or_unknown(&entry.value));
        }
        self.entries.insert(id, Entry { is_list: false, key, value });
        sum
    }

    fn bind(&mut self, id: u64, c: &ComprehensionExpr) -> Range {
        let sum = self.cost(&c.iter_range).add(self.cost(&c.accu_init));
        let local = self.local_of(&c.accu_init);
        self.locals.push((c.accu_var.clone(), local));
        let sum = sum.add(self.cost(&c.result));
        self.locals.pop();
        self.copy_sizes(id, &c.result);
        sum
    }

    fn comprehension(&mut self, id: u64, c: &ComprehensionExpr) -> Range {
        let mut sum = self.cost(&c.iter_range).add(self.cost(&c.accu_init));
        let accumulator = self.local_of(&c.accu_init);
        self.locals.push((c.accu_var.clone(), accumulator));
        let (first, second) = self.iterated(&c.iter_range, c.iter_var2.is_some());
        self.locals.push((c.iter_var.clone(), first));
        self.locals.extend(c.iter_var2.clone().map(|name| (name, second)));
        let round = self.cost(&c.loop_cond).add(self.cost(&c.loop_step));
        self.locals.pop();
        if c.iter_var2.is_some() {
            self.locals.pop();
        }
        sum = sum.add(self.cost(&c.result));
        self.locals.pop();
        let rounds = self.size_or_unknown(&c.iter_range);
        sum = sum.add(rounds.multiply(round));
        match &c.accu_init.expr {
            Expr::Literal(_) => self.set_size(id, self.size(&c.accu_init)),
            Expr::List(_) | Expr::Map(_) => {
                self.set_size(id, Some(rounds));
                if let Some(entry) = self.entry(&c.loop_step) {
                    self.entries.insert(id, entry);
                }
            }
            _ => {}
        }
        sum
    }

    fn local_of(&self, expr: &IdedExpr) -> Local {
        Local { path: self.path(expr), size: self.size(expr), entry: self.entry(expr) }
    }

    /// What the variables of a comprehension stand for.
    fn iterated(&self, range: &IdedExpr, both: bool) -> (Local, Local) {
        let entry = self.entry(range);
        let is_list = match entry {
            Some(entry) => entry.is_list,
            None => matches!(self.checked.ty(range.id), Type::List(_)),
        };
        let local = |step: &str, size: Option<Range>| {
            let mut path = self.path(range);
            path.push(step.to_owned());
            Local { path, size, entry: None }
        };
        let (keys, values) = (entry.map(|e| e.key), entry.map(|e| e.value));
        match (both, is_list) {
            (false, true) => (local("@items", values), Local::default()),
            (false, false) => (local("@keys", keys), Local::default()),
            (true, true) => (local("@indices", keys), local("@items", values)),
            (true, false) => (local("@keys", keys), local("@values", values)),
        }
    }

    fn path(&self, expr: &IdedExpr) -> Vec<String> {
        if let Expr::Ident(name) = &expr.expr
            && let Some(local) = self.local(name)
        {
            return local.path.clone();
        }
        self.paths.get(&expr.id).cloned().unwrap_or_default()
    }

    fn set_size(&mut self, id: u64, size: Option<Range>) {
        if let Some(size) = size {
            self.sizes.insert(id, size);
        }
    }

    fn copy_sizes(&mut self, id: u64, from: &IdedExpr) {
        self.set_size(id, self.size(from));
        if let Some(entry) = self.entry(from) {
            self.entries.insert(id, entry);
        }
    }

    fn size_or_unknown(&self, expr: &IdedExpr) -> Range {
        self.size(expr).unwrap_or(Range::UNKNOWN)
    }

    fn size(&self, expr: &IdedExpr) -> Option<Range> {
        if let Some(size) = self.sizes.get(&expr.id) {
            return Some(*size);
        }
        let own = match &expr.expr {
            Expr::Literal(LiteralValue::String(text)) => Some(text.inner().chars().count()),
            Expr::Literal(LiteralValue::Bytes(bytes)) => Some(bytes.inner().len()),
            Expr::Literal(_) => Some(1),
            Expr::List(list) => Some(list.elements.len()),
            Expr::Map(map) => Some(map.entries.len()),
            _ => None,
        };
        if let Some(own) = own {
            return Some(Range::fixed(own as u64));
        }
        if let Some(size) = self.declared(&self.path(expr)) {
            return Some(size);
        }
        if self.checked.ty(expr.id).is_scalar() {
            return Some(Range::fixed(1));
        }
        match &expr.expr {
            Expr::Ident(name) => self.local(name)?.size,
            _ => None,
        }
    }

    /// The size that the schema allows at a path. The first step is the variable.
    fn declared(&self, path: &[String]) -> Option<Range> {
        let (_, steps) = path.split_first()?;
        let mut node = self.root?;
        for (index, step) in steps.iter().enumerate() {
            node = match step.as_str() {
                "@items" | "@values" => node.element()?,
                "@keys" if matches!(node.kind, DeclKind::Map(_)) => {
                    // Keys are strings of which Kubernetes knows no size, and have no parts.
                    return (index + 1 == steps.len()).then_some(Range::fixed(0));
                }
                field => node.field(field)?,
            };
        }
        Some(Range { min: 0, max: u64::try_from(node.max_elements).unwrap_or(0) })
    }

    fn entry(&self, expr: &IdedExpr) -> Option<Entry> {
        if let Some(entry) = self.entries.get(&expr.id) {
            return Some(*entry);
        }
        match &expr.expr {
            Expr::Ident(name) => self.local(name)?.entry,
            _ => None,
        }
    }

    fn call(&mut self, expr: &IdedExpr, call: &CallExpr) -> Range {
        if call.func_name == "dyn"
            && let [arg] = call.args.as_slice()
        {
            let cost = self.cost(arg);
            self.copy_sizes(expr.id, arg);
            return cost.add(Range::fixed(1));
        }
        let costs: Vec<Range> = call.args.iter().map(|arg| self.cost(arg)).collect();
        let Some(known) = self.checked.calls.get(&expr.id) else { return Range::fixed(0) };
        let target = call.target.as_deref().filter(|_| !known.is_qualified);
        let own = target.map_or(Range::fixed(0), |target| self.cost(target));
        let (function, overloads) = (known.function, known.overloads.clone());
        let mut cost = Range { min: u64::MAX, max: 0 };
        let mut size: Option<Range> = None;
        for overload in overloads {
            let (part, result) = self.function(expr.id, function, overload, target, &call.args, &costs);
            cost = cost.union(part);
            size = match (size, result) {
                (Some(size), Some(result)) => Some(size.union(result)),
                (size, result) => size.or(result),
            };
            if let ("index_list" | "index_map", Some(first)) = (overload, call.args.first()) {
                size = self.entry(first).map(|entry| entry.value);
                let mut path = self.path(first);
                path.push(if overload == "index_list" { "@items" } else { "@values" }.to_owned());
                self.paths.insert(expr.id, path);
            }
            size = size.or_else(|| self.size(expr));
        }
        self.set_size(expr.id, size);
        own.add(cost)
    }
}

/// Whether a comprehension only names a value.
fn is_bind(c: &ComprehensionExpr) -> bool {
    let is_empty = matches!(&c.iter_range.expr, Expr::List(list) if list.elements.is_empty());
    let never = matches!(&c.loop_cond.expr, Expr::Literal(LiteralValue::Boolean(b)) if !*b.inner());
    is_empty && never && c.accu_var != "__result__"
}
