package snapshot_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/snapshot"
)

// serving answers the requests of a sink, and remembers their bodies.
type serving struct {
	mu     sync.Mutex
	bodies []string
	header http.Header
	answer func(body string, w http.ResponseWriter)
}

func (s *serving) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bodies, s.header = append(s.bodies, string(body)), r.Header
	s.answer(string(body), w)
}

func status(code int, body string) func(string, http.ResponseWriter) {
	return func(_ string, w http.ResponseWriter) {
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

// sink returns a sink that makes one attempt at the server.
func sink(t *testing.T, answer func(string, http.ResponseWriter)) (*snapshot.HTTPSink, *serving) {
	t.Helper()
	s := &serving{answer: answer}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return &snapshot.HTTPSink{URL: server.URL, Client: server.Client()}, s
}

func TestABatchIsOneObjectWithTheRecords(t *testing.T) {
	t.Parallel()
	to, s := sink(t, status(200, `{"accepted":1,"duplicates":1,"rejected":[{"row_id":"x","reason":"bad","more":3}]}`))
	to.Member, to.RejectedID = `ro"ws`, "row_id"
	to.Authorize = func(r *http.Request) error {
		r.Header.Set("Authorization", "Bearer t")
		return nil
	}
	receipt, err := to.Send(t.Context(), []json.RawMessage{[]byte(`{"a":1}`), []byte(`2`), []byte(`"x"`)})
	require.NoError(t, err)
	require.Equal(t, snapshot.Receipt{Accepted: 1, Duplicates: 1, Rejected: []snapshot.Rejection{{ID: "x", Reason: "bad"}}}, receipt)
	require.Equal(t, []string{`{"ro\"ws":[{"a":1},2,"x"]}`}, s.bodies)
	require.Equal(t, "application/json", s.header.Get("Content-Type"))
	require.Equal(t, "Bearer t", s.header.Get("Authorization"))
}

// accept answers that all records are accepted.
func accept(body string, w http.ResponseWriter) {
	status(200, fmt.Sprintf(`{"accepted":%d}`, strings.Count(body, ",")+1))(body, w)
}

func TestAnAnswerThatRefusesIsToldFromOneThatMayPass(t *testing.T) {
	t.Parallel()
	for code, refused := range map[int]bool{
		400: true, 415: true, 422: true, 413: true,
		401: false, 403: false, 404: false, 409: false, 429: false, 500: false, 503: false, 201: false, 204: false, 301: false,
	} {
		to, _ := sink(t, status(code, `{"error":{"code":"why","message":"because"}}`))
		receipt, err := to.Send(t.Context(), numbers(0, 1))
		require.Error(t, err, code)
		require.Equal(t, refused, errors.Is(err, snapshot.ErrRefused), code)
		require.ErrorContains(t, err, strconv.Itoa(code))
		if code != 204 { // which has no body
			require.ErrorContains(t, err, ": why: because")
		}
		require.Zero(t, receipt)
	}
	to, _ := sink(t, status(500, "<html>"))
	_, err := to.Send(t.Context(), numbers(0, 1))
	require.EqualError(t, err, "answer 500 Internal Server Error")
	to, _ = sink(t, status(200, `{"accepted":`))
	_, err = to.Send(t.Context(), numbers(0, 1))
	require.ErrorContains(t, err, "answer: unexpected end")
	to.Authorize = func(*http.Request) error { return errors.New("no token") }
	_, err = to.Send(t.Context(), numbers(0, 1))
	require.EqualError(t, err, "credential: no token")
	_, err = (&snapshot.HTTPSink{URL: "://"}).Send(t.Context(), numbers(0, 1))
	require.ErrorContains(t, err, "HTTPSink.URL")
}

func TestABatchThatIsTooLargeIsHalved(t *testing.T) {
	t.Parallel()
	most := 20
	to, s := sink(t, func(body string, w http.ResponseWriter) {
		if len(body) > most {
			status(http.StatusRequestEntityTooLarge, `{"error":{"code":"too_large"}}`)(body, w)
			return
		}
		accept(body, w)
	})
	receipt, err := to.Send(t.Context(), numbers(0, 7))
	require.NoError(t, err)
	require.Equal(t, snapshot.Receipt{Accepted: 7}, receipt)
	require.Contains(t, s.bodies, `{"records":[0,1,2]}`)

	records := append(numbers(0, 3), []byte(`"`+strings.Repeat("x", 30)+`"`))
	receipt, err = to.Send(t.Context(), records)
	require.NoError(t, err)
	require.Equal(t, 3, receipt.Accepted)
	require.Len(t, receipt.Rejected, 1, "one that is too large by itself is rejected alone")

	s.answer = status(503, "")
	_, err = to.Send(t.Context(), numbers(0, 7))
	require.Error(t, err)
}

func TestAnAnswerOfAProxyRefusesNothing(t *testing.T) {
	t.Parallel()
	for _, code := range []int{400, 413, 415, 422} {
		for _, body := range []string{"", "<html>", `"bad"`, `{}`, `{"error":"bad"}`, `{"error":{"message":"bad"}}`, `{"error":{"code":""}}`} {
			to, _ := sink(t, status(code, body))
			receipt, err := to.Send(t.Context(), numbers(0, 4))
			require.Error(t, err, "%d %s", code, body)
			require.NotErrorIs(t, err, snapshot.ErrRefused, "%d %s", code, body)
			require.Zero(t, receipt)
		}
		to, _ := sink(t, status(code, "no"))
		to.Refuses = func(body []byte) bool { return string(body) == "no" }
		_, err := to.Send(t.Context(), numbers(0, 1))
		require.ErrorIs(t, err, snapshot.ErrRefused, code)
		to.Refuses = func([]byte) bool { return false }
		_, err = to.Send(t.Context(), numbers(0, 1))
		require.NotErrorIs(t, err, snapshot.ErrRefused, code)
	}
	most := 20 // the proxy has another bound than the server
	to, _ := sink(t, func(body string, w http.ResponseWriter) {
		if len(body) > most {
			status(http.StatusRequestEntityTooLarge, "<html>")(body, w)
			return
		}
		accept(body, w)
	})
	receipt, err := to.Send(t.Context(), numbers(0, 7))
	require.NoError(t, err)
	require.Equal(t, snapshot.Receipt{Accepted: 7}, receipt)
}

func TestByItselfASinkMakesThreeAttempts(t *testing.T) {
	t.Parallel()
	attempts := 0
	to, _ := sink(t, nil)
	s := &serving{}
	s.answer = func(body string, w http.ResponseWriter) {
		if attempts++; attempts < 3 {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		accept(body, w)
	}
	server := httptest.NewServer(s)
	defer server.Close()
	to.URL, to.Client = server.URL, nil
	receipt, err := to.Send(t.Context(), numbers(0, 2))
	require.NoError(t, err)
	require.Equal(t, 2, receipt.Accepted)
	require.Equal(t, []string{`{"records":[0,1]}`, `{"records":[0,1]}`, `{"records":[0,1]}`}, s.bodies)
	server.CloseClientConnections()
}
