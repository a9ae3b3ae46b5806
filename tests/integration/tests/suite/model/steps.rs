//! What is done in a run, as proptest draws it: numbers that mean whatever there is when their turn comes.

use super::rules::{At, ORGANIZATIONS, PROJECTS, Role, USERS, Who};
use proptest::prelude::*;

/// One operation.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// The operator makes an organization that is not there, with its keeper and a project; deletes one that is.
    Flip(usize),
    /// Somebody gives a user a role in an organization, or another one.
    Join(Who, usize, Who, Role),
    /// Somebody takes a user out.
    Leave(Who, usize, Who),
    /// Somebody gives a user a role in one project.
    Bind(Who, At, Who, Role),
    /// Somebody takes it away.
    Unbind(Who, At, Who),
    /// The operator suspends an organization, or lifts that.
    Suspend(usize),
    /// The operator suspends a project, or lifts that.
    SuspendProject(At),
    /// Somebody makes a project that is not there; deletes one that is.
    FlipProject(Who, At),
    /// Somebody writes a ConfigMap and a Secret.
    Write(Who, At),
    /// Somebody takes a snapshot.
    Snapshot(Who, At),
    /// Somebody forks a snapshot of a project into a place that is free.
    Fork(Who, At),
    /// Somebody asks for a fork of another organization's snapshot.
    Steal(At, usize),
    /// A project moves between shared and dedicated, by its keeper's wish.
    Move(At),
}

fn who() -> impl Strategy<Value = Who> {
    prop_oneof![
        3 => (0..USERS).prop_map(Who::User),
        2 => (0..ORGANIZATIONS).prop_map(Who::Keeper),
        1 => Just(Who::Operator),
    ]
}

fn user() -> impl Strategy<Value = Who> {
    (0..USERS).prop_map(Who::User)
}

fn at() -> impl Strategy<Value = At> {
    (0..ORGANIZATIONS, 0..PROJECTS)
}

fn role() -> impl Strategy<Value = Role> {
    prop_oneof![Just(Role::Viewer), Just(Role::Editor), Just(Role::Owner)]
}

/// One step with the seed of the questions that follow it.
pub(super) fn step() -> impl Strategy<Value = (Step, u64)> {
    let organization = || 0..ORGANIZATIONS;
    let step = prop_oneof![
        2 => organization().prop_map(Step::Flip),
        6 => (who(), organization(), user(), role()).prop_map(|(by, o, user, role)| Step::Join(by, o, user, role)),
        3 => (who(), organization(), user()).prop_map(|(by, o, user)| Step::Leave(by, o, user)),
        4 => (who(), at(), user(), role()).prop_map(|(by, at, user, role)| Step::Bind(by, at, user, role)),
        2 => (who(), at(), user()).prop_map(|(by, at, user)| Step::Unbind(by, at, user)),
        3 => organization().prop_map(Step::Suspend),
        3 => at().prop_map(Step::SuspendProject),
        3 => (who(), at()).prop_map(|(by, at)| Step::FlipProject(by, at)),
        6 => (who(), at()).prop_map(|(by, at)| Step::Write(by, at)),
        3 => (who(), at()).prop_map(|(by, at)| Step::Snapshot(by, at)),
        3 => (who(), at()).prop_map(|(by, at)| Step::Fork(by, at)),
        2 => (at(), organization()).prop_map(|(at, o)| Step::Steal(at, o)),
        1 => at().prop_map(Step::Move),
    ];
    (step, any::<u64>())
}
