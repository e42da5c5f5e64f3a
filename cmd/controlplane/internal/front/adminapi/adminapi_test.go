package adminapi_test

import (
	"bytes"
	"context"
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
		return adminapi.WriteJSON(w, 201, 1)
	})
	require.Equal(t, 201, do(t, mux, "PUT", "/things/7", "", "").Code)
	refused := do(t, mux, "GET", "/things/7", "", "")
	require.Equal(t, 405, refused.Code)
	require.Equal(t, "PUT", refused.Header().Get("Allow"))
	require.Equal(t, 404, do(t, mux, "GET", "/", "", "").Code)
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
		return adminapi.WriteJSON(w, http.StatusOK, "right")
	})
	for path, want := range map[string]string{
		id:                   "right",
		"7":                  "a UUID",
		id[:len(id)-1] + "2": "a name in the path",
	} {
		require.Contains(t, do(t, mux, "PUT", "/things/"+path, "application/json", "").Body.String(), want)
	}
}

// TestARouteReadsItsPathItsQueryAndItsBody runs each kind of route.
func TestARouteReadsItsPathItsQueryAndItsBody(t *testing.T) {
	t.Parallel()
	type body struct {
		Size int `json:"size"`
	}
	id := func(r *http.Request) (string, error) {
		return adminapi.PathName(r, "id", regexp.MustCompile(`^[a-z]$`))
	}
	seen := ""
	note := func(what ...any) { seen = fmt.Sprint(what...) }
	a := adminapi.API{Logger: slog.New(slog.DiscardHandler), Conditions: []adminapi.Condition{
		{Err: errAbsent, Answer: adminapi.Error{Status: http.StatusNotFound, Code: "absent", Message: "it is absent"}},
	}}
	change := func(_ context.Context, id string, b body) (body, error) {
		note(id, " ", b.Size)
		return b, nil
	}
	mux := a.Mux([]adminapi.Route{
		adminapi.Get("/things/{id}", id, func(_ context.Context, id string) (body, error) {
			note(id)
			if id == "z" {
				return body{1}, errAbsent
			}
			return body{7}, nil
		}),
		adminapi.Put("/things/{id}", id, func(_ context.Context, id string, b body) (body, bool, error) {
			note(id, " ", b.Size)
			return b, id == "n", nil
		}),
		adminapi.Remove("/things/{id}", id, func(_ context.Context, id string) error {
			if id == "g" {
				return errAbsent
			}
			return nil
		}, func(_ context.Context, id string, abandon bool) error {
			note(id, " ", abandon)
			return nil
		}),
		adminapi.Set("/things/{id}/size", id, change),
		adminapi.Post("/things/{id}/act", id, change),
		adminapi.Post("/things/{id}/rotate", id, func(_ context.Context, id string, r adminapi.Rotation) (string, error) {
			note(id)
			return r.Overlap().String(), nil
		}),
		adminapi.Delete("/things/{id}/size", id, func(_ context.Context, id string) (body, error) { return body{0}, nil }),
		adminapi.List("/things", "things", adminapi.Everything, func(n *int) string { return fmt.Sprint(*n) },
			func(_ context.Context, _ struct{}, after string, limit int) ([]int, error) {
				note(after, " ", limit)
				return []int{1, 2, 3}[:limit], nil
			}),
	})
	for _, test := range []struct {
		method, path, body string
		status             int
		want, seen         string
	}{
		{"GET", "/things/a", "", 200, `{"size":7}`, "a"},
		{"GET", "/things/A", "", 400, `"field":"id"`, ""},
		{"GET", "/things/a?deep=true", "", 400, `"field":"deep"`, ""},
		{"GET", "/things/z", "", 404, `absent`, "z"},
		{"PUT", "/things/a", `{"size":3}`, 200, `{"size":3}`, "a 3"},
		{"PUT", "/things/n", `{"size":3}`, 201, `{"size":3}`, "n 3"},
		{"PUT", "/things/n?dry=true", `{"size":3}`, 400, `"field":"dry"`, ""},
		{"PUT", "/things/N", `{"size":3}`, 400, `"field":"id"`, ""},
		{"PUT", "/things/n", `{"weight":3}`, 400, `unknown_field`, ""},
		{"PUT", "/things/n", `{"Size":3}`, 400, `there is no field \"Size\"`, ""},
		{"PUT", "/things/n", `{"size":3,"size":4}`, 400, `size is there twice: want each field once`, ""},
		{"PUT", "/things/n", `{"size":3} {"size":4}`, 400, `malformed`, ""},
		{"PUT", "/things/n", ``, 400, `malformed`, ""},
		{"PUT", "/things/a/size", `{"size":4}`, 200, `{"size":4}`, "a 4"},
		{"DELETE", "/things/a/size", ``, 200, `{"size":0}`, ""},
		{"POST", "/things/a/act", `{"size":5}`, 200, `{"size":5}`, "a 5"},
		{"POST", "/things/a/act", ``, 200, `{"size":0}`, "a 0"},
		{"POST", "/things/a/rotate", ``, 200, `"0s"`, "a"},
		{"POST", "/things/a/rotate", `{"overlap_seconds":604800}`, 200, `"168h0m0s"`, "a"},
		{"POST", "/things/a/rotate", `{"overlap_seconds":604801}`, 400, `overlap_seconds is 604801: want 0 to 604800`, ""},
		{"POST", "/things/a/rotate", `{"overlap_seconds":-1}`, 400, `overlap_seconds`, ""},
		{"DELETE", "/things/a", "", 204, "", "a false"},
		{"DELETE", "/things/a?abandon=true", "", 204, "", "a true"},
		{"DELETE", "/things/a?abandon=yes", "", 400, "true or false", ""},
		{"DELETE", "/things/g?abandon=true", "", 404, "absent", ""},
		{"GET", "/things?limit=1&after=0", "", 200, `{"next":"1","things":[1]}`, "0 2"},
		{"GET", "/things?limit=2", "", 200, `{"next":"2","things":[1,2]}`, " 3"},
	} {
		seen = ""
		answer := do(t, mux, test.method, test.path, "application/json", test.body)
		require.Equal(t, test.status, answer.Code, "%s %s: %s", test.method, test.path, answer.Body)
		require.Contains(t, answer.Body.String(), test.want)
		require.Equal(t, test.seen, seen, "%s %s", test.method, test.path)
	}
}

