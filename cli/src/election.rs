//! Leader election of commands of which several instances can run.

use freehold_runtime::Times;
use std::time::Duration;

/// Flags of leader election.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ElectionArgs {
    /// Work only while holding a Lease, so that several instances can run.
    #[arg(long)]
    pub(crate) leader_elect: bool,
    /// Seconds after which another instance takes over from a dead leader.
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u16).range(1..), requires = "leader_elect")]
    leader_elect_lease_duration: u16,
}

impl ElectionArgs {
    /// How long a leader is waited for, and how often it renews its Lease.
    pub(crate) fn times(&self) -> Times {
        Times::of_lease(Duration::from_secs(self.leader_elect_lease_duration.into()))
    }
}
