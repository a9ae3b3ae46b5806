//! Registrations and policies, compiled.

use crate::{
    Consumer, ConsumerKind,
    expression::{Cel, Scope, Template, compile},
};
use freehold_machinery::{User, Value, meta};
use serde_json::json;
use std::collections::{BTreeMap, HashMap};

/// What can be claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// Whose use is counted.
    pub consumer: ConsumerKind,
    /// Groups and kinds of what may claim it.
    pub claiming: Vec<(String, String)>,
}

/// All registrations and policies of the platform.
#[derive(Default)]
pub struct Rules {
    registrations: BTreeMap<String, Registration>,
    claims: HashMap<(String, String), Vec<Policy<ClaimTemplate>>>,
    grants: HashMap<(String, String), Vec<Policy<GrantTemplate>>>,
}

/// A write, as policies see it.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// The object.
    pub object: &'a Value,
    /// Its API group.
    pub group: &'a str,
    /// Its kind.
    pub kind: &'a str,
    /// Who writes.
    pub user: &'a User,
    /// `requestInfo`.
    pub request: &'a Value,
    /// The organization that it belongs to.
    pub organization: Option<&'a str>,
    /// The project that it belongs to, or is.
    pub project: Option<&'a str>,
}

/// What one consumer is to be charged with for an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Who pays.
    pub consumer: Consumer,
    /// Amounts by resource.
    pub requests: BTreeMap<String, i64>,
    /// Labels of the claim.
    pub labels: BTreeMap<String, String>,
    /// Annotations of the claim.
    pub annotations: BTreeMap<String, String>,
}

/// A grant that comes with an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The policy that makes it.
    pub policy: String,
    /// Who may use it.
    pub consumer: Consumer,
    /// Allowances, as a grant's spec has them.
    pub allowances: Value,
    /// Labels of the grant.
    pub labels: BTreeMap<String, String>,
    /// Annotations of the grant.
    pub annotations: BTreeMap<String, String>,
}

/// Why a policy is refused.
pub type PolicyErrors = String;

struct Policy<T> {
    name: String,
    constraints: Vec<Cel>,
    /// What it makes; where it can't be compiled, why: it refuses what it is about.
    template: Result<T, String>,
}

struct MetaTemplate {
    labels: Vec<(String, Template)>,
    annotations: Vec<(String, Template)>,
}

struct ClaimTemplate {
    meta: MetaTemplate,
    consumer: Option<(ConsumerKind, Template)>,
    requests: Vec<(String, Amount)>,
}

enum Amount {
    Fixed(i64),
    Computed(Cel),
}

struct GrantTemplate {
    meta: MetaTemplate,
    consumer: (ConsumerKind, Template),
    allowances: Value,
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn items<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    value.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

impl Registration {
    /// What an object says; the resource first.
    pub fn read(object: &Value) -> Option<(String, Self)> {
        let consumer = ConsumerKind::read(text(object, "/spec/consumerType/kind"))?;
        let claiming = items(object, "/spec/claimingResources")
            .map(|claiming| (text(claiming, "/apiGroup").to_owned(), text(claiming, "/kind").to_owned()))
            .collect();
        Some((text(object, "/spec/resourceType").to_owned(), Self { consumer, claiming }))
    }
}

fn consumer_of(spec: &Value) -> Result<Option<(ConsumerKind, Template)>, String> {
    let Some(consumer) = spec.get("consumerRef") else { return Ok(None) };
    let kind = ConsumerKind::read(text(consumer, "/kind"));
    let kind = kind.ok_or_else(|| "consumers are Organizations and Projects".to_owned())?;
    Ok(Some((kind, Template::compile(text(consumer, "/name"))?)))
}

impl MetaTemplate {
    fn read(metadata: &Value) -> Result<Self, String> {
        let of = |field: &str| {
            let entries = metadata[field].as_object().into_iter().flatten();
            let compiled = entries.map(|(key, value)| {
                Ok((key.clone(), Template::compile(value.as_str().unwrap_or_default())?))
            });
            compiled.collect::<Result<Vec<_>, String>>()
        };
        Ok(Self { labels: of("labels")?, annotations: of("annotations")? })
    }
}

fn rendered(scope: &mut Scope, templates: &[(String, Template)]) -> Result<BTreeMap<String, String>, String> {
    templates.iter().map(|(key, template)| Ok((key.clone(), scope.text(template)?))).collect()
}

impl ClaimTemplate {
    fn read(policy: &Value) -> Result<Self, String> {
        let template = &policy["spec"]["target"]["resourceClaimTemplate"];
        let request = |request: &Value| {
            let amount = match request["amountExpression"].as_str() {
                Some(source) => Amount::Computed(compile(source)?),
                None => Amount::Fixed(request["amount"].as_i64().unwrap_or(1)),
            };
            Ok((text(request, "/resourceType").to_owned(), amount))
        };
        Ok(Self {
            meta: MetaTemplate::read(&template["metadata"])?,
            consumer: consumer_of(&template["spec"])?,
            requests: items(template, "/spec/requests").map(request).collect::<Result<_, String>>()?,
        })
    }
}

impl GrantTemplate {
    fn read(policy: &Value) -> Result<Self, String> {
        let template = &policy["spec"]["target"]["resourceGrantTemplate"];
        let consumer = consumer_of(&template["spec"])?.ok_or_else(|| "consumerRef is missing".to_owned())?;
        let allowances = template["spec"]["allowances"].clone();
        Ok(Self { meta: MetaTemplate::read(&template["metadata"])?, consumer, allowances })
    }
}

impl<T> Policy<T> {
    fn read(object: &Value, template: fn(&Value) -> Result<T, String>) -> Self {
        let constraints: Result<Vec<_>, String> = items(object, "/spec/trigger/constraints")
            .map(|constraint| compile(text(constraint, "/expression")))
            .collect();
        let (constraints, template) = match constraints {
            Ok(constraints) => (constraints, template(object)),
            Err(why) => (Vec::new(), Err(why)),
        };
        Self { name: meta::name(object).to_owned(), constraints, template }
    }

