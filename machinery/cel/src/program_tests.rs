use super::*;
use serde_json::json;

fn eval(source: &str, this: &Value) -> Result<bool, String> {
    let program = Program::compile(source).map_err(|e| e.0)?;
    let variables = [("self", Variable::Json(this, None))];
    program.is_true(&variables, &Budget::default()).map_err(|e| format!("{e:?}"))
}

#[test]
fn expressions_of_kubernetes_libraries_hold() {
    let this = json!({"l": [3, 1, 2], "s": "a,b", "m": {"x": 1, "y": 2}, "namespace": "ns", "a-b": 1, "o": {"l": [1]}, "e": []});
    for source in [
        // Values
        "self.__namespace__ == 'ns' && self.a__dash__b == 1",
        "self.l == [3, 1, 2] && [3, 1, 2] == self.l && self.l != [1]",
        "self.m == {'x': 1, 'y': 2} && {'x': 1, 'y': 2} == self.m",
        "self.o == {'l': [1]} && {'l': [1]} == self.o",
        "has(self.m.x) && !has(self.m.z)",
        "'x' in self.m && !('z' in self.m) && 3 in self.l",
        "self.l + [4] == [3, 1, 2, 4] && size(self.l) == 3 && self.l.size() == 3",
        "self.l.map(x, x * 2) == [6, 2, 4] && self.l.filter(x, x > 1) == [3, 2]",
        "self.l.exists(x, x == 2) && self.l.all(x, x > 0) && self.l.exists_one(x, x == 1)",
        "self.m.all(k, self.m[k] > 0)",
        "type(self.l) == list && type(1) == int",
        // Strings
        "self.s.split(',') == ['a', 'b'] && self.s.split(',').join('-') == 'a-b' && ['a'].join() == 'a'",
        "'abc'.replace('b', 'x') == 'axc' && 'aaa'.replace('a', 'b', 2) == 'bba'",
        "'Abc'.lowerAscii() == 'abc' && ' a '.trim() == 'a' && 'abcd'.substring(1, 3) == 'bc'",
        "'abc'.indexOf('c') == 2 && 'abc'.charAt(1) == 'b' && 'abca'.lastIndexOf('a') == 3",
        "'%s is %d'.format(['a', 1]) == 'a is 1'",
        "'abc'.matches('^[a-c]+$') && matches('abc', 'b') && !'abc'.matches('^\\\\d$')",
        "'abc 123'.find('[0-9]+') == '123' && '1 2 3'.findAll('[0-9]') == ['1', '2', '3'] && '1 2 3'.findAll('[0-9]', 1) == ['1']",
        // Lists
        "self.l.sum() == 6 && self.l.min() == 1 && self.l.max() == 3 && !self.l.isSorted() && [1, 2].isSorted()",
        "self.l.indexOf(1) == 1 && [1, 1].lastIndexOf(1) == 1 && [1].indexOf(2) == -1 && self.e.sum() == 0",
        "sets.contains([1, 2], [1]) && sets.equivalent([1, 2, 2], [2, 1]) && sets.intersects([1], [1, 2])",
        // Comprehensions of two variables
        "self.l.all(i, v, i < 3 && v > 0) && self.m.exists(k, v, k == 'y' && v == 2) && self.l.existsOne(i, v, v == 3 && i == 0)",
        "self.l.transformList(i, v, i + v) == [3, 2, 4] && self.l.transformList(i, v, v > 1, i) == [0, 2]",
        "self.m.transformMap(k, v, v + 1) == {'x': 2, 'y': 3} && self.m.transformMap(k, v, k == 'x', v) == {'x': 1}",
        // Optionals
        "self.?m.?x.orValue(0) == 1 && self.?m.?z.orValue(7) == 7 && !self.?nope.hasValue()",
        "optional.of(1).value() == 1 && optional.none().or(optional.of(2)).value() == 2",
        // Quantities
        "quantity('1Gi').isGreaterThan(quantity('1G')) && quantity('50k').add(quantity('20k')) == quantity('70k')",
        "quantity('50k').sub(20000) == quantity('30k') && isQuantity('1.3Gi') && !isQuantity('200K')",
        "quantity('50k').asInteger() == 50000 && quantity('500m').asApproximateFloat() == 0.5 && sign(quantity('-1')) == -1",
        // Addresses
        "ip('127.0.0.1').isLoopback() && ip('::1').family() == 6 && isIP('::1') && !isIP('::ffff:1.2.3.4') && !isIP('127.0.0.256')",
        "ip.isCanonical('2001:db8::abcd') && !ip.isCanonical('2001:DB8::ABCD') && string(ip('::1')) == '::1'",
        "cidr('192.168.0.0/16').containsIP('192.168.1.1') && cidr('192.168.0.0/16').containsCIDR(cidr('192.168.10.0/24'))",
        "cidr('192.168.0.1/24').masked() == cidr('192.168.0.0/24') && cidr('::1/128').prefixLength() == 128 && cidr('10.0.0.1/8').ip() == ip('10.0.0.1')",
        "!isCIDR('192.168.0.0/33') && isCIDR('::1/128')",
        // URLs
        "url('https://u:p@example.com:80/a?k=1&k=2').getHost() == 'example.com:80' && url('https://[::1]:80/').getHostname() == '::1'",
        "url('https://example.com/path with spaces/').getEscapedPath() == '/path%20with%20spaces/' && url('https://e/?k=1&k=2').getQuery() == {'k': ['1', '2']}",
        "isURL('/absolute-path') && !isURL('../relative-path') && !isURL('https://a:b:c/') && url('/p').getScheme() == ''",
        // Formats and versions
        "!format.dns1123Label().validate('a-b').hasValue() && format.dns1123Label().validate('A').value().size() == 1",
        "format.named('uuid').hasValue() && !format.named('nope').hasValue()",
        "semver('1.2.3').isLessThan(semver('1.10.0')) && semver('v1.0', true).major() == 1 && !isSemver('v1.0') && semver('1.0.0-a').compareTo(semver('1.0.0')) == -1",
        // Time
        "duration('90m') > duration('1h') && timestamp('2026-01-02T00:00:00Z') < timestamp('2026-01-03T00:00:00Z')",
        "timestamp('2026-01-02T03:04:05Z').getHours() == 3 && duration('1h').getMinutes() == 60",
        // Arithmetic
        "1 + 2 * 3 == 7 && 7 / 2 == 3 && -7 % 2 == -1 && 1.5 + 1.5 == 3.0 && 1 < 2.5 && 'a' + 'b' == 'ab'",
    ] {
        assert_eq!(eval(source, &this), Ok(true), "{source}");
    }
}

