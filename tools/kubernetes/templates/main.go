// templates prints what of Go's PodTemplateSpec its hash depends on: each struct's fields in order, with names in JSON and
// types. The controller manager reads it from controllers/workloads/src/template/structs.json.
//
//	go run ./templates > ../../controllers/workloads/src/template/structs.json
//
// With templates in JSON on its input, one a line, it prints their hashes, each for no collision and for one:
//
//	go run ./templates hashes < ../../controllers/workloads/src/template/templates.jsonl
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"sort"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/controller"
)

var structs = map[string][][]string{}

var seen = map[reflect.Type]bool{}

func main() {
	if len(os.Args) > 1 {
		hashes()
		return
	}
	note(reflect.TypeOf(v1.PodTemplateSpec{}))
	names := make([]string, 0, len(structs))
	for name := range structs {
		names = append(names, name)
	}
	sort.Strings(names)
	lines := make([]string, 0, len(names))
	for _, name := range names {
		line, err := json.Marshal(structs[name])
		check(err)
		lines = append(lines, fmt.Sprintf("%q: %s", name, line))
	}
	fmt.Printf("{\n%s\n}\n", strings.Join(lines, ",\n"))
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func hashes() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	one := int32(1)
	for lines.Scan() {
		var template v1.PodTemplateSpec
		check(json.Unmarshal(lines.Bytes(), &template))
		fmt.Println(controller.ComputeHash(&template, nil), controller.ComputeHash(&template, &one))
	}
	check(lines.Err())
}

// opaque are structs whose JSON is not that of their fields.
var opaque = map[string]bool{"v1.Time": true, "resource.Quantity": true, "intstr.IntOrString": true, "v1.FieldsV1": true}

// note lists a struct's fields: name, name in JSON (empty where they stand in the struct itself), type, and the kind of a
// value that is no struct.
func note(t reflect.Type) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || seen[t] || opaque[t.String()] {
		return
	}
	seen[t] = true
	if _, taken := structs[t.String()]; taken {
		check(fmt.Errorf("two structs are named %s", t))
	}
	rows := [][]string{}
	for i := range t.NumField() {
		f := t.Field(i)
		name := strings.Split(f.Tag.Get("json"), ",")[0]
		rows = append(rows, []string{f.Name, name, f.Type.String(), kind(f.Type)})
		note(f.Type)
	}
	structs[t.String()] = rows
}

// kind of a value: "*" and "[]" in front for pointers and slices, "map:" for maps by strings.
func kind(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return "*" + kind(t.Elem())
	case reflect.Slice:
		return "[]" + kind(t.Elem())
	case reflect.Map:
		return "map:" + kind(t.Elem())
	case reflect.Struct:
		return t.String()
	}
	return t.Kind().String()
}
