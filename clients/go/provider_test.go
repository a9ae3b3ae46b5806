package freehold_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	freehold "freehold.dev/clients/go"
	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// ups sets the phase of each database, in the consumer's project.
type ups struct {
	provider *freehold.Provider
	writes   atomic.Int64
}

func (u *ups) Reconcile(ctx context.Context, request freehold.Request) (reconcile.Result, error) {
	cluster, err := u.provider.Cluster(request.ClusterName)
	if err != nil {
		return reconcile.Result{}, err
	}
	found := database("")
	if err := cluster.Get(ctx, request.NamespacedName, found); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if phase, _, _ := unstructured.NestedString(found.Object, "status", "phase"); phase != "" {
		return reconcile.Result{}, nil
	}
	_ = unstructured.SetNestedField(found.Object, "up in "+request.ClusterName, "status", "phase")
	if err := cluster.Status().Update(ctx, found); err != nil {
		return reconcile.Result{}, err
	}
	u.writes.Add(1)
	return reconcile.Result{}, nil
}

func TestAManagerReconcilesAllConsumersOverOneWatch(t *testing.T) {
	log.SetLogger(logr.Discard())
	ctx := t.Context()
	w := start(t)
	w.publish(ctx)
	w.consumers = consumerNames(t)
	began := time.Now()
	w.consumeAll(ctx, w.consumers)
	t.Logf("%d consumers were made in %v", len(w.consumers), time.Since(began))

	provider, err := freehold.New(w.admin, "dbaas", "postgres", freehold.Options{})
	must(t, err)
	manager, err := ctrl.NewManager(provider.Config(), ctrl.Options{Metrics: server.Options{BindAddress: "0"}})
	must(t, err)
	reconciler := &ups{provider: provider}
	must(t, builder.TypedControllerManagedBy[freehold.Request](manager).
		Named("databases").
		WatchesRawSource(provider.Kind(database(""), freehold.Object)).
		WatchesRawSource(provider.Kind(database(""), freehold.Object)).
		WithOptions(controller.TypedOptions[freehold.Request]{MaxConcurrentReconciles: 16}).
		Complete(reconciler))
	began = time.Now()
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	w.eventually("all are up", func() error { return w.countUp(ctx, provider, len(w.consumers)) })
	t.Logf("%d consumers were reconciled in %v", len(w.consumers), time.Since(began))
	if count := w.watches(ctx); count != 1 {
		t.Fatalf("%d watches of databases are open, 1 is wanted", count)
	}

	// Who comes later is in the same watch, and who has equal names stays apart.
	must(t, w.consume(ctx, "late"))
	w.eventually("the late one is up", func() error { return w.countUp(ctx, provider, len(w.consumers)+1) })
	late, err := provider.Cluster("late")
	must(t, err)
	found := database("")
	must(t, late.Get(ctx, client.ObjectKey{Namespace: "default", Name: "orders"}, found))
	if phase, _, _ := unstructured.NestedString(found.Object, "status", "phase"); phase != "up in late" {
		t.Fatalf("phase %q is another consumer's", phase)
	}
	must(t, late.Delete(ctx, found))
	w.eventually("it goes from memory", func() error {
		err := late.Get(ctx, client.ObjectKey{Namespace: "default", Name: "orders"}, database(""))
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is there: %v", err)
	})
	if count := w.watches(ctx); count != 1 {
		t.Fatalf("%d watches of databases are open, 1 is wanted", count)
	}
	if writes := reconciler.writes.Load(); writes < int64(len(w.consumers)) {
		t.Fatalf("%d writes", writes)
	}
	select {
	case err := <-ended:
		t.Fatalf("the manager ended: %v", err)
	default:
	}
}

// countUp fails unless a number of consumers has a database whose phase is its own, as the provider's memory has it.
func (w *world) countUp(ctx context.Context, provider *freehold.Provider, wanted int) error {
	clusters, err := provider.Clusters(database(""))
	if err != nil {
		return err
	}
	up := 0
	for _, name := range clusters {
		cluster, err := provider.Cluster(name)
		if err != nil {
			return err
		}
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion("db.example.com/v1")
		list.SetKind("DatabaseList")
		if err := cluster.List(ctx, list, client.InNamespace("default")); err != nil {
			return err
		}
		for _, one := range list.Items {
			if phase, _, _ := unstructured.NestedString(one.Object, "status", "phase"); phase == "up in "+name {
				up++
			}
		}
	}
	if up != wanted {
		return fmt.Errorf("%d of %d are up", up, wanted)
	}
	return nil
}

// consumeAll makes consumers, several at a time.
func (w *world) consumeAll(ctx context.Context, names []string) {
	w.t.Helper()
	work := make(chan string)
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for name := range work {
				if err := w.consume(ctx, name); err != nil {
					w.t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
	for _, name := range names {
		work <- name
	}
	close(work)
	workers.Wait()
}
