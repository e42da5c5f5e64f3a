// Package hostile_test attacks the operators that tenants share, as one of them may.
package hostile_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	agentjob "github.com/seed-9e1ffd66/trueup/cmd/agentjob/operator"
	"github.com/seed-9e1ffd66/trueup/cmd/api/platform/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/cmd/application/names"
	application "github.com/seed-9e1ffd66/trueup/cmd/application/operator"
	"github.com/seed-9e1ffd66/trueup/internal/test/keycloaktest"
	"github.com/seed-9e1ffd66/trueup/internal/test/pgtest"
	"github.com/seed-9e1ffd66/trueup/internal/test/s3test"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

// world is a Kubernetes with both operators, each with its own rights, and the services that
// applications share. Namespace team belongs to people who mind their own business, evil to
// one who does not.
type world struct {
	cluster *kubetest.Cluster
	pg      *pgtest.Server
	realms  string // URL of Keycloak
	log     *journal
}

// journal is what the application operator has logged.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(line []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(line)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// tenants is what a tenant may do in its namespace. It is no administrator of anything.
const tenants = `{apiVersion: v1, kind: Namespace, metadata: {name: team}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: evil, labels: {thurkube.thurbeen.eu/allow-cluster-access: "true"}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: tenant}
rules:
- {apiGroups: [platform.internal], resources: [applications, previewenvironments], verbs: [get, list, watch, create, update, patch, delete]}
- apiGroups: [thurkube.thurbeen.eu]
  resources: [agentjobs, agentruntimes, agentauths, agentroles, agentskills, mcpservers, repositories, clusteraccesses]
  verbs: [get, list, watch, create, update, patch, delete]
- {apiGroups: [""], resources: [secrets, configmaps], verbs: [get, list, watch, create, update, patch, delete]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: tenant, namespace: evil}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: tenant}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: evil}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: tenant, namespace: team}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: tenant}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: team}]
`

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		log: &journal{}, pg: pgtest.Start(t, pgtest.Options{Passwords: true}),
		cluster: kubetest.Start(t, kubetest.Options{Controllers: true, Scheduler: true, Nodes: 2}),
	}
	storage, keycloak := s3test.Start(t), keycloaktest.Start(t)
	w.realms = keycloak.URL
	for database, statement := range map[string]string{
		"postgres": "CREATE DATABASE platform", "template1": "CREATE DATABASE billing",
	} {
		require.NoError(t, w.pg.SQL(t.Context(), database, statement))
	}
	// Before PostgreSQL 15 every role may make things in the schema public.
	require.NoError(
		t,
		w.pg.SQL(
			t.Context(),
			"platform",
			"CREATE ROLE operator LOGIN CREATEROLE PASSWORD 'adm1n'; GRANT CREATE ON DATABASE platform TO operator; GRANT CREATE ON SCHEMA public TO PUBLIC",
		),
	)
	jobs, err := agentjob.Manifests{Image: "agentjob"}.YAML()
	require.NoError(t, err)
	apps, err := application.Manifests{Image: "application", BaseDomain: "example.com"}.YAML()
	require.NoError(t, err)
	for _, text := range []string{jobs, apps, tenants} {
		require.NoError(t, w.cluster.Apply(t.Context(), text))
	}
	_, err = w.cluster.Kubectl(t.Context(), "wait", "--for=condition=Established", "--timeout=120s", "crd", "--all")
	require.NoError(t, err)
	logger := slog.New(slog.NewJSONHandler(w.log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	w.run(t, agentjob.Namespace, agentjob.Account, func(access *rest.Config, listening func(net.Addr)) func(context.Context) error {
		return (&agentjob.Operator{Kubernetes: access, Namespace: agentjob.Namespace, Address: "127.0.0.1:0", Instance: "test", Logger: slog.New(slog.DiscardHandler), OnListen: listening}).Start
	})
	w.run(t, application.Namespace, application.Account, func(access *rest.Config, listening func(net.Addr)) func(context.Context) error {
		return (&application.Operator{
			Kubernetes: access, Namespace: application.Namespace, Address: "127.0.0.1:0", Instance: "test", Logger: logger, OnListen: listening, CheckInterval: 2 * time.Second,
			S3Credentials: credentials.NewStaticCredentialsProvider(s3test.AccessKey, s3test.SecretKey, ""),
			Settings: application.Settings{
				DatabaseURL: fmt.Sprintf("postgresql://operator:adm1n@127.0.0.1:%d/platform?sslmode=disable", w.pg.Port), DatabaseConnections: 4,
				KeycloakURL: keycloak.URL, KeycloakUser: keycloaktest.User, KeycloakPassword: keycloaktest.Password,
				BaseDomain: "example.com", AllowedDomains: []string{"example.org"}, S3Endpoint: storage.URL, S3Region: s3test.Region,
			},
		}).Start
	})
	return w
}

// listenWithin bounds the start of an operator, which lists before it listens.
const listenWithin = 2 * time.Minute

// run starts an operator with the rights of its account. One that does not come up fails
// the test with its error.
func (w *world) run(t *testing.T, namespace, account string, build func(*rest.Config, func(net.Addr)) func(context.Context) error) {
	t.Helper()
	access, _, err := w.cluster.ServiceAccount(t.Context(), namespace, account)
	require.NoError(t, err)
	address, done := newSignal[net.Addr](), newSignal[error]()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	start := build(access, func(at net.Addr) { address <- at })
	go func() { done <- start(ctx) }()
	select {
	case <-address:
	case err := <-done:
		cancel()
		t.Fatalf("the operator in %s ended before it listened: %v", namespace, err)
	case <-time.After(listenWithin):
		cancel()
		t.Fatalf("the operator in %s does not listen after %s; it returned: %v", namespace, listenWithin, <-done)
	}
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
}

func newSignal[T any]() chan T { return make(chan T, 1) }

// tenant is what one tenant does, with no rights but its own.
type tenant struct {
	*testing.T
	*world
	name string // of its namespace and of its user
}

func (w *world) tenant(t *testing.T, name string) *tenant {
	t.Helper()
	return &tenant{T: t, world: w, name: name}
}

// try runs kubectl as the tenant, in its namespace.
func (n *tenant) try(args ...string) (string, error) {
	return n.cluster.Kubectl(n.Context(), append(args, "--as="+n.name, "-n", n.name)...)
}

// may applies objects as the tenant, and returns why it may not.
func (n *tenant) may(text string) error {
	file, err := os.CreateTemp("", "hostile-*.yaml") // the name of a test may have a comma, which kubectl splits at
	require.NoError(n, err)
	defer func() { require.NoError(n, os.Remove(file.Name())) }()
	_, err = file.WriteString(text)
	require.NoError(n, err)
	require.NoError(n, file.Close())
	_, err = n.try("apply", "--server-side", "--force-conflicts", "-f", file.Name())
	return err
}

func (n *tenant) applies(text string) {
	n.Helper()
	require.NoError(n, n.may(text))
}

// app is an Application with further fields of its spec.
func (n *tenant) app(name, environment, more string) string {
	return fmt.Sprintf(
		"{apiVersion: platform.internal/v1alpha1, kind: Application, metadata: {name: %s, namespace: %s}, spec: {repository: r, framework: docker, environment: %s, imageRef: 'app:1'%s}}\n---\n",
		name,
		n.name,
		environment,
		more,
	)
}

// preview is one of the Application shop.
func (n *tenant) preview(name string, number int) string {
	return fmt.Sprintf(
		"{apiVersion: platform.internal/v1alpha1, kind: PreviewEnvironment, metadata: {name: %s, namespace: %s}, spec: {applicationRef: shop, pullRequest: %d, branch: b, imageRef: 'evil:1'}}\n---\n",
		name,
		n.name,
		number,
	)
}

// copyIn is the namespace of a preview of the Application shop.
func (n *tenant) copyIn(number int64) string {
	parent := &v1alpha1.Application{}
	parent.Name, parent.Namespace = "shop", n.name
	return names.OfPreview(parent, number).Namespace()
}

// job is an AgentJob with its ClusterAccess of the same name.
func (n *tenant) job(name, scope, rules string) string {
	return fmt.Sprintf(
		"{apiVersion: thurkube.thurbeen.eu/v1alpha1, kind: ClusterAccess, metadata: {name: %[2]s, namespace: %[1]s}, spec: {rules: %[4]s}}\n---\n"+
			"{apiVersion: thurkube.thurbeen.eu/v1alpha1, kind: AgentJob, metadata: {name: %[2]s, namespace: %[1]s}, spec: {runtimeRef: runtime, authRef: auth, roleRef: role, prompt: work, clusterAccessRef: %[2]s, access: %[3]s}}\n---\n",
		n.name,
		name,
		scope,
		rules,
	)
}

// get returns a field of an object of the tenant, as an administrator sees it.
func (n *tenant) get(kind, name, path string) string {
	n.Helper()
	out, err := n.cluster.Kubectl(n.Context(), "get", kind, name, "-n", n.name, "--ignore-not-found", "-o", "jsonpath={"+path+"}")
	require.NoError(n, err)
	return out
}

func (n *tenant) condition(kind, name, condition, field string) string {
	n.Helper()
	return n.get(kind, name, `.status.conditions[?(@.type=="`+condition+`")].`+field)
}

// admin runs kubectl as an administrator of the cluster.
func (n *tenant) admin(args ...string) string {
	n.Helper()
	out, err := n.cluster.Kubectl(n.Context(), args...)
	require.NoError(n, err)
	return out
}

// eventually waits up to three minutes.
func (n *tenant) eventually(what string, holds func() bool) {
	n.Helper()
	deadline := time.After(3 * time.Minute)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-deadline:
			out, _ := n.cluster.Kubectl(
				n.Context(),
				"get",
				"app,preview,aj",
				"-A",
				"-o",
				"jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.name}: {.status.phase} {.status.conditions[?(@.type==\"Ready\")].reason} {.status.conditions[?(@.type==\"Ready\")].message}{\"\\n\"}{end}",
			)
			require.FailNow(n, "it did not happen in time: "+what, "%s", out)
		case <-tick.C:
		}
	}
}

