//! What a plan is made from, and the names of what it consists of.

use freehold_machinery::Value;
use serde::Deserialize;
use serde_json::json;
use std::collections::BTreeMap;

/// The name of the apiserver's Deployment, Service and policies.
pub const APISERVER: &str = "apiserver";

/// The name of the controller manager's Deployment and policy.
pub const CONTROLLER_MANAGER: &str = "controller-manager";

/// The label that tells the two programs of a pair apart.
pub const COMPONENT: &str = "app.kubernetes.io/component";

/// Secret with the apiserver's serving certificate.
pub const SERVING_SECRET: &str = "apiserver-serving";

/// Secret with the certificate that the apiserver shows to aggregated servers.
pub const PROXY_SECRET: &str = "apiserver-proxy-client";

/// Secret with the certificate that the apiserver shows to etcd.
pub const ETCD_SECRET: &str = "apiserver-etcd-client";

/// Secret with the key that signs service account tokens in the pair, and the public keys of others that are believed.
pub const SERVICE_ACCOUNT_SECRET: &str = "service-account-key";

/// Secret that says who the apiserver is to webhooks.
pub const ADMISSION_SECRET: &str = "apiserver-admission";

/// Secret with the CA certificates that the apiserver checks clients against.
pub const TRUST_SECRET: &str = "apiserver-trust";

/// The file in that Secret with the authority of the plane's own clients.
pub const CLIENT_CA_FILE: &str = "client-ca.crt";

/// Secret with the controller manager's certificate.
pub const CONTROLLER_MANAGER_SECRET: &str = "controller-manager-client";

/// Secret with the administrators' certificate.
pub const ADMIN_SECRET: &str = "admin-client";

/// Secret with the controller manager's kubeconfig.
pub const CONTROLLER_MANAGER_KUBECONFIG: &str = "controller-manager-kubeconfig";

/// Secret with the administrators' kubeconfig, which goes to the pair directly.
pub const ADMIN_KUBECONFIG: &str = "admin-kubeconfig";

/// Whose pair is planned: a ProjectControlPlane without what is not needed here.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Spec {
    /// Name of the ProjectControlPlane.
    pub name: String,
    /// Its uid, for owner references. Empty where the pair runs on another cluster than the one with the
    /// ProjectControlPlane: then nothing has an owner.
    #[serde(default)]
    pub uid: String,
    /// Name of the project.
    pub project: String,
    /// Uid of the project, which names its plane.
    pub plane: String,
    /// Name of the organization.
    pub organization: String,
    /// Name of the ControlPlaneClass.
    pub class: String,
    /// Whether none of its programs is to run.
    #[serde(default)]
    pub asleep: bool,
}

/// What the provisioner brings to each plan.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Inputs {
    /// The image that holds the `freehold` program.
    pub image: String,
    /// The controller manager's image, while the apiserver tries another one.
    #[serde(default)]
    pub controller_manager_image: Option<String>,
    /// When nodes pull it: `Always`, `IfNotPresent` or `Never`; empty leaves that to Kubernetes.
    #[serde(default)]
    pub image_pull_policy: String,
    /// Where the pair keeps its objects.
    pub etcd: Etcd,
    /// What the pair is checked against, and checks others against.
    pub trust: Trust,
    /// Certificates and keys of this pair.
    pub credentials: Credentials,
    /// What each program may use.
    pub size: Size,
    /// Labels of the namespace from which the core server comes; empty allows every namespace.
    #[serde(default)]
    pub core_namespace_labels: BTreeMap<String, String>,
    /// Networks from which the core server comes besides, as CIDRs: where it runs on another cluster.
    #[serde(default)]
    pub core_networks: Vec<String>,
    /// How the core server and the controller manager reach the apiserver.
    #[serde(default)]
    pub reach: Reach,
    /// Seconds for which an apiserver that is to stop goes on serving, until clients have noticed.
    #[serde(default)]
    pub drain_seconds: u32,
    /// Where webhooks and aggregated servers may be (`--outbound-networks`); empty leaves that to the program.
    #[serde(default)]
    pub outbound_networks: String,
    /// Admission plugins that run and that do not (`--enable-admission-plugins`, `--disable-admission-plugins`), beside what
    /// the program does by itself.
    #[serde(default)]
    pub admission_plugins: AdmissionPlugins,
    /// OpenTelemetry's variables, by which the apiserver exports spans; none: it exports nothing.
    #[serde(default)]
    pub telemetry: BTreeMap<String, String>,
    /// `https://ADDRESS:PORT` of a ready apiserver, once there was one.
    #[serde(default)]
    pub endpoint: Option<String>,
}

