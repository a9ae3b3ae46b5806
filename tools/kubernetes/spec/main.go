// spec prints the conformance tests of CEL (tests/simple of the Go module cel.dev/expr) as lines of JSON, for the tests of
// machinery/cel; tools/get writes them to .tools/cel-spec.jsonl.
//
//	go run ./spec > ../../.tools/cel-spec.jsonl
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"

	expr "cel.dev/expr"
	test "cel.dev/expr/conformance/test"
	_ "cel.dev/expr/conformance/proto2"
	_ "cel.dev/expr/conformance/proto3"
	"google.golang.org/protobuf/encoding/prototext"
)

type row struct {
	File      string         `json:"file"`
	Name      string         `json:"name"`
	Expr      string         `json:"expr"`
	Container string         `json:"container,omitempty"`
	Unchecked bool           `json:"unchecked,omitempty"`
	Typed     bool           `json:"typed,omitempty"`
	Bindings  map[string]any `json:"bindings,omitempty"`
	Value     any            `json:"value,omitempty"`
	Error     bool           `json:"error,omitempty"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	folder, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "cel.dev/expr").Output()
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(folder)), "tests/simple/testdata/*.textproto"))
	if err != nil {
		return err
	}
	sort.Strings(files)
	out := json.NewEncoder(os.Stdout)
	out.SetEscapeHTML(false)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		var tests test.SimpleTestFile
		if err := prototext.Unmarshal(text, &tests); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".textproto")
		for _, section := range tests.Section {
			for _, t := range section.Test {
				r := row{File: name, Name: section.Name + "/" + t.Name, Expr: t.Expr, Container: t.Container,
					Unchecked: t.DisableCheck, Typed: len(t.TypeEnv) > 0, Bindings: map[string]any{}}
				for variable, bound := range t.Bindings {
					r.Bindings[variable] = value(bound.GetValue())
				}
				switch {
				case t.GetEvalError() != nil || t.GetAnyEvalErrors() != nil:
					r.Error = true
				case t.GetValue() != nil:
					r.Value = value(t.GetValue())
				case t.GetTypedResult() != nil:
					r.Value = value(t.GetTypedResult().GetResult())
				case t.ResultMatcher == nil:
					r.Value = map[string]any{"bool": true}
				default:
					r.Value = map[string]any{"other": "unknown"}
				}
				if err := out.Encode(r); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// value writes a value as an object with one field, the name of its type.
func value(v *expr.Value) any {
	one := func(kind string, v any) any { return map[string]any{kind: v} }
	switch k := v.GetKind().(type) {
	case *expr.Value_NullValue:
		return one("null", true)
	case *expr.Value_BoolValue:
		return one("bool", k.BoolValue)
	case *expr.Value_Int64Value:
		return one("int", fmt.Sprint(k.Int64Value))
	case *expr.Value_Uint64Value:
		return one("uint", fmt.Sprint(k.Uint64Value))
	case *expr.Value_DoubleValue:
		return one("double", fmt.Sprint(k.DoubleValue))
	case *expr.Value_StringValue:
		return one("string", k.StringValue)
	case *expr.Value_BytesValue:
		return one("bytes", k.BytesValue)
	case *expr.Value_TypeValue:
		return one("type", k.TypeValue)
	case *expr.Value_ListValue:
		items := []any{}
		for _, item := range k.ListValue.Values {
			items = append(items, value(item))
		}
		return one("list", items)
	case *expr.Value_MapValue:
		entries := []any{}
		for _, entry := range k.MapValue.Entries {
			entries = append(entries, []any{value(entry.Key), value(entry.Value)})
		}
		return one("map", entries)
	}
	return one("other", "protobuf")
}
