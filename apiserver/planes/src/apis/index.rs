//! What the server knows of exports, schemas and bindings, by plane.

use super::compiled::{Schema, TypeCache, Types};
use super::rollout::{Labels, Rollout};
use freehold_api::apis::{
    self, ApiBindingSpec, ApiBindingStatus, ApiExportSpec, ExportLimit, ExportedRole, PermissionClaim,
};
use freehold_api::rollouts::ROLLOUTS;
use freehold_apiserver_cache::Entry;
use freehold_machinery::{PlaneId, PlaneMap, Value, crd::Exporter};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

/// Groups that nobody gets at through a claim: who writes there gives rights, identities or code.
const UNCLAIMED: [&str; 9] = [
    "rbac.authorization.k8s.io",
    "apiextensions.k8s.io",
    "admissionregistration.k8s.io",
    "apiregistration.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "certificates.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    apis::GROUP,
];

/// An export.
pub struct Export {
    /// The provider's plane.
    pub plane: PlaneId,
    /// Its name.
    pub name: Box<str>,
    /// Tells its objects from those of others with the same group and resource.
    pub identity: Box<str>,
    /// The names of its schemas.
    pub schemas: Vec<Box<str>>,
    /// What it claims of consumers, default claims among it.
    pub claims: Vec<Claim>,
    /// Claims that count as accepted by who binds it and does not reject them.
    pub defaults: Vec<Claim>,
    /// Terms that who binds it has to accept.
    pub terms: String,
    /// What it adds to ClusterRoles of consumers.
    pub roles: Vec<ExportedRole>,
    /// How many objects consumers may have.
    pub limits: Vec<ExportLimit>,
    /// Its `policies` and `webhooks` as they stand in its spec; null for none.
    pub admission: Value,
    /// Organizations whose projects may bind it; `*` for all.
    pub organizations: Vec<String>,
    /// Labels that those projects have to have.
    pub project_labels: Labels,
    /// The revision that it was made at.
    pub created: u64,
    /// The revision that it was last written at.
    pub modified: u64,
    /// The revision since which its schemas are what they are; later where that is not known.
    pub(super) since: u64,
    pub(super) types: TypeCache,
    /// The types of an export of the platform itself.
    pub(super) fixed: Option<Types>,
}

/// What a provider may do in a consumer's plane.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim(pub PermissionClaim);

/// A binding, as far as it is read before its proof is looked at.
#[derive(Clone, Debug, PartialEq)]
pub struct Binding {
    /// Its name.
    pub name: Box<str>,
    /// The provider's plane.
    pub provider: Box<str>,
    /// The export.
    pub export: Box<str>,
    /// The server's proof.
    pub proof: Box<str>,
    /// What the consumer grants.
    pub accepted: Vec<Claim>,
    /// Its labels.
    pub labels: Labels,
    /// The revision that it was made at.
    pub created: u64,
}

/// Where an object stands in the index.
#[derive(Clone, Copy)]
pub(super) struct Slot {
    pub(super) revision: u64,
    pub(super) present: bool,
}

type Named<T> = HashMap<(PlaneId, Box<str>), (u64, Option<Arc<T>>)>;
/// Bindings of one plane by name, each with the revision that wrote it.
type Bindings = HashMap<Box<str>, (u64, Option<Arc<Binding>>)>;

#[derive(Default)]
pub(super) struct Index {
    exports: Named<Export>,
    schemas: Named<Schema>,
    rollouts: Named<Rollout>,
    /// The rollouts of each export that are under way, the oldest first.
    open: HashMap<(PlaneId, Box<str>), Vec<Arc<Rollout>>>,
    bindings: PlaneMap<Bindings>,
    /// Exports by what their objects are stored under.
    identities: HashMap<Box<str>, (PlaneId, Box<str>)>,
    /// Planes with a binding to an export, proved or not.
    consumers: HashMap<(Box<str>, Box<str>), BTreeSet<PlaneId>>,
    /// When a consumer of an export went last, or took something back that it had granted.
    restricted: HashMap<(Box<str>, Box<str>), u64>,
    /// Whether everything was read: then what went need not be remembered.
    settled: bool,
}

