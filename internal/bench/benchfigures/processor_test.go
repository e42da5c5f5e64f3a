//go:build unix

package benchfigures_test

import (
	"bufio"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/bench/benchfigures"
)

// child is a process that has used some processor time, and waits until the test ends.
func child(t *testing.T) *exec.Cmd {
	t.Helper()
	c := exec.CommandContext(t.Context(), "sh", "-c", `i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; echo done; read end`)
	in, err := c.StdinPipe()
	require.NoError(t, err)
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	t.Cleanup(func() {
		_ = in.Close() // it may have ended with the test's context
		_ = c.Wait()   // read fails at the end of its input
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "done\n", line)
	return c
}

// TestTheTimeOfAContenderIsToldApartFromThatOfOtherPrograms counts the children of this
// process alone.
func TestTheTimeOfAContenderIsToldApartFromThatOfOtherPrograms(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("there is no /proc")
	}
	contender := child(t).Process.Pid
	alone, err := benchfigures.ProcessorTime(contender)
	require.NoError(t, err)
	require.Positive(t, alone["self"])
	require.Less(t, alone["self"], 60.0, "it is in seconds")
	require.NotContains(t, alone, "sh", "the contender counts once")
	child(t)
	both, err := benchfigures.ProcessorTime(contender)
	require.NoError(t, err)
	used := both.Since(alone)
	require.Positive(t, used["sh"], "it began after the first look")
	require.Zero(t, used["self"], "it waits")
	require.Len(t, both, 2, "others' processes do not count")
	own, err := benchfigures.ProcessorTime(os.Getpid())
	require.NoError(t, err)
	require.GreaterOrEqual(t, own["sh"], used["sh"]+alone["self"], "both are other programs")
	require.Contains(t, own, "self", "this process may be the contender")
}

// TestTheProcessorTimeIsThatOfTheProgramAndOfTheSystemForIt compares it with what the system says of this process.
// It is not parallel: another test counts the processes.
//
//nolint:paralleltest // see above
func TestTheProcessorTimeIsThatOfTheProgramAndOfTheSystemForIt(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there is no /proc")
	}
	var usage syscall.Rusage
	for usage.Stime.Nano() < 300e6 || usage.Utime.Nano() < 300e6 {
		_, err := os.ReadFile("/proc/self/status") // the system works
		require.NoError(t, err)
		require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	}
	own, err := benchfigures.ProcessorTime(os.Getpid())
	require.NoError(t, err)
	require.InDelta(t, float64(usage.Utime.Nano()+usage.Stime.Nano())/1e9, own["self"], 0.2)

	gone := child(t)
	require.NoError(t, gone.Process.Kill())
	require.Error(t, gone.Wait())
	_, err = benchfigures.ProcessorTime(gone.Process.Pid)
	require.ErrorContains(t, err, "is not in /proc, must run", "it did not use nothing")
}

func TestWhatWasUsedBeforeIsLeftOut(t *testing.T) {
	t.Parallel()
	used := benchfigures.Processor{"self": 3, "etcd": 2, "new": 1}.Since(benchfigures.Processor{"self": 1, "etcd": 2, "ended": 5})
	require.Equal(t, benchfigures.Processor{"self": 2, "etcd": 0, "new": 1}, used)
}