#[test]
fn what_is_not_an_expression_is_refused() {
    for (source, want) in [
        ("self.x ==", "compilation failed: ERROR: <input>:1:"),
        (
            "nope(self)",
            "compilation failed: ERROR: <input>:1:5: undeclared reference to 'nope' (in container '')\n | nope(self)\n | ....^",
        ),
        (&"(".repeat(5000), "compilation failed: "),
        (&vec!["1"; 5000].join("+"), "compilation failed: "),
        (&"x".repeat(20_000), "compilation failed: "),
        (&"[".repeat(16_000), "compilation failed: "),
        (&"-".repeat(16_000), "compilation failed: "),
        (&"!(".repeat(8_000), "compilation failed: "),
        (&vec!["a"; 8_000].join("."), "compilation failed: "),
        (&vec!["a"; 5_000].join("?b:"), "compilation failed: "),
    ] {
        let error = Program::compile(source).unwrap_err().0;
        assert!(error.starts_with(want), "{}: {error}", &source[..source.len().min(40)]);
    }
}

#[test]
fn names_that_nothing_declares_are_found() {
    let check =
        |source: &str| Program::compile(source).unwrap().check(&[("self", None)], true).err().map(|e| e.0);
    assert_eq!(check("self.a.all(x, x.b == self.c)"), None);
    let error = check("self.a == other").unwrap();
    assert!(
        error.starts_with(
            "compilation failed: ERROR: <input>:1:11: undeclared reference to 'other' (in container '')"
        ),
        "{error}"
    );
}

