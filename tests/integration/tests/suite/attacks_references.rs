//! What the owner of an organization could try with references: snapshots, owners, claims, bindings and names of planes that
//! lead to another organization's objects. Each behaves as one to an object that is not there.

use crate::{
    PATIENCE,
    access::member,
    contains_all,
    quota::{grant, organization, registration},
    text,
};
use freehold_tests_integration::{Http, Kubectl, World, facts, until};
use http::Method;
use serde_json::{Value, json};

facts!(world:
    a_snapshot_holds_its_own_project_whatever_its_status_says,
    a_plane_is_put_above_layers_of_its_own_organization_alone,
    an_owner_of_another_organization_is_answered_for_as_one_that_is_not_there,
    what_names_the_uid_of_another_organization_s_object_holds_nothing_back,
    a_status_brings_no_owners,
    each_reference_to_another_organization_s_object_is_one_to_nothing,
    a_claim_on_another_organization_s_object_goes_whether_that_is_there_or_not,
    an_object_does_not_say_itself_in_which_plane_it_is,
);

const RESOURCES: &str = "/apis/resourcemanager.freehold.dev/v1alpha1";
const QUOTA: &str = "/apis/quota.freehold.dev/v1alpha1";

/// What is only in the victim's project.
const TREASURE: &str = "treasure-of-the-victim";

/// An attacker's organization with a project and an owner, and a victim's with a Secret in its project: `{name}-evil` and
/// `{name}-acme`, after which the projects are called too.
struct Parties<'a> {
    world: &'a World,
    evil: String,
    acme: String,
}

impl<'a> Parties<'a> {
    fn new(world: &'a World, name: &str) -> Self {
        let (evil, acme) = (format!("{name}-evil"), format!("{name}-acme"));
        world.organization(&evil, &[&evil]);
        world.organization(&acme, &[&acme]);
        world.admin().apply(&member(&evil, &format!("{name}-mallory"), "owner"));
        let literal = format!("--from-literal=k={TREASURE}");
        world.server().project(&acme).ok(&["create", "secret", "generic", "treasure", &literal]);
        Self { world, evil, acme }
    }

    /// The victim's snapshot `nightly`, once it is there.
    fn snapshot(&self) -> Value {
        let acme = &self.acme;
        self.world.admin().apply(&in_organization(
            acme,
            "ProjectSnapshot",
            "nightly",
            &json!({"projectRef": {"name": acme}}),
        ));
        self.phase(acme, "projectsnapshot/nightly", "Ready")
    }

    /// An object of an organization's namespace, once it has a phase.
    fn phase(&self, organization: &str, object: &str, phase: &str) -> Value {
        let admin = self.world.admin().with(&["--namespace", &format!("organization-{organization}")]);
        admin.ok(&["wait", &format!("--for=jsonpath={{.status.phase}}={phase}"), object, "--timeout=120s"]);
        admin.json(&["get", object])
    }

    /// Requests of the platform's admin, for whom no role stands in the way.
    fn admin(&self) -> Http {
        Http::of_elsewhere(&self.world.admin(), self.world.server().url())
    }
}

fn in_organization(organization: &str, kind: &str, name: &str, spec: &Value) -> String {
    let group = match kind {
        "ProjectSnapshot" | "ProjectRestore" | "OrganizationMembership" => "resourcemanager",
        "ResourceClaim" => "quota",
        _ => "iam",
    };
    json!({
        "apiVersion": format!("{group}.freehold.dev/v1alpha1"), "kind": kind,
        "metadata": {"name": name, "namespace": format!("organization-{organization}")}, "spec": spec,
    })
    .to_string()
}

fn project(name: &str, organization: &str, from: &Value) -> String {
    json!({
        "apiVersion": "resourcemanager.freehold.dev/v1alpha1", "kind": "Project", "metadata": {"name": name},
        "spec": {"ownerRef": {"kind": "Organization", "name": organization}, "controlPlane": {"from": from}},
    })
    .to_string()
}

