package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	clientmetadata "k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/apply/budget"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
)

// cluster is a connection.
type cluster struct {
	host, namespace string
	known           discovery.DiscoveryInterface
	mapper          meta.ResettableRESTMapper
	metadata        clientmetadata.Interface
	objects         dynamic.Interface
}

// connect reads the kubeconfig. It sends nothing. Requests end with ctx.
func (o *options) connect(ctx context.Context, stderr io.Writer) (*cluster, error) {
	klog.SetLogger(logr.Discard()) // the errors of watches are in the results
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: o.context}
	overrides.Context.Namespace = o.namespace
	access := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
	raw, err := access.RawConfig()
	if err == nil && o.context != "" && raw.Contexts[o.context] == nil {
		names := strings.Join(slices.Sorted(maps.Keys(raw.Contexts)), ", ")
		return nil, program.Usagef("--context: is %q, must be one of the kubeconfig: %s", o.context, names)
	}
	var config *rest.Config
	if err == nil {
		config, err = access.ClientConfig()
	}
	if err != nil {
		return nil, program.Usagef("--kubeconfig: %w", unconfigured(rules, err))
	}
	namespace, _, err := access.Namespace()
	if err != nil {
		return nil, program.Usagef("--kubeconfig: %v", err)
	}
	if o.transport != nil {
		config.Transport = o.transport
	}
	config.QPS = -1
	config.UserAgent = "trueup/" + program.Version()
	config.Wrap((&budget.Budget{}).Wrap)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return bound{ctx, o.timeout, next} })
	config.WarningHandler = rest.NoWarnings{} // of the kinds that are only listed
	c := &cluster{host: config.Host, namespace: namespace}
	web, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, program.Usagef("--kubeconfig: %v", err)
	}
	known, noDiscovery := discovery.NewDiscoveryClientForConfigAndClient(config, web)
	metadata, noMetadata := clientmetadata.NewForConfigAndClient(config, web)
	config.WarningHandler = rest.NewWarningWriter(stderr, rest.WarningWriterOptions{Deduplicate: true})
	objects, noObjects := dynamic.NewForConfigAndClient(config, web)
	if err := errors.Join(noDiscovery, noMetadata, noObjects); err != nil {
		return nil, program.Usagef("--kubeconfig: %v", err)
	}
	c.known, c.metadata, c.objects = known, metadata, objects
	c.mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(known))
	return c, nil
}

// unconfigured returns the error of a kubeconfig, with the files that are not there: that of an empty
// configuration names none.
func unconfigured(rules *clientcmd.ClientConfigLoadingRules, err error) error {
	if !clientcmd.IsEmptyConfig(err) {
		return err
	}
	var missing []string
	for _, path := range rules.GetLoadingPrecedence() {
		if _, absent := os.Stat(path); absent != nil {
			missing = append(missing, absent.Error())
		}
	}
	if len(missing) == 0 {
		return err
	}
	return fmt.Errorf("names no cluster: %s", strings.Join(missing, ", "))
}

// bound ends each request with the process, also a request of discovery, which has no context.
// All requests but watches also end after the timeout.
type bound struct {
	ctx     context.Context //nolint:containedctx // of the process
	timeout time.Duration
	next    http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (b bound) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx := r.Context() //nolint:contextcheck // a request without a context has the one of the process
	if ctx.Done() == nil {
		ctx = b.ctx
	}
	if r.URL.Query().Has("watch") {
		return b.next.RoundTrip(r.WithContext(ctx))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, b.timeout, fmt.Errorf("no answer within %v (--timeout)", b.timeout))
	answer, err := b.next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
			err = cause
		}
		cancel()
		return nil, err
	}
	answer.Body = ending{answer.Body, cancel}
	return answer, nil
}

// ending is a body with which the time of its request ends.
type ending struct {
	io.ReadCloser

	cancel context.CancelFunc
}

// Close implements io.Closer.
func (e ending) Close() error {
	defer e.cancel()
	return e.ReadCloser.Close()
}

// parent is the ConfigMap that stands for a set.
func (c *cluster) parent(set string) apply.ID {
	return apply.ID{Kind: "ConfigMap", Namespace: c.namespace, Name: "trueup-" + set}
}

// uid returns the identity of the cluster, "" if it cannot be read: the UID of a namespace
// that each cluster has, and that nothing makes again.
func (c *cluster) uid(ctx context.Context) (string, error) {
	found, err := c.one(ctx, schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, "", "kube-system")
	if apierrors.IsForbidden(err) || err == nil && found == nil {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return string(found.UID), nil
}

// one returns the metadata of an object, nil if there is none.
func (c *cluster) one(
	ctx context.Context, resource schema.GroupVersionResource, namespace, name string,
) (*metav1.PartialObjectMetadata, error) {
	list, err := c.metadata.Resource(resource).Namespace(namespace).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil || len(list.Items) == 0 {
		return nil, err
	}
	return &list.Items[0], nil
}
