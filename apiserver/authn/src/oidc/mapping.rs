//! The mapping from a token's claims to a user.

use super::{
    OidcError,
    config::{Claim, ClaimMappings, JwtAuthenticator, PrefixedClaim},
    failed,
};
use freehold_machinery::user::CREDENTIAL_ID;
use freehold_machinery::{
    Map, User, Value, names,
    status::{FieldError, FieldErrorKind},
};
use freehold_machinery_cel::{Budget, Computed, EvalError, Program, Variable, VariableType, type_of};
use serde_json::json;
use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

const CLAIMS: &str = "claims";
const USER: &str = "user";

/// A compiled rule: what must be true, and what is said where it is not.
#[derive(Debug)]
struct Rule {
    program: Arc<Program>,
    source: String,
    message: String,
}

/// A value of a user.
#[derive(Debug)]
enum Source {
    Nothing,
    Claim { name: String, prefix: String },
    Expression(Arc<Program>),
}

/// The mapping from a token's claims to a user.
#[derive(Debug)]
pub struct Mapping {
    username: Source,
    groups: Source,
    uid: Source,
    extra: Vec<(String, Arc<Program>)>,
    required: Vec<(String, String)>,
    claim_rules: Vec<Rule>,
    user_rules: Vec<Rule>,
}

/// Compiles the expressions of a configuration and notes what is wrong.
struct Compiler {
    errors: Vec<FieldError>,
    uses_email: bool,
    uses_verified: bool,
}

fn user_type() -> VariableType {
    let strings = || VariableType::List(Box::new(VariableType::String));
    let fields = vec![
        ("username", VariableType::String),
        ("uid", VariableType::String),
        ("groups", strings()),
        ("extra", VariableType::Map(Box::new(strings()))),
    ];
    VariableType::Object("kubernetes.UserInfo", fields)
}

impl Compiler {
    fn wrong(&mut self, field: &str, value: &str, detail: &str) {
        self.errors.push(FieldError::invalid(field, value.into(), detail));
    }

    fn required(&mut self, field: &str, detail: &str) {
        self.errors.push(FieldError::required(field, detail));
    }

    /// Compiles an expression over one variable, which must be a truth value where `is_rule`.
    fn expression(
        &mut self,
        field: &str,
        source: &str,
        variable: &str,
        is_rule: bool,
    ) -> Option<Arc<Program>> {
        let ty = match variable {
            USER => user_type(),
            _ => VariableType::Map(Box::new(VariableType::Dyn)),
        };
        let variables = [(variable, ty)];
        let compiled =
            type_of(source, &variables).and_then(|ty| Ok((ty, Program::typed(source, &variables)?)));
        match compiled {
            Ok((ty, _)) if is_rule && !ty.is_bool() => {
                self.wrong(field, source, "must evaluate to bool");
                None
            }
            Ok((_, program)) => Some(program),
            Err(error) => {
                self.wrong(field, source, &error.to_string());
                None
            }
        }
    }

    /// An expression over claims.
    fn claims(&mut self, field: &str, source: &str, is_rule: bool) -> Option<Arc<Program>> {
        let program = self.expression(field, source, CLAIMS, is_rule)?;
        let optional =
            source.contains("claims.?email_verified") || source.contains("claims[?\"email_verified\"]");
        self.uses_verified |= optional || program.fields_of(CLAIMS).contains(&"email_verified");
        Some(program)
    }

    fn prefixed(&mut self, field: &str, wanted: &PrefixedClaim, is_required: bool) -> Source {
        match (wanted.claim.as_str(), wanted.expression.as_str()) {
            ("", "") => {
                if is_required {
                    self.required(field, "claim or expression is required");
                }
                Source::Nothing
            }
            ("", source) => {
                if let Some(prefix) = &wanted.prefix {
                    let detail = "may not be specified when expression is set";
                    self.wrong(&format!("{field}.prefix"), prefix, detail);
                }
                let program = self.claims(&format!("{field}.expression"), source, false);
                program.map_or(Source::Nothing, Source::Expression)
            }
            (claim, "") => {
                if wanted.prefix.is_none() {
                    let detail = "prefix is required when claim is set. It can be set to an empty string to disable prefixing";
                    self.required(&format!("{field}.prefix"), detail);
                }
                Source::Claim { name: claim.to_owned(), prefix: wanted.prefix.clone().unwrap_or_default() }
            }
            _ => {
                self.wrong(field, "", "claim and expression can't both be set");
                Source::Nothing
            }
        }
    }

