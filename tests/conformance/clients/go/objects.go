package main

import (
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	appsapply "k8s.io/client-go/applyconfigurations/apps/v1"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"
	metaapply "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/pager"
	"k8s.io/client-go/util/retry"
)

func pod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "blog"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "blog", Image: "registry.example/blog:1"}}},
	}
}

// contentTypes writes and reads with each encoding, which agree.
func contentTypes(p place) error {
	var seen []string
	for _, content := range []string{"application/vnd.kubernetes.protobuf", "application/json"} {
		config := rest.CopyConfig(p.config)
		config.ContentType, config.AcceptContentTypes = content, content
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return err
		}
		pods := client.CoreV1().Pods(p.namespace)
		if _, err := pods.Create(p, pod(fmt.Sprintf("pod-%d", len(seen))), metav1.CreateOptions{}); err != nil {
			return err
		}
		read, err := pods.Get(p, "pod-0", metav1.GetOptions{})
		if err != nil {
			return err
		}
		text, err := json.Marshal(read)
		if err != nil {
			return err
		}
		seen = append(seen, string(text))
		bad := pod("Not A Name")
		_, err = pods.Create(p, bad, metav1.CreateOptions{})
		if !apierrors.IsInvalid(err) {
			return fmt.Errorf("%s: %v", content, err)
		}
	}
	return expect(seen[0] == seen[1], "the encodings differ", seen)
}

// applied changes a Deployment as two managers.
func applied(p place) error {
	deployments := p.client.AppsV1().Deployments(p.namespace)
	labels := map[string]string{"app": "web"}
	deployment := func(image string) *appsapply.DeploymentApplyConfiguration {
		container := coreapply.Container().WithName("web").WithImage(image)
		template := coreapply.PodTemplateSpec().WithLabels(labels).WithSpec(coreapply.PodSpec().WithContainers(container))
		spec := appsapply.DeploymentSpec().WithTemplate(template).WithSelector(metaapply.LabelSelector().WithMatchLabels(labels))
		return appsapply.Deployment("web", p.namespace).WithSpec(spec)
	}
	one := metav1.ApplyOptions{FieldManager: "one"}
	if _, err := deployments.Apply(p, deployment("web:1"), one); err != nil {
		return err
	}
	_, err := deployments.Apply(p, deployment("web:2"), metav1.ApplyOptions{FieldManager: "two"})
	if !apierrors.IsConflict(err) {
		return fmt.Errorf("a conflict was expected, not %v", err)
	}
	forced, err := deployments.Apply(p, deployment("web:2"), metav1.ApplyOptions{FieldManager: "two", Force: true})
	if err != nil {
		return err
	}
	extracted, err := appsapply.ExtractDeployment(forced, "one")
	if err != nil {
		return err
	}
	container := extracted.Spec.Template.Spec.Containers[0]
	return expect(container.Image == nil && *container.Name == "web", "what the first one owns", container)
}

// conflicts has several write the same object at once.
func conflicts(p place) error {
	if _, err := p.configMap("counter", nil); err != nil {
		return err
	}
	maps := p.client.CoreV1().ConfigMaps(p.namespace)
	outcomes := make(chan error)
	for worker := range 4 {
		go func() {
			outcomes <- retry.RetryOnConflict(retry.DefaultBackoff, func() error {
				counter, err := maps.Get(p, "counter", metav1.GetOptions{})
				if err != nil {
					return err
				}
				if counter.Data == nil {
					counter.Data = map[string]string{}
				}
				counter.Data[fmt.Sprint(worker)] = "was here"
				_, err = maps.Update(p, counter, metav1.UpdateOptions{})
				return err
			})
		}()
	}
	for range 4 {
		if err := <-outcomes; err != nil {
			return err
		}
	}
	counter, err := maps.Get(p, "counter", metav1.GetOptions{})
	if err != nil {
		return err
	}
	return expect(len(counter.Data) == 4, "all writes", counter.Data)
}

// pages follows continue tokens.
func pages(p place) error {
	for index := range 25 {
		if _, err := p.configMap(fmt.Sprintf("page-%02d", index), map[string]string{"page": "yes"}); err != nil {
			return err
		}
	}
	lists := pager.New(pager.SimplePageFunc(func(options metav1.ListOptions) (runtime.Object, error) {
		return p.client.CoreV1().ConfigMaps(p.namespace).List(p, options)
	}))
	lists.PageSize = 10
	count := 0
	err := lists.EachListItem(p, metav1.ListOptions{LabelSelector: "page=yes"}, func(runtime.Object) error {
		count++
		return nil
	})
	if err != nil {
		return err
	}
	return expect(count == 25, "items", count)
}

// discovered maps kinds to resources, from the aggregated documents.
func discovered(p place) error {
	discovery := memory.NewMemCacheClient(p.client.Discovery())
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(discovery)
	for kind, resource := range map[schema.GroupKind]string{
		{Kind: "Pod"}:                                  "pods",
		{Group: "apps", Kind: "StatefulSet"}:           "statefulsets",
		{Group: "policy", Kind: "PodDisruptionBudget"}: "poddisruptionbudgets",
	} {
		mapping, err := mapper.RESTMapping(kind)
		if err != nil {
			return err
		}
		if mapping.Resource.Resource != resource {
			return fmt.Errorf("%v is %v", kind, mapping.Resource)
		}
	}
	paths, err := p.client.Discovery().OpenAPIV3().Paths()
	if err != nil {
		return err
	}
	document, err := paths["apis/apps/v1"].Schema("application/json")
	if err != nil {
		return err
	}
	if err := expect(json.Valid(document), "OpenAPI 3"); err != nil {
		return err
	}
	old, err := p.client.Discovery().OpenAPISchema()
	if err != nil {
		return err
	}
	return expect(len(old.GetDefinitions().GetAdditionalProperties()) > 100, "OpenAPI 2 as protobuf")
}

// status writes through the subresource, which leaves the rest alone.
func status(p place) error {
	deployments := p.client.AppsV1().Deployments(p.namespace)
	labels := map[string]string{"app": "web"}
	made, err := deployments.Create(p, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Paused:   true,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod("").Spec},
		},
		Status: appsv1.DeploymentStatus{Replicas: 7},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if err := expect(made.Status.Replicas == 0 && *made.Spec.Replicas == 1, "made", made); err != nil {
		return err
	}
	patch := []byte(`{"status": {"collisionCount": 3}, "spec": {"replicas": 9}}`)
	patched, err := deployments.Patch(p, "web", types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return err
	}
	return expect(*patched.Status.CollisionCount == 3 && *patched.Spec.Replicas == 1, "patched", patched)
}
