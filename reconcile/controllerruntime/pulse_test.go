package controllerruntime //nolint:testpackage // the pulse is not exported

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
)

// counting counts requests by their method.
type counting map[string]int

func (c counting) RoundTrip(r *http.Request) (*http.Response, error) {
	c[r.Method]++
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
}

// TestAProcessThatWasStoppedWritesNothing: it may have lost the election meanwhile.
func TestAProcessThatWasStoppedWritesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sent := counting{}
		p := &pulse{}
		client := &http.Client{Transport: sent}
		var config *rest.Config
		p.guard(&config, &client)
		send := func(method string) error {
			r, err := http.NewRequestWithContext(t.Context(), method, "http://server/", strings.NewReader("{}"))
			require.NoError(t, err)
			answer, err := client.Do(r)
			if err == nil {
				err = answer.Body.Close()
			}
			return err
		}
		beating := func(d time.Duration) {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			defer cancel()
			p.run(ctx)
		}
		require.NoError(t, send(http.MethodPatch))
		beating(time.Minute)
		require.NoError(t, send(http.MethodPatch), "it was not stopped")
		time.Sleep(4 * time.Second)
		require.NoError(t, send(http.MethodPatch), "nobody else can be elected by then")

		for _, first := range []func(){func() {}, func() { p.beat() }} { // what runs first after the pause
			time.Sleep(6 * time.Second)
			first()
			for _, method := range []string{http.MethodPatch, http.MethodPost, http.MethodPut, http.MethodDelete} {
				require.ErrorContains(t, send(method), "the process was stopped for a while")
			}
			require.NoError(t, send(http.MethodGet))
			beating(14 * time.Second)
			require.ErrorContains(t, send(http.MethodDelete), "nothing is written for 1s")
			beating(time.Second)
			require.NoError(t, send(http.MethodDelete))
		}
		require.Equal(t, counting{http.MethodPatch: 3, http.MethodGet: 2, http.MethodDelete: 2}, sent)
	})
}

// TestAnOperatorAtRestMayWrite: its pulse beats while it works.
func TestAnOperatorAtRestMayWrite(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &pulse{}
		figures := prometheus.NewGauge(prometheus.GaugeOpts{Name: "trueup_rest", Help: "Nothing."})
		r := &runnable{pulse: p, figures: figures, logger: slog.New(slog.DiscardHandler), start: func(context.Context) error {
			p.beat()
			time.Sleep(time.Hour)
			require.LessOrEqual(t, p.beat(), time.Duration(0))
			return nil
		}}
		require.NoError(t, r.Start(t.Context()))
	})
}

// TestARefusedWriteIsClosed, as a transport must.
func TestARefusedWriteIsClosed(t *testing.T) {
	t.Parallel()
	p := &pulse{last: time.Now().Add(-time.Minute)}
	body := &closed{}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://server/", body)
	require.NoError(t, err)
	_, err = p.over(counting{}).RoundTrip(r) //nolint:bodyclose // there is none
	require.ErrorContains(t, err, "nothing is written for 15s")
	require.True(t, body.closed)
}

// closed is a body that knows whether it was closed.
type closed struct {
	strings.Reader

	closed bool
}

func (c *closed) Close() error {
	c.closed = true
	return nil
}

// TestAnotherServerIsGuardedToo: the operator has connections of its own then.
func TestAnotherServerIsGuardedToo(t *testing.T) {
	t.Parallel()
	p, given := &pulse{}, &rest.Config{Host: "http://another"}
	config, client := given, (*http.Client)(nil)
	p.guard(&config, &client)
	require.Nil(t, client)
	require.Nil(t, given.WrapTransport, "it is the caller's")
	require.IsType(t, guarded{}, config.WrapTransport(counting{}))
}
