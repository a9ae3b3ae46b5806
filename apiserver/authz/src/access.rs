//! Authorization in one plane: its own roles and bindings, and the platform's above them.
//!
//! In the platform's own planes, what an organization's namespace says counts for what is the organization's ([`reserved`]
//! has what never is) and for its members alone, be it said by RBAC or by the platform's kinds.
//!
//! In a project's plane RBAC counts for identities of the plane, and for those of the platform whom the project's organization
//! or the platform lets in ([`Access::lets_in`]). To everybody else of the platform it gives what it gives without credentials.

use crate::{
    Attributes, Decision, Policy, Rules,
    escalation::{Holder, holds},
    iam::{self, Held, Iam, Scope, Suspension, organization_of},
    reserved, review,
};
use freehold_machinery::{
    GroupResource, Status, User, Value, meta, reserved as names,
    user::{ANONYMOUS, MASTERS},
};
use parking_lot::RwLock;
use std::{
    fmt,
    sync::{Arc, LazyLock},
};

/// As whom a project's RBAC sees somebody of the platform who has nothing to do with the project.
static NOBODY: LazyLock<User> = LazyLock::new(User::anonymous);

/// Where in the platform something is asked: of the core plane that depends on the question.
pub type Place = Arc<dyn Fn(&Attributes<'_>) -> Scope + Send + Sync>;

/// What else somebody has to be allowed who does that; `None` for nothing.
pub type Also = for<'a> fn(&Attributes<'a>) -> Option<Attributes<'a>>;

/// Who else is asked, before and behind what is known here.
pub trait Others: Send + Sync {
    /// What all of them say together; `own` is what is known here. May take its time, and block for it.
    ///
    /// # Errors
    /// Somebody could not be asked, and nobody else allowed it.
    fn decide(&self, asked: &Attributes<'_>, own: Decision) -> Result<Decision, String>;
}

/// The platform's roles and bindings, above those of a plane.
#[derive(Clone)]
struct Above {
    iam: Arc<RwLock<Iam>>,
    place: Place,
    /// Whether the plane is the platform's own, and no project's.
    is_own: bool,
}

/// What decides in one plane.
#[derive(Clone)]
pub struct Access {
    policy: Arc<Policy>,
    above: Option<Above>,
    also: Option<Also>,
    others: Option<Arc<dyn Others>>,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("policy", &self.policy).finish_non_exhaustive()
    }
}

impl From<Arc<Policy>> for Access {
    fn from(policy: Arc<Policy>) -> Self {
        Self { policy, above: None, also: None, others: None }
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
        let asked = Attributes { namespace, ..Attributes::resource(user, "", "", "") };
        let (mut held, errors) = self.policy.held(self.seen(user), self.bindings_for(&asked));
        if let Some(Above { iam, place, .. }) = &self.above {
            held.extend(iam.read().held(user, &place(&asked), namespace));
        }
        (held, errors)
    }
}

impl Access {
    /// A project's policy below the platform's.
    pub fn new(policy: Arc<Policy>, iam: Arc<RwLock<Iam>>, place: Place) -> Self {
        Self { policy, above: Some(Above { iam, place, is_own: false }), also: None, others: None }
    }

    /// The policy of one of the platform's own planes, in which namespaces can be organizations'.
    pub fn of_platform(policy: Arc<Policy>, iam: Arc<RwLock<Iam>>, place: Place) -> Self {
        Self { policy, above: Some(Above { iam, place, is_own: true }), also: None, others: None }
    }

    /// An access in which the platform's roles have to allow what `also` names, too.
    pub fn also(self, also: Also) -> Self {
        Self { also: Some(also), ..self }
    }

