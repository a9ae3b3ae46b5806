//! What a server may reach on behalf of its users.

use freehold_apiserver::Networks;
use std::net::SocketAddr;

/// Where the nodes of control planes may be.
#[derive(Clone, clap::Args)]
pub(crate) struct NodeArgs {
    /// Networks that nodes of projects may be in, which the server dials for logs, exec, attach and port-forward: CIDRs,
    /// `public`, `any`, `none`, separated by commas. Users of the projects choose the addresses. Default: `none`; of
    /// `freehold up`, the loopback addresses of this machine.
    #[arg(long, value_name = "NETWORKS")]
    node_networks: Option<Networks>,
    /// Addresses of syncers (`freehold syncer`), through which Pods on shared clusters are reached: `ADDRESS:PORT`, separated by
    /// commas.
    #[arg(long, value_name = "ADDRESSES", value_delimiter = ',')]
    pub(crate) syncers: Vec<SocketAddr>,
}

impl NodeArgs {
    /// The networks of nodes for a server of many machines.
    pub(crate) fn networks(&self) -> Networks {
        self.node_networks.clone().unwrap_or_else(Networks::none)
    }

    /// The networks of nodes for a server that may have nodes on its own machine.
    pub(crate) fn or_loopback(&self) -> Networks {
        self.node_networks.clone().unwrap_or_else(Networks::loopback)
    }
}

/// Where webhooks and aggregated servers may be.
#[derive(Clone, clap::Args)]
pub(crate) struct OutboundArgs {
    /// Networks that webhooks and aggregated servers of control planes may be in: CIDRs, `public` (reachable through
    /// the Internet), `any`, `none`, separated by commas. Users of the planes choose the addresses: name no network
    /// whose servers trust any caller.
    #[arg(long = "outbound-networks", value_name = "NETWORKS", default_value = "public")]
    pub(crate) networks: Networks,
}
