// structs prints what of Kubernetes' Go structs clients can see: the types that messages about wrong JSON name, and the
// internal structs that messages of validation print. The catalog reads it from apiserver/catalog/structs.json.
//
//	go run ./structs > ../../apiserver/catalog/structs.json
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"sort"
	"strings"

	extensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/install"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	registration "k8s.io/kube-aggregator/pkg/apis/apiregistration/install"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/controlplane"
)

// types: by definition and JSON name, the Go types that don't follow from the schema.
var types = map[string]map[string]string{}

// structs: fields of internal structs in order: name in messages, path in the served version, type, "omitempty".
var structs = map[string][][]string{}

// roots: the internal struct of each served kind.
var roots = map[string]string{}

func main() {
	extensions.Install(legacyscheme.Scheme)
	registration.Install(legacyscheme.Scheme)
	all := legacyscheme.Scheme.AllKnownTypes()
	for gvk, known := range all {
		if gvk.Version == runtime.APIVersionInternal || strings.HasSuffix(gvk.Kind, "List") || strings.Contains(gvk.Version, "alpha") || strings.Contains(gvk.Version, "beta") {
			continue
		}
		internal, ok := all[schema.GroupVersionKind{Group: gvk.Group, Version: runtime.APIVersionInternal, Kind: gvk.Kind}]
		if strings.HasPrefix(known.PkgPath(), "k8s.io/apimachinery") {
			continue
		}
		served(known, map[reflect.Type]bool{})
		if ok {
			roots[definition(known)] = pair(internal, known, nil)
		}
	}
	fmt.Printf("{\n\"types\": %s,\n\"roots\": %s,\n\"structs\": %s\n}\n", lines(types), lines(roots), lines(structs))
}

// definition is the name of a type among OpenAPI's definitions, without io.k8s.api in front.
func definition(t reflect.Type) string {
	path := strings.TrimPrefix(t.PkgPath(), "k8s.io/api/")
	switch {
	case strings.HasPrefix(path, "k8s.io/apimachinery/"), strings.HasPrefix(path, "k8s.io/apiextensions-apiserver/"), strings.HasPrefix(path, "k8s.io/kube-aggregator/"):
		path = "io.k8s." + strings.TrimPrefix(path, "k8s.io/")
	}
	return strings.ReplaceAll(path, "/", ".") + "." + t.Name()
}

func tag(f reflect.StructField) (name string, inline, omit bool) {
	parts := strings.Split(f.Tag.Get("json"), ",")
	for _, option := range parts[1:] {
		inline = inline || option == "inline"
		omit = omit || option == "omitempty" || option == "omitzero"
	}
	return parts[0], inline || (f.Anonymous && parts[0] == ""), omit
}

// served notes the types of fields that a schema doesn't tell.
func served(t reflect.Type, seen map[reflect.Type]bool) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		served(t.Elem(), seen)
		return
	case reflect.Struct:
	default:
		return
	}
	if seen[t] {
		return
	}
	seen[t] = true
	for _, f := range flat(t) {
		name, _, _ := tag(f)
		inner := f.Type
		for inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		served(inner, seen)
		if tells(inner) {
			name0 := definition(t)
			if types[name0] == nil {
				types[name0] = map[string]string{}
			}
			types[name0][name] = inner.String()
		}
	}
}

// tells: whether there is a named type in it that is neither a struct nor follows from the JSON type.
func tells(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Struct:
		return false
	case reflect.Pointer:
		return true
	case reflect.Slice:
		return t.Name() != "" || tells(t.Elem())
	case reflect.Map:
		return t.Name() != "" || tells(t.Key()) || tells(t.Elem())
	case reflect.String, reflect.Int32, reflect.Int64, reflect.Bool, reflect.Uint8:
		return t.PkgPath() != ""
	}
	return true
}

// flat lists the fields that stand in the struct's JSON.
func flat(t reflect.Type) []reflect.StructField {
	var out []reflect.StructField
	for i := range t.NumField() {
		f := t.Field(i)
		name, inline, _ := tag(f)
		switch {
		case name == "-" || !f.IsExported():
		case inline:
			inner := f.Type
			if inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			if inner.Kind() == reflect.Struct {
				out = append(out, flat(inner)...)
			}
		default:
			out = append(out, f)
		}
	}
	return out
}

