//! What is wrong with the members of an etcd.

use super::finding::{Finding, finding};
use freehold_apiserver::{EtcdOptions, MemberStatus, members};
use std::time::Duration;

/// Earliest version that a store may have.
const OLDEST: [u64; 3] = [3, 5, 8];
/// Quota of an etcd that does not tell its own (before 3.6): etcd's default.
const QUOTA: u64 = 2 << 30;
/// Share of the quota, in hundredths, from which a database is nearly full.
const FULL: u64 = 80;
/// Longest time that a read should take.
const SLOW: Duration = Duration::from_millis(100);

/// The numbers of a version.
fn numbers(version: &str) -> Vec<u64> {
    let plain = version.split(['-', '+']).next().unwrap_or_default();
    plain.split('.').map_while(|number| number.parse().ok()).collect()
}

/// What a member's state says that is wrong, with what to do.
fn complaints(status: &MemberStatus) -> Vec<String> {
    let mut wrong = Vec::new();
    if numbers(&status.version) < OLDEST.to_vec() {
        wrong.push(format!("version {} is too old: 3.5.8 or later is needed", status.version));
    }
    if !status.has_leader {
        wrong.push("it knows no leader: see its log, and whether members reach each other".to_owned());
    }
    let quota = if status.quota == 0 { QUOTA } else { status.quota };
    if status.database > quota / 100 * FULL {
        let (used, quota) = (status.database >> 20, quota >> 20);
        wrong.push(format!(
            "{used} of {quota} MiB are used: run etcdctl defrag on each member in turn, or raise --quota-backend-bytes"
        ));
    }
    if status.read > SLOW {
        wrong.push(format!(
            "a read takes {:?}: compare with etcd_disk_wal_fsync_duration_seconds and the network between members",
            status.read
        ));
    }
    wrong.extend(status.errors.iter().map(|error| format!("{error}: see etcdctl alarm list")));
    wrong
}

/// A finding from what members said.
fn judge<E: std::fmt::Display>(found: &[(String, Result<MemberStatus, E>)]) -> Finding {
    let mut wrong = Vec::new();
    let mut versions = Vec::new();
    for (url, status) in found {
        match status {
            Err(error) => wrong.push(format!("{url}: {error}")),
            Ok(status) => {
                wrong.extend(complaints(status).into_iter().map(|why| format!("{url}: {why}")));
                versions.push(status.version.as_str());
            }
        }
    }
    versions.sort_unstable();
    versions.dedup();
    if versions.len() > 1 {
        wrong.push(format!("members have different versions ({}): finish the upgrade", versions.join(", ")));
    }
    let outcome = match wrong.is_empty() {
        true => Ok(format!("{} members of {}", found.len(), versions.join(", "))),
        false => Err(wrong.join("; ")),
    };
    finding("etcd", outcome)
}

/// Looks at each member of an etcd.
pub(super) async fn look(options: &EtcdOptions) -> Finding {
    judge(&members(options).await)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn well() -> MemberStatus {
        MemberStatus {
            version: "3.6.8".to_owned(),
            database: 1 << 20,
            quota: 8 << 30,
            has_leader: true,
            ..MemberStatus::default()
        }
    }

    #[test]
    fn a_member_is_told_what_is_wrong_with_it() {
        assert!(complaints(&well()).is_empty());
        assert!(complaints(&MemberStatus { version: "3.5.8-rc.1".to_owned(), ..well() }).is_empty());
        let rows = [
            (MemberStatus { version: "3.5.7".to_owned(), ..well() }, "too old"),
            (MemberStatus { version: "3.4.30".to_owned(), ..well() }, "too old"),
            (MemberStatus { has_leader: false, ..well() }, "no leader"),
            (MemberStatus { database: 7 << 30, ..well() }, "7168 of 8192 MiB"),
            (MemberStatus { database: 1900 << 20, quota: 0, ..well() }, "1900 of 2048 MiB"),
            (MemberStatus { read: Duration::from_millis(300), ..well() }, "300ms"),
            (MemberStatus { errors: vec!["alarm:NOSPACE".to_owned()], ..well() }, "alarm:NOSPACE"),
        ];
        for (status, expected) in rows {
            let told = complaints(&status);
            assert!(told.len() == 1 && told[0].contains(expected), "{told:?}");
        }
    }

    #[test]
    fn a_member_that_does_not_answer_and_two_versions_are_wrong() {
        let other = MemberStatus { version: "3.5.21".to_owned(), ..well() };
        let found =
            [("a".to_owned(), Ok(well())), ("b".to_owned(), Ok(other)), ("c".to_owned(), Err("gone"))];
        let told = judge(&found).outcome.unwrap_err();
        assert!(told.contains("c: gone") && told.contains("3.5.21, 3.6.8"), "{told}");
        assert_eq!(judge(&found[..1]).outcome, Ok("1 members of 3.6.8".to_owned()));
    }
}
