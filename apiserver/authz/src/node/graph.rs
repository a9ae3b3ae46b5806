//! Which objects of a plane belong to which of its nodes: a Secret by the Pod that names it, a volume by its claim, and so on
//! (`plugin/pkg/auth/authorizer/node/graph.go` of Kubernetes).
//!
//! Each change of an object replaces what that object says. An edge costs some 12 bytes, an object its name and some 80.

use std::collections::HashMap;

/// What kind an object is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A node.
    Node,
    /// A Pod.
    Pod,
    /// A Secret.
    Secret,
    /// A ConfigMap.
    ConfigMap,
    /// A PersistentVolumeClaim.
    Claim,
    /// A PersistentVolume.
    Volume,
    /// A VolumeAttachment.
    Attachment,
    /// A ServiceAccount.
    Account,
    /// A ResourceClaim.
    ResourceClaim,
    /// A ResourceSlice.
    Slice,
}

/// An object by its kind, namespace and name.
pub type Name<'a> = (Kind, &'a str, &'a str);

/// What an object says of others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// The node that it is on.
    pub node: String,
    /// What that node may see because of it.
    pub seen: Vec<(Kind, String, String)>,
    /// Objects that are seen by those who see the other one.
    pub through: Vec<(Object, Object)>,
}

/// An owned [`Name`].
pub(crate) type Object = (Kind, String, String);

/// The objects and nodes of one plane.
#[derive(Debug, Default)]
pub struct NodeGraph {
    ids: HashMap<Box<str>, u32>,
    objects: Vec<Vertex>,
    free: Vec<u32>,
    sources: HashMap<Box<str>, Source>,
}

#[derive(Debug, Default)]
struct Vertex {
    key: Box<str>,
    /// How many say something of it.
    uses: u32,
    /// The nodes that see it, and how many say so.
    nodes: Vec<(u32, u32)>,
    /// The objects that it is seen through.
    through: Vec<u32>,
}

/// What one object has said.
#[derive(Debug)]
struct Source {
    node: u32,
    seen: Box<[u32]>,
    through: Box<[(u32, u32)]>,
}

/// No node.
const NOWHERE: u32 = u32::MAX;

fn key((kind, namespace, name): Name<'_>) -> String {
    let mut key = String::with_capacity(2 + namespace.len() + name.len());
    key.push(char::from(b'a' + kind as u8));
    key.push_str(namespace);
    key.push('/');
    key.push_str(name);
    key
}

impl NodeGraph {
    /// Replaces what an object says; `None` for one that is gone.
    pub fn put(&mut self, source: Name<'_>, said: Option<&Said>) {
        let source = key(source);
        let before = self.sources.remove(source.as_str());
        if let Some(said) = said.filter(|said| !said.seen.is_empty() || !said.through.is_empty()) {
            let new = self.add(said);
            self.sources.insert(source.into_boxed_str(), new);
        }
        if let Some(before) = before {
            self.remove(&before);
        }
    }

    /// Whether a node sees an object.
    pub fn sees(&self, node: &str, object: Name<'_>) -> bool {
        let find = |name: Name<'_>| self.ids.get(key(name).as_str()).copied();
        let (Some(node), Some(object)) = (find((Kind::Node, "", node)), find(object)) else { return false };
        // A Secret of a volume is seen through the volume's claim: one step is the longest way.
        let vertex = &self.objects[object as usize];
        self.is_seen(object, node) || vertex.through.iter().any(|via| self.is_seen(*via, node))
    }

    /// Bytes that it takes, about.
    pub fn bytes(&self) -> usize {
        let of_vertex = |v: &Vertex| 2 * v.key.len() + 8 * v.nodes.capacity() + 4 * v.through.capacity();
        let of_source = |s: &Source| 4 * s.seen.len() + 8 * s.through.len();
        let tables = self.ids.capacity() * (size_of::<(Box<str>, u32)>() + 1)
            + self.sources.capacity() * (size_of::<(Box<str>, Source)>() + 1)
            + self.objects.capacity() * size_of::<Vertex>();
        let names = self.sources.keys().map(|key| key.len()).sum::<usize>();
        let edges = self.sources.values().map(of_source).sum::<usize>();
        tables + names + edges + self.objects.iter().map(of_vertex).sum::<usize>()
    }

    /// How many edges there are.
    pub fn edges(&self) -> usize {
        self.sources.values().map(|source| source.seen.len() + source.through.len()).sum()
    }

    fn is_seen(&self, object: u32, node: u32) -> bool {
        self.objects[object as usize].nodes.iter().any(|(by, _)| *by == node)
    }

    fn add(&mut self, said: &Said) -> Source {
        let node = if said.seen.is_empty() { NOWHERE } else { self.hold((Kind::Node, "", &said.node)) };
        let seen: Box<[u32]> =
            said.seen.iter().map(|(kind, namespace, name)| self.hold((*kind, namespace, name))).collect();
        for object in &seen {
            let nodes = &mut self.objects[*object as usize].nodes;
            match nodes.iter_mut().find(|(by, _)| *by == node) {
                Some((_, count)) => *count += 1,
                None => nodes.push((node, 1)),
            }
        }
        let through: Box<[(u32, u32)]> = said
            .through
            .iter()
            .map(|(object, via)| {
                let (object, via) =
                    (self.hold((object.0, &object.1, &object.2)), self.hold((via.0, &via.1, &via.2)));
                self.objects[object as usize].through.push(via);
                (object, via)
            })
            .collect();
        Source { node, seen, through }
    }

    fn remove(&mut self, source: &Source) {
        for object in &source.seen {
            let nodes = &mut self.objects[*object as usize].nodes;
            if let Some(at) = nodes.iter().position(|(by, _)| *by == source.node) {
                nodes[at].1 -= 1;
                if nodes[at].1 == 0 {
                    nodes.swap_remove(at);
                }
            }
            self.release(*object);
        }
        for (object, via) in &source.through {
            let through = &mut self.objects[*object as usize].through;
            if let Some(at) = through.iter().position(|id| id == via) {
                through.swap_remove(at);
            }
            self.release(*object);
            self.release(*via);
        }
        if source.node != NOWHERE {
            self.release(source.node);
        }
    }

    /// The number of an object, which counts one more use.
    fn hold(&mut self, name: Name<'_>) -> u32 {
        let key = key(name).into_boxed_str();
        if let Some(id) = self.ids.get(&key) {
            self.objects[*id as usize].uses += 1;
            return *id;
        }
        let vertex = Vertex { key: key.clone(), uses: 1, ..Vertex::default() };
        let id = match self.free.pop() {
            Some(id) => {
                self.objects[id as usize] = vertex;
                id
            }
            None => {
                self.objects.push(vertex);
                u32::try_from(self.objects.len() - 1).unwrap_or(NOWHERE)
            }
        };
        self.ids.insert(key, id);
        id
    }

    fn release(&mut self, id: u32) {
        let vertex = &mut self.objects[id as usize];
        vertex.uses -= 1;
        if vertex.uses == 0 {
            let vertex = std::mem::take(vertex);
            self.ids.remove(&vertex.key);
            self.free.push(id);
        }
    }
}