/// cel-go undercounts values of unknown type; the excess is limited here.
#[test]
fn an_expression_that_costs_too_much_is_cut_off() {
    let items: Vec<i64> = (0..400).collect();
    let this = json!({"l": items, "s": "x".repeat(100_000), "many": vec!["y"; 1000]});
    for source in [
        "self.l.all(a, self.l.all(b, self.l.all(c, a + b + c >= 0)))",
        "self.l.map(x, self.s + self.s).size() > 0",
        "self.l.map(x, self.s.replace('x', self.s)).size() > 0",
        "self.l.map(x, self.many.join(self.s)).size() > 0",
        "self.l.map(x, self.s.matches('(x+x+)+y')).size() > 0",
        "lists.range(1000000).map(x, lists.range(1000000)).size() > 0",
    ] {
        assert_eq!(eval(source, &this), Err("CallLimit".to_owned()), "{source}");
    }
}

#[test]
fn the_budget_of_a_request_is_shared() {
    let this = json!((0..200).collect::<Vec<i64>>());
    let program = Program::compile("self.all(a, self.all(b, a + b >= 0))").unwrap();
    let budget = Budget::default();
    let mut results = (0..200).map(|_| program.is_true(&[("self", Variable::Json(&this, None))], &budget));
    assert_eq!(results.next(), Some(Ok(true)));
    assert!(budget.left() < 9_900_000);
    assert!(results.any(|r| r == Err(EvalError::BudgetSpent)));
}

#[test]
fn equal_expressions_are_compiled_once() {
    let one = Program::compile("self.once == 1").unwrap();
    assert!(Arc::ptr_eq(&one, &Program::compile("self.once == 1").unwrap()));
}

#[test]
fn failures_have_the_words_of_cel_go() {
    let this = json!({"l": [1], "s": "a"});
    for (source, want) in [
        ("self.nope == 1", "Failed(\"no such key: nope\")"),
        ("self.l[5] == 1", "Failed(\"index out of bounds: 5\")"),
        ("1 / 0 == 1", "Failed(\"division by zero\")"),
        ("9223372036854775807 + 1 == 0", "Failed(\"integer overflow\")"),
        ("self.s + 1 == 'a1'", "NoOverload"),
        ("[].min() == 1", "Failed(\"min called on empty list\")"),
    ] {
        assert_eq!(eval(source, &this), Err(want.to_owned()), "{source}");
    }
}

#[test]
fn an_expression_may_be_as_deep_as_is_allowed() {
    let sum = vec!["1"; MAX_DEPTH - 2].join("+");
    assert_eq!(eval(&format!("{sum} == {}", MAX_DEPTH - 2), &json!({})), Ok(true));
}

