//! What callers may do: asked of the Kubernetes API in their name, or read off their role.

use crate::app::App;
use crate::caller::Caller;
use crate::reply::{Failure, Reply, check_name};
use crate::upstream::NAMESPACES;
use freehold_client::RawRequest;
use freehold_workflow_store::{Role, Scope};
use http::Method;
use parking_lot::Mutex;
use serde_json::json;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How long a decision holds: a right that is withdrawn ends within this time.
const TTL: Duration = Duration::from_secs(5);
/// Decisions that are kept.
const KEPT: usize = 10_000;

/// Decisions of the Kubernetes API of the last seconds.
#[derive(Debug, Default)]
pub(crate) struct Decisions {
    by_question: Mutex<HashMap<Question, (Instant, bool)>>,
}

/// Who wants to do what.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Question {
    key: [u8; 32],
    verb: &'static str,
    resource: &'static str,
    group: &'static str,
    namespace: String,
}

impl Decisions {
    fn get(&self, question: &Question) -> Option<bool> {
        self.by_question
            .lock()
            .get(question)
            .filter(|(at, _)| at.elapsed() < TTL)
            .map(|(_, allowed)| *allowed)
    }

    fn keep(&self, question: Question, allowed: bool) {
        let mut kept = self.by_question.lock();
        if kept.len() >= KEPT {
            kept.retain(|_, (at, _)| at.elapsed() < TTL);
        }
        // Where all of them are fresh, the next caller asks again.
        if kept.len() < KEPT {
            kept.insert(question, (Instant::now(), allowed));
        }
    }
}

/// What is to be done: a verb on a resource of a group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Action {
    pub(crate) verb: &'static str,
    pub(crate) group: &'static str,
    pub(crate) resource: &'static str,
}

/// Reading runs and their history.
pub(crate) const READ_RUNS: Action =
    Action { verb: "list", group: freehold_workflow_api::GROUP, resource: "dagruns" };
/// Reading logs.
pub(crate) const READ_LOGS: Action = Action { verb: "get", group: "", resource: "pods/log" };

impl App {
    /// Checks that a caller may do something in a namespace, or in all of them.
    pub(crate) async fn authorize(
        &self,
        caller: &Caller,
        action: Action,
        namespace: Option<&str>,
    ) -> Reply<()> {
        let Caller::Forwarded { authorization, key } = caller else { return Ok(()) };
        let namespace = namespace.unwrap_or_default();
        let question = Question {
            key: *key,
            verb: action.verb,
            resource: action.resource,
            group: action.group,
            namespace: namespace.to_owned(),
        };
        let allowed = match self.decisions.get(&question) {
            Some(allowed) => allowed,
            None => {
                let allowed = self.ask(authorization, action, namespace).await?;
                self.decisions.keep(question, allowed);
                allowed
            }
        };
        if allowed {
            return Ok(());
        }
        let place = if namespace.is_empty() {
            "in all namespaces".to_owned()
        } else {
            format!("in namespace {namespace:?}")
        };
        Err(Failure::forbidden(format!("you may not {} {} {place}", action.verb, action.resource)))
    }

    async fn ask(&self, authorization: &http::HeaderValue, action: Action, namespace: &str) -> Reply<bool> {
        let (resource, subresource) = action.resource.split_once('/').unwrap_or((action.resource, ""));
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {
                "verb": action.verb, "group": action.group, "resource": resource, "subresource": subresource, "namespace": namespace,
            }},
        });
        let mut request =
            RawRequest::new(Method::POST, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
                .json(&review);
        request.headers.insert(http::header::AUTHORIZATION, authorization.clone());
        let answer = self.client.json(request).await?;
        Ok(answer["status"]["allowed"] == true)
    }

    /// The part of the history that a caller may read: a namespace, or the whole plane.
    pub(crate) async fn scope(
        &self,
        caller: &Caller,
        action: Action,
        namespace: Option<&str>,
    ) -> Reply<Scope> {
        self.authorize(caller, action, namespace).await?;
        Ok(match namespace {
            Some(namespace) => {
                Scope::namespace_of(&self.plane, namespace, &self.uid_of(caller, namespace).await?)
            }
            None => Scope::plane(&self.plane),
        })
    }
}

impl App {
    /// The uid of a namespace: what is kept of an earlier one of its name is not its.
    async fn uid_of(&self, caller: &Caller, namespace: &str) -> Reply<String> {
        check_name(namespace)?;
        let found = self.get(caller, NAMESPACES.object_path(None, namespace, None)).await?;
        Ok(freehold_machinery::meta::uid(&found).to_owned())
    }
}

impl Caller {
    /// Checks that a local caller has a role. The Kubernetes API decides about others.
    pub(crate) fn wants(&self, role: Role) -> Reply<()> {
        match self {
            Self::Known { role: has, .. } if *has < role => Err(Failure::forbidden(format!(
                "role {} is wanted, you have {}",
                role.as_str(),
                has.as_str()
            ))),
            _ => Ok(()),
        }
    }
}
