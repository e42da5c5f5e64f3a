package adminapi_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/adminapi"
)

var (
	errAbsent = errors.New("absent")
	errAhead  = errors.New("ahead")
	errBusy   = errors.New("busy")
)

// api answers PUT /things/{id} with what handle returns.
func api(handle adminapi.Handler) (mux http.Handler, log *bytes.Buffer) {
	log = &bytes.Buffer{}
	a := &adminapi.API{
		Logger: slog.New(slog.NewTextHandler(log, nil)),
		Conditions: []adminapi.Condition{
			{Err: errAbsent, Answer: adminapi.Error{Status: http.StatusNotFound, Code: "absent", Message: "it is absent"}},
			{Err: errAhead, Answer: adminapi.Error{Status: http.StatusBadRequest, Code: "ahead", Message: "it is ahead"}, Log: true},
			{Err: errBusy, Answer: adminapi.Error{Status: http.StatusServiceUnavailable, Code: "busy", Message: "later"}},
		},
	}
	return a.Mux([]adminapi.Route{{Method: http.MethodPut, Path: "/things/{id}", Handle: handle}}), log
}

func do(t *testing.T, mux http.Handler, method, path, contentType, body string) *httptest.ResponseRecorder {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	request.Header.Set("Content-Type", contentType)
	recorder := httptest.NewRecorder()
	mux.ServeHTTP(recorder, request)
	return recorder
}

func TestAnErrorIsAnsweredAsItsConditionSaysAndElseRepeatsNothing(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err    error
		status int
		code   string
		logged bool
	}{
		{fmt.Errorf("thing 7: %w", errAbsent), 404, "absent", false},
		{errAhead, 400, "ahead", true},
		{errBusy, 503, "busy", true},
		{&adminapi.Error{Status: 418, Code: "tea", Message: "no coffee"}, 418, "tea", false},
		{errors.New("secret detail"), 500, "internal", true},
		{adminapi.WriteJSON(nil, 200, func() {}), 500, "internal", true},
	} {
		mux, log := api(func(w http.ResponseWriter, _ *http.Request) error {
			w.Header().Set("ETag", "1")
			return test.err
		})
		answer := do(t, mux, "PUT", "/things/7", "", "")
		require.Equal(t, test.status, answer.Code)
		require.Contains(t, answer.Body.String(), `{"error":{"code":"`+test.code+`"`)
		require.NotContains(t, answer.Body.String(), "secret")
		require.Empty(t, answer.Header().Get("ETag"))
		require.Equal(t, test.status == 503, answer.Header().Get("Retry-After") != "")
		require.Equal(t, test.logged, log.Len() > 0, test.code)
	}
}

func TestAMethodOrPathWithoutARouteIsRefused(t *testing.T) {
	t.Parallel()
	mux, _ := api(func(w http.ResponseWriter, _ *http.Request) error {
		return adminapi.WriteJSON(w, adminapi.CreatedStatus(true), 1)
	})
	require.Equal(t, 201, do(t, mux, "PUT", "/things/7", "", "").Code)
	refused := do(t, mux, "GET", "/things/7", "", "")
	require.Equal(t, 405, refused.Code)
	require.Equal(t, "PUT", refused.Header().Get("Allow"))
	require.Equal(t, 404, do(t, mux, "GET", "/", "", "").Code)
	require.Equal(t, 200, adminapi.CreatedStatus(false))
}

func TestABodyIsOneJSONObjectOfKnownFields(t *testing.T) {
	t.Parallel()
	const isJSON = "application/json; charset=utf-8"
	mux, _ := api(func(w http.ResponseWriter, r *http.Request) error {
		var body struct {
			Size int `json:"size"`
		}
		if err := adminapi.Decode(w, r, &body, true); err != nil {
			return err
		}
		return adminapi.WriteJSON(w, http.StatusOK, body)
	})
	for _, test := range []struct {
		contentType, body string
		status            int
		want              string
	}{
		{isJSON, `{"size":7}`, 200, `{"size":7}`},
		{"text/plain", `{"size":7}`, 415, "unsupported_media_type"},
		{"application/json; charset=latin1", `{"size":7}`, 415, "unsupported_media_type"},
		{isJSON, ``, 400, "malformed"},
		{isJSON, `[]`, 400, "malformed"},
		{isJSON, `{"size":7} {}`, 400, "malformed"},
		{isJSON, `{"size":`, 400, "malformed"},
		{isJSON, `{"size":"7"}`, 400, `"field":"size"`},
		{isJSON, `{"colour":7}`, 400, "unknown_field"},
		{isJSON, `{"size":` + strings.Repeat("7", adminapi.MaxBody) + `}`, 413, "too_large"},
	} {
		answer := do(t, mux, "PUT", "/things/7", test.contentType, test.body)
		require.Equal(t, test.status, answer.Code, test.want)
		require.Contains(t, answer.Body.String(), test.want)
	}
}

