//! Which log belongs to which container: the one of the current run and the one before.

use crate::logs::RunLog;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Namespace, Pod and container.
pub(crate) type Key = (String, String, String);

/// The logs of all containers that this node has.
#[derive(Debug, Default)]
pub(crate) struct LogBook(Mutex<HashMap<Key, Entry>>);

#[derive(Debug)]
struct Entry {
    pod_uid: String,
    current: Arc<RunLog>,
    previous: Option<Arc<RunLog>>,
}

impl LogBook {
    /// Begins the log of a run; `run` counts a container's runs from 0. Its files are `<run>.log` in the container's
    /// directory. Of earlier runs only the last is kept.
    pub(crate) fn begin(
        &self,
        key: Key,
        pod_uid: &str,
        directory: &Path,
        run: u32,
    ) -> io::Result<Arc<RunLog>> {
        let path = |run: u32| directory.join(format!("{run}.log"));
        let current = RunLog::create(&path(run))?;
        let before = run.checked_sub(1).map(path).filter(|path| path.exists());
        let previous = before.map(|path| RunLog::create(&path)).transpose()?;
        if let Some(previous) = &previous {
            previous.close();
        }
        if let Some(old) = run.checked_sub(2).map(path).filter(|path| path.exists()) {
            RunLog::create(&old)?.remove();
        }
        let entry = Entry { pod_uid: pod_uid.to_owned(), current: current.clone(), previous };
        self.0.lock().insert(key, entry);
        Ok(current)
    }

    /// The log of a container's current run, or of the one before.
    pub(crate) fn find(&self, key: &Key, previous: bool) -> Option<Arc<RunLog>> {
        let book = self.0.lock();
        let entry = book.get(key)?;
        if previous { entry.previous.clone() } else { Some(entry.current.clone()) }
    }

    /// Forgets a Pod.
    pub(crate) fn forget(&self, pod_uid: &str) {
        self.0.lock().retain(|_, entry| entry.pod_uid != pod_uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_two_runs_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let book = LogBook::default();
        let key: Key = ("n".into(), "p".into(), "c".into());
        for run in 0..4 {
            book.begin(key.clone(), "u", dir.path(), run).unwrap().close();
            assert_eq!(book.find(&key, true).is_some(), run > 0);
        }
        let mut files: Vec<_> =
            std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        files.sort();
        assert_eq!(files, ["2.log", "3.log"]);
        book.forget("u");
        assert!(book.find(&key, false).is_none());
    }
}
