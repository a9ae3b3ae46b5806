// printed prints the columns with which kubectl shows the built-in kinds, as Kubernetes' printers declare them. The catalog
// reads their descriptions from apiserver/catalog/printed.json.
//
//	go run ./printed > ../../apiserver/catalog/printed.json
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"sort"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/printers/internalversion"
)

type recorder map[string][]metav1.TableColumnDefinition

// TableHandler keeps the columns of the kind that the function prints one of.
func (r recorder) TableHandler(columns []metav1.TableColumnDefinition, print interface{}) error {
	object := reflect.TypeOf(print).In(0).Elem()
	path := strings.Split(object.PkgPath(), "/")
	r[path[len(path)-1]+"."+object.Name()] = columns
	return nil
}

// meta describes the columns that all kinds share; they are told once, where tables are made.
var meta = metav1.ObjectMeta{}.SwaggerDoc()

func main() {
	found := recorder{}
	internalversion.AddHandlers(found)
	names := make([]string, 0, len(found))
	for name := range found {
		if !strings.HasSuffix(name, "List") {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	lines := make([]string, 0, len(names))
	for _, name := range names {
		descriptions := map[string]string{}
		for _, column := range found[name] {
			if column.Description != meta["name"] && column.Description != meta["creationTimestamp"] {
				descriptions[column.Name] = column.Description
			}
		}
		line, err := json.Marshal(descriptions)
		if err != nil {
			fmt.Fprintln(os.Stderr, name, err)
			os.Exit(1)
		}
		lines = append(lines, fmt.Sprintf("  %q: %s", name, line))
	}
	fmt.Printf("{\n%s\n}\n", strings.Join(lines, ",\n"))
}
