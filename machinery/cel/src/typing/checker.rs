//! The checker: the type of each part of an expression, and type errors in cel-go's words.

use crate::escape::escape;

use super::{
    declarations::{Declarations, Overload},
    types::{Fields, Found, Object, Type, more_general, replace},
};
use cel::{
    IdedExpr,
    common::ast::{
        CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedEntryExpr, ListExpr, LiteralValue, SelectExpr,
        StructExpr, operators,
    },
};
use std::collections::HashMap;

/// A field of a `JSONPatch`.
fn patch_field(name: &str) -> Option<Type> {
    match name {
        "op" | "path" | "from" => Some(Type::String),
        "value" => Some(Type::Dyn),
        _ => None,
    }
}

/// What was found out about an expression.
#[derive(Debug, Default)]
pub(crate) struct Checked {
    /// Types by the ids of expressions.
    pub(crate) types: HashMap<u64, Type>,
    /// The overloads that a call may mean, with the function's full name and whether it has a target.
    pub(crate) calls: HashMap<u64, Call>,
    /// The variables that are read.
    pub(crate) variables: Vec<String>,
    /// A type that the checker knows by a name under which no program can have it.
    pub(crate) unusable: Option<String>,
}

/// What a call means.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) function: &'static str,
    pub(crate) overloads: Vec<&'static str>,
    /// The target is part of the function's name.
    pub(crate) is_qualified: bool,
}

impl Checked {
    pub(crate) fn ty(&self, id: u64) -> &Type {
        self.types.get(&id).unwrap_or(&Type::Dyn)
    }
}

/// A complaint: the expression's id, and what.
pub(crate) type Complaint = (u64, String);

pub(crate) struct Checker<'a> {
    variables: &'a [(String, Type)],
    in_mutation: bool,
    locals: Vec<(String, Type)>,
    found: Found,
    errors: Vec<Complaint>,
    out: Checked,
}

/// Checks an expression; `variables` are what it can name.
pub(crate) fn check(
    expr: &IdedExpr,
    variables: &[(String, Type)],
    in_mutation: bool,
) -> (Checked, Vec<Complaint>) {
    let mut checker = Checker {
        variables,
        in_mutation,
        locals: Vec::new(),
        found: Found::default(),
        errors: Vec::new(),
        out: Checked::default(),
    };
    checker.expr(expr);
    let Checker { found, errors, mut out, .. } = checker;
    for ty in out.types.values_mut() {
        *ty = found.resolve(ty, true);
    }
    (out, errors)
}

