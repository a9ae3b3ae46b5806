// documents prints what Kubernetes' OpenAPI documents say of its types beyond their names, formats and descriptions: the
// defaults, the values that a text may have (with what each means), and what lists are called. The catalog reads it from
// apiserver/catalog/documents.json. With `parameters FILE` it prints the parameters of operations, which
// apiserver/catalog/parameters.json has, from a document of version 2 that a kube-apiserver served.
//
//	go run ./documents > ../../apiserver/catalog/documents.json
//	go run ./documents parameters swagger.json > ../../apiserver/catalog/parameters.json
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"sort"
	"strings"

	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kubernetes/pkg/generated/openapi"
)

// values begins what a description says of the values that a text may have.
const values = "\n\nPossible enum values:"

// stable names the types of stable versions, and those that have no version.
var stable = regexp.MustCompile(`^io\.k8s\.(api\.[a-z]+\.v[0-9]+|kube-aggregator\.pkg\.apis\.[a-z]+\.v1|` +
	`apiextensions-apiserver\.pkg\.apis\.[a-z]+\.v1|apimachinery\.pkg\..*)\.[A-Za-z]+$`)

func main() {
	var err error
	if len(os.Args) > 2 && os.Args[1] == "parameters" {
		err = parameters(os.Args[2])
	} else {
		err = documents()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func documents() error {
	ref := func(path string) spec.Ref { return spec.MustCreateRef("#/" + common.EscapeJsonPointer(path)) }
	lines := []string{}
	for name, definition := range openapi.GetOpenAPIDefinitions(ref) {
		if !stable.MatchString(name) {
			continue
		}
		said := map[string]any{}
		for field, schema := range definition.Schema.Properties {
			if of := property(schema, isList(name, definition.Schema)); len(of) > 0 {
				said[field] = of
			}
		}
		if isList(name, definition.Schema) {
			said["."] = definition.Schema.Description
		}
		if len(said) > 0 {
			line, err := marshal(said)
			if err != nil {
				return err
			}
			lines = append(lines, fmt.Sprintf("  %q: %s", strings.TrimPrefix(name, "io.k8s.api."), line))
		}
	}
	sort.Strings(lines)
	fmt.Printf("{\n%s\n}\n", strings.Join(lines, ",\n"))
	return nil
}

// isList tells the lists of objects from what is only called so.
func isList(name string, schema spec.Schema) bool {
	_, items := schema.Properties["items"]
	_, metadata := schema.Properties["metadata"]
	return strings.HasSuffix(name, "List") && items && metadata
}

func property(schema spec.Schema, described bool) map[string]any {
	said := map[string]any{}
	if schema.Default != nil {
		said["default"] = schema.Default
	}
	if len(schema.Enum) > 0 {
		said["enum"] = schema.Enum
	}
	if at := strings.Index(schema.Description, values); at >= 0 {
		said["values"] = schema.Description[at:]
	}
	if described && schema.Ref.String() == "" && len(schema.Type) > 0 && schema.Type[0] == "string" {
		described = false
	}
	if described {
		said["description"] = schema.Description
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		if of := property(*schema.Items.Schema, false); len(of) > 0 {
			said["items"] = of
		}
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		if of := property(*schema.AdditionalProperties.Schema, false); len(of) > 0 {
			said["additionalProperties"] = of
		}
	}
	return said
}

// variants tells parameters of one name apart by what they are of: the last part of the path, or the method.
var variants = map[string]string{"attach": "attach", "exec": "exec", "log": "log", "patch": "patch"}

type parameter struct {
	Key         string `json:"key"`
	In          string `json:"in"`
	Type        string `json:"type"`
	Shared      string `json:"shared"`
	Description string `json:"description"`
}

func parameters(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var document spec.Swagger
	if err := json.Unmarshal(text, &document); err != nil {
		return err
	}
	named := map[string]int{}
	for _, shared := range document.Parameters {
		named[shared.Name]++
	}
	found := map[string]parameter{}
	note := func(path, method string, of spec.Parameter) {
		key := strings.TrimPrefix(of.Ref.String(), "#/parameters/")
		shared := ""
		if key != "" {
			of = document.Parameters[key]
			shared = strings.TrimPrefix(key, of.Name+"-")
		}
		if of.In == "body" || of.Name == "name" || of.Name == "logpath" {
			return
		}
		key = of.Name
		if named[of.Name] > 1 {
			key += variant(path, method, of)
		}
		found[key] = parameter{key, of.In, of.Type, shared, of.Description}
	}
	for path, item := range document.Paths.Paths {
		for _, of := range item.Parameters {
			note(path, "", of)
		}
		for method, operation := range map[string]*spec.Operation{
			"get": item.Get, "put": item.Put, "post": item.Post, "delete": item.Delete, "patch": item.Patch,
		} {
			if operation != nil {
				for _, of := range operation.Parameters {
					note(path, method, of)
				}
			}
		}
	}
	lines := []string{}
	for _, one := range found {
		line, err := marshal(one)
		if err != nil {
			return err
		}
		lines = append(lines, "  "+line)
	}
	sort.Strings(lines)
	fmt.Printf("[\n%s\n]\n", strings.Join(lines, ",\n"))
	return nil
}

func variant(path, method string, of spec.Parameter) string {
	if of.Name == "path" {
		if of.In == "path" {
			return "@rest"
		}
		for _, kind := range []string{"node", "pod", "service"} {
			if strings.Contains(path, "/"+kind+"s/") {
				return "@" + kind
			}
		}
	}
	last := path[strings.LastIndex(path, "/")+1:]
	if name, ok := variants[last]; ok {
		return "@" + name
	}
	if strings.Contains(of.Description, "apply requests") {
		return "@patch"
	}
	return ""
}

func marshal(value any) (string, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return strings.TrimSpace(out.String()), err
}
