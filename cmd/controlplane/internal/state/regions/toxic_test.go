package regions_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/Shopify/toxiproxy/v2/stream"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

// heartbeat is short, so that a link which is dead is found soon.
const heartbeat = 300 * time.Millisecond

// link is a replica that follows a log through a proxy on real sockets.
type link struct {
	t       *testing.T
	log     *statesync.Memory
	replica *statesync.Replica
	proxy   *toxiproxy.Proxy
	// open counts the streams that the server serves, ends has why those of
	// the replica ended.
	open atomic.Int64
	ends chan error
}

// watched counts the streams of a handler.
type watched struct {
	http.Handler
	open *atomic.Int64
}

func (w watched) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	w.open.Add(1)
	defer w.open.Add(-1)
	w.Handler.ServeHTTP(rw, r)
}

func newLink(t *testing.T) *link {
	t.Helper()
	l := &link{t: t, log: &statesync.Memory{}, ends: make(chan error, 1000)}
	require.NoError(t, l.log.AddScope("eu"))
	server := &statesync.Server{Log: l.log, Heartbeat: heartbeat}
	handler := watched{
		&statesync.Handler{Server: server, Authorize: func(*http.Request, string) (string, error) { return "agent", nil }},
		&l.open,
	}
	web := &http.Server{
		Handler: handler, ReadHeaderTimeout: time.Minute, Protocols: new(http.Protocols),
		HTTP2: &http.HTTP2Config{SendPingTimeout: heartbeat, PingTimeout: heartbeat},
	}
	web.Protocols.SetUnencryptedHTTP2(true)
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)

	proxies := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	l.proxy = toxiproxy.NewProxy(proxies, "link", "127.0.0.1:0", listener.Addr().String())
	require.NoError(t, l.proxy.Start())

	client := &statesync.Client{URL: "http://" + l.proxy.Listen, UnencryptedHTTP2: true, Patience: 2 * heartbeat}
	l.replica = &statesync.Replica{
		Source: client, Scope: "eu",
		Handle:   func(context.Context, statesync.Item) error { return nil },
		OnStream: func(s statesync.Stream) { l.ends <- s.Err },
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 3)
	go func() { ended <- server.Start(ctx) }()
	go func() { ended <- l.replica.Start(ctx) }()
	go func() {
		if err := web.Serve(listener); err != http.ErrServerClosed {
			ended <- err
			return
		}
		ended <- nil
	}()
	t.Cleanup(func() {
		cancel()
		client.Close()
		l.proxy.Stop()
		require.NoError(t, web.Close())
		for range 3 {
			require.NoError(t, <-ended)
		}
	})
	return l
}

// converges commits a change and waits until the replica has it all.
func (l *link) converges(value int) {
	l.t.Helper()
	l.commit(value)
	page, err := l.log.Read(l.t.Context(), "eu", 0, 1)
	require.NoError(l.t, err)
	l.eventually(func() bool {
		status := l.replica.Status()
		return status.Complete && status.Applied.Version == page.Head
	})
}

func (l *link) commit(value int) {
	l.t.Helper()
	require.NoError(l.t, l.log.Commit(statesync.Change{
		Scope: "eu", Key: statesync.Key{Collection: "things", ID: fmt.Sprint(value % 7)}, Value: json.RawMessage(fmt.Sprint(value)),
	}))
}

func (l *link) eventually(condition func() bool) {
	l.t.Helper()
	await.Eventually(l.t, "what comes by the link", condition)
}

// toxic adds a toxic for as long as during runs.
func (l *link) toxic(name, direction, attributes string, during func()) {
	l.t.Helper()
	body := fmt.Sprintf(`{"name":"it","type":%q,"stream":%q,"toxicity":1,"attributes":%s}`, name, direction, attributes)
	_, err := l.proxy.Toxics.AddToxicJson(strings.NewReader(body))
	require.NoError(l.t, err)
	during()
	require.NoError(l.t, l.proxy.Toxics.RemoveToxic(context.WithoutCancel(l.t.Context()), "it"))
}

func TestEveryToxicIsOvercome(t *testing.T) {
	t.Parallel()
	l := newLink(t)
	l.converges(0)
	value := 0
	for _, c := range []struct {
		name, attributes string
		cuts             bool
	}{
		{"latency", `{"latency":50,"jitter":50}`, false},
		{"bandwidth", `{"rate":4}`, false},
		{"slow_close", `{"delay":50}`, false},
		{"slicer", `{"average_size":40,"size_variation":20,"delay":10}`, false},
		{"limit_data", `{"bytes":300}`, true},
		{"reset_peer", `{"timeout":20}`, true},
		{"timeout", `{"timeout":50}`, true},
	} {
		for _, direction := range []stream.Direction{stream.Upstream, stream.Downstream} {
			for len(l.ends) > 0 {
				<-l.ends
			}
			l.toxic(c.name, direction.String(), c.attributes, func() {
				value++
				if !c.cuts {
					l.converges(value)
					return
				}
				l.commit(value)
				<-l.ends
			})
			value++
			l.converges(value)
		}
	}
}

// TestADeadLinkIsFoundOnBothSides lets nothing through any more, without a word
// to anybody.
func TestADeadLinkIsFoundOnBothSides(t *testing.T) {
	t.Parallel()
	l := newLink(t)
	l.converges(1)
	l.eventually(func() bool { return l.open.Load() == 1 })
	for len(l.ends) > 0 {
		<-l.ends
	}
	body := `{"name":"%s","type":"timeout","stream":%q,"toxicity":1,"attributes":{"timeout":0}}`
	for _, direction := range []string{"upstream", "downstream"} {
		_, err := l.proxy.Toxics.AddToxicJson(strings.NewReader(fmt.Sprintf(body, direction, direction)))
		require.NoError(t, err)
	}
	// Either side may be first: the client notices a server that closes the connection.
	require.Error(t, <-l.ends)
	l.eventually(func() bool { return l.open.Load() == 0 })
	_, complete := l.replica.Complete()
	require.False(t, complete)
	l.proxy.Toxics.ResetToxics(t.Context())
	l.converges(2)
}
