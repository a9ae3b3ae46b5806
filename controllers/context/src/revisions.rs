//! ControllerRevisions: the pod templates that a StatefulSet or DaemonSet has had, each with a number.
//!
//! A revision's data is the patch that brings its template back, in the bytes that kube-controller-manager writes, so that
//! either controller recognizes the other's revisions. Of the data only a digest is kept here.

use crate::kinds::CONTROLLER_REVISIONS;
use crate::object::{controller_of, labels, orphan_entry, selects};
use freehold_client::{Client, DeleteOptions, Error, Patch, PatchOptions};
use freehold_machinery::{Map, Value, meta, selector::Labels};
use freehold_runtime::{Key, Store};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;
use std::sync::Arc;

/// The label with the hash of a StatefulSet's revision.
pub const HASH: &str = "controller.kubernetes.io/hash";
/// The label of pods that names their revision, and of a DaemonSet's revisions.
pub const POD_REVISION: &str = "controller-revision-hash";
/// Letters of a hash: no vowels, so that no words come out.
const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
/// The longest beginning of a revision's name.
const MAX_PREFIX: usize = 223;

/// What is kept of a ControllerRevision.
#[derive(Clone, Debug, PartialEq)]
pub struct Revision {
    /// `metadata.uid`.
    pub uid: Box<str>,
    /// The uid of its controller; empty where it has none.
    pub owner: Box<str>,
    /// `metadata.labels`.
    pub labels: Option<Map>,
    /// Its number: the highest is the newest.
    pub number: i64,
    /// When it was created, RFC 3339.
    pub created: Box<str>,
    /// SHA-256 of its data.
    pub digest: [u8; 32],
}

/// A revision with its key.
pub type Known = (Key, Arc<Revision>);

impl Revision {
    /// Returns what is kept of a revision.
    pub fn of(object: Value) -> Option<Self> {
        Some(Self {
            uid: meta::uid(&object).into(),
            owner: controller_of(&object).and_then(|o| o["uid"].as_str()).unwrap_or_default().into(),
            labels: labels(&object).cloned(),
            number: object["revision"].as_i64().unwrap_or(0),
            created: meta::text(&object, "creationTimestamp").into(),
            digest: digest(&encode(&object["data"])),
        })
    }

    /// Index entries: the controller's uid, or the namespace's orphans.
    pub fn index(key: &Key, revision: &Self) -> Vec<String> {
        match revision.owner.is_empty() {
            true => vec![orphan_entry(&key.namespace)],
            false => vec![revision.owner.to_string()],
        }
    }

    /// One of its labels; empty where it has none.
    pub fn label(&self, name: &str) -> &str {
        self.labels.as_ref().and_then(|l| l.get(name)).and_then(Value::as_str).unwrap_or("")
    }
}

/// What is to be done so that the newest revision has the present template.
#[derive(Debug, PartialEq)]
pub enum Plan {
    /// Nothing: the newest has it.
    Keep(Known),
    /// An earlier one has it, and becomes the newest.
    Renumber(Known, i64),
    /// None has it.
    Create(i64),
}

/// Decides about revisions, which are in order.
pub fn plan(revisions: &[Known], digest: &[u8; 32]) -> Plan {
    let next = revisions.last().map_or(1, |(_, last)| last.number + 1);
    match revisions.iter().rposition(|(_, revision)| revision.digest == *digest) {
        None => Plan::Create(next),
        Some(at) if at + 1 == revisions.len() => Plan::Keep(revisions[at].clone()),
        Some(at) => Plan::Renumber(revisions[at].clone(), next),
    }
}

/// An owner's revisions in order, those first that nothing controls and it selects.
pub fn of_owner(
    store: &Store<Revision>,
    key: &Key,
    uid: &str,
    selector: &Labels,
) -> (Vec<Known>, Vec<Known>) {
    let mut orphans = store.by_index(&key.plane, &orphan_entry(&key.namespace));
    orphans.retain(|(_, revision)| selects(selector, revision.labels.as_ref()));
    let mut owned = store.by_index(&key.plane, uid);
    owned.sort_by(|(a_key, a), (b_key, b)| {
        (a.number, &a.created, &a_key.name).cmp(&(b.number, &b.created, &b_key.name))
    });
    (orphans, owned)
}

/// The data of a template's revision.
pub fn data(template: &Value) -> Value {
    let mut template = template.clone();
    template["$patch"] = "replace".into();
    json!({"spec": {"template": template}})
}

/// The template in a revision's data.
pub fn template(revision: &Value) -> Option<Value> {
    let mut template = revision.pointer("/data/spec/template")?.clone();
    template.as_object_mut()?.remove("$patch");
    Some(template)
}

