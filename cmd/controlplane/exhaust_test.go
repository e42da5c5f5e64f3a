package main_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// memory returns a field of the memory of a process in KiB: VmRSS is what is resident now,
// VmHWM the most that ever was.
func memory(tb testing.TB, pid int, field string) int {
	tb.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(tb, err)
	found := regexp.MustCompile(field + `:\s+(\d+) kB`).FindSubmatch(status)
	require.NotNil(tb, found)
	kib, err := strconv.Atoi(string(found[1]))
	require.NoError(tb, err)
	return kib
}

// TestOneAgentDoesNotExhaustTheProgram has an agent send large bodies that stand for much
// more, many at once, while another one goes on.
func TestOneAgentDoesNotExhaustTheProgram(t *testing.T) {
	p := serveProcess(t, binary(t), "--listen", "127.0.0.1:0", "--metrics-bind-address", "127.0.0.1:0",
		"--database", filepath.Join(t.TempDir(), "db"), "--admin-token-file", writeFile(t, adminToken))
	base := "http://" + p.address
	create := func(path, body string) string {
		status, answer := request(t, http.DefaultClient, http.MethodPut, base+"/api/v1/admin/"+path, adminToken, body)
		require.Equal(t, http.StatusCreated, status, answer)
		_, token, _ := strings.Cut(answer, `"token":"`)
		token, _, _ = strings.Cut(token, `"`)
		return token
	}
	hostile, other := create("clusters/"+clusterID, `{"region":"nyc3"}`), create("clusters/"+otherID, `{"region":"nyc3"}`)
	region := create("regions/eu", `{"name":"eu-1","platform":"aws"}`)
	statuses := `{"services":[{}` + strings.Repeat(",{}", 2_600_000) + `]}`
	instances := `{"update":{"k8s_name":"a","instances":[{}` + strings.Repeat(",{}", 1_300_000) + `]}}`
	seen := map[int]int{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for n := range 60 {
		all.Go(func() {
			url, token, body := base+"/api/v1/clusters/"+clusterID+"/status", hostile, statuses
			if n%2 == 1 {
				url, token, body = base+"/ctrl.v1.ClusterService/ReportDeploymentStatus", region, instances
			}
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
			if err != nil {
				t.Error(err)
				return
			}
			r.Header.Set("Authorization", "Bearer "+token)
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("X-Krane-Region", "eu-1")
			response, err := http.DefaultClient.Do(r)
			if err != nil {
				return // answered and closed before the body was read
			}
			_, _ = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
			if response.StatusCode == http.StatusTooManyRequests && response.Header.Get("Retry-After") == "" {
				t.Error("429 does not say when to come back")
			}
			mu.Lock()
			defer mu.Unlock()
			seen[response.StatusCode]++
		})
		status, answer := request(t, http.DefaultClient, http.MethodGet, base+"/api/v1/clusters/"+otherID+"/desired-state", other, "")
		require.Equal(t, http.StatusOK, status, answer)
	}
	all.Wait()
	require.NotZero(t, seen[http.StatusTooManyRequests], seen)
	require.Zero(t, seen[http.StatusInternalServerError], seen)
	require.Zero(t, seen[http.StatusNoContent], seen)
	mib := memory(t, p.command.Process.Pid, "VmHWM") >> 10
	t.Logf("answers %v, at most %d MiB resident", seen, mib)
	require.Less(t, mib, 400)
	require.NoError(t, p.command.Process.Kill())
	<-p.ended
}
