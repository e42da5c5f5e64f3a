package remote_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/controlplanetest"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/openapi"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/remote"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/keyring"
)

// TestWhatIsPrintedCanBePut has an object of each kind, shown and put as it is.
func TestWhatIsPrintedCanBePut(t *testing.T) {
	t.Parallel()
	keys, err := keyring.Parse("one " + strings.Repeat("A", 43) + "=\n")
	require.NoError(t, err)
	s, _ := newShellOf(t, controlplanetest.Options{Source: filepath.Join(t.TempDir(), "db"), Keys: keys})
	s.fill()
	const group, workload = "33333333-3333-4333-8333-333333333333",
		`{"desired_state":"running","spec":{"k8s_namespace":"ws-1","k8s_name":"%","workspace_id":"ws_1","project_id":"prj_1",` +
			`"app_id":"app_1","environment_id":"env_1","image":"web:1","cpu_millicores":"250","memory_mib":"256","port":8080}}`
	s.must(`{"name":"g","environment":"production","entries":[{"key":"A","value":"a","secret":true},{"key":"B","value":"b","secret":false}]}`,
		"put var-group "+project+" "+group+" -f -")
	s.must(`{"name":"eu-1","platform":"aws"}`, "put region reg_eu -f -")
	s.must(strings.Replace(workload, "%", "web", 1), "put deployment reg_eu d_1 -f -")
	s.must(`{"desired_state":"running","spec":{"k8s_namespace":"ws-1","k8s_name":"guard","workspace_id":"ws_1","project_id":"prj_1",`+
		`"app_id":"app_1","environment_id":"env_1","image":"web:1","cpu_millicores":"250","memory_mib":"256","replicas":1}}`,
		"put sentinel reg_eu s_1 -f -")
	s.must(`{"desired_state":"running","spec":{"k8s_namespace":"ws-1","k8s_name":"egress",`+
		`"policy":"eyJhcGlWZXJzaW9uIjoiY2lsaXVtLmlvL3YyIiwia2luZCI6IkNpbGl1bU5ldHdvcmtQb2xpY3kiLCJzcGVjIjp7ImVuZHBvaW50U2VsZWN0b3IiOnt9fX0="}}`, "put policy reg_eu p_1 -f -")
	objects := map[string]string{
		"cluster": cluster, "config": cluster, "project": project, "service": project + " " + service + " production",
		"attached-var-groups": project + " " + service + " production", "var-group": project + " " + group,
		"region": "reg_eu", "deployment": "reg_eu d_1", "sentinel": "reg_eu s_1", "policy": "reg_eu p_1",
	}
	for _, name := range remote.PutKinds() {
		require.Contains(t, objects, name, "a kind that this test does not have")
		for _, output := range []string{"", " -o json"} {
			object := name + " " + objects[name]
			shown := s.must("", "get "+object+output)
			code, _, errs := s.run(shown, "put "+object+" -f -")
			require.Zero(t, code, "%s: %s\n%s", object, errs, shown)
			require.Equal(t, shown, s.must("", "get "+object+output), "nothing has changed")
		}
	}
	for object, wrong := range map[string]string{
		"cluster " + cluster: "cluster_id: " + project + "\nregion: nyc3\n",
		"project " + project: "deleted: true\n",
		"service " + project + " " + service + " production": "workspace_id: " + project + "\nservice_name: web\nimage: a:1\n",
		"var-group " + project + " " + group:                 "checksums: a\nchecksum: a\n",
	} {
		code, _, errs := s.run(wrong, "put "+object+" -f -")
		require.NotZero(t, code, object)
		require.Contains(t, errs, strings.Split(wrong, ":")[0], "%s names the member", object)
	}
}

// TestPutLeavesOutWhatGetAddsAlone compares the members with the API reference.
func TestPutLeavesOutWhatGetAddsAlone(t *testing.T) {
	t.Parallel()
	recorder := httptest.NewRecorder()
	openapi.Handler().ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, openapi.Path, nil))
	var document struct {
		Paths      map[string]map[string]operation
		Components struct{ Schemas map[string]schema }
	}
	require.NoError(t, json.Unmarshal(recorder.Body.Bytes(), &document))
	members := func(s schema) (names []string) {
		if name, ok := strings.CutPrefix(s.Ref, "#/components/schemas/"); ok {
			s = document.Components.Schemas[name]
		}
		for name := range s.Properties {
			names = append(names, name)
		}
		require.NotEmpty(t, names)
		return names
	}
	compared := 0
	for path, printed := range remote.Printed() {
		for known, methods := range document.Paths {
			if !same(known, "/api/v1/admin/"+path) {
				continue
			}
			compared++
			taken := members(methods["put"].RequestBody.Content["application/json"].Schema)
			var added []string
			for _, name := range members(methods["get"].Responses["200"].Content["application/json"].Schema) {
				if !slices.Contains(taken, name) {
					added = append(added, name)
				}
			}
			require.ElementsMatch(t, added, printed, known)
		}
	}
	require.Equal(t, len(remote.PutKinds()), compared)
}

type schema struct {
	Ref        string `json:"$ref"`
	Properties map[string]any
}

type operation struct {
	RequestBody struct {
		Content map[string]struct{ Schema schema }
	}
	Responses map[string]struct {
		Content map[string]struct{ Schema schema }
	}
}

// same reports whether a path with names in braces is one with %s for each.
func same(known, path string) bool {
	a, b := strings.Split(known, "/"), strings.Split(path, "/")
	for i := range a {
		if len(a) != len(b) || a[i] != b[i] && (b[i] != "%s" || !strings.HasPrefix(a[i], "{")) {
			return false
		}
	}
	return true
}

// TestARequestThatWaitsEndsWithAStatusOfItsOwn has a server that asks for a second person.
func TestARequestThatWaitsEndsWithAStatusOfItsOwn(t *testing.T) {
	t.Parallel()
	s, _ := newShell(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Request-Id", "1")
		if r.Method == http.MethodDelete && r.URL.RawQuery == "" {
			w.WriteHeader(http.StatusConflict)
			_, _ = w.Write([]byte(`{"error":{"code":"not_empty","message":"give them up with ?abandon=true"}}`))
			return
		}
		w.WriteHeader(http.StatusAccepted)
		_, _ = w.Write([]byte(`{"action":"abandon","first":"admin/alice","message":"another administrator must"}`))
	}))
	defer server.Close()
	s.environment["TRUEUP_CONTROLPLANE_SERVER"] = server.URL
	for _, line := range []string{"delete cluster " + cluster + " --abandon", "approve cluster " + cluster + " pXkq0zY1oHZsN5d2"} {
		code, out, errs := s.run("", line)
		require.Equal(t, 4, code, line)
		require.Contains(t, out, "first: admin/alice")
		require.Contains(t, errs, "nothing is done yet: another administrator must send the same request")
	}
	code, _, errs := s.run("", "delete cluster "+cluster)
	require.Equal(t, 1, code)
	require.Contains(t, errs, "give them up with --abandon")
}