func TestAListIsReadInPartsUntilItsEnd(t *testing.T) {
	t.Parallel()
	all := []string{"a", "b", "us-1@gcp"}
	asked := 0
	a := adminapi.API{Logger: slog.New(slog.DiscardHandler)}
	mux := a.Mux([]adminapi.Route{
		adminapi.List("/things", "things", adminapi.Everything, func(s *string) string { return *s },
			func(_ context.Context, _ struct{}, after string, limit int) (found []string, err error) {
				asked = limit
				for _, s := range all {
					if s > after && len(found) < limit {
						found = append(found, s)
					}
				}
				return found, nil
			}),
	})
	for _, test := range []struct {
		query  string
		status int
		want   string
		asked  int
	}{
		{"", 200, `{"things":["a","b","us-1@gcp"]}`, adminapi.MaxLimit + 1},
		{"?limit=3", 200, `{"things":["a","b","us-1@gcp"]}`, 4},
		{"?limit=2", 200, `{"next":"b","things":["a","b"]}`, 3},
		{"?limit=2&after=b", 200, `{"things":["us-1@gcp"]}`, 3},
		{"?limit=2&after=us-1@gcp", 200, `{"things":[]}`, 3},
		{"?limit=1000", 200, `"a"`, 1001},
		{"?limit=1001", 400, `limit is \"1001\": want 1 to 1000`, 0},
		{"?limit=0", 400, `limit is \"0\": want 1 to 1000`, 0},
		{"?limit=x", 400, `limit is \"x\"`, 0},
		{"?limit=", 400, `limit is \"\"`, 0},
		{"?limit=1&limit=2", 400, `limit is 2 values`, 0},
		{"?after=", 400, `after is \"\": want the next of an answer before`, 0},
		{"?after=%00", 400, `after is`, 0},
		{"?before=a", 400, `before: want no such parameter: there are after, limit`, 0},
	} {
		asked = 0
		answer := do(t, mux, http.MethodGet, "/things"+test.query, "", "")
		require.Equal(t, test.status, answer.Code, "%s: %s", test.query, answer.Body)
		require.Equal(t, test.asked, asked, test.query)
		if strings.HasPrefix(test.want, "{") {
			require.JSONEq(t, test.want, answer.Body.String(), test.query)
			continue
		}
		require.Contains(t, answer.Body.String(), test.want, test.query)
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
