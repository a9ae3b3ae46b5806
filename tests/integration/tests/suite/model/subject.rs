//! The server under the model: steps become requests, and answers are compared with the model's.

use super::{
    rules::{
        Answer, At, Model, ORGANIZATIONS, Organization, PROJECTS, Project, Resource, Role, USERS, Verb, Who,
    },
    steps::Step,
};
use crate::{names, text};
use freehold_tests_integration::{Http, Random, Server};
use http::Method;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

const RESOURCES: &str = "apis/resourcemanager.freehold.dev/v1alpha1";
const IAM: &str = "apis/iam.freehold.dev/v1alpha1";
/// By when the server has to answer as the model does.
const DEADLINE: Duration = Duration::from_secs(30);
/// How long a project may take to be made, moved or deleted.
const PATIENCE: Duration = Duration::from_secs(180);
const PAUSE: Duration = Duration::from_millis(25);
/// Questions after each step.
const QUESTIONS: usize = 10;

type Outcome = Result<(), String>;

/// A request.
struct Request {
    method: Method,
    path: String,
    body: Value,
}

impl Request {
    fn new(method: Method, path: impl Into<String>, body: Value) -> Self {
        Self { method, path: path.into(), body }
    }

    fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path, Value::Null)
    }
}

/// A run of the model beside the server.
pub(super) struct Subject {
    model: Model,
    run: usize,
    /// Whether projects move to dedicated pairs.
    moves: bool,
    people: BTreeMap<Who, Http>,
    /// The names of bindings.
    bindings: BTreeMap<(At, Who), String>,
    count: usize,
}

/// The name under which somebody authenticates.
fn user(who: Who) -> String {
    match who {
        Who::Operator => "operator".into(),
        Who::User(number) => format!("model-user-{number}"),
        Who::Keeper(number) => format!("model-keeper-{number}"),
    }
}

fn role(role: Role) -> &'static str {
    match role {
        Role::Viewer => "viewer",
        Role::Editor => "editor",
        Role::Owner => "owner",
    }
}

impl Subject {
    pub(super) fn new(server: &Server, run: usize, moves: bool) -> Self {
        let all = (0..USERS).map(Who::User).chain((0..ORGANIZATIONS).map(Who::Keeper));
        let mut people: BTreeMap<Who, Http> =
            all.map(|who| (who, Http::of(&server.person(&user(who))))).collect();
        people.insert(Who::Operator, Http::of(&server.kubectl()));
        Self { model: Model::default(), run, moves, people, bindings: BTreeMap::new(), count: 0 }
    }

    fn organization(&self, organization: usize) -> String {
        format!("m{}-o{organization}", self.run)
    }

    fn project(&self, (organization, project): At) -> String {
        format!("m{}-o{organization}-p{project}", self.run)
    }

    /// A path in an organization's view, or at the platform, for what is in its namespace.
    fn place(&self, organization: usize, view: bool, (group, resource): (&str, &str)) -> String {
        let name = self.organization(organization);
        let start = if view { format!("/organizations/{name}/") } else { "/".to_owned() };
        format!("{start}{group}/namespaces/organization-{name}/{resource}")
    }

    fn name(&mut self, prefix: &str) -> String {
        self.count += 1;
        format!("{prefix}{}", self.count)
    }

    fn send(&self, who: Who, request: &Request) -> (u16, Value) {
        let content = match request.method {
            Method::PATCH => "application/merge-patch+json",
            _ => "application/json",
        };
        let body = if request.body.is_null() { String::new() } else { request.body.to_string() };
        let answer = self.people[&who].send(request.method.clone(), &request.path, content, body);
        (answer.code, answer.body)
    }

