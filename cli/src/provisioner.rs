//! `freehold provisioner`: makes dedicated pairs on a Kubernetes cluster, for the ProjectControlPlanes of core servers.

use crate::election::ElectionArgs;
use crate::names::{FRONT_PROXY, PROVISIONER_LEASE};
use crate::{
    admission::AdmissionArgs,
    controllers::instance,
    metrics::{Format, MetricsArgs},
    outbound::OutboundArgs,
    pki::{FILES, Pki},
    stop, telemetry,
};
use anyhow::{Context, Result, bail, ensure};
use freehold_api::urls;
use freehold_client::{Client, Config as ClientConfig, Identity, kubeconfig_as};
use freehold_machinery::PlaneId;
use freehold_provisioner::{
    Config,
    plan::{Etcd, Reach, Size, delivery::Delivery},
};
use freehold_runtime::{Election, Metrics};
use serde::Deserialize;
use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio_util::sync::CancellationToken;

/// Where a Pod finds the token and the authority of its cluster's API.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// How often files are compared with what was read.
const LOOK: Duration = Duration::from_secs(5);
/// Pairs that are worked on at once.
const WORKERS: usize = 8;
/// Seconds for which an apiserver that is to stop goes on serving.
const DRAIN_SECONDS: u32 = 5;

/// Flags of `freehold provisioner`.
#[derive(Clone, clap::Args)]
pub(crate) struct Args {
    /// Kubeconfig of the core servers, of an administrator.
    #[arg(long, value_name = "FILE")]
    kubeconfig: PathBuf,
    /// Kubeconfig of the cluster that pairs run on. Default: the cluster of this program's Pod, by its service account.
    #[arg(long, value_name = "FILE")]
    infra_kubeconfig: Option<PathBuf>,
    /// Authorities and keys that core servers share, as `freehold pki` creates them.
    #[arg(long, value_name = "DIR")]
    pki_dir: PathBuf,
    /// Image with this program, for classes that name none.
    #[arg(long)]
    image: String,
    /// When nodes pull the image. Default: what Kubernetes makes of its tag.
    #[arg(long, value_parser = ["Always", "IfNotPresent", "Never"])]
    image_pull_policy: Option<String>,
    /// YAML file with the sizes of pairs by ControlPlaneClass: `classes: {NAME: {delivery, replicas, image,
    /// apiserver, controllerManager}}`, where `delivery: GitOps` leaves all but Secrets to deploy/gitops. It is read again when it changes.
    #[arg(long, value_name = "FILE")]
    classes: Option<PathBuf>,
    /// URLs at which pairs reach the core servers, which are their store. Default: the server in --kubeconfig.
    #[arg(long, value_name = "URLS", value_delimiter = ',')]
    store_endpoints: Vec<String>,
    /// How apiservers are reached: by the address of a Pod, or by the name of their Service (needs the cluster's DNS).
    #[arg(long, value_enum, default_value = "pod")]
    reach: ReachArg,
    /// Labels of the namespace that core servers run in, for network policies: `KEY=VALUE`. Default: any namespace.
    #[arg(long, value_name = "LABELS", value_delimiter = ',', value_parser = label)]
    core_namespace_labels: Vec<(String, String)>,
    /// Networks that core servers come from besides, for network policies: CIDRs.
    #[arg(long, value_name = "CIDRS", value_delimiter = ',')]
    core_networks: Vec<ipnet::IpNet>,
    /// Number of pairs that get another image at a time. The others wait until these run.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    rolling: u16,
    /// Seconds for which certificates of pairs are valid; new ones are issued after two thirds of it.
    #[arg(long, value_name = "SECONDS", default_value_t = freehold_provisioner::VALIDITY.as_secs(), value_parser = clap::value_parser!(u64).range(10..))]
    certificate_duration: u64,
    #[command(flatten)]
    outbound: OutboundArgs,
    #[command(flatten)]
    admission: AdmissionArgs,
    #[command(flatten)]
    election: ElectionArgs,
    #[command(flatten)]
    metrics: MetricsArgs,
}

