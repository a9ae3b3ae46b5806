// What client-go makes of Freehold's protobuf, and what Kubernetes' own encoder and printers make of each built-in kind.
//
//	go run . golden FILE             writes each kind, with every field set, as JSON and as protobuf
//	go run . tables OBJECTS FILE     writes what kube-apiserver's tables show of each kind and of OBJECTS
//	go run . check KUBECONFIG        compares the answers of a server in both encodings
package main

import (
	"fmt"
	"os"
)

func main() {
	switch args := os.Args[1:]; {
	case len(args) == 2 && args[0] == "golden":
		fail(golden(args[1]))
	case len(args) == 3 && args[0] == "tables":
		fail(tables(args[1], args[2]))
	case len(args) == 2 && args[0] == "check":
		fail(check(args[1]))
	default:
		fail(fmt.Errorf("usage: %s golden FILE | tables OBJECTS FILE | check KUBECONFIG", os.Args[0]))
	}
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
