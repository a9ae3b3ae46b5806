//! Admission of subsystems in the server's own process: a write is refused without a call to a webhook.

use super::SUBSYSTEMS;
use freehold_apiserver::{Attributes, Lookup, Plugin};
use freehold_machinery::Result;
use freehold_runtime::Subsystem;

/// The checks of one subsystem, over all planes of the server.
struct Checks(Subsystem);

static CHECKS: [Checks; SUBSYSTEMS.len()] = [Checks(SUBSYSTEMS[0]), Checks(SUBSYSTEMS[1])];

/// The plugins of subsystems that every project has.
pub(crate) fn plugins(enabled: &[Subsystem]) -> Vec<&'static dyn Plugin> {
    let checked = CHECKS.iter().filter(|Checks(own)| {
        own.admission.is_some() && enabled.iter().any(|enabled| enabled.name == own.name)
    });
    checked.map(|checks| checks as &'static dyn Plugin).collect()
}

impl Plugin for Checks {
    fn name(&self) -> &'static str {
        self.0.name
    }

    fn validate(&self, attributes: &Attributes<'_>, lookup: &dyn Lookup) -> Result<()> {
        let group = attributes.ty.group.as_str();
        let Some(admission) = self.0.admission.filter(|admission| admission.groups.contains(&group)) else {
            return Ok(());
        };
        let Some(object) = attributes.object().filter(|_| attributes.subresource.is_empty()) else {
            return Ok(());
        };
        let find = |resource: &str, namespace: &str, name: &str| {
            lookup.get(attributes.plane, group, resource, namespace, name)
        };
        (admission.admit)(object, attributes.old, &find)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_enabled_subsystem_with_checks_has_a_plugin() {
        let names = |enabled: &[Subsystem]| plugins(enabled).iter().map(|one| one.name()).collect::<Vec<_>>();
        assert_eq!(names(SUBSYSTEMS), ["workflow"]);
        assert_eq!(names(&[]), Vec::<&str>::new());
    }
}
