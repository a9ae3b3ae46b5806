//! What planes by the million need, by arithmetic on measured figures.

use super::figures::Figures;
use super::popularity::Popularity;

/// What planes are like and what is done with them: assumptions, none of which is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Workload {
    /// Name in the tables.
    pub(crate) name: &'static str,
    /// Objects of a plane, in planes of the benchmark (seven objects).
    pub(crate) size: f64,
    /// Share of the planes that somebody uses within five minutes.
    pub(crate) active: f64,
    /// Requests a second of each of these, on average.
    pub(crate) rate: f64,
    /// Share of writes among requests.
    pub(crate) writes: f64,
}

/// Planes as the benchmark has them, most of them at rest; and larger ones that are busier.
pub(crate) static WORKLOADS: [Workload; 2] = [
    Workload { name: "quiet", size: 1.0, active: 0.1, rate: 0.2, writes: 0.2 },
    Workload { name: "busy", size: 10.0, active: 0.3, rate: 1.0, writes: 0.2 },
];

/// How many planes are counted on.
pub(crate) const SIZES: [f64; 2] = [1e6, 1e7];

/// Which parts of the program there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Design {
    /// As the program is: one etcd, and servers that each know all planes and keep those that their clients use.
    Whole,
    /// Several etcds, and servers that divide the planes: neither is in the program.
    Divided,
}

/// The machines that are counted, and how much of them may be in use.
pub(crate) mod machine {
    /// Processors and bytes of memory of a server's machine.
    pub(crate) const CORES: f64 = 8.0;
    pub(crate) const MEMORY: f64 = 32e9;
    /// Share of processors, and of an etcd's measured writes, that is used.
    pub(crate) const BUSY: f64 = 0.5;
    /// Members of an etcd, and the processors and memory of each.
    pub(crate) const MEMBERS: f64 = 3.0;
    pub(crate) const MEMBER_CORES: f64 = 4.0;
    pub(crate) const MEMBER_MEMORY: f64 = 16e9;
    /// Bytes that an etcd's database may have, and the share of it that is used.
    pub(crate) const QUOTA: f64 = 8.0 * 1024.0 * 1024.0 * 1024.0;
    pub(crate) const FULL: f64 = 0.8;
    /// Room of a server for more planes than the mean, as hashing with bounded load leaves it.
    pub(crate) const SLACK: f64 = 0.25;
    /// Monthly prices in some currency: of a processor, of a GB of memory, of a GB of disk.
    pub(crate) const PRICES: [f64; 3] = [20.0, 2.5, 0.1];
}

/// What so many planes need.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs {
    /// Requests and writes a second.
    pub(crate) requests: f64,
    pub(crate) writes: f64,
    /// Bytes in etcd, of one copy.
    pub(crate) bytes: f64,
    /// Etcds, of three members each.
    pub(crate) etcds: f64,
    /// Servers (infinite where no number is enough), the memory of each, and the processors that all of them use.
    pub(crate) servers: f64,
    pub(crate) memory: f64,
    pub(crate) cores: f64,
    /// Memory of all controller managers.
    pub(crate) managers: f64,
    /// Seconds until the planes of a server that died are in memory elsewhere.
    pub(crate) reload: f64,
    /// Share of planes without service while one etcd is away.
    pub(crate) lost: f64,
    /// What it costs a month.
    pub(crate) cost: f64,
}

impl Needs {
    /// Whether the design can do it: one etcd holds everything, and a server has room in its machine.
    pub(crate) fn is_possible(&self, design: Design) -> bool {
        (design == Design::Divided || self.etcds <= 1.0)
            && self.memory <= machine::MEMORY
            && self.servers.is_finite()
    }
}

