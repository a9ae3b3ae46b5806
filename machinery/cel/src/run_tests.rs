use super::*;
use crate::convert::convert;
use crate::{Budget, EvalError, Program, Seen, Variable, VariableType};
use freehold_machinery::schema::{self, Schema};
use serde_json::{Value, json};
use std::sync::Arc;

/// What these come to depends on the order in which the entries of a map are visited.
const UNORDERED: [&str; 3] = [
    "{'a': 1, 'b': 2}.all(k, k == 'a')",
    "self.counts.transformMap(k, v, v / 0).size() == 1",
    "self.counts.transformMapEntry(k, v, {'same': v}).size() == 2",
];
/// Functions whose errors are told in other words.
const OTHER_WORDS: [&str; 2] = ["semver(", "int(self.short)"];

fn recorded() -> (Arc<Schema>, Vec<(&'static str, VariableType)>, Vec<Value>) {
    let source: Value = serde_json::from_str(include_str!("typing/recorded/schema.json")).unwrap();
    let schema = schema::parse::node(&source).unwrap();
    let own = VariableType::Schema(Seen::new(&schema, true).unwrap());
    let objects = serde_json::from_str(include_str!("typing/recorded/objects.json")).unwrap();
    (schema, vec![("self", own.clone()), ("oldSelf", own)], objects)
}

/// What cel-go found for each rule and object, and what that cost; see `tools/kubernetes/costs`.
#[test]
fn values_errors_and_costs_are_those_of_kube_apiserver() {
    let (schema, variables, objects) = recorded();
    let mut differ = Vec::new();
    for line in include_str!("typing/recorded/ran.jsonl").lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        let rule = row["rule"].as_str().unwrap();
        let program = Program::typed(rule, &variables).unwrap_or_else(|e| panic!("{rule}: {e}"));
        for (object, want) in objects.iter().zip(row["runs"].as_array().unwrap()) {
            let value = || Bound::Value(convert(object, Some(&schema)));
            let (result, cost) = program.observe(vec![("self", value()), ("oldSelf", value())]);
            let mut got = json!({ "cost": cost });
            match result {
                Ok(value) => got["value"] = value.into(),
                Err(EvalError::Failed(why)) => got["error"] = why.into(),
                Err(EvalError::NoOverload) => got["error"] = "no such overload".into(),
                Err(other) => got["error"] = format!("{other:?}").into(),
            }
            let is_left_out = UNORDERED.contains(&rule)
                || want["error"].as_str().is_some_and(|error| error.starts_with("internal error"));
            let mut want = want.clone();
            if OTHER_WORDS.iter().any(|part| rule.contains(part))
                && want["error"].is_string()
                && got["error"].is_string()
            {
                want["error"] = got["error"].clone();
            }
            if got != want && !is_left_out {
                differ.push(format!("{rule}\n  got  {got}\n  want {want}"));
            }
        }
    }
    assert!(differ.is_empty(), "{} differ:\n{}", differ.len(), differ.join("\n"));
}

#[test]
fn an_expression_is_refused_at_the_limit_and_not_before() {
    let text = |length: usize| json!({"s": "x".repeat(length)});
    let (_, variables, _) = recorded();
    // 2 for self.s, and a tenth of its characters each time.
    let source = "self.s + self.s == 'a'";
    let program = Program::typed(source, &variables).unwrap();
    let run = |length: usize| {
        let object = text(length);
        program.is_true(&[("self", Variable::Json(&object, None))], &Budget::default())
    };
    let cost = |length: u64| 2 + 2 + (2 * length).div_ceil(10) + 1;
    let fits = (1_000_000 - cost(0)) * 5;
    assert_eq!(cost(fits), 1_000_000);
    assert_eq!(run(usize::try_from(fits).unwrap()), Ok(false));
    assert_eq!(run(usize::try_from(fits + 1).unwrap()), Err(EvalError::CallLimit));
}

/// The budget of an object is spent by all of its rules together, to the last unit.
#[test]
fn a_budget_is_spent_to_the_last_unit() {
    let program = Program::compile("self.all(x, true)").unwrap();
    let items = |count: usize| json!(vec![0; count]);
    let budget = Budget::default();
    let run = |count: usize, budget: &Budget| {
        let object = items(count);
        program.is_true(&[("self", Variable::Json(&object, None))], budget)
    };
    // self, then for each item the result, whether it is false, and the result again; the result.
    let cost = |count: u64| 1 + 3 * count + 1;
    for _ in 0..10 {
        assert_eq!(run(333_332, &budget), Ok(true));
    }
    assert_eq!(budget.left(), 10_000_000 - 10 * cost(333_332));
    assert_eq!(run(6, &budget), Ok(true));
    assert_eq!(budget.left(), 0);
    assert!(budget.is_spent());
    assert_eq!(run(0, &budget), Err(EvalError::BudgetSpent));
}
