//! What a server may reach on behalf of its users.

use freehold_apiserver::Networks;

/// Where webhooks and aggregated servers may be.
#[derive(Clone, clap::Args)]
pub(crate) struct OutboundArgs {
    /// Networks that webhooks and aggregated servers of control planes may be in: CIDRs, `public` (reachable through
    /// the Internet), `any`, `none`, separated by commas. Users of the planes choose the addresses: name no network
    /// whose servers trust any caller.
    #[arg(long = "outbound-networks", value_name = "NETWORKS", default_value = "public")]
    pub(crate) networks: Networks,
}