// pair notes an internal struct beside its served form and gives its name.
func pair(internal, known, parent reflect.Type) string {
	name := internal.PkgPath()[strings.LastIndex(internal.PkgPath(), "/")+1:] + "." + internal.Name()
	if known.Kind() == reflect.Struct && strings.Contains(known.PkgPath(), "autoscaling/v1") {
		name += "@v1"
	}
	if _, done := structs[name]; done {
		return name
	}
	structs[name] = nil
	structs[name] = fields(internal, known, parent, "")
	return name
}

// fields of an internal struct, embedded ones in place, each with the path of the served field below prefix.
func fields(internal, known, parent reflect.Type, prefix string) [][]string {
	out := [][]string{}
	for i := range internal.NumField() {
		f := internal.Field(i)
		name, _, omit := tag(f)
		if !f.IsExported() || name == "-" {
			continue
		}
		other, path, found := counterpart(f.Name, known)
		if f.Anonymous && name == "" && f.Type.Kind() == reflect.Struct {
			if f.Type.Name() == "TypeMeta" {
				out = append(out, []string{"kind", "kind", "string", "omitempty"}, []string{"apiVersion", "apiVersion", "string", "omitempty"})
			} else if found {
				inner := other.Type
				if inner.Kind() == reflect.Pointer {
					inner = inner.Elem()
				}
				if path != "" {
					path += "."
				}
				out = append(out, fields(f.Type, inner, known, prefix+path)...)
			}
			continue
		}
		if name == "" {
			name = f.Name
		}
		var inner reflect.Type
		if found {
			inner = other.Type
			path = prefix + path
		} else if parent != nil {
			if other, path, found = counterpart(f.Name, parent); found {
				inner = other.Type
				path = "../" + path
			}
		}
		row := []string{name, path, describe(f.Type, inner, known)}
		if omit {
			row = append(row, "omitempty")
		}
		out = append(out, row)
	}
	return out
}

func counterpart(name string, known reflect.Type) (reflect.StructField, string, bool) {
	if known.Kind() != reflect.Struct {
		return reflect.StructField{}, "", false
	}
	f, ok := known.FieldByNameFunc(func(other string) bool { return strings.EqualFold(other, name) })
	if !ok {
		return f, "", false
	}
	path, inline, _ := tag(f)
	if inline {
		path = ""
	}
	return f, path, true
}

// describe a type: what its zero value prints as, and the struct that it is of.
func describe(t, known, parent reflect.Type) string {
	if known != nil && known.Kind() == reflect.Pointer && t.Kind() != reflect.Pointer {
		known = known.Elem()
	}
	switch t.String() {
	case "v1.Time", "v1.MicroTime":
		return "time"
	case "resource.Quantity":
		return "quantity"
	case "intstr.IntOrString":
		return "intorstring"
	}
	switch t.Kind() {
	case reflect.Pointer:
		if known != nil && known.Kind() == reflect.Pointer {
			known = known.Elem()
		}
		return "*" + describe(t.Elem(), known, parent)
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "bytes"
		}
		if known != nil && known.Kind() == reflect.Slice {
			return "[]" + describe(t.Elem(), known.Elem(), parent)
		}
		return "[]"
	case reflect.Map:
		if known != nil && known.Kind() == reflect.Map {
			return "map:" + describe(t.Elem(), known.Elem(), parent)
		}
		return "map:any"
	case reflect.Struct:
		if known == nil || known.Kind() != reflect.Struct {
			return "any"
		}
		return pair(t, known, parent)
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "bool"
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint8, reflect.Float64:
		return "int"
	}
	return "any"
}

func lines[V any](table map[string]V) string {
	names := make([]string, 0, len(table))
	for name := range table {
		names = append(names, name)
	}
	sort.Strings(names)
	out := make([]string, 0, len(names))
	for _, name := range names {
		line, err := json.Marshal(table[name])
		if err != nil {
			fmt.Fprintln(os.Stderr, name, err)
			os.Exit(1)
		}
		out = append(out, fmt.Sprintf("%q: %s", name, line))
	}
	return "{\n" + strings.Join(out, ",\n") + "\n}"
}