impl Export {
    fn read(plane: &PlaneId, entry: &Entry, before: Option<&Self>) -> Option<Self> {
        let spec: ApiExportSpec = spec_of(&entry.value())?;
        let mut export = Self {
            plane: plane.clone(),
            name: entry.name().into(),
            identity: identity(plane, entry.name()).into(),
            schemas: spec.schemas.into_iter().map(Into::into).collect(),
            claims: spec.claims.into_iter().chain(spec.default_claims.clone()).map(Claim).collect(),
            defaults: spec.default_claims.into_iter().map(Claim).collect(),
            terms: spec.terms,
            roles: spec.roles,
            limits: spec.limits,
            admission: match spec.policies.is_empty() && spec.webhooks.is_empty() {
                true => Value::Null,
                false => serde_json::json!({"policies": spec.policies, "webhooks": spec.webhooks}),
            },
            organizations: spec.consumers.organizations,
            project_labels: spec.consumers.labels,
            created: entry.created,
            modified: entry.modified,
            since: entry.modified,
            types: TypeCache::default(),
            fixed: None,
        };
        if let Some(before) = before.filter(|before| before.serves_like(&export)) {
            export.since = before.since;
        }
        Some(export)
    }

    /// Whether consumers are served the same types, with the same roles about them, by two states of an export.
    fn serves_like(&self, other: &Self) -> bool {
        self.created == other.created && self.schemas == other.schemas && self.roles == other.roles
    }

    /// The export as its types need it, with the revision since which it has their schemas.
    pub(super) fn exporter(&self, since: u64) -> Exporter<'_> {
        Exporter { home: &self.plane, identity: &self.identity, since }
    }

    /// Whether projects of an organization may bind it without a right in the provider's project.
    pub fn is_for(&self, organization: &str) -> bool {
        self.organizations.iter().any(|one| one == "*" || one == organization)
    }
}

impl Claim {
    /// Whether a verb on a resource is among what is claimed, whatever the object.
    pub fn is_about(&self, verb: &str, group: &str, resource: &str) -> bool {
        let Self(claim) = self;
        claim.group == group
            && claim.resource == resource
            && claim.verbs.iter().any(|own| own == "*" || own == verb)
    }

    /// Whether an object is among those that are claimed.
    pub fn selects<'a>(&self, name: &str, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        let Self(claim) = self;
        (claim.names.is_empty() || claim.names.iter().any(|own| own == name))
            && claim.labels.iter().all(|(key, value)| label(key) == Some(value))
    }

    /// Whether another claim asks for no more than this one.
    pub fn covers(&self, verb: &str, other: &Self) -> bool {
        let (Self(own), Self(other)) = (self, other);
        let names = own.names.is_empty()
            || !other.names.is_empty() && other.names.iter().all(|name| own.names.contains(name));
        let labels = own.labels.iter().all(|(key, value)| other.labels.get(key) == Some(value));
        self.is_about(verb, &other.group, &other.resource) && names && labels
    }
}

impl Binding {
    /// The export that an object binds, as the server wrote it into its status.
    pub(crate) fn read(entry: &Entry) -> Option<Self> {
        let object = entry.value();
        let spec: ApiBindingSpec = spec_of(&object)?;
        let status = ApiBindingStatus::deserialize(&object["status"]).ok()?;
        Some(Self {
            name: entry.name().into(),
            provider: status.plane.into(),
            export: spec.export.name.into(),
            proof: status.proof.into(),
            accepted: spec.accepted_claims.into_iter().chain(status.default_claims).map(Claim).collect(),
            labels: labels_of(&object),
            created: entry.created,
        })
    }

    /// Whether it names an export.
    pub fn is_for(&self, export: &Export) -> bool {
        *self.provider == *export.plane.as_str() && self.export == export.name
    }

    /// Whether everything that this binding grants is granted by another one too.
    pub(super) fn is_within(&self, other: &Self) -> bool {
        self.provider == other.provider && self.accepted.iter().all(|claim| other.accepted.contains(claim))
    }