/// The values of `--reach`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum ReachArg {
    Pod,
    Service,
}

/// The file of `--classes`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Classes {
    classes: BTreeMap<String, Size>,
}

/// Reads `KEY=VALUE`.
fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("it must be KEY=VALUE".to_owned()),
    }
}

/// Reads the file of `--classes`.
fn classes(path: &Path) -> Result<BTreeMap<String, Size>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("{} can't be read", path.display()))?;
    let read: Classes = kubeconfig_as(&text).with_context(|| path.display().to_string())?;
    for (name, size) in &read.classes {
        ensure!(size.replicas > 0, "{}: class {name:?} has no replicas", path.display());
    }
    Ok(read.classes)
}

/// The API of the cluster that this program's Pod runs in.
fn own_cluster() -> Result<ClientConfig> {
    let variable = |name: &str| {
        std::env::var(name)
            .with_context(|| format!("{name} is not set: outside of a Pod --infra-kubeconfig is needed"))
    };
    let (host, port) = (variable("KUBERNETES_SERVICE_HOST")?, variable("KUBERNETES_SERVICE_PORT")?);
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    let read = |name: &str| {
        let path = Path::new(ACCOUNT).join(name);
        std::fs::read_to_string(&path).with_context(|| format!("{} can't be read", path.display()))
    };
    let token = read("token")?.trim().to_owned();
    Ok(ClientConfig::new(format!("https://{host}:{port}"), read("ca.crt")?, Identity::Token(token)))
}

fn kubeconfig(path: &Path) -> Result<ClientConfig> {
    ClientConfig::from_kubeconfig(path)
        .with_context(|| format!("kubeconfig {} can't be used", path.display()))
}

impl Args {
    fn infra(&self) -> Result<ClientConfig> {
        let config = match &self.infra_kubeconfig {
            Some(path) => kubeconfig(path),
            None => own_cluster(),
        };
        Ok(config?.user_agent(format!("freehold-provisioner/{}", env!("CARGO_PKG_VERSION"))))
    }

    /// A configuration from what files have now.
    fn config(&self, metrics: &Metrics) -> Result<Config> {
        let core = kubeconfig(&self.kubeconfig)?;
        let pki = Pki::open(&self.pki_dir)?;
        let endpoints = match self.store_endpoints.is_empty() {
            true => vec![core.server.clone()],
            false => self.store_endpoints.clone(),
        };
        let sizes = self.classes.as_deref().map(classes).transpose()?.unwrap_or_default();
        let delivered = sizes.iter().find(|(_, size)| size.delivery == Delivery::GitOps);
        if let (Some((class, _)), ReachArg::Pod) = (delivered, self.reach) {
            bail!("class {class:?} has `delivery: GitOps`, which needs --reach service");
        }
        let etcd = Etcd { endpoints, prefix: "/freehold/".to_owned(), ca_pem: Some(pki.client_ca.clone()) };
        Ok(Config {
            client: Client::new(&core)?,
            base_path: urls::plane_path(&PlaneId::infra()),
            cluster: Some(Client::new(&self.infra()?)?),
            image: self.image.clone(),
            image_pull_policy: self.image_pull_policy.clone().unwrap_or_default(),
            rolling: self.rolling.into(),
            etcd,
            etcd_authority: Some(pki.ca.clone()),
            serving_authority: pki.ca.clone(),
            client_authority: pki.ca.clone(),
            front_proxy_authority: pki.front_proxy_ca.clone(),
            front_proxy_names: vec![FRONT_PROXY.to_owned()],
            token_keys: pki.service_account_key.clone(),
            sizes,
            core_namespace_labels: self.core_namespace_labels.iter().cloned().collect(),
            core_networks: self.core_networks.iter().map(ToString::to_string).collect(),
            reach: match self.reach {
                ReachArg::Pod => Reach::Pod,
                ReachArg::Service => Reach::Service,
            },
            drain_seconds: DRAIN_SECONDS,
            outbound_networks: self.outbound.networks.to_string(),
            admission_plugins: self.admission.plugins()?,
            telemetry: telemetry::of_pairs(|name| std::env::var(name).ok()),
            validity: Duration::from_secs(self.certificate_duration),
            workers: WORKERS,
            metrics: metrics.clone(),
        })
    }

