//! JSON paths in the form that Kubernetes uses, compiled.
//!
//! What CRDs need for printer columns, scale subresources and selectable fields: `.a.b`, `['x.y']`, `.x\.y`, `[0]`,
//! `[-1]`, `[0:2]`, `[*]`, `['a','b']`, `..a` and `[?(@.type=="Ready")].status`
//! (<https://kubernetes.io/docs/reference/kubectl/jsonpath/>). A missing key selects nothing; that is not an error.

mod parse;

use freehold_machinery::Value;
use std::cmp::Ordering;

/// A compiled JSON path.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath {
    steps: Vec<Step>,
}

/// Why a text is no JSON path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidPath(pub(crate) String);

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(Box<str>),
    Index(i64),
    Slice {
        start: Option<i64>,
        end: Option<i64>,
        step: i64,
    },
    Wildcard,
    Union(Vec<Step>),
    /// The value itself and all below it.
    Descend,
    Filter(Filter),
}

/// `?(left operator right)`, or `?(left)` for what has one.
#[derive(Clone, Debug, PartialEq)]
struct Filter {
    left: Operand,
    test: Option<(Operator, Operand)>,
}

#[derive(Clone, Debug, PartialEq)]
enum Operand {
    Path(JsonPath),
    Constant(Value),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl JsonPath {
    /// Compiles a path. A leading `$`, and braces around the whole, may be there or not.
    ///
    /// # Errors
    /// A text of more than 4096 bytes, with filters nested more than 8 deep, or that is no path.
    pub fn parse(text: &str) -> Result<Self, InvalidPath> {
        parse::path(text)
    }

    /// All that the path selects, in order.
    pub fn find<'a>(&self, root: &'a Value) -> Vec<&'a Value> {
        let mut found = vec![root];
        for step in &self.steps {
            let mut next = Vec::new();
            found.iter().for_each(|value| step.select(value, &mut next));
            found = next;
        }
        found
    }

    /// The first that the path selects.
    pub fn first<'a>(&self, root: &'a Value) -> Option<&'a Value> {
        let mut value = root;
        for (at, step) in self.steps.iter().enumerate() {
            value = match step {
                Step::Field(name) => value.get(&**name)?,
                Step::Index(index) => at_index(value, *index)?,
                _ => {
                    let rest = Self { steps: self.steps[at..].to_vec() };
                    return rest.find(value).into_iter().next();
                }
            };
        }
        Some(value)
    }

    /// The fields that it names, where it names nothing but fields: what can be written to.
    pub fn fields(&self) -> Option<Vec<&str>> {
        self.steps.iter().map(Step::field).collect()
    }
}

impl Step {
    fn field(&self) -> Option<&str> {
        match self {
            Self::Field(name) => Some(name),
            _ => None,
        }
    }

    fn select<'a>(&self, value: &'a Value, found: &mut Vec<&'a Value>) {
        match self {
            Self::Field(name) => found.extend(value.get(&**name)),
            Self::Index(index) => found.extend(at_index(value, *index)),
            Self::Slice { start, end, step } => slice(value, *start, *end, *step, found),
            Self::Wildcard => found.extend(children(value)),
            Self::Union(steps) => steps.iter().for_each(|step| step.select(value, found)),
            Self::Descend => descend(value, found),
            Self::Filter(filter) => found.extend(items(value).iter().filter(|item| filter.holds(item))),
        }
    }
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn children(value: &Value) -> Box<dyn Iterator<Item = &Value> + '_> {
    match value {
        Value::Object(map) => Box::new(map.values()),
        _ => Box::new(items(value).iter()),
    }
}

fn at_index(value: &Value, index: i64) -> Option<&Value> {
    let items = items(value);
    items.get(position(index, items.len())?)
}

/// A position from the start or, where it is negative, from the end.
fn position(index: i64, length: usize) -> Option<usize> {
    usize::try_from(if index < 0 { index.checked_add(length.try_into().ok()?)? } else { index }).ok()
}

fn slice<'a>(value: &'a Value, start: Option<i64>, end: Option<i64>, step: i64, found: &mut Vec<&'a Value>) {
    let items = items(value);
    let bound = |index: i64| position(index, items.len()).unwrap_or(0).min(items.len());
    let (start, end) = (bound(start.unwrap_or(0)), end.map_or(items.len(), bound));
    let step = usize::try_from(step).unwrap_or(1).max(1);
    found.extend(items.get(start..end).unwrap_or_default().iter().step_by(step));
}

fn descend<'a>(value: &'a Value, found: &mut Vec<&'a Value>) {
    found.push(value);
    children(value).for_each(|child| descend(child, found));
}

