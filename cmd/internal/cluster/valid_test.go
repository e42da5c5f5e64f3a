package cluster_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/cluster"
)

func TestASpecThatNoAgentCouldUseIsRefusedByItsField(t *testing.T) {
	each(t, func(w *world) {
		with := func(base string, change map[string]any) json.RawMessage {
			var spec map[string]any
			require.NoError(w.t, json.Unmarshal([]byte(base), &spec))
			maps.Copy(spec, change)
			text, err := json.Marshal(spec)
			require.NoError(w.t, err)
			return text
		}
		policy := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
		const (
			deployment = `{"k8s_namespace":"ws","k8s_name":"one","workspace_id":"ws_1","image":"one:1","cpu_millicores":"250","memory_mib":"256","port":8080}`
			sentinel   = `{"k8s_namespace":"ws","k8s_name":"guard","image":"one:1","cpu_millicores":"250","memory_mib":"256","replicas":1}`
			network    = `{"k8s_namespace":"ws","k8s_name":"open","policy":"e30="}`
		)
		type put func(ctx context.Context, regionID, id string, want cluster.Wanted) (bool, error)
		for collection, kind := range map[string]struct {
			put  put
			base string
			bad  map[string][]any
		}{
			"deployment": {w.store.PutDeployment, deployment, map[string][]any{
				"k8s_name":        {"", "One", "one_1", "-one", strings.Repeat("x", 64), "one.two", "one\n"},
				"k8s_namespace":   {"", "WS", "kube-system"},
				"workspace_id":    {"", "a b", strings.Repeat("x", 64)},
				"project_id":      {"a/b"},
				"environment_id":  {"_"},
				"build_id":        {"a b"},
				"image":           {"", "one 1", "one\t", "\u00e4:1", strings.Repeat("x", 2000)},
				"cpu_millicores":  {"0", "-1", "2147483648"},
				"memory_mib":      {"0", "9223372036854775807"},
				"port":            {0, -1, 65536},
				"shutdown_signal": {"SIGHUP", "TERM"},
				"healthcheck":     {policy("[]"), policy("no")},
				"autoscaling":     {map[string]any{"min_replicas": 0, "max_replicas": 1}, map[string]any{"min_replicas": 3, "max_replicas": 2}, map[string]any{"min_replicas": 1, "max_replicas": 4294967295}},
			}},
			"sentinel": {w.store.PutSentinel, sentinel, map[string][]any{
				"k8s_name":      {"", "1guard", "guard.a"},
				"k8s_namespace": {"kube-public"},
				"image":         {""},
				"replicas":      {-1},
				"app_id":        {"a b"},
			}},
			"policy": {w.store.PutPolicy, network, map[string][]any{
				"k8s_name": {"", "a_b"},
				"policy":   {"", policy("[]"), policy("null"), policy(`"text"`), policy("{"), policy(`{"kind":"Secret"}`)},
			}},
		} {
			for field, values := range kind.bad {
				for _, value := range values {
					_, err := kind.put(w.t.Context(), eu, "id_1", cluster.Wanted{State: "running", Spec: with(kind.base, map[string]any{field: value})})
					require.ErrorIs(w.t, err, cluster.ErrInvalid, "%s %s %v", collection, field, value)
					require.ErrorContains(w.t, err, "spec."+field, "%v", value)
					require.Less(w.t, len(err.Error()), 500, "it does not repeat what is long")
				}
			}
			changed, err := kind.put(w.t.Context(), eu, "id_1", cluster.Wanted{State: "running", Spec: json.RawMessage(kind.base)})
			require.NoError(w.t, err, collection)
			require.True(w.t, changed, "nothing was stored before")
		}
	})
}

func TestALongHeaderIsRefused(t *testing.T) {
	each(t, func(w *world) {
		for _, header := range []string{"X-Krane-Cell", "X-Krane-Region"} {
			r, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, w.url+service+"Heartbeat", strings.NewReader("{}"))
			require.NoError(w.t, err)
			for name, value := range map[string]string{"Authorization": "Bearer " + w.tokens[eu], "X-Krane-Region": "eu-1", "Content-Type": "application/json", header: strings.Repeat("x", 50_000)} {
				r.Header.Set(name, value)
			}
			response, err := http.DefaultClient.Do(r)
			require.NoError(w.t, err)
			require.NoError(w.t, response.Body.Close())
			require.Equal(w.t, http.StatusBadRequest, response.StatusCode, header)
		}
		regions, err := w.store.Regions(w.t.Context())
		require.NoError(w.t, err)
		require.NotContains(w.t, fmt.Sprint(regions), "xxx")
	})
}
