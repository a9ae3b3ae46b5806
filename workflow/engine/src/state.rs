//! Where tasks stand, in few bytes each.

use freehold_workflow_api::Phase;
use std::fmt;
use std::str::FromStr;

/// A task of a run, or one item of a fan-out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId {
    /// The number of the task in its plan.
    pub task: u32,
    /// The item of a fan-out.
    pub item: ItemId,
}

/// The number of an item, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ItemId(u32);

impl ItemId {
    /// No item: the task itself.
    pub const NONE: Self = Self(u32::MAX);

    /// The number of an item.
    pub fn number(self) -> Option<usize> {
        (self != Self::NONE).then_some(self.0 as usize)
    }
}

impl NodeId {
    /// A task that is no item.
    pub fn task(task: u32) -> Self {
        Self { task, item: ItemId::NONE }
    }

    /// An item of a fan-out.
    pub fn item(task: u32, item: u32) -> Self {
        Self { task, item: ItemId(item) }
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.item.number() {
            Some(item) => write!(f, "{}.{item}", self.task),
            None => write!(f, "{}.-", self.task),
        }
    }
}

impl FromStr for NodeId {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (task, item) = text.split_once('.').ok_or(())?;
        let task = task.parse().map_err(|_| ())?;
        let item = if item == "-" { ItemId::NONE } else { ItemId(item.parse().map_err(|_| ())?) };
        Ok(Self { task, item })
    }
}

/// Where a task stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum State {
    /// For tasks before it.
    #[default]
    Waiting = 0,
    /// It waits for its turn.
    Ready = 1,
    /// It waits for locks.
    Locking = 2,
    /// Its Pod is being created, or does not run yet.
    Starting = 3,
    /// It is under way.
    Running = 4,
    /// It failed and waits until it is tried again.
    Backoff = 5,
    /// It waits for a decision.
    Deciding = 6,
    /// Its items are under way.
    Fanned = 7,
    /// It did what it should.
    Succeeded = 8,
    /// It did not.
    Failed = 9,
    /// It was left out.
    Skipped = 10,
    /// It was ended before its time.
    Stopped = 11,
}

impl State {
    const ALL: [Self; 12] = [
        Self::Waiting,
        Self::Ready,
        Self::Locking,
        Self::Starting,
        Self::Running,
        Self::Backoff,
        Self::Deciding,
        Self::Fanned,
        Self::Succeeded,
        Self::Failed,
        Self::Skipped,
        Self::Stopped,
    ];

    /// The state with a number.
    pub(crate) fn of(number: u8) -> Option<Self> {
        Self::ALL.get(number as usize).copied()
    }

    /// Whether nothing more comes.
    pub fn is_over(self) -> bool {
        self >= Self::Succeeded
    }

    /// Whether it takes one of the run's slots.
    pub(crate) fn is_active(self) -> bool {
        matches!(self, Self::Starting | Self::Running)
    }

    /// The state in words of the API.
    pub fn phase(self) -> Phase {
        match self {
            Self::Waiting => Phase::Pending,
            Self::Ready | Self::Locking => Phase::Queued,
            Self::Starting | Self::Running | Self::Backoff | Self::Fanned => Phase::Running,
            Self::Deciding => Phase::Suspended,
            Self::Succeeded => Phase::Succeeded,
            Self::Failed => Phase::Failed,
            Self::Skipped => Phase::Skipped,
            Self::Stopped => Phase::Stopped,
        }
    }
}

/// A task's state. Times are in tenths of a second since the run's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Where it stands.
    pub state: State,
    /// How many attempts failed for reasons that are not its own.
    pub free: u8,
    /// The number of the current attempt.
    pub attempt: u16,
    /// The attempt that it began with, after a retry of the run.
    pub base: u16,
    /// When the first attempt of these began.
    pub first: u32,
    /// When the current attempt began.
    pub since: u32,
    /// When it was over.
    pub ended: u32,
}

impl Node {
    /// Attempts that count, before the current one.
    pub(crate) fn spent(&self) -> u32 {
        u32::from(self.attempt).saturating_sub(u32::from(self.base) + u32::from(self.free))
    }
}
