//! Division of work between controllers: partitions, leases with generations, and fences.

use crate::database::{Database, Dialect, Write};
use crate::sql::Sql;
use crate::{Error, Result};
use sqlx::{Executor as _, Row as _};
use std::collections::BTreeMap;
use std::time::Duration;

/// Partitions that work can be divided into.
const MAX_PARTITIONS: u32 = 1024;

/// How controllers of an install divide their work.
#[derive(Clone, Debug)]
pub struct LeaseOptions {
    /// The install; installs never share work.
    pub install: String,
    /// This controller.
    pub holder: String,
    /// Into how many partitions work is divided; equal for all controllers of an install.
    pub partitions: u32,
    /// How long a lease lasts without renewal. Renewed each third of it, a controller that dies is replaced within
    /// `ttl + ttl / 3`.
    pub ttl: Duration,
}

impl LeaseOptions {
    /// Options with 32 partitions and leases of 3 s: a controller that dies is replaced within 4 s.
    pub fn new(install: impl Into<String>, holder: impl Into<String>) -> Self {
        Self { install: install.into(), holder: holder.into(), partitions: 32, ttl: Duration::from_secs(3) }
    }

    /// How often [`Leases::renew`] is to be called.
    pub fn interval(&self) -> Duration {
        self.ttl / 3
    }
}

/// The proof that a controller holds a partition.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Fence {
    install: String,
    holder: String,
    partition: u32,
    generation: i64,
}

impl Fence {
    /// The generation of the lease: it grows with each change of hands.
    pub fn generation(&self) -> i64 {
        self.generation
    }

    /// Returns the partition that is held.
    pub fn partition(&self) -> u32 {
        self.partition
    }

    /// Checks in a transaction that the lease is held, and holds it until the transaction ends.
    pub(crate) async fn check(&self, database: &Database, write: &mut Write) -> Result<()> {
        let mut sql = Sql::new("SELECT generation FROM leases WHERE install = ");
        sql.text(&self.install).push(" AND partition_id = ").int(self.partition.into());
        sql.push(" AND holder = ").text(&self.holder).push(" AND generation = ").int(self.generation);
        sql.push(" AND expires_at > ").push(database.now());
        if database.dialect == Dialect::Postgres {
            sql.push(" FOR SHARE");
        }
        match sql.query().fetch_optional(&mut *write.tx).await? {
            Some(_) => Ok(()),
            None => Err(Error::Fenced { partition: self.partition, generation: self.generation }),
        }
    }
}

/// Returns the partition of a run's or DAG's key (`PLANE/UID`), the same in every process.
pub fn partition_of(key: &str, partitions: u32) -> u32 {
    // FNV-1a: stable over versions, unlike the standard library's hashes.
    let hash = key.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    ((hash ^ (hash >> 32)) % u64::from(partitions.max(1))) as u32
}

/// A controller's leases.
#[derive(Debug)]
pub struct Leases {
    database: Database,
    options: LeaseOptions,
}

/// A row of `leases`.
#[derive(Clone, Debug, PartialEq)]
struct Held {
    holder: String,
    generation: i64,
    expired: bool,
}

/// What a controller does with its leases.
#[derive(Debug, Default, PartialEq)]
struct Plan {
    renew: Vec<u32>,
    claim: Vec<u32>,
    release: Vec<u32>,
}

/// Decides so that each of `members` controllers comes to hold its share: renews, gives back what is more than that, and
/// claims what nobody holds.
fn plan(rows: &BTreeMap<u32, Held>, me: &str, partitions: u32, members: u32) -> Plan {
    let share = partitions.div_ceil(members.max(1)) as usize;
    let mut plan = Plan::default();
    for partition in 0..partitions {
        match rows.get(&partition) {
            Some(held) if held.holder == me && !held.expired => plan.renew.push(partition),
            Some(held) if !held.expired && !held.holder.is_empty() => {}
            _ => plan.claim.push(partition),
        }
    }
    plan.release = plan.renew.split_off(share.min(plan.renew.len()));
    plan.claim.truncate(share - plan.renew.len());
    plan
}

