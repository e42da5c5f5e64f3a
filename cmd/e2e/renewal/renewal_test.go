// Package renewal_test lets the agents of a cluster and of a region renew their tokens: the
// programs as they are shipped, with the rights of their manifests.
package renewal_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/api/agenttoken"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/controlplanetest"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/internal/test/process"
	"github.com/seed-9e1ffd66/trueup/internal/test/programs"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

const clusterID = "aaaaaaaa-0000-4000-8000-000000000001"

// world is a control plane and two agents.
type world struct {
	*testing.T
	dir, programs, url string
	children           *process.Group
	kubernetes         *kubetest.Cluster
	started            int
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := (&world{
		programs: programs.Dir(t, "controlplane", "shuttle", "krane"), kubernetes: kubetest.Start(t, kubetest.Options{}),
	}).in(t)
	address := "127.0.0.1:" + w.port()
	w.url = "http://" + address
	w.start("controlplane", nil, "--listen", address, "--metrics-bind-address", "", "--database", filepath.Join(w.dir, "db"),
		"--admin-token-file", w.file("admin", controlplanetest.AdminToken), "--agent-token-lifetime", "24h")
	await.Eventually(t, "it answers", func() bool {
		status, _ := w.ask(http.MethodGet, "/readyz", "", "", nil)
		return status == http.StatusOK
	})
	return w
}

// in returns the world for a test, with a folder and children of its own.
func (w *world) in(t *testing.T) *world {
	t.Helper()
	dir := t.TempDir()
	children := process.NewGroup(dir)
	t.Cleanup(children.Close)
	return &world{T: t, dir: dir, programs: w.programs, url: w.url, children: children, kubernetes: w.kubernetes}
}

func (w *world) port() string {
	w.Helper()
	found, err := process.Port(w.Context())
	require.NoError(w, err)
	return strconv.Itoa(found)
}

func (w *world) start(name string, env []string, args ...string) *process.Process {
	w.Helper()
	w.started++
	p, err := w.children.Run(fmt.Sprintf("%d-%s", w.started, name), filepath.Join(w.programs, name), env, args...)
	require.NoError(w, err)
	w.Cleanup(func() {
		if w.Failed() {
			w.Log(name, p.Tail())
		}
	})
	return p
}

