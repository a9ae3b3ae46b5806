//! The objects of a `ControlPlaneClass`: what every plane of the class begins with. They are checked like any other object
//! when the class is written, and made into what is stored when its layer is.

use crate::{Annotations, Operation, convert, strategy, validate};
use freehold_apiserver_catalog::{TypeSet, custom_types, share};
use freehold_apiserver_operation::path_of;
use freehold_apiserver_storage::ObjectPath;
use freehold_machinery::{
    PlaneId, Result, Status, User, Value, crd, meta,
    status::{FieldError, FieldErrorKind},
    user::MASTERS,
};
use std::{collections::BTreeSet, sync::Arc};

/// How many objects a class can have.
const MAX_OBJECTS: usize = 500;
const CRD_GROUP: &str = "apiextensions.k8s.io";

/// What is wrong with the objects of a class.
pub(crate) fn check(class: &Value) -> Vec<FieldError> {
    prepare(class).err().unwrap_or_default()
}

/// Returns the objects of a class as they are stored, without uid and time.
///
/// # Errors
/// A 422 for a class that would not be accepted now.
pub fn class_objects(class: &Value) -> Result<Vec<(ObjectPath, Value)>> {
    prepare(class).map_err(|errors| {
        Status::invalid("resourcemanager.freehold.dev", "ControlPlaneClass", meta::name(class), &errors)
    })
}

fn prepare(class: &Value) -> Result<Vec<(ObjectPath, Value)>, Vec<FieldError>> {
    let none = Vec::new();
    let objects = class["spec"]["objects"].as_array().unwrap_or(&none);
    if objects.len() > MAX_OBJECTS {
        let why = format!("must have at most {MAX_OBJECTS} items");
        return Err(vec![FieldError::new(FieldErrorKind::TooMany, "spec.objects", why)]);
    }
    let types = types(objects);
    let (mut prepared, mut errors, mut seen) = (Vec::new(), Vec::new(), BTreeSet::new());
    for (nth, object) in objects.iter().enumerate() {
        let field = format!("spec.objects[{nth}]");
        match one(&types, object) {
            Ok((path, _)) if !seen.insert(path.clone()) => {
                let kind = FieldErrorKind::Duplicate;
                errors.push(FieldError { value: Some(path.name.into()), ..FieldError::new(kind, field, "") });
            }
            Ok(found) => prepared.push(found),
            Err(why) => errors.push(FieldError::invalid(field, meta::name(object).into(), why)),
        }
    }
    if errors.is_empty() { Ok(prepared) } else { Err(errors) }
}

/// The built-in types and those of the class' own CRDs.
fn types(objects: &[Value]) -> Arc<TypeSet> {
    let is_crd = |object: &&Value| object["kind"] == "CustomResourceDefinition";
    let compiled = objects.iter().filter(is_crd).filter_map(|object| {
        let mut object = object.clone();
        crd::default(&mut object);
        crd::set_status(&mut object, None, jiff::Timestamp::UNIX_EPOCH);
        custom_types(&object).ok()
    });
    share(compiled.flatten().collect(), Vec::new())
}

fn one(types: &Arc<TypeSet>, object: &Value) -> Result<(ObjectPath, Value), String> {
    let api_version = object["apiVersion"].as_str().unwrap_or_default();
    let kind = object["kind"].as_str().unwrap_or_default();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let Some(ty) = types.by_kind(group, version, kind) else {
        return Err(format!("there is no kind {kind:?} in {api_version:?}"));
    };
    let (name, namespace) = (meta::name(object), meta::namespace(object));
    if namespace.is_empty() == ty.namespaced {
        let what = if ty.namespaced { "needs a namespace" } else { "has no namespace" };
        return Err(format!("a {kind} {what}"));
    }
    let op = Operation {
        plane: PlaneId::core(),
        types: types.clone(),
        user: Arc::new(User { groups: vec![MASTERS.to_owned()], ..User::default() }),
        ty: ty.clone(),
        namespace: Some(namespace.to_owned()).filter(|_| ty.namespaced),
        name: Some(name.to_owned()),
        subresource: None,
        seen: 0,
        narrowed: false,
        annotations: Annotations::default(),
    };
    let mut draft = object.clone();
    let kept = ["name", "namespace", "labels", "annotations"];
    meta::metadata_mut(&mut draft).retain(|key, _| kept.contains(&key.as_str()));
    settle(&op, &mut draft).map_err(|status| status.message)?;
    let stored = convert::to_stored(ty, draft).map_err(|status| status.message)?;
    Ok((path_of(ty, Some(namespace), name), stored))
}

/// What a create makes of it, without what only holds in one plane.
fn settle(op: &Operation, draft: &mut Value) -> Result<()> {
    if let Some(why) = validate::unreadable(&op.ty, draft) {
        return Err(Status::bad_request(why));
    }
    validate::default(&op.ty, draft);
    (strategy::of(&op.ty).create)(op, draft);
    if op.ty.group != CRD_GROUP
        && op.ty.has_status()
        && op.ty.plural != "namespaces"
        && let Some(map) = draft.as_object_mut()
    {
        map.remove("status");
    }
    validate::prune(&op.ty, draft);
    validate::object(op, draft, None).map(drop)
}