    /// The template, where all constraints hold.
    fn fires(&self, scope: &mut Scope) -> Result<Option<&T>, String> {
        for constraint in &self.constraints {
            if !scope.holds(constraint)? {
                return Ok(None);
            }
        }
        self.template.as_ref().map(Some).map_err(Clone::clone)
    }
}

/// The group and kind that a policy is about.
fn trigger(object: &Value) -> (String, String) {
    let api_version = text(object, "/spec/trigger/resource/apiVersion");
    let group = api_version.rsplit_once('/').map_or("", |(group, _)| group);
    (group.to_owned(), text(object, "/spec/trigger/resource/kind").to_owned())
}

/// Whether a policy of claims or grants can be compiled.
///
/// # Errors
/// What is wrong with its expressions.
pub fn check_policy(object: &Value) -> Result<(), PolicyErrors> {
    if object["spec"]["target"].get("resourceClaimTemplate").is_some() {
        Policy::read(object, ClaimTemplate::read).template.map(drop)
    } else {
        Policy::read(object, GrantTemplate::read).template.map(drop)
    }
}

impl Rules {
    /// Rules from the objects that there are.
    pub fn of(registrations: &[Value], claim_policies: &[Value], grant_policies: &[Value]) -> Self {
        let mut rules = Self::default();
        for (resource, registration) in registrations.iter().filter_map(Registration::read) {
            rules.registrations.entry(resource).or_insert(registration);
        }
        let active = |policy: &&Value| policy["spec"]["disabled"] != true && !meta::is_deleting(policy);
        for policy in claim_policies.iter().filter(active) {
            let compiled = Policy::read(policy, ClaimTemplate::read);
            rules.claims.entry(trigger(policy)).or_default().push(compiled);
        }
        for policy in grant_policies.iter().filter(active) {
            let compiled = Policy::read(policy, GrantTemplate::read);
            rules.grants.entry(trigger(policy)).or_default().push(compiled);
        }
        rules
    }

    /// A registration by its resource.
    pub fn registration(&self, resource: &str) -> Option<&Registration> {
        self.registrations.get(resource)
    }

    /// Whether objects of a kind may claim something.
    pub fn concerns(&self, group: &str, kind: &str) -> bool {
        let key = (group.to_owned(), kind.to_owned());
        self.claims.contains_key(&key) || self.grants.contains_key(&key)
    }

    /// Whether nothing is registered, so that nothing can be claimed.
    pub fn is_without_registrations(&self) -> bool {
        self.registrations.is_empty()
    }

    /// The names of the policies that give objects of a kind grants.
    pub fn grant_policies(&self, group: &str, kind: &str) -> impl Iterator<Item = &str> {
        let policies = self.grants.get(&(group.to_owned(), kind.to_owned()));
        policies.into_iter().flatten().map(|policy| policy.name.as_str())
    }

