package database_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/internal/test/process"
)

// postgrest is C19 by the sidecar itself, where its program is in PATH, with the variables
// that the operator gives it: anonymous readers see the tables and change nothing.
func postgrest(b *bench) {
	program, err := exec.LookPath("postgrest")
	if err != nil {
		b.Skip("no postgrest in PATH: what it needs is tested by its login and SET ROLE alone")
	}
	s, w := b.open(nil), want("rest")
	_, err = s.Apply(b.Context(), w)
	require.NoError(b, err)
	b.exec(b.login(s.URL(w)), "CREATE TABLE todos (id serial PRIMARY KEY, title text); INSERT INTO todos (title) VALUES ('a')")
	free, err := process.Port(b.Context())
	require.NoError(b, err)
	port := strconv.Itoa(free)
	dir := b.TempDir()
	require.NoError(b, os.WriteFile(filepath.Join(dir, "none.conf"), nil, 0o600))
	group := process.NewGroup(dir)
	b.Cleanup(group.Close)
	sidecar, err := group.Run("postgrest", program, []string{
		"PGRST_DB_URI=" + s.PostgRESTURL(w),
		"PGRST_DB_SCHEMAS=" + w.Schema,
		"PGRST_DB_ANON_ROLE=" + w.Anon,
		"PGRST_SERVER_PORT=" + port,
		"PGRST_DB_CHANNEL_ENABLED=true",
	}, filepath.Join(dir, "none.conf"))
	require.NoError(b, err)
	do := func(method, path, body string) (int, string) {
		request, err := http.NewRequestWithContext(b.Context(), method, "http://127.0.0.1:"+port+path, strings.NewReader(body))
		require.NoError(b, err)
		request.Header.Set("Content-Type", "application/json")
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return 0, err.Error()
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		require.NoError(b, err)
		return answer.StatusCode, string(text)
	}
	await.Eventually(b, "PostgREST serves", func() bool {
		status, _ := do(http.MethodGet, "/todos?id=eq.1", "")
		return status == http.StatusOK
	}, sidecar.Tail)
	_, text := do(http.MethodGet, "/todos?id=eq.1", "")
	require.JSONEq(b, `[{"id":1,"title":"a"}]`, text)
	status, text := do(http.MethodPost, "/todos", `{"title":"b"}`)
	require.Contains(b, []int{http.StatusUnauthorized, http.StatusForbidden}, status, fmt.Sprint(text))
}
