package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const mediaType = "application/vnd.kubernetes.protobuf"

type checker struct {
	ctx    context.Context
	config *rest.Config
	client *kubernetes.Clientset
	failed int
}

// check runs everything and fails at the end, so that one run shows all that is wrong.
func check(kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 1000, 1000
	config.ContentType = mediaType
	config.AcceptContentTypes = mediaType
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	c := &checker{ctx: ctx, config: config, client: client}
	for _, step := range []func() error{c.objects, c.typed, c.watches, c.errors, c.metadata} {
		c.note(step())
	}
	if c.failed > 0 {
		return fmt.Errorf("%d checks failed", c.failed)
	}
	return nil
}

func (c *checker) note(err error) {
	if err != nil {
		c.failed++
		fmt.Fprintln(os.Stderr, err)
	}
}

// objects makes one object of each kind that discovery tells of where the suite has one, and compares list and get.
func (c *checker) objects() error {
	lists, err := c.client.Discovery().ServerPreferredResources()
	if err != nil {
		return err
	}
	kinds := 0
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return err
		}
		for _, resource := range list.APIResources {
			kind := gv.WithKind(resource.Kind)
			if strings.Contains(resource.Name, "/") || !types.Recognizes(kind) || !has(resource.Verbs, "list") {
				continue
			}
			root := "/apis/" + gv.String()
			if gv.Group == "" {
				root = "/api/" + gv.Version
			}
			kinds++
			c.note(c.make(root, resource, kind))
			c.note(c.compare(root + "/" + resource.Name))
			c.note(c.compareTable(root + "/" + resource.Name))
		}
	}
	fmt.Printf("%d kinds\n", kinds)
	if kinds < 40 {
		return fmt.Errorf("only %d kinds were found", kinds)
	}
	return nil
}

func has(verbs []string, verb string) bool {
	for _, v := range verbs {
		if v == verb {
			return true
		}
	}
	return false
}

// make creates an object in protobuf and reads it back, where the suite knows a valid one.
func (c *checker) make(root string, resource metav1.APIResource, kind schema.GroupVersionKind) error {
	text, known := examples[kind.Kind]
	if !known {
		return nil
	}
	object, err := types.New(kind)
	if err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(text), object); err != nil {
		return fmt.Errorf("%v: %w", kind, err)
	}
	object.GetObjectKind().SetGroupVersionKind(kind)
	var body bytes.Buffer
	if err := binary.Encode(object, &body); err != nil {
		return err
	}
	path := root + "/" + resource.Name
	if resource.Namespaced {
		path = root + "/namespaces/default/" + resource.Name
	}
	answer := c.client.RESTClient().Post().AbsPath(path).SetHeader("Content-Type", mediaType).
		SetHeader("Accept", mediaType).Body(body.Bytes()).Do(c.ctx)
	if err := answer.Error(); err != nil && !errors.IsAlreadyExists(err) {
		return fmt.Errorf("create of %v: %w", kind, err)
	}
	made, err := meta.Accessor(object)
	if err != nil {
		return err
	}
	return c.compare(path + "/" + made.GetName())
}

func (c *checker) read(path, accept string) ([]byte, string, error) {
	var contentType string
	result := c.client.RESTClient().Get().AbsPath(path).SetHeader("Accept", accept).Do(c.ctx).ContentType(&contentType)
	raw, err := result.Raw()
	if err != nil {
		return nil, "", fmt.Errorf("get of %s as %s: %w: %s", path, accept, err, raw)
	}
	return raw, contentType, nil
}

// compare reads a path in both encodings: the decoded objects must be equal.
func (c *checker) compare(path string) error {
	raw, contentType, err := c.read(path, mediaType)
	if err != nil {
		return err
	}
	if contentType != mediaType {
		return fmt.Errorf("%s came as %q", path, contentType)
	}
	text, _, err := c.read(path, "application/json")
	if err != nil {
		return err
	}
	fromBinary, kind, err := binary.Decode(raw, nil, nil)
	if err != nil {
		return fmt.Errorf("%s in protobuf: %w", path, err)
	}
	fromText, err := types.New(*kind)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, fromText); err != nil {
		return fmt.Errorf("%s in JSON: %w", path, err)
	}
	clear(fromBinary)
	clear(fromText)
	if !equality.Semantic.DeepEqual(fromBinary, fromText) {
		return fmt.Errorf("%s differs\n  protobuf %#v\n  JSON     %s", path, fromBinary, text)
	}
	return nil
}

// clear forgets what protobuf has no room for: the kinds of a list's items.
func clear(object runtime.Object) {
	object.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	items, err := meta.ExtractList(object)
	if err != nil {
		return
	}
	for _, item := range items {
		item.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	}
}

