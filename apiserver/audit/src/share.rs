//! Shares of an organization's trail: each class of authors has its own byte budget, and each author a rate, so that a
//! flood displaces older events of its own class alone.

use crate::rate_limit::{Rate, RateLimits};
use parking_lot::Mutex;
use std::{
    fmt,
    hash::{BuildHasher, RandomState},
    sync::Arc,
    time::Instant,
};

/// A part of a trail, with bytes of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Share {
    /// What people and programs of the platform do that may do something in the organization.
    Members,
    /// What identities of the organization's projects do: service accounts, certificates.
    Projects,
    /// What either does beyond the rate of one author.
    Busy,
    /// What those do who run the platform.
    Platform,
    /// What was refused to everybody else.
    Strangers,
}

impl Share {
    /// All of them.
    pub(crate) const ALL: [Self; 5] =
        [Self::Members, Self::Projects, Self::Busy, Self::Platform, Self::Strangers];

    /// Its name in keys.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Members => "members",
            Self::Projects => "projects",
            Self::Busy => "busy",
            Self::Platform => "platform",
            Self::Strangers => "strangers",
        }
    }

    /// Bytes in the store: 8 MiB for all.
    pub(crate) fn bytes(self) -> u64 {
        match self {
            Self::Members => 3 << 20,
            Self::Projects => 2 << 20,
            Self::Busy | Self::Platform | Self::Strangers => 1 << 20,
        }
    }
}

/// What an author is to the organization that a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Somebody who has a role in it, or whom its issuers know.
    Member,
    /// An identity of the project that the request is for.
    Project,
    /// Somebody who runs the platform.
    Platform,
    /// Anybody else, and nobody.
    Stranger,
}

/// An event's place: the trail, by the organization's uid, and the part of it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    /// The organization's uid: one that comes later under its name has another.
    pub organization: Arc<str>,
    /// The part.
    pub share: Share,
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.organization, self.share.name())
    }
}

/// Events of one author in one trail before they count as busy: a second, and at once after a pause.
const AUTHOR: Rate = Rate { second: 10.0, burst: 1000.0 };
/// Events of what was refused to one stranger.
const STRANGER: Rate = Rate { second: 1.0, burst: 20.0 };
/// Events of what was refused to all strangers of one organization together.
const STRANGERS: Rate = Rate { second: 20.0, burst: 200.0 };

/// Who takes how much of the trails, on this server.
#[derive(Default)]
pub(crate) struct Shares {
    hasher: RandomState,
    paces: Mutex<RateLimits>,
}

/// An event that is about to be kept.
pub(crate) struct Entry<'a> {
    pub(crate) organization: &'a Arc<str>,
    pub(crate) standing: Standing,
    /// Whether the request was allowed.
    pub(crate) allowed: bool,
    /// The author's name; where they have none, their address.
    pub(crate) author: &'a str,
}

impl Shares {
    /// Where an event is kept, and how many of strangers were left out before it; `None` where it is left out itself.
    pub(crate) fn place(&self, entry: &Entry<'_>, now: Instant) -> Option<(Address, u32)> {
        let at = |share| Address { organization: entry.organization.clone(), share };
        let author = self.hasher.hash_one((&**entry.organization, entry.author));
        let mut paces = self.paces.lock();
        let own = match entry.standing {
            Standing::Platform => return Some((at(Share::Platform), 0)),
            Standing::Stranger if !entry.allowed => {
                let all = self.hasher.hash_one((&**entry.organization, Share::Strangers.name(), ""));
                // All of them first: a new author takes memory.
                let room = paces.has(all, STRANGERS, now);
                let kept = room && paces.take(author, STRANGER, now) && paces.take(all, STRANGERS, now);
                return match kept {
                    true => Some((at(Share::Strangers), paces.reported(all))),
                    false => {
                        paces.left_out(all, STRANGERS, now);
                        None
                    }
                };
            }
            Standing::Project => Share::Projects,
            Standing::Member | Standing::Stranger => Share::Members,
        };
        let share = if paces.take(author, AUTHOR, now) { own } else { Share::Busy };
        Some((at(share), 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn entry<'a>(
        organization: &'a Arc<str>,
        standing: Standing,
        allowed: bool,
        author: &'a str,
    ) -> Entry<'a> {
        Entry { organization, standing, allowed, author }
    }

    #[test]
    fn each_kind_of_author_has_a_share() {
        let (shares, acme): (_, Arc<str>) = (Shares::default(), "acme".into());
        let now = Instant::now();
        let rows = [
            (Standing::Member, true, Share::Members),
            (Standing::Member, false, Share::Members),
            (Standing::Project, true, Share::Projects),
            (Standing::Project, false, Share::Projects),
            (Standing::Platform, true, Share::Platform),
            (Standing::Platform, false, Share::Platform),
            // Who was allowed something has a right there, whoever gave it.
            (Standing::Stranger, true, Share::Members),
            (Standing::Stranger, false, Share::Strangers),
        ];
        for (standing, allowed, expected) in rows {
            let (address, _) = shares.place(&entry(&acme, standing, allowed, "x"), now).unwrap();
            assert_eq!((address.share, &address.organization), (expected, &acme), "{standing:?} {allowed}");
        }
        assert_eq!(Share::ALL.iter().map(|share| share.bytes()).sum::<u64>(), 8 << 20);
    }

    #[test]
    fn who_is_busy_takes_the_place_of_busy_ones_and_nothing_is_left_out() {
        let (shares, acme): (_, Arc<str>) = (Shares::default(), "acme".into());
        let now = Instant::now();
        let of =
            |author: &str| shares.place(&entry(&acme, Standing::Project, true, author), now).unwrap().0.share;
        let first: Vec<Share> = (0..1001).map(|_| of("noisy")).collect();
        assert!(first[..1000].iter().all(|share| *share == Share::Projects));
        assert_eq!((first[1000], of("quiet")), (Share::Busy, Share::Projects));
    }

    #[test]
    fn strangers_are_counted_beyond_a_rate_for_each_and_one_for_all() {
        let (shares, acme): (_, Arc<str>) = (Shares::default(), "acme".into());
        let now = Instant::now();
        let refused = |author: &str, now| {
            shares.place(&entry(&acme, Standing::Stranger, false, author), now).map(|(_, left_out)| left_out)
        };
        let one = (0..100).filter(|_| refused("10.0.0.1", now).is_some()).count();
        assert_eq!(one, 20);
        // The next one that is kept says how many were not.
        assert_eq!(refused("10.0.0.2", now), Some(80));
        assert_eq!(refused("10.0.0.2", now), Some(0));
        let many = (0..1000).filter(|nth| refused(&format!("10.1.0.{nth}"), now).is_some()).count();
        assert_eq!(many, 200 - 22);
        let other: Arc<str> = "other".into();
        assert!(shares.place(&entry(&other, Standing::Stranger, false, "10.0.0.1"), now).is_some());
        assert!(refused("10.0.0.1", now + Duration::from_secs(5)).is_some());
    }
}
