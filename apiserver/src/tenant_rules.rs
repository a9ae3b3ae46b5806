//! Rules of the tenancy subsystem in the server's own process: whose a new namespace is, what members may write on
//! namespaces, which host names collide, and which Tenants make sense. On other servers a webhook decides the same.
//!
//! What a policy can say is a policy, which `freehold install tenancy` brings; here is the rest. Decisions are those of
//! `freehold_tenancy_decide`, over objects in memory. A plane without the subsystem's kinds pays for finding that out.

use freehold_apiserver_admission::{Attributes, Lookup, Permission, Plugin, Verb};
use freehold_machinery::{PlaneId, Result, Value, meta};
use freehold_machinery_patch as patch;
use freehold_tenancy_api::{
    GROUP, VERSION,
    tenant::{Subject, Tenant},
};
use freehold_tenancy_decide::{
    admission::{
        Decision, Exempt, HostUse, Index, Operation, Request, User, acts_in_person, admit, hosts_of,
    },
    tenant::Namespace,
};
use std::{
    cell::{Cell, OnceCell},
    collections::HashMap,
    sync::Arc,
};

const API_VERSION: &str = "tenancy.freehold.dev/v1alpha1";
const GATEWAY: &str = "gateway.networking.k8s.io";
/// Objects with host names, by group and plural.
const HOSTED: [(&str, &str); 5] = [
    ("networking.k8s.io", "ingresses"),
    (GATEWAY, "httproutes"),
    (GATEWAY, "grpcroutes"),
    (GATEWAY, "tlsroutes"),
    (GATEWAY, "gateways"),
];

/// The rules of tenants that are no policies.
pub(crate) struct TenantRules;

impl Plugin for TenantRules {
    fn name(&self) -> &'static str {
        "TenantRules"
    }

    /// Gives a new namespace to its creator's tenant.
    fn admit(&self, attributes: &mut Attributes<'_>, lookup: &dyn Lookup) -> Result<()> {
        if !is_new_namespace(attributes) {
            return Ok(());
        }
        let operations = decide(attributes, lookup)?;
        if let Some(object) = attributes.object.as_deref_mut().filter(|_| !operations.is_empty()) {
            *object = patch::json(object, &operations.into())?;
        }
        Ok(())
    }

    fn validate(&self, attributes: &Attributes<'_>, lookup: &dyn Lookup) -> Result<()> {
        // What was decided about a new namespace is part of it by now.
        if is_new_namespace(attributes) || !concerns(attributes) {
            return Ok(());
        }
        decide(attributes, lookup).map(drop)
    }
}

fn is_new_namespace(attributes: &Attributes<'_>) -> bool {
    attributes.verb == Verb::Create && attributes.is("", "namespaces")
}

fn concerns(attributes: &Attributes<'_>) -> bool {
    let hosted = || HOSTED.iter().any(|(group, resource)| attributes.is(group, resource));
    attributes.is("", "namespaces")
        || attributes.is(GROUP, "tenants")
        || (matches!(attributes.verb, Verb::Create | Verb::Update) && hosted())
}

/// The changes of an object that is let in, as JSON patch operations.
fn decide(attributes: &Attributes<'_>, lookup: &dyn Lookup) -> Result<Vec<Value>> {
    let plane = attributes.plane;
    let operation = match attributes.verb {
        Verb::Create => Operation::Create,
        Verb::Update => Operation::Update,
        Verb::Delete => Operation::Delete,
        Verb::Connect => return Ok(Vec::new()),
    };
    if lookup.resource_of(plane, API_VERSION, "Tenant").is_none() || is_administrator(attributes, lookup) {
        return Ok(Vec::new());
    }
    let nothing = Value::Null;
    let user = User { name: attributes.user.name.clone(), groups: attributes.user.groups.clone() };
    let request = Request {
        operation,
        resource: attributes.ty.group_resource(),
        subresource: attributes.subresource,
        namespace: attributes.namespace,
        name: attributes.name,
        object: attributes.object().unwrap_or(&nothing),
        old: attributes.old.unwrap_or(&nothing),
        user: &user,
    };
    let memory =
        Memory { plane, lookup, tenants: OnceCell::new(), hosts: OnceCell::new(), asked: Cell::new(0) };
    match admit(&request, &memory, &Exempt::default()) {
        Decision::Allow(operations) => Ok(operations),
        Decision::Deny(message) => Err(attributes.forbidden(&message)),
    }
}

