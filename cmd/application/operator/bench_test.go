package operator_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	application "github.com/seed-9e1ffd66/trueup/cmd/application/operator"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/internal/test/keycloaktest"
	"github.com/seed-9e1ffd66/trueup/internal/test/pgtest"
	"github.com/seed-9e1ffd66/trueup/internal/test/s3test"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

const account = "system:serviceaccount:" + application.Namespace + ":" + application.Account

// cell is a Kubernetes with controllers and simulated nodes, and the services outside.
type cell struct {
	cluster *kubetest.Cluster
	access  *rest.Config
	pg      *pgtest.Server
	s3      *s3test.Server
	// settings, look and alone are those of operators that start.
	settings application.Settings
	look     time.Duration
	alone    bool
	// realKeycloak is where Keycloak is, if the operators reach it by way of a proxy.
	realKeycloak  string
	keycloakToken *string
	s3Secret      string // of operators that start
	kinds         *[]schema.GroupVersionResource
}

// newCellOf returns a cell with simulated nodes.
func newCellOf(t *testing.T, nodes int, k *keycloaktest.Server) *cell {
	t.Helper()
	stages, err := os.ReadFile(filepath.Join("testdata", "stages.yaml"))
	require.NoError(t, err)
	c := &cell{
		s3Secret:      s3test.SecretKey,
		kinds:         new([]schema.GroupVersionResource),
		keycloakToken: new(string),
		pg:            pgtest.Start(t, pgtest.Options{Passwords: true}),
		s3:            s3test.Start(t),
		cluster:       kubetest.Start(t, kubetest.Options{Controllers: true, Scheduler: true, Nodes: nodes, Stages: string(stages)}),
	}
	text, err := application.Manifests{Image: "application", BaseDomain: "example.com"}.YAML()
	require.NoError(t, err)
	require.NoError(t, c.cluster.Apply(t.Context(), text))
	_, err = c.cluster.Kubectl(t.Context(), "wait", "--for=condition=Established", "--timeout=300s", "crd", "--all")
	require.NoError(t, err)
	c.access, _, err = c.cluster.ServiceAccount(t.Context(), application.Namespace, application.Account)
	require.NoError(t, err)
	require.NoError(t, c.pg.SQL(t.Context(), "postgres", "CREATE DATABASE platform"))
	require.NoError(
		t,
		c.pg.SQL(
			t.Context(),
			"platform",
			"CREATE ROLE operator LOGIN CREATEROLE PASSWORD 'adm1n'; GRANT CREATE ON DATABASE platform TO operator",
		),
	)
	c.settings = application.Settings{
		DatabaseURL: fmt.Sprintf(
			"postgresql://operator:adm1n@127.0.0.1:%d/platform",
			c.pg.Port,
		),
		BaseDomain:     "example.com",
		S3Endpoint:     c.s3.URL,
		S3Region:       s3test.Region,
		AllowedDomains: []string{"example.org"},
		Redis:          "redis.internal",
	}
	if k != nil {
		c.settings.KeycloakURL, c.settings.KeycloakUser, c.settings.KeycloakPassword = k.URL, keycloaktest.User, keycloaktest.Password
	}
	return c
}

// newWholeCell returns a cell with a Keycloak that operators use. It waits for its turn with
// the Keycloak before it starts anything.
func newWholeCell(t *testing.T) *cell {
	t.Helper()
	return newCellOf(t, 3, keycloaktest.Borrow(t))
}

// newCell returns a cell without a Keycloak.
func newCell(t *testing.T) *cell {
	t.Helper()
	return newCellOf(t, 3, nil)
}

// running is one process of the operator.
type running struct {
	address string
	net     *applytest.Transport
	stop    func()
}

// start starts an operator.
func (c *cell) start(t *testing.T) *running {
	t.Helper()
	return c.startLater(t, 0)
}

// startLater starts an operator that takes it to be later than it is.
func (c *cell) startLater(t *testing.T, by time.Duration) *running {
	t.Helper()
	return c.run(t, nil, by)
}

// run starts an operator with a life, if there is one, that takes it to be later than it is.
func (c *cell) run(t *testing.T, l *life, later time.Duration) *running {
	t.Helper()
	r := &running{net: &applytest.Transport{}}
	if l != nil {
		r.net = l.transport()
	}
	access := rest.CopyConfig(c.access)
	access.Wrap(r.net.Wrap)
	address := make(chan string, 1)
	o := &application.Operator{
		Kubernetes:    access,
		Namespace:     application.Namespace,
		Address:       "127.0.0.1:0",
		Instance:      "test",
		Settings:      c.settings,
		CheckInterval: c.look,
		Alone:         c.alone,
		S3Credentials: credentials.NewStaticCredentialsProvider(s3test.AccessKey, c.s3Secret, ""),
		Logger:        slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError})),
		OnListen:      func(at net.Addr) { address <- at.String() },
	}
	o.SetNow(func() time.Time { return time.Now().Add(later) })
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	if l != nil {
		l.kill = cancel
		o.Tap(statements{l}, &wire{life: l, to: "s3"}, &wire{life: l, to: "keycloak"})
	}
	done := make(chan error, 1)
	go func() { done <- o.Start(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-done)
	})
	t.Cleanup(r.stop)
	select {
	case r.address = <-address:
	case err := <-done:
		done <- err // for stop
		require.NoError(t, err)
	}
	return r
}

// bench is the namespace of one scenario.
type bench struct {
	*testing.T

	*cell
	name string
}

