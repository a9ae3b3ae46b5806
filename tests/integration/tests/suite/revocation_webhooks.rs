//! What webhooks said of who somebody is, and of what they may do, ends what goes on when they say it no longer: on a clear no,
//! and not where they can't be asked.

use crate::access::{becomes, member};
use crate::{PATIENCE, text};
use freehold_tests_integration::{
    Background, Engine, HookServer, Kubectl, Options, Reply, Server, facts, until,
};
use serde_json::{Value, json};
use std::{
    fs,
    sync::{Arc, Mutex, PoisonError},
};
use tempfile::TempDir;

facts!(engine:
    watches_end_when_a_webhook_says_no_longer_whose_their_token_is,
    watches_end_when_webhooks_would_not_let_them_begin,
);

const WATCH: &str = "/projects/asked-web/api/v1/configmaps?watch=true";

/// How the webhooks are.
#[derive(Clone, Copy, PartialEq)]
enum Mood {
    /// They know everybody, and let everybody do everything.
    Kind,
    /// They fail.
    Broken,
    /// They know nobody, and let nobody else do anything.
    Stern,
}

/// A server that asks webhooks, and what belongs to it.
struct Asking {
    server: Server,
    hook: HookServer,
    mood: Arc<Mutex<Mood>>,
    _folder: TempDir,
}

/// What the webhook of a path says: whose a token is, whether anybody may do anything, or, at the gate, that someone may not.
fn answer(mood: Mood, path: &str, review: &Value) -> Reply {
    let version = review["apiVersion"].clone();
    let (token, user) = (text(review, "/spec/token"), text(review, "/spec/user"));
    let status = match (mood, path) {
        (Mood::Broken, _) => return Reply::Text(404, "nothing here".to_owned()),
        (Mood::Kind, "/tokens") => {
            json!({"authenticated": true, "user": {"username": token.trim_start_matches("of-")}})
        }
        (Mood::Stern, "/tokens") => json!({"authenticated": false}),
        (Mood::Kind, "/late") => json!({"allowed": user.starts_with("helped")}),
        (Mood::Stern, "/gate") => json!({"allowed": false, "denied": user == "vera"}),
        _ => json!({"allowed": false}),
    };
    Reply::Json(json!({"apiVersion": version, "kind": review["kind"], "status": status}))
}

impl Asking {
    /// Webhooks whose answers count for a second, and an organization with a project.
    fn start(engine: Engine, authorizers: &[&str], args: &[&str]) -> Self {
        let mood = Arc::new(Mutex::new(Mood::Kind));
        let now = mood.clone();
        let hook = HookServer::start(move |path, review| {
            answer(*now.lock().unwrap_or_else(PoisonError::into_inner), path, review)
        });
        let folder = TempDir::new().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        for name in ["tokens", "gate", "late"] {
            fs::write(path(name), hook.kubeconfig(&format!("/{name}"))).expect("a file can be written");
        }
        let one = |name: &&str| match *name {
            "rbac" => json!({"type": "RBAC", "name": "rbac"}),
            name => json!({"type": "Webhook", "name": name, "webhook": {
                "timeout": "30s", "subjectAccessReviewVersion": "v1", "failurePolicy": "NoOpinion",
                "authorizedTTL": "1s", "unauthorizedTTL": "1s",
                "connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": path(name)},
            }}),
        };
        let all: Vec<Value> = authorizers.iter().map(one).collect();
        let config = json!({
            "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthorizationConfiguration", "authorizers": all,
        });
        fs::write(path("config"), config.to_string()).expect("a file can be written");
        let args = [args, &["--authorization-config=config", "--authentication-token-webhook-cache-ttl=1s"]];
        let args = args.concat().into_iter().map(|arg| match arg.split_once('=') {
            Some((flag, file)) if path(file).exists() => format!("{flag}={}", path(file).display()),
            _ => arg.to_owned(),
        });
        let server = Server::start(Options { engine, args: args.collect(), ..Options::default() });
        server.kubectl().apply(
            "apiVersion: resourcemanager.freehold.dev/v1alpha1\nkind: Organization\nmetadata: {name: asked}\n---\n\
             apiVersion: resourcemanager.freehold.dev/v1alpha1\nkind: Project\nmetadata: {name: asked-web}\n\
             spec: {ownerRef: {kind: Organization, name: asked}}\n",
        );
        server.kubectl().ok(&["wait", "--for=condition=Ready", "project/asked-web", "--timeout=120s"]);
        Self { server, hook, mood, _folder: folder }
    }

    fn turn(&self, mood: Mood) {
        *self.mood.lock().unwrap_or_else(PoisonError::into_inner) = mood;
    }

    /// Waits until a webhook was asked again about what goes on, and then one time more.
    fn is_asked_again(&self, about: impl Fn(&Value) -> bool) {
        let asked = || self.hook.seen().iter().filter(|review| about(review)).count();
        let before = asked();
        until("a webhook is asked again", PATIENCE, || (asked() > before + 1).then_some(()));
    }

    /// A watch goes on while webhooks fail, and ends when they say no.
    fn ends(&self, who: &Kubectl, watches: &mut [Background], about: impl Fn(&Value) -> bool) {
        for watch in &mut *watches {
            watch.wait_for("kube-root-ca.crt");
        }
        self.turn(Mood::Broken);
        self.is_asked_again(about);
        self.server.project("asked-web").ok(&["create", "configmap", "while-broken"]);
        for watch in &mut *watches {
            watch.wait_for("while-broken");
        }
        self.turn(Mood::Stern);
        for watch in watches {
            watch.wait_for_end();
        }
        becomes(who, &["get", "configmaps"], false);
    }

    fn in_project(&self, who: Kubectl) -> Kubectl {
        who.with(&["--server", &format!("{}/projects/asked-web", self.server.url())])
    }
}

fn watches_end_when_a_webhook_says_no_longer_whose_their_token_is(engine: Engine) {
    let flag = "--authentication-token-webhook-config-file=tokens";
    let asking = Asking::start(engine, &["rbac"], &[flag]);
    asking.server.kubectl().apply(&member("asked", "jane", "viewer"));
    let jane = asking.in_project(asking.server.kubectl_with_token("of-jane"));
    becomes(&jane, &["get", "configmaps"], true);
    let mut watches = [0, 1].map(|_| jane.background(&["get", "--raw", WATCH]));
    asking.ends(&jane, &mut watches, |review| text(review, "/spec/token") == "of-jane");
}

fn watches_end_when_webhooks_would_not_let_them_begin(engine: Engine) {
    let asking = Asking::start(engine, &["gate", "rbac", "late"], &[]);
    asking.server.kubectl().apply(&member("asked", "vera", "viewer"));
    for user in ["helped-hal", "vera"] {
        asking.turn(Mood::Kind);
        let who = asking.in_project(asking.server.person(user));
        becomes(&who, &["get", "configmaps"], true);
        let mut watches = [0, 1].map(|_| who.background(&["get", "--raw", WATCH]));
        let is_about = |review: &Value| {
            text(review, "/spec/user") == user && text(review, "/spec/resourceAttributes/verb") == "watch"
        };
        asking.ends(&who, &mut watches, is_about);
        asking.turn(Mood::Kind);
        asking.server.project("asked-web").ok(&["delete", "configmap", "while-broken"]);
    }
}
