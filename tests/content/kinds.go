package main

import (
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// types has every built-in kind.
var types = func() *runtime.Scheme {
	all := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, apiextensions.AddToScheme, apiregistration.AddToScheme} {
		fail(add(all))
	}
	fail(metav1.AddMetaToScheme(all))
	return all
}()

var binary = protobuf.NewSerializer(types, types)

// isStable tells versions that have left beta.
func isStable(gv schema.GroupVersion) bool {
	return gv.Version != runtime.APIVersionInternal && !strings.ContainsAny(gv.Version, "ab")
}