func (c *cell) bench(t *testing.T, name string) *bench {
	t.Helper()
	b := &bench{T: t, cell: c, name: name}
	_, err := c.cluster.Kubectl(t.Context(), "create", "namespace", name)
	require.NoError(t, err)
	return b
}

// in runs kubectl in the namespace.
func (b *bench) in(args ...string) string {
	b.Helper()
	out, err := b.cluster.Kubectl(b.Context(), append(args, "-n", b.name)...)
	require.NoError(b, err)
	return out
}

// app applies an Application. more are fields of its spec.
func (b *bench) app(name, more string) {
	b.Helper()
	require.NoError(b, b.cluster.Apply(b.Context(), fmt.Sprintf(
		"{apiVersion: platform.internal/v1alpha1, kind: Application, metadata: {name: %s, namespace: %s}, spec: {repository: github.com/team/app, framework: nextjs, environment: production%s}}",
		name,
		b.name,
		more,
	)))
}

func (b *bench) get(kind, name, path string) string {
	b.Helper()
	return b.in("get", kind, name, "--ignore-not-found", "-o", "jsonpath={"+path+"}")
}

func (b *bench) condition(name, kind, field string) string {
	b.Helper()
	return b.get("app", name, `.status.conditions[?(@.type=="`+kind+`")].`+field)
}

// eventually waits as await.Eventually does, and shows the namespace if it fails.
func (b *bench) eventually(what string, done func() bool) {
	b.Helper()
	await.Eventually(b, what, done, func() string {
		out, _ := b.cluster.Kubectl(b.Context(), "get", "app,preview,all,ingress,secret,cm", "-n", b.name, "-o", "wide")
		status, _ := b.cluster.Kubectl(
			b.Context(),
			"get",
			"app,preview",
			"-n",
			b.name,
			"-o",
			"jsonpath={range .items[*]}{.metadata.name}: {.status}{\"\\n\"}{end}",
		)
		return out + "\n" + status
	})
}

func (b *bench) phase(name, want string) {
	b.Helper()
	b.eventually(name+" is "+want, func() bool { return b.get("app", name, ".status.phase") == want })
}

// rests waits until the operator has sent nothing for two seconds.
func (b *bench) rests(r *running) {
	b.Helper()
	b.still("nothing is sent", r, func(string) bool { return true })
}

// writesNothing waits until the operator has written nothing for two seconds: one that looks
// each second never ends to read.
func (b *bench) writesNothing(r *running) {
	b.Helper()
	b.still("nothing is written", r, isWrite)
}

func isWrite(verb string) bool { return !slices.Contains([]string{"get", "list", "watch"}, verb) }

func (b *bench) still(what string, r *running, counts func(verb string) bool) {
	b.Helper()
	sent, since := -1, time.Now()
	b.eventually(what, func() bool {
		count := 0
		for _, request := range r.net.Requests() {
			if request.Resource != "leases" && counts(request.Verb) {
				count++
			}
		}
		if count != sent {
			sent, since = count, time.Now()
		}
		return time.Since(since) > 2*time.Second
	})
}

// secret returns a decoded key of a Secret.
func (b *bench) secret(name, key string) string {
	b.Helper()
	return b.in("get", "secret", name, "-o", "go-template={{index .data \""+key+"\" | base64decode}}")
}

// login connects as an app does.
func (b *bench) login(name string) (*pgx.Conn, error) {
	b.Helper()
	return pgx.Connect(b.Context(), b.secret(name+"-db", "DATABASE_URL"))
}

// rows returns what a query of the superuser returns, a line each.
func (b *bench) rows(query string) []string {
	b.Helper()
	conn, err := pgx.Connect(b.Context(), strings.Replace(b.pg.URL("platform"), "trueup@", "postgres@", 1))
	require.NoError(b, err)
	defer conn.Close(context.WithoutCancel(b.Context()))
	found, err := conn.Query(b.Context(), query)
	require.NoError(b, err)
	lines, err := pgx.CollectRows(found, pgx.RowTo[string])
	require.NoError(b, err)
	return lines
}

// left are the schemas and roles of an app in the database.
func (b *bench) left(name string) []string {
	b.Helper()
	return b.rows(
		"SELECT nspname::text FROM pg_namespace WHERE nspname = '" + name + "' UNION ALL SELECT rolname::text FROM pg_roles WHERE rolname LIKE '" + name + "\\_%' ORDER BY 1",
	)
}

// people returns a client of S3 that is not the operator's.
func (b *bench) people() *s3.Client {
	return s3.New(s3.Options{
		Region:       s3test.Region,
		BaseEndpoint: aws.String(b.s3.URL),
		UsePathStyle: true,
		Credentials:  credentials.NewStaticCredentialsProvider(s3test.AccessKey, s3test.SecretKey, ""),
	})
}

// buckets returns the names of all buckets with the prefix.
func (b *bench) buckets(prefix string) (names []string) {
	b.Helper()
	all, err := b.people().ListBuckets(b.Context(), &s3.ListBucketsInput{})
	require.NoError(b, err)
	for _, found := range all.Buckets {
		if strings.HasPrefix(*found.Name, prefix) {
			names = append(names, *found.Name)
		}
	}
	return names
}

// metrics returns what the operator shows to a scrape.
func (r *running) metrics(t *testing.T) string {
	t.Helper()
	response, err := http.Get("http://" + r.address + "/metrics") //nolint:noctx // a test
	require.NoError(t, err)
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	return string(text)
}