fn a_snapshot_holds_its_own_project_whatever_its_status_says(world: &World) {
    let parties = Parties::new(world, "layer");
    let (evil, admin) = (&parties.evil, world.admin());
    world.server().project(evil).ok(&["create", "configmap", "own"]);
    let theirs = parties.snapshot();
    let spec = json!({"projectRef": {"name": evil}});
    admin.apply(&in_organization(evil, "ProjectSnapshot", "mine", &spec));
    parties.phase(evil, "projectsnapshot/mine", "Ready");
    // Whether a tenant can write this is another promise: it is not believed even where somebody could.
    let path = format!("{RESOURCES}/namespaces/organization-{evil}/projectsnapshots/mine/status");
    let forged = json!({"status": {"layer": theirs["status"]["layer"], "plane": theirs["status"]["plane"], "phase": "Ready"}});
    parties.admin().send(Method::PATCH, &path, "application/merge-patch+json", forged.to_string());
    admin.apply(&project("layer-thief", evil, &json!({"project": evil, "snapshot": "mine"})));
    world.wait_ready("layer-thief");
    let thief = world.server().project("layer-thief");
    thief.ok(&["get", "configmap", "own"]);
    contains_all(&thief.fails(&["get", "secret", "treasure"]), &["not found"]);
    let spec = json!({"projectRef": {"name": evil}, "snapshotRef": {"name": "mine"}});
    admin.apply(&in_organization(evil, "ProjectRestore", "back", &spec));
    parties.phase(evil, "projectrestore/back", "Completed");
    let own = world.server().project(evil);
    own.ok(&["get", "configmap", "own"]);
    contains_all(&own.fails(&["get", "secret", "treasure"]), &["not found"]);
}

fn a_plane_is_put_above_layers_of_its_own_organization_alone(world: &World) {
    let parties = Parties::new(world, "above");
    let uid = text(&parties.snapshot(), "/metadata/uid").to_owned();
    let http = parties.admin();
    let above = |project: &str, layer: &str, more: &str| {
        let path = format!("/planes/{}/stack?layer={layer}&operation=test{more}", world.uid(project));
        http.json(Method::PUT, &path, &json!({}))
    };
    let theirs = format!("snapshot-{uid}");
    let absent = theirs.replace(&uid[..8], "00000000");
    for more in ["", "&restore=true"] {
        let (found, missing) = (above(&parties.evil, &theirs, more), above(&parties.evil, &absent, more));
        assert_eq!(found.code, 404, "{}", found.body);
        let said = |answer: &Value, layer: &str| answer.to_string().replace(layer, "LAYER");
        assert_eq!(said(&found.body, &theirs), said(&missing.body, &absent));
    }
    contains_all(
        &world.server().project(&parties.evil).fails(&["get", "secret", "treasure"]),
        &["not found"],
    );
    // A project that is gone leaves its snapshots to its organization.
    world.admin().ok(&["delete", "project", &parties.acme, "--timeout=120s"]);
    let from = json!({"project": parties.acme, "snapshot": "nightly"});
    world.admin().apply(&project("above-heir", &parties.acme, &from));
    world.wait_ready("above-heir");
    world.server().project("above-heir").ok(&["get", "secret", "treasure"]);
    // A snapshot of the earlier project is none that its successor can go back to.
    world.organization(&parties.acme, &[&parties.acme]);
    let spec = json!({"projectRef": {"name": parties.acme}, "snapshotRef": {"name": "nightly"}});
    world.admin().apply(&in_organization(&parties.acme, "ProjectRestore", "late", &spec));
    let late = parties.phase(&parties.acme, "projectrestore/late", "Failed");
    assert_eq!(text(&late, "/status/conditions/0/reason"), "WrongProject", "{late}");
}

fn reference(kind: &str, name: &str, uid: &str) -> Value {
    let version = match kind {
        "Project" | "Organization" => "resourcemanager.freehold.dev/v1alpha1",
        _ => "v1",
    };
    json!({"apiVersion": version, "kind": kind, "name": name, "uid": uid})
}

fn owned(name: &str, organization: &str, owner: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
        "name": name, "namespace": format!("organization-{organization}"), "ownerReferences": [owner]}})
}

