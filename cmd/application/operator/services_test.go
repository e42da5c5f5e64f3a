package operator_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	"github.com/seed-9e1ffd66/trueup/cmd/api/platform/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/cmd/application/internal/external"
	application "github.com/seed-9e1ffd66/trueup/cmd/application/operator"
)

// dependency is a service with a proxy before it.
type dependency struct {
	*toxiproxy.Proxy

	// part is the part that uses the service, condition the condition of the part, more the
	// fields of a spec that turn it on.
	part, condition, more string
}

// hang lets the service accept, and never answer.
func (d dependency) hang(t *testing.T) {
	t.Helper()
	_, err := d.Toxics.AddToxicJson(
		strings.NewReader(`{"name":"hang","type":"timeout","stream":"upstream","toxicity":1,"attributes":{"timeout":0}}`),
	)
	require.NoError(t, err)
}

// heal ends what hang has begun.
func (d dependency) heal(t *testing.T) {
	t.Helper()
	d.Toxics.ResetToxics(t.Context())
}

// withProxies has operators reach each service of a whole cell by way of a proxy.
func (c *cell) withProxies(t *testing.T) []dependency {
	t.Helper()
	c.realKeycloak = c.settings.KeycloakURL
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	proxy := func(name string, to *string, old string) *toxiproxy.Proxy {
		p := toxiproxy.NewProxy(server, name, "127.0.0.1:0", old)
		require.NoError(t, p.Start())
		t.Cleanup(p.Stop)
		*to = strings.Replace(*to, old, p.Listen, 1)
		require.Contains(t, *to, p.Listen)
		return p
	}
	return []dependency{
		{
			proxy("database", &c.settings.DatabaseURL, fmt.Sprint("127.0.0.1:", c.pg.Port)),
			"database",
			"DatabaseReady",
			", database: {enabled: true}",
		},
		{
			proxy("storage", &c.settings.S3Endpoint, strings.TrimPrefix(c.s3.URL, "http://")),
			"storage",
			"StorageReady",
			", storage: {enabled: true, buckets: [{name: a}]}",
		},
		{proxy("auth", &c.settings.KeycloakURL, strings.TrimPrefix(c.realKeycloak, "http://")), "auth", "AuthReady", ", auth: {enabled: true}"},
	}
}

// but returns the fields that turn on all services but one.
func but(services []dependency, one dependency) string {
	more := []string{", imageRef: 'app:1', scaling: {min: 1}"}
	for _, d := range services {
		if d.part != one.part {
			more = append(more, d.more)
		}
	}
	return strings.Join(more, "")
}

func (b *bench) gone(name string) bool {
	b.Helper()
	return b.in("get", "app", name, "--ignore-not-found", "-o", "name") == ""
}

// TestAServiceThatHangsDelaysItsUsersOnly is C27 for each service: it accepts and never
// answers, more applications than there are workers use it, and another runs all the same. A
// deletion that needs it names it.
func TestAServiceThatHangsDelaysItsUsersOnly(t *testing.T) {
	if testing.Short() {
		t.Skip("long: calls that hang")
	}
	t.Parallel()
	if !long() {
		t.Skip("depends on the machine's speed: with TRUEUP_SWEEP=all, in make test-long")
	}
	const many = 26 // two more than there are workers
	c := newWholeCell(t)
	services := c.withProxies(t)
	b := c.bench(t, "hang")
	c.start(t)
	for _, d := range services {
		b.app("dying-"+d.part, d.more)
		b.eventually("it has its "+d.part, func() bool { return b.condition("dying-"+d.part, d.condition, "status") == "True" })
	}
	for _, d := range services {
		d.hang(t)
		for n := range many {
			b.app(fmt.Sprintf("%s-%02d", d.part, n), d.more)
		}
		b.in("delete", "app", "dying-"+d.part, "--wait=false")
		began := time.Now()
		b.app("but-"+d.part, but(services, d))
		b.phase("but-"+d.part, "Running")
		t.Logf("figure application_beside_hung_%s %.1f s", d.part, time.Since(began).Seconds())
		require.Less(t, time.Since(began), time.Minute)
		b.eventually("one says why it waits", func() bool {
			return strings.Contains(
				b.in(
					"get",
					"app",
					"-o",
					`jsonpath={range .items[*]}{.metadata.name} {.status.conditions[?(@.type=="`+d.condition+`")].reason}{"\n"}{end}`,
				),
				"Unreachable",
			)
		})
		b.eventually("the deletion names its step", func() bool {
			return strings.Contains(b.condition("dying-"+d.part, "Ready", "message"), d.part+": ")
		})
		d.heal(t)
	}
	for _, d := range services {
		b.eventually("the deletion ends", func() bool { return b.gone("dying-" + d.part) })
		for n := range many {
			name := fmt.Sprintf("%s-%02d", d.part, n)
			b.eventually(name+" recovers", func() bool { return b.condition(name, d.condition, "status") == "True" })
		}
	}
}

