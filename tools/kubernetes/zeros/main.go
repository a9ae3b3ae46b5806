// zeros prints what each struct of Kubernetes' built-in kinds always has in its JSON, though nobody set it: the fields
// that are written with their zero value. The catalog reads it from apiserver/catalog/zeros.json. With `pointers` it
// prints which strings, numbers and flags of a struct are pointers: they are told from their zero value.
//
//	go run ./zeros > ../../apiserver/catalog/zeros.json
//	go run ./zeros pointers > ../../apiserver/catalog/pointers.json
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"sort"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

const api = "k8s.io/api/"

// Packages of which all structs are told, those that the scheme does not know among them.
var others = []any{apiregistration.APIService{}, apiextensions.CustomResourceDefinition{}}

func main() {
	seen := map[reflect.Type]bool{}
	found := map[string]string{}
	for _, known := range scheme.Scheme.AllKnownTypes() {
		visit(known, seen, found)
	}
	for _, other := range others {
		visit(reflect.TypeOf(other), seen, found)
	}
	if len(os.Args) > 1 {
		found = map[string]string{}
		for t := range seen {
			line, _ := json.Marshal(pointers(t))
			found[name(t)] = string(line)
		}
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
	if !isTold(t) {
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
	found[name(t)] = string(line)
}

// isTold says whether a struct is one of a built-in kind's own: metadata has none that is always there.
func isTold(t reflect.Type) bool {
	of := func(other any) bool { return t.PkgPath() == reflect.TypeOf(other).PkgPath() }
	return strings.HasPrefix(t.PkgPath(), api) || t == reflect.TypeFor[meta.Condition]() || slices.ContainsFunc(others, of)
}

// name is the end of what OpenAPI calls a struct.
func name(t reflect.Type) string {
	path := strings.TrimPrefix(t.PkgPath(), api)
	if at := strings.Index(path, "pkg/apis/"); at >= 0 {
		path = path[at+len("pkg/apis/"):]
	}
	return strings.ReplaceAll(path, "/", ".") + "." + t.Name()
}

// pointers gives the fields of a struct, with those of embedded ones, that point to a string, number or flag.
func pointers(t reflect.Type) []string {
	found := []string{}
	for i := range t.NumField() {
		field := t.Field(i)
		tag := strings.Split(field.Tag.Get("json"), ",")
		if field.Anonymous && tag[0] == "" {
			if field.Type.Kind() == reflect.Struct {
				found = append(found, pointers(field.Type)...)
			}
			continue
		}
		if field.Type.Kind() == reflect.Pointer && field.Type.Elem().Kind() < reflect.Array ||
			field.Type.Kind() == reflect.Pointer && field.Type.Elem().Kind() == reflect.String {
			found = append(found, tag[0])
		}
	}
	sort.Strings(found)
	return found
}