    /// What the provider may do with a resource: accepted by the consumer and claimed by the export.
    pub fn granted(&self, export: &Export, verb: &str, group: &str, resource: &str) -> Vec<Claim> {
        if UNCLAIMED.contains(&group) {
            return Vec::new();
        }
        let accepted = self.accepted.iter().filter(|claim| claim.is_about(verb, group, resource));
        let is_claimed = |claim: &&Claim| export.claims.iter().any(|asked| asked.covers(verb, claim));
        accepted.filter(is_claimed).cloned().collect()
    }
}

impl Index {
    pub(super) fn export(&self, plane: &PlaneId, name: &str) -> Option<Arc<Export>> {
        self.exports.get(&(plane.clone(), name.into()))?.1.clone()
    }

    pub(super) fn exports(&self) -> Vec<Arc<Export>> {
        self.exports.values().filter_map(|(_, export)| export.clone()).collect()
    }

    /// The export that objects are stored under.
    pub(super) fn export_of(&self, identity: &str) -> Option<Arc<Export>> {
        let (plane, name) = self.identities.get(identity)?;
        self.export(plane, name)
    }

    pub(super) fn schema(&self, plane: &PlaneId, name: &str) -> Option<Arc<Schema>> {
        self.schemas.get(&(plane.clone(), name.into()))?.1.clone()
    }

    pub(super) fn export_with(&self, plane: &PlaneId, schema: &str) -> Option<Box<str>> {
        let own = self.exports.values().filter_map(|(_, export)| export.as_ref());
        let names = |export: &&Arc<Export>| {
            export.plane == *plane && export.schemas.iter().any(|name| **name == *schema)
        };
        own.into_iter().find(names).map(|export| export.name.clone())
    }

    pub(super) fn bindings_of(&self, plane: &PlaneId) -> Vec<Arc<Binding>> {
        let own = self.bindings.get(plane).into_iter().flat_map(HashMap::values);
        own.filter_map(|(_, binding)| binding.clone()).collect()
    }

    pub(super) fn has_bindings(&self, plane: &PlaneId) -> bool {
        self.bindings.contains_key(plane)
    }

    pub(super) fn consumers(&self, provider: &PlaneId, export: &str) -> Vec<PlaneId> {
        let key = (Box::from(provider.as_str()), Box::from(export));
        self.consumers.get(&key).into_iter().flatten().cloned().collect()
    }

    /// The revision at which a consumer of an export went last, or took something back.
    pub(super) fn restricted(&self, export: &Export) -> u64 {
        let key = (Box::from(export.plane.as_str()), export.name.clone());
        self.restricted.get(&key).copied().unwrap_or_default()
    }

    /// Whether any rollout is under way.
    pub(super) fn has_rollouts(&self) -> bool {
        !self.open.is_empty()
    }

    /// The rollout of an export that counts: of those that are under way, the oldest.
    pub(super) fn rollout(&self, plane: &PlaneId, export: &str) -> Option<Arc<Rollout>> {
        self.open.get(&(plane.clone(), export.into()))?.first().cloned()
    }

    /// A rollout of a plane that is under way and names a schema.
    pub(super) fn rollout_with(&self, plane: &PlaneId, schema: &str) -> Option<Box<str>> {
        let own = self.open.iter().filter(|((of, _), _)| of == plane).flat_map(|(_, open)| open);
        let names = |rollout: &&Arc<Rollout>| rollout.schemas.iter().any(|name| **name == *schema);
        own.into_iter().find(names).map(|rollout| rollout.name.clone())
    }

