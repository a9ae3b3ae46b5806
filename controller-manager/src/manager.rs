//! Starts the configured controllers and stops them.

use freehold_client::Client;
use freehold_controllers_context::config::{Config, FREEHOLD_CONTROLLERS, KUBERNETES_CONTROLLERS};
use freehold_controllers_context::{Context, Start};
use freehold_runtime::{Metrics, Planes};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How long controllers have to end after the token is cancelled.
const STOP: Duration = Duration::from_secs(5);

/// Controllers of this crate by their names.
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
    ("token-cleaner", crate::bootstrap::start),
];

/// A set of controllers.
pub struct Manager {
    context: Context,
}

impl Manager {
    /// Makes a manager that is ready to run.
    ///
    /// # Errors
    /// Fails if a controller's name is unknown or a client cannot be made.
    pub fn new(config: Config) -> anyhow::Result<Self> {
        let known = |name: &String| {
            KUBERNETES_CONTROLLERS.contains(&name.as_str()) || FREEHOLD_CONTROLLERS.contains(&name.as_str())
        };
        if let Some(unknown) = config.controllers.iter().find(|name| !known(name)) {
            let names = KUBERNETES_CONTROLLERS.join(", ");
            anyhow::bail!("there is no controller {unknown:?}; there are {names}");
        }
        let client = Client::new(&config.client.clone().user_agent("freehold-controller-manager"))?;
        let infra = match &config.infra {
            Some(config) => Client::new(&config.clone().user_agent("freehold-controller-manager"))?,
            None => client.at("/planes/infra"),
        };
        Ok(Self { context: Context::new(config, client, infra, CancellationToken::new()) })
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
        for (name, start) in CONTROLLERS.iter().chain(freehold_controllers_workloads::CONTROLLERS) {
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

    fn config() -> Config {
        let client = freehold_client::Config::new("http://127.0.0.1:1", "", freehold_client::Identity::None);
        Config::new(client, "https://freehold.example", "", None)
    }

    #[test]
    fn every_named_controller_can_be_started() {
        let mut named: Vec<&str> =
            KUBERNETES_CONTROLLERS.iter().chain(FREEHOLD_CONTROLLERS).copied().collect();
        let mut startable: Vec<&str> = CONTROLLERS.iter().map(|(name, _)| *name).collect();
        startable.extend(freehold_controllers_workloads::CONTROLLERS.iter().map(|(name, _)| *name));
        startable.extend(freehold_controllers::CONTROLLERS.iter().map(|(name, _)| *name));
        named.sort_unstable();
        startable.sort_unstable();
        assert_eq!(named, startable);
    }

    #[test]
    fn an_unknown_controller_is_refused() {
        let mut config = config();
        config.controllers.push("nonsense".into());
        let told = Manager::new(config).err().map(|e| e.to_string()).unwrap();
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
        let all = CONTROLLERS.len()
            + freehold_controllers_workloads::CONTROLLERS.len()
            + freehold_controllers::CONTROLLERS.len();
        assert_eq!(select(&["*"]).len(), all);
        let but_one = select(&["*", "-job"]);
        assert!(but_one.len() == all - 1 && !but_one.contains(&"job".to_owned()));
        assert_eq!(select(&["job"]).len(), FREEHOLD_CONTROLLERS.len() + 1);
        assert!(Manager::new(config().select(&["-nonsense".to_owned()])).is_err());
    }

    #[tokio::test]
    async fn all_controllers_start_without_a_server_and_stop_when_told() {
        let token = CancellationToken::new();
        let running = tokio::spawn(Manager::new(config()).unwrap().run(token.clone()));
        tokio::task::yield_now().await;
        token.cancel();
        tokio::time::timeout(20 * STOP, running).await.unwrap().unwrap();
    }
}