/// How an apiserver is reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum Reach {
    /// By the address of its Pod: needs neither DNS nor kube-proxy, and a pair of one apiserver.
    #[default]
    Pod,
    /// By the name of its Service, `apiserver.project-UID.svc`: for clusters with DNS.
    Service,
}

/// Names of admission plugins, and who the apiserver is to webhooks.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct AdmissionPlugins {
    /// Those that run.
    #[serde(default)]
    pub enable: Vec<String>,
    /// Those that do not.
    #[serde(default)]
    pub disable: Vec<String>,
    /// An `AdmissionConfiguration` (`--admission-control-config-file`), with all that it needs in it.
    #[serde(default)]
    pub configuration: Option<String>,
}

/// Where the pair keeps its objects.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Etcd {
    /// URLs of the etcd cluster.
    pub endpoints: Vec<String>,
    /// The prefix of all of Freehold's keys.
    pub prefix: String,
    /// CA certificates of the endpoints, PEM; absent where they are plain HTTP.
    #[serde(default)]
    pub ca_pem: Option<String>,
}

/// CA certificates, each a PEM bundle.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Trust {
    /// Signs the pair's serving certificate.
    pub serving_ca_pem: String,
    /// Signs the certificates of the plane's own clients.
    pub client_ca_pem: String,
    /// Signs the certificate with which the core server speaks for its users.
    pub front_proxy_ca_pem: String,
    /// The common names that such a certificate may have.
    pub front_proxy_names: Vec<String>,
}

/// A certificate with its key, in PEM.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeyPair {
    /// The certificate, and what signed it where that is not a root.
    pub cert_pem: String,
    /// The private key.
    pub key_pem: String,
}

/// Certificates and keys of one pair.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Credentials {
    /// The apiserver's own.
    pub serving: KeyPair,
    /// What the apiserver shows to etcd; absent where etcd is plain HTTP.
    #[serde(default)]
    pub etcd: Option<KeyPair>,
    /// What the apiserver shows to aggregated servers; absent where it is to be nobody to them.
    #[serde(default)]
    pub proxy: Option<KeyPair>,
    /// What the controller manager shows to the apiserver.
    pub controller_manager: KeyPair,
    /// What administrators show to the apiserver.
    pub admin: KeyPair,
    /// The private key that signs service account tokens, and behind it the public keys of others that are believed.
    pub service_account_keys_pem: String,
}

/// Who makes a pair's objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum Delivery {
    /// The provisioner makes all of them.
    #[default]
    Apply,
    /// The provisioner makes the Secrets. Kyverno makes the namespace and kubeconfigs, and Flux the rest.
    GitOps,
}

/// What pairs of a class consist of: how many apiservers, of which image, and what each program may use, as Kubernetes
/// quantities.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Size {
    /// Who makes the objects of pairs: `Apply` or `GitOps`.
    pub delivery: Delivery,
    /// Number of apiservers.
    pub replicas: u32,
    /// The image with the `freehold` program, where it is another than that of all classes.
    pub image: Option<String>,
    /// Requests and limits of the apiserver: `{"requests": {...}, "limits": {...}}`.
    pub apiserver: Value,
    /// Requests and limits of the controller manager, in the form of the apiserver's.
    pub controller_manager: Value,
}

impl Default for Size {
    fn default() -> Self {
        Self {
            delivery: Delivery::Apply,
            replicas: 1,
            image: None,
            apiserver: json!({"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "1Gi"}}),
            controller_manager: json!({"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "512Mi"}}),
        }
    }
}