    /// Takes in an object as of a revision, unless a later state of it is known. Returns whether planes may serve other
    /// types now.
    pub(super) fn put(&mut self, plane: &PlaneId, resource: &str, entry: &Entry, slot: Slot) -> bool {
        let key = (plane.clone(), Box::from(entry.name()));
        let changed = match resource {
            apis::EXPORTS => self.put_export(key, entry, slot),
            apis::SCHEMAS => {
                let read = |_: Option<&Schema>| {
                    Some(Schema { spec: entry.value()["spec"].clone(), modified: entry.modified })
                };
                replace(&mut self.schemas, key, slot, read);
                // A schema that nobody names yet changes nothing.
                self.export_with(plane, entry.name()).is_some()
                    || self.rollout_with(plane, entry.name()).is_some()
            }
            ROLLOUTS => self.put_rollout(key, entry, slot),
            _ => {
                self.put_binding(plane, entry, slot);
                false
            }
        };
        if self.settled {
            self.forget_absent(plane, entry.name());
        }
        changed
    }

    fn put_export(&mut self, key: (PlaneId, Box<str>), entry: &Entry, slot: Slot) -> bool {
        if slot.present {
            self.identities.insert(identity(&key.0, &key.1).into(), key.clone());
        }
        let plane = key.0.clone();
        let read = |before: Option<&Export>| Export::read(&plane, entry, before);
        let (before, after) = replace(&mut self.exports, key.clone(), slot, read);
        // Roles are compiled with the types of a plane, and anew for types that are made anew.
        let changed = !is_same(before.as_deref(), after.as_deref(), Export::serves_like);
        if changed {
            self.open.get(&key).into_iter().flatten().for_each(|rollout| rollout.types.clear());
        }
        changed
    }

    fn put_rollout(&mut self, key: (PlaneId, Box<str>), entry: &Entry, slot: Slot) -> bool {
        let plane = key.0.clone();
        let read = |before: Option<&Rollout>| Rollout::read(&plane, entry, before);
        let (before, after) = replace(&mut self.rollouts, key, slot, read);
        if let Some(before) = &before {
            let at = (plane.clone(), before.export.clone());
            if let Some(open) = self.open.get_mut(&at) {
                open.retain(|rollout| rollout.name != before.name);
                if open.is_empty() {
                    self.open.remove(&at);
                }
            }
        }
        if let Some(after) = after.as_ref().filter(|after| after.is_open()) {
            let open = self.open.entry((plane, after.export.clone())).or_default();
            open.push(after.clone());
            open.sort_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
        }
        !is_same(before.as_deref(), after.as_deref(), Rollout::serves_like)
    }

    fn put_binding(&mut self, plane: &PlaneId, entry: &Entry, slot: Slot) {
        let own = self.bindings.entry(plane.clone()).or_default();
        let before = own.get(entry.name()).and_then(|(_, binding)| binding.clone());
        replace(own, entry.name().into(), slot, |_| Binding::read(entry));
        let after = own.get(entry.name()).and_then(|(_, binding)| binding.clone());
        if let Some(before) = before
            && after.as_ref().is_none_or(|after| !before.is_within(after))
        {
            self.restricted.insert((before.provider.clone(), before.export.clone()), slot.revision);
        }
        // Of a binding that went, its plane stays among the candidates until the next start: each is looked at again.
        if let Some((_, Some(binding))) = own.get(entry.name()) {
            let key = (binding.provider.clone(), binding.export.clone());
            self.consumers.entry(key).or_default().insert(plane.clone());
        }
    }

    /// A binding went at a revision, or took something back.
    pub(super) fn restrict(&mut self, binding: &Binding, revision: u64) {
        self.restricted.insert((binding.provider.clone(), binding.export.clone()), revision);
    }

    /// Everything has been read: what went before is forgotten.
    pub(super) fn settle(&mut self) {
        self.settled = true;
        self.exports.retain(|_, (_, export)| export.is_some());
        self.schemas.retain(|_, (_, schema)| schema.is_some());
        self.rollouts.retain(|_, (_, rollout)| rollout.is_some());
    }