    /// The files that a configuration is read from.
    fn files(&self) -> Vec<PathBuf> {
        let infra = self.infra_kubeconfig.clone();
        let infra = infra.unwrap_or_else(|| Path::new(ACCOUNT).join("token"));
        let mut files = vec![self.kubeconfig.clone(), infra];
        files.extend(self.classes.clone());
        files.extend(FILES.iter().map(|file| self.pki_dir.join(file)));
        files
    }
}

/// A number for the content of files.
fn content(files: &[PathBuf]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for file in files {
        std::fs::read(file).ok().hash(&mut hasher);
    }
    hasher.finish()
}

/// Waits until files have another content.
async fn changed(files: &[PathBuf], before: u64) {
    while content(files) == before {
        tokio::time::sleep(LOOK).await;
    }
}

/// Provisions until Ctrl-C or SIGTERM.
pub(crate) async fn run(args: Args) -> Result<()> {
    let stop = stop::on_signal()?;
    let metrics = Metrics::default();
    let counted = metrics.clone();
    args.metrics.serve(Format::Text, Arc::new(move || counted.render()), stop.clone()).await?;
    // What is wrong with the flags shows now, not when this instance leads.
    args.config(&metrics)?;
    if !args.election.leader_elect {
        work(&args, &metrics, stop).await;
        return Ok(());
    }
    let times = args.election.times();
    let client = Client::new(&kubeconfig(&args.kubeconfig)?)?;
    let election = Election::new(client, PROVISIONER_LEASE, instance()).times(times).metrics(&metrics);
    let work = |term: CancellationToken| {
        let (args, metrics) = (args.clone(), metrics.clone());
        async move { work(&args, &metrics, term).await }
    };
    election.run(stop, work).await;
    Ok(())
}

/// Provisions until `stop`, and anew whenever a file changes: certificates, tokens and classes are replaced while it runs.
async fn work(args: &Args, metrics: &Metrics, stop: CancellationToken) {
    let files = args.files();
    while !stop.is_cancelled() {
        let before = content(&files);
        let term = stop.child_token();
        let running = async {
            match args.config(metrics) {
                Ok(config) => config.build().run(term.clone()).await,
                Err(error) => {
                    tracing::error!(
                        error = format!("{error:#}"),
                        "failed to read the configuration; waiting for another"
                    );
                    term.cancelled().await;
                }
            }
        };
        tokio::pin!(running);
        tokio::select! {
            () = &mut running => {}
            () = changed(&files, before) => {
                tracing::info!("files have changed: starting anew with them");
                term.cancel();
                running.await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_names_what_its_pairs_consist_of_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("classes.yaml");
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            classes(&path).map_err(|error| format!("{error:#}"))
        };
        let two = read("classes:\n  large: {replicas: 2, image: 'freehold:1'}\n  small: {}\n").unwrap();
        assert_eq!((two["large"].replicas, two["large"].image.as_deref()), (2, Some("freehold:1")));
        assert_eq!(two["small"], Size::default());
        assert!(read("classes: {a: {replica: 2}}").unwrap_err().contains("replica"));
        assert!(read("classes: {a: {replicas: 0}}").unwrap_err().contains("class \"a\" has no replicas"));
    }

    #[test]
    fn another_content_of_a_file_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let files = [folder.path().join("a"), folder.path().join("absent")];
        std::fs::write(&files[0], "1").unwrap();
        let before = content(&files);
        assert_eq!(content(&files), before);
        std::fs::write(&files[0], "2").unwrap();
        assert_ne!(content(&files), before);
    }
}
