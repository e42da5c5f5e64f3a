package apply //nolint:testpackage // views show what a test gives them

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	clientmetadata "k8s.io/client-go/metadata"
)

// stage is an Applier whose views show what a test gives them, and no watch. Its
// server takes deletions and patches, and serves lists.
type stage struct {
	*Applier

	t       *testing.T
	version int // of what was shown last

	mu      sync.Mutex // of what follows: the Applier works on several objects at a time
	deleted []string
	patched []string
	bodies  []string // of the patches
	listed  []string // each list: namespace, resource, selector
	// deletes answers a deletion, lists a list; nil: with success, and with nothing.
	// patches answers a patch with an error; nil: with success.
	deletes func(name string, options metav1.DeleteOptions) error
	patches func(resource, name string) error
	lists   func(resource string, options metav1.ListOptions) (*metav1.PartialObjectMetadataList, error)
	silent  string // the resource whose lists are not answered
	// gets answers a get in a namespace; nil: with not found.
	gets func(namespace string) (*metav1.PartialObjectMetadata, error)
	// definitions answers a list of definitions; nil: as lists.
	definitions func(metav1.ListOptions) (*metav1.PartialObjectMetadataList, error)
}

// program owns what the stages show.
var program = Owner{Manager: "me", Labels: map[string]string{"owner": "me"}, Domain: "example.com"}

// newStage returns a stage on which these kinds are seen and empty.
func newStage(t *testing.T, owner Owner, kinds ...schema.GroupKind) *stage {
	t.Helper()
	s := &stage{t: t, version: 100}
	var groups []schema.GroupVersion
	for _, kind := range kinds {
		groups = append(groups, schema.GroupVersion{Group: kind.Group, Version: "v1"})
	}
	mapper := meta.NewDefaultRESTMapper(groups)
	for _, kind := range kinds {
		scope := meta.RESTScopeNamespace
		if isNamespace(kind) || isDefinition(kind) {
			scope = meta.RESTScopeRoot
		}
		mapper.Add(kind.WithVersion("v1"), scope)
	}
	s.Applier = &Applier{Live: &Live{Client: client{s}, Mapper: mapper, Owner: owner}}
	require.NoError(t, s.Live.prepare())
	for _, kind := range kinds {
		s.see(kind)
	}
	return s
}

// see lists a kind as empty.
func (s *stage) see(kind schema.GroupKind) {
	s.t.Helper()
	w := s.Live.registry.kinds[kind]
	if w == nil {
		w = s.Live.registry.add(kind, "")
	}
	mapping, err := s.Live.Mapper.RESTMapping(kind)
	require.NoError(s.t, err)
	w.view.Serve(mapping, nil)
	require.NoError(s.t, w.view.Sink("").Replace(nil, "10"))
}

// fails begins to watch a kind that the server does not list. It returns when that is
// known, unless the kind was seen before. end ends the watch.
func (s *stage) fails(kind schema.GroupKind) (end func()) {
	s.t.Helper()
	return s.failsWith(kind, apierrors.NewForbidden(schema.GroupResource{Resource: kind.Kind}, "", nil))
}

func (s *stage) failsWith(kind schema.GroupKind, err error) (end func()) {
	s.t.Helper()
	s.lists = func(string, metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) { return nil, err }
	w := s.Live.registry.kinds[kind]
	ctx, cancel := context.WithCancel(logr.NewContext(s.t.Context(), logr.Discard()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.view.Watch(ctx, s.Live.source(w))
	}()
	attempted, _ := w.view.Attempted()
	<-attempted
	return func() {
		cancel()
		<-done
	}
}

// show makes an object of ours the newest state that its view shows, changed first.
func (s *stage) show(id ID, change func(*metav1.PartialObjectMetadata)) *metav1.PartialObjectMetadata {
	s.t.Helper()
	s.version++
	m := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: id.Name, Namespace: id.Namespace, UID: types.UID("uid of " + id.String()), ResourceVersion: strconv.Itoa(s.version),
		Labels: map[string]string{"owner": "me"},
		ManagedFields: []metav1.ManagedFieldsEntry{{
			Manager: "me", Operation: metav1.ManagedFieldsOperationApply, APIVersion: "v1", FieldsType: "FieldsV1",
			FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:data":{"f:k":{}}}`)},
		}},
	}}
	if change != nil {
		change(m)
	}
	require.NoError(s.t, s.Live.registry.view(id.GroupKind()).Sink("").Put(m))
	return m
}

