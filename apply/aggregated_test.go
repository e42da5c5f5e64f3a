package apply_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seed-9e1ffd66/trueup/apply"
)

// notes is an API server of its own behind the aggregation layer of the real one:
// it keeps one kind in memory, with no managedFields and no server-side apply.
type notes struct {
	group string

	mu      sync.Mutex
	version int
	objects map[string]map[string]any
	events  []map[string]any
	changed *sync.Cond
}

// serveNotes starts the server and registers it.
func serveNotes(t *testing.T, b *bench) *notes {
	t.Helper()
	n := &notes{group: strings.ReplaceAll(b.ns, "-", "") + ".example.com", version: 100, objects: map[string]map[string]any{}}
	n.changed = sync.NewCond(&n.mu)
	server := httptest.NewTLSServer(n)
	t.Cleanup(func() {
		server.CloseClientConnections() // its watches
		server.Close()
	})
	at, err := url.Parse(server.URL)
	require.NoError(t, err)
	require.NoError(t, b.cluster.Apply(t.Context(), strings.NewReplacer("NS", b.ns, "GROUP", n.group, "PORT", at.Port()).Replace(`
{apiVersion: v1, kind: Service, metadata: {name: notes, namespace: NS}, spec: {type: ExternalName, externalName: localhost, ports: [{port: PORT}]}}
---
{apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: {name: v1.GROUP}, spec: {group: GROUP, version: v1, groupPriorityMinimum: 100, versionPriority: 100,
 insecureSkipTLSVerify: true, service: {name: notes, namespace: NS, port: PORT}}}
`)))
	t.Cleanup(func() { b.cleanup("delete", "apiservice", "v1."+n.group) })
	b.kubectl(t, "wait", "--for=condition=Available", "apiservice/v1."+n.group)
	return n
}

func (n *notes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case len(parts) < 4:
		reply(w, 200, map[string]any{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": n.group + "/v1", "resources": []any{
			map[string]any{
				"name":       "notes",
				"namespaced": true,
				"kind":       "Note",
				"verbs":      []string{"create", "get", "list", "update", "delete", "watch"},
			},
		}})
	case r.URL.Query().Has("sendInitialEvents"): // an older server
		code, body := status(422, "Invalid")
		reply(w, code, body)
	case r.URL.Query().Get("watch") != "":
		n.watch(w, r)
	default:
		n.mu.Lock()
		defer n.mu.Unlock()
		code, body := n.serve(r, parts)
		reply(w, code, partially(r, body))
	}
}

func (n *notes) serve(r *http.Request, parts []string) (int, map[string]any) {
	namespace, name := "", ""
	if parts[3] == "namespaces" {
		namespace = parts[4]
		if len(parts) > 6 {
			name = parts[6]
		}
	}
	var body map[string]any
	_ = json.NewDecoder(r.Body).Decode(&body)
	switch r.Method {
	case http.MethodGet:
		if name == "" {
			items := []any{}
			for _, o := range n.objects {
				// Other tests look for strangers in namespaces of theirs.
				if at := (&unstructured.Unstructured{Object: o}).GetNamespace(); namespace == "" || at == namespace {
					items = append(items, partially(r, o))
				}
			}
			return 200, map[string]any{
				"kind": "NoteList", "apiVersion": n.group + "/v1",
				"metadata": map[string]any{"resourceVersion": strconv.Itoa(n.version)}, "items": items,
			}
		}
		if o, ok := n.objects[name]; ok {
			return 200, o
		}
		return status(404, "NotFound")
	case http.MethodPost:
		o := unstructured.Unstructured{Object: body}
		if n.objects[o.GetName()] != nil {
			return status(409, "AlreadyExists")
		}
		o.SetUID("uid-1")
		o.SetNamespace(parts[4])
		n.put("ADDED", o)
		return 201, o.Object
	case http.MethodPut:
		o := unstructured.Unstructured{Object: body}
		live := unstructured.Unstructured{Object: n.objects[name]}
		if o.GetResourceVersion() != live.GetResourceVersion() {
			return status(409, "Conflict")
		}
		n.put("MODIFIED", o)
		return 200, o.Object
	case http.MethodPatch: // an apply, which leaves no record
		o := unstructured.Unstructured{Object: body}
		if n.objects[name] != nil && o.GetUID() == "" {
			return status(409, "Conflict")
		}
		o.SetUID("uid-1")
		n.put("MODIFIED", o)
		return 200, o.Object
	default:
		return status(415, "UnsupportedMediaType")
	}
}

func (n *notes) put(event string, o unstructured.Unstructured) {
	n.version++
	o.SetResourceVersion(strconv.Itoa(n.version))
	n.objects[o.GetName()] = o.Object
	n.events = append(n.events, map[string]any{"type": event, "object": o.DeepCopy().Object})
	n.changed.Broadcast()
}

// edit is another manager's change.
func (n *notes) edit(t *testing.T, name, field, value string) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	o := unstructured.Unstructured{Object: n.objects[name]}
	require.NoError(t, unstructured.SetNestedField(o.Object, value, "spec", field))
	n.put("MODIFIED", o)
}

