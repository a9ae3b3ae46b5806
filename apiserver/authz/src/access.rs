//! What decides in one plane: its own roles and bindings, and the platform's above them.

use crate::{
    Attributes, Decision, Policy, Rules,
    escalation::{Holder, holds},
    iam::{self, Held, Iam, Scope, Suspension},
    review,
};
use freehold_machinery::{GroupResource, Status, User, Value, meta, user::MASTERS};
use parking_lot::RwLock;
use std::{fmt, sync::Arc};

/// Where in the platform something is asked: of the core plane that depends on the question.
pub type Place = Arc<dyn Fn(&Attributes<'_>) -> Scope + Send + Sync>;

/// Who else is asked, before and behind what is known here.
pub trait Others: Send + Sync {
    /// What all of them say together; `own` is what is known here. May take its time, and block for it.
    ///
    /// # Errors
    /// Somebody could not be asked, and nobody else allowed it.
    fn decide(&self, asked: &Attributes<'_>, own: Decision) -> Result<Decision, String>;
}

/// What decides in one plane.
#[derive(Clone)]
pub struct Access {
    policy: Arc<Policy>,
    above: Option<(Arc<RwLock<Iam>>, Place)>,
    others: Option<Arc<dyn Others>>,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("policy", &self.policy).finish_non_exhaustive()
    }
}

impl From<Arc<Policy>> for Access {
    fn from(policy: Arc<Policy>) -> Self {
        Self { policy, above: None, others: None }
    }
}

impl Holder for Access {
    fn policy(&self) -> &Policy {
        &self.policy
    }

    fn allows(&self, attributes: &Attributes<'_>) -> bool {
        self.decide(attributes).is_ok_and(|decision| decision.allowed)
    }

    fn held(&self, user: &User, namespace: &str) -> (Vec<Held>, Vec<String>) {
        let (mut held, errors) = self.policy.held(user, namespace);
        if let Some((iam, place)) = &self.above {
            let asked = Attributes { namespace, ..Attributes::resource(user, "", "", "") };
            held.extend(iam.read().held(user, &place(&asked), namespace));
        }
        (held, errors)
    }
}

impl Access {
    /// A plane's policy below the platform's.
    pub fn new(policy: Arc<Policy>, iam: Arc<RwLock<Iam>>, place: Place) -> Self {
        Self { policy, above: Some((iam, place)), others: None }
    }

    /// The same, with others who are asked too.
    pub fn asking(self, others: Arc<dyn Others>) -> Self {
        Self { others: Some(others), ..self }
    }

    /// Whether the user may do that, by all who are asked. What masters may do is nobody else's to say.
    ///
    /// # Errors
    /// Somebody could not be asked, and nobody else allowed it.
    pub fn decide(&self, attributes: &Attributes<'_>) -> Result<Decision, String> {
        let own = self.authorize(attributes);
        match &self.others {
            Some(others) if !attributes.user.is_in(MASTERS) => others.decide(attributes, own),
            _ => Ok(own),
        }
    }

    /// Whether the user may do that, by what is known here.
    pub fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        let decision = self.policy.authorize(attributes);
        match &self.above {
            Some((iam, place)) if !decision.allowed => {
                let found = iam.read().authorize(&place(attributes), attributes);
                found.map_or(decision, Decision::allow)
            }
            _ => decision,
        }
    }

    /// Why, or what each binding of the user lacks.
    pub fn explain(&self, attributes: &Attributes<'_>) -> String {
        let decision = self.authorize(attributes);
        if decision.allowed {
            let master = || format!("User {:?} is in the group {MASTERS:?}", attributes.user.name);
            return Some(decision.reason).filter(|reason| !reason.is_empty()).unwrap_or_else(master);
        }
        let mut lines = self.policy.explain(attributes);
        if let Some((iam, place)) = &self.above {
            lines.extend(iam.read().explain(&place(attributes), attributes));
        }
        let head =
            format!("nothing allows {} to User {:?}", iam::permission_of(attributes), attributes.user.name);
        if lines.is_empty() {
            return format!("{head}, who has no binding there");
        }
        format!("{head}:\n{}", lines.join("\n"))
    }

    /// What the platform alone says: why that is allowed.
    pub fn granted(&self, attributes: &Attributes<'_>) -> Option<String> {
        let (iam, place) = self.above.as_ref()?;
        iam.read().authorize(&place(attributes), attributes)
    }

    /// The bindings that name an organization or a project of one as their target ([`Iam::bindings_of`]).
    pub fn bindings_of(&self, kind: &str, name: &str, organization: &str) -> Vec<(String, String)> {
        let above = self.above.as_ref();
        above.map(|(iam, _)| iam.read().bindings_of(kind, name, organization)).unwrap_or_default()
    }

    /// Whether a user, who is what an invitation says, is asked to join.
    pub fn is_invited(&self, user: &User, spec: &Value) -> bool {
        let Some((iam, _)) = &self.above else { return false };
        let email = spec["email"].as_str().filter(|email| !email.is_empty());
        let by_name = spec["userRef"]["name"] == *user.name;
        user.plane.is_none()
            && (by_name || email.is_some_and(|email| iam.read().email(&user.name) == Some(email)))
    }

    /// Whether a user may change the suspension of an organization or project. Fails with 403.
    pub fn check_suspension(
        &self,
        user: &User,
        resource: &str,
        object: &Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let read = |object: &Value| Suspension::read(&object["spec"]);
        let (new, old) = (read(object), old.and_then(read));
        if new == old || user.is_in(MASTERS) {
            return Ok(());
        }
        for suspension in new.iter().chain(&old) {
            let name = if suspension.by_platform { "" } else { meta::name(object) };
            let asked =
                Attributes { name, ..Attributes::resource(user, "suspend", iam::RESOURCES_GROUP, resource) };
            if !self.allows(&asked) {
                let whose = if suspension.by_platform { "the platform's" } else { "the organization's" };
                let why = format!("user {:?} may not set or lift a suspension of {whose}", user.name);
                let resource = GroupResource::new(iam::RESOURCES_GROUP, resource);
                return Err(Status::forbidden(&resource, meta::name(object), &why));
            }
        }
        Ok(())
    }

    /// The `status` of a SelfSubjectRulesReview. Fails with 400 where the spec names no namespace.
    pub fn rules(&self, user: &User, spec: &Value) -> Result<Value, Status> {
        let namespace = spec["namespace"].as_str().unwrap_or_default();
        let (given, everywhere) = match &self.above {
            None => (Vec::new(), Vec::new()),
            Some((iam, place)) => {
                let at = |namespace| {
                    let asked = Attributes { namespace, ..Attributes::resource(user, "", "", "") };
                    iam.read().held(user, &place(&asked), namespace)
                };
                (at(namespace), at(""))
            }
        };
        let mut status = review::rules(&self.policy, user, spec)?;
        // What roles exclude can't be said in rules.
        let exact = given.iter().all(|held| held.except.is_empty());
        let list = |held: Vec<Held>| held.into_iter().map(|held| held.rule).collect::<Vec<_>>();
        review::add_rules(&mut status, &list(given), &list(everywhere));
        if !exact {
            status["incomplete"] = true.into();
        }
        Ok(status)
    }

    /// Whether `user` may write an object that says who may do what on the platform; `old` is what it was before.
    ///
    /// Nobody gives what they don't hold where it would count, unless they may `bind` roles there, or `escalate` them.
    /// Fails with 403.
    pub fn check_grant(
        &self,
        user: &User,
        resource: &str,
        object: &Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let unchanged = old.is_some_and(|old| old["spec"] == object["spec"]);
        let Some((iam, _)) = self.above.as_ref().filter(|_| !unchanged && !user.is_in(MASTERS)) else {
            return Ok(());
        };
        let namespace = meta::namespace(object);
        let verb = if resource == "roles" { "escalate" } else { "bind" };
        let pass = Attributes { namespace, ..Attributes::resource(user, verb, iam::GROUP, "roles") };
        if self.allows(&pass) {
            return Ok(());
        }
        let iam = iam.read();
        for (scope, rules) in iam::grants_of(&iam, resource, object) {
            let held = iam.held(user, &scope, "");
            if let Some(missing) = rules.iter().find_map(|rules| first_missing(&held, rules)) {
                let why =
                    format!("user {:?} is attempting to give what they do not hold: {missing}", user.name);
                let group =
                    if resource == "organizationmemberships" { iam::RESOURCES_GROUP } else { iam::GROUP };
                return Err(Status::forbidden(
                    &GroupResource::new(group, resource),
                    meta::name(object),
                    &why,
                ));
            }
        }
        Ok(())
    }
}

/// The first of a role's rules that is not held, as permissions.
fn first_missing(held: &[Held], rules: &Rules) -> Option<String> {
    let mut missing = rules.as_slice().iter().filter(|rule| !rule.resources.is_empty());
    missing.find(|rule| !held.iter().any(|own| holds(own, rule, rules.exceptions()))).map(iam::describe)
}
