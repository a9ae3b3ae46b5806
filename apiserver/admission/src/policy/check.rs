//! What must hold of policies and bindings when they are written.

use super::typing::Environment;
use freehold_machinery::{Value, status::FieldError};
use freehold_machinery_cel::{OutputType, Program};

/// What an expression has to give.
#[derive(Clone, Copy, PartialEq)]
enum Gives {
    Truth,
    Text,
    TextOrNull,
    Anything,
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

/// What is wrong about a policy or binding of that resource.
pub fn check(resource: &str, object: &Value) -> Vec<FieldError> {
    let spec = &object["spec"];
    let params = spec["paramKind"].is_object().then_some(None);
    let environment = Environment::new(None, params).with_variables(&spec["variables"]);
    let mut checker = Checker { environment, errors: Vec::new() };
    match resource {
        "validatingadmissionpolicies" => checker.validating(spec),
        "mutatingadmissionpolicies" => checker.mutating(spec),
        "validatingadmissionpolicybindings" => checker.validating_binding(spec),
        _ => checker.binding(spec),
    }
    checker.errors
}

struct Checker {
    environment: Environment,
    errors: Vec<FieldError>,
}

fn items<'v>(value: &'v Value, field: &str) -> &'v [Value] {
    value[field].as_array().map(Vec::as_slice).unwrap_or_default()
}

impl Checker {
    fn required(&mut self, path: impl Into<String>, detail: &str) {
        self.errors.push(FieldError::required(path, detail));
    }

    fn validating(&mut self, spec: &Value) {
        self.policy(spec);
        let validations = items(spec, "validations");
        let annotations = items(spec, "auditAnnotations");
        if validations.is_empty() && annotations.is_empty() {
            let detail = "validations or auditAnnotations must contain at least one item";
            self.required("spec.validations", detail);
            self.required("spec.auditAnnotations", detail);
        }
        for (at, validation) in validations.iter().enumerate() {
            let path = format!("spec.validations[{at}]");
            self.expression(&path, validation, "expression", Gives::Truth);
            if validation["messageExpression"].as_str().is_some_and(|source| !source.is_empty()) {
                self.expression(&path, validation, "messageExpression", Gives::Text);
            }
        }
        for (at, annotation) in annotations.iter().enumerate() {
            let path = format!("spec.auditAnnotations[{at}]");
            if annotation["key"].as_str().unwrap_or_default().is_empty() {
                self.required(format!("{path}.key"), "");
            }
            self.expression(&path, annotation, "valueExpression", Gives::TextOrNull);
        }
    }

    fn mutating(&mut self, spec: &Value) {
        self.policy(spec);
        let mutations = items(spec, "mutations");
        if mutations.is_empty() {
            self.required("spec.mutations", "mutations must contain at least one item");
        }
        for (at, mutation) in mutations.iter().enumerate() {
            let path = format!("spec.mutations[{at}]");
            let (own, other) = match mutation["patchType"].as_str() {
                Some("ApplyConfiguration") => ("applyConfiguration", "jsonPatch"),
                Some("JSONPatch") => ("jsonPatch", "applyConfiguration"),
                given => {
                    let supported = ["ApplyConfiguration", "JSONPatch"];
                    let path = format!("{path}.patchType");
                    self.errors.push(match given {
                        None | Some("") => FieldError::required(path, ""),
                        Some(given) => FieldError::not_supported(path, given.into(), &supported),
                    });
                    continue;
                }
            };
            if mutation[other].is_object() {
                let detail = format!("must not be specified when patchType is {}", mutation["patchType"]);
                self.errors.push(FieldError::forbidden(format!("{path}.{other}"), detail.replace('"', "")));
            }
            if mutation[own].is_object() {
                self.expression(&format!("{path}.{own}"), &mutation[own], "expression", Gives::Mutation);
            } else {
                let detail = format!("must be specified when patchType is {}", mutation["patchType"]);
                self.required(format!("{path}.{own}"), &detail.replace('"', ""));
            }
        }
        if spec["reinvocationPolicy"].as_str().unwrap_or_default().is_empty() {
            self.required("spec.reinvocationPolicy", "");
        }
    }

