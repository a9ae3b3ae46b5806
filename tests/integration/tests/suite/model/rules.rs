//! The model: organizations, projects and people, and who may do what with them. It shares nothing with the server's code.

use std::collections::{BTreeMap, BTreeSet};

/// Organizations that there can be at a time, and projects of each.
pub(super) const ORGANIZATIONS: usize = 3;
pub(super) const PROJECTS: usize = 2;
/// Users, of whom the last ones keep the organizations: each is owner of one and is never removed.
pub(super) const USERS: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Role {
    Viewer,
    Editor,
    Owner,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Read,
    Write,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resource {
    ConfigMaps,
    Secrets,
    Projects,
    Snapshots,
    People,
}

/// Roles in their order, resources, and what the first role that is named reaches: every role above it does as well.
const TABLE: [(Resource, Verb, Role); 10] = [
    (Resource::ConfigMaps, Verb::Read, Role::Viewer),
    (Resource::ConfigMaps, Verb::Write, Role::Editor),
    (Resource::Secrets, Verb::Read, Role::Editor),
    (Resource::Secrets, Verb::Write, Role::Editor),
    (Resource::Projects, Verb::Read, Role::Viewer),
    (Resource::Projects, Verb::Write, Role::Editor),
    (Resource::Snapshots, Verb::Read, Role::Viewer),
    (Resource::Snapshots, Verb::Write, Role::Editor),
    (Resource::People, Verb::Read, Role::Viewer),
    (Resource::People, Verb::Write, Role::Owner),
];

/// What the server has to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Allowed,
    Forbidden,
    Absent,
}

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Who {
    Operator,
    User(usize),
    /// The user who keeps an organization.
    Keeper(usize),
}

/// A project, by its organization and its place there.
pub(super) type At = (usize, usize);

#[derive(Clone, Debug, Default)]
pub(super) struct Project {
    pub(super) suspended: bool,
    pub(super) dedicated: bool,
    /// Names of what was written: ConfigMaps and Secrets.
    pub(super) content: BTreeSet<String>,
    /// What its snapshots have, by name.
    pub(super) snapshots: BTreeMap<String, BTreeSet<String>>,
    /// Roles that were bound at the project.
    pub(super) bound: BTreeMap<Who, Role>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Organization {
    pub(super) suspended: bool,
    pub(super) members: BTreeMap<Who, Role>,
    pub(super) projects: BTreeMap<usize, Project>,
    /// Snapshots of projects that are gone: they stay until somebody deletes them.
    pub(super) kept: BTreeSet<String>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    pub(super) organizations: BTreeMap<usize, Organization>,
}

impl Model {
    pub(super) fn project(&self, (organization, project): At) -> Option<&Project> {
        self.organizations.get(&organization)?.projects.get(&project)
    }

    pub(super) fn project_mut(&mut self, (organization, project): At) -> Option<&mut Project> {
        self.organizations.get_mut(&organization)?.projects.get_mut(&project)
    }

    /// What is answered at an organization's objects of the core plane.
    pub(super) fn at_organization(
        &self,
        who: Who,
        organization: usize,
        resource: Resource,
        verb: Verb,
    ) -> Answer {
        let Some(known) = self.organizations.get(&organization) else {
            // Strangers are told the same of organizations that there are.
            return if who == Who::Operator { Answer::Absent } else { Answer::Forbidden };
        };
        let allowed = reaches(known.members.get(&who), resource, verb);
        match who {
            Who::Operator => Answer::Allowed,
            _ if !allowed || known.suspended && verb == Verb::Write => Answer::Forbidden,
            _ => Answer::Allowed,
        }
    }

    /// What is answered inside of a project.
    pub(super) fn at_project(&self, who: Who, at: At, resource: Resource, verb: Verb) -> Answer {
        let Some(project) = self.project(at) else { return Answer::Absent };
        let organization = &self.organizations[&at.0];
        // What is bound counts for members alone: who leaves loses all of it.
        let member = organization.members.get(&who);
        let roles = [member, project.bound.get(&who).filter(|_| member.is_some())];
        match who {
            Who::Operator => Answer::Allowed,
            _ if organization.suspended || project.suspended => Answer::Forbidden,
            _ if roles.into_iter().any(|role| reaches(role, resource, verb)) => Answer::Allowed,
            _ => Answer::Forbidden,
        }
    }

    /// Who may delete a project: who may write the organization's projects, or has such a role at this one.
    pub(super) fn deletes(&self, who: Who, at: At) -> Answer {
        let (wanted, known) =
            (self.at_organization(who, at.0, Resource::Projects, Verb::Write), &self.organizations[&at.0]);
        let bound = self.project(at).and_then(|project| project.bound.get(&who));
        let reached = known.members.contains_key(&who) && reaches(bound, Resource::Projects, Verb::Write);
        if wanted == Answer::Forbidden && reached && !known.suspended { Answer::Allowed } else { wanted }
    }

    /// The projects that a user's own view shows: those of organizations that they are members of.
    pub(super) fn shown_to(&self, who: Who) -> BTreeSet<At> {
        let of = |(number, organization): (&usize, &Organization)| -> Vec<At> {
            let number = *number;
            let member = organization.members.contains_key(&who);
            organization.projects.keys().filter(|_| member).map(|project| (number, *project)).collect()
        };
        self.organizations.iter().flat_map(of).collect()
    }
}

fn reaches(role: Option<&Role>, resource: Resource, verb: Verb) -> bool {
    let least =
        TABLE.iter().find(|(of, verbs, _)| *of == resource && *verbs == verb).map(|(.., least)| least);
    least.zip(role).is_some_and(|(least, role)| role >= least)
}
