package apply_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/apply"
)

// exampleServer keeps ConfigMaps, just enough of it for examples to print the same
// each time. What is promised is tested on a real API server.
type exampleServer struct {
	mu      sync.Mutex
	version int
	objects map[string]map[string]any
}

func (s *exampleServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/api/v1/namespaces/shop/configmaps/")
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Query().Get("watch") != "" {
		s.watch(w, r)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	answer := map[string]any{
		"kind":       "PartialObjectMetadataList",
		"apiVersion": "meta.k8s.io/v1",
		"metadata":   map[string]any{"resourceVersion": fmt.Sprint(s.version)},
		"items":      []any{},
	}
	switch r.Method {
	case http.MethodPatch:
		var object map[string]any
		_ = json.NewDecoder(r.Body).Decode(&object)
		m, _ := object["metadata"].(map[string]any)
		m["uid"], m["resourceVersion"] = "uid-of-"+name, fmt.Sprint(s.version)
		m["managedFields"] = []any{
			map[string]any{
				"manager": r.URL.Query().
					Get("fieldManager"),
				"operation":  "Apply",
				"apiVersion": "v1",
				"fieldsType": "FieldsV1",
				"fieldsV1":   map[string]any{"f:data": map[string]any{}},
			},
		}
		answer = map[string]any{"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": m}
		s.objects[name] = answer
	case http.MethodDelete:
		delete(s.objects, name)
		answer = map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Success"}
	case http.MethodGet:
		if found, ok := s.objects[name]; ok {
			answer = found
		} else if name != r.URL.Path {
			w.WriteHeader(http.StatusNotFound)
			answer = map[string]any{
				"kind":       "Status",
				"apiVersion": "v1",
				"status":     "Failure",
				"reason":     "NotFound",
				"code":       404,
				"details":    map[string]any{"name": name, "kind": "configmaps"},
			}
		}
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// watch shows nothing: our own writes are known without it.
func (s *exampleServer) watch(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	version := fmt.Sprint(s.version)
	s.mu.Unlock()
	_ = json.NewEncoder(w).Encode(map[string]any{"type": "BOOKMARK", "object": map[string]any{
		"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
		"metadata": map[string]any{"resourceVersion": version, "annotations": map[string]any{"k8s.io/initial-events-end": "true"}},
	}})
	w.(http.Flusher).Flush()
	<-r.Context().Done()
}

// exampleApplier returns an Applier whose Live runs until stop is called.
func exampleApplier(owner apply.Owner) (applier *apply.Applier, stop func()) {
	server := httptest.NewServer(&exampleServer{version: 100, objects: map[string]map[string]any{}})
	client, err := metadata.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		fmt.Println(err)
	}
	kind := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(kind, meta.RESTScopeNamespace)
	live := &apply.Live{Client: client, Mapper: mapper, Owner: owner, Kinds: []schema.GroupVersionKind{kind}}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := live.Start(ctx); err != nil {
			fmt.Println(err)
		}
	}()
	return &apply.Applier{Live: live}, func() {
		cancel()
		<-done
		server.CloseClientConnections()
		server.Close()
	}
}

// exampleConfigMaps are ConfigMaps of these names.
func exampleConfigMaps(names ...string) []*unstructured.Unstructured {
	objects := make([]*unstructured.Unstructured, 0, len(names))
	for _, name := range names {
		objects = append(objects, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1",
			"kind":       "ConfigMap",
			"metadata":   map[string]any{"name": name, "namespace": "shop"},
			"data":       map[string]any{"for": name},
		}})
	}
	return objects
}