    /// Adds external authorizers, which are asked too.
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
            Some(others) if !own.denied && !attributes.user.is_in(MASTERS) => others.decide(attributes, own),
            _ => Ok(own),
        }
    }

    /// Why nobody but Freehold's controllers may do that, whatever allows it to others.
    pub fn denial(&self, attributes: &Attributes<'_>) -> Option<Decision> {
        let is_own = self.above.as_ref().is_some_and(|above| above.is_own);
        let denied =
            is_own && reserved::is_for_controllers(attributes) && !reserved::is_controller(attributes.user);
        denied.then(|| Decision::deny("Freehold's controllers alone write it"))
    }

    /// Whether RBAC of this plane counts for a user. In a project's plane it does for identities of the plane, for members of the
    /// project's organization, guests among them, for its service accounts and the users of its issuers, and for those to whom
    /// bindings of the platform give anything in the project. A name or group in a RoleBinding lets in nobody else, so it
    /// ends with the last membership.
    pub fn lets_in(&self, user: &User) -> bool {
        let Some(Above { iam, place, is_own: false }) = &self.above else { return true };
        let is_own = user.plane.is_some() || user.from_host || user.is_subject;
        if is_own || user.name == ANONYMOUS || names::is_component(user) || user.is_in(MASTERS) {
            return true;
        }
        let scope = place(&Attributes::resource(user, "", "", ""));
        let iam = iam.read();
        let belongs = |organization: &str| {
            let issued = user.name.strip_prefix(names::ORGANIZATION).and_then(|rest| rest.split_once(':'));
            issued.is_some_and(|(issuer, _)| issuer == organization) || iam.belongs(organization, &user.name)
        };
        scope.organization().is_some_and(belongs) || iam.reaches_into(&scope, user)
    }

    /// RBAC of the plane itself.
    pub(crate) fn rbac(&self) -> &Policy {
        &self.policy
    }

    /// As whom the plane's RBAC sees a user.
    pub(crate) fn seen<'u>(&self, user: &'u User) -> &'u User {
        if self.lets_in(user) { user } else { &NOBODY }
    }

    /// A question as the plane's RBAC is asked it.
    fn to_policy<'a>(&self, attributes: &Attributes<'a>) -> Attributes<'a> {
        Attributes { user: self.seen(attributes.user), ..*attributes }
    }

    /// The namespace whose RoleBindings count for a question; empty for none.
    fn bindings_for<'a>(&self, attributes: &Attributes<'a>) -> &'a str {
        let namespace = attributes.namespace;
        let (Some(above), Some(organization)) = (&self.above, organization_of(namespace)) else {
            return namespace;
        };
        if !above.is_own || !self.policy.has_bindings_in(namespace) {
            return namespace;
        }
        let counts = (above.place)(attributes) == Scope::Organization(organization.into())
            && above.iam.read().belongs(organization, &attributes.user.name);
        if counts { namespace } else { "" }
    }

    /// Whether the user may do that, by what is known here.
    pub fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        if let Some(denied) = self.denial(attributes) {
            return denied;
        }
        let decision = self.policy.authorize_by(&self.to_policy(attributes), self.bindings_for(attributes));
        if decision.allowed { decision } else { self.granted(attributes).map_or(decision, Decision::allow) }
    }

    /// Why, or what each binding of the user lacks.
    pub fn explain(&self, attributes: &Attributes<'_>) -> String {
        let decision = self.authorize(attributes);
        if decision.allowed {
            let master = || format!("User {:?} is in the group {MASTERS:?}", attributes.user.name);
            return Some(decision.reason).filter(|reason| !reason.is_empty()).unwrap_or_else(master);
        }
        if decision.denied {
            return decision.reason;
        }
        let mut lines = self.policy.explain(&self.to_policy(attributes), self.bindings_for(attributes));
        if let Some(Above { iam, place, .. }) = &self.above {
            let iam = iam.read();
            let also = self.also.and_then(|also| also(attributes));
            let lacks = also.filter(|also| iam.authorize(&place(also), also).is_none());
            lines.extend(lacks.iter().flat_map(|also| iam.explain(&place(also), also)));
            lines.extend(iam.explain(&place(attributes), attributes));
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
        let Above { iam, place, .. } = self.above.as_ref()?;
        let iam = iam.read();
        if let Some(also) = self.also.and_then(|also| also(attributes)) {
            iam.authorize(&place(&also), &also)?;
        }
        iam.authorize(&place(attributes), attributes)
    }

    /// The bindings that name an organization or a project of one as their target ([`Iam::bindings_of`]).
    pub fn bindings_of(&self, kind: &str, name: &str, organization: &str) -> Vec<(String, String)> {
        let above = self.above.as_ref();
        above.map(|above| above.iam.read().bindings_of(kind, name, organization)).unwrap_or_default()
    }

    /// Whether a user, who is what an invitation says, is asked to join.
    pub fn is_invited(&self, user: &User, spec: &Value) -> bool {
        let Some(Above { iam, .. }) = &self.above else { return false };
        let email = spec["email"].as_str().filter(|email| !email.is_empty());
        let by_name = spec["userRef"]["name"] == *user.name;
        user.plane.is_none()
            && (by_name || email.is_some_and(|email| iam.read().email(&user.name) == Some(email)))
    }

    /// Completes the suspension of an organization or project: one that does not say who lifts it is lifted by the platform
    /// where its author may suspend on the platform, and by the organization otherwise.
    pub fn complete_suspension(&self, user: &User, resource: &str, object: &mut Value) {
        let Some(suspension) = object.pointer_mut("/spec/suspension").and_then(Value::as_object_mut) else {
            return;
        };
        if suspension.get("liftedBy").is_none_or(Value::is_null) {
            let above = self.may_suspend(user, resource, "");
            suspension.insert("liftedBy".to_owned(), if above { "Platform" } else { "Organization" }.into());
        }
    }

    /// Whether a user may write an organization or project with regard to suspensions: setting, changing and lifting one needs
    /// the verb `suspend`, and what the platform suspended is left alone by those who may not lift that. `new` is `None` for
    /// a deletion.
    ///
    /// # Errors
    /// 403 where the user may not.
    pub fn check_suspension(
        &self,
        user: &User,
        resource: &str,
        new: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let read = |object: Option<&Value>| object.and_then(|object| Suspension::read(&object["spec"]));
        let (after, before) = (read(new), read(old));
        let unchanged = new.is_none() || after == before;
        if unchanged && !before.as_ref().is_some_and(|suspension| suspension.by_platform) {
            return Ok(());
        }
        let name = new.or(old).map(meta::name).unwrap_or_default();
        for suspension in after.iter().chain(&before) {
            if !self.may_suspend(user, resource, if suspension.by_platform { "" } else { name }) {
                let whose = if suspension.by_platform { "the platform's" } else { "the organization's" };
                let why = if unchanged {
                    format!("it is suspended by the platform: {}", suspension.reason)
                } else {
                    format!("user {:?} may not set or lift a suspension of {whose}", user.name)
                };
                return Err(Status::forbidden(
                    &GroupResource::new(iam::RESOURCES_GROUP, resource),
                    name,
                    &why,
                ));
            }
        }
        Ok(())
    }

    /// Whether a user may suspend an object, or, without a name, on the platform.
    fn may_suspend(&self, user: &User, resource: &str, name: &str) -> bool {
        let asked =
            Attributes { name, ..Attributes::resource(user, "suspend", iam::RESOURCES_GROUP, resource) };
        user.is_in(MASTERS) || self.allows(&asked)
    }

    /// Checks that a user may change which credentials of a project count.
    ///
    /// # Errors
    /// 403 with the missing permission.
    pub fn check_credentials(&self, user: &User, object: &Value, old: Option<&Value>) -> Result<(), Status> {
        let read = |object: &Value| object["spec"]["controlPlane"]["credentials"].clone();
        // A new project has no credentials yet.
        if user.is_in(MASTERS) || old.is_none_or(|old| read(old) == read(object)) {
            return Ok(());
        }
        self.check_credentials_of(user, meta::name(object))
    }

    /// Checks that a user may bring back what a project had: roles, bindings and accounts that were taken away meanwhile count
    /// again where it is restored, or forked from what it was.
    ///
    /// # Errors
    /// 403 with the missing permission.
    pub fn check_return(
        &self,
        user: &User,
        resource: &str,
        new: &Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let part = |object: &Value| match resource {
            "projects" => object["spec"]["controlPlane"]["from"].clone(),
            _ => object["spec"].clone(),
        };
        let asked = part(new);
        if user.is_in(MASTERS) || old.is_some_and(|old| part(old) == asked) {
            return Ok(());
        }
        let is_past = !asked["snapshot"].is_null() || !asked["revision"].is_null();
        let of_past = asked["project"].as_str().filter(|_| is_past);
        match of_past.or(asked["projectRef"]["name"].as_str()) {
            Some(project) => self.check_credentials_of(user, project),
            None => Ok(()),
        }
    }

    fn check_credentials_of(&self, user: &User, project: &str) -> Result<(), Status> {
        let asked = Attributes {
            name: project,
            subresource: "credentials",
            ..Attributes::resource(user, "update", iam::RESOURCES_GROUP, "projects")
        };
        if self.allows(&asked) {
            return Ok(());
        }
        let why = format!("user {:?} may not change which credentials count", user.name);
        Err(Status::forbidden(&GroupResource::new(iam::RESOURCES_GROUP, "projects"), project, &why))
    }

    /// Computes the `status` of a SelfSubjectRulesReview.
    ///
    /// # Errors
    /// 400 where the spec names no namespace.
    pub fn rules(&self, user: &User, spec: &Value) -> Result<Value, Status> {
        let namespace = spec["namespace"].as_str().unwrap_or_default();
        let at = |namespace| Attributes { namespace, ..Attributes::resource(user, "", "", "") };
        let (given, everywhere) = match &self.above {
            None => (Vec::new(), Vec::new()),
            Some(Above { iam, place, .. }) => {
                let held = |namespace| iam.read().held(user, &place(&at(namespace)), namespace);
                (held(namespace), held(""))
            }
        };
        let bindings = self.bindings_for(&at(namespace));
        let mut status = review::rules(&self.policy, self.seen(user), spec, bindings)?;
        // What roles exclude, and what is reserved, can't be said in rules.
        let reserves =
            organization_of(namespace).is_some() && self.above.as_ref().is_some_and(|above| above.is_own);
        let exact = !reserves && given.iter().all(|held| held.except.is_empty());
        let list = |held: Vec<Held>| held.into_iter().map(|held| held.rule).collect::<Vec<_>>();
        review::add_rules(&mut status, &list(given), &list(everywhere));
        if !exact {
            status["incomplete"] = true.into();
        }
        Ok(status)
    }

    /// Checks that `user` may write an object that grants rights on the platform; `old` is the existing object.
    ///
    /// Nobody grants what they do not hold where it would count, unless they may `bind` roles there, or `escalate`
    /// them.
    ///
    /// # Errors
    /// 403 with what is missing.
    pub fn check_grant(
        &self,
        user: &User,
        resource: &str,
        object: &Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let unchanged = old.is_some_and(|old| old["spec"] == object["spec"]);
        let Some(Above { iam, .. }) = self.above.as_ref().filter(|_| !unchanged && !user.is_in(MASTERS))
        else {
            return Ok(());
        };
        let namespace = meta::namespace(object);
        let verb = if resource == "roles" { "escalate" } else { "bind" };
        let pass = Attributes { namespace, ..Attributes::resource(user, verb, iam::GROUP, "roles") };
        if self.allows(&pass) {
            return Ok(());
        }
        let refused = |missing: String| {
            let why = format!("user {:?} is attempting to give what they do not hold: {missing}", user.name);
            let group = if resource == "organizationmemberships" { iam::RESOURCES_GROUP } else { iam::GROUP };
            Err(Status::forbidden(&GroupResource::new(group, resource), meta::name(object), &why))
        };
        // RoleBindings there may name somebody for whom they begin to count.
        if let Some(name) = iam::awakened_by(resource, object) {
            let (given, _) = self.policy.held(&User { name, ..User::default() }, namespace);
            let (held, _) = self.held(user, namespace);
            let missing = given.iter().find(|given| !held.iter().any(|own| holds(own, &given.rule, &[])));
            if let Some(missing) = missing {
                return refused(iam::describe(&missing.rule));
            }
        }
        let iam = iam.read();
        for (scope, rules) in iam::grants_of(&iam, resource, object) {
            let held = iam.held(user, &scope, "");
            if let Some(missing) = rules.iter().find_map(|rules| first_missing(&held, rules)) {
                return refused(missing);
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