func (w *world) file(name, content string) (path string) {
	w.Helper()
	path = filepath.Join(w.dir, name)
	require.NoError(w, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// ask sends a request, and decodes the answer into into unless that is nil. Status is 0 without one.
func (w *world) ask(method, path, token, body string, into any) (status int, header http.Header) {
	w.Helper()
	request, err := http.NewRequestWithContext(w.Context(), method, w.url+path, strings.NewReader(body))
	require.NoError(w, err)
	request.Header.Set("Content-Type", "application/json")
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, nil
	}
	defer response.Body.Close()
	if into != nil {
		require.NoError(w, json.NewDecoder(response.Body).Decode(into))
	}
	return response.StatusCode, response.Header
}

// token asks for a token as an administrator.
func (w *world) token(method, path, body string) string {
	w.Helper()
	var answer struct{ Token string }
	status, _ := w.ask(method, "/api/v1/admin/"+path, controlplanetest.AdminToken, body, &answer)
	require.Less(w, status, 300)
	require.NotEmpty(w, answer.Token)
	return answer.Token
}

// secret returns the renewed token, empty if there is none.
func (w *world) secret(namespace, name string) string {
	w.Helper()
	out, err := w.kubernetes.Kubectl(w.Context(), "get", "secret", name, "-n", namespace, "--ignore-not-found", "-o", "jsonpath={.data.token}")
	require.NoError(w, err)
	token, err := base64.StdEncoding.DecodeString(out)
	require.NoError(w, err)
	return string(token)
}

// refusal returns why a token cannot be renewed.
func (w *world) refusal(token string) string {
	w.Helper()
	var answer struct{ Error struct{ Code string } }
	status, _ := w.ask(http.MethodPost, agenttoken.Path, token, "", &answer)
	return strconv.Itoa(status) + " " + answer.Error.Code
}

// renewals returns how many tokens of the scope were used after a renewal.
func (w *world) renewals(scope string) (n int) {
	w.Helper()
	var answer struct {
		Entries []struct{ Verb, Actor string }
	}
	status, _ := w.ask(http.MethodGet, "/api/v1/admin/audit?log=agents", controlplanetest.AdminToken, "", &answer)
	require.Equal(w, http.StatusOK, status)
	for _, e := range answer.Entries {
		if e.Verb == "renew-token" && e.Actor == scope {
			n++
		}
	}
	return n
}

// notValid are the refusals of a token that is not valid: the second one once many such have come
// from the address, which agents and test share.
var notValid = []string{"401 unauthorized", "429 too_many_attempts"}

// agent is how one of the agents is set up.
type agent struct {
	name, namespace, secret, register, body, scope string
	manifests                                      []string
	env                                            func(w *world, tokenFile string) []string
}

func agents() []agent {
	return []agent{
		{
			name: "shuttle", namespace: "starform-system", secret: "shuttle-token-renewed",
			register: "clusters/" + clusterID, scope: "cluster/" + clusterID, body: `{"region":"nyc3"}`,
			manifests: []string{"--starbase-url", "https://starbase.example.com", "--cluster-id", clusterID, "--region", "nyc3"},
			env: func(w *world, tokenFile string) []string {
				return []string{
					"STARFORM_STARBASE_URL=" + w.url, "STARFORM_CLUSTER_ID=" + clusterID, "STARFORM_REGION=nyc3", "STARFORM_RECONCILE_INTERVAL=1s",
					"STARFORM_AUTH_TOKEN_FILE=" + tokenFile, "STARFORM_AUTH_TOKEN_SECRET=starform-system/shuttle-token-renewed",
					"STARFORM_METRICS_ADDR=127.0.0.1:" + w.port(),
				}
			},
		},
		{
			name: "krane", namespace: "krane-system", secret: "krane-token-renewed",
			register: "regions/reg_eu", scope: "region/reg_eu", body: `{"name":"eu-1","platform":"aws"}`,
			manifests: []string{"--control-url", "https://control.example.com", "--region", "eu-1"},
			env: func(w *world, tokenFile string) []string {
				return []string{
					"KRANE_INSTANCE_ID=krane-1", "KRANE_CLUSTER_REGION=eu-1", "KRANE_CONTROL_URL=" + w.url,
					"KRANE_TOKEN_FILE=" + tokenFile, "KRANE_TOKEN_SECRET=krane-system/krane-token-renewed", "KRANE_RPC_PORT=" + w.port(),
				}
			},
		},
	}
}

func TestAgentsRenewTheirTokens(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, a := range agents() {
		w.Run(a.name, func(t *testing.T) {
			w := w.in(t)
			shown := w.token(http.MethodPut, a.register, a.body)
			require.Contains(t, notValid, w.refusal(shown+"x"))

			// It runs as its manifests have it.
			manifests := w.start(a.name, nil, append([]string{"manifests"}, a.manifests...)...)
			<-manifests.Exited()
			require.NoError(t, manifests.Err())
			yaml, err := os.ReadFile(manifests.Log)
			require.NoError(t, err)
			require.Contains(t, string(yaml), a.namespace+"/"+a.secret)
			require.NoError(t, w.kubernetes.Apply(t.Context(), string(yaml)))
			_, kubeconfig, err := w.kubernetes.ServiceAccount(t.Context(), a.namespace, a.name)
			require.NoError(t, err)
			env := a.env(w, w.file("token", shown))
			agent := w.start(a.name, env, "--kubeconfig", kubeconfig)
			var own string
			await.Eventually(t, "it keeps a token of its own", func() bool {
				own = w.secret(a.namespace, a.secret)
				return own != ""
			})
			require.NotEqual(t, shown, own)
			await.Eventually(t, "and uses it", func() bool { return w.renewals(a.scope) == 1 })
			require.Equal(t, "409 superseded", w.refusal(shown))

			// Another process of it has the same file.
			require.NoError(t, agent.Stop(time.Minute), agent.Tail())
			agent = w.start(a.name, env, "--kubeconfig", kubeconfig)
			rotated := w.token(http.MethodPost, a.register+"/rotate-token", "{}")
			require.Contains(t, notValid, w.refusal(own), "people revoke both")
			require.Contains(t, notValid, w.refusal(shown))
			w.file("token", rotated)
			var again string
			await.Eventually(t, "it uses what people gave it, and renews that", func() bool {
				again = w.secret(a.namespace, a.secret)
				return again != own && w.renewals(a.scope) == 2
			})
			require.Equal(t, "409 superseded", w.refusal(rotated))
			require.NoError(t, agent.Stop(time.Minute), agent.Tail())
			log, err := os.ReadFile(agent.Log)
			require.NoError(t, err)
			require.Contains(t, string(log), "token renewed")
			for _, token := range []string{shown, own, rotated, again} {
				require.NotContains(t, string(log), token)
			}
		})
	}
}
