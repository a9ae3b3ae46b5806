//! A server that extends a cluster.

use std::path::PathBuf;

/// The cluster whose API this server is a part of.
#[derive(Clone, clap::Args)]
pub(crate) struct HostArgs {
    /// Kubeconfig of a cluster that this server extends: the cluster authenticates its users, passes their requests on
    /// through its kube-apiserver, and authorizes them.
    #[arg(long = "host-kubeconfig", value_name = "FILE", visible_alias = "authentication-kubeconfig")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Further names in the serving certificate, separated by commas, such as that of a Service in front of the server.
    #[arg(long = "serving-names", value_name = "NAMES", value_delimiter = ',')]
    pub(crate) names: Vec<String>,
}
