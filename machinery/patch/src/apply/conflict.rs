//! Conflicts of an apply that would change fields of other managers.

use super::{
    managed::{Manager, Operation},
    set::{FieldSet, Path},
};
use freehold_machinery::status::{Cause, Status};

/// 409 with one cause for each field, in the words of `k8s.io/apimachinery/pkg/util/managedfields`. `conflicts` are
/// ordered by manager and none is empty.
pub(super) fn status(conflicts: &[(Manager, FieldSet)]) -> Status {
    let groups: Vec<(String, Vec<Path>)> =
        conflicts.iter().map(|(manager, fields)| (describe(manager), fields.paths())).collect();
    let causes = groups.iter().flat_map(|(manager, paths)| {
        paths.iter().map(move |path| Cause {
            reason: "FieldManagerConflict".to_owned(),
            message: format!("conflict with {manager}"),
            field: path.to_string(),
        })
    });
    let causes: Vec<Cause> = causes.collect();
    Status::new(409, "Conflict", message(&groups, causes.len()))
        .with_details(|details| details.causes = causes)
}

fn message(groups: &[(String, Vec<Path>)], count: usize) -> String {
    if let [(manager, paths)] = groups
        && let [path] = &paths[..]
    {
        return format!("Apply failed with 1 conflict: conflict with {manager}: {path}");
    }
    let lines: Vec<String> = groups
        .iter()
        .flat_map(|(manager, paths)| {
            let head = format!("conflicts with {manager}:");
            std::iter::once(head).chain(paths.iter().map(|path| format!("- {path}")))
        })
        .collect();
    format!("Apply failed with {count} conflicts: {}", lines.join("\n"))
}

fn describe(manager: &Manager) -> String {
    let mut text = format!("{:?}", manager.name);
    if !manager.subresource.is_empty() {
        text.push_str(&format!(" with subresource {:?}", manager.subresource));
    }
    if manager.operation == Operation::Update {
        text.push_str(&format!(" using {}", manager.api_version));
    }
    text
}
