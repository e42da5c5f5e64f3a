package openapitest_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/openapi/openapitest"
)

// recorder is a test whose failures are looked at.
type recorder struct {
	testing.TB
	failures []string
}

func (*recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

// TestAnExchangeThatIsNotDescribedFailsTheTest has right exchanges, and some of each kind
// that is wrong.
func TestAnExchangeThatIsNotDescribedFailsTheTest(t *testing.T) {
	t.Parallel()
	const cluster = "/api/v1/admin/clusters/0b8a3c52-9f0e-4c35-8a77-3d1f2f9c5a10"
	refused := func(code string) string { return `{"error":{"code":"` + code + `","message":"no"}}` }
	for what, test := range map[string]struct {
		method, path, body string
		status             int
		answer             string
		want               string
	}{
		"right":                     {"PUT", cluster, `{"region":"nyc3"}`, 201, `{"cluster_id":"a","generation":1,"token":"t"}`, ""},
		"right, and refused":        {"PUT", cluster, `{"regio":"nyc3"}`, 400, refused("unknown_field"), ""},
		"another path":              {"GET", "/status", "", 418, "tea", ""},
		"a stream":                  {"GET", "/api/v1/scopes/eu/items?watch", "", 200, "{}\n{}\n", ""},
		"an undescribed status":     {"PUT", cluster, `{"region":"nyc3"}`, 202, `{}`, "status is not supported"},
		"an undescribed code":       {"GET", cluster, "", 404, refused("unknown_region"), "404 has the code unknown_region, and lists [unknown_cluster]"},
		"an error without a body":   {"GET", cluster, "", 404, "", "404"},
		"a member too many":         {"PUT", cluster, `{"region":"nyc3"}`, 200, `{"cluster_id":"a","generation":1,"secret":"s"}`, "secret"},
		"a member too few":          {"PUT", cluster, `{"region":"nyc3"}`, 200, `{"cluster_id":"a"}`, "generation"},
		"a wrong type":              {"PUT", cluster, `{"region":"nyc3"}`, 200, `{"cluster_id":"a","generation":"1"}`, "generation"},
		"a body that is taken":      {"PUT", cluster, `{"regio":"nyc3"}`, 200, `{"cluster_id":"a","generation":1}`, "was answered with 200"},
		"a parameter that is taken": {"DELETE", cluster + "?abandon=perhaps", "", 204, "", "was answered with 204"},
	} {
		r := &recorder{TB: t}
		next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			require.NoError(t, err)
			require.Equal(t, test.body, string(body), what)
			w.Header().Set("X-Of-The-Handler", "yes")
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(test.status)
			_, _ = io.WriteString(w, test.answer)
		})
		request := httptest.NewRequestWithContext(t.Context(), test.method, test.path, strings.NewReader(test.body))
		if test.body != "" {
			request.Header.Set("Content-Type", "application/json")
		}
		answer := httptest.NewRecorder()
		openapitest.Handler(r, next).ServeHTTP(answer, request)
		require.Equal(t, test.status, answer.Code, what)
		require.Equal(t, test.answer, answer.Body.String(), what)
		require.Equal(t, "yes", answer.Header().Get("X-Of-The-Handler"), what)
		all := strings.Join(r.failures, "\n")
		if test.want == "" {
			require.Empty(t, all, what)
			continue
		}
		require.Contains(t, all, test.want, what)
	}
}
