//! Lives of a process in one directory, and what they add up to.

use crate::child::{AFTER, DIR, LIFE, key, options};
use freehold_apiserver_storage::{Event, KeyRange, Range, Revision, Store, WatchItem};
use freehold_apiserver_storage_embedded::Embedded;
use freehold_tests_harness::history::{History, Outcome, Seen, Write};
use futures_util::StreamExt;
use std::{
    collections::HashMap,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::OnceLock,
    time::{Duration, Instant, SystemTime},
};
use tempfile::TempDir;

/// How a life ends.
pub(crate) enum Fault {
    /// By `kill -9`, after so many acknowledgements.
    KillAfter(u64),
    /// By its disk; see `disk.c`.
    Disk { mode: &'static str, at: u64, kill_after: u64, seed: u64 },
}

/// The disk that fails, compiled once.
fn shim() -> &'static Path {
    static SHIM: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = SHIM.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk.so");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/faults/disk.c");
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&path).args([source, "-ldl"]);
        assert!(cc.status().expect("a C compiler is installed").success());
        (folder, path)
    });
    path
}

/// A directory, and what was noted of the lives in it.
pub(crate) struct Lives {
    dir: TempDir,
    writes: HashMap<String, [Write; 2]>,
    /// What the watcher saw that resumes in each life where it ended in the one before.
    seen: Vec<Seen>,
    origin: (Instant, SystemTime),
    told: Vec<String>,
}

impl Lives {
    pub(crate) fn new() -> Self {
        let origin = (Instant::now(), SystemTime::now());
        Self {
            dir: tempfile::tempdir().unwrap(),
            writes: HashMap::new(),
            seen: Vec::new(),
            origin,
            told: Vec::new(),
        }
    }

    fn store(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join("store")
    }

