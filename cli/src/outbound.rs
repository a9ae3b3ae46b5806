//! What a server may reach on behalf of its users.

use freehold_apiserver::Networks;

/// Where webhooks and aggregated servers may be.
#[derive(Clone, clap::Args)]
pub(crate) struct OutboundArgs {
    /// Networks in which webhooks and aggregated servers of control planes may be: CIDRs, `public` (what is reached through
    /// the Internet), `any`, `none`, with commas between them. Their users choose the addresses: name nothing here that
    /// trusts whoever reaches it.
    #[arg(long = "outbound-networks", value_name = "NETWORKS", default_value = "public")]
    pub(crate) networks: Networks,
}
