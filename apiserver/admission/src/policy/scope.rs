//! The variables of expressions: `object`, `oldObject`, `request`, `params`, `namespaceObject` and `variables`.

use super::compiled::{Expression, Named};
use crate::{
    Attributes, Lookup, Seen,
    matching::{name, operation},
};
use freehold_machinery::{Map, ResourceType, Value, meta};
use freehold_machinery_cel::{Authorizer, Budget, Check, Computed, EvalError, Variable};
use serde_json::json;
use std::{
    cell::{Cell, OnceCell, RefCell},
    collections::HashMap,
};

/// Names that are there in every expression.
const NAMES: [&str; 6] = ["object", "oldObject", "request", "params", "namespaceObject", AUTHORIZER];
/// Its value is not one of JSON.
const AUTHORIZER: &str = "authorizer";

/// Levels of expressions that are evaluated for each other: variables that read variables do so recursively.
const MAX_LEVELS: usize = 400;

/// Which of the names some expressions read: what none reads is not made.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Names([bool; NAMES.len()]);

impl Names {
    /// Whether one of those is read that are about the plane, and not about the write.
    pub(crate) fn read_plane(self) -> bool {
        let of_plane = |name| ["params", "namespaceObject", AUTHORIZER].contains(&name);
        NAMES.into_iter().zip(self.0).any(|(name, used)| used && of_plane(name))
    }

    pub(crate) fn of<'e>(expressions: impl IntoIterator<Item = &'e Expression>) -> Self {
        let mut names = Self::default();
        for program in expressions.into_iter().filter_map(|expression| expression.program.as_ref().ok()) {
            for (used, name) in names.0.iter_mut().zip(NAMES) {
                *used |= program.uses(name);
            }
        }
        names
    }
}

/// The values of one evaluation of a policy.
pub(crate) struct Scope<'p> {
    known: Vec<(&'static str, Computed)>,
    authorizer: Option<Authorizer>,
    variables: &'p [Named],
    /// Where in `variables` each is.
    places: OnceCell<HashMap<&'p str, usize>>,
    /// What was computed of them, by place.
    computed: RefCell<HashMap<usize, Result<Computed, String>>>,
    /// Levels of the expressions that are being evaluated, each for the one before.
    levels: Cell<usize>,
    budget: Budget,
    /// By how much budgets are divided.
    share: u64,
}

