package freehold

import (
	"context"
	"reflect"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// clusterClient is the client for one consumer.
type clusterClient struct {
	client.Client
	provider *Provider
	cluster  string
}

// Get reads an object, from memory where its type is watched in this form.
func (c *clusterClient) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	watched, err := c.provider.watched(into)
	if err != nil || watched == nil || !watched.isSynced() || len(options) > 0 {
		return c.Client.Get(ctx, key, into, options...)
	}
	found, exists, err := watched.indexer.GetByKey(keyOf(c.cluster, key.Namespace, key.Name))
	if err != nil {
		return err
	}
	if !exists {
		gvk, _ := c.GroupVersionKindFor(into)
		return apierrors.NewNotFound(schema.GroupResource{Group: gvk.Group, Resource: strings.ToLower(gvk.Kind)}, key.Name)
	}
	if reflect.TypeOf(found) != reflect.TypeOf(into) {
		return c.Client.Get(ctx, key, into)
	}
	copied := found.(runtime.Object).DeepCopyObject()
	reflect.ValueOf(into).Elem().Set(reflect.ValueOf(copied).Elem())
	return nil
}

// List lists objects, from memory where their type is watched and no field or page is asked for.
func (c *clusterClient) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	wanted := (&client.ListOptions{}).ApplyOptions(options)
	live := func() error { return c.Client.List(ctx, into, options...) }
	if wanted.FieldSelector != nil || wanted.Limit != 0 || wanted.Continue != "" || wanted.Raw != nil {
		return live()
	}
	watched := c.watchedList(into)
	if watched == nil || !watched.isSynced() {
		return live()
	}
	index, value := byCluster, c.cluster
	if wanted.Namespace != "" {
		index, value = byNamespace, c.cluster+"|"+wanted.Namespace
	}
	found, err := watched.indexer.ByIndex(index, value)
	if err != nil {
		return err
	}
	items := make([]runtime.Object, 0, len(found))
	for _, one := range found {
		own := one.(client.Object).GetLabels()
		if wanted.LabelSelector == nil || wanted.LabelSelector.Matches(labels.Set(own)) {
			items = append(items, one.(runtime.Object).DeepCopyObject())
		}
	}
	// Objects in memory of another form than the list's items.
	if meta.SetList(into, items) != nil {
		return live()
	}
	return nil
}

func (c *clusterClient) watchedList(list client.ObjectList) *informer {
	gvk, err := c.GroupVersionKindFor(list)
	if err != nil {
		return nil
	}
	gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	c.provider.mu.Lock()
	defer c.provider.mu.Unlock()
	return c.provider.informers[gvk]
}
