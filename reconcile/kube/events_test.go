package kube_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

// written is a server with the Events that it took, and the series that it was sent.
type written struct {
	events  []eventsv1.Event
	series  []string // <namespace>/<name> <count> <seconds since the first Event>
	refuses error
}

func (w *written) client(t *testing.T) dynamic.Interface {
	t.Helper()
	client, err := dynamic.NewForConfigAndClient(&rest.Config{Host: "http://server", QPS: -1}, &http.Client{Transport: w})
	require.NoError(t, err)
	return client
}

func (w *written) RoundTrip(r *http.Request) (*http.Response, error) {
	sent := map[string]any{}
	if err := json.NewDecoder(r.Body).Decode(&sent); err != nil {
		return nil, err
	}
	if w.refuses != nil {
		return nil, w.refuses
	}
	var e eventsv1.Event
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(sent, &e, true); err != nil {
		return nil, err
	}
	if r.Method == http.MethodPost {
		w.events = append(w.events, e)
		e.Name = fmt.Sprint("e", len(w.events))
	} else {
		passed := e.Series.LastObservedTime.Sub(w.events[0].EventTime.Time).Round(time.Second)
		_, of, _ := strings.Cut(r.URL.Path, "/namespaces/")
		w.series = append(w.series, fmt.Sprintf("%s %d %s", strings.Replace(of, "/events", "", 1), e.Series.Count, passed))
	}
	e.APIVersion, e.Kind = "events.k8s.io/v1", "Event"
	body, err := json.Marshal(e)
	header := http.Header{"Content-Type": {"application/json"}}
	return &http.Response{StatusCode: http.StatusOK, Header: header, Body: io.NopCloser(bytes.NewReader(body)), Request: r}, err
}

// recording runs a test in virtual time, with a recorder that works.
func recording(t *testing.T, test func(t *testing.T, e *kube.Events, to *written, log *bytes.Buffer)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		to, log := &written{}, &bytes.Buffer{}
		e := &kube.Events{
			Controller: "example.com/operator", Instance: "operator-0", Client: to.client(t), Logger: slog.New(slog.NewTextHandler(log, nil)),
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- e.Start(ctx) }()
		test(t, e, to, log)
		cancel()
		require.NoError(t, <-ended)
	})
}

// after lets time pass, and then what goes on at its end.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

var podKind = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}

func pod() *metav1.ObjectMeta {
	return &metav1.ObjectMeta{Namespace: "team", Name: "a", UID: "u", ResourceVersion: "7"}
}

func TestAnEventIsOneThatTheServerTakes(t *testing.T) {
	recording(t, func(t *testing.T, r *kube.Events, to *written, _ *bytes.Buffer) {
		r.Record(schema.GroupVersionKind{Version: "v1", Kind: "Node"}, &metav1.ObjectMeta{Name: "a", UID: "u"},
			kube.EventWarning, "Why", strings.Repeat("x", 1023)+"é")
		r.Record(podKind, pod(), kube.EventNormal, "Why", "short")
		synctest.Wait()
		require.Len(t, to.events, 2)
		e := to.events[0]
		require.Equal(t, "default", e.Namespace, "of a cluster-scoped object")
		require.Empty(t, e.Regarding.Namespace)
		require.Equal(t, "a-", e.GenerateName)
		require.Len(t, e.Note, 1023)
		require.True(t, utf8.ValidString(e.Note), "no letter is cut in two")
		require.NotZero(t, e.EventTime)
		require.Equal(t, "example.com/operator", e.ReportingController)
		require.Equal(t, "v1 Node a u", fmt.Sprint(e.Regarding.APIVersion, " ", e.Regarding.Kind, " ", e.Regarding.Name, " ", e.Regarding.UID))
		require.Equal(t, "Warning Why operator-0", e.Type+" "+e.Reason+" "+e.ReportingInstance)
		e = to.events[1]
		require.Equal(t, "team", e.Namespace)
		require.Equal(t, "team", e.Regarding.Namespace)
		require.Equal(t, "7", e.Regarding.ResourceVersion)
		require.Equal(t, "short", e.Note)
	})
}

// TestAnEventThatRepeatsIsASeries: its count is written once a minute, and not at rest.
func TestAnEventThatRepeatsIsASeries(t *testing.T) {
	recording(t, func(t *testing.T, r *kube.Events, to *written, _ *bytes.Buffer) {
		record := func(note string) { r.Record(podKind, pod(), kube.EventWarning, "CrashLoop", note) }
		for range 30 { // 5 minutes of a pod that goes to and fro
			record("exit 1")
			after(5 * time.Second)
			r.Record(podKind, pod(), kube.EventNormal, "Ready", "ready")
			after(5 * time.Second)
		}
		after(time.Minute)
		require.Len(t, to.events, 2)
		require.LessOrEqual(t, len(to.series), 2*6)
		require.Contains(t, to.series, "team/e1 30 4m50s")
		require.Contains(t, to.series, "team/e2 30 4m55s")

		before := len(to.series)
		after(10 * time.Minute)
		require.Len(t, to.series, before)
		record("exit 1")
		after(time.Hour)
		require.Len(t, to.events, 3, "the first is old")
		require.Len(t, to.series, before)
	})
}

