//! Which writes a policy, a binding or a webhook is about.

use crate::{Attributes, Lookup, Verb};
use freehold_machinery::{ResourceType, Value, meta, selector::Labels};
use std::sync::Arc;

/// `MatchResources`.
#[derive(Clone, Debug)]
pub(crate) struct Match {
    /// `None` matches every resource.
    rules: Option<Vec<Rule>>,
    excluded: Vec<Rule>,
    namespaces: Selector,
    objects: Selector,
    /// `matchPolicy` is not `Exact`: other versions of the same objects match too.
    equivalent: bool,
}

/// As what a webhook is about a write.
#[derive(Clone, Debug)]
pub enum Matched {
    /// It is not.
    Nothing,
    /// As the resource that was asked for.
    Asked,
    /// As another one that has the same objects.
    As(Arc<ResourceType>),
}

/// A selector, or what is wrong about it; `None` selects everything.
type Selector = Option<Result<Labels, String>>;

#[derive(Clone, Debug)]
struct Rule {
    names: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    resources: Vec<String>,
    operations: Vec<String>,
    scope: String,
}

fn texts(value: &Value, field: &str) -> Vec<String> {
    value[field].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn selector(value: &Value) -> Selector {
    let empty = value.as_object().is_none_or(serde_json::Map::is_empty);
    (!empty).then(|| Labels::from_value(value))
}

impl Rule {
    fn of(value: &Value) -> Self {
        Self {
            names: texts(value, "resourceNames"),
            groups: texts(value, "apiGroups"),
            versions: texts(value, "apiVersions"),
            resources: texts(value, "resources"),
            operations: texts(value, "operations"),
            scope: value["scope"].as_str().unwrap_or("*").to_owned(),
        }
    }

    fn operates(&self, attributes: &Attributes<'_>) -> bool {
        let operation = operation(attributes.verb);
        self.operations.iter().any(|own| own == "*" || own == operation)
    }

    fn matches(&self, attributes: &Attributes<'_>, version: &str) -> bool {
        self.matches_as(attributes, (&attributes.ty.group, version, &attributes.ty.plural))
    }

    /// Whether it matches if the resource were this one: group, version, plural.
    fn matches_as(&self, attributes: &Attributes<'_>, resource: (&str, &str, &str)) -> bool {
        let (group, version, plural) = resource;
        let any = |list: &[String], wanted: &str| list.iter().any(|item| item == "*" || item == wanted);
        let ty = attributes.ty;
        let scope = match self.scope.as_str() {
            "Namespaced" => ty.namespaced,
            "Cluster" => !ty.namespaced,
            _ => true,
        };
        let name = name(attributes);
        scope
            && any(&self.operations, operation(attributes.verb))
            && any(&self.groups, group)
            && any(&self.versions, version)
            && self
                .resources
                .iter()
                .any(|resource| resource_matches(resource, plural, attributes.subresource))
            && (self.names.is_empty() || self.names.iter().any(|own| own == name))
    }
}

/// The operation as rules and `request.operation` spell it.
pub(crate) fn operation(verb: Verb) -> &'static str {
    match verb {
        Verb::Create => "CREATE",
        Verb::Update => "UPDATE",
        Verb::Delete => "DELETE",
        Verb::Connect => "CONNECT",
    }
}

/// The name in the URL, or in the object that is made.
pub(crate) fn name<'a>(attributes: &'a Attributes<'_>) -> &'a str {
    match attributes.name {
        "" => attributes.object().map_or("", meta::name),
        name => name,
    }
}

/// `pods`, `pods/status`, `pods/*`, `*/status`, `*` (no subresources) and `*/*`.
fn resource_matches(pattern: &str, resource: &str, subresource: &str) -> bool {
    let (own, sub) = pattern.split_once('/').unwrap_or((pattern, ""));
    (own == "*" || own == resource) && (sub == "*" || sub == subresource)
}

impl Match {
    /// From `matchConstraints` or `matchResources`; absent ones match everything.
    pub(crate) fn of(value: &Value) -> Self {
        let rules =
            |field: &str| value[field].as_array().into_iter().flatten().map(Rule::of).collect::<Vec<_>>();
        Self {
            rules: Some(rules("resourceRules")).filter(|rules| !rules.is_empty()),
            excluded: rules("excludeResourceRules"),
            namespaces: selector(&value["namespaceSelector"]),
            objects: selector(&value["objectSelector"]),
            equivalent: value["matchPolicy"] != "Exact",
        }
    }