    /// What an object claims, for each consumer; nothing of consumers that it does not belong to.
    ///
    /// # Errors
    /// The policy that can't say, and why.
    pub fn claims(&self, subject: Subject<'_>) -> Result<Vec<Claim>, String> {
        let key = (subject.group.to_owned(), subject.kind.to_owned());
        let Some(policies) = self.claims.get(&key) else { return Ok(Vec::new()) };
        let mut scope = subject.scope();
        let mut claims: BTreeMap<Consumer, Claim> = BTreeMap::new();
        for policy in policies {
            self.claim(policy, subject, &mut scope, &mut claims)
                .map_err(|why| format!("ClaimCreationPolicy {:?}: {why}", policy.name))?;
        }
        Ok(claims.into_values().collect())
    }

    fn claim(
        &self,
        policy: &Policy<ClaimTemplate>,
        subject: Subject<'_>,
        scope: &mut Scope,
        claims: &mut BTreeMap<Consumer, Claim>,
    ) -> Result<(), String> {
        let Some(template) = policy.fires(scope)? else { return Ok(()) };
        let named = match &template.consumer {
            Some((kind, name)) => Some(Consumer { kind: *kind, name: scope.text(name)? }),
            None => None,
        };
        for (resource, amount) in &template.requests {
            let registration = self.registrations.get(resource);
            let registration = registration.ok_or_else(|| format!("{resource:?} is not registered"))?;
            let is_this = |(group, kind): &(String, String)| group == subject.group && kind == subject.kind;
            if !registration.claiming.iter().any(is_this) {
                return Err(format!("{resource:?} can't be claimed by a {}", subject.kind));
            }
            let consumer = match &named {
                Some(consumer) if consumer.kind == registration.consumer => consumer.clone(),
                Some(_) => {
                    return Err(format!("{resource:?} is of each {}", registration.consumer.as_str()));
                }
                None => match subject.consumer(registration.consumer) {
                    Some(consumer) => consumer,
                    None => continue,
                },
            };
            let amount = match amount {
                Amount::Fixed(amount) => *amount,
                Amount::Computed(program) => scope.amount(program)?,
            };
            let claim = claims.entry(consumer.clone()).or_insert_with(|| Claim {
                consumer,
                requests: BTreeMap::new(),
                labels: BTreeMap::new(),
                annotations: BTreeMap::new(),
            });
            let sum = claim.requests.entry(resource.clone()).or_default();
            *sum = sum.checked_add(amount).ok_or_else(|| format!("too much of {resource:?}"))?;
            claim.labels.extend(rendered(scope, &template.meta.labels)?);
            claim.annotations.extend(rendered(scope, &template.meta.annotations)?);
        }
        Ok(())
    }

    /// The grants that come with an object.
    ///
    /// # Errors
    /// The policy that can't say, and why.
    pub fn grants(&self, subject: Subject<'_>) -> Result<Vec<Grant>, String> {
        let key = (subject.group.to_owned(), subject.kind.to_owned());
        let Some(policies) = self.grants.get(&key) else { return Ok(Vec::new()) };
        let mut scope = subject.scope();
        let mut grants = Vec::new();
        for policy in policies {
            let grant = Self::grant(policy, &mut scope)
                .map_err(|why| format!("GrantCreationPolicy {:?}: {why}", policy.name))?;
            grants.extend(grant);
        }
        Ok(grants)
    }

    fn grant(policy: &Policy<GrantTemplate>, scope: &mut Scope) -> Result<Option<Grant>, String> {
        let Some(template) = policy.fires(scope)? else { return Ok(None) };
        let (kind, name) = &template.consumer;
        Ok(Some(Grant {
            policy: policy.name.clone(),
            consumer: Consumer { kind: *kind, name: scope.text(name)? },
            allowances: template.allowances.clone(),
            labels: rendered(scope, &template.meta.labels)?,
            annotations: rendered(scope, &template.meta.annotations)?,
        }))
    }
}

impl Subject<'_> {
    fn consumer(&self, kind: ConsumerKind) -> Option<Consumer> {
        let name = match kind {
            ConsumerKind::Organization => self.organization,
            ConsumerKind::Project => self.project,
        };
        name.map(|name| Consumer { kind, name: name.to_owned() })
    }

    fn scope(&self) -> Scope {
        let user = json!({
            "username": self.user.name, "name": self.user.name, "uid": self.user.uid,
            "groups": self.user.groups, "extra": self.user.extra,
        });
        let name = |name: Option<&str>| json!(name.unwrap_or_default());
        let (organization, project) = (name(self.organization), name(self.project));
        Scope::new([self.object, &user, self.request, &organization, &project])
    }
}