func TestPathsAndOverlapsAreChecked(t *testing.T) {
	t.Parallel()
	const id = "00000000-0000-4000-8000-000000000001"
	mux, _ := api(func(w http.ResponseWriter, r *http.Request) error {
		if _, err := adminapi.PathUUID(r, "id"); err != nil {
			return err
		}
		if _, err := adminapi.PathName(r, "id", regexp.MustCompile(`1$`)); err != nil {
			return err
		}
		overlap, err := adminapi.DecodeOverlap(w, r)
		if err != nil {
			return err
		}
		return adminapi.WriteJSON(w, http.StatusOK, overlap.String())
	})
	for _, test := range []struct {
		id, body string
		status   int
		want     string
	}{
		{id, "", 200, "0s"},
		{id, `{"overlap_seconds":604800}`, 200, adminapi.MaxOverlap.String()},
		{id, `{"overlap_seconds":604801}`, 400, "overlap_seconds"},
		{id, `{"overlap_seconds":-1}`, 400, "overlap_seconds"},
		{"7", "", 400, "a UUID"},
		{id[:len(id)-1] + "2", "", 400, "a name in the path"},
	} {
		answer := do(t, mux, "PUT", "/things/"+test.id, "application/json", test.body)
		require.Equal(t, test.status, answer.Code, test.want)
		require.Contains(t, answer.Body.String(), test.want)
	}
}

// TestTextIsRefusedAsItArrives sends bytes that encoding/json would silently replace.
func TestTextIsRefusedAsItArrives(t *testing.T) {
	t.Parallel()
	mux, _ := api(func(w http.ResponseWriter, r *http.Request) error {
		var body struct {
			Name string            `json:"name"`
			Env  map[string]string `json:"env"`
			List []struct {
				Path string `json:"path"`
			} `json:"list"`
		}
		if err := adminapi.Decode(w, r, &body, true); err != nil {
			return err
		}
		return adminapi.WriteJSON(w, http.StatusOK, body)
	})
	for _, test := range []struct{ body, field string }{
		{`{"name":"a` + "\xff" + `"}`, "name"},
		{`{"name":"\ud800"}`, "name"},
		{`{"name":"\udc00\ud800"}`, "name"},
		{`{"name":"\ud83dx"}`, "name"},
		{`{"name":"\ud83d\n"}`, "name"},
		{`{"name":"a","env":{"A":"secret-value","B":"secret-value` + "\xc3" + `"}}`, "env.B"},
		{`{"env":{"A":"1","B` + "\xff" + `":"secret-value"}}`, "env.B\ufffd"},
		{`{"env":{"A":"1"},"list":[{"path":"/"},{"path":"/` + "\xed\xa0\x80" + `"}]}`, "list[1].path"},
	} {
		answer := do(t, mux, "PUT", "/things/7", "application/json", test.body)
		require.Equal(t, 400, answer.Code, "%q: %s", test.body, answer.Body)
		require.Contains(t, answer.Body.String(), `"fields":[{"field":"`+test.field+`","value":"","want":"text in UTF-8`)
		require.NotContains(t, answer.Body.String(), "secret-value")
	}
	require.Contains(t, do(t, mux, "PUT", "/things/7", "application/json", "{\xff").Body.String(), `"code":"malformed"`)
	for _, body := range []string{`{"name":"\\ud800 is text"}`, `{"name":"\ud83d\ude00 \u00e4 \"\\"}`, `{"name":"ä \ufffd ` + "\ufffd" + `"}`, `{"name":"\u12"}`} {
		answer := do(t, mux, "PUT", "/things/7", "application/json", body)
		require.NotContains(t, answer.Body.String(), "UTF-8", body)
	}
}

func TestABodyWithAContentCodingIsRefused(t *testing.T) {
	t.Parallel()
	mux, _ := api(func(w http.ResponseWriter, r *http.Request) error {
		var body map[string]any
		return adminapi.Decode(w, r, &body, true)
	})
	for coding, status := range map[string]int{"gzip": 415, "br": 415, "identity, gzip": 415, "identity": 200, "": 200} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPut, "/things/7", strings.NewReader("{}"))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Content-Encoding", coding)
		answer := httptest.NewRecorder()
		mux.ServeHTTP(answer, r)
		require.Equal(t, status, answer.Code, coding)
	}
}
