//! What must hold of the expressions of policies when they are written.

use super::typing::Environment;
use freehold_machinery::Value;
use freehold_machinery_cel::{OutputType, Program};

/// What an expression has to give.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Gives {
    /// A truth value.
    Truth,
    /// Text.
    Text,
    /// Text, or nothing to say.
    TextOrNull,
    /// Whatever.
    Anything,
    /// A part of an object, or a list of operations on it.
    Mutation,
}

impl Gives {
    /// What is wrong about the type of what an expression gives.
    fn complaint(self, ty: &OutputType) -> Option<String> {
        let wanted = match self {
            _ if ty.is_dyn() => return None,
            Self::Truth if !ty.is_bool() => "bool",
            Self::Text if !ty.is_string() => "string",
            Self::TextOrNull if !ty.is_string() && ty.to_string() != "null_type" => {
                "one of [string null_type]"
            }
            _ => return None,
        };
        Some(format!("must evaluate to {wanted} but got {ty}"))
    }
}

/// What the expressions of one policy can name, its variables among it.
pub struct Expressions(Environment);

impl Expressions {
    /// Those of a policy of that specification.
    pub fn of(spec: &Value) -> Self {
        let params = spec["paramKind"].is_object().then_some(None);
        Self(Environment::new(None, params).with_variables(&spec["variables"]))
    }

    /// Conditions, which know no variables; `params`: whether there are parameters.
    pub fn of_conditions(params: bool) -> Self {
        Self(Environment::new(None, params.then_some(None)))
    }

    /// What is wrong about an expression.
    pub fn wrong(&self, source: &str, gives: Gives) -> Option<String> {
        let mutation = gives == Gives::Mutation;
        let compiled = if mutation { Program::compile_mutation(source) } else { Program::compile(source) };
        match compiled.and_then(|_| self.0.type_of(source, mutation)) {
            Ok(ty) => gives.complaint(&ty),
            Err(error) => Some(error.0),
        }
    }
}
