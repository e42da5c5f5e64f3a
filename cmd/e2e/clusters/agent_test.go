package clusters_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	shuttle "github.com/seed-9e1ffd66/trueup/cmd/shuttle/agent"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/internal/test/logtest"
)

// agent is one that runs, or can.
type agent struct {
	b        *bench
	settings map[string]string
	net      *applytest.Transport // to Kubernetes, since the last start
	// host, if set, is where the API server is reached.
	host    string
	wrap    func(http.RoundTripper) http.RoundTripper // added before net's wrapper, if set
	address string
	stop    func()
	runs    bool
	log     *logtest.Log // since the last start
}

// agent returns one that does not run yet. It pulls every second unless settings, each
// NAME=value, say otherwise.
func (b *bench) agent(settings ...string) *agent {
	a := &agent{b: b, stop: func() {}, net: &applytest.Transport{}, settings: map[string]string{
		"STARFORM_STARBASE_URL": "http://" + b.proxy.Listen, "STARFORM_CLUSTER_ID": b.id, "STARFORM_REGION": "nyc3",
		"STARFORM_AUTH_TOKEN_FILE": b.token, "STARFORM_METRICS_ADDR": "127.0.0.1:0", "STARFORM_RECONCILE_INTERVAL": "1s",
	}}
	for _, setting := range settings {
		variable, value, _ := strings.Cut(setting, "=")
		a.settings[variable] = value
	}
	b.agents = append(b.agents, a)
	b.t.Cleanup(func() { a.stop() })
	return a
}

// start starts the agent, again if it runs.
func (a *agent) start() *agent {
	t := a.b.t
	t.Helper()
	a.stop()
	config, err := shuttle.ReadConfig(func(name string) string { return a.settings[name] })
	require.NoError(t, err)
	a.net = &applytest.Transport{Fault: a.b.judge}
	access := rest.CopyConfig(a.b.access)
	if a.host != "" {
		access.Host = a.host
	}
	if a.wrap != nil {
		access.Wrap(a.wrap)
	}
	access.Wrap(a.net.Wrap)
	address := make(chan string, 1)
	a.log = &logtest.Log{}
	program := shuttle.Agent{
		Config: config, Kubernetes: access, OnListen: func(at net.Addr) { address <- at.String() },
		Logger: slog.New(slog.NewTextHandler(io.MultiWriter(a.log, a.b.log), nil)),
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- program.Start(ctx) }()
	a.runs = true
	a.stop = sync.OnceFunc(func() {
		a.runs = false
		cancel()
		select {
		case err := <-done:
			require.NoError(t, err)
		case <-time.After(20 * time.Second): // C29
			t.Error("the agent did not stop within 20 s")
			<-done
		}
	})
	select {
	case a.address = <-address:
	case err := <-done:
		require.NoError(t, err)
	}
	return a
}

// ask asks the agent's listener.
func (a *agent) ask(path string) (status int, text string) {
	t := a.b.t
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+a.address+path, http.NoBody)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(body)
}

// metric returns a metric of the agent, the sum over its labels if none are named.
func (a *agent) metric(name string) (sum float64) {
	t := a.b.t
	t.Helper()
	_, text := a.ask("/metrics")
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, "starform_"+name); ok && (rest[0] == ' ' || rest[0] == '{') {
			var value float64
			_, err := fmt.Sscan(rest[strings.LastIndexByte(rest, ' ')+1:], &value)
			require.NoError(t, err)
			sum += value
		}
	}
	return sum
}

// applied waits until the agent has applied what the database has.
func (a *agent) applied() {
	t := a.b.t
	t.Helper()
	want := a.b.generation()
	await.Eventually(t, fmt.Sprintf("generation %v is applied", want), func() bool { return a.metric("applied_generation") == want })
}

// passes waits for n more passes.
func (a *agent) passes(n int) {
	t := a.b.t
	t.Helper()
	from := a.metric("passes_total")
	await.Eventually(t, "there are more passes", func() bool { return a.metric("passes_total") >= from+float64(n) })
}

// writes returns the writes of the agent since its start, other than the generation that it
// saves once for each state that it accepts.
func (a *agent) writes() []applytest.Request {
	return slices.DeleteFunc(a.net.Writes(), func(r applytest.Request) bool { return strings.HasPrefix(r.Name, "shuttle-generation-") })
}

// quiet waits until the agent has written nothing for some passes.
func (a *agent) quiet() {
	t := a.b.t
	t.Helper()
	await.Eventually(t, "the agent writes nothing", func() bool {
		before := len(a.writes())
		a.passes(3)
		return len(a.writes()) == before
	})
}

// since returns what the agent has written after the first n writes.
func (a *agent) since(n int) (writes []string) {
	for _, r := range a.writes()[n:] {
		writes = append(writes, r.String())
	}
	return writes
}

// deletes returns the deletions that the agent has asked for since its start.
func (a *agent) deletes() []applytest.Request {
	return slices.DeleteFunc(a.net.Requests(), func(r applytest.Request) bool { return !strings.HasPrefix(r.Verb, "delete") })
}

// deleteAndRepair deletes the Deployment of a service by hand and waits until the agent has
// made another.
func (a *agent) deleteAndRepair(name string) {
	a.b.t.Helper()
	uid := a.b.deleteByHand(name)
	await.Eventually(a.b.t, name+" is back", func() bool { return a.b.isBack(name, uid) })
}