// set returns a set of objects without content.
func (s *stage) set(options SetOptions, ids ...ID) *Set {
	s.t.Helper()
	var objects []*unstructured.Unstructured
	for _, id := range ids {
		o := &unstructured.Unstructured{Object: map[string]any{}}
		o.SetGroupVersionKind(id.GroupKind().WithVersion("v1"))
		o.SetNamespace(id.Namespace)
		o.SetName(id.Name)
		objects = append(objects, o)
	}
	set, err := NewSet(s.Live.Owner, objects, options)
	require.NoError(s.t, err)
	return set
}

// client is the stage as a metadata client.
type client struct{ *stage }

func (c client) Resource(resource schema.GroupVersionResource) clientmetadata.Getter {
	return resourceOf{nil, c.stage, resource.Resource, ""}
}

type resourceOf struct {
	clientmetadata.Getter

	stage           *stage
	name, namespace string
}

func (r resourceOf) Namespace(namespace string) clientmetadata.ResourceInterface {
	r.namespace = namespace
	return r
}

func (r resourceOf) Delete(_ context.Context, name string, options metav1.DeleteOptions, _ ...string) error {
	r.stage.mu.Lock()
	r.stage.deleted = append(r.stage.deleted, r.name+" "+name)
	r.stage.mu.Unlock()
	if r.stage.deletes == nil {
		return nil
	}
	return r.stage.deletes(name, options)
}

func (r resourceOf) Patch(
	_ context.Context,
	name string,
	_ types.PatchType,
	data []byte,
	_ metav1.PatchOptions,
	_ ...string,
) (*metav1.PartialObjectMetadata, error) {
	r.stage.mu.Lock()
	r.stage.patched, r.stage.bodies = append(r.stage.patched, r.name+" "+name), append(r.stage.bodies, string(data))
	r.stage.mu.Unlock()
	if r.stage.patches != nil {
		if err := r.stage.patches(r.name, name); err != nil {
			return nil, err
		}
	}
	m := &metav1.PartialObjectMetadata{}
	if r.stage.patches != nil { // only then the view takes the answer
		defer func() { m.UID = types.UID("uid of " + name) }()
	}
	return m, json.Unmarshal(data, m)
}

func (r resourceOf) Get(_ context.Context, name string, _ metav1.GetOptions, _ ...string) (*metav1.PartialObjectMetadata, error) {
	if r.stage.gets != nil {
		return r.stage.gets(r.namespace)
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: r.name}, name)
}

func (r resourceOf) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	_, err := r.List(ctx, options)
	return watch.NewFake(), err
}

func (r resourceOf) List(ctx context.Context, options metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	r.stage.mu.Lock()
	r.stage.listed = append(r.stage.listed, strings.Join([]string{r.namespace, r.name, options.LabelSelector}, " "))
	r.stage.mu.Unlock()
	if r.name == r.stage.silent {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if r.name == "customresourcedefinitions" && r.stage.definitions != nil {
		return r.stage.definitions(options)
	}
	if r.stage.lists == nil {
		return &metav1.PartialObjectMetadataList{}, nil
	}
	return r.stage.lists(r.name, options)
}

var (
	configMapKind = schema.GroupKind{Kind: "ConfigMap"}
	secretKind    = schema.GroupKind{Kind: "Secret"}
	namespaceKind = schema.GroupKind{Kind: "Namespace"}
	crdKind       = schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}
	widgetKind    = schema.GroupKind{Group: "example.com", Kind: "Widget"}
)

func mapID(name string) ID { return ID{Kind: "ConfigMap", Namespace: "shop", Name: name} }
