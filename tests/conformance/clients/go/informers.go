package main

import (
	"context"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	extensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// until waits for a condition.
func (p place) until(holds func() bool) error {
	return wait.PollUntilContextCancel(p, 20*time.Millisecond, true, func(context.Context) (bool, error) {
		return holds(), nil
	})
}

// informers counts what handlers are told.
func informers(p place) error {
	factory := kubeinformers.NewSharedInformerFactoryWithOptions(p.client, 0, kubeinformers.WithNamespace(p.namespace))
	informer := factory.Core().V1().ConfigMaps()
	var added, updated, deleted atomic.Int32
	_, err := informer.Informer().AddEventHandler(cache.FilteringResourceEventHandler{
		FilterFunc: func(object any) bool {
			named, ok := object.(*corev1.ConfigMap)
			return ok && named.Labels["seen"] == "yes"
		},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { added.Add(1) },
			UpdateFunc: func(any, any) { updated.Add(1) },
			DeleteFunc: func(any) { deleted.Add(1) },
		},
	})
	if err != nil {
		return err
	}
	factory.StartWithContext(p)
	for _, synced := range factory.WaitForCacheSync(p.Done()) {
		if err := expect(synced, "synced"); err != nil {
			return err
		}
	}
	made, err := p.configMap("a", map[string]string{"seen": "yes"})
	if err != nil {
		return err
	}
	maps := p.client.CoreV1().ConfigMaps(p.namespace)
	made.Data = map[string]string{"k": "v"}
	if _, err := maps.Update(p, made, metav1.UpdateOptions{}); err != nil {
		return err
	}
	if err := maps.Delete(p, "a", metav1.DeleteOptions{}); err != nil {
		return err
	}
	if err := p.until(func() bool { return deleted.Load() == 1 }); err != nil {
		return err
	}
	return expect(added.Load() == 1 && updated.Load() == 1, "events", added.Load(), updated.Load())
}

// streamed has an informer take its list from a watch, in both encodings.
func streamed(p place) error {
	for index, content := range []string{"application/vnd.kubernetes.protobuf", "application/json"} {
		if _, err := p.configMap([]string{"a", "b"}[index], map[string]string{"streamed": "yes"}); err != nil {
			return err
		}
		config := rest.CopyConfig(p.config)
		config.ContentType = content
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return err
		}
		watch, err := client.CoreV1().ConfigMaps(p.namespace).Watch(p, metav1.ListOptions{
			SendInitialEvents:    new(true),
			ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
			AllowWatchBookmarks:  true,
			LabelSelector:        "streamed=yes",
		})
		if err != nil {
			return err
		}
		names := map[string]bool{}
		for event := range watch.ResultChan() {
			object, ok := event.Object.(*corev1.ConfigMap)
			if err := expect(ok, "an object", event); err != nil {
				return err
			}
			if object.Annotations[metav1.InitialEventsAnnotationKey] == "true" {
				break
			}
			names[object.Name] = true
		}
		watch.Stop()
		if err := expect(len(names) == index+1, "initial events", names); err != nil {
			return err
		}
	}
	return nil
}

var widgets = schema.GroupVersionResource{Group: "go.example.com", Version: "v1", Resource: "widgets"}

// metadataInformers watches custom resources by their metadata.
func metadataInformers(p place) error {
	client, err := extensions.NewForConfig(p.config)
	if err != nil {
		return err
	}
	crds := client.ApiextensionsV1().CustomResourceDefinitions()
	open := true
	definition := &apiextensions.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets.go.example.com"},
		Spec: apiextensions.CustomResourceDefinitionSpec{
			Group: widgets.Group,
			Scope: apiextensions.NamespaceScoped,
			Names: apiextensions.CustomResourceDefinitionNames{Plural: "widgets", Singular: "widget", Kind: "Widget"},
			Versions: []apiextensions.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensions.CustomResourceValidation{OpenAPIV3Schema: &apiextensions.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: &open,
				}},
			}},
		},
	}
	if _, err := crds.Create(p, definition, metav1.CreateOptions{}); err != nil {
		return err
	}
	err = p.until(func() bool {
		crd, err := crds.Get(p, definition.Name, metav1.GetOptions{})
		if err != nil {
			return false
		}
		for _, condition := range crd.Status.Conditions {
			if condition.Type == apiextensions.Established && condition.Status == apiextensions.ConditionTrue {
				return true
			}
		}
		return false
	})
	if err != nil {
		return err
	}
	objects, err := dynamic.NewForConfig(p.config)
	if err != nil {
		return err
	}
	widget := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "go.example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": "a"}, "spec": map[string]any{"x": int64(1)},
	}}
	if _, err := objects.Resource(widgets).Namespace(p.namespace).Create(p, widget, metav1.CreateOptions{}); err != nil {
		return err
	}
	partial, err := metadata.NewForConfig(p.config)
	if err != nil {
		return err
	}
	factory := metadatainformer.NewFilteredSharedInformerFactory(partial, 0, p.namespace, nil)
	informer := factory.ForResource(widgets)
	factory.Start(p.Done())
	factory.WaitForCacheSync(p.Done())
	found, err := informer.Lister().ByNamespace(p.namespace).Get("a")
	if err != nil {
		return err
	}
	object, ok := found.(*metav1.PartialObjectMetadata)
	return expect(ok && object.Name == "a" && object.UID != "", "metadata", found)
}

// leaders elects one of two, and the other after it has let go.
func leaders(p place) error {
	var leading [2]atomic.Int32
	var cancels [2]context.CancelFunc
	for index := range 2 {
		var ctx context.Context
		ctx, cancels[index] = context.WithCancel(p)
		defer cancels[index]()
		lock, err := resourcelock.New(resourcelock.LeasesResourceLock, p.namespace, "leader",
			p.client.CoreV1(), p.client.CoordinationV1(), resourcelock.ResourceLockConfig{Identity: []string{"one", "two"}[index]})
		if err != nil {
			return err
		}
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: lock, LeaseDuration: 10 * time.Second, RenewDeadline: 5 * time.Second, RetryPeriod: 200 * time.Millisecond,
			ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) { leading[index].Add(1) },
				OnStoppedLeading: func() {},
			},
		})
		if err != nil {
			return err
		}
		go elector.Run(ctx)
		if index == 0 {
			if err := p.until(func() bool { return leading[0].Load() == 1 }); err != nil {
				return err
			}
		}
	}
	if err := expect(leading[1].Load() == 0, "one leader"); err != nil {
		return err
	}
	cancels[0]()
	if err := p.until(func() bool { return leading[1].Load() == 1 }); err != nil {
		return err
	}
	lease, err := p.client.CoordinationV1().Leases(p.namespace).Get(p, "leader", metav1.GetOptions{})
	if err != nil {
		return err
	}
	return expect(*lease.Spec.LeaseTransitions >= 1 && *lease.Spec.HolderIdentity == "two", "the lease", lease.Spec)
}
