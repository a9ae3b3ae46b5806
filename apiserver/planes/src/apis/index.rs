//! What the server knows of exports, schemas and bindings, by plane.

use freehold_api::apis::{
    self, ApiBindingSpec, ApiBindingStatus, ApiExportSpec, ExportLimit, ExportedRole, PermissionClaim,
};
use freehold_apiserver_cache::Entry;
use freehold_machinery::{
    GroupVersionKind, PlaneId, PlaneMap, ResourceType, Value, crd, crd::references::Reference,
    resource::Subresource,
};
use parking_lot::Mutex;
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

/// Fields that name objects, by group, resource and version.
pub(super) type ReferenceFields = HashMap<(Box<str>, Box<str>, Box<str>), Arc<[Reference]>>;
/// Types of an export, and the generation that they were compiled in.
type Compiled = Option<(u64, Types)>;

/// Types of an export.
#[derive(Clone)]
pub(super) struct Types {
    /// As consumers' planes serve them.
    pub(super) served: Arc<[Arc<ResourceType>]>,
    /// As readers of all planes find them, beside types of other exports with the same group and resource: under the
    /// resource that objects are stored as, `<resource>:<identity>`.
    pub(super) everywhere: Arc<[Arc<ResourceType>]>,
    /// Fields that name objects.
    pub(super) references: Arc<ReferenceFields>,
}

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
    /// Organizations whose projects may bind it; `*` for all.
    pub organizations: Vec<String>,
    /// The revision that it was made at.
    pub created: u64,
    /// The revision that it was last written at.
    pub modified: u64,
    types: Mutex<Compiled>,
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
    /// The revision that it was made at.
    pub created: u64,
}

/// Where an object stands in the index.
#[derive(Clone, Copy)]
pub(super) struct Slot {
    pub(super) revision: u64,
    pub(super) present: bool,
}

/// A schema as it is named in an export.
pub(super) struct Schema {
    spec: Value,
    modified: u64,
}

type Named<T> = HashMap<(PlaneId, Box<str>), (u64, Option<Arc<T>>)>;
/// Bindings of one plane by name, each with the revision that wrote it.
type Bindings = HashMap<Box<str>, (u64, Option<Arc<Binding>>)>;

#[derive(Default)]
pub(super) struct Index {
    exports: Named<Export>,
    schemas: Named<Schema>,
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
    fn read(plane: &PlaneId, entry: &Entry) -> Option<Self> {
        let spec: ApiExportSpec = spec_of(&entry.value())?;
        Some(Self {
            plane: plane.clone(),
            name: entry.name().into(),
            identity: identity(plane, entry.name()).into(),
            schemas: spec.schemas.into_iter().map(Into::into).collect(),
            claims: spec.claims.into_iter().chain(spec.default_claims.clone()).map(Claim).collect(),
            defaults: spec.default_claims.into_iter().map(Claim).collect(),
            terms: spec.terms,
            roles: spec.roles,
            limits: spec.limits,
            organizations: spec.consumers.organizations,
            created: entry.created,
            modified: entry.modified,
            types: Mutex::default(),
        })
    }

    /// Whether projects of an organization may bind it without a right in the provider's project.
    pub fn is_for(&self, organization: &str) -> bool {
        self.organizations.iter().any(|one| one == "*" || one == organization)
    }

    pub(super) fn types(&self, schema: impl Fn(&str) -> Option<Arc<Schema>>, generation: u64) -> Types {
        let mut known = self.types.lock();
        if let Some((at, types)) = &*known
            && *at == generation
        {
            return types.clone();
        }
        let schemas: Vec<Arc<Schema>> = self.schemas.iter().filter_map(|name| schema(name)).collect();
        let references = references_of(&schemas);
        let served = self.compile(&schemas, &references);
        // Equal types stay the same values, so that planes' sets do.
        let is_equal =
            |before: &Types| before.served.iter().map(|ty| &ty.hash).eq(served.iter().map(|ty| &ty.hash));
        let types = match &*known {
            Some((_, before)) if is_equal(before) => before.clone(),
            _ => {
                let everywhere =
                    self.compile(&schemas, &references).into_iter().filter_map(everywhere).collect();
                Types { served: served.into(), everywhere, references: references.into() }
            }
        };
        *known = Some((generation, types.clone()));
        types
    }

