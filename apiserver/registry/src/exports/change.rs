//! A new schema in an export: refused where it breaks what consumers have, unless the provider insists.

use super::{GROUP, breaking::breaking, list, text};
use crate::{Operation, Registry};
use freehold_apiserver_storage::ObjectPath;
use freehold_machinery::{PlaneId, Result, Status, Value, crd, meta, schema, status::FieldError, strict};
use std::sync::Arc;

/// The annotation with which a provider insists on a breaking change; its value is the reason.
const INSIST: &str = "apis.freehold.dev/breaking-change";
/// Objects that no longer validate, as many as are named.
const NAMED: usize = 5;
/// Changes that are named.
const CHANGES: usize = 10;

/// A kind whose schema changes; `new` is `None` where it is no longer exported.
struct Changed {
    group: String,
    plural: String,
    old: Value,
    new: Option<Value>,
}

impl Registry {
    /// Refuses an update of an export whose schemas break stored objects of consumers.
    pub(super) async fn check_change(&self, op: &Operation, draft: &Value, old: &Value) -> Result<()> {
        let names = |object: &Value| list(object, "/spec/schemas").to_vec();
        if names(draft) == names(old) {
            return Ok(());
        }
        let reason = meta::annotation(draft, INSIST).unwrap_or_default();
        if !reason.is_empty() {
            op.annotations.add(INSIST.to_owned(), reason.to_owned());
            tracing::warn!(plane = %op.plane, export = op.name(), user = op.user.name, reason, "a provider insists on a change of schemas");
            return Ok(());
        }
        let identity = text(old, "/status/identity").to_owned();
        for changed in self.changed(op, draft, old).await? {
            let lines = match &changed.new {
                Some(new) => breaking(&changed.old, new),
                None => vec!["it is no longer exported".to_owned()],
            };
            if lines.is_empty() {
                continue;
            }
            let failing = self.failing(&changed, &identity).await?;
            if failing.is_empty() {
                continue;
            }
            let mut shown: Vec<String> = lines.iter().take(CHANGES).cloned().collect();
            if lines.len() > CHANGES {
                shown.push(format!("and {} more", lines.len() - CHANGES));
            }
            let why = format!(
                "{}.{} would break ({}), and stored objects of consumers are no longer valid: {}; change them first, or give a reason in the annotation {INSIST}",
                changed.plural,
                changed.group,
                shown.join("; "),
                failing.join(", "),
            );
            let error = FieldError::forbidden("spec.schemas", why);
            return Err(Status::invalid(&op.ty.group, &op.ty.kind, op.name(), &[error]));
        }
        Ok(())
    }

    async fn changed(&self, op: &Operation, draft: &Value, old: &Value) -> Result<Vec<Changed>> {
        let (before, after) = (self.schemas(op, old).await?, self.schemas(op, draft).await?);
        let key = |spec: &Value| (text(spec, "/group").to_owned(), text(spec, "/names/plural").to_owned());
        let one = |old: Value| {
            let (group, plural) = key(&old);
            let new = after.iter().find(|new| key(new) == (group.clone(), plural.clone())).cloned();
            Changed { group, plural, old, new }
        };
        Ok(before.into_iter().map(one).filter(|changed| changed.new.as_ref() != Some(&changed.old)).collect())
    }

    /// The specs of the schemas that an export names.
    async fn schemas(&self, op: &Operation, export: &Value) -> Result<Vec<Value>> {
        let mut specs = Vec::new();
        for name in list(export, "/spec/schemas").iter().filter_map(Value::as_str) {
            let path = ObjectPath {
                group: GROUP.to_owned(),
                resource: "apiresourceschemas".to_owned(),
                namespace: None,
                name: name.to_owned(),
            };
            if let Some(entry) = self.cache.get_cached(&op.plane, &path).await? {
                specs.push(entry.value()["spec"].clone());
            }
        }
        Ok(specs)
    }

    /// The first objects of all consumers that are no longer valid, as `plane/namespace/name`.
    async fn failing(&self, changed: &Changed, identity: &str) -> Result<Vec<String>> {
        let types =
            changed.new.as_ref().map(|new| crd::compile(&crd::definition_of(new)).unwrap_or_default());
        let is_valid = |object: &Value| {
            let api_version = text(object, "/apiVersion");
            let stored = types.iter().flatten().find(|ty| ty.api_version() == api_version);
            let schema = stored.map(|ty| ty.schema.get());
            let meets_rules = |object: &Value| {
                let rules = stored.map(|ty| freehold_machinery_cel::Rules::of(ty));
                // Rules that don't compile were refused with the schema.
                matches!(rules, Some(Ok(rules)) if rules.validate_update(object, None).0.is_empty())
            };
            match schema {
                Some(Some(schema)) => {
                    let mut object = object.clone();
                    // What a field had that is gone would be lost.
                    let keeps_all = strict::unknown(&object, schema).is_empty();
                    schema::default(&mut object, schema);
                    keeps_all && schema::validate(&object, schema, None).is_empty() && meets_rules(&object)
                }
                Some(None) => true,
                None => false,
            }
        };
        let mut failing = Vec::new();
        let resource = format!("{}:{identity}", changed.plural);
        let visit = |plane: &PlaneId, entry: Arc<freehold_apiserver_cache::Entry>| {
            if failing.len() < NAMED && !is_valid(&entry.value()) {
                failing.push(format!("{plane}/{}/{}", entry.namespace(), entry.name()));
            }
        };
        self.cache.list_planes(&changed.group, &resource, visit).await?;
        Ok(failing)
    }
}
