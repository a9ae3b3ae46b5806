//! Starts the configured controllers and stops them.

use crate::config::Config;
use crate::context::Context;
use freehold_client::Client;
use freehold_runtime::{Metrics, Planes};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How long controllers have to end after the token is cancelled.
const STOP: Duration = Duration::from_secs(5);

type Start = fn(&mut Context);

/// Every controller by its name.
const CONTROLLERS: &[(&str, Start)] = &[
    ("organization", crate::organization::start),
    ("project", crate::project::start),
    ("membership", crate::membership::start),
    ("snapshot", crate::snapshot::start),
    ("restore", crate::restore::start),
    ("class", crate::class::start),
    ("allowance", crate::allowances::start),
    ("api-rollout", crate::rollout::start),
    ("policy-binding", crate::iam::bindings),
    ("group-membership", crate::iam::memberships),
    ("user-invitation", crate::iam::invitations),
    ("service-account-key", crate::iam::keys),
    ("namespace", crate::namespace::start),
    ("garbage-collector", crate::garbage::start),
    ("service-account", crate::serviceaccount::start),
    ("service-account-token", crate::tokens::start),
    ("root-ca", crate::rootca::start),
    ("resource-quota", crate::quota::start),
    ("cluster-role-aggregation", crate::aggregation::start),
    ("deployment", crate::deployment::start),
    ("replica-set", crate::replicaset::start),
    ("replication-controller", crate::replicaset::replication_controllers),
    ("stateful-set", crate::statefulset::start),
    ("daemon-set", crate::daemonset::start),
    ("horizontal-pod-autoscaler", crate::autoscaler::start),
    ("job", crate::job::start),
    ("cron-job", crate::cronjob::start),
    ("ttl-after-finished", crate::ttl::start),
    ("disruption", crate::disruption::start),
    ("pod-garbage-collector", crate::podgc::start),
    ("endpoints", crate::endpoints::single::start),
    ("endpoint-slice", crate::endpoints::sliced::start),
    ("endpoint-slice-mirroring", crate::endpoints::mirror::start),
    ("certificate-approving", crate::approval::start),
    ("certificate-signing", crate::certificates::start),
    ("certificate-cleaner", crate::cleaner::start),
    ("definition-deletion", crate::definitions::start),
    ("volume-protection", crate::volumes::start),
    ("node-taints", crate::nodes::start),
    ("node-lifecycle", crate::lifecycle::start),
    ("taint-eviction", crate::lifecycle::eviction),
    ("ephemeral-volume", crate::ephemeral::start),
    ("token-cleaner", crate::bootstrap::start),
];

/// A set of controllers.
pub struct Manager {
    context: Context,
}

impl Manager {
    pub(crate) fn new(config: Config, client: Client, infra: Client) -> Self {
        Self { context: Context::new(config, client, infra, CancellationToken::new()) }
    }

    /// What the controllers count.
    pub fn metrics(&self) -> Metrics {
        self.context.metrics.clone()
    }

    /// The planes that its controllers work in.
    pub fn planes(&self) -> Planes {
        self.context.planes.clone()
    }

    /// Runs until the token is cancelled, then lets what runs end, for a few seconds at most.
    pub async fn run(mut self, token: CancellationToken) {
        self.context.token = token.clone();
        // Only who knows of projects knows of their classes: a pair's manager does not.
        if self.context.config.controllers.iter().any(|wanted| wanted == "project") {
            crate::handover::follow(&mut self.context);
        }
        for (name, start) in CONTROLLERS {
            if self.context.config.controllers.iter().any(|wanted| wanted == name) {
                start(&mut self.context);
            }
        }
        let others = self.context.of_others();
        for (name, start) in freehold_controllers::CONTROLLERS {
            if self.context.config.controllers.iter().any(|wanted| wanted == name) {
                start(&others);
            }
        }
        self.context.run_shared();
        tracing::info!(controllers = self.context.config.controllers.len(), "controllers started");
        token.cancelled().await;
        self.context.tasks.close();
        if tokio::time::timeout(STOP, self.context.tasks.wait()).await.is_err() {
            tracing::warn!("controllers did not stop in time");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FREEHOLD_CONTROLLERS, KUBERNETES_CONTROLLERS};

    fn config() -> Config {
        let client = freehold_client::Config::new("http://127.0.0.1:1", "", freehold_client::Identity::None);
        Config::new(client, "https://freehold.example", "", None)
    }

    #[test]
    fn every_named_controller_can_be_started() {
        let mut named: Vec<&str> =
            KUBERNETES_CONTROLLERS.iter().chain(FREEHOLD_CONTROLLERS).copied().collect();
        let mut startable: Vec<&str> = CONTROLLERS.iter().map(|(name, _)| *name).collect();
        startable.extend(freehold_controllers::CONTROLLERS.iter().map(|(name, _)| *name));
        named.sort_unstable();
        startable.sort_unstable();
        assert_eq!(named, startable);
    }

    #[test]
    fn an_unknown_controller_is_refused() {
        let mut config = config();
        config.controllers.push("nonsense".into());
        let told = config.build().err().map(|e| e.to_string()).unwrap();
        assert!(
            told.starts_with("there is no controller \"nonsense\"; there are namespace, garbage"),
            "{told}"
        );
    }

    #[test]
    fn controllers_are_selected_as_kube_controller_manager_has_it() {
        let select = |asked: &[&str]| {
            let asked: Vec<String> = asked.iter().map(|one| (*one).to_owned()).collect();
            config().select(&asked).controllers
        };
        let all = CONTROLLERS.len() + freehold_controllers::CONTROLLERS.len();
        assert_eq!(select(&["*"]).len(), all);
        let but_one = select(&["*", "-job"]);
        assert!(but_one.len() == all - 1 && !but_one.contains(&"job".to_owned()));
        assert_eq!(select(&["job"]).len(), FREEHOLD_CONTROLLERS.len() + 1);
        assert!(config().select(&["-nonsense".to_owned()]).build().is_err());
    }

    #[tokio::test]
    async fn all_controllers_start_without_a_server_and_stop_when_told() {
        let token = CancellationToken::new();
        let running = tokio::spawn(config().build().unwrap().run(token.clone()));
        tokio::task::yield_now().await;
        token.cancel();
        tokio::time::timeout(20 * STOP, running).await.unwrap().unwrap();
    }
}