    fn uid(&mut self, field: &str, wanted: &Claim) -> Source {
        match (wanted.claim.as_str(), wanted.expression.as_str()) {
            ("", "") => Source::Nothing,
            ("", source) => {
                let program = self.claims(&format!("{field}.expression"), source, false);
                program.map_or(Source::Nothing, Source::Expression)
            }
            (claim, "") => Source::Claim { name: claim.to_owned(), prefix: String::new() },
            _ => {
                self.wrong(field, "", "claim and expression can't both be set");
                Source::Nothing
            }
        }
    }

    fn extra(&mut self, path: &str, mappings: &ClaimMappings) -> Vec<(String, Arc<Program>)> {
        let (mut seen, mut extra) = (HashSet::new(), Vec::new());
        for (at, mapping) in mappings.extra.iter().enumerate() {
            let path = format!("{path}.extra[{at}]");
            let field = format!("{path}.key");
            self.check_key(&field, &mapping.key);
            if !seen.insert(&mapping.key) {
                self.errors.push(FieldError {
                    value: Some(mapping.key.as_str().into()),
                    ..FieldError::new(FieldErrorKind::Duplicate, field, "")
                });
                continue;
            }
            let field = format!("{path}.valueExpression");
            if mapping.value_expression.is_empty() {
                self.required(&field, "");
            } else if let Some(program) = self.claims(&field, &mapping.value_expression, false) {
                extra.push((mapping.key.clone(), program));
            }
        }
        extra
    }

    fn check_key(&mut self, field: &str, key: &str) {
        let Some((domain, path)) =
            key.split_once('/').filter(|(domain, path)| !domain.is_empty() && !path.is_empty())
        else {
            return self.wrong(field, key, "must be a domain-prefixed path (such as \"acme.io/foo\")");
        };
        if key != key.to_lowercase() {
            self.wrong(field, key, "must be lowercase");
        } else if let Some(why) = names::dns1123_subdomain(domain).first() {
            self.wrong(field, domain, why);
        }
        let allowed = |c: char| c.is_ascii_alphanumeric() || "-._~%!$&'()*+,;=:@/".contains(c);
        if !path.chars().all(allowed) {
            self.wrong(
                field,
                path,
                "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')",
            );
        }
        let reserved = ["k8s.io", "kubernetes.io", "freehold.dev"];
        let is_reserved = |name: &&str| domain == *name || domain.ends_with(&format!(".{name}"));
        if let Some(name) = reserved.iter().find(|name| is_reserved(name)) {
            let detail = match *name {
                "freehold.dev" => "freehold.dev and its subdomains are reserved for Freehold's use",
                _ => "k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use",
            };
            self.wrong(field, key, detail);
        }
    }

    fn claim_rules(&mut self, path: &str, from: &JwtAuthenticator) -> (Vec<(String, String)>, Vec<Rule>) {
        let (mut required, mut rules) = (Vec::new(), Vec::new());
        let mut seen = HashSet::new();
        for (at, rule) in from.claim_validation_rules.iter().enumerate() {
            let field = format!("{path}.claimValidationRules[{at}]");
            let unspecified = |when: &str| format!("may not be specified when {when} is set");
            match (rule.claim.as_str(), rule.expression.as_str()) {
                ("", "") => self.required(&field, "claim or expression is required"),
                (claim, "") => {
                    if !rule.message.is_empty() {
                        self.wrong(&format!("{field}.message"), &rule.message, &unspecified("claim"));
                    }
                    if !seen.insert(("claim", claim)) {
                        self.duplicate(format!("{field}.claim"), claim);
                    }
                    required.push((claim.to_owned(), rule.required_value.clone()));
                }
                ("", source) => {
                    if !rule.required_value.is_empty() {
                        let field = format!("{field}.requiredValue");
                        self.wrong(&field, &rule.required_value, &unspecified("expression"));
                    }
                    let field = format!("{field}.expression");
                    if !seen.insert(("expression", source)) {
                        self.duplicate(field, source);
                    } else if let Some(program) = self.claims(&field, source, true) {
                        let (source, message) = (source.to_owned(), rule.message.clone());
                        rules.push(Rule { program, source, message });
                    }
                }
                (claim, _) => self.wrong(&field, claim, "claim and expression can't both be set"),
            }
        }
        (required, rules)
    }