#[test]
fn a_value_of_one_expression_is_read_by_another_and_as_json() {
    let value = |source: &str, variables: &[(&str, Variable<'_>)]| {
        Program::mutation(source, &[]).unwrap().value(variables, &Budget::default()).unwrap()
    };
    let object = json!({"l": [1, 2], "n": {"x-y": "z"}});
    let this = [("self", Variable::Json(&object, None))];
    for (source, expected) in [
        ("self.l.map(x, x + 1)", json!([2, 3])),
        ("self.n", json!({"x-y": "z"})),
        ("self", object.clone()),
        (
            "Object{spec: Object.spec{replicas: self.l[0], __namespace__: 'a'}}",
            json!({"spec": {"replicas": 1, "namespace": "a"}}),
        ),
        (
            "[JSONPatch{op: 'test', path: '/a/' + jsonpatch.escapeKey('b.io/c~d')}]",
            json!([{"op": "test", "path": "/a/b.io~1c~0d"}]),
        ),
        ("[JSONPatch{op: 'remove', path: '/a'}]", json!([{"op": "remove", "path": "/a"}])),
        (
            "{'a': 1.5, 'b': null, 'c': true, 'd': duration('1s')}",
            json!({"a": 1.5, "b": null, "c": true, "d": "1s"}),
        ),
    ] {
        assert_eq!(value(source, &this).to_json(), Some(expected), "{source}");
    }
    let fields =
        [("size".to_owned(), value("quantity('1Gi')", &[])), ("list".to_owned(), value("[3, 4]", &[]))];
    let program = Program::compile("vars.size.isGreaterThan(quantity('1M')) && vars.list[1] == 4").unwrap();
    assert_eq!(program.fields_of("vars"), ["list", "size"]);
    let read = |name: &str| {
        let found = fields.iter().find(|(own, _)| own == name);
        found.map(|(_, value)| value.clone()).ok_or_else(|| format!("no {name}"))
    };
    let result = program.value(&[("vars", Variable::Lazy(&read))], &Budget::default()).unwrap();
    assert_eq!(result.as_bool(), Some(true));
    assert!(Program::mutation("Other{a: 1}", &[]).is_err());
}

/// Each function that the checker declares is there when an expression runs, apart from the authorizer's, which need one.
#[test]
fn every_declared_function_can_be_called() {
    let value = |ty: &str| match ty.split('(').next().unwrap() {
        "int" => "1",
        "uint" => "1u",
        "double" => "1.0",
        "bool" => "true",
        "string" => "'1'",
        "bytes" => "b'1'",
        "duration" => "duration('1s')",
        "timestamp" => "timestamp('2020-01-01T00:00:00Z')",
        "net.IP" => "ip('1.1.1.1')",
        "net.CIDR" => "cidr('1.1.1.0/24')",
        "kubernetes.Quantity" => "quantity('1')",
        "kubernetes.Semver" => "semver('1.0.0')",
        "kubernetes.URL" => "url('https://a.b')",
        "kubernetes.NamedFormat" => "format.uuid()",
        "list" if ty.contains("bool") => "[true]",
        "list" if ty.contains("string") => "['1']",
        "list" if ty.contains("bytes") => "[b'1']",
        "list" if ty.contains("duration") => "[duration('1s')]",
        "list" if ty.contains("timestamp") => "[timestamp('2020-01-01T00:00:00Z')]",
        "list" if ty.contains("uint") => "[1u]",
        "list" if ty.contains("double") => "[1.0]",
        "list" if ty.contains("optional") => "[optional.of(1)]",
        "list" if ty[4..].contains("list") => "[[1]]",
        "list" => "[1]",
        "map" => "{1: 1}",
        "optional_type" if ty.contains("list") => "optional.of([1])",
        "optional_type" if ty.contains("map") => "optional.of({1: 1})",
        "optional_type" => "optional.of(1)",
        _ => "1",
    };
    let mut missing = Vec::new();
    for (name, overloads) in crate::typing::Declarations::all().functions() {
        let is_word = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '.');
        if !is_word || name == "in" {
            continue;
        }
        for overload in
            overloads.iter().filter(|o| !o.args.iter().any(|a| a.to_string().contains("authorization")))
        {
            let args: Vec<&str> = overload.args.iter().map(|a| value(&a.to_string())).collect();
            // A text that is no address has no overload.
            let args = if name == "containsIP" { vec![args[0], "'1.1.1.1'"] } else { args };
            let call = match args.split_first() {
                Some((target, rest)) if overload.is_member => format!("{target}.{name}({})", rest.join(", ")),
                _ => format!("{name}({})", args.join(", ")),
            };
            let program = match Program::compile(&call) {
                Ok(program) => program,
                Err(e) => {
                    missing.push(format!("{call}: {e}"));
                    continue;
                }
            };
            match program.value(&[], &Budget::default()) {
                Err(EvalError::NoOverload) => missing.push(call),
                Err(EvalError::Failed(e)) if e.contains("no such") || e.contains("ndeclared") => {
                    missing.push(format!("{call}: {e}"));
                }
                _ => {}
            }
        }
    }
    missing.sort();
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}
