package upstream_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest/upstream"
)

// client sends requests for ConfigMap web, and returns the code and the body.
func client(t *testing.T) func(method, options, body string) (int, string) {
	t.Helper()
	server := &simtest.Server{
		Kinds:     []simtest.Kind{{Version: "v1", Resource: "configmaps", Kind: "ConfigMap"}},
		Machinery: &upstream.Machinery{},
	}
	return func(method, options, body string) (int, string) {
		r, err := http.NewRequestWithContext(
			t.Context(),
			method,
			"http://simtest/api/v1/namespaces/shop/configmaps/web?"+options,
			strings.NewReader(body),
		)
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/merge-patch+json")
		if strings.Contains(body, "apiVersion") {
			r.Header.Set("Content-Type", "application/apply-patch+yaml")
		}
		answer, err := server.RoundTrip(r)
		require.NoError(t, err)
		data, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		return answer.StatusCode, string(data)
	}
}

func config(data string) string {
	return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"web"},"data":` + data + `}`
}

func TestFieldsBelongToWhoAppliedThem(t *testing.T) {
	t.Parallel()
	send := client(t)
	code, body := send(http.MethodPatch, "fieldManager=a", config(`{"color":"red","size":"1"}`))
	require.Equal(t, http.StatusCreated, code, body)
	require.Contains(t, body, `"fieldsV1":{"f:data":{".":{},"f:color":{},"f:size":{}}},"manager":"a","operation":"Apply"`)

	code, again := send(http.MethodPatch, "fieldManager=a", config(`{"color":"red","size":"1"}`))
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, body, again, "the same apply makes no version")

	code, body = send(http.MethodPatch, "fieldManager=b", config(`{"color":"blue"}`))
	require.Equal(t, http.StatusConflict, code)
	require.Contains(t, body, `conflict with \"a\": .data.color`)

	code, body = send(http.MethodPatch, "fieldManager=b&force=true", config(`{"color":"blue"}`))
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, body, `{"color":"blue","size":"1"}`)

	code, body = send(http.MethodPatch, "fieldManager=a", config(`{}`))
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, body, `"data":{"color":"blue"}`, "what a no longer states is gone, what b took stays")
}

func TestAnotherWriteTakesTheFieldsThatItChanges(t *testing.T) {
	t.Parallel()
	send := client(t)
	code, body := send(http.MethodPatch, "fieldManager=a", config(`{"color":"red","size":"1"}`))
	require.Equal(t, http.StatusCreated, code, body)
	code, body = send(http.MethodPatch, "fieldManager=edit", `{"data":{"color":"blue"}}`)
	require.Equal(t, http.StatusOK, code, body)
	require.Contains(t, body, `"fieldsV1":{"f:data":{"f:color":{}}},"manager":"edit","operation":"Update"`)
	code, body = send(http.MethodPatch, "fieldManager=a", config(`{"color":"red","size":"1"}`))
	require.Equal(t, http.StatusConflict, code, body)
}

func TestPreconditionsOfAnApply(t *testing.T) {
	t.Parallel()
	send := client(t)
	precondition := func(metadata string) string {
		return strings.Replace(config(`{"color":"red"}`), `"name":"web"`, `"name":"web",`+metadata, 1)
	}
	code, body := send(http.MethodPatch, "fieldManager=a", precondition(`"uid":"another"`))
	require.Equal(t, http.StatusConflict, code, body)
	code, body = send(http.MethodPatch, "fieldManager=a", config(`{"color":"blue"}`))
	require.Equal(t, http.StatusCreated, code, body)
	for metadata, want := range map[string]int{`"uid":"another"`: http.StatusUnprocessableEntity, `"resourceVersion":"99"`: http.StatusConflict} {
		code, body = send(http.MethodPatch, "fieldManager=a", precondition(metadata))
		require.Equal(t, want, code, body)
	}
	code, body = send(http.MethodPatch, "fieldManager=a", precondition(`"uid":"uid-000001","resourceVersion":"101"`))
	require.Equal(t, http.StatusOK, code, body)
}

func TestWithoutAManagerThereIsNoApply(t *testing.T) {
	t.Parallel()
	server := &simtest.Server{Kinds: []simtest.Kind{{Version: "v1", Resource: "configmaps", Kind: "ConfigMap"}}}
	r, err := http.NewRequestWithContext(
		t.Context(),
		http.MethodPatch,
		"http://simtest/api/v1/namespaces/shop/configmaps/web",
		strings.NewReader(config(`{}`)),
	)
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/apply-patch+yaml")
	answer, err := server.RoundTrip(r)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusUnsupportedMediaType, answer.StatusCode)
}

// patch sends a patch, and returns the code and the body.
func patch(t *testing.T, server http.RoundTripper, path, form, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, "http://simtest"+path, strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Content-Type", form)
	answer, err := server.RoundTrip(r)
	require.NoError(t, err)
	data, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	return answer.StatusCode, string(data)
}

// TestAnApplyMayLeaveAnEmptyMap is about what the random conversation has found.
func TestAnApplyMayLeaveAnEmptyMap(t *testing.T) {
	t.Parallel()
	server, path := newServer(), "/apis/example.com/v1/namespaces/shop/widgets/web"
	apply := func(metadata string) string {
		code, body := patch(t, server, path+"?fieldManager=a&force=true", "application/apply-patch+yaml",
			`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"web"`+metadata+`}}`)
		require.Less(t, code, 300, body)
		return body
	}
	merge := func(body string) string {
		code, body := patch(t, server, path+"?fieldManager=b", "application/merge-patch+json", body)
		require.Less(t, code, 300, body)
		return body
	}
	apply("")
	merge(`{"metadata":{"annotations":{"note":"1"}}}`)
	apply(`,"annotations":{"note":"2"}`)
	require.Contains(t, apply(""), `"annotations":{}`)
	require.Contains(t, merge(`{}`), `"resourceVersion":"105"`, "the map is dropped")
	require.Contains(t, merge(`{}`), `"resourceVersion":"105"`, "and nothing more")

	// Who owned the map still does, although a write has dropped it.
	code, body := patch(t, server, path+"?fieldManager=a", "application/apply-patch+yaml",
		`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"web","annotations":{"note":"3"}}}`)
	require.Equal(t, http.StatusConflict, code, body)
	require.Contains(t, body, ` using example.com/v1: .metadata.annotations`)

	// A deletion drops it, too.
	apply(`,"finalizers":["example.com/hold"]`)
	merge(`{"metadata":{"annotations":{"note":"1"}}}`)
	apply(`,"annotations":{"note":"2"},"finalizers":["example.com/hold"]`)
	left := apply(`,"finalizers":["example.com/hold"]`)
	require.Contains(t, left, `"annotations":{}`)
	remove := func() string {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, "http://simtest"+path, http.NoBody)
		require.NoError(t, err)
		answer, err := server.RoundTrip(r)
		require.NoError(t, err)
		data, err := io.ReadAll(answer.Body)
		require.NoError(t, errors.Join(err, answer.Body.Close()))
		return string(data)
	}
	first := remove()
	require.NotContains(t, first, `"annotations":{}`)
	require.Equal(t, first, remove(), "and nothing more")
}
