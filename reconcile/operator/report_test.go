package operator //nolint:testpackage // outcomes are given

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/apply/readiness"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/reconcile/external"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

// server takes writes of a status and Events, of an object that it has until it is gone. If it is taken,
// another program writes the status first, and then deletes the object.
type server struct {
	gone   bool
	taken  bool
	writes int // of the status
	events []string
}

func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	var body string
	code := http.StatusOK
	var sent struct {
		Status                                               json.RawMessage
		Reason, Type, ReportingController, ReportingInstance string
		Regarding                                            struct{ APIVersion, Kind, Namespace, Name, UID, ResourceVersion string }
	}
	if r.Body != nil {
		if err := json.NewDecoder(r.Body).Decode(&sent); err != nil {
			return nil, err
		}
	}
	switch {
	case strings.HasSuffix(r.URL.Path, "/events"):
		event := fmt.Sprintf("%s %s %s %s %s", sent.Type, sent.Reason, sent.ReportingController, sent.ReportingInstance, sent.Regarding)
		s.events = append(s.events, event)
		body = `{"apiVersion":"events.k8s.io/v1","kind":"Event"}`
	case s.gone:
		code, body = http.StatusNotFound, `{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"NotFound","code":404}`
	case s.taken && r.Method == http.MethodPatch:
		code, body = http.StatusConflict, `{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"Conflict","code":409}`
	case s.taken:
		s.taken, s.gone = false, true
		body = `{"apiVersion":"example.com/v1","kind":"Shop","metadata":{"namespace":"x","name":"s","uid":"u","resourceVersion":"9"},
			"status":{"conditions":[{"type":"Ready","status":"True","reason":"Ready"}]}}`
	default:
		s.writes++
		body = fmt.Sprintf(
			`{"apiVersion":"example.com/v1","kind":"Shop","metadata":{"namespace":"x","name":"s","uid":"u","resourceVersion":"%d"},"status":%s}`,
			7+s.writes, sent.Status,
		)
	}
	header := http.Header{"Content-Type": {"application/json"}}
	return &http.Response{StatusCode: code, Header: header, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

// reporting runs a test in virtual time, with a worker whose Events are written at once.
func reporting(t *testing.T, s *server, test func(t *testing.T, report func(*shop, outcome))) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := worker(t, &rest.Config{Host: "http://server", Transport: s})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.events.Start(ctx) }()
		test(t, func(object *shop, found outcome) {
			require.NoError(t, w.report(ctx, object, found, nil))
			synctest.Wait()
		})
		cancel()
		require.NoError(t, <-ended)
	})
}

func TestAnEventTellsOfEachNewReasonOnce(t *testing.T) {
	t.Parallel()
	s := &server{}
	reporting(t, s, func(t *testing.T, report func(*shop, outcome)) {
		object := shopIn("x")
		var progress outcome
		progress.notReady(b, readiness.Result{Status: readiness.InProgress}, readiness.Cause{})
		const by = " example.com/shops shops-0 {example.com/v1 Shop x s u "
		for i, step := range []struct {
			found outcome
			event string
		}{
			{progress, "Normal Progressing" + by + "8}"},
			{progress, ""},
			{failed(errors.New("no answer")), "Warning InvalidChildren" + by + "9}"},
			{failed(errors.New("no answer yet")), ""},
			{outcome{}, "Normal Ready" + by + "11}"},
		} {
			s.events = nil
			report(object, step.found)
			if step.event == "" {
				require.Empty(t, s.events, i)
				continue
			}
			require.Equal(t, []string{step.event}, s.events)
		}
	})
	require.Equal(t, 4, s.writes, "none without a change")
}

// What could not be recorded in the status is in no Event.
func TestOfADeletedObjectNoEventTells(t *testing.T) {
	t.Parallel()
	for _, s := range []*server{{gone: true}, {taken: true}} {
		reporting(t, s, func(t *testing.T, report func(*shop, outcome)) { report(shopIn("x"), failed(errors.New("no answer"))) })
		require.True(t, s.gone)
		require.Empty(t, s.events)
	}
}

// The API server has a limit of its own.
func TestNoRequestWaitsForALimitOfTheClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, began := &server{}, time.Now()
		w, object := worker(t, &rest.Config{Host: "http://server", Transport: s}), shopIn("x")
		for i := range 100 {
			require.NoError(t, w.report(t.Context(), object, failed(fmt.Errorf("no answer %d", i)), nil))
		}
		require.Equal(t, 100, s.writes)
		require.Zero(t, time.Since(began))
	})
}

