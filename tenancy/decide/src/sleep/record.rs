//! How the originals of a namespace are divided into small objects.

use freehold_tenancy_api::supervisor::Original;
use std::collections::BTreeMap;

/// How many bytes of originals a record takes, one large original aside.
const CHUNK_BYTES: usize = 48 * 1024;
/// How many originals a record takes.
const CHUNK_ENTRIES: usize = 1000;
/// JSON around the fields of an original.
const ENTRY_OVERHEAD: usize = 96;

/// A record as it is stored.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chunk {
    /// Its name.
    pub name: String,
    /// Its revision.
    pub resource_version: String,
    /// Its originals.
    pub entries: Vec<Original>,
}

/// A record that has to be written.
#[derive(Clone, Debug, PartialEq)]
pub struct ChunkWrite {
    /// Its name.
    pub name: String,
    /// The revision that it replaces; `None` for a new one.
    pub resource_version: Option<String>,
    /// Its originals.
    pub entries: Vec<Original>,
}

fn size(entry: &Original) -> usize {
    let Original { group, version, resource, namespace, name, state } = entry;
    // Quotes of the state are escaped.
    let escaped = state.bytes().filter(|b| matches!(b, b'"' | b'\\')).count();
    ENTRY_OVERHEAD
        + escaped
        + [group, version, resource, namespace, name, state].iter().map(|s| s.len()).sum::<usize>()
}

/// Whether an original fits beside others.
fn fits(entries: &[Original], entry: &Original) -> bool {
    let bytes: usize = entries.iter().map(size).sum();
    entries.is_empty() || (bytes + size(entry) <= CHUNK_BYTES && entries.len() < CHUNK_ENTRIES)
}

/// The writes that make the stored records hold the wanted originals. An original stays in the record that has it, as long
/// as it fits there.
pub fn pack(stored: &[Chunk], wanted: &[Original]) -> Vec<ChunkWrite> {
    let id = |entry: &Original| {
        (entry.group.clone(), entry.resource.clone(), entry.namespace.clone(), entry.name.clone())
    };
    let mut left: BTreeMap<_, &Original> = wanted.iter().map(|entry| (id(entry), entry)).collect();
    let mut chunks: Vec<(Option<&Chunk>, String, Vec<Original>)> = Vec::new();
    for chunk in stored {
        let mut entries: Vec<Original> = Vec::new();
        for old in &chunk.entries {
            if let Some(new) = left.get(&id(old)).copied().filter(|new| fits(&entries, new)) {
                entries.push(new.clone());
                left.remove(&id(old));
            }
        }
        chunks.push((Some(chunk), chunk.name.clone(), entries));
    }
    for entry in left.into_values() {
        match chunks.iter_mut().find(|(_, _, entries)| fits(entries, entry)) {
            Some((_, _, entries)) => entries.push(entry.clone()),
            None => {
                let name =
                    (0..).map(|n| format!("sleep-{n}")).find(|name| chunks.iter().all(|(_, n, _)| n != name));
                chunks.push((None, name.unwrap_or_default(), vec![entry.clone()]));
            }
        }
    }
    let changed =
        chunks.into_iter().filter(|(old, _, entries)| old.is_none_or(|old| old.entries != *entries));
    changed
        .map(|(old, name, entries)| ChunkWrite {
            name,
            resource_version: old.map(|old| old.resource_version.clone()),
            entries,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(n: usize, bytes: usize) -> Original {
        Original {
            name: format!("o-{n:05}"),
            resource: "deployments".into(),
            state: "x".repeat(bytes),
            ..Original::default()
        }
    }

    fn store(writes: Vec<ChunkWrite>) -> Vec<Chunk> {
        let chunk = |w: ChunkWrite| Chunk { name: w.name, resource_version: "1".into(), entries: w.entries };
        writes.into_iter().map(chunk).collect()
    }

    #[test]
    fn records_stay_small_and_hold_each_original_once() {
        let wanted: Vec<Original> = (0..3000).map(|n| entry(n, 20)).chain([entry(9000, 80_000)]).collect();
        let chunks = store(pack(&[], &wanted));
        assert!(chunks.len() > 3);
        for chunk in &chunks {
            let spec = freehold_tenancy_api::supervisor::SleepRecordSpec { entries: chunk.entries.clone() };
            assert!(serde_json::to_string(&spec).unwrap().len() < 100 * 1024);
        }
        let mut all: Vec<Original> = chunks.iter().flat_map(|c| c.entries.clone()).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        assert_eq!(all, wanted);
        assert!(pack(&chunks, &wanted).is_empty(), "what is stored is not written again");
    }

    #[test]
    fn a_change_writes_the_record_that_has_it() {
        let mut wanted: Vec<Original> = (0..3000).map(|n| entry(n, 20)).collect();
        let chunks = store(pack(&[], &wanted));
        wanted[0].state = "y".into();
        let writes = pack(&chunks, &wanted);
        assert_eq!(writes.len(), 1);
        assert_eq!(writes[0].resource_version.as_deref(), Some("1"));
        let names: std::collections::BTreeSet<&str> = chunks.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(names.len(), chunks.len());
    }
}