// TestAServiceThatIsDown is D10, D11, D14 and C26 for each service, and mark A4: an
// application that does not use it runs, one that does has what the others give it and says
// why it waits; a deletion names its step, removes the rest, and goes on after a restart of
// the operator. All recover by themselves, and nothing is left.
func TestAServiceThatIsDown(t *testing.T) {
	if testing.Short() {
		t.Skip("long: outages of each service")
	}
	t.Parallel()
	c := newWholeCell(t)
	services := c.withProxies(t)
	b := c.bench(t, "down")
	b.strangers()
	r := c.start(t)
	for _, d := range services {
		b.app("dying-"+d.part, all)
		b.phase("dying-"+d.part, "Running")
	}
	before := b.everything()
	for _, d := range services {
		d.Stop()
		b.app("but-"+d.part, but(services, d))
		b.phase("but-"+d.part, "Running")
		b.app("new-"+d.part, all)
		b.eventually("it says why it waits", func() bool { return b.condition("new-"+d.part, d.condition, "reason") == "Unreachable" })
		for _, other := range services {
			if other.part != d.part {
				b.eventually("it has its "+other.part, func() bool { return b.condition("new-"+d.part, other.condition, "status") == "True" })
			}
		}
		b.phase("new-"+d.part, "Pending")
		require.NotEmpty(b, b.get("app", "new-"+d.part, ".status.external"))

		b.in("delete", "app", "dying-"+d.part, "--wait=false")
		names := func() bool {
			message := b.condition("dying-"+d.part, "Ready", "message")
			return b.condition("dying-"+d.part, "Ready", "reason") == "DeletionFailed" && strings.HasPrefix(message, "deletion: ") &&
				strings.Contains(message, d.part+": ")
		}
		b.eventually("the deletion names its step", names)
		require.Equal(b, "Terminating", b.get("app", "dying-"+d.part, ".status.phase"))
		r.stop()
		r = c.start(t)
		b.app("after-"+d.part, ", imageRef: 'app:1', scaling: {min: 1}")
		b.phase("after-"+d.part, "Running") // it works again
		require.False(b, b.gone("dying-"+d.part))
		require.True(b, names())
		if d.part != "database" {
			b.eventually("the database is removed", func() bool { return len(b.left("prod_dying_"+d.part)) == 0 })
		}
		if d.part != "storage" {
			require.Empty(b, b.buckets("plattr-prod-dying-"+d.part))
		}
		require.NoError(b, d.Start())
	}
	for _, d := range services {
		b.phase("new-"+d.part, "Running")
		b.eventually("the deletion ends", func() bool { return b.gone("dying-" + d.part) })
	}
	for _, line := range b.everything() {
		require.NotRegexp(b, "dying[-_](database|storage|auth)", line)
	}
	b.in("delete", "app", "--all", "--timeout=300s")
	theirs := func(lines []string) []string {
		for _, name := range []string{"dying", "but-", "but_", "new-", "new_", "after-"} {
			lines = ofOthers(lines, name)
		}
		return lines
	}
	require.Equal(b, theirs(before), theirs(b.everything()))
	for _, line := range b.everything() {
		require.NotRegexp(b, "(new|but|dying)[-_](database|storage|auth)", line)
	}
	fmt.Println("figure application_foreign_touched 0")
}

