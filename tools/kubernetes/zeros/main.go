// zeros prints what each struct of Kubernetes' built-in kinds always has in its JSON, though nobody set it: the fields
// that are written with their zero value. The catalog reads it from apiserver/catalog/zeros.json.
//
//	go run ./zeros > ../../apiserver/catalog/zeros.json
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"sort"
	"strings"

	"k8s.io/client-go/kubernetes/scheme"
)

const api = "k8s.io/api/"

func main() {
	seen := map[reflect.Type]bool{}
	found := map[string]string{}
	for _, known := range scheme.Scheme.AllKnownTypes() {
		visit(known, seen, found)
	}
	names := make([]string, 0, len(found))
	for name := range found {
		names = append(names, name)
	}
	sort.Strings(names)
	lines := make([]string, 0, len(names))
	for _, name := range names {
		lines = append(lines, fmt.Sprintf("  %q: %s", name, found[name]))
	}
	fmt.Printf("{\n%s\n}\n", strings.Join(lines, ",\n"))
}

func visit(t reflect.Type, seen map[reflect.Type]bool, found map[string]string) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		visit(t.Elem(), seen, found)
		return
	case reflect.Struct:
	default:
		return
	}
	if seen[t] {
		return
	}
	seen[t] = true
	for i := range t.NumField() {
		visit(t.Field(i).Type, seen, found)
	}
	if !strings.HasPrefix(t.PkgPath(), api) {
		return
	}
	text, err := json.Marshal(reflect.New(t).Interface())
	if err != nil {
		fmt.Fprintln(os.Stderr, t, err)
		os.Exit(1)
	}
	var fields map[string]any
	if json.Unmarshal(text, &fields) != nil || len(fields) == 0 {
		return
	}
	for name, value := range fields {
		if _, nested := value.(map[string]any); nested {
			// What the inner struct always has is told by its own line.
			fields[name] = map[string]any{}
		}
	}
	line, _ := json.Marshal(fields)
	name := strings.ReplaceAll(strings.TrimPrefix(t.PkgPath(), api), "/", ".") + "." + t.Name()
	found[name] = string(line)
}