    fn user_rules(&mut self, path: &str, from: &JwtAuthenticator) -> Vec<Rule> {
        let (mut rules, mut seen) = (Vec::new(), HashSet::new());
        for (at, rule) in from.user_validation_rules.iter().enumerate() {
            let field = format!("{path}.userValidationRules[{at}].expression");
            if rule.expression.is_empty() {
                self.required(&field, "");
            } else if !seen.insert(&rule.expression) {
                self.duplicate(field, &rule.expression);
            } else if let Some(program) = self.expression(&field, &rule.expression, USER, true) {
                let (source, message) = (rule.expression.clone(), rule.message.clone());
                rules.push(Rule { program, source, message });
            }
        }
        rules
    }

    fn duplicate(&mut self, field: String, value: &str) {
        let error = FieldError::new(FieldErrorKind::Duplicate, field, "");
        self.errors.push(FieldError { value: Some(value.into()), ..error });
    }
}

impl Mapping {
    /// Compiles what a configuration says of claims, and gives what is wrong with it, each with its field below `path`.
    /// With errors it is not to be used.
    pub(crate) fn compile(from: &JwtAuthenticator, path: &str) -> (Self, Vec<FieldError>) {
        let mut compiler = Compiler { errors: Vec::new(), uses_email: false, uses_verified: false };
        let (required, claim_rules) = compiler.claim_rules(path, from);
        let mappings = &from.claim_mappings;
        let below = format!("{path}.claimMappings");
        let username = compiler.prefixed(&format!("{below}.username"), &mappings.username, true);
        if let Source::Expression(program) = &username {
            compiler.uses_email = program.fields_of(CLAIMS).contains(&"email");
        }
        let groups = compiler.prefixed(&format!("{below}.groups"), &mappings.groups, false);
        let uid = compiler.uid(&format!("{below}.uid"), &mappings.uid);
        let extra = compiler.extra(&below, mappings);
        if compiler.uses_email && !compiler.uses_verified {
            let detail = "claims.email_verified must be used in claimMappings.username.expression or claimMappings.extra[*].valueExpression or claimValidationRules[*].expression when claims.email is used in claimMappings.username.expression";
            compiler.wrong(&format!("{below}.username.expression"), &mappings.username.expression, detail);
        }
        let user_rules = compiler.user_rules(path, from);
        let mapping = Self { username, groups, uid, extra, required, claim_rules, user_rules };
        (mapping, compiler.errors)
    }

    /// The user that verified claims are. It is in no plane and not yet in `system:authenticated`.
    ///
    /// # Errors
    /// A claim is missing or of another type, a rule is broken, or an expression fails or costs too much.
    pub fn user(&self, claims: &Map) -> Result<User, OidcError> {
        let whole = Value::Object(claims.clone());
        let value = Computed::of(&whole);
        let mut run = Run { claims, value: &value, budget: Budget::default() };
        let name = run.username(&self.username)?;
        let groups = run.strings(&self.groups, "groups")?;
        let uid = run.uid(&self.uid)?;
        let mut extra = BTreeMap::new();
        if let Some(id) = claims.get("jti").and_then(Value::as_str).filter(|id| !id.is_empty()) {
            extra.insert(CREDENTIAL_ID.to_owned(), vec![format!("JTI={id}")]);
        }
        for (key, program) in &self.extra {
            let values = run.list(program, "extra")?;
            if !values.is_empty() {
                extra.insert(key.clone(), values);
            }
        }
        self.check_required(claims)?;
        for rule in &self.claim_rules {
            run.check(rule, CLAIMS, &value)?;
        }
        let user = User { name, uid, groups, extra, ..User::default() };
        if !self.user_rules.is_empty() {
            let info =
                json!({"username": user.name, "uid": user.uid, "groups": user.groups, "extra": user.extra});
            let info = Computed::of(&info);
            for rule in &self.user_rules {
                run.check(rule, USER, &info)?;
            }
        }
        Ok(user)
    }

    fn check_required(&self, claims: &Map) -> Result<(), OidcError> {
        for (name, wanted) in &self.required {
            match claims.get(name) {
                None => return failed(format!("required claim {name} not present in ID token")),
                Some(Value::String(found)) if found == wanted => {}
                Some(_) => return failed(format!("required claim {name} value does not match")),
            }
        }
        Ok(())
    }
}

/// One token's claims, and what expressions over them may still cost.
struct Run<'a> {
    claims: &'a Map,
    value: &'a Computed,
    budget: Budget,
}