/// SHA-256 of encoded data.
pub fn digest(encoded: &str) -> [u8; 32] {
    Sha256::digest(encoded.as_bytes()).into()
}

/// JSON as Go writes it: keys in order, and characters escaped that HTML gives a meaning.
pub fn encode(value: &Value) -> String {
    let plain = value.to_string();
    if !plain.contains(['<', '>', '&', '\u{2028}', '\u{2029}', '\u{7f}']) {
        return plain;
    }
    let mut text = String::with_capacity(plain.len() + 16);
    for c in plain.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                // Writing to a String can't fail.
                let _ = write!(text, "\\u{:04x}", c as u32);
            }
            _ => text.push(c),
        }
    }
    text
}

/// The hash of a StatefulSet's revision: FNV-1 of its encoded data and the count of collisions.
pub fn hash(encoded: &str, collisions: i64) -> String {
    let text = encoded.bytes().chain(collisions.to_string().into_bytes());
    let sum = text.fold(0x811c_9dc5_u32, |hash, byte| hash.wrapping_mul(0x0100_0193) ^ u32::from(byte));
    spell(sum)
}

/// A number in letters that make no words.
pub fn spell(sum: u32) -> String {
    sum.to_string().bytes().map(|digit| LETTERS[usize::from(digit) % LETTERS.len()] as char).collect()
}

/// The name of an owner's revision with a hash.
pub fn name(owner: &Value, hash: &str) -> String {
    let prefix: String = meta::name(owner).chars().take(MAX_PREFIX).collect();
    format!("{prefix}-{hash}")
}

/// Gives a revision another number.
///
/// # Errors
/// Whatever the server refuses the write with.
pub async fn renumber(client: &Client, key: &Key, number: i64) -> Result<Value, Error> {
    let patch = Patch::Merge(json!({"revision": number}));
    client.patch(&CONTROLLER_REVISIONS, key.ns(), &key.name, &patch, &PatchOptions::default()).await
}

/// Makes an owner the controller of a revision that has none.
///
/// # Errors
/// Whatever the server refuses the write with.
pub async fn adopt(client: &Client, revision: &Known, owner: &Value) -> Result<Value, Error> {
    let (key, known) = revision;
    let references = [crate::object::controller_reference(owner)];
    let patch = Patch::Strategic(json!({"metadata": {"uid": known.uid, "ownerReferences": references}}));
    client.patch(&CONTROLLER_REVISIONS, key.ns(), &key.name, &patch, &PatchOptions::default()).await
}

/// Deletes a revision, unless it is gone.
///
/// # Errors
/// Whatever the server refuses the deletion with, but for an object that is gone or another one by now.
pub async fn delete(client: &Client, (key, known): &Known) -> Result<(), Error> {
    let options = DeleteOptions::uid(&*known.uid);
    match client.delete(&CONTROLLER_REVISIONS, key.ns(), &key.name, &options).await {
        Err(error) if !error.is_not_found() && !error.is_conflict() => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use freehold_machinery::PlaneId;

    fn known(name: &str, number: i64, data: &str) -> Known {
        let object = json!({"metadata": {"name": name}, "revision": number, "data": {"is": data}});
        (Key::new(PlaneId::core(), "n", name), Arc::new(Revision::of(object).unwrap()))
    }

    #[test]
    fn a_template_gets_the_newest_number() {
        let all = [known("a", 1, "x"), known("b", 2, "y"), known("c", 3, "z")];
        let of = |data: &str| digest(&encode(&json!({"is": data})));
        assert_eq!(plan(&all, &of("z")), Plan::Keep(all[2].clone()));
        assert_eq!(plan(&all, &of("x")), Plan::Renumber(all[0].clone(), 4));
        assert_eq!(plan(&all, &of("new")), Plan::Create(4));
        assert_eq!(plan(&[], &of("new")), Plan::Create(1));
    }

    #[test]
    fn data_is_encoded_as_go_does() {
        let value = json!({"b": "a<b>&c\u{2028}", "a": [1, true, null]});
        assert_eq!(encode(&value), r#"{"a":[1,true,null],"b":"a\u003cb\u003e\u0026c\u2028"}"#);
    }

    #[test]
    fn a_revision_brings_its_template_back() {
        let of = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": []}});
        let revision = json!({"data": data(&of)});
        assert_eq!(template(&revision), Some(of));
        assert_eq!(revision["data"]["spec"]["template"]["$patch"], "replace");
        assert_eq!(template(&json!({})), None);
    }

    #[test]
    fn a_hash_makes_no_words_and_depends_on_collisions() {
        assert_eq!(spell(0), "4");
        assert_eq!(hash("", 0).len(), hash("", 0).trim_matches(|c| "aeiou013".contains(c)).len());
        assert_ne!(hash("{}", 0), hash("{}", 1));
    }
}
