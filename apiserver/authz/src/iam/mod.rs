//! The platform's own roles and bindings, which reach from the core plane into projects.
//!
//! [`Iam`] holds what the objects of `iam.freehold.dev` and the memberships of organizations say, namespace by namespace:
//! a change compiles the namespace that it is in anew, when next asked, and no other. A question about a project looks at
//! two namespaces, that of the platform and that of the project's organization, by the names of who asks: an answer costs
//! by the bindings of one user and not by how many there are.
//!
//! Guarantees: an organization's namespace never reaches beyond the organization and its projects, whatever its objects
//! name, and gives nothing to who is no member of the organization; an identity of one plane is given nothing.

mod compile;
mod explain;
mod facts;
mod permission;

pub(crate) use explain::permission as permission_of;
pub use facts::{Kind, Suspension};
pub(crate) use permission::describe;

use crate::{Attributes, Rule, RuleCache, Rules, rule::Probe};
use compile::{Compiled, Grant};
use facts::{Key, Namespace};
use freehold_machinery::{User, Value, meta, user::CREDENTIAL_ID};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

/// The API group.
pub const GROUP: &str = "iam.freehold.dev";
/// The API group of organizations, projects and memberships.
pub const RESOURCES_GROUP: &str = "resourcemanager.freehold.dev";
/// The API group of organizations' allowances.
pub const QUOTA_GROUP: &str = "quota.freehold.dev";
/// The namespace whose bindings reach everything, and whose roles all may use.
pub const SYSTEM: &str = "freehold-system";
/// The namespace of a plane's own machinery.
pub const SYSTEM_NAMESPACE: &str = "kube-system";
/// What the names of service accounts begin with, when they authenticate with a key.
pub const SERVICE_ACCOUNT: &str = "freehold:serviceaccount:";

/// The extra key with which the core server tells a dedicated pair that the platform allows a request, and why. Nobody
/// else can set it. It is said of that request and of nothing that its user may do besides, such as being somebody else.
pub const GRANTED: &str = "iam.freehold.dev/granted";

/// The name under which a service account authenticates.
pub fn service_account(namespace: &str, name: &str) -> String {
    format!("{SERVICE_ACCOUNT}{namespace}:{name}")
}

/// Where something is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The platform's own.
    Platform,
    /// What belongs to an organization.
    Organization(Arc<str>),
    /// What is in the control plane of a project.
    Project {
        /// The organization that owns it.
        organization: Arc<str>,
        /// Its name.
        project: Arc<str>,
    },
    /// In somebody else's: nothing is given there.
    Nowhere,
}

impl Scope {
    /// The organization that it belongs to.
    pub fn organization(&self) -> Option<&str> {
        match self {
            Self::Platform | Self::Nowhere => None,
            Self::Organization(organization) | Self::Project { organization, .. } => Some(organization),
        }
    }
}

/// A rule that somebody holds, but for what others say.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) rule: Rule,
    pub(crate) except: Arc<[Rule]>,
}

/// All that the platform's objects say of who may do what.
#[derive(Debug, Default)]
pub struct Iam {
    namespaces: HashMap<Box<str>, Namespace>,
    /// The groups (`namespace/name`) of users, each with the membership that puts them there.
    groups: HashMap<Box<str>, BTreeMap<Box<str>, Box<str>>>,
    deactivated: HashMap<Box<str>, BTreeMap<Box<str>, Box<str>>>,
    suspended: HashMap<Box<str>, Suspension>,
    /// The addresses of users, by the names under which they authenticate.
    emails: HashMap<Box<str>, Box<str>>,
    /// Credentials of users that don't count any more, likewise.
    revoked: HashMap<Box<str>, Box<[Box<str>]>>,
    /// Service accounts that count, as `namespace/name`.
    accounts: HashSet<Box<str>>,
    /// Their keys, likewise.
    keys: HashMap<Box<str>, Key>,
    /// Counts the changes of roles that all namespaces use.
    system: u64,
    rules: RuleCache,
}

