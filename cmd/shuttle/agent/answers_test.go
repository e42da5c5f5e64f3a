package agent //nolint:testpackage // what is made of an answer is decided within

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/owntoken"
	"github.com/seed-9e1ffd66/trueup/internal/test/httpfunc"
	"github.com/seed-9e1ffd66/trueup/internal/test/logtest"
	"github.com/seed-9e1ffd66/trueup/snapshot"
)

// answering is a client whose requests are answered with that.
func answering(t *testing.T, answer func() (status int, body string)) *client {
	t.Helper()
	at, err := url.Parse("https://starbase.example.com")
	require.NoError(t, err)
	tokens := owntoken.New(owntoken.Config{Given: func() (string, error) { return "t", nil }})
	transport := httpfunc.Transport(func(r *http.Request) (*http.Response, error) {
		status, body := answer()
		return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
	})
	return newClient(&Config{StarbaseURL: at, ClusterID: passing}, tokens, transport, newMetrics().observeStarbase)
}

func TestAnAnswerThatIsNoStateIsSaidInOneLine(t *testing.T) {
	t.Parallel()
	const ofItsOwn = "starbase answered 403 without an error of its own: is there a proxy in between?"
	for _, test := range []struct {
		status     int
		body, want string
	}{
		{403, `{"error":{"code":"forbidden","message":"it is another cluster's"}}`, "starbase answered 403 forbidden: it is another cluster's"},
		{403, `{"error":{"code":"forbidden"}}`, "starbase answered 403 forbidden"},
		{403, `{}`, ofItsOwn},
		{403, `no`, ofItsOwn},
		{403, `{"error":{"code":"forbidden","message":"` + strings.Repeat("x", 64<<10) + `"}}`, ofItsOwn},
		{304, ``, "starbase answered 304: although no version was named"},
	} {
		_, err := answering(t, func() (int, string) { return test.status, test.body }).desiredState(t.Context(), "")
		require.EqualError(t, err, "https://starbase.example.com/api/v1/clusters/"+passing+"/desired-state: "+test.want)
	}
	_, err := answering(t, func() (int, string) { return http.StatusNotModified, "" }).desiredState(t.Context(), "1")
	require.ErrorIs(t, err, errUnchanged)
}

// TestAStreamStandsForAnAnswerWhileItIsHeard, and a version that it names again is no reason to look again.
func TestAStreamStandsForAnAnswerWhileItIsHeard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPasses(t)
		p.accept(p.state(1, "web"))
		p.desired.confirm()
		current, _ := p.desired.peek()
		version := current.state.Version
		pulls, looks := 0, 0
		p.puller.client = answering(t, func() (int, string) {
			pulls++
			return http.StatusNotModified, ""
		})
		s := &streamed{puller: p.puller, look: func() { looks++ }}
		asks := func() bool {
			t.Helper()
			before := pulls
			_, err := s.Reconcile(t.Context())
			require.NoError(t, err)
			return pulls > before
		}
		require.True(t, asks(), "there is no stream yet")
		s.note(version)
		require.Zero(t, looks, "it is the accepted one")
		require.False(t, asks())
		time.Sleep(silence - 1)
		require.False(t, asks())
		time.Sleep(time.Nanosecond)
		require.True(t, asks(), "it is silent")
		s.note("another")
		s.note("another")
		require.Equal(t, 1, looks)
		require.True(t, asks())
		s.note(version)
		s.note("")
		require.Equal(t, 1, looks)
		require.True(t, asks(), "it has ended")
	})
}

// TestAConfigurationIsRefusedOnce for each version.
func TestAConfigurationIsRefusedOnce(t *testing.T) {
	t.Parallel()
	var log logtest.Log
	g := &gateway{metrics: newMetrics(), logger: slog.New(slog.NewTextHandler(&log, nil))}
	wrong := []starbase.FieldError{{Field: "lb_size_units"}}
	for _, version := range []string{"1", "1", "2", "2"} {
		g.refuse(t.Context(), version, wrong)
	}
	require.Equal(t, 2, strings.Count(log.String(), "configuration of the cluster refused"))
	var m dto.Metric
	require.NoError(t, g.metrics.rejected.WithLabelValues(string(reasonClusterConfig)).Write(&m))
	require.InDelta(t, 2, m.GetCounter().GetValue(), 0)
}

// TestAPassOfTheGatewayIsToldInOneLine, and a metric has whether something is wrong now.
func TestAPassOfTheGatewayIsToldInOneLine(t *testing.T) {
	t.Parallel()
	var told problem
	g := &gateway{metrics: newMetrics(), report: func(p problem) { told = p }}
	for _, test := range []struct {
		refused []starbase.FieldError
		err     error
		class   string
		wrong   float64
	}{
		{nil, nil, "", 0},
		{nil, errors.Join(errors.New("one"), errors.New("two")), classApplyFailed, 1},
		{[]starbase.FieldError{{Field: "lb_size_units"}}, errors.New("one"), classInvalid, 1},
		{nil, nil, "", 0},
	} {
		g.tell(problemOf(test.refused, test.err))
		require.Equal(t, test.class, told.class)
		require.NotContains(t, told.message, "\n")
		var m dto.Metric
		require.NoError(t, g.metrics.gateway.Write(&m))
		require.InDelta(t, test.wrong, m.GetGauge().GetValue(), 0)
	}
}

// TestTheFirstRejectedRecordsOfAPassAreLogged, not all.
func TestTheFirstRejectedRecordsOfAPassAreLogged(t *testing.T) {
	t.Parallel()
	var log logtest.Log
	config := &Config{ClusterID: passing, SnapshotInterval: time.Minute}
	recorder := newSnapshots(config, &podView{}, &client{}, newMetrics(), slog.New(slog.NewTextHandler(&log, nil)))
	for n, want := range map[int]int{0: 0, maxLoggedRejections: maxLoggedRejections, maxLoggedRejections + 1: maxLoggedRejections} {
		log.Reset()
		recorder.OnPass(snapshot.Pass{Rejections: make([]snapshot.Rejection, n)})
		require.Equal(t, want, strings.Count(log.String(), "snapshot rejected"))
	}
}
