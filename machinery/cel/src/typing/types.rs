//! The types of the checker, and which fits which: the rules of cel-go's `checker/types.go`.

use super::decl::Decl;
use std::{collections::BTreeMap, fmt, sync::Arc};

/// A type of an expression.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Type {
    /// Anything, known when the expression runs.
    Dyn,
    /// `google.protobuf.Any`, which is as good as [`Dyn`](Self::Dyn).
    Any,
    /// The type of an expression that was reported as wrong already.
    Error,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Duration,
    Timestamp,
    List(Arc<Type>),
    Map(Arc<(Type, Type)>),
    /// A type as a value.
    Meta(Option<Arc<Type>>),
    /// A type that is yet to be found out.
    Param(usize),
    /// A type of a library: `net.IP`, `optional_type(int)`.
    Opaque(Arc<str>, Arc<[Type]>),
    /// An object with declared fields.
    Object(Object),
}

/// An object's type. Two are the same if their names are.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    pub(crate) name: Arc<str>,
    pub(crate) fields: Fields,
}

/// Which fields an object has.
#[derive(Clone, Debug)]
pub(crate) enum Fields {
    /// None that could be selected: the types of libraries.
    Hidden,
    /// The fields of a schema.
    Declared(Arc<Decl>),
    /// These.
    Given(Arc<BTreeMap<Box<str>, Type>>),
    /// Any, each an object or a value of which nothing is known (`Object` of mutations).
    Free,
    /// The fields of a `JSONPatch`.
    Patch,
}

impl PartialEq for Object {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Type {
    pub(crate) fn list(item: Self) -> Self {
        Self::List(Arc::new(item))
    }

    pub(crate) fn map(key: Self, value: Self) -> Self {
        Self::Map(Arc::new((key, value)))
    }

    pub(crate) fn optional(inner: Self) -> Self {
        Self::Opaque("optional_type".into(), [inner].into())
    }

    pub(crate) fn object(name: &str, fields: Fields) -> Self {
        Self::Object(Object { name: name.into(), fields })
    }

    pub(crate) fn is_dyn(&self) -> bool {
        matches!(self, Self::Dyn | Self::Any)
    }

    pub(crate) fn is_dyn_or_error(&self) -> bool {
        self.is_dyn() || *self == Self::Error
    }

    /// What is in an optional.
    pub(crate) fn unwrapped(&self) -> Option<&Self> {
        match self {
            Self::Opaque(name, inner) if &**name == "optional_type" => inner.first(),
            _ => None,
        }
    }

    /// Whether its values always have the same size.
    pub(crate) fn is_scalar(&self) -> bool {
        match self {
            Self::Bool | Self::Double | Self::Duration | Self::Int | Self::Timestamp | Self::Uint => true,
            other => other.unwrapped().is_some_and(Self::is_scalar),
        }
    }

    fn is_nullable(&self) -> bool {
        matches!(
            self,
            Self::Opaque(..) | Self::Object(_) | Self::Any | Self::Duration | Self::Timestamp | Self::Null
        )
    }
}

/// As errors show it.
impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dyn => "dyn",
            Self::Any => "any",
            Self::Error => "!error!",
            Self::Null => "null",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Double => "double",
            Self::String => "string",
            Self::Bytes => "bytes",
            Self::Duration => "duration",
            Self::Timestamp => "timestamp",
            Self::List(item) => return write!(f, "list({item})"),
            Self::Map(pair) => return write!(f, "map({}, {})", pair.0, pair.1),
            Self::Meta(None) => "type",
            Self::Meta(Some(inner)) => return write!(f, "type({inner})"),
            Self::Param(number) => return write!(f, "_var{number}"),
            Self::Object(object) => &object.name,
            Self::Opaque(name, params) if params.is_empty() => name,
            Self::Opaque(name, params) => {
                let params: Vec<String> = params.iter().map(ToString::to_string).collect();
                return write!(f, "{name}({})", params.join(", "));
            }
        })
    }
}

/// What was found out about type parameters.
#[derive(Clone, Debug, Default)]
pub(crate) struct Found(Vec<Option<Type>>);

impl Found {
    /// A type parameter of which nothing is known yet.
    pub(crate) fn fresh(&mut self) -> Type {
        self.0.push(None);
        Type::Param(self.0.len() - 1)
    }

    fn of(&self, number: usize) -> Option<&Type> {
        self.0.get(number)?.as_ref()
    }

    /// Whether values of the first types can stand where the second are wanted. What that says about parameters is kept
    /// if they can.
    pub(crate) fn fits_all(&mut self, given: &[Type], wanted: &[Type]) -> bool {
        let before = self.0.clone();
        let fits = given.len() == wanted.len() && given.iter().zip(wanted).all(|(a, b)| self.assign(a, b));
        if !fits {
            self.0 = before;
        }
        fits
    }