impl Iam {
    /// Takes in an object; one that is `gone`, or on its way, with its last state.
    pub fn put(&mut self, kind: Kind, object: &Value, gone: bool) {
        let (namespace, name) = (meta::namespace(object), meta::name(object));
        let spec = &object["spec"];
        match kind {
            Kind::Deactivation => {
                let reason = spec["reason"].as_str().unwrap_or_default().to_owned();
                facts::of_user(&mut self.deactivated, name, spec, (!gone).then_some(reason));
            }
            Kind::User => {
                let given = spec["username"].as_str().filter(|username| !username.is_empty());
                let username = given.unwrap_or(name);
                match spec["email"].as_str().filter(|email| !gone && !email.is_empty()) {
                    Some(email) => drop(self.emails.insert(username.into(), email.into())),
                    None => drop(self.emails.remove(username)),
                }
                let revoked = spec["revokedCredentials"].as_array().filter(|_| !gone).into_iter().flatten();
                let revoked: Box<[Box<str>]> = revoked.filter_map(Value::as_str).map(Box::from).collect();
                match revoked.is_empty() {
                    false => drop(self.revoked.insert(username.into(), revoked)),
                    true => drop(self.revoked.remove(username)),
                }
            }
            Kind::Account => {
                let key = format!("{namespace}/{name}").into_boxed_str();
                let counts = !gone && !meta::is_deleting(object) && spec["disabled"] != true;
                if counts {
                    self.accounts.insert(key)
                } else {
                    self.accounts.remove(&key)
                };
            }
            Kind::Key => {
                let at = format!("{namespace}/{name}").into_boxed_str();
                match Key::read(namespace, spec).filter(|_| !gone && !meta::is_deleting(object)) {
                    Some(key) => drop(self.keys.insert(at, key)),
                    None => drop(self.keys.remove(&at)),
                }
            }
            Kind::Organization => match Suspension::read(spec).filter(|_| !gone) {
                Some(suspension) => drop(self.suspended.insert(name.into(), suspension)),
                None => drop(self.suspended.remove(name)),
            },
            Kind::GroupMembership => {
                let key = format!("{namespace}/{name}");
                let group = format!("{namespace}/{}", spec["groupRef"]["name"].as_str().unwrap_or_default());
                let counts = !gone && !meta::is_deleting(object);
                facts::of_user(&mut self.groups, &key, spec, counts.then_some(group));
            }
            Kind::Role | Kind::Binding | Kind::Membership => {
                let there = self.namespaces.entry(namespace.into()).or_default();
                there.put(kind, name, Some(object).filter(|_| !gone));
                if there.is_empty() {
                    self.namespaces.remove(namespace);
                }
                if namespace == SYSTEM && kind == Kind::Role {
                    self.system += 1;
                }
            }
        }
    }

    /// The bindings (namespace and name) of the platform, and of the organization that it is of, that name an organization
    /// or a project as their target.
    pub fn bindings_of(&self, kind: &str, name: &str, organization: &str) -> Vec<(String, String)> {
        let own = organization_namespace(organization);
        let namespaces =
            [SYSTEM, own.as_str()].into_iter().map(|namespace| (namespace, self.namespaces.get(namespace)));
        let mut found = Vec::new();
        for (namespace, there) in namespaces.filter_map(|(namespace, there)| Some((namespace, there?))) {
            let names = |spec: &Value| spec["target"]["kind"] == kind && spec["target"]["name"] == name;
            let bindings = there.bindings.iter().filter(|(_, spec)| names(spec));
            found.extend(bindings.map(|(binding, _)| (namespace.to_owned(), binding.to_string())));
        }
        found.sort_unstable();
        found
    }

    /// Why a user is locked out, if one is.
    pub fn deactivated(&self, user: &str) -> Option<&str> {
        self.deactivated.get(user)?.values().next().map(|reason| &**reason)
    }

    /// Whether the credential that a user of the platform authenticated with does not count any more.
    pub fn is_revoked(&self, user: &User) -> bool {
        let Some(revoked) = self.revoked.get(&*user.name) else { return false };
        let mut ids = user.extra.get(CREDENTIAL_ID).into_iter().flatten();
        ids.any(|id| revoked.iter().any(|revoked| **revoked == **id))
    }

    /// The address of a user, by the name under which they authenticate.
    pub fn email(&self, user: &str) -> Option<&str> {
        self.emails.get(user).map(|email| &**email)
    }

    /// The service account (`namespace/name`) of a key (likewise) whose token has that hash, if both count now.
    pub fn account_of(&self, key: &str, hash: &str, now: i64) -> Option<&str> {
        let found = self.keys.get(key).filter(|found| found.is_of(hash))?;
        (found.counts(now) && self.accounts.contains(&found.account)).then_some(&*found.account)
    }

    /// Whether a key counts now.
    pub fn has_key(&self, key: &str, now: i64) -> bool {
        self.keys.get(key).is_some_and(|found| found.counts(now) && self.accounts.contains(&found.account))
    }

    /// From when on a key does not count any more, in seconds since 1970; `None` where that is never or there is none.
    pub fn key_ends(&self, key: &str) -> Option<i64> {
        self.keys.get(key)?.expires
    }