    /// Asks until the answer is the model's, and the names in it are these where some are given.
    fn expect(
        &self,
        who: Who,
        request: &Request,
        wanted: Answer,
        listed: Option<&BTreeSet<String>>,
    ) -> Outcome {
        let begun = Instant::now();
        loop {
            let (code, body) = self.send(who, request);
            let answer = match code {
                200..=299 => Some(Answer::Allowed),
                401 | 403 => Some(Answer::Forbidden),
                404 => Some(Answer::Absent),
                _ => None,
            };
            let own = |name: &&str| name.starts_with("m-") || name.starts_with(&format!("m{}-", self.run));
            let found = || names(&body).into_iter().filter(own).map(str::to_owned).collect::<BTreeSet<_>>();
            let same = listed.is_none_or(|listed| wanted != Answer::Allowed || found() == *listed);
            if answer == Some(wanted) && same {
                return Ok(());
            }
            if begun.elapsed() > DEADLINE {
                let Request { method, path, .. } = request;
                let shown = body.to_string().chars().take(600).collect::<String>();
                return Err(format!(
                    "{who:?} {method} {path}: {code}, and the model says {wanted:?} {listed:?}\n{shown}\n{:#?}",
                    self.model
                ));
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Does something, of which the model knows whether it is allowed.
    fn does(&self, who: Who, request: &Request, wanted: Answer) -> Result<bool, String> {
        self.expect(who, request, wanted, None).map(|()| wanted == Answer::Allowed)
    }

    /// As the operator, waits until an object is as it has to be.
    fn wait(&self, path: &str, what: &str, test: impl Fn(u16, &Value) -> bool) -> Outcome {
        let begun = Instant::now();
        loop {
            let (code, body) = self.send(Who::Operator, &Request::get(path));
            if test(code, &body) {
                return Ok(());
            }
            if begun.elapsed() > PATIENCE {
                return Err(format!("waited in vain for {path} to be {what}: {code} {body}"));
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn wait_ready(&self, at: At, mode: &str) -> Outcome {
        self.wait(&format!("/{RESOURCES}/projects/{}", self.project(at)), "ready", |_, object| {
            is_ready(object, "True") && text(object, "/status/controlPlane/mode") == mode
        })
    }

    /// Takes a step on both sides.
    pub(super) fn take(&mut self, step: &Step) -> Outcome {
        match step {
            Step::Flip(organization) => self.flip(*organization),
            Step::Join(by, organization, user, role) => self.join(*by, *organization, *user, *role),
            Step::Leave(by, organization, user) => self.leave(*by, *organization, *user),
            Step::Bind(by, at, user, role) => self.bind(*by, *at, *user, *role),
            Step::Unbind(by, at, user) => self.unbind(*by, *at, *user),
            Step::Suspend(organization) => self.suspend(*organization),
            Step::SuspendProject(at) => self.suspend_project(*at),
            Step::FlipProject(by, at) => self.flip_project(*by, *at),
            Step::Write(by, at) => self.write(*by, *at),
            Step::Snapshot(by, at) => self.snapshot(*by, *at),
            Step::Fork(by, at) => self.fork(*by, *at),
            Step::Steal(at, organization) => self.steal(*at, *organization),
            Step::Move(at) => self.move_project(*at),
        }
    }

    fn flip(&mut self, organization: usize) -> Outcome {
        let name = self.organization(organization);
        let path = format!("/{RESOURCES}/organizations");
        if self.model.organizations.remove(&organization).is_some() {
            self.bindings.retain(|((of, _), _), _| *of != organization);
            let request = Request::new(
                Method::DELETE,
                format!("{path}/{name}"),
                json!({"propagationPolicy": "Foreground"}),
            );
            self.does(Who::Operator, &request, Answer::Allowed)?;
            return self.wait(&format!("{path}/{name}"), "gone", |code, _| code == 404);
        }
        let object = object("Organization", &name, json!({"type": "Standard"}));
        self.does(Who::Operator, &Request::new(Method::POST, path, object), Answer::Allowed)?;
        self.wait(&format!("/api/v1/namespaces/organization-{name}"), "there", |code, _| code == 200)?;
        self.model.organizations.insert(organization, Organization::default());
        self.join(Who::Operator, organization, Who::Keeper(organization), Role::Owner)?;
        self.flip_project(Who::Keeper(organization), (organization, 0))
    }

    fn join(&mut self, by: Who, organization: usize, whom: Who, given: Role) -> Outcome {
        let wanted = self.model.at_organization(by, organization, Resource::People, Verb::Write);
        let known =
            self.model.organizations.get(&organization).is_some_and(|o| o.members.contains_key(&whom));
        let path = self.place(organization, true, (RESOURCES, "organizationmemberships"));
        let spec = json!({"organizationRef": {"name": self.organization(organization)},
            "userRef": {"name": user(whom)}, "roles": [role(given)]});
        let request = match known {
            true => Request::new(
                Method::PATCH,
                format!("{path}/{}", user(whom)),
                json!({"spec": {"roles": [role(given)]}}),
            ),
            false => Request::new(Method::POST, path, object("OrganizationMembership", &user(whom), spec)),
        };
        if self.does(by, &request, wanted)?
            && let Some(known) = self.model.organizations.get_mut(&organization)
        {
            known.members.insert(whom, given);
        }
        Ok(())
    }

    fn leave(&mut self, by: Who, organization: usize, whom: Who) -> Outcome {
        let wanted = self.model.at_organization(by, organization, Resource::People, Verb::Write);
        let known =
            self.model.organizations.get(&organization).is_some_and(|o| o.members.contains_key(&whom));
        let wanted = if wanted == Answer::Allowed && !known { Answer::Absent } else { wanted };
        let path =
            self.place(organization, true, (RESOURCES, &format!("organizationmemberships/{}", user(whom))));
        if self.does(by, &Request::new(Method::DELETE, path, json!({})), wanted)?
            && let Some(known) = self.model.organizations.get_mut(&organization)
        {
            known.members.remove(&whom);
        }
        Ok(())
    }

    fn bind(&mut self, by: Who, at: At, whom: Who, given: Role) -> Outcome {
        if self.model.project(at).is_none_or(|project| project.bound.contains_key(&whom)) {
            return Ok(());
        }
        let wanted = self.model.at_organization(by, at.0, Resource::People, Verb::Write);
        let name = self.name("b");
        let spec = json!({"roleRef": {"name": role(given), "namespace": "freehold-system"},
            "subjects": [{"kind": "User", "name": user(whom)}],
            "target": {"kind": "Project", "name": self.project(at)}});
        let mut binding = object("PolicyBinding", &name, spec);
        binding["apiVersion"] = "iam.freehold.dev/v1alpha1".into();
        let path = self.place(at.0, true, (IAM, "policybindings"));
        if self.does(by, &Request::new(Method::POST, path, binding), wanted)?
            && let Some(project) = self.model.project_mut(at)
        {
            project.bound.insert(whom, given);
            self.bindings.insert((at, whom), name);
        }
        Ok(())
    }

    fn unbind(&mut self, by: Who, at: At, whom: Who) -> Outcome {
        let Some(name) = self.bindings.get(&(at, whom)) else { return Ok(()) };
        let wanted = self.model.at_organization(by, at.0, Resource::People, Verb::Write);
        let path = self.place(at.0, true, (IAM, &format!("policybindings/{name}")));
        if self.does(by, &Request::new(Method::DELETE, path, json!({})), wanted)?
            && let Some(project) = self.model.project_mut(at)
        {
            project.bound.remove(&whom);
            self.bindings.remove(&(at, whom));
        }
        Ok(())
    }

    fn suspend(&mut self, organization: usize) -> Outcome {
        let path = format!("/{RESOURCES}/organizations/{}", self.organization(organization));
        let Some(known) = self.model.organizations.get_mut(&organization) else { return Ok(()) };
        known.suspended = !known.suspended;
        let request = suspension(path, known.suspended);
        self.does(Who::Operator, &request, Answer::Allowed).map(drop)
    }

    fn suspend_project(&mut self, at: At) -> Outcome {
        let path = format!("/{RESOURCES}/projects/{}", self.project(at));
        let Some(project) = self.model.project_mut(at) else { return Ok(()) };
        project.suspended = !project.suspended;
        let request = suspension(path, project.suspended);
        self.does(Who::Operator, &request, Answer::Allowed).map(drop)
    }

    fn flip_project(&mut self, by: Who, at: At) -> Outcome {
        match self.model.project(at) {
            None => self.make(by, at, Value::Null, BTreeSet::new()),
            // Who may delete what is suspended is another question.
            Some(project) if project.suspended => Ok(()),
            Some(_) => self.delete(by, at),
        }
    }

    fn make(&mut self, by: Who, at: At, from: Value, content: BTreeSet<String>) -> Outcome {
        let wanted = self.model.at_organization(by, at.0, Resource::Projects, Verb::Write);
        let path = format!("/organizations/{}/{RESOURCES}/projects", self.organization(at.0));
        let mut spec = json!({"ownerRef": {"kind": "Organization", "name": self.organization(at.0)}});
        if !from.is_null() {
            spec["controlPlane"] = json!({"from": from});
        }
        let request = Request::new(Method::POST, path, object("Project", &self.project(at), spec));
        if !self.does(by, &request, wanted)? {
            return Ok(());
        }
        self.wait_ready(at, "Shared")?;
        if let Some(organization) = self.model.organizations.get_mut(&at.0) {
            organization.projects.insert(at.1, Project { content, ..Project::default() });
        }
        Ok(())
    }

    fn delete(&mut self, by: Who, at: At) -> Outcome {
        let wanted = self.model.deletes(by, at);
        let path = format!("{RESOURCES}/projects/{}", self.project(at));
        let request = Request::new(
            Method::DELETE,
            format!("/organizations/{}/{path}", self.organization(at.0)),
            json!({}),
        );
        if !self.does(by, &request, wanted)? {
            return Ok(());
        }
        self.wait(&format!("/{path}"), "gone", |code, _| code == 404)?;
        if let Some(organization) = self.model.organizations.get_mut(&at.0) {
            let gone = organization.projects.remove(&at.1);
            organization.kept.extend(gone.into_iter().flat_map(|project| project.snapshots.into_keys()));
        }
        self.bindings.retain(|(of, _), _| *of != at);
        Ok(())
    }

    fn write(&mut self, by: Who, at: At) -> Outcome {
        let wanted = self.model.at_project(by, at, Resource::ConfigMaps, Verb::Write);
        let name = self.name("m-");
        for (plural, kind) in [("configmaps", "ConfigMap"), ("secrets", "Secret")] {
            let path = format!("/projects/{}/api/v1/namespaces/default/{plural}", self.project(at));
            let body = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}});
            self.does(by, &Request::new(Method::POST, path, body), wanted)?;
        }
        if let Some(project) = self.model.project_mut(at).filter(|_| wanted == Answer::Allowed) {
            project.content.insert(name);
        }
        Ok(())
    }

    fn snapshot(&mut self, by: Who, at: At) -> Outcome {
        let Some(project) = self.model.project(at).filter(|project| !project.dedicated) else {
            return Ok(());
        };
        let content = project.content.clone();
        let wanted = self.model.at_organization(by, at.0, Resource::Snapshots, Verb::Write);
        let name = self.name(&format!("m{}-s", self.run));
        let spec = json!({"projectRef": {"name": self.project(at)}});
        let path = self.place(at.0, true, (RESOURCES, "projectsnapshots"));
        let request = Request::new(Method::POST, path, object("ProjectSnapshot", &name, spec));
        if self.does(by, &request, wanted)? {
            let path = self.place(at.0, false, (RESOURCES, &format!("projectsnapshots/{name}")));
            self.wait(&path, "ready", |_, object| is_ready(object, "True"))?;
            if let Some(project) = self.model.project_mut(at) {
                project.snapshots.insert(name, content);
            }
        }
        Ok(())
    }

    /// A snapshot of an organization: its project, its name, what it has.
    fn some_snapshot(&self, organization: usize) -> Option<(At, String, BTreeSet<String>)> {
        let known = self.model.organizations.get(&organization)?;
        let projects = known.projects.iter().filter(|(_, project)| !project.dedicated);
        projects
            .flat_map(|(at, project)| project.snapshots.iter().map(move |of| ((organization, *at), of)))
            .map(|(at, (name, content))| (at, name.clone(), content.clone()))
            .next_back()
    }

    fn fork(&mut self, by: Who, at: At) -> Outcome {
        if self.model.project(at).is_some() {
            return Ok(());
        }
        let Some((of, snapshot, content)) = self.some_snapshot(at.0) else { return Ok(()) };
        let from = json!({"project": self.project(of), "snapshot": snapshot});
        self.make(by, at, from, content)
    }

    /// The keeper of one organization asks for another one's snapshot, and gets nothing of it.
    fn steal(&mut self, at: At, other: usize) -> Outcome {
        let free = self
            .model
            .organizations
            .get(&at.0)
            .is_some_and(|o| !o.suspended && !o.projects.contains_key(&at.1));
        let Some((of, snapshot, _)) = self.some_snapshot(other).filter(|_| free && other != at.0) else {
            return Ok(());
        };
        let from = json!({"project": self.project(of), "snapshot": snapshot});
        let spec = json!({"ownerRef": {"kind": "Organization", "name": self.organization(at.0)}, "controlPlane": {"from": from}});
        let path = format!("/organizations/{}/{RESOURCES}/projects", self.organization(at.0));
        let keeper = Who::Keeper(at.0);
        let (code, body) =
            self.send(keeper, &Request::new(Method::POST, path, object("Project", &self.project(at), spec)));
        if code >= 400 {
            return Ok(());
        }
        let path = format!("/{RESOURCES}/projects/{}", self.project(at));
        self.wait(&path, "refused its snapshot", |_, object| is_ready(object, "False"))?;
        let secrets = format!("/projects/{}/api/v1/secrets", self.project(at));
        let (code, found) = self.send(keeper, &Request::get(secrets));
        if code == 200 && names(&found).iter().any(|name| name.starts_with("m-")) {
            return Err(format!("a fork of another's snapshot shows {found}, as {body} asked"));
        }
        self.does(Who::Operator, &Request::new(Method::DELETE, &*path, json!({})), Answer::Allowed)?;
        self.wait(&path, "gone", |code, _| code == 404)
    }

    /// Moves a project. One pair at a time is enough.
    fn move_project(&mut self, at: At) -> Outcome {
        let is_dedicated = |project: &Project| project.dedicated;
        let projects = || self.model.organizations.values().flat_map(|o| o.projects.values());
        let Some(project) = self.model.project(at) else { return Ok(()) };
        let halted = project.suspended || self.model.organizations[&at.0].suspended;
        if !self.moves || halted || !project.dedicated && projects().any(is_dedicated) {
            return Ok(());
        }
        let mode = if project.dedicated { "Shared" } else { "Dedicated" };
        let path =
            format!("/organizations/{}/{RESOURCES}/projects/{}", self.organization(at.0), self.project(at));
        let body = json!({"spec": {"controlPlane": {"mode": mode}}});
        self.does(Who::Keeper(at.0), &Request::new(Method::PATCH, path, body), Answer::Allowed)?;
        self.wait_ready(at, mode)?;
        if let Some(project) = self.model.project_mut(at) {
            project.dedicated = mode == "Dedicated";
        }
        Ok(())
    }

    /// Asks this and that, as anybody, of whatever there is.
    pub(super) fn compare(&self, seed: u64) -> Outcome {
        let mut random = Random::new(seed);
        (0..QUESTIONS).try_for_each(|_| self.question(&mut random))
    }

    fn question(&self, random: &mut Random) -> Outcome {
        let people: Vec<Who> = self.people.keys().copied().collect();
        let who = people[random.index(people.len())];
        let at = (random.index(ORGANIZATIONS), random.index(PROJECTS));
        match random.below(8) {
            0..3 => self.ask_project(who, at, random),
            3 => self.ask_for_one(who, at, random),
            4 | 5 => self.ask_organization(who, at.0, random),
            6 => self.ask_people(who, at.0, random),
            _ => self.ask_own_view(who, people[random.index(people.len())]),
        }
    }

    fn ask_project(&self, who: Who, at: At, random: &mut Random) -> Outcome {
        let secrets = random.below(2) == 0;
        let (resource, plural, kind) = match secrets {
            true => (Resource::Secrets, "secrets", "Secret"),
            false => (Resource::ConfigMaps, "configmaps", "ConfigMap"),
        };
        let path = format!("/projects/{}/api/v1/namespaces/default/{plural}", self.project(at));
        if random.below(3) == 0 {
            let body = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "asked"}});
            let request = Request::new(Method::POST, format!("{path}?dryRun=All"), body);
            return self.expect(who, &request, self.model.at_project(who, at, resource, Verb::Write), None);
        }
        let content = self.model.project(at).map(|project| &project.content);
        self.expect(who, &Request::get(path), self.model.at_project(who, at, resource, Verb::Read), content)
    }

