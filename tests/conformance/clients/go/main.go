// Freehold through client-go and controller-runtime: what their users do, each thing told as a fact.
//
// KUBECONFIG names a project. Each fact has a namespace of its own, and all run at once; a line "ok NAME" is printed for each
// that holds. The program fails if one doesn't.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// Nothing here takes longer, or it hangs.
const patience = time.Minute

// place is where a fact is tried.
type place struct {
	context.Context
	config    *rest.Config
	client    kubernetes.Interface
	namespace string
}

type fact struct {
	name string
	try  func(place) error
}

var facts = []fact{
	{"typed_clients_speak_protobuf_and_json", contentTypes},
	{"applied_fields_have_owners", applied},
	{"informers_see_each_change", informers},
	{"informers_stream_their_lists", streamed},
	{"metadata_informers_see_custom_resources", metadataInformers},
	{"a_leader_is_elected_and_followed", leaders},
	{"discovery_maps_kinds_and_opens_documents", discovered},
	{"conflicts_are_retried", conflicts},
	{"pages_are_followed", pages},
	{"a_manager_reconciles_from_its_cache", manager},
	{"a_controller_keeps_what_it_owns", owner},
	{"status_is_written_apart_from_the_rest", status},
}

func main() {
	log.SetLogger(logr.Discard())
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	config.QPS, config.Burst = 500, 1000
	var all sync.WaitGroup
	var failed atomic.Int32
	for _, f := range facts {
		all.Go(func() {
			if err := check(config, f); err != nil {
				failed.Add(1)
				fmt.Printf("failed %s: %v\n", f.name, err)
				return
			}
			fmt.Printf("ok %s\n", f.name)
		})
	}
	all.Wait()
	if failed.Load() > 0 {
		os.Exit(1)
	}
}

func check(config *rest.Config, f fact) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "go-" + strings.ReplaceAll(f.name, "_", "-")}}
	if _, err := client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return err
	}
	return f.try(place{ctx, config, client, namespace.Name})
}

// configMap makes one.
func (p place) configMap(name string, labels map[string]string) (*corev1.ConfigMap, error) {
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	return p.client.CoreV1().ConfigMaps(p.namespace).Create(p, object, metav1.CreateOptions{})
}

// expect is an error unless a thing is as it should be.
func expect(holds bool, what string, values ...any) error {
	if holds {
		return nil
	}
	return fmt.Errorf("%s: %v", what, values)
}