// TestARepetitionIsKnownForTenMinutes: also between two looks at what is known.
func TestARepetitionIsKnownForTenMinutes(t *testing.T) {
	recording(t, func(t *testing.T, r *kube.Events, to *written, _ *bytes.Buffer) {
		for _, pause := range []time.Duration{0, 10*time.Minute - time.Second, 10*time.Minute + time.Second/2} {
			after(pause)
			r.Record(podKind, pod(), kube.EventNormal, "Moved", "n")
			synctest.Wait()
		}
		require.Len(t, to.events, 2)
		require.Equal(t, []string{"team/e1 2 9m59s"}, to.series)
	})
}

// TestRepetitionsThatAreKnownAreBounded: what is old is forgotten, and makes room.
func TestRepetitionsThatAreKnownAreBounded(t *testing.T) {
	recording(t, func(t *testing.T, r *kube.Events, to *written, _ *bytes.Buffer) {
		record := func(note string) {
			r.Record(podKind, pod(), kube.EventNormal, "Moved", note)
			synctest.Wait()
		}
		for i := range 10_000 {
			record(fmt.Sprint("to ", i))
		}
		record("beyond")
		record("beyond")
		require.Len(t, to.events, 10_002)
		record("to 9999")
		require.Len(t, to.events, 10_002, "it is known")
		after(12 * time.Minute)
		record("again")
		record("again")
		require.Len(t, to.events, 10_003)
	})
}

// TestEventsThatDifferAreApart: another object, type, reason or note is another Event.
func TestEventsThatDifferAreApart(t *testing.T) {
	recording(t, func(t *testing.T, r *kube.Events, to *written, _ *bytes.Buffer) {
		other := pod()
		other.UID = "another"
		r.Record(podKind, pod(), kube.EventNormal, "A", "n")
		r.Record(podKind, other, kube.EventNormal, "A", "n")
		r.Record(podKind, pod(), kube.EventWarning, "A", "n")
		r.Record(podKind, pod(), kube.EventNormal, "B", "n")
		r.Record(podKind, pod(), kube.EventNormal, "A", "m")
		after(5 * time.Minute)
		require.Len(t, to.events, 5)
		require.Empty(t, to.series)
	})
}

// TestAnEventThatIsRefusedIsLogged: the next is tried, and what repeats one that has expired is
// an Event of its own.
func TestAnEventThatIsRefusedIsLogged(t *testing.T) {
	recording(t, func(t *testing.T, r *kube.Events, to *written, log *bytes.Buffer) {
		to.refuses = errors.New("the namespace is going")
		r.Record(podKind, pod(), kube.EventNormal, "Moved", "n")
		synctest.Wait()
		require.Regexp(t, `msg="event not recorded" event=Moved error=".*the namespace is going"`, log.String())
		to.refuses = nil
		r.Record(podKind, pod(), kube.EventNormal, "Moved", "n")
		synctest.Wait()
		require.Len(t, to.events, 1)

		to.refuses = errors.New("e1 has expired")
		r.Record(podKind, pod(), kube.EventNormal, "Moved", "n")
		after(2 * time.Minute)
		require.Equal(t, 1, strings.Count(log.String(), "e1 has expired"), "it is not tried again")
		to.refuses = nil
		r.Record(podKind, pod(), kube.EventNormal, "Moved", "n")
		synctest.Wait()
		require.Len(t, to.events, 2)
	})
}

// ending is a server whose clients end while they wait for it.
type ending context.CancelFunc

func (e ending) RoundTrip(*http.Request) (*http.Response, error) {
	e()
	return nil, context.Canceled
}

// TestAnEventThatIsCutShortIsNotLogged: the program ends.
func TestAnEventThatIsCutShortIsNotLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		client, err := dynamic.NewForConfigAndClient(&rest.Config{Host: "http://server"}, &http.Client{Transport: ending(cancel)})
		require.NoError(t, err)
		var log bytes.Buffer
		e := &kube.Events{Client: client, Logger: slog.New(slog.NewTextHandler(&log, nil))}
		e.Record(podKind, pod(), kube.EventNormal, "Moved", "n")
		require.NoError(t, e.Start(ctx))
		require.Error(t, ctx.Err())
		require.Empty(t, log.String())
	})
}

// TestEventsThatWaitAreBounded: without Start none is written, and a pass does not wait.
func TestEventsThatWaitAreBounded(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	e := &kube.Events{Logger: slog.New(slog.NewTextHandler(&log, nil))}
	for range 1001 {
		e.Record(podKind, pod(), kube.EventNormal, "Moved", "n")
	}
	require.Equal(t, 1, strings.Count(log.String(), `msg="event queue full, event dropped" reason=Moved`))
}
