package regions_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/regions"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/render"
)

func TestASpecThatNoAgentCouldUseIsRefusedByItsField(t *testing.T) {
	t.Parallel()
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
			deployment = `{"k8s_namespace":"ws","k8s_name":"one","workspace_id":"ws_1","project_id":"prj_1","app_id":"app_1","environment_id":"env_1","image":"one:1","cpu_millicores":"250","memory_mib":"256","port":8080}`
			sentinel   = `{"k8s_namespace":"ws","k8s_name":"guard","workspace_id":"ws_1","project_id":"prj_1","app_id":"app_1","environment_id":"env_1","image":"one:1","cpu_millicores":"250","memory_mib":"256","replicas":1}`
			network    = `{"k8s_namespace":"ws","k8s_name":"open","policy":"eyJhcGlWZXJzaW9uIjoiY2lsaXVtLmlvL3YyIiwia2luZCI6IkNpbGl1bU5ldHdvcmtQb2xpY3kiLCJzcGVjIjp7fX0="}`
		)
		type put func(ctx context.Context, regionID, id string, want regions.Wanted) (bool, error)
		for collection, kind := range map[string]struct {
			put  put
			base string
			bad  map[string][]any
		}{
			"deployment": {w.store.PutDeployment, deployment, map[string][]any{
				"k8s_name":        {"", "One", "one_1", "-one", strings.Repeat("x", 64), "one.two", "one\n"},
				"k8s_namespace":   {"", "WS", "kube-system"},
				"workspace_id":    {"", "a b", strings.Repeat("x", 64)},
				"project_id":      {"a/b", ""},
				"app_id":          {""},
				"environment_id":  {"_", ""},
				"command":         {[]string{"a\x00"}},
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
				"app_id":        {"a b", ""},
				"workspace_id":  {""},
			}},
			"policy": {w.store.PutPolicy, network, map[string][]any{
				"k8s_name": {"", "a_b"},
				"policy":   {"", policy("[]"), policy("null"), policy(`"text"`), policy("{"), policy(`{"kind":"Secret"}`), policy(`{"apiVersion":"cilium.io/v2","kind":"CiliumNetworkPolicy"}`)},
			}},
		} {
			for field, values := range kind.bad {
				for _, value := range values {
					_, err := kind.put(w.t.Context(), eu, "id_1", regions.Wanted{State: "running", Spec: with(kind.base, map[string]any{field: value})})
					require.ErrorIs(w.t, err, regions.ErrInvalid, "%s %s %v", collection, field, value)
					require.ErrorContains(w.t, err, "spec."+field, "%v", value)
					require.Less(w.t, len(err.Error()), 500, "it does not repeat what is long")
				}
			}
			changed, err := kind.put(w.t.Context(), eu, "id_1", regions.Wanted{State: "running", Spec: json.RawMessage(kind.base)})
			require.NoError(w.t, err, collection)
			require.True(w.t, changed, "nothing was stored before")
		}
	})
}

func TestALongHeaderIsRefused(t *testing.T) {
	t.Parallel()
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

// TestWhatOlderRulesLetInCanBeStopped has a row without the ids that an agent needs.
func TestWhatOlderRulesLetInCanBeStopped(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.put("d_1", "running", deployment("one", "one:1"))
		w.sql(`UPDATE deployment_topology SET spec = '{"k8s_namespace":"ws","k8s_name":"one","workspace_id":"ws_1","image":"one:1"}'`)
		ctx := w.t.Context()
		changed, err := w.store.PutDeployment(ctx, eu, "d_1", regions.Wanted{State: "stopped"})
		require.NoError(w.t, err)
		require.True(w.t, changed)
		_, err = w.store.PutDeployment(ctx, eu, "d_1", regions.Wanted{State: "running"})
		require.ErrorContains(w.t, err, `spec.project_id: want 1 to 63 letters`)
		changed, err = w.store.PutDeployment(ctx, eu, "d_1", regions.Wanted{State: "archived"})
		require.NoError(w.t, err)
		require.True(w.t, changed)
	})
}

