package owntoken_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"
	kubetesting "k8s.io/client-go/testing"

	"github.com/seed-9e1ffd66/trueup/cmd/api/agenttoken"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/owntoken"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
)

// world is a control plane, and the Secrets of a cluster. cmd/e2e/renewal has the real ones, which
// do not fail at the moment that a test needs.
type world struct {
	*testing.T
	kubernetes *fake.FakeDynamicClient
	log        bytes.Buffer

	mu      sync.Mutex
	given   string
	answer  func(token string) (status int, body string)
	renewed int
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, kubernetes: fake.NewSimpleDynamicClient(runtime.NewScheme()), given: "given"}
	// Without a life a token does not rest, see TestAControlPlaneThatAlwaysAsksGetsOneRenewalAnHour.
	w.answer = func(string) (int, string) {
		return http.StatusOK, fmt.Sprintf(`{"token":"own-%d","expires_in_seconds":0}`, w.renewed)
	}
	return w
}

// RoundTrip implements [http.RoundTripper]: it is the control plane, also in virtual time.
func (w *world) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.renewed++
	assert.Equal(w, "POST http://control"+agenttoken.Path, r.Method+" "+r.URL.String())
	status, body := w.answer(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
	rw := httptest.NewRecorder()
	rw.WriteHeader(status)
	_, _ = io.WriteString(rw, body)
	return rw.Result(), nil
}

// process is another process of the agent.
func (w *world) process() *owntoken.Source {
	return owntoken.New(owntoken.Config{
		Given: func() (string, error) { return w.given, nil }, Agent: "eu-1",
		Kubernetes: w.kubernetes, Secret: types.NamespacedName{Namespace: "system", Name: "renewed"},
		ControlPlane: &url.URL{Scheme: "http", Host: "control"}, Transport: w,
		Logger: slog.New(slog.NewTextHandler(&w.log, nil)),
	})
}

func (w *world) secrets() dynamic.ResourceInterface {
	return w.kubernetes.Resource(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}).Namespace("system")
}

// token requires that this is the token of now.
func (w *world) token(s *owntoken.Source, want string) {
	w.Helper()
	got, err := s.Token(w.Context())
	require.NoError(w, err)
	require.Equal(w, want, got)
}

// renew has the control plane ask for a renewal.
func (w *world) renew(s *owntoken.Source) error {
	w.Helper()
	s.Answered(http.Header{agenttoken.Header: {agenttoken.Renew}})
	_, err := s.Reconcile(w.Context())
	return err
}

// secret puts a Secret with this data.
func (w *world) secret(data map[string]string) {
	w.Helper()
	encoded := map[string]any{}
	for key, value := range data {
		encoded[key] = base64.StdEncoding.EncodeToString([]byte(value))
	}
	_, err := w.secrets().Create(w.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "renewed"}, "data": encoded,
	}}, metav1.CreateOptions{})
	require.NoError(w, err)
}

func TestARenewedTokenIsKeptForTheNextProcess(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.process()
	w.token(s, "given")
	s.Answered(http.Header{})
	_, err := s.Reconcile(t.Context())
	require.NoError(t, err)
	require.Zero(t, w.renewed, "it is not asked for")

	require.NoError(t, w.renew(s))
	w.token(s, "own-1")
	require.NoError(t, w.renew(s))
	w.token(s, "own-2")
	_, err = s.Reconcile(t.Context())
	require.NoError(t, err)
	require.Equal(t, 2, w.renewed, "each was asked for once")
	w.token(w.process(), "own-2")

	w.given = "other"
	w.token(s, "other")
	w.token(w.process(), "other")
	require.NoError(t, w.renew(s))
	w.token(s, "own-3")
	require.NotContains(t, w.log.String(), "own-")
	require.NotContains(t, w.log.String(), "other")
}

// hashOfGiven is the SHA-256 of the token "given".
const hashOfGiven = "5b729e0f619797fd61108a4bb177273222ad9ac5538299c8386f061e29046e60"

