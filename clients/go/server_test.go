package freehold_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// world is a running server with a provider that exports databases, and its consumers.
type world struct {
	t         *testing.T
	admin     *rest.Config
	consumers []string
}

var ready = regexp.MustCompile(`^ready url=\S+ kubeconfig=(\S+)`)

// start runs `freehold up` in a folder of its own until the test ends.
func start(t *testing.T) *world {
	t.Helper()
	program := os.Getenv("FREEHOLD_BIN")
	if program == "" {
		t.Skip("FREEHOLD_BIN names no program")
	}
	server := exec.Command(program, "up", "--data-dir", t.TempDir(), "--listen", "127.0.0.1:0")
	server.Stderr = os.Stderr
	out, err := server.StdoutPipe()
	must(t, err)
	must(t, server.Start())
	t.Cleanup(func() {
		_ = server.Process.Signal(syscall.SIGTERM)
		_ = server.Wait()
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if found := ready.FindStringSubmatch(lines.Text()); found != nil {
			go func() {
				for lines.Scan() {
				}
			}()
			admin, err := clientcmd.BuildConfigFromFlags("", found[1])
			must(t, err)
			admin.QPS = -1
			return &world{t: t, admin: admin}
		}
	}
	t.Fatal("the server ended before it was ready")
	return nil
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// in returns a client below a path of the server.
func (w *world) in(path string) client.Client {
	w.t.Helper()
	config := rest.CopyConfig(w.admin)
	config.Host += path
	made, err := client.New(config, client.Options{})
	must(w.t, err)
	return made
}

func object(apiVersion, kind, namespace, name string, spec map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind, "spec": spec}}
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

const manager = "resourcemanager.freehold.dev/v1alpha1"

func organization(name string) *unstructured.Unstructured {
	return object(manager, "Organization", "", name, map[string]any{"type": "Standard"})
}

func project(name, owner string) *unstructured.Unstructured {
	return object(manager, "Project", "", name, map[string]any{
		"ownerRef": map[string]any{"kind": "Organization", "name": owner},
	})
}

func database(name string) *unstructured.Unstructured {
	return object("db.example.com/v1", "Database", "default", name, map[string]any{"size": int64(1)})
}

// eventually repeats what fails until it succeeds.
func (w *world) eventually(what string, try func() error) {
	w.t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("%s: %v", what, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// publish makes the provider's project and its export.
func (w *world) publish(ctx context.Context) {
	core := w.in("")
	for _, name := range []string{"databases-inc", "shops-inc"} {
		must(w.t, core.Create(ctx, organization(name)))
	}
	w.eventually("the provider's project", func() error {
		return client.IgnoreAlreadyExists(core.Create(ctx, project("dbaas", "databases-inc")))
	})
	properties := map[string]any{
		"spec":   map[string]any{"type": "object", "properties": map[string]any{"size": map[string]any{"type": "integer"}}},
		"status": map[string]any{"type": "object", "properties": map[string]any{"phase": map[string]any{"type": "string"}}},
	}
	schema := object("apis.freehold.dev/v1alpha1", "APIResourceSchema", "", "v1.databases.db.example.com", map[string]any{
		"group": "db.example.com", "scope": "Namespaced", "names": map[string]any{"plural": "databases", "kind": "Database"},
		"versions": []any{map[string]any{
			"name": "v1", "served": true, "storage": true, "subresources": map[string]any{"status": map[string]any{}},
			"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "properties": properties}},
		}},
	})
	export := object("apis.freehold.dev/v1alpha1", "APIExport", "", "postgres", map[string]any{
		"schemas":   []any{"v1.databases.db.example.com"},
		"consumers": map[string]any{"organizations": []any{"shops-inc"}},
	})
	w.eventually("the export", func() error {
		provider := w.in("/projects/dbaas")
		if err := client.IgnoreAlreadyExists(provider.Create(ctx, schema.DeepCopy())); err != nil {
			return err
		}
		return client.IgnoreAlreadyExists(provider.Create(ctx, export.DeepCopy()))
	})
}

// consume makes a project that binds the export and has a database of the name that all have.
func (w *world) consume(ctx context.Context, name string) error {
	if err := w.in("").Create(ctx, project(name, "shops-inc")); err != nil {
		return err
	}
	binding := object("apis.freehold.dev/v1alpha1", "APIBinding", "", "postgres", map[string]any{
		"export": map[string]any{"project": "dbaas", "name": "postgres"},
	})
	for _, one := range []*unstructured.Unstructured{binding, database("orders")} {
		w.eventually(name, func() error {
			config := rest.CopyConfig(w.admin)
			config.Host += "/projects/" + name
			in, err := client.New(config, client.Options{})
			if err != nil {
				return err
			}
			return client.IgnoreAlreadyExists(in.Create(ctx, one.DeepCopy()))
		})
	}
	return nil
}

// watches counts the watches of databases that the server serves.
func (w *world) watches(ctx context.Context) int {
	w.t.Helper()
	http, err := rest.HTTPClientFor(w.admin)
	must(w.t, err)
	answer, err := http.Get(w.admin.Host + "/metrics")
	must(w.t, err)
	defer answer.Body.Close()
	total := 0
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		line := lines.Text()
		if !strings.HasPrefix(line, "apiserver_longrunning_requests{") || !strings.Contains(line, `resource="databases"`) {
			continue
		}
		count, err := strconv.Atoi(line[strings.LastIndexByte(line, ' ')+1:])
		must(w.t, err)
		total += count
	}
	return total
}

// consumerNames returns as many names as FREEHOLD_CONSUMERS says, 50 otherwise.
func consumerNames(t *testing.T) []string {
	count := 50
	if set := os.Getenv("FREEHOLD_CONSUMERS"); set != "" {
		var err error
		count, err = strconv.Atoi(set)
		must(t, err)
	}
	names := make([]string, count)
	for i := range names {
		names[i] = fmt.Sprintf("shop-%04d", i)
	}
	return names
}