    /// One object that was written somewhere, here.
    fn ask_for_one(&self, who: Who, at: At, random: &mut Random) -> Outcome {
        let projects = self.model.organizations.values().flat_map(|o| o.projects.values());
        let all: Vec<&String> = projects.flat_map(|project| &project.content).collect();
        if all.is_empty() {
            return Ok(());
        }
        let name = all[random.index(all.len())];
        let here = self.model.project(at).is_some_and(|project| project.content.contains(name));
        let wanted = match self.model.at_project(who, at, Resource::Secrets, Verb::Read) {
            Answer::Allowed if !here => Answer::Absent,
            wanted => wanted,
        };
        let path = format!("/projects/{}/api/v1/namespaces/default/secrets/{name}", self.project(at));
        self.expect(who, &Request::get(path), wanted, None)
    }

    /// An organization's projects and snapshots, in its view and at the platform.
    fn ask_organization(&self, who: Who, organization: usize, random: &mut Random) -> Outcome {
        let known = self.model.organizations.get(&organization);
        if random.below(2) == 0 {
            let path = format!("/organizations/{}/{RESOURCES}/projects", self.organization(organization));
            let listed =
                known.map(|o| o.projects.keys().map(|at| self.project((organization, *at))).collect());
            let wanted = self.model.at_organization(who, organization, Resource::Projects, Verb::Read);
            return self.expect(who, &Request::get(path), wanted, listed.as_ref());
        }
        let view = known.is_none() || random.below(2) == 0;
        let path = self.place(organization, view, (RESOURCES, "projectsnapshots"));
        if random.below(3) == 0 {
            let body = object("ProjectSnapshot", "asked", json!({"projectRef": {"name": "asked"}}));
            let request = Request::new(Method::POST, format!("{path}?dryRun=All"), body);
            let wanted = self.model.at_organization(who, organization, Resource::Snapshots, Verb::Write);
            return self.expect(who, &request, wanted, None);
        }
        let of = |project: &Project| project.snapshots.keys().cloned().collect::<Vec<_>>();
        let listed = known.map(|o| o.projects.values().flat_map(of).chain(o.kept.iter().cloned()).collect());
        let wanted = self.model.at_organization(who, organization, Resource::Snapshots, Verb::Read);
        self.expect(who, &Request::get(path), wanted, listed.as_ref())
    }