    /// From a webhook, whose rules stand beside its selectors.
    pub(crate) fn of_webhook(value: &Value) -> Self {
        let rules = value["rules"].as_array().into_iter().flatten().map(Rule::of);
        Self {
            rules: Some(rules.collect::<Vec<_>>()).filter(|rules| !rules.is_empty()),
            excluded: Vec::new(),
            namespaces: selector(&value["namespaceSelector"]),
            objects: selector(&value["objectSelector"]),
            equivalent: value["matchPolicy"] != "Exact",
        }
    }

    /// Whether it is about this write.
    ///
    /// # Errors
    /// It is, as far as its rules go, and has a selector that makes no sense.
    pub(crate) fn matches(&self, attributes: &Attributes<'_>, lookup: &dyn Lookup) -> Result<bool, String> {
        let namespace = self.namespace_matches(attributes, lookup);
        let object = self.object_matches(attributes);
        if namespace == Ok(false) || object == Ok(false) {
            return Ok(false);
        }
        if self.any_rule(&self.excluded, attributes) {
            return Ok(false);
        }
        if self.rules.as_ref().is_some_and(|rules| !self.any_rule(rules, attributes)) {
            return Ok(false);
        }
        namespace.and(object)
    }

    /// As what it is about this write: the resource that was asked for, or, unless `matchPolicy` is `Exact`, another
    /// one that has the same objects. Without rules it is about none.
    ///
    /// # Errors
    /// It may be, and has a selector that makes no sense.
    pub(crate) fn which(&self, attributes: &Attributes<'_>, lookup: &dyn Lookup) -> Result<Matched, String> {
        let Some(rules) = &self.rules else { return Ok(Matched::Nothing) };
        if !rules.iter().any(|rule| rule.operates(attributes)) {
            return Ok(Matched::Nothing);
        }
        let namespace = self.namespace_matches(attributes, lookup);
        let object = self.object_matches(attributes);
        if namespace == Ok(false) || object == Ok(false) {
            return Ok(Matched::Nothing);
        }
        let found = if rules.iter().any(|rule| rule.matches(attributes, &attributes.ty.version)) {
            Matched::Asked
        } else if self.equivalent {
            let others = lookup.equivalents(attributes.plane, attributes.ty);
            let of = |rule: &Rule| {
                let same = |ty: &&Arc<ResourceType>| {
                    rule.matches_as(attributes, (&ty.group, &ty.version, &ty.plural))
                };
                others.iter().find(same).cloned()
            };
            rules.iter().find_map(of).map_or(Matched::Nothing, Matched::As)
        } else {
            Matched::Nothing
        };
        match found {
            Matched::Nothing => Ok(Matched::Nothing),
            found => namespace.and(object).map(|_| found),
        }
    }

    fn any_rule(&self, rules: &[Rule], attributes: &Attributes<'_>) -> bool {
        let ty = attributes.ty;
        // Objects that are kept in another version of the same group are served in that one as well.
        let kept = ty.storage.api_version.rsplit('/').next().unwrap_or_default();
        let other = self.equivalent && ty.storage.group == ty.group && kept != ty.version;
        rules
            .iter()
            .any(|rule| rule.matches(attributes, &ty.version) || other && rule.matches(attributes, kept))
    }

    fn namespace_matches(&self, attributes: &Attributes<'_>, lookup: &dyn Lookup) -> Result<bool, String> {
        let Some(selector) = &self.namespaces else { return Ok(true) };
        let is_namespace = attributes.ty.group.is_empty() && attributes.ty.plural == "namespaces";
        let found;
        let namespace = if is_namespace {
            attributes.object().or(attributes.old)
        } else if attributes.namespace.is_empty() {
            return Ok(true);
        } else {
            found = lookup.get(attributes.plane, "", "namespaces", "", attributes.namespace);
            found.as_deref()
        };
        let selector = selector.as_ref().map_err(Clone::clone)?;
        Ok(namespace.is_some_and(|namespace| selector.matches(|key| meta::label(namespace, key))))
    }

    fn object_matches(&self, attributes: &Attributes<'_>) -> Result<bool, String> {
        let Some(selector) = &self.objects else { return Ok(true) };
        let selector = selector.as_ref().map_err(Clone::clone)?;
        let matches = |object: Option<&Value>| {
            object.is_some_and(|object| selector.matches(|key| meta::label(object, key)))
        };
        Ok(matches(attributes.object()) || matches(attributes.old))
    }
}
