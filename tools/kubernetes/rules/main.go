// rules prints what the compiler of kube-apiserver says of CEL rules over a schema: an error, or what a rule costs at most.
// The tests of machinery/cel compare.
//
//	go run ./rules ../../machinery/cel/src/typing/recorded/{schema.json,rules.txt} > ../../machinery/cel/src/typing/recorded/answers.jsonl
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	v1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// The compiler names the type of self anew each time.
var selfType = regexp.MustCompile(`selfType\d+`)

type answer struct {
	Rule  string `json:"rule"`
	Cost  uint64 `json:"cost"`
	Error string `json:"error,omitempty"`
}

func main() {
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(schemaFile, rulesFile string) error {
	source, err := os.ReadFile(schemaFile)
	if err != nil {
		return err
	}
	rules, err := os.ReadFile(rulesFile)
	if err != nil {
		return err
	}
	var external v1.JSONSchemaProps
	if err := json.Unmarshal(source, &external); err != nil {
		return err
	}
	for _, rule := range strings.Split(strings.TrimSpace(string(rules)), "\n") {
		external.XValidations = append(external.XValidations, v1.ValidationRule{Rule: rule})
	}
	var internal apiextensions.JSONSchemaProps
	if err := v1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(&external, &internal, nil); err != nil {
		return err
	}
	structural, err := schema.NewStructural(&internal)
	if err != nil {
		return err
	}
	base := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
	results, err := cel.Compile(structural, model.SchemaDeclType(structural, true), celconfig.PerCallLimit, base, cel.NewExpressionsEnvLoader())
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	out.SetEscapeHTML(false)
	for i, result := range results {
		row := answer{Rule: structural.XValidations[i].Rule, Cost: result.MaxCost}
		if result.Error != nil {
			row.Error = selfType.ReplaceAllString(result.Error.Detail, "selfType")
		}
		if err := out.Encode(row); err != nil {
			return err
		}
	}
	return nil
}