impl Run<'_> {
    fn evaluate(
        &mut self,
        program: &Program,
        variable: &str,
        value: &Computed,
    ) -> Result<Computed, OidcError> {
        program.value(&[(variable, Variable::Computed(value))], &self.budget).map_err(|error| {
            OidcError(match error {
                EvalError::Failed(why) => format!("error evaluating expression: {why}"),
                EvalError::NoOverload => "error evaluating expression: no such overload".to_owned(),
                EvalError::BudgetSpent | EvalError::CallLimit => "an expression costs too much".to_owned(),
            })
        })
    }

    fn check(&mut self, rule: &Rule, variable: &str, value: &Computed) -> Result<(), OidcError> {
        match self.evaluate(&rule.program, variable, value)?.as_bool() {
            Some(true) => Ok(()),
            Some(false) => {
                failed(format!("validation expression '{}' failed: {}", rule.source, rule.message))
            }
            None => failed("validation expression must return a boolean"),
        }
    }

    fn text(&self, name: &str, what: &str) -> Result<String, OidcError> {
        match self.claims.get(name) {
            Some(Value::String(text)) => Ok(text.clone()),
            Some(_) => failed(format!("parse {what} claims {name:?}: it is no string")),
            None => failed(format!("parse {what} claims {name:?}: claim not present")),
        }
    }

    fn username(&mut self, from: &Source) -> Result<String, OidcError> {
        let name = match from {
            Source::Nothing => return failed("no username is configured"),
            Source::Claim { name, prefix } => {
                let text = self.text(name, "username")?;
                if name == "email" {
                    match self.claims.get("email_verified") {
                        None | Some(Value::Bool(true)) => {}
                        Some(Value::Bool(false)) => return failed("email not verified"),
                        Some(_) => return failed("parse 'email_verified' claim: it is no boolean"),
                    }
                }
                format!("{prefix}{text}")
            }
            Source::Expression(program) => {
                let value = self.evaluate(program, CLAIMS, self.value)?;
                let text = value.as_str().map(str::to_owned);
                text.ok_or_else(|| OidcError("username claim expression must return a string".to_owned()))?
            }
        };
        if name.is_empty() { failed("empty username via CEL expression is not allowed") } else { Ok(name) }
    }

    fn uid(&mut self, from: &Source) -> Result<String, OidcError> {
        match from {
            Source::Nothing => Ok(String::new()),
            Source::Claim { name, .. } => self.text(name, "uid"),
            Source::Expression(program) => {
                let value = self.evaluate(program, CLAIMS, self.value)?;
                let text = value.as_str().map(str::to_owned);
                text.ok_or_else(|| OidcError("uid claim expression must return a string".to_owned()))
            }
        }
    }

    fn strings(&mut self, from: &Source, what: &str) -> Result<Vec<String>, OidcError> {
        match from {
            Source::Nothing => Ok(Vec::new()),
            Source::Expression(program) => self.list(program, what),
            Source::Claim { name, prefix } => {
                let values = match self.claims.get(name) {
                    None => return Ok(Vec::new()),
                    Some(Value::String(one)) => vec![one.as_str()],
                    Some(Value::Array(many)) => many.iter().filter_map(Value::as_str).collect(),
                    Some(_) => {
                        return failed(format!("parse {what} claim {name:?}: no string or list of strings"));
                    }
                };
                let complete = self
                    .claims
                    .get(name)
                    .and_then(Value::as_array)
                    .is_none_or(|all| all.len() == values.len());
                match complete {
                    true => Ok(values.iter().map(|value| format!("{prefix}{value}")).collect()),
                    false => failed(format!("parse {what} claim {name:?}: no string or list of strings")),
                }
            }
        }
    }

    /// A string or a list of strings; empty ones and null are nothing.
    fn list(&mut self, program: &Program, what: &str) -> Result<Vec<String>, OidcError> {
        let value = self.evaluate(program, CLAIMS, self.value)?.to_json();
        let wrong = || failed(format!("{what}: expression must return a string or a list of strings"));
        let texts = match value {
            Some(Value::Null) => Vec::new(),
            Some(Value::String(one)) => vec![one],
            Some(Value::Array(many)) => {
                let texts: Vec<String> = many.iter().filter_map(Value::as_str).map(str::to_owned).collect();
                if texts.len() != many.len() {
                    return wrong();
                }
                texts
            }
            _ => return wrong(),
        };
        Ok(texts.into_iter().filter(|text| !text.is_empty()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(config: Value) -> Mapping {
        let mut config = config;
        config["issuer"] = json!({"url": "https://a", "audiences": ["x"]});
        let (mapping, errors) = Mapping::compile(&serde_json::from_value(config).unwrap(), "jwt[0]");
        assert!(errors.is_empty(), "{errors:?}");
        mapping
    }

    fn user(config: Value, claims: Value) -> Result<User, String> {
        mapping(config).user(claims.as_object().unwrap()).map_err(|error| error.to_string())
    }

    fn named(mappings: Value) -> Value {
        let mut all = json!({"username": {"claim": "sub", "prefix": "o:"}});
        all.as_object_mut().unwrap().extend(mappings.as_object().unwrap().clone());
        json!({"claimMappings": all})
    }

    #[test]
    fn claims_become_a_user() {
        let config = json!({"claimMappings": {
            "username": {"expression": "claims.username + ':external'"},
            "groups": {"expression": "claims.roles.split(',')"},
            "uid": {"claim": "sub"},
            "extra": [
                {"key": "example.com/tenant", "valueExpression": "claims.tenant"},
                {"key": "example.com/none", "valueExpression": "has(claims.other) ? claims.other : ''"},
            ],
        }});
        let claims = json!({"sub": "1", "username": "jane", "roles": "a,b", "tenant": ["t", ""], "jti": "x"});
        let user = user(config, claims).unwrap();
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("jane:external", "1"));
        assert_eq!(user.groups, ["a", "b"]);
        assert_eq!(user.extra["example.com/tenant"], ["t"]);
        assert_eq!(user.extra[CREDENTIAL_ID], ["JTI=x"]);
        assert_eq!(user.extra.len(), 2);
    }

    #[test]
    fn groups_are_a_string_or_a_list() {
        let config = || named(json!({"groups": {"claim": "g", "prefix": "p:"}}));
        let groups = |g: Value| user(config(), json!({"sub": "s", "g": g})).map(|user| user.groups);
        assert_eq!(groups(json!("a")).unwrap(), ["p:a"]);
        assert_eq!(groups(json!(["a", "b"])).unwrap(), ["p:a", "p:b"]);
        assert!(groups(json!(["a", 1])).is_err());
        assert!(groups(json!({"a": 1})).is_err());
        assert_eq!(user(config(), json!({"sub": "s"})).unwrap().groups.len(), 0);
    }

    #[test]
    fn who_is_not_as_the_rules_want_is_refused() {
        let email = json!({"claimMappings": {"username": {"claim": "email", "prefix": ""}}});
        let rule = |rules: Value| {
            let mut config = named(json!({}));
            config.as_object_mut().unwrap().extend(rules.as_object().unwrap().clone());
            config
        };
        let hd = || rule(json!({"claimValidationRules": [{"claim": "hd", "requiredValue": "a.com"}]}));
        let short = || {
            rule(
                json!({"claimValidationRules": [{"expression": "claims.exp - claims.nbf <= 10", "message": "too long"}]}),
            )
        };
        let system = || {
            rule(
                json!({"userValidationRules": [{"expression": "!user.username.startsWith('o:system:')", "message": "no"}]}),
            )
        };
        let rows = [
            (email.clone(), json!({"email": "a@b"}), ""),
            (email.clone(), json!({"email": "a@b", "email_verified": true}), ""),
            (email.clone(), json!({"email": "a@b", "email_verified": false}), "email not verified"),
            (email, json!({"email": "a@b", "email_verified": "true"}), "email_verified"),
            (hd(), json!({"sub": "a", "hd": "a.com"}), ""),
            (hd(), json!({"sub": "a"}), "required claim hd not present"),
            (hd(), json!({"sub": "a", "hd": "b.com"}), "does not match"),
            (hd(), json!({"sub": "a", "hd": ["a.com"]}), "does not match"),
            (short(), json!({"sub": "a", "exp": 20, "nbf": 15}), ""),
            (short(), json!({"sub": "a", "exp": 30, "nbf": 15}), "failed: too long"),
            (short(), json!({"sub": "a", "exp": 30}), "no such key"),
            (system(), json!({"sub": "system:masters"}), "failed: no"),
            (system(), json!({"sub": "jane"}), ""),
            (named(json!({})), json!({"sub": 1}), "no string"),
            (named(json!({})), json!({}), "claim not present"),
        ];
        for (config, claims, expected) in rows {
            match user(config, claims.clone()) {
                Ok(_) => assert_eq!(expected, "", "{claims}"),
                Err(error) => assert!(!expected.is_empty() && error.contains(expected), "{claims}: {error}"),
            }
        }
    }
}