    /// What policies of both kinds have.
    fn policy(&mut self, spec: &Value) {
        if !spec["matchConstraints"].is_object() {
            self.required("spec.matchConstraints", "");
        } else if items(&spec["matchConstraints"], "resourceRules").is_empty() {
            self.required("spec.matchConstraints.resourceRules", "");
        }
        self.rules(&spec["matchConstraints"], "spec.matchConstraints");
        for (at, variable) in items(spec, "variables").iter().enumerate() {
            let path = format!("spec.variables[{at}]");
            self.name(&path, variable);
            self.expression(&path, variable, "expression", Gives::Anything);
        }
        for (at, condition) in items(spec, "matchConditions").iter().enumerate() {
            let path = format!("spec.matchConditions[{at}]");
            self.name(&path, condition);
            self.expression(&path, condition, "expression", Gives::Truth);
        }
    }

    fn rules(&mut self, matches: &Value, path: &str) {
        for kind in ["resourceRules", "excludeResourceRules"] {
            for (at, rule) in items(matches, kind).iter().enumerate() {
                for field in ["apiGroups", "apiVersions", "resources", "operations"] {
                    if items(rule, field).is_empty() {
                        self.required(format!("{path}.{kind}[{at}].{field}"), "");
                    }
                }
            }
        }
    }

    fn name(&mut self, path: &str, named: &Value) {
        if named["name"].as_str().unwrap_or_default().is_empty() {
            self.required(format!("{path}.name"), "");
        }
    }

    fn expression(&mut self, path: &str, holder: &Value, field: &str, gives: Gives) {
        let path = format!("{path}.{field}");
        let source = holder[field].as_str().unwrap_or_default();
        if source.trim().is_empty() {
            return self.required(path, &format!("{field} is not specified"));
        }
        let mutation = gives == Gives::Mutation;
        let compiled = if mutation { Program::compile_mutation(source) } else { Program::compile(source) };
        let typed = compiled.and_then(|_| self.environment.type_of(source, mutation));
        let wrong = match typed {
            Ok(ty) => gives.complaint(&ty),
            Err(error) => Some(error.0),
        };
        self.errors.extend(wrong.map(|why| FieldError::invalid(path, source.into(), why)));
    }

    fn binding(&mut self, spec: &Value) {
        if spec["policyName"].as_str().unwrap_or_default().is_empty() {
            self.required("spec.policyName", "");
        }
        self.rules(&spec["matchResources"], "spec.matchResources");
        let reference = &spec["paramRef"];
        if !reference.is_object() {
            return;
        }
        let detail = "one of name or selector must be specified";
        match (reference["name"].as_str().unwrap_or_default(), reference["selector"].is_object()) {
            ("", false) => self.required("spec.paramRef", detail),
            (name, true) if !name.is_empty() => {
                self.errors.push(FieldError::forbidden(
                    "spec.paramRef.name",
                    "name and selector are mutually exclusive",
                ));
            }
            _ => {}
        }
        if !reference["parameterNotFoundAction"].is_string() {
            self.required("spec.paramRef.parameterNotFoundAction", "");
        }
    }

    fn validating_binding(&mut self, spec: &Value) {
        self.binding(spec);
        let actions: Vec<&str> = items(spec, "validationActions").iter().filter_map(Value::as_str).collect();
        if actions.is_empty() {
            self.required("spec.validationActions", "at least one validation action is required");
        }
        for (at, action) in actions.iter().enumerate() {
            let path = format!("spec.validationActions[{at}]");
            if !["Deny", "Warn", "Audit"].contains(action) {
                self.errors.push(FieldError::not_supported(
                    path,
                    (*action).into(),
                    &["Audit", "Deny", "Warn"],
                ));
            }
        }
        if actions.contains(&"Deny") && actions.contains(&"Warn") {
            let detail = "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)";
            self.errors.push(FieldError::invalid(
                "spec.validationActions",
                spec["validationActions"].clone(),
                detail,
            ));
        }
    }
}
