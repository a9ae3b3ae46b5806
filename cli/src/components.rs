//! The controllers, the provisioner, the node and the scheduler: clients of the server, in its process or in one of their own.

use crate::names::{API_SERVER, DEFAULT_SCHEDULER, FRONT_PROXY, LEASE};
use crate::{pki::VALIDITY, subsystem, telemetry, up::Serving};
use anyhow::{Context, Result};
use freehold_api::urls;
use freehold_client::{Client, Config as ClientConfig, Identity};
use freehold_controller_manager::{Config as ControllerConfig, Manager};
use freehold_machinery::PlaneId;
use freehold_node::{Config as NodeConfig, Images, LogServer};
use freehold_pki::Pair;
use freehold_provisioner::{Config as ProvisionerConfig, plan::Etcd};
use freehold_runtime::{Election, Planes};
use freehold_scheduler::Config as SchedulerConfig;
use std::sync::Arc;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// The image whose program is this one.
const IMAGE: &str = "freehold";
/// The name of the Node that `freehold up` runs, the same wherever it is: one runs at a time.
const NODE: &str = "local";
/// Pairs that are worked on at once.
const PROVISIONER_WORKERS: usize = 4;
/// Components that run.
pub(crate) struct Components {
    tasks: TaskTracker,
    /// The data directory is theirs as long as they run.
    _serving: Arc<Serving>,
}

impl Components {
    /// Waits until all of them have finished.
    pub(crate) async fn finished(&self) {
        self.tasks.wait().await;
    }
}

impl Serving {
    /// A client of the server, as a component that may do everything.
    fn client(&self, component: &str) -> Result<ClientConfig> {
        let Pair { cert_pem, key_pem } = self.data.pki.master(&format!("system:freehold:{component}"))?;
        let identity = Identity::ClientCert { cert_pem, key_pem };
        let config = ClientConfig::new(&self.local_url, self.data.pki.ca.cert_pem(), identity);
        Ok(config.user_agent(format!("freehold-{component}/{}", env!("CARGO_PKG_VERSION"))))
    }

    fn controllers(&self) -> Result<ControllerConfig> {
        let client = self.client("controller-manager")?;
        let (ca, signing) = (self.data.pki.ca.cert_pem(), Some(self.data.pki.ca.clone()));
        let config = ControllerConfig::new(client, &self.external_url, ca, signing);
        Ok(ControllerConfig { metrics: self.metrics.clone(), ..self.controllers.apply(config)? })
    }

    /// Runs the controllers of subsystems over the planes that Freehold's controllers work in.
    fn subsystems(&self, planes: Planes, stop: CancellationToken) -> impl Future<Output = ()> + use<> {
        let folder = Some(self.data.join(subsystem::FOLDER));
        subsystem::run_all(self.subsystems.clone(), planes, self.metrics.clone(), folder, stop)
    }

    /// Places Pods where a flag asks for it.
    fn scheduler(&self, stop: CancellationToken) -> Result<impl Future<Output = ()> + use<>> {
        let config = match self.scheduler {
            true => Some(SchedulerConfig {
                planes: Planes::all(Client::new(&self.client("scheduler")?)?),
                name: DEFAULT_SCHEDULER.to_owned(),
                metrics: self.metrics.clone(),
            }),
            false => None,
        };
        Ok(async move {
            if let Some(config) = config {
                freehold_scheduler::run(config, stop).await;
            }
        })
    }