impl Checker<'_> {
    fn expr(&mut self, expr: &IdedExpr) -> Type {
        let ty = match &expr.expr {
            Expr::Literal(literal) => literal_type(literal),
            Expr::Ident(name) => self.ident(expr.id, name),
            Expr::Select(select) => self.select(expr, select),
            Expr::Call(call) => self.call(expr.id, call),
            Expr::List(list) => self.list(list),
            Expr::Map(map) => self.map(&map.entries),
            Expr::Struct(object) => self.object(expr.id, object),
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
            Expr::Unspecified => Type::Error,
        };
        self.out.types.insert(expr.id, ty.clone());
        ty
    }

    fn complain(&mut self, id: u64, message: String) -> Type {
        self.errors.push((id, message));
        Type::Error
    }

    fn undeclared(&mut self, id: u64, name: &str) -> Type {
        self.complain(id, format!("undeclared reference to '{name}' (in container '')"))
    }

    /// What a name stands for, if anything.
    fn lookup(&mut self, name: &str) -> Option<Type> {
        let name = name.trim_start_matches('.');
        if let Some((_, ty)) = self.locals.iter().rev().find(|(own, _)| own == name) {
            return Some(ty.clone());
        }
        if let Some((_, ty)) = self.variables.iter().find(|(own, _)| own == name) {
            if !self.out.variables.iter().any(|known| known == name) {
                self.out.variables.push(name.to_owned());
            }
            return Some(ty.clone());
        }
        if matches!(name, "timestamp" | "duration") {
            self.out.unusable = Some(name.to_owned());
        }
        let of_mutation = self.in_mutation.then(|| mutation_type(name)).flatten();
        of_mutation.or_else(|| Declarations::all().name(name).cloned())
    }

    fn function(&self, name: &str) -> Option<(&'static str, &'static [Overload])> {
        let name = name.trim_start_matches('.');
        let own = || Declarations::of_mutations().function(name).filter(|_| self.in_mutation);
        Declarations::all().function(name).or_else(own)
    }

    fn ident(&mut self, id: u64, name: &str) -> Type {
        match self.lookup(name) {
            Some(ty) => ty,
            None => self.undeclared(id, name),
        }
    }

    fn select(&mut self, expr: &IdedExpr, select: &SelectExpr) -> Type {
        if let Some(ty) = qualified(expr).and_then(|name| self.lookup(&name)) {
            return ty;
        }
        let ty = self.field(expr.id, &select.operand, &select.field, false);
        let ty = if select.test { Type::Bool } else { ty };
        self.found.resolve(&ty, false)
    }

    fn field(&mut self, id: u64, operand: &IdedExpr, name: &str, optional: bool) -> Type {
        let operand = self.expr(operand);
        let operand = self.found.resolve(&operand, false);
        let inner = operand.unwrapped();
        let target = inner.unwrap_or(&operand).clone();
        let ty = match &target {
            Type::Map(pair) => pair.1.clone(),
            Type::Object(object) => self.declared_field(id, object, name),
            Type::Param(_) => {
                self.found.fits(&Type::Dyn, &target);
                Type::Dyn
            }
            other if other.is_dyn_or_error() => Type::Dyn,
            other => {
                self.complain(id, format!("type '{other}' does not support field selection"));
                Type::Dyn
            }
        };
        if inner.is_some() || optional { Type::optional(ty) } else { ty }
    }

    fn declared_field(&mut self, id: u64, object: &Object, name: &str) -> Type {
        let found = match &object.fields {
            Fields::Hidden => {
                return self.complain(id, format!("unexpected failed resolution of '{}'", object.name));
            }
            Fields::Declared(decl) => {
                let keyword = || decl.field(&escape(name).filter(|escaped| escaped != name)?);
                decl.field(name).or_else(keyword).map(|f| f.ty(&format!("{}.{name}", object.name)))
            }
            Fields::Given(fields) => fields.get(name).cloned(),
            Fields::Free => Some(Type::Dyn),
            Fields::Patch => patch_field(name),
        };
        found.unwrap_or_else(|| self.complain(id, format!("undefined field '{name}'")))
    }

    fn call(&mut self, id: u64, call: &CallExpr) -> Type {
        if call.func_name == operators::OPT_SELECT {
            return self.optional_select(id, call);
        }
        let mut args: Vec<Type> = call.args.iter().map(|arg| self.expr(arg)).collect();
        let Some(target) = call.target.as_deref() else {
            return match self.function(&call.func_name) {
                Some(function) => self.resolve(id, function, args, false, false, call),
                None => self.undeclared(id, &call.func_name),
            };
        };
        let name = qualified(target).map(|prefix| format!("{prefix}.{}", call.func_name));
        if let Some(function) = name.and_then(|name| self.function(&name)) {
            return self.resolve(id, function, args, false, true, call);
        }
        let target = self.expr(target);
        match self.function(&call.func_name) {
            Some(function) => {
                args.insert(0, target);
                self.resolve(id, function, args, true, false, call)
            }
            None => self.undeclared(id, &call.func_name),
        }
    }

    fn optional_select(&mut self, id: u64, call: &CallExpr) -> Type {
        let [operand, field] = call.args.as_slice() else { return Type::Error };
        let Expr::Literal(LiteralValue::String(name)) = &field.expr else { return Type::Error };
        let ty = self.field(id, operand, name.inner(), true);
        let call = Call {
            function: operators::OPT_SELECT,
            overloads: vec!["select_optional_field"],
            is_qualified: false,
        };
        self.out.calls.insert(id, call);
        self.found.resolve(&ty, false)
    }

    fn resolve(
        &mut self,
        id: u64,
        (function, overloads): (&'static str, &'static [Overload]),
        args: Vec<Type>,
        is_member: bool,
        is_qualified: bool,
        call: &CallExpr,
    ) -> Type {
        let mut result: Option<Type> = None;
        let mut matching = Vec::new();
        for overload in overloads.iter().filter(|o| o.is_member == is_member) {
            if matches!(function, operators::LOGICAL_AND | operators::LOGICAL_OR) {
                matching.push(overload.id);
                result = Some(self.logical(&args, &call.args));
                break;
            }
            let fresh: Vec<Type> = (0..overload.params).map(|_| self.found.fresh()).collect();
            let instance = |ty: &Type| replace(ty, &|n| fresh[n].clone());
            let wanted: Vec<Type> = overload.args.iter().map(instance).collect();
            if !self.found.fits_all(&args, &wanted) {
                continue;
            }
            matching.push(overload.id);
            let own = self.found.resolve(&instance(&overload.result), false);
            result = Some(match result {
                None => own,
                Some(known) if known.is_dyn() || known == own => known,
                Some(_) => Type::Dyn,
            });
        }
        match result {
            Some(Type::Error) | None if matching.is_empty() => {
                let shown: Vec<String> =
                    args.iter().map(|a| self.found.resolve(a, true).to_string()).collect();
                let signature = match shown.split_first() {
                    Some((target, rest)) if is_member => format!("{target}.({})", rest.join(", ")),
                    _ => format!("({})", shown.join(", ")),
                };
                let message = format!("found no matching overload for '{function}' applied to '{signature}'");
                self.complain(id, message)
            }
            result => {
                self.out.calls.insert(id, Call { function, overloads: matching, is_qualified });
                result.unwrap_or(Type::Error)
            }
        }
    }

    fn logical(&mut self, types: &[Type], args: &[IdedExpr]) -> Type {
        let mut result = Type::Bool;
        for (ty, arg) in types.iter().zip(args) {
            if !self.found.fits(ty, &Type::Bool) {
                result = self.mismatch(arg.id, &Type::Bool, ty);
            }
        }
        result
    }

    fn mismatch(&mut self, id: u64, wanted: &Type, given: &Type) -> Type {
        self.complain(id, format!("expected type '{wanted}' but found '{given}'"))
    }

    /// The type in an optional element or entry.
    fn unwrap(&mut self, id: u64, ty: Type) -> Type {
        match ty.unwrapped() {
            Some(inner) => inner.clone(),
            None => {
                if !ty.is_dyn() {
                    self.mismatch(id, &Type::optional(ty.clone()), &ty);
                }
                ty
            }
        }
    }

    fn join(&mut self, before: Option<Type>, ty: Type) -> Type {
        let Some(before) = before else { return ty };
        if self.found.fits(&before, &ty) {
            return more_general(&before, &ty);
        }
        // That several types stand in one literal is complained about later, where it is not for formatting.
        Type::Dyn
    }

    fn list(&mut self, list: &ListExpr) -> Type {
        let mut joined = None;
        for (index, element) in list.elements.iter().enumerate() {
            let mut ty = self.expr(element);
            if list.optional_indices.contains(&index) {
                ty = self.unwrap(element.id, ty);
            }
            joined = Some(self.join(joined, ty));
        }
        Type::list(joined.unwrap_or_else(|| self.found.fresh()))
    }

    fn map(&mut self, entries: &[IdedEntryExpr]) -> Type {
        let (mut keys, mut values) = (None, None);
        for entry in entries {
            let EntryExpr::MapEntry(entry) = &entry.expr else { continue };
            let key = self.expr(&entry.key);
            keys = Some(self.join(keys, key));
            let mut value = self.expr(&entry.value);
            if entry.optional {
                value = self.unwrap(entry.value.id, value);
            }
            values = Some(self.join(values, value));
        }
        match (keys, values) {
            (Some(keys), Some(values)) => Type::map(keys, values),
            _ => Type::map(self.found.fresh(), self.found.fresh()),
        }
    }

    fn object(&mut self, id: u64, object: &StructExpr) -> Type {
        let Some(named) = self.lookup(&object.type_name) else {
            return self.undeclared(id, &object.type_name);
        };
        let result = match &named {
            Type::Meta(Some(inner)) => match &**inner {
                Type::Object(_) | Type::Timestamp | Type::Duration | Type::Any => (**inner).clone(),
                other => self.complain(id, format!("'{other}' is not a message type")),
            },
            Type::Error => Type::Error,
            other => self.complain(id, format!("'{other}' is not a type")),
        };
        let is_type = matches!(&named, Type::Meta(_));
        for entry in &object.entries {
            let EntryExpr::StructField(field) = &entry.expr else { continue };
            let mut value = self.expr(&field.value);
            let wanted = match &result {
                // Its own type of these says that there is such a field, and none that fits.
                Type::Object(Object { fields: Fields::Patch, .. }) if patch_field(&field.field).is_none() => {
                    let name = &field.field;
                    let why = format!("expected type of field '{name}' is '' but provided type is '{value}'");
                    self.complain(entry.id, why)
                }
                Type::Object(object) => self.declared_field(entry.id, object, &field.field),
                _ if !is_type => {
                    self.complain(entry.id, format!("unexpected failed resolution of '{}'", object.type_name))
                }
                _ => self.complain(entry.id, format!("undefined field '{}'", field.field)),
            };
            if field.optional {
                value = self.unwrap(field.value.id, value);
            }
            if !self.found.fits(&wanted, &value) {
                let name = &field.field;
                let message =
                    format!("expected type of field '{name}' is '{wanted}' but provided type is '{value}'");
                self.complain(entry.id, message);
            }
        }
        result
    }

    fn comprehension(&mut self, c: &ComprehensionExpr) -> Type {
        let range = self.expr(&c.iter_range);
        let initial = self.expr(&c.accu_init);
        let range = self.found.resolve(&range, false);
        let outer = self.locals.len();
        self.locals.push((c.accu_var.clone(), initial.clone()));
        let (first, second) = match &range {
            Type::List(item) if c.iter_var2.is_some() => (Type::Int, (**item).clone()),
            Type::List(item) => ((**item).clone(), Type::Dyn),
            Type::Map(pair) => (pair.0.clone(), pair.1.clone()),
            Type::Dyn | Type::Any | Type::Error | Type::Param(_) => {
                self.found.fits(&Type::Dyn, &range);
                (Type::Dyn, Type::Dyn)
            }
            other => {
                let message = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.complain(c.iter_range.id, message);
                (Type::Error, Type::Error)
            }
        };
        let inner = self.locals.len();
        self.locals.push((c.iter_var.clone(), first));
        self.locals.extend(c.iter_var2.clone().map(|name| (name, second)));
        let condition = self.expr(&c.loop_cond);
        self.expect(c.loop_cond.id, &Type::Bool, &condition);
        let step = self.expr(&c.loop_step);
        self.expect(c.loop_step.id, &initial, &step);
        self.locals.truncate(inner);
        let result = self.expr(&c.result);
        self.locals.truncate(outer);
        self.found.resolve(&result, false)
    }

    fn expect(&mut self, id: u64, wanted: &Type, given: &Type) {
        if !self.found.fits(wanted, given) {
            self.mismatch(id, wanted, given);
        }
    }
}

fn literal_type(literal: &LiteralValue) -> Type {
    match literal {
        LiteralValue::Boolean(_) => Type::Bool,
        LiteralValue::Bytes(_) => Type::Bytes,
        LiteralValue::Double(_) => Type::Double,
        LiteralValue::Int(_) => Type::Int,
        LiteralValue::Null => Type::Null,
        LiteralValue::String(_) => Type::String,
        LiteralValue::UInt(_) => Type::Uint,
    }
}

/// The type that a name of a mutation's objects stands for.
fn mutation_type(name: &str) -> Option<Type> {
    let fields = match name {
        "JSONPatch" => Fields::Patch,
        _ if name == "Object" || name.starts_with("Object.") => Fields::Free,
        _ => return None,
    };
    Some(Type::Meta(Some(Type::object(name, fields).into())))
}

/// The name that selections from an identifier spell: `a.b.c`.
pub(crate) fn qualified(expr: &IdedExpr) -> Option<String> {
    match &expr.expr {
        Expr::Ident(name) => Some(name.clone()),
        Expr::Select(select) if !select.test => {
            qualified(&select.operand).map(|prefix| format!("{prefix}.{}", select.field))
        }
        _ => None,
    }
}
