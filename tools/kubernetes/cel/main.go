// cel prints the functions and names that Kubernetes' CEL environment declares, one overload a line: the checker of
// machinery/cel reads them from machinery/cel/src/typing/declarations.txt.
//
//	go run ./cel > ../../machinery/cel/src/typing/declarations.txt
package main

import (
	"fmt"
	"sort"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/types"
	"k8s.io/apiserver/pkg/cel/environment"
)

func main() {
	env := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).NewExpressionsEnv()
	functions := env.Functions()
	names := make([]string, 0, len(functions))
	for name := range functions {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		for _, overload := range functions[name].OverloadDecls() {
			style := "function"
			if overload.IsMemberFunction() {
				style = "member"
			}
			args := []string{}
			for _, arg := range overload.ArgTypes() {
				args = append(args, show(arg))
			}
			fmt.Printf("%s\t%s\t%s\t(%s)\t%s\n", style, name, overload.ID(), strings.Join(args, ", "), show(overload.ResultType()))
		}
	}
	seen := map[string]bool{}
	lines := []string{}
	for _, variable := range env.Variables() {
		if !seen[variable.Name()] {
			seen[variable.Name()] = true
			lines = append(lines, fmt.Sprintf("name\t%s\t%s", variable.Name(), show(variable.Type())))
		}
	}
	for _, name := range []string{"bool", "bytes", "double", "duration", "dyn", "int", "list", "map", "null_type", "string", "timestamp", "type", "uint",
		"optional_type", "google.protobuf.Timestamp", "google.protobuf.Duration", "google.protobuf.Any", "net.IP", "net.CIDR",
		"kubernetes.URL", "kubernetes.Quantity", "kubernetes.Semver", "kubernetes.NamedFormat",
		"kubernetes.authorization.Authorizer", "kubernetes.authorization.PathCheck", "kubernetes.authorization.GroupCheck",
		"kubernetes.authorization.ResourceCheck", "kubernetes.authorization.Decision"} {
		if seen[name] {
			continue
		}
		provider := env.CELTypeProvider()
		if t, found := provider.FindStructType(name); found {
			lines = append(lines, fmt.Sprintf("name\t%s\t%s", name, show(t)))
		} else if v, found := provider.FindIdent(name); found {
			if t, is := v.(*types.Type); is {
				lines = append(lines, fmt.Sprintf("name\t%s\t%s", name, show(types.NewTypeTypeWithParam(t))))
			}
		}
	}
	sort.Strings(lines)
	fmt.Println(strings.Join(lines, "\n"))
}

// show writes a type as cel-go writes it in errors, apart from type parameters, which begin with a "?", and objects,
// which begin with a ".".
func show(t *cel.Type) string {
	switch t.Kind() {
	case types.TypeParamKind:
		return "?" + t.TypeName()
	case types.StructKind:
		return "." + t.TypeName()
	}
	if len(t.Parameters()) == 0 {
		return checker.FormatCELType(t)
	}
	params := []string{}
	for _, p := range t.Parameters() {
		params = append(params, show(p))
	}
	return fmt.Sprintf("%s(%s)", t.TypeName(), strings.Join(params, ", "))
}
