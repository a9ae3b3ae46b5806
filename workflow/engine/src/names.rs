//! Names that follow from what they are for, so that nothing is made twice.

use crate::NodeId;

/// The name of the Pod of an attempt: at most 63 characters, the same whoever asks.
pub fn pod(run: &str, uid: &str, task: &str, node: NodeId, attempt: u32) -> String {
    let hash = digest(&[uid, &node.to_string(), &attempt.to_string()]);
    format!("{}-{}-{hash}", word(run, 26), word(task, 20))
}

/// The name of the run of a tick: the DAG's, as far as it fits, and a digest of its uid and the time.
pub fn scheduled_run(dag: &str, uid: &str, tick: i64) -> String {
    format!("{}-{}", word(dag, 40), digest(&[uid, &tick.to_string()]))
}

/// The name of the run of a child DAG.
pub fn child_run(run: &str, uid: &str, task: &str, node: NodeId, attempt: u32) -> String {
    pod(run, uid, task, node, attempt)
}

/// A label's value: a name as far as it fits.
pub fn label(name: &str) -> String {
    name.chars().take(63).collect::<String>().trim_end_matches(['-', '.', '_']).to_owned()
}

/// 13 letters and digits that depend on all words.
pub fn digest(words: &[&str]) -> String {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in words.iter().flat_map(|word| word.bytes().chain([0xff])) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash = mix(hash);
    let mut text = String::with_capacity(13);
    for _ in 0..13 {
        let digit = u32::try_from(hash % 36).unwrap_or(0);
        text.push(char::from_digit(digit, 36).unwrap_or('0'));
        hash /= 36;
    }
    text
}

/// Spreads a number over all bits.
pub(crate) fn mix(mut hash: u64) -> u64 {
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

/// The beginning of a name, as DNS labels want it.
fn word(name: &str, length: usize) -> String {
    let word: String = name
        .chars()
        .take(length)
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' })
        .collect();
    let word = word.trim_matches('-');
    if word.is_empty() { "x".to_owned() } else { word.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_labels_and_differ_by_all_that_they_are_for() {
        let node = NodeId::item(3, 7);
        let name = pod("A.very_long.run-name-that-goes-on", "u1", "Build_it", node, 0);
        assert!(freehold_machinery::names::dns1123_label(&name).is_empty() && name.len() <= 63, "{name}");
        let others = [
            pod("r", "u1", "t", node, 1),
            pod("r", "u2", "t", node, 0),
            pod("r", "u1", "t", NodeId::item(3, 8), 0),
            pod("r", "u1", "t", node, 0),
        ];
        assert_eq!(others.iter().collect::<std::collections::HashSet<_>>().len(), 4);
        assert_eq!(others[3], pod("r", "u1", "t", node, 0));
        assert_eq!(scheduled_run("d", "u", 1), scheduled_run("d", "u", 1));
        assert_eq!("3.-".parse(), Ok(NodeId::task(3)));
        assert_eq!(node.to_string().parse(), Ok(node));
    }
}
