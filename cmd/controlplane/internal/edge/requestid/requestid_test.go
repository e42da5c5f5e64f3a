package requestid_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/requestid"
)

func TestARequestKeepsTheIDOfItsClientIfThatIsPlain(t *testing.T) {
	t.Parallel()
	var seen string
	handler := requestid.Handler(
		requestid.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = requestid.Of(r.Context()) })),
	)
	ask := func(id string) string {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
		if id != "" {
			r.Header.Set(requestid.Header, id)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		require.Equal(t, seen, w.Header().Get(requestid.Header), "the answer has the id")
		require.Regexp(t, `^[A-Za-z0-9][A-Za-z0-9._:/+=@-]{0,127}$`, seen)
		return seen
	}
	for _, id := range []string{"7", "3f0c9d6e-8a51-4c77-9b1e-2d4f6a8b0c12", "Root=1-67891233-abcdef012345678912345678", strings.Repeat("a", 128)} {
		require.Equal(t, id, ask(id))
	}
	made := map[string]bool{}
	for _, id := range []string{"", "a b", "a\"b", "-a", "<b>", "ä", strings.Repeat("a", 129), "a\tb"} {
		got := ask(id)
		require.NotEqual(t, id, got)
		require.Len(t, got, 32)
		made[got] = true
	}
	require.Len(t, made, 8, "each is new")
}

func TestALineOfTheLogHasTheIDOfItsRequest(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	logger := slog.New(requestid.Logger(slog.NewTextHandler(&out, nil))).With(slog.String("a", "b")).WithGroup("g")
	logger.InfoContext(requestid.NewContext(t.Context(), "r-1"), "in a request")
	logger.InfoContext(t.Context(), "in none")
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, 2)
	require.Contains(t, lines[0], "request_id=r-1")
	require.Contains(t, lines[0], "a=b")
	require.NotContains(t, lines[1], "request_id")
}