    /// Whether any organization is suspended.
    pub fn has_suspended(&self) -> bool {
        !self.suspended.is_empty()
    }

    /// Whether an organization is suspended, and why.
    pub fn suspended(&self, organization: &str) -> Option<&Suspension> {
        self.suspended.get(organization)
    }

    /// The binding that allows something there, in words; `None` where none does.
    pub fn authorize(&self, scope: &Scope, attributes: &Attributes<'_>) -> Option<String> {
        let probe = Probe::new(attributes);
        self.visit(attributes.user, scope, |grant| {
            grant.allows(scope, attributes, probe).then(|| format!("IAM: allowed by {grant}"))
        })
    }

    /// Whether the namespace of an organization gives a user anything.
    pub fn is_member(&self, organization: &str, user: &str) -> bool {
        let namespace = organization_namespace(organization);
        let Some(compiled) = self.compiled(&namespace) else { return false };
        compiled.counts_for(&namespace, user) && self.named(&compiled, user).next().is_some()
    }

    /// Whether what the namespace of an organization says counts for a user: for a member, and for a service account of the
    /// organization's own.
    pub fn belongs(&self, organization: &str, user: &str) -> bool {
        let namespace = organization_namespace(organization);
        self.compiled(&namespace)
            .map_or_else(|| is_account_of(&namespace, user), |compiled| compiled.counts_for(&namespace, user))
    }

    /// What a namespace gives to a user by name, or to a group of the user.
    fn named<'a>(&'a self, compiled: &'a Compiled, user: &str) -> impl Iterator<Item = &'a Grant> {
        let groups = self.groups.get(user).into_iter().flat_map(|groups| groups.values());
        let grouped = groups.filter_map(|group| compiled.groups.get(&**group));
        compiled.users.get(user).into_iter().chain(grouped).flatten()
    }

    /// What bindings of an organization's namespace give to a user as soon as that is a member; nothing of who is one.
    fn dormant(&self, namespace: &str, user: &str) -> Vec<(Scope, Vec<Arc<Rules>>)> {
        match self.compiled(namespace).filter(|compiled| !compiled.counts_for(namespace, user)) {
            Some(compiled) => self.named(&compiled, user).map(|grant| grant.gives(namespace)).collect(),
            None => Vec::new(),
        }
    }

    /// The groups (`namespace/name`) of a user.
    pub fn groups_of(&self, user: &str) -> impl Iterator<Item = &str> {
        self.groups.get(user).into_iter().flat_map(|groups| groups.values().map(|group| &**group))
    }

    /// Whether the user is given anything there.
    pub fn is_known(&self, scope: &Scope, user: &User) -> bool {
        self.visit(user, scope, |grant| grant.reaches(scope).then_some(())).is_some()
    }

    /// Whether a binding gives a user anything of what a project's plane has, there: kinds of the platform are in no project.
    pub fn reaches_into(&self, scope: &Scope, user: &User) -> bool {
        self.visit(user, scope, |grant| grant.reaches_into(scope).then_some(())).is_some()
    }

    /// The rules that a user holds in a namespace (empty: everywhere) of a place.
    pub(crate) fn held(&self, user: &User, scope: &Scope, namespace: &str) -> Vec<Held> {
        let mut held = Vec::new();
        self.visit::<()>(user, scope, |grant| {
            grant.hold(scope, namespace, &mut held);
            None
        });
        held
    }

    /// What a role gives in a namespace that may use it; `None` where there is none.
    pub(crate) fn role(&self, used_in: &str, namespace: &str, name: &str) -> Option<Vec<Arc<Rules>>> {
        let none = Namespace::default();
        let own = self.namespaces.get(used_in).unwrap_or(&none);
        compile::role(used_in, own, self.namespaces.get(SYSTEM), &self.rules, (namespace, name))
    }

    /// What the members of a group (`namespace/name`), or a service account by its name, are given, and where.
    pub(crate) fn given(&self, namespace: &str, subject: &str) -> Vec<(Scope, Vec<Arc<Rules>>)> {
        let mut given = Vec::new();
        for at in [SYSTEM, namespace] {
            let Some(compiled) = self.compiled(at) else { continue };
            let grants =
                compiled.users.get(subject).into_iter().chain(compiled.groups.get(subject)).flatten();
            given.extend(grants.map(|grant| grant.gives(namespace)));
        }
        given
    }