/// Computes what planes need.
pub(crate) fn needs(figures: &Figures, load: &Workload, design: Design, planes: f64) -> Needs {
    let active = planes * load.active;
    let (requests, writes) = (active * load.rate, active * load.rate * load.writes);
    let bytes = planes * figures.stored * load.size;
    let by_bytes = bytes / (machine::QUOTA * machine::FULL);
    let etcds = by_bytes.max(writes / (figures.writes * machine::BUSY)).ceil().max(1.0);
    let in_memory = active * figures.resident * load.size;
    let of_planes = planes * figures.known + in_memory;
    let work = requests * figures.request;
    // What each server has to do however many there are.
    let each = match design {
        Design::Whole => writes * figures.event + planes * figures.rest,
        Design::Divided => 0.0,
    };
    let shared = match design {
        Design::Whole => work,
        Design::Divided => work + writes * figures.event + planes * figures.rest,
    };
    // Nothing is left for requests where that takes all there is.
    let room = (machine::CORES * machine::BUSY - each).max(0.0);
    let by_memory = match design {
        Design::Whole => 1.0,
        Design::Divided => of_planes * (1.0 + machine::SLACK) / (machine::MEMORY - figures.base),
    };
    // One more, that one may be lost.
    let servers = (shared / room).max(by_memory).ceil() + 1.0;
    let memory = match design {
        Design::Whole => figures.base + of_planes,
        Design::Divided => figures.base + of_planes * (1.0 + machine::SLACK) / servers,
    };
    let reload = match design {
        // Others have them in memory: their own clients use the same planes.
        Design::Whole => 0.0,
        Design::Divided => {
            active / servers * figures.load / ((servers - 1.0) * machine::CORES * machine::BUSY)
        }
    };
    let managers = planes * figures.manager;
    let [core, gigabyte, disk] = machine::PRICES;
    let machines = servers * (machine::CORES * core + memory.max(4e9) / 1e9 * gigabyte);
    let members = etcds * machine::MEMBERS;
    let stores = members * (machine::MEMBER_CORES * core + machine::MEMBER_MEMORY / 1e9 * gigabyte);
    let controllers = managers / 1e9 * gigabyte + (planes * figures.manager_rest).ceil() * core;
    let cost = machines + stores + controllers + bytes * machine::MEMBERS / 1e9 * disk;
    let cores = shared + servers * each;
    Needs {
        requests,
        writes,
        bytes,
        etcds,
        servers,
        memory,
        cores,
        managers,
        reload,
        lost: 1.0 / etcds,
        cost,
    }
}

/// Share of requests that find their plane in memory where there is room for `room` planes, the least recently used of which
/// makes place (Che's approximation).
pub(crate) fn hits(popularity: &Popularity, room: f64) -> f64 {
    let resident = |time: f64| popularity.sum(|share| 1.0 - (-share * time).exp());
    let (mut low, mut high) = (0.0, 1.0);
    while resident(high) < room && high < 1e18 {
        high *= 2.0;
    }
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if resident(middle) < room { low = middle } else { high = middle }
    }
    popularity.sum(|share| share * (1.0 - (-share * high).exp()))
}

/// Number of planes that at least one of so many requests is for.
pub(crate) fn distinct(popularity: &Popularity, requests: f64) -> f64 {
    popularity.sum(|share| 1.0 - (-share * requests).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIGURES: Figures = Figures {
        base: 40e6,
        known: 1e3,
        resident: 20e3,
        stored: 15e3,
        request: 300e-6,
        load: 1e-3,
        event: 5e-6,
        rest: 1e-6,
        writes: 2000.0,
        manager: 25e3,
        manager_rest: 1e-6,
        pair: 23e6,
    };

    #[test]
    fn memory_grows_with_planes_times_servers_unless_servers_divide_them() {
        let [quiet, busy] = WORKLOADS;
        let whole = needs(&FIGURES, &quiet, Design::Whole, 1e6);
        let expected = 40e6 + 1e9 + 1e5 * 20e3;
        assert!((whole.memory - expected).abs() < 1.0, "{whole:?}");
        let divided = needs(&FIGURES, &busy, Design::Divided, 1e6);
        let together = divided.servers * (divided.memory - FIGURES.base);
        let expected = 1.25 * (1e9 + 3e5 * 200e3);
        assert!((together - expected).abs() < 1.0, "{divided:?}");
        assert!(divided.is_possible(Design::Divided) && divided.memory < 32e9, "{divided:?}");
    }

    #[test]
    fn one_etcd_is_not_enough_for_a_million() {
        let few = needs(&FIGURES, &WORKLOADS[0], Design::Whole, 1e5);
        assert!(few.etcds <= 1.0 && few.is_possible(Design::Whole), "{few:?}");
        let many = needs(&FIGURES, &WORKLOADS[0], Design::Whole, 1e6);
        assert!(many.etcds > 1.0 && !many.is_possible(Design::Whole), "{many:?}");
    }

    #[test]
    fn all_requests_find_their_plane_where_there_is_room_for_all() {
        let popularity = Popularity::new(1000, 0.8);
        assert!(hits(&popularity, 999.99) > 0.999);
        let (half, tenth) = (hits(&popularity, 500.0), hits(&popularity, 100.0));
        assert!(half > tenth && tenth > 0.2 && half < 0.95, "{half} {tenth}");
    }
}