func TestATokenThatIsNotKeptIsNotUsed(t *testing.T) {
	t.Parallel()
	for name, refuse := range map[string]func(w *world){
		"no right": func(w *world) {
			w.kubernetes.PrependReactor("*", "secrets", func(kubetesting.Action) (bool, runtime.Object, error) {
				return true, nil, errors.New("forbidden")
			})
		},
		"no right to create": func(w *world) {
			w.kubernetes.PrependReactor("create", "secrets", func(kubetesting.Action) (bool, runtime.Object, error) {
				return true, nil, errors.New("forbidden")
			})
		},
		"another's Secret":       func(w *world) { w.secret(map[string]string{"password": "theirs"}) },
		"a given token's Secret": func(w *world) { w.secret(map[string]string{"token": "theirs"}) },
		"more than a given token": func(w *world) {
			w.secret(map[string]string{"token": "theirs", "given": "x", "agent": "eu-1", "ca.crt": "theirs"})
		},
		"another agent's Secret": func(w *world) { w.secret(map[string]string{"token": "theirs", "given": hashOfGiven, "agent": "us-1"}) },
		"a Secret without agent": func(w *world) { w.secret(map[string]string{"token": "theirs", "given": hashOfGiven}) },
		"a token that is no word": func(w *world) {
			w.secret(map[string]string{"token": "a\r\nX: y", "given": hashOfGiven, "agent": "eu-1"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			refuse(w)
			s := w.process()
			w.token(s, "given")
			require.ErrorContains(t, w.renew(s), "secret system/renewed: ")
			w.token(s, "given")
			for _, action := range w.kubernetes.Actions() {
				require.NotEqual(t, "patch", action.GetVerb())
			}
			_, err := s.Reconcile(t.Context())
			require.Error(t, err, "it is tried again")
		})
	}
}

func TestARefusedTokenHasTheOtherTried(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s, other := w.process(), w.process()
	require.NoError(t, w.renew(s))
	w.token(other, "own-1")
	require.NoError(t, w.renew(s))
	w.token(other, "own-1")
	other.Refused(t.Context(), "own-1")
	w.token(other, "own-2")
	require.Equal(t, 2, w.renewed)

	for range 2 { // people have ended it, or the database was restored
		other.Refused(t.Context(), "own-2")
		w.token(other, "given")
		other.Refused(t.Context(), "given")
		w.token(other, "own-2")
	}
	// What is known does not go with the Secret.
	require.NoError(t, w.secrets().Delete(t.Context(), "renewed", metav1.DeleteOptions{}))
	other.Refused(t.Context(), "given")
	w.token(other, "own-2")
	w.token(w.process(), "given")
}

func TestARenewalThatIsRefusedOrStrange(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.process()
	for answer, want := range map[string]string{
		"500 oops":                         "answered 500",
		"401 {}":                           "answered 401",
		"200 {}":                           "with no token",
		"200 <html>":                       "with no token",
		`200 {"token":"of-another-use"}`:   "with no token and its life: is there a proxy in between?",
		`200 {"token":17}`:                 "with no token",
		`200 {"token":"","next":"secret"}`: "with no token",
		`200 {"token":"a\r\nX: y"}`:        "with no token",
		`302 {"token":"no"}`:               "answered 302",
		`429 {"error":{"code":"too_many_attempts","message":"wait"}}`: "answered 429 too_many_attempts: wait",
	} {
		status, body, _ := strings.Cut(answer, " ")
		w.answer = func(string) (code int, text string) {
			_, err := fmt.Sscan(status, &code)
			require.NoError(t, err)
			return code, body
		}
		err := w.renew(s)
		require.ErrorContains(t, err, want, answer)
		require.NotContains(t, err.Error(), "secret", "it may be a token")
		w.token(s, "given")
	}
	require.Empty(t, writes(w.kubernetes.Actions()))

	// Another process was first: it is not asked again until the control plane says so.
	w.answer = func(string) (int, string) { return http.StatusConflict, `{"error":{"code":"superseded"}}` }
	require.NoError(t, w.renew(s))
	asked := w.renewed
	_, err := s.Reconcile(t.Context())
	require.NoError(t, err)
	require.Equal(t, asked, w.renewed)
}

func TestARefusedRenewalHasTheTokenOfAnotherProcessUsed(t *testing.T) {
	t.Parallel()
	for answer, ended := range map[int]bool{http.StatusUnauthorized: false, http.StatusConflict: true} {
		w := newWorld(t)
		s, other := w.process(), w.process()
		require.NoError(t, w.renew(s))
		w.token(other, "own-1")
		require.NoError(t, w.renew(s))
		renew := w.answer
		w.answer = func(string) (int, string) { return answer, `{}` }
		require.Equal(t, ended, w.renew(other) == nil, answer)
		w.token(other, "own-2")

		// A refused own token has the given one renewed; what comes of that is used.
		other.Refused(t.Context(), "own-2")
		w.token(other, "given")
		w.answer = renew
		require.NoError(t, w.renew(other))
		w.token(other, fmt.Sprintf("own-%d", w.renewed))
	}
}

func TestARenewalDoesNotOverwriteWhatAnotherProcessKeepsMeanwhile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.process()
	require.NoError(t, w.renew(s))
	var sent struct {
		Metadata struct{ ResourceVersion string }
	}
	w.kubernetes.PrependReactor("get", "secrets", func(kubetesting.Action) (bool, runtime.Object, error) {
		return true, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "renewed", "resourceVersion": "17"},
		}}, nil
	})
	w.kubernetes.PrependReactor("patch", "secrets", func(action kubetesting.Action) (bool, runtime.Object, error) {
		patch, ok := action.(kubetesting.PatchAction)
		require.True(t, ok)
		require.NoError(t, json.Unmarshal(patch.GetPatch(), &sent))
		return true, nil, errors.New("conflict")
	})
	require.ErrorContains(t, w.renew(s), "conflict")
	require.Equal(t, "17", sent.Metadata.ResourceVersion, "the API server compares it")
	w.token(s, "own-1")
}

func TestTheLoopRenewsOnceItIsTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.process()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Loop().Start(ctx) }()
	for n := 1; n <= 2; n++ { // the second one cannot be the reconcile of the start
		s.Answered(http.Header{agenttoken.Header: {agenttoken.Renew}})
		await.Until(t, time.Second, "it is renewed without waiting for the interval", func() bool {
			token, err := s.Token(t.Context())
			return err == nil && token == fmt.Sprintf("own-%d", n)
		})
	}
	cancel()
	require.NoError(t, <-ended)
}

func writes(actions []kubetesting.Action) (list []string) {
	for _, a := range actions {
		if a.GetVerb() != "get" {
			list = append(list, a.GetVerb())
		}
	}
	return list
}

func TestWithoutASecretNothingIsRenewed(t *testing.T) {
	t.Parallel()
	s := owntoken.New(owntoken.Config{Given: func() (string, error) { return "given", nil }})
	s.Answered(http.Header{agenttoken.Header: {agenttoken.Renew}})
	_, err := s.Reconcile(t.Context())
	require.NoError(t, err)
	s.Refused(t.Context(), "given")
	token, err := s.Token(t.Context())
	require.NoError(t, err)
	require.Equal(t, "given", token)
	s = owntoken.New(owntoken.Config{Given: func() (string, error) { return "", errors.New("no file") }})
	_, err = s.Token(t.Context())
	require.ErrorContains(t, err, "no file")
}

func TestAnAnswerThatRefusesTheTokenCanStillBeRead(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]bool{
		`401 {"error":{"code":"unauthorized"}}`:      true,
		`429 {"error":{"code":"too_many_attempts"}}`: true,
		`429 {"error":{"code":"too_many_requests"}}`: false,
		`429 <html>`: false,
		`403 {"error":{"code":"too_many_attempts"}}`: false,
		`200 {}`: false,
	} {
		status, body, _ := strings.Cut(answer, " ")
		response := &http.Response{Body: io.NopCloser(strings.NewReader(body))}
		_, err := fmt.Sscan(status, &response.StatusCode)
		require.NoError(t, err)
		require.Equal(t, want, owntoken.RefusesToken(response), answer)
		left, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.Equal(t, body, string(left))
	}
}
