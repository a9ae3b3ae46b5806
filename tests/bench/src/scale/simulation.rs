//! Planes one by one: where they are placed, which stay in memory, and what becomes of them when a machine ends.

use super::popularity::Popularity;
use freehold_tests_harness::Random;
use std::collections::HashSet;

/// Points of each server on the circle of hashes.
const POINTS: u64 = 64;
/// No plane, in a list of planes.
const NONE: u32 = u32::MAX;

/// A number from 0 to 1.
fn unit(random: &mut Random) -> f64 {
    const STEPS: u64 = 1 << 53;
    random.below(STEPS) as f64 / STEPS as f64
}

/// A number that is as good as random for each key.
fn hash(key: u64) -> u64 {
    Random::new(key).below(u64::MAX)
}

/// Planes in memory, from the most to the least recently used.
struct Recent {
    /// Neighbours of each plane, more and less recently used; the last place is the ends of the list.
    next: Vec<u32>,
    previous: Vec<u32>,
    count: usize,
}

impl Recent {
    fn new(planes: usize) -> Self {
        let mut new = Self { next: vec![NONE; planes + 1], previous: vec![NONE; planes + 1], count: 0 };
        (new.next[planes], new.previous[planes]) = (planes as u32, planes as u32);
        new
    }

    fn unlink(&mut self, plane: usize) {
        let (next, previous) = (self.next[plane], self.previous[plane]);
        self.next[previous as usize] = next;
        self.previous[next as usize] = previous;
        self.next[plane] = NONE;
        self.count -= 1;
    }

    /// Uses a plane; gives whether it was in memory. Where there is no room, the least recently used one goes.
    fn is_hit(&mut self, plane: usize, room: usize) -> bool {
        let ends = self.next.len() - 1;
        let hit = self.next[plane] != NONE;
        if hit {
            self.unlink(plane);
        } else if self.count == room {
            self.unlink(self.previous[ends] as usize);
        }
        let first = self.next[ends];
        (self.next[plane], self.previous[plane]) = (first, ends as u32);
        self.previous[first as usize] = plane as u32;
        self.next[ends] = plane as u32;
        self.count += 1;
        hit
    }
}

/// Share of requests that find their plane in memory where there is room for some of them, after as many requests again
/// as planes have room have filled it.
pub(crate) fn hits(popularity: &Popularity, planes: usize, room: usize, requests: usize, seed: u64) -> f64 {
    let (mut random, mut recent) = (Random::new(seed), Recent::new(planes));
    while recent.count < room {
        recent.is_hit(popularity.plane(unit(&mut random)) as usize, room);
    }
    let hits = (0..requests).filter(|_| recent.is_hit(popularity.plane(unit(&mut random)) as usize, room));
    hits.count() as f64 / requests as f64
}

/// Servers on a circle of hashes. A plane is the next server's that has room.
pub(crate) struct Ring {
    points: Vec<(u64, u32)>,
    servers: usize,
}

impl Ring {
    /// A circle of servers.
    pub(crate) fn new(servers: usize) -> Self {
        let all = (0..servers as u32).flat_map(|server| {
            (0..POINTS).map(move |point| (hash((u64::from(server) << 32) | point), server))
        });
        let mut points: Vec<_> = all.collect();
        points.sort_unstable();
        Self { points, servers }
    }

    /// The circle without a server.
    pub(crate) fn without(&self, server: u32) -> Self {
        let points = self.points.iter().filter(|(_, of)| *of != server).copied().collect();
        Self { points, servers: self.servers - 1 }
    }

    /// The server of each plane; none has more than its share of all and some slack.
    pub(crate) fn assign(&self, planes: usize, slack: f64) -> Vec<u32> {
        let most = (planes as f64 / self.servers as f64 * (1.0 + slack)).ceil() as usize;
        let highest = self.points.iter().map(|(_, server)| *server as usize).max().unwrap_or(0);
        let mut loads = vec![0; highest + 1];
        let place = |plane: usize| {
            let at = hash(!(plane as u64));
            let mut point = self.points.partition_point(|(hash, _)| *hash < at) % self.points.len();
            while loads[self.points[point].1 as usize] >= most {
                point = (point + 1) % self.points.len();
            }
            let server = self.points[point].1;
            loads[server as usize] += 1;
            server
        };
        (0..planes).map(place).collect()
    }
}

/// The fullest of some places, beside the mean.
pub(crate) fn fullest(loads: &[f64]) -> f64 {
    let mean = loads.iter().sum::<f64>() / loads.len().max(1) as f64;
    loads.iter().copied().fold(0.0, f64::max) / mean
}

/// How many of some things are at each place.
pub(crate) fn counts(assigned: &[u32], places: usize) -> Vec<f64> {
    let mut counts = vec![0.0; places];
    assigned.iter().for_each(|place| counts[*place as usize] += 1.0);
    counts
}

/// Bytes in each of some etcds where each new plane goes to the emptier of two; one plane in some thousands is a thousand
/// times as large as most.
pub(crate) fn placed(planes: usize, etcds: usize, seed: u64) -> Vec<f64> {
    let (mut random, mut bytes) = (Random::new(seed), vec![0.0; etcds]);
    for _ in 0..planes {
        // A Pareto distribution, cut off.
        let size = (1.0 - unit(&mut random)).powf(-1.0 / 1.5).min(1000.0);
        let [one, other] = [random.index(etcds), random.index(etcds)];
        let emptier = if bytes[one] <= bytes[other] { one } else { other };
        bytes[emptier] += size;
    }
    bytes
}

/// Planes of one server that so many requests for all planes bring into memory elsewhere once it has ended.
pub(crate) fn reloaded(
    popularity: &Popularity,
    assigned: &[u32],
    server: u32,
    requests: usize,
    seed: u64,
) -> usize {
    let (mut random, mut loaded) = (Random::new(seed), HashSet::new());
    for _ in 0..requests {
        let plane = popularity.plane(unit(&mut random));
        if assigned[plane as usize] == server {
            loaded.insert(plane);
        }
    }
    loaded.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_plane_makes_room() {
        let mut recent = Recent::new(4);
        let told: Vec<bool> = [0, 1, 0, 2, 0, 1, 2].map(|plane| recent.is_hit(plane, 2)).into();
        assert_eq!(told, [false, false, true, false, true, false, false]);
        assert_eq!(recent.count, 2);
    }

    #[test]
    fn a_server_that_ends_leaves_planes_of_others_nearly_alone() {
        let ring = Ring::new(8);
        let (before, after) = (ring.assign(8000, 0.25), ring.without(3).assign(8000, 0.25));
        assert!(counts(&before, 8).iter().all(|load| *load <= 1250.0));
        assert!(after.iter().all(|server| *server != 3));
        let moved = before.iter().zip(&after).filter(|(was, is)| was != is).count();
        assert!((800..2000).contains(&moved), "{moved}");
    }
}