// refused waits for a condition with a reason, and returns its message, which names no other
// tenant.
func (n *tenant) refused(kind, name, condition, reason string) (message string) {
	n.Helper()
	n.eventually(name+" is refused: "+reason, func() bool { return n.condition(kind, name, condition, "reason") == reason })
	message = n.condition(kind, name, condition, "message")
	require.NotContains(n, message, "team")
	return message
}

// login connects to the database as an app of the tenant does.
func (n *tenant) login(app string) *pgx.Conn {
	n.Helper()
	conn, err := pgx.Connect(n.Context(), n.databaseURL(app))
	require.NoError(n, err)
	n.Cleanup(func() { _ = conn.Close(context.WithoutCancel(n.Context())) })
	return conn
}

func (n *tenant) databaseURL(app string) string {
	n.Helper()
	out, err := n.try("get", "secret", app+"-db", "-o", "go-template={{index .data \"DATABASE_URL\" | base64decode}}")
	require.NoError(n, err)
	return out
}

func (n *tenant) exec(conn *pgx.Conn, statement string) {
	n.Helper()
	_, err := conn.Exec(n.Context(), statement)
	require.NoError(n, err)
}

// rows returns what a query of the superuser returns in a database.
func (n *tenant) rows(query string) []string {
	n.Helper()
	conn, err := pgx.Connect(n.Context(), strings.Replace(n.pg.URL("platform"), "trueup@", "postgres@", 1))
	require.NoError(n, err)
	defer func() { _ = conn.Close(context.WithoutCancel(n.Context())) }()
	found, err := conn.Query(n.Context(), query)
	require.NoError(n, err)
	lines, err := pgx.CollectRows(found, pgx.RowTo[string])
	require.NoError(n, err)
	return lines
}

