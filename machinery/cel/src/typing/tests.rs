//! Tests: the checker's errors equal those of kube-apiserver 1.36; see also the recorded answers in
//! `tests/differential`.

use super::*;
use crate::{CompileError, rules::compile};
use freehold_machinery::schema;
use serde_json::json;

fn complaints(source: &str) -> String {
    let schema = schema::parse::node(&json!({"type": "object", "required": ["n"], "properties": {
        "n": {"type": "integer"}, "s": {"type": "string", "maxLength": 10}, "f": {"type": "number"},
        "ss": {"type": "array", "items": {"type": "string"}},
        "m": {"type": "object", "additionalProperties": {"type": "integer"}},
        "o": {"type": "object", "properties": {"namespace": {"type": "string"}, "x-y": {"type": "boolean"}}},
        "any": {"x-kubernetes-preserve-unknown-fields": true}, "ios": {"x-kubernetes-int-or-string": true},
        "d": {"type": "string", "format": "duration"},
    }}))
    .unwrap();
    let seen = Seen::new(&schema, true).unwrap().named("selfType");
    match type_of(source, &[("self", VariableType::Schema(seen))]) {
        Ok(ty) => ty.to_string(),
        Err(CompileError(message)) => message,
    }
}

#[test]
fn types_are_found_out() {
    for (source, want) in [
        ("self.n + 1", "int"),
        ("self.ss.map(s, s.size())", "list(int)"),
        ("self.m.all(k, self.m[k] > 1)", "bool"),
        ("self.ios", "dyn"),
        ("type(self.ios) == string", "bool"),
        ("self.metadata.name + self.o.__namespace__", "string"),
        ("self.o.x__dash__y", "bool"),
        ("has(self.s) ? [self.s] : []", "list(string)"),
        ("self.?s.orValue('x')", "string"),
        ("self.m[?'a'].hasValue()", "bool"),
        ("self.ss.transformMap(i, v, v)", "map(int, string)"),
        ("self.ss.transformMapEntry(i, v, {v: i})", "map(string, int)"),
        ("self.?s.optMap(v, v.size())", "optional_type(int)"),
        ("self.ss.sortBy(x, x.size())", "list(string)"),
        ("duration('1h') < self.d", "bool"),
        ("quantity('1').add(2).isLessThan(quantity('3'))", "bool"),
        ("ip('1.1.1.1').family()", "int"),
        ("1 < 2.0 && 1u < 2", "bool"),
        ("[1, 2].sum()", "int"),
        ("'a %d'.format([1])", "string"),
        ("sets.contains(self.ss, ['a'])", "bool"),
        ("optional.none()", "optional_type(dyn)"),
        ("{'a': 1}.a", "int"),
    ] {
        assert_eq!(complaints(source), want, "{source}");
    }
}

#[test]
fn what_is_wrong_is_said_in_the_words_of_cel_go() {
    for (source, want) in [
        ("self.x", "compilation failed: ERROR: <input>:1:5: undefined field 'x'\n | self.x\n | ....^"),
        (
            "self.n + 'a' == foo",
            "compilation failed: ERROR: <input>:1:8: found no matching overload for '_+_' applied to '(int, string)'\n | self.n + 'a' == foo\n | .......^\nERROR: <input>:1:17: undeclared reference to 'foo' (in container '')\n | self.n + 'a' == foo\n | ................^",
        ),
        (
            "self.any.x",
            "compilation failed: ERROR: <input>:1:5: undefined field 'any'\n | self.any.x\n | ....^",
        ),
        (
            "self.n.all(x, x)",
            "compilation failed: ERROR: <input>:1:5: expression of type 'int' cannot be range of a comprehension (must be list, map, or dynamic)\n | self.n.all(x, x)\n | ....^",
        ),
        (
            "self.s.foo()",
            "compilation failed: ERROR: <input>:1:11: undeclared reference to 'foo' (in container '')\n | self.s.foo()\n | ..........^",
        ),
        (
            "self.s.startsWith(1)",
            "compilation failed: ERROR: <input>:1:18: found no matching overload for 'startsWith' applied to 'string.(int)'\n | self.s.startsWith(1)\n | .................^",
        ),
        (
            "self.n && true",
            "compilation failed: ERROR: <input>:1:5: expected type 'bool' but found 'int'\n | self.n && true\n | ....^",
        ),
        (
            "[1, 'a']",
            "compilation failed: ERROR: <input>:1:5: expected type 'int' but found 'string'\n | [1, 'a']\n | ....^",
        ),
        (
            "duration('x') == self.d",
            "compilation failed: ERROR: <input>:1:10: invalid duration argument\n | duration('x') == self.d\n | .........^",
        ),
        (
            "self.s.matches('(')",
            "compilation failed: ERROR: <input>:1:16: invalid matches argument\n | self.s.matches('(')\n | ...............^",
        ),
        (
            "math.greatest(1, 2)",
            "compilation failed: ERROR: <input>:1:1: undeclared reference to 'math' (in container '')\n | math.greatest(1, 2)\n | ^\nERROR: <input>:1:14: undeclared reference to 'greatest' (in container '')\n | math.greatest(1, 2)\n | .............^",
        ),
        (
            "'é' == self.x",
            "compilation failed: ERROR: <input>:1:12: undefined field 'x'\n | 'é' == self.x\n | .．.........^",
        ),
    ] {
        assert_eq!(complaints(source), want, "{source}");
    }
}

/// What kube-apiserver 1.36 answered to each rule in `recorded/rules.txt` over `recorded/schema.json`; see
/// `tools/kubernetes/rules`.
#[test]
fn errors_and_estimated_costs_are_those_that_kube_apiserver_gave() {
    let schema: serde_json::Value = serde_json::from_str(include_str!("recorded/schema.json")).unwrap();
    let seen = Seen::new(&schema::parse::node(&schema).unwrap(), true).unwrap().named("selfType");
    let own = VariableType::Schema(seen.clone());
    let variables = [("self", own.clone()), ("oldSelf", own)];
    let mut differ = Vec::new();
    for line in include_str!("recorded/answers.jsonl").lines() {
        let answer: serde_json::Value = serde_json::from_str(line).unwrap();
        let rule = answer["rule"].as_str().unwrap();
        let got = compile(rule, &variables, &seen.decl, &Type::Bool).map(|compiled| compiled.cost);
        let want = match answer["error"].as_str() {
            Some(error) => Err(error.to_owned()),
            None => Ok(answer["cost"].as_u64().unwrap()),
        };
        if got != want {
            differ.push(format!("{rule}\n  got  {got:?}\n  want {want:?}"));
        }
    }
    assert!(differ.is_empty(), "{} differ:\n{}", differ.len(), differ.join("\n"));
}
