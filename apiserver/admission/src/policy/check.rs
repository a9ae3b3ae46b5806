//! What must hold of policies and bindings when they are written.

use freehold_machinery::{Value, status::FieldError};
use freehold_machinery_cel::{CompileError, Program};
use std::sync::Arc;

/// What every expression can name.
const NAMES: [&str; 5] = ["object", "oldObject", "request", "namespaceObject", "variables"];

type Compile = fn(&str) -> Result<Arc<Program>, CompileError>;

/// What is wrong about a policy or binding of that resource.
pub fn check(resource: &str, object: &Value) -> Vec<FieldError> {
    let mut checker = Checker { names: NAMES.to_vec(), errors: Vec::new() };
    let spec = &object["spec"];
    if spec["paramKind"].is_object() {
        checker.names.push("params");
    }
    match resource {
        "validatingadmissionpolicies" => checker.validating(spec),
        "mutatingadmissionpolicies" => checker.mutating(spec),
        "validatingadmissionpolicybindings" => checker.validating_binding(spec),
        _ => checker.binding(spec),
    }
    checker.errors
}

struct Checker {
    names: Vec<&'static str>,
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
            self.expression(&path, validation, "expression", Program::compile);
            if validation["messageExpression"].as_str().is_some_and(|source| !source.is_empty()) {
                self.expression(&path, validation, "messageExpression", Program::compile);
            }
        }
        for (at, annotation) in annotations.iter().enumerate() {
            let path = format!("spec.auditAnnotations[{at}]");
            if annotation["key"].as_str().unwrap_or_default().is_empty() {
                self.required(format!("{path}.key"), "");
            }
            self.expression(&path, annotation, "valueExpression", Program::compile);
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
                self.expression(
                    &format!("{path}.{own}"),
                    &mutation[own],
                    "expression",
                    Program::compile_mutation,
                );
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
            self.expression(&path, variable, "expression", Program::compile);
        }
        for (at, condition) in items(spec, "matchConditions").iter().enumerate() {
            let path = format!("spec.matchConditions[{at}]");
            self.name(&path, condition);
            self.expression(&path, condition, "expression", Program::compile);
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

    fn expression(&mut self, path: &str, holder: &Value, field: &str, compile: Compile) {
        let path = format!("{path}.{field}");
        let source = holder[field].as_str().unwrap_or_default();
        if source.trim().is_empty() {
            return self.required(path, &format!("{field} is not specified"));
        }
        let names: Vec<_> = self.names.iter().map(|name| (*name, None)).collect();
        if let Err(error) = compile(source).and_then(|program| program.check(&names, false)) {
            self.errors.push(FieldError::invalid(path, source.into(), error.0));
        }
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
