package main

import (
	"context"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"
	metaapply "k8s.io/client-go/applyconfigurations/meta/v1"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const finalizer = "go.example.com/finalizer"

// start runs a manager of the fact's namespace, elected as a leader, until the fact ends.
func (p place) start(name string, setup func(controllerruntime.Manager) error) (controllerruntime.Manager, error) {
	skip := true
	options := controllerruntime.Options{
		Cache:                   cache.Options{DefaultNamespaces: map[string]cache.Config{p.namespace: {}}},
		Metrics:                 server.Options{BindAddress: "0"},
		LeaderElection:          true,
		LeaderElectionID:        name,
		LeaderElectionNamespace: p.namespace,
	}
	options.Controller.SkipNameValidation = &skip
	manager, err := controllerruntime.NewManager(p.config, options)
	if err != nil {
		return nil, err
	}
	if err := setup(manager); err != nil {
		return nil, err
	}
	go func() {
		// An error shows in what the fact waits for.
		_ = manager.Start(p)
	}()
	return manager, nil
}

// manager reads from its cache, by an index too, and sees what is written.
func manager(p place) error {
	var seen atomic.Int32
	m, err := p.start("manager", func(m controllerruntime.Manager) error {
		index := func(object client.Object) []string { return []string{object.GetLabels()["team"]} }
		if err := m.GetFieldIndexer().IndexField(p, &corev1.ConfigMap{}, "team", index); err != nil {
			return err
		}
		return controllerruntime.NewControllerManagedBy(m).For(&corev1.ConfigMap{}).Complete(reconcile.Func(
			func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
				var object corev1.ConfigMap
				if err := m.GetClient().Get(ctx, request.NamespacedName, &object); err != nil {
					return reconcile.Result{}, client.IgnoreNotFound(err)
				}
				if object.Labels["team"] != "red" || object.Annotations["done"] != "" {
					return reconcile.Result{}, nil
				}
				patch := client.MergeFrom(object.DeepCopy())
				object.Annotations = map[string]string{"done": "yes"}
				seen.Add(1)
				return reconcile.Result{}, m.GetClient().Patch(ctx, &object, patch)
			}))
	})
	if err != nil {
		return err
	}
	for _, name := range []string{"a", "b"} {
		if _, err := p.configMap(name, map[string]string{"team": map[string]string{"a": "red", "b": "blue"}[name]}); err != nil {
			return err
		}
	}
	return p.until(func() bool {
		var list corev1.ConfigMapList
		err := m.GetClient().List(p, &list, client.InNamespace(p.namespace), client.MatchingFields{"team": "red"})
		return err == nil && len(list.Items) == 1 && list.Items[0].Annotations["done"] == "yes" && seen.Load() > 0
	})
}

// owner makes a Secret for each ConfigMap, by apply, puts it back, and cleans up behind a finalizer.
func owner(p place) error {
	var cleaned atomic.Bool
	m, err := p.start("owner", func(m controllerruntime.Manager) error {
		c := m.GetClient()
		return controllerruntime.NewControllerManagedBy(m).For(&corev1.ConfigMap{}).Owns(&corev1.Secret{}).Complete(reconcile.Func(
			func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
				var object corev1.ConfigMap
				if err := c.Get(ctx, request.NamespacedName, &object); err != nil {
					return reconcile.Result{}, client.IgnoreNotFound(err)
				}
				if object.Labels["own"] != "yes" {
					return reconcile.Result{}, nil
				}
				if !object.DeletionTimestamp.IsZero() {
					cleaned.Store(true)
					controllerutil.RemoveFinalizer(&object, finalizer)
					return reconcile.Result{}, c.Update(ctx, &object)
				}
				if controllerutil.AddFinalizer(&object, finalizer) {
					return reconcile.Result{}, c.Update(ctx, &object)
				}
				secret := coreapply.Secret(object.Name, object.Namespace).WithStringData(object.Data)
				reference := metav1.NewControllerRef(&object, corev1.SchemeGroupVersion.WithKind("ConfigMap"))
				secret.WithOwnerReferences(ownerReference(reference))
				return reconcile.Result{}, c.Apply(ctx, secret, client.FieldOwner("owner"), client.ForceOwnership)
			}))
	})
	if err != nil {
		return err
	}
	if _, err := p.configMap("a", map[string]string{"own": "yes"}); err != nil {
		return err
	}
	key := types.NamespacedName{Namespace: p.namespace, Name: "a"}
	var first, second corev1.Secret
	made := func(secret *corev1.Secret, before types.UID) func() bool {
		return func() bool { return m.GetAPIReader().Get(p, key, secret) == nil && secret.UID != before }
	}
	if err := p.until(made(&first, "")); err != nil {
		return err
	}
	if err := m.GetClient().Delete(p, first.DeepCopy()); err != nil {
		return err
	}
	if err := p.until(made(&second, first.UID)); err != nil {
		return err
	}
	maps := p.client.CoreV1().ConfigMaps(p.namespace)
	if err := maps.Delete(p, "a", metav1.DeleteOptions{}); err != nil {
		return err
	}
	err = p.until(func() bool {
		_, err := maps.Get(p, "a", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	if err != nil {
		return err
	}
	if err := expect(cleaned.Load(), "the finalizer ran"); err != nil {
		return err
	}
	return p.until(func() bool { return apierrors.IsNotFound(m.GetAPIReader().Get(p, key, &corev1.Secret{})) })
}

func ownerReference(reference *metav1.OwnerReference) *metaapply.OwnerReferenceApplyConfiguration {
	return metaapply.OwnerReference().WithAPIVersion(reference.APIVersion).WithKind(reference.Kind).
		WithName(reference.Name).WithUID(reference.UID).WithController(true).WithBlockOwnerDeletion(true)
}
