package process_test

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/internal/test/process"
)

func TestAChildLogsAndEnds(t *testing.T) {
	t.Parallel()
	g := process.NewGroup(t.TempDir())
	defer g.Close()
	p, err := g.Run("hello", "/bin/sh", []string{"WORD=hello"}, "-c", "echo $WORD; echo there >&2; exit 3")
	require.NoError(t, err)
	<-p.Exited()
	require.EqualError(t, p.Err(), "exit status 3")
	require.Equal(t, "hello\nthere", p.Tail())
}

func TestStopAsksBeforeItKills(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	g := process.NewGroup(dir)
	defer g.Close()
	started := func(name, script string) *process.Process {
		p, err := g.Run(name, "/bin/sh", nil, "-c", script)
		require.NoError(t, err)
		await.Eventually(t, `err == nil && strings.Contains(string(data), "ready")`, func() bool {
			data, err := os.ReadFile(p.Log)
			return err == nil && strings.Contains(string(data), "ready")
		})
		return p
	}
	polite := started("polite", "trap 'exit 0' TERM; echo ready; while :; do sleep 0.01; done")
	require.NoError(t, polite.Stop(10*time.Second))
	deaf := started("deaf", "trap '' TERM; echo ready; while :; do sleep 0.01; done")
	require.EqualError(t, deaf.Stop(50*time.Millisecond), "deaf did not end within 50ms of SIGTERM")
}

func TestCloseEndsEveryChild(t *testing.T) {
	t.Parallel()
	g := process.NewGroup(t.TempDir())
	var all []*process.Process
	for _, name := range []string{"a", "b", "c"} {
		p, err := g.Run(name, "/bin/sleep", nil, "1000")
		require.NoError(t, err)
		all = append(all, p)
	}
	g.Close()
	for _, p := range all {
		<-p.Exited()
		require.ErrorContains(t, p.Err(), "killed")
	}
}

func TestAClosedGroupStartsNothing(t *testing.T) {
	t.Parallel()
	g := process.NewGroup(t.TempDir())
	var runs sync.WaitGroup
	for i := range 8 {
		runs.Go(func() {
			p, err := g.Run(strconv.Itoa(i), "/bin/sleep", nil, "1000")
			if err == nil {
				<-p.Exited()
				return
			}
			assert.EqualError(t, err, strconv.Itoa(i)+": the group is closed")
		})
	}
	g.Close()
	runs.Wait()
	_, err := g.Run("late", "/bin/sleep", nil, "1000")
	require.EqualError(t, err, "late: the group is closed")
	g.Close()
}

func TestAMissingProgramIsNamed(t *testing.T) {
	t.Parallel()
	g := process.NewGroup(t.TempDir())
	defer g.Close()
	_, err := g.Run("ghost", "/no/such/program", nil)
	require.ErrorContains(t, err, "ghost: fork/exec /no/such/program")
}
