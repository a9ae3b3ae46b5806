//! Bindings of a `ControlPlaneClass`: checked and pinned when the class is written, and shown in its planes as objects that
//! nobody can write there.

use super::{FoundExport, GROUP, Seeker, consent, list, text};
use crate::{Operation, Registry};
use freehold_apiserver_cache::{Below, Seen};
use freehold_apiserver_storage::ObjectPath;
use freehold_machinery::{GroupResource, Result, Status, Value, meta};
use serde_json::json;

/// The label of a binding with the class that it comes from.
const LABEL: &str = "apis.freehold.dev/class";

impl Registry {
    /// Writes into the status of a class which exports it binds. The author has to be allowed to bind what is new; what
    /// was bound before stays the export of then.
    pub(crate) async fn settle_class(
        &self,
        op: &Operation,
        draft: &mut Value,
        old: Option<&Value>,
    ) -> Result<()> {
        if self.exports.is_none() {
            return Ok(());
        }
        let before = old.map(|old| list(old, "/status/bindings").to_vec()).unwrap_or_default();
        if op.subresource.is_some() {
            pin(draft, before);
            return Ok(());
        }
        let mut pinned = Vec::new();
        for wanted in list(draft, "/spec/bindings").to_vec() {
            let known = old.and_then(|old| named(list(old, "/spec/bindings"), text(&wanted, "/name")));
            let is_same = known.is_some_and(|known| known["export"] == wanted["export"]);
            let record = named(&before, text(&wanted, "/name")).filter(|_| is_same);
            pinned.push(match record {
                Some(record) => with_defaults(record, &wanted),
                None => self.pin_export(op, &wanted).await?,
            });
        }
        let is_kept = |gone: &Value| {
            pinned.iter().any(|one| one["plane"] == gone["plane"] && one["export"] == gone["export"])
        };
        for gone in before.iter().filter(|gone| !is_kept(gone)) {
            let spec = old.and_then(|old| named(list(old, "/spec/bindings"), text(gone, "/name")));
            if spec.is_none_or(|spec| spec["objects"] != "Keep") {
                self.check_no_objects(op, gone).await?;
            }
        }
        pin(draft, pinned);
        Ok(())
    }

    /// The record of an export that the author of a class may bind.
    async fn pin_export(&self, op: &Operation, wanted: &Value) -> Result<Value> {
        let (project, name) = (text(wanted, "/export/project"), text(wanted, "/export/name"));
        // An organization of this name can't be: exports that are open to all are meant.
        let seeker = Seeker { plane: &op.plane, organization: "*", labels: &Value::Null };
        let found: Option<FoundExport> = self.exports()?.find(project, name, seeker).await?;
        match found {
            Some(found) if self.may_bind(op, &found, name).await? => {
                if let Some(why) = consent::unaccepted(wanted, &found) {
                    return Err(Status::forbidden(&GroupResource::new(GROUP, "apiexports"), name, &why));
                }
                let defaults = consent::defaults(wanted, &found.defaults);
                let mut record = json!({
                    "name": wanted["name"], "plane": found.plane.as_str(), "export": name, "identity": found.identity,
                });
                if !defaults.is_empty() {
                    record["defaultClaims"] = defaults.into();
                }
                Ok(record)
            }
            _ => {
                let why = format!("project {project:?} has no such export, or you may not bind it");
                Err(Status::forbidden(&GroupResource::new(GROUP, "apiexports"), name, &why))
            }
        }
    }

    /// Refuses to take a binding from a class whose planes have objects of it.
    async fn check_no_objects(&self, op: &Operation, gone: &Value) -> Result<()> {
        let (plane, export) = (text(gone, "/plane"), text(gone, "/export"));
        let Some((resource, place)) = self.exports()?.object_in_class(op.name(), plane, export).await? else {
            return Ok(());
        };
        let why = format!(
            "control planes of the class have objects of binding {:?}, such as {resource} {place}: delete them, or set the binding's objects to Keep first",
            text(gone, "/name")
        );
        Err(Status::conflict(&op.ty.group_resource(), op.name(), &why))
    }

    /// Refuses to delete a class whose bindings have objects.
    pub(crate) async fn check_class_deletion(&self, op: &Operation, live: &Value) -> Result<()> {
        if self.exports.is_none() {
            return Ok(());
        }
        for gone in list(live, "/status/bindings") {
            let spec = named(list(live, "/spec/bindings"), text(gone, "/name"));
            if spec.is_none_or(|spec| spec["objects"] != "Keep") {
                self.check_no_objects(op, gone).await?;
            }
        }
        Ok(())
    }

