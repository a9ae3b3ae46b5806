//! Validation of match conditions when a configuration is written.

use crate::policy::{Expressions, Gives};
use freehold_machinery::{
    Value, names,
    status::{FieldError, FieldErrorKind},
};
use std::collections::BTreeSet;

/// Conditions that a webhook may have.
const MAX: usize = 64;

/// What is wrong about the `matchConditions` of a webhook or policy, which stand at a path; `params`: whether they can name
/// parameters.
pub fn check_conditions(conditions: &Value, path: &str, params: bool) -> Vec<FieldError> {
    let expressions = Expressions::of_conditions(params);
    let mut errors = Vec::new();
    let list = conditions.as_array().map(Vec::as_slice).unwrap_or_default();
    if list.len() > MAX {
        let detail = format!("must have at most {MAX} items");
        let error = FieldError::new(FieldErrorKind::TooMany, path, detail);
        errors.push(FieldError { value: Some(list.len().into()), ..error });
    }
    let mut seen = BTreeSet::new();
    for (index, condition) in list.iter().enumerate() {
        let at = |field: &str| format!("{path}[{index}].{field}");
        let text = |field: &str| condition[field].as_str().unwrap_or_default();
        match text("expression").trim() {
            "" => errors.push(FieldError::required(at("expression"), "")),
            source => {
                let wrong = expressions.wrong(source, Gives::Truth);
                errors.extend(wrong.map(|why| FieldError::invalid(at("expression"), source.into(), why)));
            }
        }
        match text("name") {
            "" => errors.push(FieldError::required(at("name"), "")),
            name => {
                let wrong = names::qualified_name(name).into_iter();
                errors.extend(wrong.map(|why| FieldError::invalid(at("name"), name.into(), why)));
                if !seen.insert(name) {
                    let duplicate = FieldError::new(FieldErrorKind::Duplicate, at("name"), "");
                    errors.push(FieldError { value: Some(name.into()), ..duplicate });
                }
            }
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_condition_that_does_not_compile_is_refused() {
        let conditions = json!([
            {"name": "fine", "expression": "object.metadata.name == 'a'"},
            {"name": "fine", "expression": "nothing.there"},
            {"name": "", "expression": ""},
            {"name": "syntax", "expression": "object.metadata +"},
        ]);
        let said: Vec<String> =
            check_conditions(&conditions, "c", false).iter().map(ToString::to_string).collect();
        let wanted = [
            "c[1].expression: Invalid value",
            "c[1].name: Duplicate value: \"fine\"",
            "c[2].expression: Required value",
            "c[2].name: Required value",
            "c[3].expression: Invalid value",
        ];
        assert_eq!(said.len(), wanted.len(), "{said:?}");
        for (said, wanted) in said.iter().zip(wanted) {
            assert!(said.starts_with(wanted), "{said}");
        }
    }
}
