package freehold

import (
	"context"
	"errors"
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Indexes of an informer.
const (
	byCluster   = "cluster"
	byNamespace = "cluster and namespace"
)

// change is what happens to an object: old is nil for a new one, now is nil for one that went.
type change struct{ old, now client.Object }

// informer holds the objects of one type of all consumers, from one list and one watch. Informers of client-go have keys
// without a cluster, so that equal names of two consumers would be one object.
type informer struct {
	annotation string
	indexer    cache.Indexer
	synced     chan struct{}
	once       sync.Once

	mu       sync.Mutex
	handlers []func(change)
}

func startInformer(ctx context.Context, p *Provider, gvk schema.GroupVersionKind, object client.Object) (*informer, error) {
	i := &informer{annotation: p.annotation, synced: make(chan struct{})}
	i.indexer = cache.NewIndexer(i.key, cache.Indexers{byCluster: i.clusterOf, byNamespace: i.clusterAndNamespaceOf})
	list, err := listOf(p.scheme, gvk, object)
	if err != nil {
		return nil, err
	}
	source := &listerWatcher{client: p.all, list: list}
	options := cache.ReflectorOptions{Name: "freehold " + gvk.String()}
	go cache.NewReflectorWithOptions(source, object, i, options).RunWithContext(ctx)
	return i, nil
}

// listOf returns an empty list of an object's type, in the form of the object.
func listOf(known *runtime.Scheme, gvk schema.GroupVersionKind, object client.Object) (client.ObjectList, error) {
	gvk.Kind += "List"
	switch object.(type) {
	case *unstructured.Unstructured:
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(gvk)
		return list, nil
	case *metav1.PartialObjectMetadata:
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(gvk)
		return list, nil
	}
	made, err := known.New(gvk)
	if err != nil {
		return nil, fmt.Errorf("freehold: %w", err)
	}
	list, ok := made.(client.ObjectList)
	if !ok {
		return nil, fmt.Errorf("freehold: %s is no list", gvk)
	}
	return list, nil
}

// onChange calls a handler for each object that is there and each change from then on, in their order.
func (i *informer) onChange(handler func(change)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, known := range i.indexer.List() {
		handler(change{now: known.(client.Object)})
	}
	i.handlers = append(i.handlers, handler)
}

// waitForSync waits until everything has been listed once.
func (i *informer) waitForSync(ctx context.Context) error {
	select {
	case <-i.synced:
		return nil
	case <-ctx.Done():
		return errors.New("freehold: the view was not listed in time")
	}
}

func (i *informer) isSynced() bool {
	select {
	case <-i.synced:
		return true
	default:
		return false
	}
}

func (i *informer) cluster(object client.Object) string { return object.GetAnnotations()[i.annotation] }

func keyOf(cluster, namespace, name string) string { return cluster + "|" + namespace + "/" + name }

func (i *informer) key(object any) (string, error) {
	o, ok := object.(client.Object)
	if !ok {
		return "", fmt.Errorf("freehold: %T is no object", object)
	}
	cluster := i.cluster(o)
	if cluster == "" {
		return "", fmt.Errorf("freehold: %s/%s has no annotation %s", o.GetNamespace(), o.GetName(), i.annotation)
	}
	return keyOf(cluster, o.GetNamespace(), o.GetName()), nil
}

func (i *informer) clusterOf(object any) ([]string, error) {
	return []string{i.cluster(object.(client.Object))}, nil
}

func (i *informer) clusterAndNamespaceOf(object any) ([]string, error) {
	o := object.(client.Object)
	return []string{i.cluster(o) + "|" + o.GetNamespace()}, nil
}

// Add takes in a new object.
func (i *informer) Add(object any) error { return i.put(object) }

// Update takes in a new state of an object.
func (i *informer) Update(object any) error { return i.put(object) }

func (i *informer) put(object any) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.putLocked(object)
}

func (i *informer) putLocked(object any) error {
	before, existed, err := i.indexer.Get(object)
	if err != nil {
		return err
	}
	done := change{now: object.(client.Object)}
	if existed {
		done.old = before.(client.Object)
	}
	if err := i.indexer.Update(object); err != nil {
		return err
	}
	i.tell(done)
	return nil
}

// Delete takes in that an object went.
func (i *informer) Delete(object any) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if err := i.indexer.Delete(object); err != nil {
		return err
	}
	i.tell(change{old: object.(client.Object)})
	return nil
}

// Replace takes in a complete list.
func (i *informer) Replace(objects []any, _ string) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	listed := make(map[string]bool, len(objects))
	for _, object := range objects {
		key, err := i.key(object)
		if err != nil {
			return err
		}
		listed[key] = true
		if err := i.putLocked(object); err != nil {
			return err
		}
	}
	for _, known := range i.indexer.List() {
		if key, _ := i.key(known); listed[key] {
			continue
		}
		if err := i.indexer.Delete(known); err != nil {
			return err
		}
		i.tell(change{old: known.(client.Object)})
	}
	i.once.Do(func() { close(i.synced) })
	return nil
}

// Resync does nothing: handlers are told of changes alone.
func (i *informer) Resync() error { return nil }

func (i *informer) tell(done change) {
	for _, handler := range i.handlers {
		handler(done)
	}
}

// listerWatcher lists and watches a type over all consumers.
type listerWatcher struct {
	client client.WithWatch
	list   client.ObjectList
}

// List lists a page.
func (l *listerWatcher) List(options metav1.ListOptions) (runtime.Object, error) {
	list := l.list.DeepCopyObject().(client.ObjectList)
	return list, l.client.List(context.Background(), list, &client.ListOptions{Raw: &options, Limit: options.Limit, Continue: options.Continue})
}

// Watch begins a watch.
func (l *listerWatcher) Watch(options metav1.ListOptions) (watch.Interface, error) {
	list := l.list.DeepCopyObject().(client.ObjectList)
	return l.client.Watch(context.Background(), list, &client.ListOptions{Raw: &options})
}

// IsWatchListSemanticsUnSupported says that objects are listed: the reflector would gather a streamed list by keys that have
// no cluster.
func (l *listerWatcher) IsWatchListSemanticsUnSupported() bool { return true }