impl Leases {
    /// The leases of one controller. Nothing is held before the first [`renew`](Self::renew).
    ///
    /// # Errors
    /// [`Error::Query`] for no partitions or more than 1,024.
    pub fn new(database: Database, options: LeaseOptions) -> Result<Self> {
        if options.partitions == 0 || options.partitions > MAX_PARTITIONS {
            return Err(Error::Query(format!("{} partitions; 1 to {MAX_PARTITIONS}", options.partitions)));
        }
        Ok(Self { database, options })
    }

    /// Renews, claims and gives back, and returns what is held now. To be called each [`LeaseOptions::interval`]; after an
    /// error the leases are held until their end, and no longer.
    ///
    /// # Errors
    /// [`Error::Database`].
    pub async fn renew(&self) -> Result<Vec<Fence>> {
        let mut write = self.begin().await?;
        let members = self.join(&mut write).await?;
        let rows = self.rows(&mut write).await?;
        let plan = plan(&rows, &self.options.holder, self.options.partitions, members);
        let ttl = self.ttl();
        let mut held = Vec::with_capacity(plan.renew.len() + plan.claim.len());
        for partition in &plan.renew {
            self.set(&mut write, *partition, rows[partition].generation, &self.options.holder, ttl).await?;
            held.push(self.fence(*partition, rows[partition].generation));
        }
        for partition in &plan.release {
            // The generation grows when the next one claims it.
            self.set(&mut write, *partition, rows[partition].generation, "", 0).await?;
        }
        for partition in &plan.claim {
            let generation = rows.get(partition).map_or(1, |held| held.generation + 1);
            self.set(&mut write, *partition, generation, &self.options.holder, ttl).await?;
            held.push(self.fence(*partition, generation));
        }
        write.commit().await?;
        Ok(held)
    }

    /// Gives everything back, so that others take over at once.
    ///
    /// # Errors
    /// [`Error::Database`].
    pub async fn leave(&self) -> Result<()> {
        let mut write = self.begin().await?;
        let mut sql = Sql::new("UPDATE leases SET holder = '', expires_at = 0 WHERE install = ");
        sql.text(&self.options.install).push(" AND holder = ").text(&self.options.holder);
        sql.query().execute(&mut *write.tx).await?;
        let mut sql = Sql::new("DELETE FROM members WHERE install = ");
        sql.text(&self.options.install).push(" AND holder = ").text(&self.options.holder);
        sql.query().execute(&mut *write.tx).await?;
        write.commit().await
    }

    /// Begins a transaction that no other controller's renewal runs beside.
    async fn begin(&self) -> Result<Write> {
        let mut write = self.database.begin().await?;
        if self.database.dialect == Dialect::Postgres {
            write.tx.execute("SELECT pg_advisory_xact_lock(7276458131)").await?;
        }
        Ok(write)
    }

    fn ttl(&self) -> i64 {
        i64::try_from(self.options.ttl.as_millis()).unwrap_or(i64::MAX)
    }

    fn fence(&self, partition: u32, generation: i64) -> Fence {
        Fence {
            install: self.options.install.clone(),
            holder: self.options.holder.clone(),
            partition,
            generation,
        }
    }

    /// Marks this controller as alive and returns how many are.
    async fn join(&self, write: &mut Write) -> Result<u32> {
        let now = self.database.now();
        let mut sql = Sql::new("INSERT INTO members (install, holder, expires_at) VALUES (");
        sql.text(&self.options.install)
            .push(", ")
            .text(&self.options.holder)
            .push(", ")
            .push(now)
            .push(" + ")
            .int(self.ttl());
        sql.push(") ON CONFLICT (install, holder) DO UPDATE SET expires_at = excluded.expires_at");
        sql.query().execute(&mut *write.tx).await?;
        let mut sql = Sql::new("DELETE FROM members WHERE expires_at <= ");
        sql.push(now);
        sql.query().execute(&mut *write.tx).await?;
        let mut sql = Sql::new("SELECT holder FROM members WHERE install = ");
        sql.text(&self.options.install).push(" LIMIT ").int(MAX_PARTITIONS.into());
        Ok(sql.query().fetch_all(&mut *write.tx).await?.len() as u32)
    }