    fn compile(&self, schemas: &[Arc<Schema>], references: &ReferenceFields) -> Vec<Arc<ResourceType>> {
        let mut types: Vec<Arc<ResourceType>> = Vec::new();
        for schema in schemas {
            let since = self.modified.max(schema.modified);
            // What can't be compiled was refused when it was written.
            let compiled = crd::exported(&schema.spec, &self.identity, since).unwrap_or_default();
            let is_taken = |ty: &Arc<ResourceType>| {
                types.iter().any(|other| other.group == ty.group && other.plural == ty.plural)
            };
            if !compiled.iter().any(is_taken) {
                types.extend(compiled.into_iter().map(|ty| with_referrers(ty, references)));
            }
        }
        types
    }
}

/// The fields of an export's schemas that name objects. A schema with wrong ones was refused when it was written.
fn references_of(schemas: &[Arc<Schema>]) -> ReferenceFields {
    let mut found = ReferenceFields::new();
    for Schema { spec, .. } in schemas.iter().map(|schema| &**schema) {
        let (group, plural) = (text(&spec["group"]), text(&spec["names"]["plural"]));
        for version in spec["versions"].as_array().into_iter().flatten() {
            let fields =
                crd::references::references(&version["schema"]["openAPIV3Schema"]).unwrap_or_default();
            if !fields.is_empty() {
                let key = (group.into(), plural.into(), text(&version["name"]).into());
                found.insert(key, fields.into());
            }
        }
    }
    found
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Whether a reference of a kind of some group names objects of a type.
pub(super) fn is_about(reference: &Reference, group: &str, ty: &ResourceType) -> bool {
    let of = if reference.group.is_empty() { group } else { &reference.group };
    *of == *ty.group && reference.resource == ty.plural
}

/// A type that objects of the export name has a subresource that tells which.
fn with_referrers(mut ty: Arc<ResourceType>, references: &ReferenceFields) -> Arc<ResourceType> {
    let mut all =
        references.iter().flat_map(|((group, ..), fields)| fields.iter().map(move |one| (group, one)));
    let is_named = all.any(|(group, one)| is_about(one, group, &ty));
    // It was just compiled, so nobody else has it.
    if let Some(ty) = Arc::get_mut(&mut ty).filter(|_| is_named) {
        ty.subresources.push(Subresource {
            name: apis::REFERRERS.into(),
            kind: GroupVersionKind {
                group: apis::GROUP.into(),
                version: apis::VERSION.into(),
                kind: "ObjectReferrers".into(),
            },
            verbs: vec!["get"],
            scale: None,
        });
        ty.hash.push_str(":referrers");
    }
    ty
}

/// A type under the resource that its objects are stored as.
fn everywhere(ty: Arc<ResourceType>) -> Option<Arc<ResourceType>> {
    let mut ty = Arc::into_inner(ty)?;
    ty.plural.clone_from(&ty.storage.resource);
    ty.hash.push_str(":everywhere");
    Some(Arc::new(ty))
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

    /// Takes in an object as of a revision, unless a later state of it is known.
    pub(super) fn put(&mut self, plane: &PlaneId, resource: &str, entry: &Entry, slot: Slot) {
        let key = (plane.clone(), Box::from(entry.name()));
        match resource {
            apis::EXPORTS => {
                if slot.present {
                    self.identities.insert(identity(plane, entry.name()).into(), key.clone());
                }
                replace(&mut self.exports, key, slot, || Export::read(plane, entry));
            }
            apis::SCHEMAS => replace(&mut self.schemas, key, slot, || {
                Some(Schema { spec: entry.value()["spec"].clone(), modified: entry.modified })
            }),
            _ => self.put_binding(plane, entry, slot),
        }
        if self.settled {
            self.forget_absent(plane, entry.name());
        }
    }

    fn put_binding(&mut self, plane: &PlaneId, entry: &Entry, slot: Slot) {
        let own = self.bindings.entry(plane.clone()).or_default();
        let before = own.get(entry.name()).and_then(|(_, binding)| binding.clone());
        replace(own, entry.name().into(), slot, || Binding::read(entry));
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

/// Replaces what is known of an object by a later state.
fn replace<K: std::hash::Hash + Eq, T>(
    map: &mut HashMap<K, (u64, Option<Arc<T>>)>,
    key: K,
    slot: Slot,
    read: impl FnOnce() -> Option<T>,
) {
    if map.get(&key).is_some_and(|(known, _)| *known > slot.revision) {
        return;
    }
    let value = if slot.present { read().map(Arc::new) } else { None };
    map.insert(key, (slot.revision, value));
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
