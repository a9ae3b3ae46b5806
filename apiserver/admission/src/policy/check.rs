//! Validation of the expressions of policies when they are written.

use super::typing::Environment;
use freehold_machinery::Value;
use freehold_machinery_cel::{OutputType, Program};

/// What an expression has to give.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Gives {
    /// A truth value.
    Truth,
    /// Text, without asking the authorizer.
    Message,
    /// Text, or nothing to say.
    TextOrNull,
    /// Whatever.
    Anything,
    /// A part of an object.
    Object,
    /// A list of operations on an object.
    Patches,
}

impl Gives {
    /// What is wrong about the type of what an expression gives.
    fn complaint(self, ty: &OutputType) -> Option<String> {
        let wanted = match self {
            Self::Truth if !ty.is_bool() => "bool",
            Self::Message if !ty.is_string() => "string",
            Self::TextOrNull if !ty.is_string() && ty.to_string() != "null_type" => {
                "one of [string null_type]"
            }
            Self::Object if ty.to_string() != "Object" => "Object",
            Self::Patches if ty.to_string() != "list(JSONPatch)" => "list(JSONPatch)",
            _ => return None,
        };
        Some(format!("must evaluate to {wanted} but got {ty}"))
    }
}

/// What the expressions of one policy can name, its variables among it.
pub struct Expressions(Environment);

impl Expressions {
    /// The names that expressions of a policy with this specification can use.
    pub fn of(spec: &Value) -> Self {
        let params = spec["paramKind"].is_object().then_some(None);
        Self(Environment::new(None, params).with_variables(&spec["variables"]))
    }

    /// Conditions, which know no variables; `params`: whether there are parameters.
    pub fn of_conditions(params: bool) -> Self {
        Self(Environment::new(None, params.then_some(None)))
    }

    /// Variables can be named, of which there are none yet.
    #[must_use]
    pub fn with_variables(mut self) -> Self {
        self.0.expect_variables();
        self
    }

    /// Adds a variable. It can name those before it.
    pub fn declare(&mut self, name: &str, expression: &str) {
        self.0.declare(name, expression);
    }

    /// What is wrong about an expression.
    pub fn wrong(&self, source: &str, gives: Gives) -> Option<String> {
        let mutation = matches!(gives, Gives::Object | Gives::Patches);
        let compiled = if mutation { Program::mutation(source, &[]) } else { Program::compile(source) };
        let ty = |_| match gives {
            Gives::Message => self.0.clone().without_authorizer().type_of(source, mutation),
            _ => self.0.type_of(source, mutation),
        };
        match compiled.and_then(ty) {
            Ok(ty) => gives.complaint(&ty),
            Err(error) => Some(error.0),
        }
    }
}
