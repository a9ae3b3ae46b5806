// What client-go makes of Freehold's protobuf, and what Kubernetes' own encoder makes of each built-in kind.
//
//	go run . golden FILE             writes each kind, with every field set, as JSON and as protobuf
//	go run . check KUBECONFIG        compares the answers of a server in both encodings
package main

import (
	"fmt"
	"os"
)

func main() {
	if len(os.Args) != 3 {
		fail(fmt.Errorf("usage: %s golden FILE | check KUBECONFIG", os.Args[0]))
	}
	switch os.Args[1] {
	case "golden":
		fail(golden(os.Args[2]))
	case "check":
		fail(check(os.Args[2]))
	default:
		fail(fmt.Errorf("unknown command %q", os.Args[1]))
	}
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