// compareTable checks that Tables fall back to JSON.
func (c *checker) compareTable(path string) error {
	accept := mediaType + ";as=Table;v=v1;g=meta.k8s.io, application/json;as=Table;v=v1;g=meta.k8s.io"
	raw, contentType, err := c.read(path, accept)
	if err != nil {
		return err
	}
	var table metav1.Table
	if err := json.Unmarshal(raw, &table); err != nil || table.Kind != "Table" || contentType != "application/json" {
		return fmt.Errorf("%s as Table came as %q: %v", path, contentType, err)
	}
	return nil
}

// typed uses client-go's typed client, as controllers do.
func (c *checker) typed() error {
	maps := c.client.CoreV1().ConfigMaps("default")
	made, err := maps.Create(c.ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "typed-", Labels: map[string]string{"a": ""}},
		Data:       map[string]string{"k": "ü\n"}, BinaryData: map[string][]byte{"b": {0, 255}},
	}, metav1.CreateOptions{FieldManager: "wire"})
	if err != nil {
		return err
	}
	made.Data["k"] = ""
	changed, err := maps.Update(c.ctx, made, metav1.UpdateOptions{})
	if err != nil {
		return err
	}
	if value, there := changed.Data["k"]; !there || value != "" || len(changed.ManagedFields) == 0 {
		return fmt.Errorf("an update came back as %v", changed)
	}
	return maps.Delete(c.ctx, made.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(made.UID))})
}

// watches follows one object through its life, in protobuf.
func (c *checker) watches() error {
	maps := c.client.CoreV1().ConfigMaps("default")
	watcher, err := maps.Watch(c.ctx, metav1.ListOptions{FieldSelector: "metadata.name=watched", AllowWatchBookmarks: true,
		SendInitialEvents: ptr(true), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan})
	if err != nil {
		return err
	}
	defer watcher.Stop()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "watched"}, Data: map[string]string{"a": "1"}}
	if object, err = maps.Create(c.ctx, object, metav1.CreateOptions{}); err != nil {
		return err
	}
	object.Data["a"] = "2"
	if _, err = maps.Update(c.ctx, object, metav1.UpdateOptions{}); err != nil {
		return err
	}
	if err = maps.Delete(c.ctx, "watched", metav1.DeleteOptions{}); err != nil {
		return err
	}
	for _, expected := range []watch.EventType{watch.Bookmark, watch.Added, watch.Modified, watch.Deleted} {
		event := <-watcher.ResultChan()
		seen, ok := event.Object.(*corev1.ConfigMap)
		if event.Type != expected || !ok {
			return fmt.Errorf("expected %s, got %#v", expected, event)
		}
		if expected == watch.Bookmark && seen.Annotations[metav1.InitialEventsAnnotationKey] != "true" {
			return fmt.Errorf("the bookmark ends nothing: %#v", seen)
		}
		if expected == watch.Modified && seen.Data["a"] != "2" {
			return fmt.Errorf("a change came as %#v", seen)
		}
	}
	return nil
}

// errors come as Status in protobuf, in answers and in watches.
func (c *checker) errors() error {
	maps := c.client.CoreV1().ConfigMaps("default")
	if _, err := maps.Get(c.ctx, "absent", metav1.GetOptions{}); !errors.IsNotFound(err) {
		return fmt.Errorf("a missing object gives %v", err)
	}
	_, err := maps.Create(c.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "Not Valid"}}, metav1.CreateOptions{})
	if !errors.IsInvalid(err) || len(err.(*errors.StatusError).ErrStatus.Details.Causes) == 0 {
		return fmt.Errorf("an invalid object gives %v", err)
	}
	watcher, err := maps.Watch(c.ctx, metav1.ListOptions{ResourceVersion: "1"})
	if err == nil {
		event := <-watcher.ResultChan()
		err = errors.FromObject(event.Object)
		watcher.Stop()
	}
	if !errors.IsResourceExpired(err) && !errors.IsGone(err) {
		return fmt.Errorf("a watch from the first revision gives %v", err)
	}
	return nil
}

// metadata reads PartialObjectMetadata, in protobuf for custom resources too.
func (c *checker) metadata() error {
	client, err := metadata.NewForConfig(c.config)
	if err != nil {
		return err
	}
	list, err := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).List(c.ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	if len(list.Items) < 4 || list.Items[0].Name == "" || list.Items[0].UID == "" {
		return fmt.Errorf("metadata of namespaces came as %#v", list)
	}
	return nil
}

func ptr[T any](value T) *T { return &value }