// TestTheServerRefusesWhatAnAgentWould compares both with each field of a message left
// out or broken in turn.
func TestTheServerRefusesWhatAnAgentWould(t *testing.T) {
	t.Parallel()
	database, err := db.SQLite{Path: filepath.Join(t.TempDir(), "trueup.db")}.Open(t.Context())
	require.NoError(t, err)
	w := newWorld(t, database)
	cell := render.Cell{Region: "eu-1"}
	base := map[string]any{}
	require.NoError(t, json.Unmarshal(deployment("one", "one:1"), &base))
	refused := 0
	for field, broken := range map[string][]any{
		"k8s_namespace": {"", "WS", "kube-system"}, "k8s_name": {"", "a.b"}, "workspace_id": {"", "a b"}, "project_id": {"", "a b"}, "app_id": {"", "-"},
		"environment_id": {"", "-"}, "build_id": {"", "-"}, "image": {"", "a b"}, "cpu_millicores": {"0"}, "memory_mib": {"0"}, "port": {0, 65536},
		"shutdown_signal": {"SIGHUP", "SIGQUIT"}, "command": {[]string{"\x00"}, []string{"a"}},
		"healthcheck":       {[]byte(`[]`), []byte(`{"method":"PUT"}`), []byte(`{"path":"x"}`), []byte(`{"intervalSeconds":0}`), []byte(`{}`), []byte(`null`)},
		"autoscaling":       {map[string]any{"min_replicas": 0}, map[string]any{"min_replicas": 1, "max_replicas": 1, "cpu_threshold": 201}, map[string]any{"min_replicas": 1, "max_replicas": 2}},
		"ephemeral_storage": {map[string]any{"size_mib": 1 << 31}, map[string]any{"size_mib": 1}},
	} {
		for _, value := range broken {
			spec := maps.Clone(base)
			spec[field] = value
			text, err := json.Marshal(spec)
			require.NoError(t, err)
			m := &ctrlv1.ApplyDeployment{}
			require.NoError(t, protojson.Unmarshal(text, m))
			m.DeploymentId, m.Region = "d_1", "eu-1"
			_, agent := cell.Deployment(m, nil, "")
			_, server := w.store.PutDeployment(t.Context(), eu, "d_1", regions.Wanted{State: "running", Spec: text})
			require.Equal(t, agent == nil, server == nil, "%s %v: the agent says %v, the server %v", field, value, agent, server)
			if agent != nil {
				refused++
				require.ErrorContains(t, server, "spec."+field, "%v", value)
				require.ErrorContains(t, agent, field)
			}
		}
	}
	require.Equal(t, 30, refused)
}

// TestARefusedSpecIsAnsweredWithItsFields asks as an administrator does.
func TestARefusedSpecIsAnsweredWithItsFields(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		api := w.admin()
		r := httptest.NewRequestWithContext(
			w.t.Context(),
			http.MethodPut,
			"/api/v1/admin/regions/reg_eu/deployments/d_1",
			strings.NewReader(
				`{"desired_state":"running","spec":{"k8s_namespace":"ws","k8s_name":"one","workspace_id":"ws_1","project_id":"prj_1","app_id":"a b","image":"one:1","cpu_millicores":"250","memory_mib":"256","port":8080}}`,
			),
		)
		r.Header.Set("Content-Type", "application/json")
		answer := httptest.NewRecorder()
		api.ServeHTTP(answer, r)
		require.Equal(w.t, http.StatusBadRequest, answer.Code)
		var body starbase.ErrorBody
		require.NoError(w.t, json.Unmarshal(answer.Body.Bytes(), &body))
		require.Equal(w.t, "invalid", body.Error.Code)
		require.Len(w.t, body.Error.Fields, 2, answer.Body)
		require.Equal(w.t, "spec.app_id", body.Error.Fields[0].Field)
		require.Equal(w.t, "spec.environment_id", body.Error.Fields[1].Field)
		require.NotContains(w.t, body.Error.Message, "\n")
	})
}