    fn provisioner(&self) -> Result<ProvisionerConfig> {
        let authority = self.data.pki.ca.clone();
        // Whatever the store is, pairs reach it through this server: it seals values and confines each pair to its plane.
        let etcd = Etcd {
            endpoints: vec![self.local_url.clone()],
            prefix: "/freehold/".to_owned(),
            ca_pem: Some(self.data.pki.ca.cert_pem().to_owned()),
        };
        Ok(ProvisionerConfig {
            client: Client::new(&self.client("provisioner")?)?,
            base_path: urls::plane_path(&PlaneId::infra()),
            cluster: None,
            image: IMAGE.to_owned(),
            image_pull_policy: String::new(),
            rolling: PROVISIONER_WORKERS,
            etcd,
            etcd_authority: Some(authority.clone()),
            serving_authority: authority.clone(),
            client_authority: authority,
            front_proxy_authority: self.data.pki.front_proxy_ca.clone(),
            front_proxy_names: vec![FRONT_PROXY.to_owned()],
            token_keys: self.data.pki.service_account_key.clone(),
            sizes: Default::default(),
            core_namespace_labels: Default::default(),
            core_networks: Vec::new(),
            reach: Default::default(),
            drain_seconds: 0,
            outbound_networks: self.networks.to_string(),
            admission_plugins: self.plugins.clone(),
            telemetry: telemetry::of_pairs(|name| std::env::var(name).ok()),
            validity: freehold_provisioner::VALIDITY,
            workers: PROVISIONER_WORKERS,
            metrics: self.metrics.clone(),
        })
    }

    fn node(&self) -> Result<NodeConfig> {
        let program = std::env::current_exe().context("failed to find the program's own file")?;
        let images = self.images.iter().cloned().chain([(IMAGE.to_owned(), program)]);
        let serving = self.data.pki.ca.issue_server(&["127.0.0.1", "localhost", NODE], VALIDITY)?;
        Ok(NodeConfig {
            service: None,
            client: Client::new(&self.client("node")?)?,
            base_path: urls::plane_path(&PlaneId::infra()),
            node_name: NODE.to_owned(),
            takes_waiting: !self.scheduler,
            data_dir: self.data.join("node"),
            images: Images::new(images),
            logs: LogServer {
                listen: ([127, 0, 0, 1], 0).into(),
                cert_pem: serving.cert_pem,
                key_pem: serving.key_pem,
                client_ca_pem: self.data.pki.ca.cert_pem().to_owned(),
                client_names: vec![API_SERVER.to_owned()],
            },
        })
    }
}

/// Starts the components of `freehold up`. Where others may use the same store, all of them run in
/// one of them at a time; a server that comes back goes on with them at once.
pub(crate) async fn start(serving: Serving, stop: CancellationToken) -> Result<Components> {
    let (serving, tasks) = (Arc::new(serving), TaskTracker::new());
    if serving.shared {
        // Another server's node runs these Pods by now.
        freehold_node::end_leftovers(&serving.data.join("node")).await;
        let client = Client::new(&serving.client("controller-manager")?)?;
        let election = Election::new(client, LEASE, serving.data.identity()?).metrics(&serving.metrics);
        let leading = serving.clone();
        tasks.spawn(election.run(stop, move |term| lead(leading.clone(), term)));
    } else {
        tasks.spawn(serving.node()?.build().await?.run(stop.clone()));
        tasks.spawn(serving.scheduler(stop.clone())?);
        let controllers = Manager::new(serving.controllers()?)?;
        tasks.spawn(serving.subsystems(controllers.planes(), stop.clone()));
        tasks.spawn(controllers.run(stop.clone()));
        tasks.spawn(serving.provisioner()?.build().run(stop));
    }
    tasks.close();
    Ok(Components { tasks, _serving: serving })
}

async fn lead(serving: Arc<Serving>, term: CancellationToken) {
    let built = async {
        let node = serving.node()?.build().await?;
        let (controllers, provisioner) =
            (Manager::new(serving.controllers()?)?, serving.provisioner()?.build());
        Ok::<_, anyhow::Error>((controllers, provisioner, node, serving.scheduler(term.clone())?))
    };
    match built.await {
        Ok((controllers, provisioner, node, scheduler)) => {
            let subsystems = serving.subsystems(controllers.planes(), term.clone());
            tokio::join!(
                subsystems,
                scheduler,
                controllers.run(term.clone()),
                provisioner.run(term.clone()),
                node.run(term)
            );
        }
        Err(error) => {
            tracing::error!(error = format!("{error:#}"), "failed to start controllers");
            term.cancelled().await;
        }
    }
}