// TestWaitsGrowAndAPassGivesUpAfterThem is D9 and B3 in virtual time.
func TestWaitsGrowAndAPassGivesUpAfterThem(t *testing.T) {
	if testing.Short() {
		t.Skip("long: retries pass")
	}
	t.Parallel()
	fails := fmt.Errorf("service: %w", external.ErrUnreachable)
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			var at []time.Time
			early := 0
			err := application.Retry(t.Context(), func(context.Context) error {
				if at = append(at, time.Now()); len(at) <= 2 {
					return fails
				}
				return nil
			}, func(err error) {
				require.ErrorIs(t, err, fails)
				require.Len(t, at, 1, "the first failure is reported before a wait")
				early++
			})
			require.NoError(t, err)
			require.Len(t, at, 3)
			require.Equal(t, 1, early)
			within(t, at[1].Sub(at[0]), 500*time.Millisecond, 1500*time.Millisecond)
			within(t, at[2].Sub(at[1]), time.Second, 3*time.Second)
		})
	}
	synctest.Test(t, func(t *testing.T) {
		began, calls := time.Now(), 0
		err := application.Retry(t.Context(), func(context.Context) error { calls++; return fails }, func(error) {})
		require.ErrorIs(t, err, external.ErrUnreachable)
		require.Equal(t, 4, calls)
		within(t, time.Since(began), 3500*time.Millisecond, 10500*time.Millisecond)
		for _, lasting := range []error{external.ErrDenied, external.ErrOwnedByOther, external.ErrUnset} {
			began, calls = time.Now(), 0
			err := application.Retry(
				t.Context(),
				func(context.Context) error { calls++; return lasting },
				func(error) { t.Error("it is reported at the end") },
			)
			require.ErrorIs(t, err, lasting)
			require.Equal(t, 1, calls)
			require.Zero(t, time.Since(began))
		}
		ctx, cancel := context.WithCancel(t.Context())
		err = application.Retry(ctx, func(context.Context) error { cancel(); return fails }, func(error) { t.Error("nobody is there") })
		require.True(t, errors.Is(err, context.Canceled) || errors.Is(err, external.ErrUnreachable))
	})
}

func within(t *testing.T, d, least, most time.Duration) {
	t.Helper()
	require.GreaterOrEqual(t, d, least)
	require.LessOrEqual(t, d, most)
}

// flaky stands before a service of HTTP, and answers 503 to some requests in its place.
type flaky struct {
	mu    sync.Mutex
	fails int
	at    []time.Time
}

func (f *flaky) before(t *testing.T, service string) string {
	t.Helper()
	at, err := url.Parse(service)
	require.NoError(t, err)
	next := httputil.NewSingleHostReverseProxy(at)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		fails := len(f.at) < f.fails
		f.at = append(f.at, time.Now())
		f.mu.Unlock()
		if fails {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		next.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func (f *flaky) times() []time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]time.Time(nil), f.at...)
}

// history watches the Applications of the namespace. What it returns stops that, and returns
// each phase with the reason of the condition.
func (b *bench) history(condition string) (stop func() []string) {
	b.Helper()
	client, err := dynamic.NewForConfig(b.cluster.Config)
	require.NoError(b, err)
	watch, err := client.Resource(v1alpha1.GroupVersion().WithResource("applications")).
		Namespace(b.name).
		Watch(b.Context(), metav1.ListOptions{})
	require.NoError(b, err)
	var seen []string
	done := make(chan struct{})
	go func() {
		defer close(done)
		for event := range watch.ResultChan() {
			var app v1alpha1.Application
			o, ok := event.Object.(*unstructured.Unstructured)
			if !ok || runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &app) != nil {
				continue
			}
			line := string(app.Status.Phase)
			if c := meta.FindStatusCondition(app.Status.Conditions, condition); c != nil {
				line += " " + c.Reason
			}
			seen = append(seen, line)
		}
	}()
	return func() []string {
		watch.Stop()
		<-done
		return seen
	}
}

// keycloakFailsTwice is D9 through the operator: the third attempt of the same pass makes
// the realm.
func keycloakFailsTwice(b *bench) {
	f := &flaky{fails: 2}
	c := *b.cell
	c.realKeycloak = c.settings.KeycloakURL
	c.settings.KeycloakURL = f.before(b.T, c.realKeycloak)
	history := b.history("AuthReady")
	r := c.start(b.T)
	defer r.stop()
	b.app("twice", ", imageRef: 'app:1', auth: {enabled: true}")
	b.phase("twice", "Running")
	require.Contains(b, history(), "Pending Unreachable", "it says why it waits")
	const passes = `plattr_reconcile_total{app="twice",resource_type="auth",result=`
	require.Contains(b, r.metrics(b.T), passes+`"success"}`)
	require.NotContains(b, r.metrics(b.T), passes+`"Unreachable"}`, "the third attempt is of the same pass")
	at := f.times()
	require.Greater(b, len(at), 3, "the pass goes on")
	first, second := at[1].Sub(at[0]), at[2].Sub(at[1])
	require.GreaterOrEqual(b, first, 500*time.Millisecond)
	require.GreaterOrEqual(b, second, time.Second)
	b.in("delete", "app", "twice", "--timeout=120s")
	b.Logf("figure application_retry_waits %.2f %.2f s", first.Seconds(), second.Seconds())
}