    /// Shows `see` each grant of a user that could count there, until it gives something.
    fn visit<B>(&self, user: &User, scope: &Scope, mut see: impl FnMut(&Grant) -> Option<B>) -> Option<B> {
        if user.plane.is_some() || user.from_host || *scope == Scope::Nowhere {
            return None;
        }
        let own = scope.organization().map(organization_namespace);
        for namespace in std::iter::once(SYSTEM).chain(own.as_deref()) {
            let Some(compiled) = self.compiled(namespace) else { continue };
            if namespace != SYSTEM && !compiled.counts_for(namespace, &user.name) {
                continue;
            }
            let claimed = user.groups.iter().filter_map(|group| compiled.claims.get(group.as_str()));
            for grant in self.named(&compiled, &user.name).chain(claimed.flatten()) {
                if let Some(found) = see(grant) {
                    return Some(found);
                }
            }
        }
        None
    }

    fn compiled(&self, namespace: &str) -> Option<Arc<Compiled>> {
        let there = self.namespaces.get(namespace)?;
        let mut kept = there.compiled.lock();
        if let Some((system, compiled)) = &*kept
            && *system == self.system
        {
            return Some(compiled.clone());
        }
        let compiled = Arc::new(Compiled::new(namespace, there, self.namespaces.get(SYSTEM), &self.rules));
        *kept = Some((self.system, compiled.clone()));
        Some(compiled)
    }
}

/// What an object would give to somebody, and where.
pub(crate) fn grants_of(iam: &Iam, resource: &str, object: &Value) -> Vec<(Scope, Vec<Arc<Rules>>)> {
    let namespace = meta::namespace(object);
    let spec = &object["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let organization = organization_of(namespace);
    let own = || organization.map_or(Scope::Platform, |name| Scope::Organization(name.into()));
    let role = |reference: &Value| {
        let home = text(&reference["namespace"]);
        let home = if home.is_empty() { namespace.to_owned() } else { home };
        iam.role(namespace, &home, &text(&reference["name"])).unwrap_or_default()
    };
    match resource {
        "roles" => {
            let mut rules = vec![Arc::new(compile::rules_of(spec))];
            rules.extend(spec["inheritedRoles"].as_array().into_iter().flatten().flat_map(role));
            vec![(own(), rules)]
        }
        "policybindings" => {
            let name: Arc<str> = text(&spec["target"]["name"]).into();
            let scope = match spec["target"]["kind"].as_str() {
                Some("Platform") => Scope::Platform,
                Some("Organization") => Scope::Organization(name),
                _ => match organization {
                    Some(organization) => Scope::Project { organization: organization.into(), project: name },
                    None => Scope::Platform,
                },
            };
            vec![(scope, role(&spec["roleRef"]))]
        }
        "organizationmemberships" | "userinvitations" => {
            let roles = spec["roles"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let rules = roles.filter_map(|role| iam.role(namespace, SYSTEM, role)).flatten().collect();
            let mut given = iam.dormant(namespace, &text(&spec["userRef"]["name"]));
            given.push((own(), rules));
            given
        }
        "groupmemberships" => {
            iam.given(namespace, &format!("{namespace}/{}", text(&spec["groupRef"]["name"])))
        }
        "serviceaccountkeys" => {
            iam.given(namespace, &service_account(namespace, &text(&spec["serviceAccountRef"]["name"])))
        }
        _ => Vec::new(),
    }
}

/// Whose names begin to count with an object, beside what [`grants_of`] says that the platform's own bindings give.
pub(crate) fn awakened_by(resource: &str, object: &Value) -> Option<String> {
    let spec = &object["spec"];
    let named = |field: &str| spec[field]["name"].as_str();
    match resource {
        "organizationmemberships" | "userinvitations" => named("userRef").map(str::to_owned),
        "serviceaccountkeys" => {
            named("serviceAccountRef").map(|name| service_account(meta::namespace(object), name))
        }
        _ => None,
    }
}

/// Whether a user is a service account of a namespace, by a key. Those of Kubernetes are not: whoever may make tokens of them
/// would have what they are given, and keep it.
fn is_account_of(namespace: &str, user: &str) -> bool {
    let rest = user.strip_prefix(SERVICE_ACCOUNT);
    rest.and_then(|rest| rest.strip_prefix(namespace)).is_some_and(|name| name.starts_with(':'))
}

/// The organization of a namespace of the core plane, if it is one's.
pub fn organization_of(namespace: &str) -> Option<&str> {
    namespace.strip_prefix("organization-")
}

/// The namespace of an organization.
fn organization_namespace(organization: &str) -> String {
    format!("organization-{organization}")
}
