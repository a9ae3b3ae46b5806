package freehold

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// MapFunc returns the requests that a change of an object of a consumer causes.
type MapFunc func(cluster string, object client.Object) []Request

// Object maps an object to the request for itself.
func Object(cluster string, object client.Object) []Request {
	name := types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
	return []Request{{Request: reconcile.Request{NamespacedName: name}, ClusterName: cluster}}
}

// Kind is the source of a type's changes in all consumers, for a controller's WatchesRawSource. Sources of one type share
// one watch. Typed, unstructured and metadata-only objects are taken; one form for each type.
func (p *Provider) Kind(object client.Object, to MapFunc) source.TypedSyncingSource[Request] {
	return &kindSource{provider: p, object: object, to: to}
}

type kindSource struct {
	provider *Provider
	object   client.Object
	to       MapFunc
	informer *informer
}

// Start begins to fill the queue.
func (s *kindSource) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[Request]) error {
	started, err := s.provider.informerFor(ctx, s.object)
	if err != nil {
		return err
	}
	s.informer = started
	started.onChange(func(done change) {
		for _, object := range []client.Object{done.old, done.now} {
			if object == nil {
				continue
			}
			for _, request := range s.to(started.cluster(object), object) {
				queue.Add(request)
			}
		}
	})
	return nil
}

// WaitForSync waits until the type was listed once.
func (s *kindSource) WaitForSync(ctx context.Context) error { return s.informer.waitForSync(ctx) }