fn an_owner_of_another_organization_is_answered_for_as_one_that_is_not_there(world: &World) {
    let parties = Parties::new(world, "owner");
    let (evil, acme) = (&parties.evil, &parties.acme);
    let maps = format!("/api/v1/namespaces/organization-{evil}/configmaps");
    let uid =
        |what: &[&str]| text(&world.admin().json(&[&["get"], what].concat()), "/metadata/uid").to_owned();
    let space = format!("organization-{acme}");
    let owners = [
        ("Project", acme.as_str(), uid(&["project", acme])),
        ("Organization", acme.as_str(), uid(&["organization", acme])),
        ("Namespace", space.as_str(), uid(&["namespace", &space])),
    ];
    let mallory = world.server().person("owner-mallory");
    let people = [Http::of(&world.admin()), Http::of(&mallory)];
    until("who was made an owner is one", PATIENCE, || (people[1].get(&maps).code == 200).then_some(()));
    people[0].json(Method::POST, &maps, &json!({"metadata": {"name": "plain"}}));
    for (kind, name, uid) in &owners {
        let missing = format!("{name}-x");
        for blocks in [false, true] {
            let send = |http: &Http, way: &str, name: &str| {
                let mut owner = reference(kind, name, uid);
                owner["blockOwnerDeletion"] = blocks.into();
                let patch = json!({"metadata": {"ownerReferences": [owner]}}).to_string();
                let object = owned("anchor", evil, &owner);
                let (plain, anchor) = (format!("{maps}/plain"), format!("{maps}/anchor?fieldManager=x"));
                match way {
                    "create" => http.json(Method::POST, &maps, &object),
                    "patch" => http.send(Method::PATCH, &plain, "application/merge-patch+json", patch),
                    "update" => http.json(Method::PUT, &plain, &owned("plain", evil, &owner)),
                    _ => {
                        http.send(Method::PATCH, &anchor, "application/apply-patch+yaml", object.to_string())
                    }
                }
            };
            for http in &people {
                for way in ["create", "patch", "update", "apply"] {
                    let (found, absent) = (send(http, way, name), send(http, way, &missing));
                    assert_eq!(found.code, 403, "{way} {kind} {name}: {}", found.body);
                    let said = |answer: &Value, name: &str| answer.to_string().replace(name, "NAME");
                    assert_eq!(said(&absent.body, &missing), said(&found.body, name), "{way}");
                }
            }
        }
    }
    // Its own project is an owner as any other, and takes along what depends on it.
    let own = reference("Project", evil, &world.uid(evil));
    assert_eq!(people[1].json(Method::POST, &maps, &owned("own", evil, &own)).code, 201);
    world.admin().ok(&["delete", "project", evil, "--timeout=120s"]);
    World::gone(&world.admin(), &["configmap", "own", &format!("--namespace=organization-{evil}")]);
}

/// The place is one's own, the uid another's: admission can't tell, the garbage collector can.
fn what_names_the_uid_of_another_organization_s_object_holds_nothing_back(world: &World) {
    let parties = Parties::new(world, "guess");
    let (evil, acme) = (&parties.evil, &parties.acme);
    let maps = format!("/api/v1/namespaces/organization-{evil}/configmaps");
    let http = parties.admin();
    http.json(Method::POST, &maps, &json!({"metadata": {"name": "mine"}}));
    let mut owner = reference("ConfigMap", "mine", &world.uid(acme));
    owner["blockOwnerDeletion"] = true.into();
    let mut anchor = owned("anchor", evil, &owner);
    anchor["metadata"]["finalizers"] = json!(["evil.example/hold"]);
    assert_eq!(http.json(Method::POST, &maps, &anchor).code, 201);
    // What is theirs and depends on it stays while it does, whatever others say of its uid.
    let theirs = format!("/api/v1/namespaces/organization-{acme}/configmaps");
    let kept = owned("kept", acme, &reference("Project", acme, &world.uid(acme)));
    assert_eq!(http.json(Method::POST, &theirs, &kept).code, 201);
    until("the forged one is seen", PATIENCE, || {
        let found = http.get(&format!("{maps}/anchor")).body;
        text(&found, "/metadata/deletionTimestamp").starts_with("20").then_some(())
    });
    assert_eq!(http.get(&format!("{theirs}/kept")).code, 200);
    world.admin().ok(&["delete", "project", acme, "--cascade=foreground", "--timeout=120s"]);
    World::gone(&world.admin(), &["configmap", "kept", &format!("--namespace=organization-{acme}")]);
    let free = json!({"metadata": {"finalizers": null}}).to_string();
    http.send(Method::PATCH, &format!("{maps}/anchor"), "application/merge-patch+json", free);
}

fn a_status_brings_no_owners(world: &World) {
    let parties = Parties::new(world, "status");
    let (evil, acme) = (&parties.evil, &parties.acme);
    let spec = json!({"projectRef": {"name": evil}});
    world.admin().apply(&in_organization(evil, "ProjectSnapshot", "mine", &spec));
    let owner = reference("Project", acme, &world.uid(acme));
    let patch = json!({"metadata": {"ownerReferences": [owner], "finalizers": ["evil.example/hold"]}});
    for subresource in ["/status", ""] {
        let path = format!("{RESOURCES}/namespaces/organization-{evil}/projectsnapshots/mine{subresource}");
        parties.admin().send(Method::PATCH, &path, "application/merge-patch+json", patch.to_string());
    }
    let after = parties.phase(evil, "projectsnapshot/mine", "Ready");
    assert_eq!(after["metadata"].get("ownerReferences"), None, "{after}");
}

