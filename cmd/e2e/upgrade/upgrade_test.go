package upgrade_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/controlplanetest"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/internal/test/pgtest"
	"github.com/seed-9e1ffd66/trueup/internal/test/process"
)

// replicas start control planes on one database.
type replicas struct {
	t        *testing.T
	children *process.Group
	args     []string
	started  int
}

// replica is a control plane that runs.
type replica struct {
	*process.Process
	address string
}

func newReplicas(t *testing.T, database string) *replicas {
	t.Helper()
	dir := t.TempDir()
	children := process.NewGroup(dir)
	t.Cleanup(children.Close)
	return &replicas{t: t, children: children, args: []string{
		"--listen", "127.0.0.1:0", "--metrics-bind-address", "", "--database", database,
		"--admin-token-file", write(t, dir, "admin.token", controlplanetest.AdminToken),
	}}
}

// start starts the program at path, and returns once it is ready.
func (r *replicas) start(path string) replica {
	r.t.Helper()
	r.started++
	p, err := r.children.Run(fmt.Sprintf("%d-%s", r.started, filepath.Base(path)), path, nil, r.args...)
	require.NoError(r.t, err)
	one := replica{Process: p}
	await.Eventually(r.t, "it listens", func() bool {
		select {
		case <-p.Exited():
			r.t.Fatal(p.Tail())
		default:
		}
		for line := range strings.Lines(p.Tail()) {
			var said struct{ Msg, Address string }
			if json.Unmarshal([]byte(line), &said) == nil && said.Msg == "listening" {
				one.address = said.Address
			}
		}
		return one.address != ""
	}, p.Tail)
	require.NoError(r.t, p.Answers(r.t.Context(), "http://"+one.address+"/readyz", http.StatusOK, await.Moment))
	return one
}

// refused starts the program at path, which must end for the schema of its database.
func (r *replicas) refused(path string) {
	r.t.Helper()
	p, err := r.children.Run("refused", path, nil, r.args...)
	require.NoError(r.t, err)
	await.Eventually(r.t, "it has ended", func() bool {
		select {
		case <-p.Exited():
			return true
		default:
			return false
		}
	}, p.Tail)
	require.Error(r.t, p.Err())
	require.Contains(r.t, p.Tail(), "written by a newer version")
	require.Contains(r.t, p.Tail(), ": run the newer version or choose another ")
}

// log returns what all replicas have logged.
func (r *replicas) log() string {
	r.t.Helper()
	files, err := filepath.Glob(filepath.Join(filepath.Dir(r.args[len(r.args)-1]), "*.log"))
	require.NoError(r.t, err)
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(r.t, err)
		all.Write(text)
	}
	return all.String()
}

func TestNothingIsLostInAnUpgradeAndItsRollback(t *testing.T) {
	if testing.Short() {
		t.Skip("long: it builds the control plane of the last release")
	}
	t.Parallel()
	v := build(t)
	t.Run("side by side on PostgreSQL", func(t *testing.T) {
		t.Parallel()
		sideBySide(t, v)
	})
	t.Run("one after the other on SQLite", func(t *testing.T) {
		t.Parallel()
		oneAfterTheOther(t, v)
	})
}

// sideBySide replaces one replica after the other, forth through three versions and back by
// one, while an administrator writes, the agent of a cluster asks and reports, and a stream of
// a region is read.
func sideBySide(t *testing.T, v versions) {
	t.Helper()
	r := newReplicas(t, pgtest.NewDatabase(t))
	balancer := controlplanetest.StartBalancer(t)
	var serving []replica
	add := func(path string) {
		t.Helper()
		one := r.start(path)
		balancer.Add(one.address)
		serving = append(serving, one)
	}
	add(v.old)
	add(v.old)
	load := newTraffic(t, "http://"+balancer.Address())
	load.start()
	for step, path := range []string{v.now, v.now, v.next, v.next, v.now, v.now} {
		load.goesOn(step)
		load.setMixed(step < 2)
		add(path)
		load.goesOn(step)
		// It ends as a rollout ends it; the requests that come meanwhile are refused.
		require.NoError(t, serving[0].Stop(time.Minute), serving[0].Tail())
		balancer.Remove(serving[0].address)
		serving = serving[1:]
		load.setMixed(step == 0)
	}
	load.goesOn(-1)
	load.finish()
	for _, one := range serving {
		load.whole("http://" + one.address)
	}
	require.NotContains(t, r.log(), `"level":"ERROR"`)
	// The rule counts from now on: the program of the last release does not know it.
	r.refused(v.old)
}

// oneAfterTheOther goes forth and back on a file, which one control plane has open at a time.
func oneAfterTheOther(t *testing.T, v versions) {
	t.Helper()
	r := newReplicas(t, filepath.Join(t.TempDir(), "trueup.db"))
	balancer := controlplanetest.StartBalancer(t)
	var load *traffic
	for step, path := range []string{v.old, v.now, v.next, v.now, v.next, v.now} {
		one := r.start(path)
		balancer.Add(one.address)
		if load == nil {
			load = newTraffic(t, "http://"+balancer.Address())
			load.start()
		}
		load.goesOn(step)
		if step == 5 {
			load.finish()
			load.whole("http://" + one.address)
		}
		require.NoError(t, one.Stop(time.Minute), one.Tail())
		balancer.Remove(one.address)
	}
	require.NotContains(t, r.log(), `"level":"ERROR"`)
	r.refused(v.old)
}