    fn forget_absent(&mut self, plane: &PlaneId, name: &str) {
        let key = (plane.clone(), Box::from(name));
        if self.exports.get(&key).is_some_and(|(_, export)| export.is_none()) {
            self.exports.remove(&key);
            self.identities.remove(&*identity(plane, name));
        }
        if self.schemas.get(&key).is_some_and(|(_, schema)| schema.is_none()) {
            self.schemas.remove(&key);
        }
        if self.rollouts.get(&key).is_some_and(|(_, rollout)| rollout.is_none()) {
            self.rollouts.remove(&key);
        }
        let Some(own) = self.bindings.get_mut(plane) else { return };
        own.retain(|_, (_, binding)| binding.is_some());
        let gone = own.is_empty();
        if gone {
            self.bindings.remove(plane);
            self.consumers.retain(|_, planes| {
                planes.remove(plane);
                !planes.is_empty()
            });
        }
    }
}

/// Replaces what is known of an object by a later state. Returns what was known before, and what is now.
fn replace<K: std::hash::Hash + Eq, T>(
    map: &mut HashMap<K, (u64, Option<Arc<T>>)>,
    key: K,
    slot: Slot,
    read: impl FnOnce(Option<&T>) -> Option<T>,
) -> (Option<Arc<T>>, Option<Arc<T>>) {
    let (revision, before) = map.get(&key).cloned().unwrap_or_default();
    if revision > slot.revision {
        return (before.clone(), before);
    }
    let value = if slot.present { read(before.as_deref()).map(Arc::new) } else { None };
    map.insert(key, (slot.revision, value.clone()));
    (before, value)
}

/// Whether two states are the same in what planes serve.
fn is_same<T>(before: Option<&T>, after: Option<&T>, like: impl Fn(&T, &T) -> bool) -> bool {
    match (before, after) {
        (Some(before), Some(after)) => like(before, after),
        (None, None) => true,
        _ => false,
    }
}

fn labels_of(object: &Value) -> Labels {
    let labels = object["metadata"]["labels"].as_object().into_iter().flatten();
    labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

fn spec_of<T: serde::de::DeserializeOwned>(object: &Value) -> Option<T> {
    T::deserialize(&object["spec"]).ok()
}

/// The identity of an export: it follows from the plane and the name, so that one that is made again finds its objects.
pub fn identity(plane: &PlaneId, name: &str) -> String {
    let digest = Sha256::digest(format!("freehold export\n{plane}\n{name}"));
    hex::encode(&digest[..16])
}

/// The digest of terms, which bindings name; empty for no terms.
pub fn terms_digest(terms: &str) -> String {
    if terms.is_empty() {
        return String::new();
    }
    format!("sha256:{}", &hex::encode(Sha256::digest(terms))[..32])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(resource: &str, verbs: &[&str], names: &[&str]) -> Claim {
        let list = |items: &[&str]| items.iter().map(|item| (*item).to_owned()).collect();
        Claim(PermissionClaim {
            resource: resource.into(),
            verbs: list(verbs),
            names: list(names),
            ..Default::default()
        })
    }

    #[test]
    fn what_a_consumer_accepts_counts_as_far_as_the_export_claims_it() {
        let rows = [
            (claim("secrets", &["get"], &[]), claim("secrets", &["get"], &["a"]), "get", true),
            (claim("secrets", &["get"], &["a"]), claim("secrets", &["get"], &[]), "get", false),
            (claim("secrets", &["get"], &["a"]), claim("secrets", &["get"], &["a"]), "get", true),
            (claim("secrets", &["get"], &["a"]), claim("secrets", &["get"], &["b"]), "get", false),
            (claim("secrets", &["get"], &[]), claim("secrets", &["*"], &[]), "list", false),
            (claim("configmaps", &["*"], &[]), claim("secrets", &["get"], &[]), "get", false),
        ];
        for (asked, accepted, verb, expected) in rows {
            assert_eq!(asked.covers(verb, &accepted), expected, "{asked:?} {accepted:?}");
        }
    }

    #[test]
    fn a_claim_by_name_and_label_selects_those_objects() {
        let mut one = claim("secrets", &["get"], &["a"]);
        assert!(one.selects("a", |_| None) && !one.selects("b", |_| None));
        one.0.labels.insert("app".into(), "db".into());
        assert!(!one.selects("a", |_| None) && one.selects("a", |key| (key == "app").then_some("db")));
    }
}