func (n *notes) watch(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	go func() { <-r.Context().Done(); n.changed.Broadcast() }()
	n.mu.Lock()
	defer n.mu.Unlock()
	sent := slices.IndexFunc(n.events, func(e map[string]any) bool {
		o := unstructured.Unstructured{Object: e["object"].(map[string]any)}
		return o.GetResourceVersion() > r.URL.Query().Get("resourceVersion")
	})
	if sent < 0 {
		sent = len(n.events)
	}
	for r.Context().Err() == nil {
		for ; sent < len(n.events); sent++ {
			e := n.events[sent]
			_ = json.NewEncoder(w).Encode(map[string]any{"type": e["type"], "object": partially(r, e["object"].(map[string]any))})
			w.(http.Flusher).Flush()
		}
		n.changed.Wait()
	}
}

// partially gives a body the form that the metadata client asks for.
func partially(r *http.Request, body map[string]any) map[string]any {
	if !strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata") || body["kind"] == "Status" {
		return body
	}
	kind := "PartialObjectMetadata"
	partial := map[string]any{"apiVersion": "meta.k8s.io/v1", "kind": kind, "metadata": body["metadata"]}
	if items, ok := body["items"]; ok {
		partial["kind"], partial["items"] = kind+"List", items
	}
	return partial
}

func status(code int, reason string) (int, map[string]any) {
	return code, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": reason}
}

func reply(w http.ResponseWriter, code int, body map[string]any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

func TestAKindWithoutManagedFieldsIsComparedByContent(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	server := serveNotes(t, b)
	kind := schema.GroupVersionKind{Group: server.group, Version: "v1", Kind: "Note"}
	start := func() *agent {
		a := b.startUnsynced(t, kind)
		a.Upsert = func(k schema.GroupKind) bool { return k == kind.GroupKind() }
		waitSynced(t, a)
		return a
	}
	note := "{apiVersion: " + server.group + "/v1, kind: Note, metadata: {name: a, namespace: NAMESPACE}, spec: {text: hello, size: 0.50}}"
	a := start()
	set := b.set(t, note, configMap("a", "1"))
	require.Equal(t, 2, apply1(t, a, set).Count(apply.Created))
	a.net.Reset()
	for range 3 {
		require.Equal(t, 2, apply1(t, a, set).Unchanged)
	}
	a.net.NoRequests(t)

	server.edit(t, "a", "text", "theirs")
	a.waitWoken(t, "Note", "a")
	require.Equal(t, 1, apply1(t, a, set).Count(apply.Updated))
	require.Equal(t, 2, apply1(t, a, set).Unchanged)
	// A field that is not stated is looked at once, and left.
	server.edit(t, "a", "theirs", "1")
	a.waitWoken(t, "Note", "a")
	a.net.Reset()
	require.Equal(t, 2, apply1(t, a, set).Unchanged)
	require.Equal(t, 2, apply1(t, a, set).Unchanged)
	require.Equal(t, 1, a.net.Count("get"))
	a.net.NoWrites(t)
	a.stop()

	again := start()
	require.Equal(t, 2, apply1(t, again, set).Unchanged)
	require.Equal(t, 2, apply1(t, again, set).Unchanged)
	require.Equal(t, 1, again.net.Count("get"))
	again.net.NoWrites(t)

	// Nothing shows whose it is, so it is not deleted.
	report, err := again.Prune(t.Context(), b.set(t, configMap("a", "1")), complete)
	require.NoError(t, err)
	require.Equal(t, []apply.ID{{Group: server.group, Kind: "Note", Namespace: b.ns, Name: "a"}}, report.Unproven)
	require.Empty(t, report.Results)
	plan, err := again.Plan(t.Context(), b.set(t, strings.Replace(note, "hello", "bye", 1), configMap("a", "1")), complete)
	require.NoError(t, err)
	require.Len(t, plan.Changes, 1)
	require.True(t, plan.Changes[0].Fields[0].Structural, "the plan says how it was compared: %s", fmt.Sprint(plan))
}

func TestAKindWhoseServerKeepsNoRecordOfAnApplyIsLookedAtOnce(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	server := serveNotes(t, b)
	kind := schema.GroupVersionKind{Group: server.group, Version: "v1", Kind: "Note"}
	a := b.startUnsynced(t, kind)
	waitSynced(t, a)
	set := b.set(t, "{apiVersion: "+server.group+"/v1, kind: Note, metadata: {name: a, namespace: NAMESPACE}, spec: {text: hello}}")
	require.Equal(t, 1, apply1(t, a, set).Count(apply.Created))
	require.Equal(t, 1, apply1(t, a, set).Unchanged)
	server.edit(t, "a", "text", "theirs")
	a.waitWoken(t, "Note", "a")
	require.Equal(t, 1, apply1(t, a, set).Count(apply.Updated))
	require.Equal(t, 1, apply1(t, a, set).Unchanged)
	a.stop()

	again := b.startUnsynced(t, kind)
	waitSynced(t, again)
	for range 3 {
		require.Equal(t, 1, apply1(t, again, set).Unchanged)
	}
	require.Equal(t, 1, again.net.Count("get"), "it is looked at once")
	again.net.NoWrites(t)
}
