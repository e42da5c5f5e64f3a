package main_test

import (
	"encoding/base64"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/internal/test/process"
)

const (
	sharedGroup = "00000000-0000-4000-8000-0000000000a1"
	ownGroup    = "00000000-0000-4000-8000-0000000000a2"
	namespace   = "proj-shop"
)

// pods returns the names of the pods of a service.
func (s *system) pods(tb testing.TB, service string) string {
	tb.Helper()
	return s.kubectl(tb, "get", "pods", "-n", namespace, "-l", "starform.io/service-name="+service, "-o", "jsonpath={.items[*].metadata.name}")
}

// secret returns a value of the Secret of a group.
func (s *system) secret(tb testing.TB, group, key string) string {
	tb.Helper()
	text := s.kubectl(tb, "get", "secret", "-n", namespace, "vg-"+group, "--ignore-not-found", "-o", "jsonpath={.data."+key+"}")
	value, err := base64.StdEncoding.DecodeString(text)
	require.NoError(tb, err)
	return string(value)
}

// TestAVarGroupReachesThePodsThatHaveItAndNothingElse is D5, C28 and the replacement of a
// key, with both programs.
func TestAVarGroupReachesThePodsThatHaveItAndNothingElse(t *testing.T) {
	if testing.Short() {
		t.Skip("long: a Kubernetes of its own")
	}
	t.Parallel()
	s := newSystem(t, 1)
	server, control := s.startControlPlane(t, "first", "127.0.0.1:0")
	s.register(t, control)
	groups, services := "projects/"+projectID+"/var-groups/", "projects/"+projectID+"/services/"
	control.do(
		t,
		http.MethodPut,
		groups+sharedGroup,
		`{"name":"shared","entries":[{"key":"PASSWORD","value":"canary-one"},{"key":"MODE","value":"shared","secret":false}]}`,
	)
	control.do(t, http.MethodPut, groups+ownGroup, `{"name":"own","environment":"production","entries":[{"key":"MODE","value":"canary-own"}]}`)
	control.do(t, http.MethodPut, services+goodID+"/production", `{"service_name":"with","image":"example.com/with:1","replicas":2}`)
	control.do(t, http.MethodPut, services+badID+"/production", `{"service_name":"without","image":"example.com/without:1","replicas":1}`)
	control.do(t, http.MethodPut, services+goodID+"/production/var-groups", `{"var_groups":["`+sharedGroup+`","`+ownGroup+`"]}`)
	agent := s.startAgent(t, control)
	healthy := func() bool {
		states := control.services(t)
		return states[goodID].Phase == "Healthy" && states[goodID].Ready == 2 && states[badID].Phase == "Healthy"
	}
	await.Eventually(t, "healthy", healthy)
	require.Equal(t, "canary-one", s.secret(t, sharedGroup, "PASSWORD"))
	require.Equal(
		t,
		"vg-"+sharedGroup+" vg-"+ownGroup,
		s.kubectl(t, "get", "deployment", "-n", namespace, "-l", "starform.io/service-name=with",
			"-o", "jsonpath={.items[0].spec.template.spec.containers[0].envFrom[*].secretRef.name}"),
		"the later one wins a key",
	)
	require.Equal(
		t,
		"shuttle",
		s.kubectl(
			t,
			"get",
			"secret",
			"-n",
			namespace,
			"-l",
			"starform.io/var-group-id="+strings.ReplaceAll(ownGroup, "-", "")+",starform.io/environment=production",
			"-o",
			`jsonpath={.items[0].metadata.labels.starform\.io/managed-by}`,
		),
	)

	// Edited and deleted by hand: it is back.
	s.kubectl(t, "patch", "secret", "-n", namespace, "vg-"+sharedGroup, "--type=merge", "-p", `{"stringData":{"PASSWORD":"by hand"}}`)
	s.kubectl(t, "delete", "secret", "-n", namespace, "vg-"+ownGroup)
	await.Eventually(t, `s.secret(t, sharedGroup, "PASSWORD") == "canary-one" && s.secret(t, ownGroup, "MODE") == "canary-own"`, func() bool {
		return s.secret(t, sharedGroup, "PASSWORD") == "canary-one" && s.secret(t, ownGroup, "MODE") == "canary-own"
	})

	// A value changes, and the pods of the service that has the group.
	with, without := s.pods(t, "with"), s.pods(t, "without")
	control.do(t, http.MethodPut, groups+sharedGroup, `{"name":"shared","entries":[{"key":"PASSWORD","value":"canary-two"},{"key":"MODE"}]}`)
	await.Eventually(t, "len(strings.Fields(now)) == 2 && healthy()", func() bool {
		now := s.pods(t, "with")
		for pod := range strings.FieldsSeq(with) {
			if strings.Contains(now, pod) {
				return false
			}
		}
		return len(strings.Fields(now)) == 2 && healthy()
	})
	require.Equal(t, "canary-two", s.secret(t, sharedGroup, "PASSWORD"))
	require.Equal(t, without, s.pods(t, "without"))

	// Another key, with three restarts: nothing changes in the cluster.
	with = s.pods(t, "with")
	require.NoError(t, server.Stop(15*time.Second))
	s.keys(t, "one", "two")
	known, control := s.startControlPlane(t, "known", strings.TrimPrefix(control.base, "http://"))
	require.NoError(t, known.Stop(15*time.Second))
	s.keys(t, "two", "one")
	second, control := s.startControlPlane(t, "second", strings.TrimPrefix(control.base, "http://"))
	require.NoError(t, second.Stop(15*time.Second))
	s.keys(t, "two")
	third, control := s.startControlPlane(t, "third", strings.TrimPrefix(control.base, "http://"))
	control.do(t, http.MethodPut, services+badID+"/production", `{"service_name":"without","image":"example.com/without:2","replicas":1}`)
	await.Eventually(t, `len(strings.Fields(s.pods(t, "without"))) == 1 && s.pods(t, "without") != without && healthy()`, func() bool {
		return len(strings.Fields(s.pods(t, "without"))) == 1 && s.pods(t, "without") != without && healthy()
	})
	require.Equal(t, with, s.pods(t, "with"))

	// Detached and deleted: the Secret goes like all that is absent.
	control.do(t, http.MethodPut, services+goodID+"/production/var-groups", `{"var_groups":["`+ownGroup+`"]}`)
	control.do(t, http.MethodDelete, groups+sharedGroup, "")
	await.Eventually(
		t,
		`s.secret(t, sharedGroup, "PASSWORD") == "" && healthy()`,
		func() bool { return s.secret(t, sharedGroup, "PASSWORD") == "" && healthy() },
	)

	seen := map[string]string{
		"events": s.kubectl(
			t,
			"get",
			"events",
			"-A",
			"-o",
			"yaml",
		),
		"deployments": s.kubectl(t, "get", "deployments,replicasets,pods,configmaps", "-A", "-o", "yaml"),
		"status": control.do(
			t,
			http.MethodGet,
			"clusters/"+clusterID,
			"",
		),
		"groups":  control.do(t, http.MethodGet, strings.TrimSuffix(groups, "/"), ""),
		"metrics": s.metrics(t, agent),
	}
	require.NoError(t, agent.Stop(20*time.Second))
	require.NoError(t, third.Stop(15*time.Second))
	for _, p := range []*process.Process{agent, server, second, third} {
		log, err := os.ReadFile(p.Log)
		require.NoError(t, err)
		seen[p.Name] = string(log)
	}
	content, err := os.ReadFile(s.database)
	require.NoError(t, err)
	seen["database"] = string(content)
	for what, text := range seen {
		require.NotEmpty(t, text, what)
		require.NotContains(t, text, "canary", what)
		require.NotContains(t, text, base64.StdEncoding.EncodeToString([]byte("canary-one"))[:12], what)
	}
}

// metrics returns the metrics of the agent.
func (s *system) metrics(tb testing.TB, agent *process.Process) string {
	tb.Helper()
	request, err := http.NewRequestWithContext(tb.Context(), http.MethodGet, "http://"+listening(tb, agent)+"/metrics", http.NoBody)
	require.NoError(tb, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(tb, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(tb, err)
	return string(text)
}
