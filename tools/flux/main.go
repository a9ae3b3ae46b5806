// Prints what Flux's kustomize-controller applies for a Kustomization, by the library that it builds and substitutes with.
//
//	flux-build SOURCE KUSTOMIZATION.yaml SECRET.yaml...
//
// SOURCE is the folder of the artifact, which is copied and not changed. Objects for spec.postBuild.substituteFrom are read from the
// files behind the Kustomization. Nothing is asked of a cluster. The controller's own labels and defaults are not added.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/fluxcd/pkg/kustomize"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"
)

func main() {
	if len(os.Args) < 3 {
		fail(fmt.Errorf("usage: flux-build SOURCE KUSTOMIZATION.yaml SECRET.yaml..."))
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		fail(err)
	}
}

func run(source, path string, secrets []string) error {
	var kustomization unstructured.Unstructured
	if err := read(path, &kustomization.Object); err != nil {
		return err
	}
	builder := fake.NewClientBuilder()
	for _, path := range secrets {
		var secret corev1.Secret
		if err := read(path, &secret); err != nil {
			return err
		}
		builder = builder.WithObjects(&secret)
	}
	root, err := os.MkdirTemp("", "flux-build-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(root)
	if err := os.CopyFS(root, os.DirFS(source)); err != nil {
		return err
	}
	folder, _, err := unstructured.NestedString(kustomization.Object, "spec", "path")
	if err != nil {
		return err
	}
	return build(root, filepath.Join(root, folder), kustomization, builder.Build())
}

func build(root, folder string, kustomization unstructured.Unstructured, cluster client.Client) error {
	if _, err := kustomize.NewGenerator(root, kustomization).WriteFile(folder); err != nil {
		return err
	}
	objects, err := kustomize.SecureBuild(root, folder, false)
	if err != nil {
		return err
	}
	for _, object := range objects.Resources() {
		// Strict: a variable without a value is a mistake of ours.
		substituted, err := kustomize.SubstituteVariables(
			context.Background(), cluster, kustomization, object, kustomize.SubstituteWithStrict(true))
		if err != nil {
			return fmt.Errorf("%s: %w", object.CurId(), err)
		}
		text, err := substituted.AsYAML()
		if err != nil {
			return err
		}
		fmt.Printf("---\n%s", text)
	}
	return nil
}

func read(path string, into any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := yaml.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "flux-build:", err)
	os.Exit(1)
}
