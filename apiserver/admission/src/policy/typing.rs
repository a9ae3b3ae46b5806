//! Types of expressions: the errors of Kubernetes' compiler when a policy is written, and its warnings in the policy's
//! status once the matched types are known.

use freehold_machinery::{ResourceType, Value, schema::Schema};
use freehold_machinery_cel::{
    CompileError, OutputType, Outputs, Seen, VariableType as Var, type_of, type_of_mutation,
};
use serde_json::{Map, json};
use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
};

const VARIABLES: &str = "variables";
/// Types that a policy is checked against, at most.
const MAX_TYPES: usize = 10;

/// What an expression can name, with types.
#[derive(Clone)]
pub(crate) struct Environment(Vec<(&'static str, Var)>);

fn strings(names: &[&'static str]) -> Vec<(&'static str, Var)> {
    names.iter().map(|name| (*name, Var::String)).collect()
}

fn list(item: Var) -> Var {
    Var::List(Box::new(item))
}

fn map(value: Var) -> Var {
    Var::Map(Box::new(value))
}

fn request() -> Var {
    let kind = || Var::Object("kubernetes.GroupVersionKind", strings(&["group", "version", "kind"]));
    let resource =
        || Var::Object("kubernetes.GroupVersionResource", strings(&["group", "version", "resource"]));
    let mut user = strings(&["username", "uid"]);
    user.extend([("groups", list(Var::String)), ("extra", map(list(Var::String)))]);
    let mut fields = strings(&["subResource", "requestSubResource", "name", "namespace", "operation"]);
    fields.extend([
        ("kind", kind()),
        ("resource", resource()),
        ("requestKind", kind()),
        ("requestResource", resource()),
        ("userInfo", Var::Object("kubernetes.UserInfo", user)),
        ("dryRun", Var::Bool),
        ("options", Var::Dyn),
    ]);
    Var::Object("kubernetes.AdmissionRequest", fields)
}

fn namespace() -> Var {
    let mut metadata = strings(&["name", "generateName", "namespace", "uid", "UID", "resourceVersion"]);
    metadata.extend([
        ("labels", map(Var::String)),
        ("annotations", map(Var::String)),
        ("creationTimestamp", Var::Dyn),
        ("deletionTimestamp", Var::Dyn),
        ("deletionGracePeriodSeconds", Var::Int),
        ("generation", Var::Int),
        ("finalizers", list(Var::String)),
    ]);
    let spec = Var::Object("kubernetes.NamespaceSpec", vec![("finalizers", list(Var::String))]);
    let status = Var::Object("kubernetes.NamespaceStatus", strings(&["phase"]));
    let metadata = Var::Object("kubernetes.NamespaceMetadata", metadata);
    Var::Object("kubernetes.Namespace", vec![("metadata", metadata), ("spec", spec), ("status", status)])
}

/// Policies have many expressions: what never differs is made once.
static REQUEST: LazyLock<Var> = LazyLock::new(|| request().ready());
static NAMESPACE: LazyLock<Var> = LazyLock::new(|| namespace().ready());

impl Environment {
    /// With objects of a schema, or any; with parameters of a schema, or any, where there are some.
    pub(crate) fn new(object: Option<&Schema>, params: Option<Option<&Schema>>) -> Self {
        let of = |schema: Option<&Schema>| {
            schema.and_then(|schema| Seen::new(schema, true)).map_or(Var::Dyn, Var::Schema)
        };
        let mut names = vec![
            ("object", of(object)),
            ("oldObject", of(object)),
            ("request", REQUEST.clone()),
            ("namespaceObject", NAMESPACE.clone()),
            ("authorizer", Var::Authorizer),
            ("authorizer.requestResource", Var::ResourceCheck),
        ];
        names.extend(params.map(|schema| ("params", of(schema))));
        Self(names)
    }

    /// Adds the types of variables. Without variables their map is absent too.
    pub(crate) fn with_variables(mut self, variables: &Value) -> Self {
        for variable in variables.as_array().into_iter().flatten() {
            let text = |field: &str| variable[field].as_str().unwrap_or_default();
            self.declare(text("name"), text("expression"));
        }
        self
    }

    /// Removes the authorizer.
    pub(crate) fn without_authorizer(mut self) -> Self {
        self.0.retain(|(name, _)| !name.starts_with("authorizer"));
        self
    }

    /// Makes variables something that can be named.
    pub(crate) fn expect_variables(&mut self) {
        if !matches!(self.0.last(), Some((VARIABLES, _))) {
            self.0.push((VARIABLES, Var::Outputs(Outputs::default())));
        }
    }

    /// Adds a variable, of any type where its expression is wrong. It can name those before it.
    pub(crate) fn declare(&mut self, name: &str, expression: &str) {
        self.expect_variables();
        let ty = type_of(expression, &self.0).unwrap_or_else(|_| OutputType::any());
        if let Some((_, Var::Outputs(known))) = self.0.last_mut() {
            known.declare(name, &ty);
        }
    }

    /// The names, with their types.
    pub(crate) fn names(&self) -> &[(&'static str, Var)] {
        &self.0
    }

    /// The type of an expression.
    pub(crate) fn type_of(&self, source: &str, mutation: bool) -> Result<OutputType, CompileError> {
        if mutation { type_of_mutation(source, &self.0) } else { type_of(source, &self.0) }
    }
}

/// `status` of a validating policy as Kubernetes' controller for it leaves it: what is wrong with its expressions for the
/// types that its rules name. `find` gives the type of a group, version and resource, `kind` that of a group, version and
/// kind.
pub fn checked_status(
    policy: &Value,
    find: impl Fn(&str, &str, &str) -> Option<Arc<ResourceType>>,
    kind: impl Fn(&str, &str, &str) -> Option<Arc<ResourceType>>,
) -> Value {
    let spec = &policy["spec"];
    let param_kind = &spec["paramKind"];
    let params = param_kind.is_object().then(|| {
        let api_version = param_kind["apiVersion"].as_str().unwrap_or_default();
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        kind(group, version, param_kind["kind"].as_str().unwrap_or_default())
    });
    let environments: Vec<(String, Environment)> = types(spec, find)
        .into_values()
        .map(|ty| {
            let params = params.as_ref().map(|ty| ty.as_ref().and_then(|ty| ty.schema.get()).map(|s| &**s));
            let object = ty.schema.get().map(|schema| &**schema);
            let named = format!("{}, Kind={}", group_version(&ty), ty.kind);
            (named, Environment::new(object, params).with_variables(&spec["variables"]))
        })
        .collect();
    let mut warnings = Vec::new();
    let validations = spec["validations"].as_array().map(Vec::as_slice).unwrap_or_default();
    for (index, validation) in validations.iter().enumerate() {
        for field in ["expression", "messageExpression"] {
            let source = validation[field].as_str().unwrap_or_default();
            let complaints =
                environments.iter().filter(|_| !source.is_empty()).filter_map(|(ty, environment)| {
                    let why = environment.type_of(source, false).err()?.0;
                    let said =
                        if why.starts_with("compilation failed") { "" } else { "compilation failed: " };
                    Some(format!("{ty}: {said}{why}\n"))
                });
            let complaints: Vec<String> = complaints.collect();
            if !complaints.is_empty() {
                let path = format!("spec.validations[{index}].{field}");
                warnings.push(json!({"fieldRef": path, "warning": complaints.join("\n")}));
            }
        }
    }
    let mut checking = Map::new();
    if !warnings.is_empty() {
        checking.insert("expressionWarnings".to_owned(), warnings.into());
    }
    json!({"observedGeneration": policy["metadata"]["generation"], "typeChecking": checking})
}

/// `apps/v1`, and `/v1` for core, as Go prints a kind.
fn group_version(ty: &ResourceType) -> String {
    format!("{}/{}", ty.group, ty.version)
}

/// What the rules name without wildcards, in the order of group, version and kind.
fn types(
    spec: &Value,
    find: impl Fn(&str, &str, &str) -> Option<Arc<ResourceType>>,
) -> BTreeMap<(String, String, String), Arc<ResourceType>> {
    let mut found = BTreeMap::new();
    for rule in spec["matchConstraints"]["resourceRules"].as_array().into_iter().flatten() {
        let texts = |field: &str| -> Vec<&str> {
            rule[field].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
        };
        let (groups, versions) = (texts("apiGroups"), texts("apiVersions"));
        if groups.iter().chain(&versions).any(|name| name.contains('*')) {
            continue;
        }
        for group in &groups {
            for version in &versions {
                for resource in texts("resources").iter().filter(|name| !name.contains(['*', '/'])) {
                    if let Some(ty) = find(group, version, resource)
                        && found.len() < MAX_TYPES
                    {
                        found.insert((ty.group.clone(), ty.version.clone(), ty.kind.clone()), ty);
                    }
                }
            }
        }
    }
    found
}
