//! Declarations of Kubernetes' environment: functions with their overloads, and names of types.
//!
//! The table is written by `tools/kubernetes/cel` from Kubernetes' own libraries, and read once.

use super::types::{Fields, Type};
use std::{
    collections::{HashMap, HashSet},
    sync::LazyLock,
};

static TABLE: &str = include_str!("declarations.txt");
/// Functions that only mutations of admission policies have, in the format of [`TABLE`].
static MUTATIONS: &str = "function\tjsonpatch.escapeKey\tstring_jsonpatch_escapeKey_string\t(string)\tstring";

/// One signature of a function.
#[derive(Debug)]
pub(crate) struct Overload {
    pub(crate) id: &'static str,
    pub(crate) is_member: bool,
    pub(crate) args: Vec<Type>,
    pub(crate) result: Type,
    /// How many type parameters the signature has.
    pub(crate) params: usize,
}

/// The functions and names of an environment.
#[derive(Debug, Default)]
pub(crate) struct Declarations {
    functions: HashMap<&'static str, Vec<Overload>>,
    /// The last parts of functions' names.
    short: HashSet<&'static str>,
    names: HashMap<&'static str, Type>,
}

impl Declarations {
    /// Those that every expression sees.
    pub(crate) fn all() -> &'static Self {
        static ALL: LazyLock<Declarations> = LazyLock::new(|| Declarations::read(TABLE));
        &ALL
    }

    /// Those that the mutations of admission policies see besides.
    pub(crate) fn of_mutations() -> &'static Self {
        static OWN: LazyLock<Declarations> = LazyLock::new(|| Declarations::read(MUTATIONS));
        &OWN
    }

    pub(crate) fn function(&self, name: &str) -> Option<(&'static str, &[Overload])> {
        self.functions.get_key_value(name).map(|(name, overloads)| (*name, overloads.as_slice()))
    }

    pub(crate) fn name(&self, name: &str) -> Option<&Type> {
        self.names.get(name)
    }

    /// Whether a function has this name, or one of this name in a namespace (`of` for `optional.of`).
    pub(crate) fn is_function(&self, name: &str) -> bool {
        self.functions.contains_key(name) || self.short.contains(name)
    }

    /// The names of all functions.
    #[cfg(test)]
    pub(crate) fn functions(&self) -> impl Iterator<Item = (&'static str, &[Overload])> {
        self.functions.iter().map(|(name, overloads)| (*name, overloads.as_slice()))
    }

    fn read(table: &'static str) -> Self {
        let mut out = Self::default();
        for line in table.lines() {
            let fields: Vec<&'static str> = line.split('\t').collect();
            match fields[..] {
                ["name", name, ty] => {
                    out.names.insert(name, Reader::new(ty).ty());
                }
                [style, function, id, args, result] => {
                    let mut reader = Reader::new(args);
                    let args = reader.list();
                    reader.rest = result;
                    let result = reader.ty();
                    let is_member = style == "member";
                    let overload = Overload { id, is_member, args, result, params: reader.params.len() };
                    out.short.extend(function.rsplit_once('.').map(|(_, last)| last));
                    out.functions.entry(function).or_default().push(overload);
                }
                _ => {}
            }
        }
        out
    }
}

struct Reader {
    rest: &'static str,
    /// Type parameters, by the place of their letter.
    params: Vec<&'static str>,
}

impl Reader {
    fn new(text: &'static str) -> Self {
        Self { rest: text, params: Vec::new() }
    }

    /// `(int, list(?A))`.
    fn list(&mut self) -> Vec<Type> {
        let mut out = Vec::new();
        self.rest = self.rest.trim_start_matches('(');
        while !self.rest.is_empty() && !self.rest.starts_with(')') {
            out.push(self.ty());
            self.rest = self.rest.trim_start_matches([',', ' ']);
        }
        self.rest = self.rest.strip_prefix(')').unwrap_or(self.rest);
        out
    }

    fn ty(&mut self) -> Type {
        let end = self.rest.find(['(', ')', ',']).unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        self.rest = rest;
        let mut inner = if rest.starts_with('(') { self.list() } else { Vec::new() };
        match name {
            "dyn" => Type::Dyn,
            "any" => Type::Any,
            "null" => Type::Null,
            "bool" => Type::Bool,
            "int" => Type::Int,
            "uint" => Type::Uint,
            "double" => Type::Double,
            "string" => Type::String,
            "bytes" => Type::Bytes,
            "duration" => Type::Duration,
            "timestamp" => Type::Timestamp,
            "list" => Type::list(inner.pop().unwrap_or(Type::Dyn)),
            "map" => {
                let value = inner.pop().unwrap_or(Type::Dyn);
                Type::map(inner.pop().unwrap_or(Type::Dyn), value)
            }
            "type" => Type::Meta(inner.pop().map(Into::into)),
            _ => self.named(name, inner),
        }
    }

    fn named(&mut self, name: &'static str, inner: Vec<Type>) -> Type {
        if let Some(param) = name.strip_prefix('?') {
            let known = self.params.iter().position(|p| *p == param);
            return Type::Param(known.unwrap_or_else(|| {
                self.params.push(param);
                self.params.len() - 1
            }));
        }
        match name.strip_prefix('.') {
            Some(object) => Type::object(object, Fields::Hidden),
            None => Type::Opaque(name.into(), inner.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_read_as_they_are_written() {
        let (_, overloads) = Declarations::all().function("_[_]").unwrap();
        let shown: Vec<String> = overloads
            .iter()
            .map(|o| {
                format!(
                    "{}({:?}) {}",
                    o.id,
                    o.args.iter().map(ToString::to_string).collect::<Vec<_>>(),
                    o.result
                )
            })
            .collect();
        assert_eq!(shown[0], r#"index_list(["list(_var0)", "int"]) _var0"#);
        assert_eq!(shown[1], r#"index_map(["map(_var0, _var1)", "_var0"]) _var1"#);
        assert_eq!(Declarations::all().name("net.IP").unwrap().to_string(), "type(net.IP)");
    }
}
