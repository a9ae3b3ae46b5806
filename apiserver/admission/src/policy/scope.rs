//! What expressions can name: `object`, `oldObject`, `request`, `params`, `namespaceObject` and `variables`.

use super::{
    Policy,
    compiled::{Expression, Named},
    matching::{name, operation},
};
use crate::{Attributes, Lookup};
use freehold_machinery::{Map, Value, meta};
use freehold_machinery_cel::{Budget, Computed, EvalError, Variable};
use serde_json::json;

/// Names that are there in every expression.
const NAMES: [&str; 5] = ["object", "oldObject", "request", "params", "namespaceObject"];

/// The values of one evaluation of a policy.
pub(super) struct Scope<'p> {
    known: Vec<(&'static str, Computed)>,
    variables: &'p [Named],
    computed: Vec<(String, Result<Computed, String>)>,
    budget: Budget,
}

impl<'p> Scope<'p> {
    /// A scope for a write and a parameter.
    pub(super) fn new(
        policy: &'p Policy,
        attributes: &Attributes<'_>,
        lookup: &dyn Lookup,
        param: Option<&Value>,
    ) -> Self {
        let of = |value: Option<&Value>| Computed::of(value.unwrap_or(&Value::Null));
        let namespace = namespace(attributes, lookup);
        let values = [
            of(attributes.object()),
            of(attributes.old),
            Computed::of(&request(attributes)),
            of(param),
            of(namespace.as_ref()),
        ];
        Self {
            known: NAMES.into_iter().zip(values).collect(),
            variables: &policy.variables,
            computed: Vec::new(),
            budget: Budget::default(),
        }
    }

    /// Evaluates an expression, and before that the variables that it reads.
    ///
    /// # Errors
    /// What went wrong, in Kubernetes' words.
    pub(super) fn evaluate(&mut self, expression: &Expression) -> Result<Computed, String> {
        let program = expression.program.as_ref().map_err(|error| format!("compilation error: {error}"))?;
        let failed = |why: &str| format!("expression '{}' resulted in error: {why}", expression.source);
        let mut fields = Vec::new();
        for field in program.fields_of("variables") {
            let value = self.variable(field).map_err(|why| failed(&why))?;
            fields.push((field.to_owned(), value));
        }
        let mut scope: Vec<(&str, Variable<'_>)> =
            self.known.iter().map(|(name, value)| (*name, Variable::Computed(value))).collect();
        scope.push(("variables", Variable::Fields(&fields)));
        program.value(&scope, &mut self.budget).map_err(|error| match error {
            EvalError::BudgetSpent => {
                "validation failed due to running out of cost budget, no further validation rules will be run"
                    .to_owned()
            }
            EvalError::CallLimit => failed("operation cancelled: actual cost limit exceeded"),
            EvalError::NoOverload => failed("no such overload"),
            EvalError::Failed(why) => failed(&why),
        })
    }

    /// A variable's value, computed once. One can read only those before it, so that there is no circle.
    fn variable(&mut self, wanted: &str) -> Result<Computed, String> {
        if let Some((_, value)) = self.computed.iter().find(|(name, _)| name == wanted) {
            return value.clone();
        }
        let all = self.variables;
        let Some(at) = all.iter().position(|variable| variable.name == wanted) else {
            return Err(format!("no such key: {wanted}"));
        };
        self.variables = &all[..at];
        let value = self
            .evaluate(&all[at].expression)
            .map_err(|why| format!("composited variable \"{wanted}\" fails to evaluate: {why}"));
        self.variables = all;
        self.computed.push((wanted.to_owned(), value.clone()));
        value
    }
}

/// Whether a write meets all conditions. A condition that is not met counts for more than one that can't be evaluated.
///
/// # Errors
/// What went wrong with the conditions, where none is not met.
pub(super) fn conditions_hold(conditions: &[Named], scope: &mut Scope<'_>) -> Result<bool, String> {
    let mut errors = Vec::new();
    for condition in conditions {
        match scope.evaluate(&condition.expression) {
            Ok(value) if value.as_bool() == Some(false) => return Ok(false),
            Ok(_) => {}
            Err(why) => errors.push(why),
        }
    }
    match errors.len() {
        0 => Ok(true),
        1 => Err(errors.remove(0)),
        _ => Err(format!("[{}]", errors.join(", "))),
    }
}

/// What policies see of the namespace: nothing that its users can't see.
fn namespace(attributes: &Attributes<'_>, lookup: &dyn Lookup) -> Option<Value> {
    if attributes.namespace.is_empty()
        || attributes.ty.group.is_empty() && attributes.ty.plural == "namespaces"
    {
        return None;
    }
    let found = lookup.get(attributes.plane, "", "namespaces", "", attributes.namespace)?;
    let shown = [
        "name",
        "generateName",
        "namespace",
        "labels",
        "annotations",
        "uid",
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "generation",
        "resourceVersion",
        "finalizers",
    ];
    let metadata: Map = shown
        .into_iter()
        .filter_map(|field| Some((field.to_owned(), meta::metadata(&found)?.get(field)?.clone())))
        .collect();
    let mut object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
    for field in ["spec", "status"] {
        if let Some(value) = found.get(field) {
            object[field] = value.clone();
        }
    }
    Some(object)
}

/// `AdmissionRequest`, without the objects.
fn request(attributes: &Attributes<'_>) -> Value {
    let (ty, user) = (attributes.ty, attributes.user);
    let kind = match ty.subresource(attributes.subresource) {
        Some(sub) => json!({"group": sub.kind.group, "version": sub.kind.version, "kind": sub.kind.kind}),
        None => json!({"group": ty.group, "version": ty.version, "kind": ty.kind}),
    };
    let resource = json!({"group": ty.group, "version": ty.version, "resource": ty.plural});
    json!({
        "kind": kind,
        "resource": resource,
        "subResource": attributes.subresource,
        "requestKind": kind,
        "requestResource": resource,
        "requestSubResource": attributes.subresource,
        "name": name(attributes),
        "namespace": attributes.namespace,
        "operation": operation(attributes.verb),
        "userInfo": {"username": user.name, "uid": user.uid, "groups": user.groups, "extra": user.extra},
        "dryRun": attributes.dry_run,
        "options": attributes.options,
    })
}
