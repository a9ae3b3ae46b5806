//! Where a run or a task stands.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Where a run or a task stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Phase {
    /// It has not begun.
    #[default]
    Pending,
    /// It waits for other runs or for a slot.
    Queued,
    /// It is under way.
    Running,
    /// A suspended run, or a task that waits for a decision.
    Suspended,
    /// It did what it should.
    Succeeded,
    /// It did not.
    Failed,
    /// It was left out.
    Skipped,
    /// It was ended before its time.
    Stopped,
}

impl Phase {
    /// All phases.
    pub const ALL: [Self; 8] = [
        Self::Pending,
        Self::Queued,
        Self::Running,
        Self::Suspended,
        Self::Succeeded,
        Self::Failed,
        Self::Skipped,
        Self::Stopped,
    ];

    /// Whether nothing more comes.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Skipped | Self::Stopped)
    }

    /// The name, as the API writes it: `Succeeded`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Queued => "Queued",
            Self::Running => "Running",
            Self::Suspended => "Suspended",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::Skipped => "Skipped",
            Self::Stopped => "Stopped",
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Phase {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|phase| phase.as_str() == text)
            .ok_or_else(|| format!("unknown phase {text:?}"))
    }
}