impl<'p> Scope<'p> {
    /// A scope for a write and a parameter.
    pub(crate) fn new(
        (variables, names): (&'p [Named], Names),
        attributes: &Attributes<'_>,
        seen: &Seen<'_>,
        lookup: &dyn Lookup,
        param: Option<&Value>,
    ) -> Self {
        let of = |value: Option<&Value>| Computed::of(value.unwrap_or(&Value::Null));
        let value = |name: &str| match name {
            "object" => of(seen.object),
            "oldObject" => of(seen.old),
            "request" => Computed::of(&request(attributes, seen.ty)),
            "params" => of(param),
            _ => of(namespace(attributes, lookup).as_ref()),
        };
        let used = NAMES.into_iter().zip(names.0).filter(|(name, used)| *used && *name != AUTHORIZER);
        let asks = names.0[NAMES.len() - 1];
        Self {
            authorizer: asks.then(|| authorizer(attributes, seen, lookup)).flatten(),
            known: used.map(|(name, _)| (name, value(name))).collect(),
            variables,
            places: OnceCell::new(),
            computed: RefCell::default(),
            levels: Cell::new(0),
            budget: Budget::default().divided(lookup.budget_share()),
            share: lookup.budget_share(),
        }
    }

    /// What comes next may cost that much together.
    pub(crate) fn spend(&mut self, budget: Budget) {
        self.budget = budget.divided(self.share);
    }

    /// Evaluates an expression, and the variables that it comes to read.
    ///
    /// # Errors
    /// What went wrong, in Kubernetes' words.
    pub(crate) fn evaluate(&self, expression: &Expression) -> Result<Computed, String> {
        self.evaluate_among(expression, self.variables).map_err(|failure| match failure {
            Failure::Whole(why) => why,
            Failure::Own(why) => format!("expression '{}' resulted in error: {why}", expression.source),
        })
    }

    fn evaluate_among(&self, expression: &Expression, variables: &[Named]) -> Result<Computed, Failure> {
        let program = expression.program.as_ref();
        let program = program.map_err(|error| Failure::Whole(format!("compilation error: {error}")))?;
        let levels = self.levels.get();
        if levels + program.levels() > MAX_LEVELS {
            let why = format!("variables read each other through more than {MAX_LEVELS} levels");
            return Err(Failure::Whole(why));
        }
        let mut scope: Vec<(&str, Variable<'_>)> =
            self.known.iter().map(|(name, value)| (*name, Variable::Computed(value))).collect();
        let fields = |name: &str| self.variable(name, variables);
        scope.push(("variables", Variable::Lazy(&fields)));
        scope.extend(self.authorizer.as_ref().map(|own| (AUTHORIZER, Variable::Authorizer(own))));
        self.levels.set(levels + program.levels());
        let value = program.value(&scope, &self.budget);
        self.levels.set(levels);
        value.map_err(|error| match error {
            EvalError::BudgetSpent => Failure::Whole(
                "validation failed due to running out of cost budget, no further validation rules will be run"
                    .to_owned(),
            ),
            EvalError::CallLimit => Failure::Own("operation cancelled: actual cost limit exceeded".to_owned()),
            EvalError::NoOverload => Failure::Own("no such overload".to_owned()),
            EvalError::Failed(why) => Failure::Own(why),
        })
    }

    /// A variable's value, computed once. One can read only those before it, so that there is no circle.
    fn variable(&self, wanted: &str, among: &[Named]) -> Result<Computed, String> {
        let places = self.places.get_or_init(|| {
            let named = self.variables.iter().enumerate().rev();
            named.map(|(at, variable)| (variable.name.as_str(), at)).collect()
        });
        let Some(at) = places.get(wanted).copied().filter(|at| *at < among.len()) else {
            return Err(format!("no such key: {wanted}"));
        };
        if let Some(value) = self.computed.borrow().get(&at) {
            return value.clone();
        }
        let value = self.evaluate_among(&among[at].expression, &among[..at]).map_err(
            |(Failure::Whole(why) | Failure::Own(why))| {
                format!("composited variable \"{wanted}\" fails to evaluate: {why}")
            },
        );
        self.computed.borrow_mut().insert(at, value.clone());
        value
    }
}

/// Why an expression has no value.
enum Failure {
    /// All that is said.
    Whole(String),
    /// Collected with the expression that it is of.
    Own(String),
}

/// `authorizer`, for who writes and what is written.
fn authorizer(attributes: &Attributes<'_>, seen: &Seen<'_>, lookup: &dyn Lookup) -> Option<Authorizer> {
    let authorize = lookup.authorizer(attributes.plane, attributes.user)?;
    let request = Check {
        group: seen.ty.group.clone(),
        resource: seen.ty.plural.clone(),
        subresource: attributes.subresource.to_owned(),
        namespace: attributes.namespace.to_owned(),
        name: name(attributes).to_owned(),
        ..Check::default()
    };
    Some(Authorizer::new(authorize, request))
}

/// Whether a write meets all conditions. A condition that is not met counts for more than one that can't be evaluated.
///
/// # Errors
/// What went wrong with the conditions, where none is not met.
pub(crate) fn conditions_hold(conditions: &[Named], scope: &mut Scope<'_>) -> Result<bool, String> {
    let mut errors = Vec::new();
    scope.spend(Budget::of_conditions());
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

fn kind_of(ty: &ResourceType, subresource: &str) -> Value {
    match ty.subresource(subresource) {
        Some(sub) => json!({"group": sub.kind.group, "version": sub.kind.version, "kind": sub.kind.kind}),
        None => json!({"group": ty.group, "version": ty.version, "kind": ty.kind}),
    }
}

fn resource_of(ty: &ResourceType) -> Value {
    json!({"group": ty.group, "version": ty.version, "resource": ty.plural})
}

/// `AdmissionRequest` for who sees it as a resource of `ty`, without the objects.
pub(crate) fn request(attributes: &Attributes<'_>, ty: &ResourceType) -> Value {
    let user = attributes.user;
    let is_namespace = attributes.ty.group.is_empty() && attributes.ty.plural == "namespaces";
    json!({
        "kind": kind_of(ty, attributes.subresource),
        "resource": resource_of(ty),
        "subResource": attributes.subresource,
        "requestKind": kind_of(attributes.ty, attributes.subresource),
        "requestResource": resource_of(attributes.ty),
        "requestSubResource": attributes.subresource,
        "name": name(attributes),
        "namespace": if is_namespace { name(attributes) } else { attributes.namespace },
        "operation": operation(attributes.verb),
        "userInfo": {"username": user.name, "uid": user.uid, "groups": user.groups, "extra": user.extra},
        "dryRun": attributes.dry_run,
        "options": attributes.options,
    })
}