    fn ask_people(&self, who: Who, organization: usize, random: &mut Random) -> Outcome {
        let view = !self.model.organizations.contains_key(&organization) || random.below(2) == 0;
        let path = self.place(organization, view, (RESOURCES, "organizationmemberships"));
        let wanted = self.model.at_organization(who, organization, Resource::People, Verb::Read);
        self.expect(who, &Request::get(path), wanted, None)
    }

    fn ask_own_view(&self, who: Who, whose: Who) -> Outcome {
        if who == Who::Operator || whose == Who::Operator {
            return Ok(());
        }
        let path = format!("/users/{}/{RESOURCES}/projects", user(whose));
        let wanted = if who == whose { Answer::Allowed } else { Answer::Forbidden };
        let shown = self.model.shown_to(whose).into_iter().map(|at| self.project(at)).collect();
        self.expect(who, &Request::get(path), wanted, Some(&shown))
    }

    /// Takes away what is there, so that another run begins with nothing.
    pub(super) fn end(mut self) {
        for organization in 0..ORGANIZATIONS {
            if self.model.organizations.contains_key(&organization) {
                self.flip(organization).unwrap_or_else(|why| panic!("{why}"));
            }
        }
    }
}

/// An object of the platform.
fn object(kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": "resourcemanager.freehold.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

fn suspension(path: String, suspended: bool) -> Request {
    let suspension =
        if suspended { json!({"reason": "the model", "liftedBy": "Platform"}) } else { Value::Null };
    Request::new(Method::PATCH, path, json!({"spec": {"suspension": suspension}}))
}

fn is_ready(object: &Value, status: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|one| one["type"] == "Ready" && one["status"] == status)
}