impl Filter {
    fn holds(&self, item: &Value) -> bool {
        let left = self.left.value(item);
        match &self.test {
            None => left.is_some(),
            Some((operator, right)) => match (left, right.value(item)) {
                (Some(left), Some(right)) => operator.holds(left, right),
                _ => false,
            },
        }
    }
}

impl Operand {
    fn value<'a>(&'a self, item: &'a Value) -> Option<&'a Value> {
        match self {
            Self::Path(path) => path.first(item),
            Self::Constant(value) => Some(value),
        }
    }
}

impl Operator {
    fn holds(self, left: &Value, right: &Value) -> bool {
        let order = order(left, right);
        match self {
            Self::Equal => order == Some(Ordering::Equal),
            Self::NotEqual => order != Some(Ordering::Equal),
            Self::Less => order == Some(Ordering::Less),
            Self::LessOrEqual => order.is_some_and(Ordering::is_le),
            Self::Greater => order == Some(Ordering::Greater),
            Self::GreaterOrEqual => order.is_some_and(Ordering::is_ge),
        }
    }
}

/// How two values of the same kind compare.
fn order(left: &Value, right: &Value) -> Option<Ordering> {
    match (left, right) {
        (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
        (Value::Bool(left), Value::Bool(right)) => Some(left.cmp(right)),
        (Value::Number(left), Value::Number(right)) => left.as_f64()?.partial_cmp(&right.as_f64()?),
        _ => (left == right).then_some(Ordering::Equal),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn sample() -> Value {
        json!({
            "spec": {"replicas": 3, "x.y": "dotted", "names": ["a", "b", "c"], "it's": 1},
            "status": {"conditions": [
                {"type": "Ready", "status": "True", "n": 1},
                {"type": "Synced", "status": "False", "n": 2, "sub": {"ok": true}},
            ]},
        })
    }

    #[test]
    fn paths_select_what_kubernetes_selects() {
        let rows = [
            (".spec.replicas", json!([3])),
            ("spec.replicas", json!([3])),
            ("$.spec.replicas", json!([3])),
            ("{.spec.replicas}", json!([3])),
            (".spec['x.y']", json!(["dotted"])),
            (".spec[\"x.y\"]", json!(["dotted"])),
            (r".spec.x\.y", json!(["dotted"])),
            (r".spec['it\'s']", json!([1])),
            (".spec.names[0]", json!(["a"])),
            (".spec.names[-1]", json!(["c"])),
            (".spec.names[9]", json!([])),
            (".spec.names[-9]", json!([])),
            (".spec.names[1:]", json!(["b", "c"])),
            (".spec.names[0:2]", json!(["a", "b"])),
            (".spec.names[::2]", json!(["a", "c"])),
            (".spec.names[0,2]", json!(["a", "c"])),
            (".spec.names[*]", json!(["a", "b", "c"])),
            (".status.conditions[*].type", json!(["Ready", "Synced"])),
            (".status.conditions.*.type", json!(["Ready", "Synced"])),
            (".status.conditions[?(@.type==\"Ready\")].status", json!(["True"])),
            (".status.conditions[?(@.type == 'Synced')].status", json!(["False"])),
            (".status.conditions[?(@.type!='Ready')].status", json!(["False"])),
            (".status.conditions[?(@.n>1)].type", json!(["Synced"])),
            (".status.conditions[?(@.n<=1)].type", json!(["Ready"])),
            (".status.conditions[?(@.sub)].type", json!(["Synced"])),
            (".status.conditions[?(@.sub.ok==true)].type", json!(["Synced"])),
            (".status.conditions[?(@.type==\"Absent\")].status", json!([])),
            ("..type", json!(["Ready", "Synced"])),
            (".missing.path", json!([])),
            (".spec['replicas','names']", json!([3, ["a", "b", "c"]])),
            (".", json!([sample()])),
        ];
        for (text, expected) in rows {
            let path = JsonPath::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(json!(path.find(&sample())), expected, "{text}");
            assert_eq!(path.first(&sample()), expected.get(0), "{text}");
        }
    }

    #[test]
    fn what_is_no_path_is_refused() {
        let long = ".a".repeat(3000);
        let deep = "[?(@.a".repeat(9);
        for text in
            [".spec[", ".spec[0", ".a[?(@.b]", ".a[?(@.b==)]", ".a['b", ".a[x]", "{.a", &long, &deep, ""]
        {
            assert!(JsonPath::parse(text).is_err(), "{text:?} must be refused");
        }
    }

    #[test]
    fn only_paths_of_fields_can_be_written_to() {
        let fields = |text| JsonPath::parse(text).unwrap().fields().map(|f| f.join("/"));
        assert_eq!(fields(".spec.replicas").as_deref(), Some("spec/replicas"));
        assert_eq!(fields(".spec['a.b']").as_deref(), Some("spec/a.b"));
        assert_eq!(fields(".spec[0]"), None);
    }
}