func TestAPassThatIsCutShortSaysNothing(t *testing.T) {
	t.Parallel()
	s := &server{}
	w, object := worker(t, &rest.Config{Host: "http://server", Transport: s}), shopIn("x")
	object.Finalizers = []string{"example.com/children"}
	ctx, cancel := context.WithCancel(t.Context())
	w.operator.Children = func(ctx context.Context, _ *shop) ([]Object, error) {
		cancel()
		return nil, ctx.Err()
	}
	_, err := w.reconcile(ctx, kube.KeyOf(object), object)
	require.EqualError(t, err, "context canceled")
	require.Zero(t, s.writes)
}

// A retry makes no other children.
func TestWhatCannotBeAChildIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	s := &server{}
	w, object := worker(t, &rest.Config{Host: "http://server", Transport: s}), shopIn("x")
	object.Finalizers = []string{"example.com/children"}
	w.operator.Children = func(context.Context, *shop) ([]Object, error) { return []Object{nil}, nil }
	result, err := w.reconcile(t.Context(), kube.KeyOf(object), object)
	require.EqualError(t, err, "child 0: is nil", "alone: all of it is terminal")
	require.ErrorIs(t, err, reconcile.ErrTerminal)
	require.Zero(t, result)
	require.Equal(t, "InvalidChildren", object.Status.Conditions[0].Reason)
}

// What a function returns nil for is named, and ends no caller.
func TestAFunctionThatReturnsNilIsNamed(t *testing.T) {
	t.Parallel()
	w, object := worker(t, &rest.Config{Host: "http://server", Transport: &server{}}), shopIn("x")
	object.Finalizers = []string{"example.com/children"}
	w.operator.Outside = &Outside[*shop]{
		Parts:  func(*shop) []*external.Part { return nil },
		Things: func(*shop) *[]external.Thing { return nil },
	}
	_, err := w.reconcile(t.Context(), kube.KeyOf(object), object)
	require.ErrorContains(t, err, "Operator.Outside.Things: returned nil")
	require.ErrorIs(t, err, reconcile.ErrTerminal)
	require.Contains(t, object.Status.Conditions[0].Message, "Operator.Outside.Things: returned nil")

	w.operator.Outside = nil
	object.Finalizers = []string{"example.com/children"}
	w.operator.Conditions = func(*shop) *[]metav1.Condition { return nil }
	w.operator.Children = func(context.Context, *shop) ([]Object, error) { return nil, errors.New("no answer") }
	_, err = w.reconcile(t.Context(), kube.KeyOf(object), object)
	require.ErrorContains(t, err, "Operator.Conditions: returned nil")
}

func TestViewsWakeObjectsAndStatusesDoNot(t *testing.T) {
	t.Parallel()
	w := worker(t, &rest.Config{})
	require.NotNil(t, w.live.OnChange)
	require.NotNil(t, w.live.OnDrift, "a deletion that no watch shows is sent again")
	require.NotNil(t, w.controller.Await, "before that, children are missing that are only not seen yet")
	require.True(t, w.controller.IgnoreStatus)
}

// twoShops is a server whose watch begins with two Shops, and ends with its request.
type twoShops struct{}

func (twoShops) RoundTrip(r *http.Request) (*http.Response, error) {
	const shop = `{"apiVersion":"example.com/v1","kind":"Shop","metadata":`
	body, events := io.Pipe()
	go func() {
		_, _ = io.WriteString(events, `{"type":"ADDED","object":`+shop+`{"namespace":"x","name":"s","uid":"x","resourceVersion":"7"}}}
			{"type":"ADDED","object":`+shop+`{"namespace":"y","name":"s","uid":"y","resourceVersion":"7"}}}
			{"type":"BOOKMARK","object":`+shop+`{"resourceVersion":"7","annotations":{"k8s.io/initial-events-end":"true"}}}}`)
		<-r.Context().Done()
		_ = events.CloseWithError(r.Context().Err())
	}()
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: body, Request: r}, nil
}

// A kind of children that comes back is used at once, not when a pass is tried again.
func TestAKindThatIsSeenStartsPasses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, passes := worker(t, &rest.Config{Host: "http://server", Transport: &server{}}), []string{}
		w.controller.Await = nil
		client, err := dynamic.NewForConfigAndClient(&rest.Config{Host: "http://server"}, &http.Client{Transport: twoShops{}})
		require.NoError(t, err)
		w.controller.Client = client
		w.controller.Workers = 1
		w.controller.Reconcile = func(_ context.Context, key types.NamespacedName, _ *shop) (reconcile.Result, error) {
			passes = append(passes, key.String())
			return reconcile.Result{}, nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.controller.Start(ctx) }()
		synctest.Wait()
		require.ElementsMatch(t, []string{"x/s", "y/s"}, passes)
		w.live.OnSynced(schema.GroupKind{Kind: "ConfigMap"})
		synctest.Wait()
		require.ElementsMatch(t, []string{"x/s", "y/s", "x/s", "y/s"}, passes)
		cancel()
		require.NoError(t, <-ended)
	})
}
