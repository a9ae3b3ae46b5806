// Package freehold runs controllers of sigs.k8s.io/controller-runtime over all consumers of an APIExport of Freehold.
//
// A [Provider] has one list and one watch of each type that a controller wants, whatever the number of consumers. Requests
// name the consumer besides the object, as those of sigs.k8s.io/multicluster-runtime do, and [Provider.Cluster] has a client
// for one consumer, which reads watched types from memory.
package freehold

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// ProjectAnnotation names the consumer's project on each object that a provider's view shows.
const ProjectAnnotation = "resourcemanager.freehold.dev/project"

// Request names an object of one consumer.
type Request struct {
	reconcile.Request
	// ClusterName is the consumer's project.
	ClusterName string
}

// String returns the consumer and the object, for logs.
func (r Request) String() string { return r.ClusterName + "|" + r.Request.String() }

// Reconciler reconciles objects of consumers.
type Reconciler = reconcile.TypedReconciler[Request]

// Options of a provider. The zero value is complete.
type Options struct {
	// Scheme has the Go types that controllers use. Default: client-go's. Unstructured objects need no entry.
	Scheme *runtime.Scheme
	// ClusterAnnotation names the consumer on each object. Default: [ProjectAnnotation].
	ClusterAnnotation string
}

// Provider gives access to all consumers of one APIExport. Its methods may be called concurrently.
type Provider struct {
	config     *rest.Config
	http       *http.Client
	scheme     *runtime.Scheme
	mapper     meta.RESTMapper
	annotation string
	all        client.WithWatch

	mu        sync.Mutex
	informers map[schema.GroupVersionKind]*informer
	clusters  map[string]client.Client
}

// New returns a provider for an export of a project. The address in config is the server's, without a path.
func New(config *rest.Config, project, export string, options Options) (*Provider, error) {
	if project == "" || export == "" {
		return nil, errors.New("freehold: a provider needs a project and an export")
	}
	view, err := viewConfig(config, project, export)
	if err != nil {
		return nil, err
	}
	if options.Scheme == nil {
		options.Scheme = scheme.Scheme
	}
	if options.ClusterAnnotation == "" {
		options.ClusterAnnotation = ProjectAnnotation
	}
	shared, err := rest.HTTPClientFor(view)
	if err != nil {
		return nil, fmt.Errorf("freehold: %w", err)
	}
	p := &Provider{
		config: view, http: shared, scheme: options.Scheme, annotation: options.ClusterAnnotation,
		informers: map[schema.GroupVersionKind]*informer{}, clusters: map[string]client.Client{},
	}
	wildcard := p.configFor("*")
	if p.mapper, err = apiutil.NewDynamicRESTMapper(wildcard, shared); err != nil {
		return nil, fmt.Errorf("freehold: discovery of the export: %w", err)
	}
	all, err := client.NewWithWatch(wildcard, client.Options{HTTPClient: shared, Scheme: p.scheme, Mapper: p.mapper})
	if err != nil {
		return nil, fmt.Errorf("freehold: %w", err)
	}
	p.all = all
	return p, nil
}

// viewConfig points a configuration at the provider's view of an export.
func viewConfig(config *rest.Config, project, export string) (*rest.Config, error) {
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("freehold: address of the server: %w", err)
	}
	base.Path = "/services/apiexports/" + project + "/" + export
	view := rest.CopyConfig(config)
	view.Host = base.String()
	return view, nil
}

func (p *Provider) configFor(cluster string) *rest.Config {
	config := rest.CopyConfig(p.config)
	config.Host += "/clusters/" + cluster
	return config
}

// Config returns the configuration of the view over all consumers, for a manager.
func (p *Provider) Config() *rest.Config { return p.configFor("*") }

// Cluster returns the client for one consumer, by the name in [Request.ClusterName]. Reads of types that are watched come
// from memory; everything else asks the server.
func (p *Provider) Cluster(name string) (client.Client, error) {
	if name == "" || name == "*" {
		return nil, fmt.Errorf("freehold: %q is no consumer", name)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if known, ok := p.clusters[name]; ok {
		return known, nil
	}
	options := client.Options{HTTPClient: p.http, Scheme: p.scheme, Mapper: p.mapper}
	live, err := client.New(p.configFor(name), options)
	if err != nil {
		return nil, fmt.Errorf("freehold: client for %q: %w", name, err)
	}
	made := &clusterClient{Client: live, provider: p, cluster: name}
	p.clusters[name] = made
	return made, nil
}

// Clusters returns the names of consumers that have objects of a watched type.
func (p *Provider) Clusters(object client.Object) ([]string, error) {
	watched, err := p.watched(object)
	if err != nil || watched == nil {
		return nil, err
	}
	return watched.indexer.ListIndexFuncValues(byCluster), nil
}

// informerFor returns the one informer of a type, started at its first use until ctx ends.
func (p *Provider) informerFor(ctx context.Context, object client.Object) (*informer, error) {
	gvk, err := apiutil.GVKForObject(object, p.scheme)
	if err != nil {
		return nil, fmt.Errorf("freehold: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if known, ok := p.informers[gvk]; ok {
		return known, nil
	}
	started, err := startInformer(ctx, p, gvk, object)
	if err == nil {
		p.informers[gvk] = started
	}
	return started, err
}

// watched returns the informer of an object's type, nil where the type is not watched.
func (p *Provider) watched(object runtime.Object) (*informer, error) {
	gvk, err := apiutil.GVKForObject(object, p.scheme)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.informers[gvk], nil
}
