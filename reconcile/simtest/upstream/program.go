package upstream

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// Program returns a Scenario.Program that gets the simulated server as a rest.Config,
// such as one that makes a Manager of controller-runtime with it and starts it.
func Program(run func(context.Context, *rest.Config) error) func(context.Context, http.RoundTripper) error {
	return func(ctx context.Context, net http.RoundTripper) error {
		return run(ctx, &rest.Config{Host: "http://simtest", Transport: net, QPS: -1})
	}
}

// Kinds returns the Scenario.Kinds of objects whose types are in a scheme. A kind has a
// subresource status if its type has a field of that name. It has no namespace if it is
// such a kind of Kubernetes, or begins with Cluster. The plural is the guess of
// meta.UnsafeGuessKindToResource.
func Kinds(scheme *runtime.Scheme, objects ...runtime.Object) ([]simtest.Kind, error) {
	var all []simtest.Kind
	for _, o := range objects {
		kinds, _, err := scheme.ObjectKinds(o)
		if err != nil {
			return nil, fmt.Errorf("upstream: %w", err)
		}
		plural, _ := meta.UnsafeGuessKindToResource(kinds[0])
		_, status := reflect.TypeOf(o).Elem().FieldByName("Status")
		all = append(all, simtest.Kind{
			Group: kinds[0].Group, Version: kinds[0].Version, Resource: plural.Resource, Kind: kinds[0].Kind, Status: status,
			Cluster: strings.HasPrefix(kinds[0].Kind, "Cluster") || slices.Contains(clusterWide, kinds[0].Kind),
		})
	}
	return all, nil
}

// Mapper returns a mapper of kinds that sends no request, such as for a Manager of
// controller-runtime (Options.MapperProvider). Its own holds a mutex during requests, and the
// virtual time stands still while a goroutine waits for a mutex.
func Mapper(kinds []simtest.Kind) meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, k := range kinds {
		version := schema.GroupVersion{Group: k.Group, Version: k.Version}
		scope := meta.RESTScopeNamespace
		if k.Cluster {
			scope = meta.RESTScopeRoot
		}
		singular := cmp.Or(k.Singular, strings.ToLower(k.Kind))
		mapper.AddSpecific(version.WithKind(k.Kind), version.WithResource(k.Resource), version.WithResource(singular), scope)
	}
	return mapper
}

// clusterWide are the kinds of Kubernetes without a namespace whose name does not begin
// with Cluster.
var clusterWide = []string{ //nolint:gochecknoglobals // never changed
	"APIService", "CSIDriver", "CSINode", "CertificateSigningRequest", "CustomResourceDefinition", "DeviceClass", "FlowSchema",
	"IPAddress", "IngressClass", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "MutatingWebhookConfiguration",
	"Namespace", "Node", "PersistentVolume", "PriorityClass", "PriorityLevelConfiguration", "ResourceSlice", "RuntimeClass",
	"ServiceCIDR", "StorageClass", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "ValidatingWebhookConfiguration",
	"VolumeAttachment",
}

// NewInformer makes an informer whose watches end with their reader, for the field of
// that name of the cache.Options of a Manager of controller-runtime. The watch of
// metadata that controller-runtime makes otherwise leaves a goroutine with an event that
// nothing reads, and a bubble does not allow that.
func NewInformer(
	from cache.ListerWatcher, example runtime.Object, resync time.Duration, indexers cache.Indexers,
) cache.SharedIndexInformer {
	inner := cache.ToListerWatcherWithContext(from)
	return cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: inner.ListWithContext,
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			w, err := inner.WatchWithContext(ctx, options)
			if err != nil {
				return nil, err
			}
			return drained{w}, nil
		},
	}, example, resync, indexers)
}

// drained is a watch whose events are read to its end once it is stopped.
type drained struct{ watch.Interface }

// Stop implements watch.Interface.
func (d drained) Stop() {
	d.Interface.Stop()
	go func() {
		for range d.ResultChan() {
		}
	}()
}
