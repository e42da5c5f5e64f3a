package kubewatch_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/internal/kubewatch"
)

// events is a server that sends these lines to each watch.
func events(tb testing.TB, lines ...string) *rest.Config {
	tb.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, strings.Join(lines, "\n"), "\n") // the watch has ended
	}))
	tb.Cleanup(server.Close)
	return &rest.Config{Host: server.URL, QPS: -1}
}

// watched returns what the client has of them.
func watched(tb testing.TB, client dynamic.Interface) (all []watch.Event) {
	tb.Helper()
	w, err := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}).Watch(tb.Context(), metav1.ListOptions{})
	require.NoError(tb, err)
	defer w.Stop()
	for event := range w.ResultChan() {
		all = append(all, event)
	}
	return all
}

func clients(tb testing.TB, config *rest.Config) (ours, theirs dynamic.Interface) {
	tb.Helper()
	ours, err := kubewatch.Dynamic(config, nil)
	require.NoError(tb, err)
	theirs, err = dynamic.NewForConfig(config)
	require.NoError(tb, err)
	return ours, theirs
}

// aPod is one with some containers, as a server sends it.
func aPod(tb testing.TB, name string) string {
	tb.Helper()
	containers := make([]any, 4)
	for i := range containers {
		containers[i] = map[string]any{
			"name": fmt.Sprint("c", i), "image": "example.com/image:1", "args": []any{"a", "b"},
			"resources": map[string]any{"limits": map[string]any{"cpu": "1"}}, "env": []any{map[string]any{"name": "A", "value": "é\n\"<"}},
		}
	}
	text, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": name, "generation": 9007199254740993, "labels": map[string]any{"a": "b"}},
		"spec":     map[string]any{"containers": containers, "priority": -1, "share": 0.5, "none": nil, "empty": map[string]any{}},
	})
	require.NoError(tb, err)
	return string(text)
}

func TestALeanWatchShowsTheSameEvents(t *testing.T) {
	t.Parallel()
	for name, lines := range map[string][]string{
		"objects": {
			`{"type":"ADDED","object":` + aPod(t, "a") + `}`, `{"object":` + aPod(t, "b") + `, "type":"MODIFIED"}`,
			`{"type":"DELETED","object":` + aPod(t, "a") + `}`,
		},
		"a bookmark": {`{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"7"},"spec":{"a":null}}}`},
		"an error":   {`{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"reason":"Expired","code":410}}`},
		"a list":     {`{"type":"ADDED","object":{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[` + aPod(t, "a") + `]}}`},
		"another":    {`{"type":"ADDED","object":{"kind":"Web","apiVersion":"example.com/v1","metadata":{"name":"w"},"more":1}}`},
		"no kind":    {`{"type":"ADDED","object":{"apiVersion":"v1","metadata":{"name":"w"}}}`},
		"no version": {`{"type":"ADDED","object":{"kind":"Pod","metadata":{"name":"w"}}}`},
		"no object":  {`{"type":"ADDED","object":7}`},
		"no event":   {`{"type":"NEWS","object":` + aPod(t, "a") + `}`},
		"cut off":    {`{"type":"ADDED","object":` + aPod(t, "a")},
		"a word":     {`{"type":"ADDED","object":` + aPod(t, "a") + `}`, `nonsense`},
	} {
		ours, theirs := clients(t, events(t, lines...))
		want, have := watched(t, theirs), watched(t, ours)
		require.NotEmpty(t, append(want, watch.Event{}), name)
		require.Len(t, have, len(want), name)
		for i := range want {
			require.Equal(t, want[i].Type, have[i].Type, name)
			if want[i].Type == watch.Error && name != "an error" { // the words are of whom decodes
				require.IsType(t, want[i].Object, have[i].Object, name)
				continue
			}
			require.Equal(t, want[i].Object, have[i].Object, name)
		}
	}
}

// TestALeanClientReadsAndWritesTheSame: only watches are decoded in another way.
func TestALeanClientReadsAndWritesTheSame(t *testing.T) {
	t.Parallel()
	for _, body := range []string{
		aPod(t, "a"), `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"3"},"items":[` + aPod(t, "a") + `]}`, `{}`, `nonsense`,
	} {
		ours, theirs := clients(t, events(t, body))
		at := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
		want, wrong := theirs.Resource(at).Get(t.Context(), "a", metav1.GetOptions{})
		have, err := ours.Resource(at).Get(t.Context(), "a", metav1.GetOptions{})
		require.Equal(t, want, have)
		require.Equal(t, fmt.Sprint(wrong), fmt.Sprint(err))
		list, wrong := theirs.Resource(at).List(t.Context(), metav1.ListOptions{})
		listed, err := ours.Resource(at).List(t.Context(), metav1.ListOptions{})
		require.Equal(t, list, listed)
		require.Equal(t, fmt.Sprint(wrong), fmt.Sprint(err))
		object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "a"}}}
		made, wrong := theirs.Resource(at).Create(t.Context(), object, metav1.CreateOptions{})
		created, err := ours.Resource(at).Create(t.Context(), object, metav1.CreateOptions{})
		require.Equal(t, made, created)
		require.Equal(t, fmt.Sprint(wrong), fmt.Sprint(err))
	}
}

// TestALeanWatchAllocatesLess measures the process: it runs alone.
func TestALeanWatchAllocatesLess(t *testing.T) { //nolint:paralleltest // as above
	lines := make([]string, 200)
	for i := range lines {
		lines[i] = `{"type":"ADDED","object":` + aPod(t, fmt.Sprint("p", i)) + `}`
	}
	ours, theirs := clients(t, events(t, lines...))
	each := func(client dynamic.Interface) float64 {
		return testing.AllocsPerRun(5, func() { require.Len(t, watched(t, client), len(lines)) }) / float64(len(lines))
	}
	less, more := each(ours), each(theirs)
	t.Logf("allocations for an event: %.0f, with the client of client-go %.0f", less, more)
	require.Less(t, less, more-20)
}

func BenchmarkWatch(b *testing.B) {
	lines := make([]string, 1000)
	for i := range lines {
		lines[i] = `{"type":"ADDED","object":` + aPod(b, fmt.Sprint("p", i)) + `}`
	}
	ours, theirs := clients(b, events(b, lines...))
	for name, client := range map[string]dynamic.Interface{"lean": ours, "client-go": theirs} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				require.Len(b, watched(b, client), len(lines))
			}
		})
	}
}