/// What the conditions of an object say, once there are some, without the names in it.
fn verdict(admin: &Kubectl, what: &str, organization: &str, names: &[&str]) -> String {
    until(&format!("{what} is judged"), PATIENCE, || {
        let found = admin.json(&["get", what, &format!("--namespace=organization-{organization}")]);
        let conditions = found.pointer("/status/conditions").and_then(Value::as_array)?;
        let said = |condition: &Value| {
            ["type", "status", "reason", "message"]
                .map(|field| text(condition, &format!("/{field}")).to_owned())
        };
        let all: Vec<_> = conditions.iter().map(said).collect();
        (!all.is_empty())
            .then(|| names.iter().fold(format!("{all:?}"), |all, name| all.replace(name, "NAME")))
    })
}

/// Each kind of reference: the kind, and a spec in which `NAME` stands for an organization and `THING` for an object of it.
fn kinds() -> Vec<(&'static str, &'static str, Value)> {
    let thing = json!({"name": "THING"});
    let user = json!({"name": "somebody"});
    let mallory = json!([{"kind": "User", "name": "somebody"}]);
    vec![
        ("ProjectSnapshot", "projectsnapshot", json!({"projectRef": thing})),
        (
            "ProjectRestore",
            "projectrestore",
            json!({"projectRef": thing, "snapshotRef": {"name": "nightly"}}),
        ),
        ("ProjectRestore", "projectrestore", json!({"projectRef": {"name": "OWN"}, "snapshotRef": thing})),
        ("GroupMembership", "groupmembership", json!({"groupRef": thing, "userRef": user})),
        ("ServiceAccountKey", "serviceaccountkeys.iam.freehold.dev", json!({"serviceAccountRef": thing})),
        (
            "PolicyBinding",
            "policybinding",
            json!({"roleRef": {"name": "THING", "namespace": "organization-NAME"}, "subjects": mallory,
                "target": {"kind": "Organization", "name": "OWN"}}),
        ),
        (
            "PolicyBinding",
            "policybinding",
            json!({"roleRef": {"name": "viewer", "namespace": "freehold-system"}, "subjects": mallory,
                "target": {"kind": "Project", "name": "THING"}}),
        ),
        (
            "PolicyBinding",
            "policybinding",
            json!({"roleRef": {"name": "viewer", "namespace": "freehold-system"}, "subjects": mallory,
                "target": {"kind": "Organization", "name": "NAME"}}),
        ),
        (
            "OrganizationMembership",
            "organizationmembership",
            json!({"organizationRef": {"name": "NAME"}, "userRef": user, "roles": ["viewer"]}),
        ),
    ]
}

fn each_reference_to_another_organization_s_object_is_one_to_nothing(world: &World) {
    let parties = Parties::new(world, "each");
    let (evil, acme, admin) = (&parties.evil, &parties.acme, world.admin());
    parties.snapshot();
    // The victim has an object of each kind that is referred to, of one name.
    let role = json!({"includedPermissions": ["core/pods.get"]});
    for (kind, spec) in [
        ("ProjectSnapshot", json!({"projectRef": {"name": acme}})),
        ("Group", json!({})),
        ("Role", role),
        ("ServiceAccount", json!({})),
    ] {
        admin.apply(&in_organization(acme, kind, acme, &spec));
    }
    for (nth, (kind, resource, spec)) in kinds().into_iter().enumerate() {
        let made = |organization: &str, thing: &str, suffix: &str| {
            let spec =
                spec.to_string().replace("NAME", organization).replace("THING", thing).replace("OWN", evil);
            let name = format!("r{nth}-{suffix}");
            let spec = serde_json::from_str(&spec).expect("a spec");
            admin.apply(&in_organization(evil, kind, &name, &spec));
            verdict(&admin, &format!("{resource}/{name}"), evil, &[&name, thing, organization])
        };
        let (there, absent) = (made(acme, acme, "there"), made("each-none", "each-none", "absent"));
        assert_eq!(there, absent, "{kind} {spec}");
    }
    for (name, from) in [
        ("each-fork-1", json!({"project": "THING"})),
        ("each-fork-2", json!({"project": "THING", "snapshot": "nightly"})),
        ("each-fork-3", json!({"project": evil, "snapshot": "THING"})),
    ] {
        let made = |thing: &str, suffix: &str| {
            let name = format!("{name}-{suffix}");
            let from = serde_json::from_str(&from.to_string().replace("THING", thing)).expect("a source");
            admin.apply(&project(&name, evil, &from));
            let said = verdict(&admin, &format!("project/{name}"), evil, &[&name, thing]);
            assert!(said.contains("NotFound"), "{name}: {said}");
            admin.ok(&["delete", "project", &name, "--timeout=120s"]);
            said
        };
        assert_eq!(made(acme, "there"), made("each-none", "absent"), "{from}");
    }
}

