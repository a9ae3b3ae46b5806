//! Field and label selectors of a request, for authorizers that decide by them (KEP-4601). RBAC does not.

use freehold_machinery::{
    Value,
    selector::{Fields, LabelRequirement, Labels, Operator},
};
use serde_json::json;

/// The selectors of a list, a watch or a deletion of many.
#[derive(Clone, Copy, Debug, Default)]
pub struct Selectors<'a> {
    /// By fields.
    pub fields: Selector<'a>,
    /// By labels.
    pub labels: Selector<'a>,
}

/// A selector as it was sent. What of it is not understood narrows nothing.
#[derive(Clone, Copy, Debug)]
pub enum Selector<'a> {
    /// In one text; empty for none.
    Text(&'a str),
    /// The requirements of a SubjectAccessReview.
    Requirements(&'a [Value]),
}

impl Default for Selector<'_> {
    fn default() -> Self {
        Self::Text("")
    }
}

impl<'a> Selector<'a> {
    /// Reads a review's `fieldSelector` or `labelSelector`.
    pub fn of_review(selector: &'a Value) -> Self {
        match selector["requirements"].as_array() {
            Some(requirements) if !requirements.is_empty() => Self::Requirements(requirements),
            _ => Self::Text(selector["rawSelector"].as_str().unwrap_or_default()),
        }
    }

    /// As requirements on fields (`key`, `operator`, `values`).
    pub fn of_fields(self) -> Vec<Value> {
        match self {
            Self::Text(text) => {
                let parsed = Fields::parse(text).unwrap_or_default();
                let shown = |r: &freehold_machinery::selector::FieldRequirement| {
                    let operator = if r.negated { "NotIn" } else { "In" };
                    json!({"key": r.field, "operator": operator, "values": [r.value]})
                };
                parsed.requirements().iter().map(shown).collect()
            }
            Self::Requirements(listed) => {
                let known = |r: &&Value| {
                    matches!(r["operator"].as_str(), Some("In" | "NotIn"))
                        && r["values"].as_array().is_some_and(|values| values.len() == 1)
                };
                listed.iter().filter(known).map(plain).collect()
            }
        }
    }

    /// As requirements on labels, likewise.
    pub fn of_labels(self) -> Vec<Value> {
        match self {
            Self::Text(text) => {
                let parsed = Labels::parse(text).unwrap_or_default();
                parsed.requirements().iter().filter_map(of_label).collect()
            }
            Self::Requirements(listed) => listed.iter().filter_map(read_label).collect(),
        }
    }
}

fn plain(requirement: &Value) -> Value {
    json!({"key": requirement["key"], "operator": requirement["operator"], "values": requirement["values"]})
}

fn read_label(requirement: &Value) -> Option<Value> {
    let operator = match requirement["operator"].as_str()? {
        "In" => Operator::In,
        "NotIn" => Operator::NotIn,
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        _ => return None,
    };
    let values = requirement["values"].as_array().into_iter().flatten();
    let values = values.filter_map(Value::as_str).map(str::to_owned).collect();
    of_label(&LabelRequirement::new(requirement["key"].as_str()?, operator, values).ok()?)
}

/// `None` for comparisons by order, which reviews do not know.
fn of_label(requirement: &LabelRequirement) -> Option<Value> {
    let operator = match requirement.operator {
        Operator::Equals | Operator::DoubleEquals | Operator::In => "In",
        Operator::NotEquals | Operator::NotIn => "NotIn",
        Operator::Exists => "Exists",
        Operator::DoesNotExist => "DoesNotExist",
        Operator::GreaterThan | Operator::LessThan => return None,
    };
    let mut shown = json!({"key": requirement.key, "operator": operator});
    if !requirement.values.is_empty() {
        shown["values"] = json!(requirement.values);
    }
    Some(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_are_told_as_requirements_and_what_is_not_understood_is_left_out() {
        let text = |text| Selector::Text(text);
        assert_eq!(
            json!(text("spec.nodeName=a,metadata.name!=b").of_fields()),
            json!([
                {"key": "metadata.name", "operator": "NotIn", "values": ["b"]},
                {"key": "spec.nodeName", "operator": "In", "values": ["a"]},
            ])
        );
        let labels = json!(text("a=b,c in (d,e),f,!g,h>1").of_labels());
        let operators: Vec<_> = labels.as_array().unwrap().iter().map(|r| r["operator"].clone()).collect();
        assert_eq!(json!(operators), json!(["In", "In", "Exists", "DoesNotExist"]));
        assert!(text("a").of_fields().is_empty() && text("a in").of_labels().is_empty());
        let listed = [
            json!({"key": "a", "operator": "In", "values": ["b"]}),
            json!({"key": "a", "operator": "In", "values": ["b", "c"]}),
            json!({"key": "a", "operator": "Newer"}),
        ];
        let review = json!({"requirements": listed});
        assert_eq!(Selector::of_review(&review).of_fields().len(), 1);
        assert_eq!(Selector::of_review(&review).of_labels().len(), 2);
    }
}