    /// [`fits_all`](Self::fits_all) of one type.
    pub(crate) fn fits(&mut self, given: &Type, wanted: &Type) -> bool {
        self.fits_all(std::slice::from_ref(given), std::slice::from_ref(wanted))
    }

    fn assign(&mut self, a: &Type, b: &Type) -> bool {
        if let Type::Param(number) = b {
            match self.stands_for(a, *number) {
                (true, _) => return true,
                (false, true) => return false,
                (false, false) => {}
            }
        }
        if let Type::Param(number) = a {
            return self.stands_for(b, *number).0;
        }
        if a.is_dyn_or_error() || b.is_dyn_or_error() {
            return true;
        }
        match (a, b) {
            (Type::Null, other) | (other, Type::Null) => other.is_nullable(),
            (Type::List(a), Type::List(b)) => self.assign(a, b),
            (Type::Map(a), Type::Map(b)) => self.assign(&a.0, &b.0) && self.assign(&a.1, &b.1),
            (Type::Meta(_), Type::Meta(_)) => true,
            (Type::Opaque(a, of_a), Type::Opaque(b, of_b)) => {
                a == b && of_a.len() == of_b.len() && of_a.iter().zip(&**of_b).all(|(a, b)| self.assign(a, b))
            }
            _ => a == b,
        }
    }

    /// Whether a parameter may stand for a type, and whether it stood for one already.
    fn stands_for(&mut self, ty: &Type, number: usize) -> (bool, bool) {
        if *ty == Type::Param(number) {
            return (true, true);
        }
        if let Some(known) = self.of(number).cloned() {
            if *ty == known {
                return (true, true);
            }
            if self.assign(ty, &known) {
                let general = more_general(ty, &known);
                if self.is_free_of(number, &general) {
                    self.0[number] = Some(general);
                }
                return (true, true);
            }
            return (false, true);
        }
        if self.is_free_of(number, ty) {
            self.0[number] = Some(ty.clone());
            return (true, false);
        }
        (false, false)
    }

    /// Whether a parameter does not occur in a type.
    fn is_free_of(&self, number: usize, within: &Type) -> bool {
        match within {
            Type::Param(other) if *other == number => false,
            Type::Param(other) => self.of(*other).is_none_or(|known| self.is_free_of(number, known)),
            Type::List(item) => self.is_free_of(number, item),
            Type::Map(pair) => self.is_free_of(number, &pair.0) && self.is_free_of(number, &pair.1),
            Type::Meta(Some(inner)) => self.is_free_of(number, inner),
            Type::Opaque(_, inner) => inner.iter().all(|t| self.is_free_of(number, t)),
            _ => true,
        }
    }

    /// A type with what is known about its parameters; with `done` the others become [`Type::Dyn`].
    pub(crate) fn resolve(&self, ty: &Type, done: bool) -> Type {
        replace(ty, &|number| match self.of(number) {
            Some(known) => self.resolve(known, done),
            None if done => Type::Dyn,
            None => Type::Param(number),
        })
    }
}

/// A type with its parameters replaced.
pub(crate) fn replace(ty: &Type, with: &impl Fn(usize) -> Type) -> Type {
    match ty {
        Type::Param(number) => with(*number),
        Type::List(item) => Type::list(replace(item, with)),
        Type::Map(pair) => Type::map(replace(&pair.0, with), replace(&pair.1, with)),
        Type::Meta(Some(inner)) => Type::Meta(Some(Arc::new(replace(inner, with)))),
        Type::Opaque(name, inner) => {
            Type::Opaque(name.clone(), inner.iter().map(|t| replace(t, with)).collect())
        }
        other => other.clone(),
    }
}

/// The more general of two types that fit.
pub(crate) fn more_general(a: &Type, b: &Type) -> Type {
    if is_equal_or_wider(a, b) { a.clone() } else { b.clone() }
}

fn is_equal_or_wider(a: &Type, b: &Type) -> bool {
    if a.is_dyn() || matches!(a, Type::Param(_)) {
        return true;
    }
    match (a, b) {
        (Type::List(a), Type::List(b)) => is_equal_or_wider(a, b),
        (Type::Map(a), Type::Map(b)) => is_equal_or_wider(&a.0, &b.0) && is_equal_or_wider(&a.1, &b.1),
        (Type::Meta(_), Type::Meta(_)) => true,
        (Type::Opaque(a, of_a), Type::Opaque(b, of_b)) => {
            a == b
                && of_a.len() == of_b.len()
                && of_a.iter().zip(&**of_b).all(|(a, b)| is_equal_or_wider(a, b))
        }
        _ => a == b,
    }
}
