//! Requests that are answered with what is the caller's: pure parsing of paths and queries.
//!
//! A path counts only in its plain spelling, without dots, doubled slashes and escapes. Every other spelling is passed
//! on with the caller's identity, as all requests are that this module does not know.

use freehold_tenancy_api::{GROUP, VERSION};
use freehold_tenancy_decide::rules::{CLASSES, ClassRule};

/// What a request reads of the whole plane.
#[derive(Clone, Debug)]
pub(crate) enum View {
    /// Namespaces.
    Namespaces,
    /// Objects that a member sees by name: classes of the cluster, tenants.
    Named(Named),
    /// Objects of a namespaced kind in all namespaces.
    Across(Collection),
}

/// Objects that a member sees by name.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Named {
    /// The member's tenants.
    Tenants,
    /// A kind of class, by its index in [`CLASSES`].
    Classes(usize),
}

impl Named {
    /// The rule with the names; `None` for tenants.
    pub(crate) fn rule(self) -> Option<&'static ClassRule> {
        match self {
            Self::Tenants => None,
            Self::Classes(index) => CLASSES.get(index),
        }
    }
}

/// A collection of a namespaced kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Collection {
    /// `/api/v1` or `/apis/GROUP/VERSION`.
    base: String,
    /// The plural.
    plural: String,
}

impl Collection {
    /// The path of the collection in a namespace.
    pub(crate) fn path_in(&self, namespace: &str) -> String {
        format!("{}/namespaces/{namespace}/{}", self.base, self.plural)
    }

    /// The path of the collection in all namespaces.
    pub(crate) fn path(&self) -> String {
        format!("{}/{}", self.base, self.plural)
    }
}

/// Groups and plurals of [`CLASSES`], in their order.
const CLASS_PATHS: [(&str, &str); 5] = [
    ("storage.k8s.io", "storageclasses"),
    ("networking.k8s.io", "ingressclasses"),
    ("gateway.networking.k8s.io", "gatewayclasses"),
    ("scheduling.k8s.io", "priorityclasses"),
    ("node.k8s.io", "runtimeclasses"),
];

fn is_plain(segment: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.';
    !segment.is_empty() && segment.len() <= 253 && segment.bytes().all(plain) && !segment.starts_with('.')
}

/// The view that a `GET` of a path is about, and the name of a single object of it.
pub(crate) fn view(path: &str) -> Option<(View, Option<&str>)> {
    let segments: Vec<&str> = path.strip_prefix('/')?.split('/').collect();
    if !segments.iter().all(|segment| is_plain(segment)) {
        return None;
    }
    let (group, version, rest) = match segments.as_slice() {
        ["api", "v1", rest @ ..] => ("", "v1", rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => return None,
    };
    let named = || match CLASS_PATHS
        .iter()
        .position(|(g, plural)| *g == group && rest.first() == Some(plural))
    {
        Some(index) => Some(Named::Classes(index)),
        None if (group, version, rest.first()) == (GROUP, VERSION, Some(&"tenants")) => Some(Named::Tenants),
        None => None,
    };
    match (rest, named()) {
        (["namespaces"], _) if group.is_empty() => Some((View::Namespaces, None)),
        ([_], Some(named)) => Some((View::Named(named), None)),
        ([_, name], Some(named)) => Some((View::Named(named), Some(name))),
        // `watch` begins paths of an older way to watch.
        ([plural], None) if *plural != "watch" => {
            let base =
                if group.is_empty() { "/api/v1".to_owned() } else { format!("/apis/{group}/{version}") };
            Some((View::Across(Collection { base, plural: (*plural).to_owned() }), None))
        }
        _ => None,
    }
}

/// The parameters of a query, decoded, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Parses a query. What is no UTF-8 becomes replacement characters, which no selector has.
    pub(crate) fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        let decoded = |pair: &str| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(key), decode(value))
        };
        Self(pairs.map(decoded).collect())
    }

    /// The first value of a parameter, which is the one that API servers read.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(k, _)| k == key).map(|(_, value)| value.as_str())
    }

    /// Whether it asks for a watch.
    pub(crate) fn is_watch(&self) -> bool {
        self.get("watch").is_some_and(|value| !matches!(value, "0" | "false" | "False" | "FALSE" | "f" | "F"))
    }

    /// Replaces all values of a parameter by one.
    pub(crate) fn set(&mut self, key: &str, value: impl Into<String>) {
        self.remove(key);
        self.0.push((key.to_owned(), value.into()));
    }

    /// Removes all values of a parameter.
    pub(crate) fn remove(&mut self, key: &str) {
        self.0.retain(|(k, _)| k != key);
    }

    /// Removes all values of some parameters.
    pub(crate) fn remove_all(&mut self, keys: &[&str]) {
        self.0.retain(|(k, _)| !keys.contains(&k.as_str()));
    }

    /// Demands a label selector beside the caller's own. It stands first: what follows cannot change what it says.
    pub(crate) fn require(&mut self, selector: &str) {
        let both = match self.get("labelSelector") {
            None | Some("") => selector.to_owned(),
            Some(own) => format!("{selector},{own}"),
        };
        self.set("labelSelector", both);
    }

    /// A path with this query, escaped.
    pub(crate) fn on(&self, path: &str) -> String {
        let pairs: Vec<String> = self.0.iter().map(|(k, v)| format!("{}={}", encode(k), encode(v))).collect();
        if pairs.is_empty() { path.to_owned() } else { format!("{path}?{}", pairs.join("&")) }
    }
}

fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let hex = |at: usize| bytes.get(at).and_then(|b| char::from(*b).to_digit(16));
    let (mut decoded, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while let Some(byte) = bytes.get(at) {
        let escaped = (*byte == b'%').then(|| Some((hex(at + 1)? * 16 + hex(at + 2)?) as u8)).flatten();
        decoded.push(escaped.unwrap_or(if *byte == b'+' { b' ' } else { *byte }));
        at += if escaped.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

fn encode(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.~".contains(&b);
    text.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name_of(path: &str) -> String {
        match view(path) {
            Some((View::Namespaces, _)) => "namespaces".to_owned(),
            Some((View::Named(named), name)) => {
                format!("{} {}", named.rule().map_or("tenants", |rule| rule.key), name.unwrap_or("-"))
            }
            Some((View::Across(collection), _)) => collection.path_in("NS"),
            None => "passed".to_owned(),
        }
    }

    #[test]
    fn only_plain_spellings_of_whole_collections_are_views() {
        let rows = [
            ("/api/v1/namespaces", "namespaces"),
            ("/apis/storage.k8s.io/v1/storageclasses", "storage-classes -"),
            ("/apis/storage.k8s.io/v1/storageclasses/fast", "storage-classes fast"),
            ("/apis/tenancy.freehold.dev/v1alpha1/tenants", "tenants -"),
            ("/api/v1/pods", "/api/v1/namespaces/NS/pods"),
            ("/apis/apps/v1/deployments", "/apis/apps/v1/namespaces/NS/deployments"),
        ];
        for (path, wanted) in rows {
            assert_eq!(name_of(path), wanted, "{path}");
        }
        for path in [
            "/api/v1/namespaces/",
            "/api/v1/namespaces/globex-a",
            "/api/v1//namespaces",
            "/api/v1/./namespaces",
            "/api/v1/../v1/namespaces",
            "/api/v1/%6eamespaces",
            "/api/v1/namespaces%2f",
            "/api/v1/namespaces;x",
            "/api/v1/namespaces\u{e9}",
            "//api/v1/namespaces",
            "/projects/other/api/v1/namespaces",
            "/api/v1/watch/namespaces",
            "/api/v1/namespaces/globex-a/pods",
            "/apis/storage.k8s.io/v1/storageclasses/fast/status",
            "/apis/storage.k8s.io/v1/storageclasses/..",
            "/healthz",
            "",
        ] {
            assert_eq!(name_of(path), "passed", "{path}");
        }
    }

    #[test]
    fn a_selector_is_demanded_whatever_the_query_says() {
        let own = "tenancy.freehold.dev/tenant in (acme)";
        let queries = [
            ("", own.to_owned()),
            ("labelSelector=", own.to_owned()),
            ("labelSelector=a%3Db", format!("{own},a=b")),
            ("labelSelector=a&labelSelector=b", format!("{own},a")),
            ("labelSelector=x+in+(a", format!("{own},x in (a")),
            ("label%53elector=a", format!("{own},a")),
        ];
        for (text, wanted) in queries {
            let mut query = Query::parse(text);
            query.require(own);
            assert_eq!(query.get("labelSelector"), Some(wanted.as_str()), "{text}");
            let sent = query.on("/api/v1/namespaces");
            assert_eq!(sent.matches("labelSelector=").count(), 1, "{sent}");
            assert_eq!(Query::parse(sent.split_once('?').unwrap().1), query, "{sent}");
        }
        let query = Query::parse("a=%zz&b=1%2&watch=1&c=%ff");
        assert_eq!((query.get("a"), query.get("b"), query.is_watch()), (Some("%zz"), Some("1%2"), true));
        assert!(!Query::parse("watch=false").is_watch() && Query::parse("watch").is_watch());
    }
}
