// costs prints what CEL rules come to in kube-apiserver's interpreter, and what that costs, over each of some objects.
// The tests of machinery/cel compare. Rules that do not compile are left out.
//
//	cd ../../machinery/cel/src/typing/recorded
//	go run ./costs schema.json objects.json rules.txt costs.txt > ran.jsonl
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/interpreter"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	v1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/cel/environment"
)

// High enough that nothing is broken off.
const limit = uint64(1) << 40

type ran struct {
	Cost  uint64 `json:"cost"`
	Value *bool  `json:"value,omitempty"`
	Error string `json:"error,omitempty"`
}

type row struct {
	Rule string `json:"rule"`
	Runs []ran  `json:"runs"`
}

func main() {
	if err := run(os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(schemaFile, objectsFile string, rulesFiles []string) error {
	source, err := os.ReadFile(schemaFile)
	if err != nil {
		return err
	}
	var external v1.JSONSchemaProps
	if err := json.Unmarshal(source, &external); err != nil {
		return err
	}
	for _, file := range rulesFiles {
		rules, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for _, rule := range strings.Split(strings.TrimSpace(string(rules)), "\n") {
			external.XValidations = append(external.XValidations, v1.ValidationRule{Rule: rule})
		}
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
	results, err := cel.Compile(structural, model.SchemaDeclType(structural, true), limit, base, cel.NewExpressionsEnvLoader())
	if err != nil {
		return err
	}
	source, err = os.ReadFile(objectsFile)
	if err != nil {
		return err
	}
	var objects []interface{}
	if err := utiljson.Unmarshal(source, &objects); err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	out.SetEscapeHTML(false)
	for i, result := range results {
		if result.Error != nil {
			continue
		}
		row := row{Rule: structural.XValidations[i].Rule}
		for _, object := range objects {
			self := cel.UnstructuredToVal(object, model.WithTypeAndObjectMeta(structural))
			activation, err := interpreter.NewActivation(map[string]interface{}{"self": self, "oldSelf": self})
			if err != nil {
				return err
			}
			value, details, err := result.Program.ContextEval(context.Background(), activation)
			one := ran{Cost: *details.ActualCost()}
			if err != nil {
				one.Error = err.Error()
			} else {
				truth := value == types.True
				one.Value = &truth
			}
			row.Runs = append(row.Runs, one)
		}
		if err := out.Encode(row); err != nil {
			return err
		}
	}
	return nil
}
