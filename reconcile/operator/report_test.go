package operator //nolint:testpackage // outcomes are given

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/apply/readiness"
)

// server takes writes of a status and Events, of an object that it has until it is gone.
type server struct {
	gone   bool
	writes int // of the status
	events []string
}

func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	code, body := http.StatusOK, `{"apiVersion":"v1","kind":"Status"}`
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

func TestAnEventTellsOfEachNewReasonOnce(t *testing.T) {
	t.Parallel()
	s := &server{}
	w, object := worker(t, &rest.Config{Host: "http://server", Transport: s}), shopIn("x")
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
		require.NoError(t, w.report(t.Context(), object, step.found))
		if step.event == "" {
			require.Empty(t, s.events, i)
			continue
		}
		require.Equal(t, []string{step.event}, s.events)
	}
	require.Equal(t, 4, s.writes, "none without a change")
}

// What could not be recorded in the status is in no Event.
func TestOfADeletedObjectNoEventTells(t *testing.T) {
	t.Parallel()
	s := &server{gone: true}
	w, object := worker(t, &rest.Config{Host: "http://server", Transport: s}), shopIn("x")
	require.NoError(t, w.report(t.Context(), object, outcome{}))
	require.Empty(t, s.events)
	require.Empty(t, object.Status.Conditions)
}
