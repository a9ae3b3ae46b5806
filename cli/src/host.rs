//! A server that extends a cluster.

use std::path::PathBuf;

/// The cluster whose API this server is a part of.
#[derive(Clone, clap::Args)]
pub(crate) struct HostArgs {
    /// The kubeconfig of a cluster that this server extends: the cluster's users reach it through their own kube-apiserver,
    /// which says who they are, and the cluster says what they may do.
    #[arg(long = "host-kubeconfig", value_name = "FILE", visible_alias = "authentication-kubeconfig")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Further names that the serving certificate is for, with commas between them: that of the Service which leads here.
    #[arg(long = "serving-names", value_name = "NAMES", value_delimiter = ',')]
    pub(crate) names: Vec<String>,
}