    /// One life, to its end.
    pub(crate) fn live(&mut self, round: u64, fault: &Fault) {
        let after = self.seen.last().map_or(1, |seen| seen.revision);
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "child::a_life", "--nocapture", "--test-threads=1"]);
        command.env(DIR, self.store()).env(AFTER, after.to_string()).env(LIFE, round.to_string());
        if let Fault::Disk { mode, at, kill_after, seed } = fault {
            command.env("LD_PRELOAD", shim()).env("FAULT_DIR", self.store()).env("FAULT_MODE", mode);
            for (name, number) in [("FAULT_AT", at), ("FAULT_KILL_AFTER", kill_after), ("FAULT_SEED", seed)] {
                command.env(name, number.to_string());
            }
            self.told.push(format!("round {round}: {mode} at {at}, killed {kill_after} later, seed {seed}"));
        }
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let kill_at = if let Fault::KillAfter(count) = fault { *count } else { u64::MAX };
        self.listen(&mut child, kill_at);
        child.wait().unwrap();
    }

    fn listen(&mut self, child: &mut Child, kill_at: u64) {
        let mut acknowledged = 0;
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            // What was cut off by the end has no full stop.
            let line = line.unwrap_or_default();
            let Some(line) = line.strip_suffix(" .") else {
                self.told.extend(line.strip_prefix("never open: ").map(str::to_owned));
                continue;
            };
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["begin", value, own, common, at] => self.begun(value, [own, common], at),
                ["ack", value, revision, at] => {
                    self.ended(value, Outcome::Acknowledged(revision.parse().unwrap()), at);
                    acknowledged += 1;
                }
                ["refused", value, _, at] => self.ended(value, Outcome::Refused, at),
                ["seen", revision, ..] => {
                    let revision = revision.parse().unwrap();
                    self.seen.extend(words[2..].chunks(2).map(|pair| seen(revision, pair[0], pair[1])));
                }
                _ => {}
            }
            if acknowledged == kill_at {
                child.kill().unwrap();
            }
        }
    }

    fn instant(&self, nanos: &str) -> Instant {
        let since = SystemTime::UNIX_EPOCH + Duration::from_nanos(nanos.parse().unwrap());
        self.origin.0 + since.duration_since(self.origin.1).unwrap_or_default()
    }

    fn begun(&mut self, value: &str, names: [&str; 2], at: &str) {
        let begun = self.instant(at);
        let write = |name: &str, half: &str| Write {
            key: String::from_utf8(key(name).as_bytes().to_vec()).unwrap(),
            value: format!("{value}/{half}"),
            begun,
            ended: begun,
            outcome: Outcome::Unknown,
        };
        self.writes.insert(value.to_owned(), [write(names[0], "a"), write(names[1], "b")]);
    }

    fn ended(&mut self, value: &str, outcome: Outcome, at: &str) {
        let ended = self.instant(at);
        for write in self.writes.get_mut(value).unwrap() {
            (write.outcome, write.ended) = (outcome, ended);
        }
    }

    /// Opens what is left, and has the checker judge all of it. Returns how many writes were acknowledged.
    pub(crate) fn check(self) -> usize {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let after = self.seen.last().map_or(1, |seen| seen.revision);
        let told = self.told.join("\n");
        let store =
            Embedded::open_with(&self.store(), options()).unwrap_or_else(|error| panic!("{error}\n{told}"));
        let (all, rest, last) = runtime.block_on(async {
            let current = store.revision().await.unwrap();
            let found = store.range(Range::all(KeyRange::system("test"))).await.unwrap().items;
            (replay(&store, 1, current).await, replay(&store, after, current).await, found)
        });
        self.check_halves(&all);
        let resumed = self.seen.into_iter().chain(rest).collect();
        let history = History {
            writes: self.writes.into_values().flatten().collect(),
            reads: Vec::new(),
            watchers: vec![(1, all), (1, resumed)],
            last: last
                .iter()
                .map(|item| {
                    let event = seen_of(item.modified, &item.key, Some(&item.value));
                    (event.key, (event.value.unwrap(), item.modified))
                })
                .collect(),
        };
        history.check().unwrap_or_else(|wrong| panic!("{wrong}\n{told}"));
        history.outcomes().0
    }

    /// Both keys of a commit, at one revision, or neither.
    fn check_halves(&self, all: &[Seen]) {
        let mut halves: HashMap<(&str, Revision), usize> = HashMap::new();
        for seen in all {
            if let Some((commit, _)) = seen.value.as_deref().and_then(|value| value.rsplit_once('/')) {
                *halves.entry((commit, seen.revision)).or_default() += 1;
            }
        }
        for (commit, count) in halves {
            assert_eq!(count, 2, "{commit:?} is there by halves\n{}", self.told.join("\n"));
        }
    }
}

fn seen(revision: Revision, key: &str, value: &str) -> Seen {
    let value = (value != "-").then(|| value.to_owned());
    Seen { revision, key: key.to_owned(), value }
}

fn seen_of(revision: Revision, key: &freehold_apiserver_storage::Key, value: Option<&[u8]>) -> Seen {
    let text = |bytes: &[u8]| std::str::from_utf8(bytes).unwrap().trim().to_owned();
    Seen { revision, key: text(key.as_bytes()), value: value.map(text) }
}

/// What a watch yields that begins after a revision, up to the current one.
async fn replay(store: &Embedded, after: Revision, current: Revision) -> Vec<Seen> {
    let mut watch = store.watch(KeyRange::system("test"), after, false).await.unwrap();
    store.request_progress().await.unwrap();
    let mut all = Vec::new();
    loop {
        match watch.next().await.unwrap().unwrap() {
            WatchItem::Events(events) => {
                let of = |event: &Event| seen_of(event.revision, &event.key, event.value.as_deref());
                all.extend(events.iter().map(of));
            }
            WatchItem::Progress(reached) if reached >= current => return all,
            WatchItem::Progress(_) => {}
        }
    }
}