    /// Refuses a write of a binding that comes from the class of its plane.
    pub(super) fn check_own_binding(&self, op: &Operation, old: Option<&Value>) -> Result<()> {
        let Some(class) = self.exports()?.class_with(&op.plane, op.name()) else { return Ok(()) };
        match old {
            Some(old) if meta::label(old, LABEL) != Some(&*class) => Ok(()),
            _ => Err(from_class(op, &class)),
        }
    }
}

/// Refuses to delete or hide an object of the class' bindings in a plane.
pub(super) fn check_below(op: &Operation, live: &Value, own: Seen) -> Result<()> {
    match meta::label(live, LABEL) {
        Some(class) if own.own == 0 && own.below != Below::Nothing => Err(from_class(op, class)),
        _ => Ok(()),
    }
}

fn from_class(op: &Operation, class: &str) -> Status {
    let why = format!("it comes from ControlPlaneClass {class:?}, where the platform changes it");
    Status::forbidden(&op.ty.group_resource(), op.name(), &why)
}

/// A record of before, without the default claims that are rejected by now.
fn with_defaults(record: &Value, wanted: &Value) -> Value {
    let mut record = record.clone();
    if record.get("defaultClaims").is_some() {
        record["defaultClaims"] = consent::defaults(wanted, list(&record, "/defaultClaims")).into();
    }
    record
}

fn named<'a>(all: &'a [Value], name: &str) -> Option<&'a Value> {
    all.iter().find(|one| text(one, "/name") == name)
}

fn pin(class: &mut Value, pinned: Vec<Value>) {
    if !pinned.is_empty() {
        class["status"]["bindings"] = pinned.into();
    } else if let Some(status) = class.get_mut("status").and_then(Value::as_object_mut) {
        status.remove("bindings");
    }
}

/// The APIBindings that planes of a class show, as they are stored. `schemas` has the kinds of an export, by the plane and
/// the name.
pub fn class_bindings(class: &Value, schemas: impl Fn(&str, &str) -> Value) -> Vec<(ObjectPath, Value)> {
    let pinned = list(class, "/status/bindings");
    let since = &class["metadata"]["creationTimestamp"];
    let condition = |kind: &str| json!({"type": kind, "status": "True", "reason": "Class", "message": "", "lastTransitionTime": since});
    let conditions = Value::from(["Bound", "Ready"].map(condition).to_vec());
    let object = |spec: &Value, bound: &Value| {
        let name = text(spec, "/name");
        let mut wanted = spec.clone();
        if let Some(map) = wanted.as_object_mut() {
            map.remove("name");
        }
        let object = json!({
            "apiVersion": format!("{GROUP}/v1alpha1"), "kind": "APIBinding",
            "metadata": {"name": name, "labels": {LABEL: meta::name(class)}},
            "spec": wanted,
            "status": {
                "plane": bound["plane"], "identity": bound["identity"],
                "defaultClaims": list(bound, "/defaultClaims"),
                "schemas": schemas(text(bound, "/plane"), text(bound, "/export")),
                "conditions": conditions,
            },
        });
        let path = ObjectPath {
            group: GROUP.into(),
            resource: "apibindings".into(),
            namespace: None,
            name: name.to_owned(),
        };
        (path, object)
    };
    let specs = list(class, "/spec/bindings").iter();
    specs.filter_map(|spec| Some(object(spec, named(pinned, text(spec, "/name"))?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_shows_a_binding_for_each_export_that_was_found_when_it_was_written() {
        let class = json!({
            "metadata": {"name": "gold"},
            "spec": {"bindings": [
                {"name": "pg", "export": {"project": "dbaas", "name": "postgres"}},
                {"name": "new", "export": {"project": "dbaas", "name": "other"}},
            ]},
            "status": {"bindings": [{"name": "pg", "plane": "p1", "export": "postgres", "identity": "i"}]},
        });
        let shown =
            class_bindings(&class, |plane, export| json!([{"resource": format!("{plane}/{export}")}]));
        assert_eq!(shown.len(), 1);
        let (path, object) = &shown[0];
        assert_eq!((&*path.name, &object["metadata"]["labels"][LABEL]), ("pg", &json!("gold")));
        assert_eq!(object["status"]["schemas"][0]["resource"], "p1/postgres");
        assert_eq!(object["spec"], json!({"export": {"project": "dbaas", "name": "postgres"}}));
    }
}