/// Claims are looked at when a project was restored, among other occasions.
fn a_claim_on_another_organization_s_object_goes_whether_that_is_there_or_not(world: &World) {
    let parties = Parties::new(world, "claim");
    let (evil, acme, admin) = (&parties.evil, &parties.acme, world.admin());
    for project in [evil, acme] {
        world.server().project(project).ok(&["create", "configmap", "there"]);
        admin.apply(&in_organization(
            project,
            "ProjectSnapshot",
            "before",
            &json!({"projectRef": {"name": project}}),
        ));
        parties.phase(project, "projectsnapshot/before", "Ready");
    }
    let (resource, consumer) = ("claim-things", organization(evil));
    admin.apply(&registration(resource, "Organization", "{kind: ConfigMap}"));
    admin.apply(&grant(evil, &consumer, resource, 100));
    let http = parties.admin();
    let claims = format!("{QUOTA}/namespaces/organization-{evil}/resourceclaims");
    let claim = |name: &str, project: &str, object: &str| {
        let for_ =
            json!({"kind": "ConfigMap", "namespace": "default", "name": object, "plane": world.uid(project)});
        let spec = json!({"consumerRef": {"kind": "Organization", "name": evil, "apiGroup": "resourcemanager.freehold.dev"},
            "requests": [{"resourceType": resource, "amount": 1}], "resourceRef": for_});
        let object = json!({"apiVersion": "quota.freehold.dev/v1alpha1", "kind": "ResourceClaim",
            "metadata": {"name": name}, "spec": spec});
        let made = http.json(Method::POST, &claims, &object);
        assert_eq!(made.code, 201, "{}", made.body);
    };
    for (project, prefix) in [(evil, "own"), (acme, "theirs")] {
        claim(&format!("{prefix}-there"), project, "there");
        claim(&format!("{prefix}-absent"), project, "absent");
    }
    for project in [evil, acme] {
        let spec = json!({"projectRef": {"name": project}, "snapshotRef": {"name": "before"}});
        admin.apply(&in_organization(project, "ProjectRestore", "look", &spec));
        parties.phase(project, "projectrestore/look", "Completed");
    }
    for name in ["own-absent", "theirs-absent", "theirs-there"] {
        until(&format!("{name} is given back"), PATIENCE, || {
            (http.get(&format!("{claims}/{name}")).code == 404).then_some(())
        });
    }
    assert_eq!(http.get(&format!("{claims}/own-there")).code, 200);
}

/// Controllers watch all planes at once, and the server says of each object which it is from.
fn an_object_does_not_say_itself_in_which_plane_it_is(world: &World) {
    let parties = Parties::new(world, "claimed");
    let (evil, acme) = (world.server().project(&parties.evil), world.server().project(&parties.acme));
    let annotations = json!({"freehold.dev/plane": world.uid(&parties.acme), "resourcemanager.freehold.dev/project": parties.acme});
    let labels = json!({"app": "claimed"});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "claimed", "annotations": annotations},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "x"}]}}}});
    evil.apply(&deployment.to_string());
    evil.ok(&["wait", "--for=create", "pod", "-l", "app=claimed", "--timeout=120s"]);
    assert!(acme.json(&["get", "replicasets,pods"])["items"].as_array().is_some_and(Vec::is_empty));
    let everywhere = parties.admin().get("/planes/-/apis/apps/v1/deployments").body;
    let found: Vec<_> =
        crate::items(&everywhere).filter(|item| text(item, "/metadata/name") == "claimed").collect();
    let planes: Vec<_> =
        found.iter().map(|item| item["metadata"]["annotations"]["freehold.dev/plane"].clone()).collect();
    assert_eq!(planes, [json!(world.uid(&parties.evil))]);
}