// redirects are the redirect URIs of the client of a realm, sorted.
func (n *tenant) redirects(realm string) []string {
	n.Helper()
	var token struct {
		Text string `json:"access_token"`
	}
	n.ask(http.MethodPost, "/realms/master/protocol/openid-connect/token", "", url.Values{
		"grant_type": {"password"}, "client_id": {"admin-cli"}, "username": {keycloaktest.User}, "password": {keycloaktest.Password},
	}, &token)
	var clients []struct {
		RedirectURIs []string `json:"redirectUris"`
	}
	n.ask(http.MethodGet, "/admin/realms/"+realm+"/clients?clientId="+realm, token.Text, nil, &clients)
	var all []string
	for _, client := range clients {
		all = append(all, client.RedirectURIs...)
	}
	slices.Sort(all)
	return all
}

// ask sends a request to Keycloak.
func (n *tenant) ask(method, path, token string, form url.Values, into any) {
	n.Helper()
	request, err := http.NewRequestWithContext(n.Context(), method, n.realms+path, strings.NewReader(form.Encode()))
	require.NoError(n, err)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	} else {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	response, err := http.DefaultClient.Do(request)
	require.NoError(n, err)
	text, err := io.ReadAll(response.Body)
	require.NoError(n, err)
	require.NoError(n, response.Body.Close())
	require.NoError(n, json.Unmarshal(text, into), "%s", text)
}

// hosts returns the hosts of all Ingresses of a namespace.
func (n *tenant) hosts() []string {
	n.Helper()
	return strings.Fields(n.admin("get", "ingress", "-n", n.name, "-o", "jsonpath={.items[*].spec.rules[*].host}"))
}

// can reports whether an account may do something.
func (n *tenant) can(account, verb, resource, namespace string) bool {
	args := []string{"auth", "can-i", verb, resource, "--as=" + account, "-n", namespace}
	if of, ok := strings.CutPrefix(account, "system:serviceaccount:"); ok {
		in, _, _ := strings.Cut(of, ":")
		args = append(args, "--as-group=system:serviceaccounts:"+in, "--as-group=system:serviceaccounts", "--as-group=system:authenticated")
	}
	out, _ := n.cluster.Kubectl(n.Context(), args...)
	return strings.TrimSpace(out) == "yes"
}