    async fn rows(&self, write: &mut Write) -> Result<BTreeMap<u32, Held>> {
        let mut sql = Sql::new("SELECT partition_id, holder, generation, CASE WHEN expires_at <= ");
        sql.push(self.database.now())
            .push(" THEN 'yes' ELSE 'no' END AS expired FROM leases WHERE install = ");
        sql.text(&self.options.install);
        let mut rows = BTreeMap::new();
        for row in sql.query().fetch_all(&mut *write.tx).await? {
            let held = Held {
                holder: row.try_get("holder")?,
                generation: row.try_get("generation")?,
                expired: row.try_get::<String, _>("expired")? == "yes",
            };
            rows.insert(row.try_get::<i64, _>("partition_id")? as u32, held);
        }
        Ok(rows)
    }

    async fn set(
        &self,
        write: &mut Write,
        partition: u32,
        generation: i64,
        holder: &str,
        ttl: i64,
    ) -> Result<()> {
        let mut sql =
            Sql::new("INSERT INTO leases (install, partition_id, holder, generation, expires_at) VALUES (");
        sql.text(&self.options.install)
            .push(", ")
            .int(partition.into())
            .push(", ")
            .text(holder)
            .push(", ")
            .int(generation);
        sql.push(", ").push(self.database.now()).push(" + ").int(ttl);
        sql.push(
            ") ON CONFLICT (install, partition_id) DO UPDATE SET holder = excluded.holder, generation = excluded.generation, \
             expires_at = excluded.expires_at",
        );
        sql.query().execute(&mut *write.tx).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(holder: &str, expired: bool) -> Held {
        Held { holder: holder.into(), generation: 1, expired }
    }

    #[test]
    fn controllers_come_to_hold_equal_shares() {
        let mut rows = BTreeMap::new();
        let names = ["a", "b", "c", "d"];
        for round in 0..3 {
            for name in names {
                let plan = plan(&rows, name, 32, 4);
                assert!(plan.renew.len() + plan.claim.len() <= 8, "round {round}: {plan:?}");
                plan.release.iter().for_each(|p| drop(rows.insert(*p, held("", true))));
                plan.claim.iter().for_each(|p| drop(rows.insert(*p, held(name, false))));
            }
        }
        for name in names {
            assert_eq!(rows.values().filter(|row| row.holder == name).count(), 8, "{name}");
        }
    }

    #[test]
    fn a_lone_controller_takes_all_and_gives_half_to_the_next() {
        let mut rows: BTreeMap<u32, Held> = (0..32).map(|p| (p, held("a", false))).collect();
        assert_eq!(plan(&rows, "b", 32, 2), Plan::default());
        let first = plan(&rows, "a", 32, 2);
        assert_eq!((first.renew.len(), first.release.len()), (16, 16));
        first.release.iter().for_each(|p| drop(rows.insert(*p, held("", true))));
        assert_eq!(plan(&rows, "b", 32, 2).claim.len(), 16);
        // `a` dies.
        rows.values_mut().filter(|row| row.holder == "a").for_each(|row| row.expired = true);
        assert_eq!(plan(&rows, "b", 32, 1).claim.len(), 32);
    }

    #[test]
    fn partitions_of_keys_are_even_and_stay() {
        assert_eq!(partition_of("web/0b6e2b8e", 32), partition_of("web/0b6e2b8e", 32));
        let mut counts = [0_u32; 32];
        (0..32_000).for_each(|i| counts[partition_of(&format!("plane/{i}"), 32) as usize] += 1);
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
    }
}