/// Whether the rules do not hold for a write: an administrator makes it, and for nobody else. Tenants have to make sense
/// whoever writes them.
fn is_administrator(attributes: &Attributes<'_>, lookup: &dyn Lookup) -> bool {
    let bypass = Permission {
        verb: "bypass",
        group: GROUP,
        version: VERSION,
        resource: "tenants",
        ..Permission::default()
    };
    let in_person = || match attributes.object() {
        Some(object) if !attributes.is("", "namespaces") => {
            acts_in_person(&attributes.user.name, &attributes.ty.group_resource(), object)
        }
        _ => true,
    };
    !attributes.is(GROUP, "tenants")
        && in_person()
        && lookup.allows(attributes.plane, attributes.user, &bypass)
}

type HostPath = (String, String);
/// Namespace and name of the objects that have a host name and path.
type Uses = HashMap<HostPath, Vec<(String, String)>>;

/// Host names of one write that are looked for one by one, in objects that mention them. Beyond, all objects are parsed once.
const FEW: u32 = 8;

/// What decisions look up: the plane's objects in memory. Those of which all are needed are read once.
struct Memory<'a> {
    plane: &'a PlaneId,
    lookup: &'a dyn Lookup,
    tenants: OnceCell<Vec<Arc<Tenant>>>,
    /// The uses of all host names.
    hosts: OnceCell<Uses>,
    /// How many host names were asked for.
    asked: Cell<u32>,
}

fn tenant_of(object: &Value) -> Option<Arc<Tenant>> {
    serde_json::from_value(object.clone()).ok().map(Arc::new)
}

impl Memory<'_> {
    /// The uses of host names in objects that have a text.
    fn uses(&self, text: &str) -> Uses {
        let mut uses = Uses::new();
        // A Gateway's listeners share hosts with the routes behind them.
        for (group, resource) in HOSTED.iter().filter(|(_, resource)| *resource != "gateways") {
            let kind = freehold_machinery::GroupResource::new(*group, *resource);
            for object in self.lookup.list_mentioning(self.plane, group, resource, text) {
                let place = (meta::namespace(&object).to_owned(), meta::name(&object).to_owned());
                for host in hosts_of(&kind, &object) {
                    uses.entry(host).or_default().push(place.clone());
                }
            }
        }
        uses
    }
}

impl Index for Memory<'_> {
    fn namespace(&self, name: &str) -> Option<Arc<Namespace>> {
        let object = self.lookup.get(self.plane, "", "namespaces", "", name)?;
        Some(Arc::new(Namespace::of(&object)))
    }

    fn tenant(&self, name: &str) -> Option<Arc<Tenant>> {
        let object = self.lookup.get(self.plane, GROUP, "tenants", "", name)?;
        tenant_of(&object)
    }

    fn tenants_of(&self, subject: &Subject) -> Vec<Arc<Tenant>> {
        let read = || self.lookup.list(self.plane, GROUP, "tenants", "");
        let tenants =
            self.tenants.get_or_init(|| read().iter().filter_map(|tenant| tenant_of(tenant)).collect());
        let has = |tenant: &&Arc<Tenant>| {
            tenant.spec.members.iter().any(|member| member.subjects.contains(subject))
        };
        tenants.iter().filter(has).cloned().collect()
    }

    fn host_uses(&self, host: &str, path: &str) -> Vec<HostUse> {
        self.asked.set(self.asked.get() + 1);
        let few;
        let hosts = match self.hosts.get() {
            None if self.asked.get() <= FEW && !host.is_empty() => {
                few = self.uses(host);
                &few
            }
            _ => self.hosts.get_or_init(|| self.uses("")),
        };
        let places = hosts.get(&(host.to_owned(), path.to_owned())).into_iter().flatten();
        let of = |(namespace, name): &(String, String)| HostUse {
            tenant: self.namespace(namespace).and_then(|found| found.tenant().map(str::to_owned)),
            namespace: namespace.clone(),
            name: name.clone(),
        };
        places.map(of).collect()
    }
}
