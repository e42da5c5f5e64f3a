//go:build unix && !solaris && !aix

package local_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/cloudtest"
	"github.com/seed-9e1ffd66/trueup/cloud/local"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
)

// TestMain is a machine, if it is started as one.
func TestMain(m *testing.M) {
	switch os.Getenv("MACHINE_USER_DATA") {
	case "":
		os.Exit(m.Run())
	case "deaf": // to SIGTERM
		signal.Ignore(syscall.SIGTERM)
		fmt.Println("deaf")
		select {}
	case "child": // leaves one behind that hears no SIGTERM
		if err := exec.CommandContext(context.Background(), "/bin/sh", "-c", "trap '' TERM; while :; do sleep 1; done").Start(); err != nil {
			panic(err)
		}
		os.Exit(0)
	case "print":
		fmt.Println(os.Getenv("MACHINE_NAME"), os.Getenv("MACHINE_PROVIDER_ID"), os.Getenv("MACHINE_TYPE"))
		os.Exit(0)
	default:
		stop := make(chan os.Signal, 1)
		signal.Notify(stop, syscall.SIGTERM)
		<-stop
		os.Exit(0)
	}
}

func config(token, userData string) cloud.LaunchConfig {
	return cloud.LaunchConfig{
		Token: token, ImageID: strconv.Quote(os.Args[0]), InstanceType: "small", UserData: userData, Tags: map[string]string{"owner": "test"},
	}
}

func TestLocalConforms(t *testing.T) {
	dir := t.TempDir()
	cloudtest.Run(t, func(*testing.T) cloudtest.Subject {
		other := config("", "serve")
		other.InstanceType = "large"
		return cloudtest.Subject{
			Provider:  &local.Provider{Dir: dir},
			Second:    &local.Provider{Dir: dir},
			Config:    config("", "serve"),
			Other:     other,
			UnknownID: "local-00000000000000000000000000000000",
			NoZone:    true, NoAddress: true,
		}
	})
}

// launch returns a machine, which ends with the test.
func launch(t *testing.T, p *local.Provider, c cloud.LaunchConfig, state cloud.InstanceState) cloud.Instance {
	t.Helper()
	i, err := p.LaunchInstance(t.Context(), c)
	require.NoError(t, err)
	t.Cleanup(func() { // by SIGKILL
		ctx := context.WithoutCancel(t.Context())
		if state, err := p.GetInstanceState(ctx, i.ID); err == nil && state == cloud.InstanceRunning {
			require.NoError(t, p.StopInstance(ctx, i.ID, true))
		}
	})
	reaches(t, p, i.ID, state)
	return i
}

func reaches(t *testing.T, p *local.Provider, id string, state cloud.InstanceState) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	require.NoError(t, cloud.Wait(ctx, p, id, state))
}

// pid is the process of a machine.
func pid(t *testing.T, p *local.Provider, id string) int {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(p.Dir, id+".log"))
	require.NoError(t, err)
	line, _, _ := strings.Cut(string(data), "\n")
	n, err := strconv.Atoi(line)
	require.NoError(t, err)
	return n
}

func TestAProcessThatDoesNotEndIsKilled(t *testing.T) {
	t.Parallel()
	p := &local.Provider{Dir: t.TempDir(), Grace: 2 * time.Second}
	i := launch(t, p, config("a", "deaf"), cloud.InstanceRunning)
	await.Eventually(t, "it ignores the signal", func() bool {
		log, err := os.ReadFile(filepath.Join(p.Dir, i.ID+".log"))
		return err == nil && strings.Contains(string(log), "deaf")
	})
	require.NoError(t, p.StopInstance(t.Context(), i.ID, false))
	state, err := p.GetInstanceState(t.Context(), i.ID)
	require.NoError(t, err)
	require.Equal(t, cloud.InstanceStopping, state, "it has its time")
	reaches(t, p, i.ID, cloud.InstanceStopped)

	p.Grace = time.Hour
	require.NoError(t, p.StartInstance(t.Context(), i.ID))
	reaches(t, p, i.ID, cloud.InstanceRunning)
	require.NoError(t, p.StopInstance(t.Context(), i.ID, false))
	require.NoError(t, p.StopInstance(t.Context(), i.ID, true))
	reaches(t, p, i.ID, cloud.InstanceStopped)
}

func TestAMachineIsNotOffWhileAChildOfItsProcessRuns(t *testing.T) {
	t.Parallel()
	p := &local.Provider{Dir: t.TempDir(), Grace: time.Second}
	i := launch(t, p, config("a", "child"), cloud.InstanceRunning)
	ended := func() bool { return errors.Is(syscall.Kill(pid(t, p, i.ID), 0), syscall.ESRCH) }
	require.Eventually(t, ended, 30*time.Second, 10*time.Millisecond)
	state, err := p.GetInstanceState(t.Context(), i.ID)
	require.NoError(t, err)
	require.Equal(t, cloud.InstanceRunning, state)
	require.NoError(t, p.TerminateInstance(t.Context(), i.ID))
	reaches(t, p, i.ID, cloud.InstanceTerminated)
}

// A process with the id of one that has ended is another's.
func TestAProcessOfOthersIsNeverSignalled(t *testing.T) {
	t.Parallel()
	p := &local.Provider{Dir: t.TempDir()}
	i := launch(t, p, config("a", "print"), cloud.InstanceStopped)
	bystander := exec.CommandContext(t.Context(), "sleep", "1000")
	bystander.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	require.NoError(t, bystander.Start())
	log := fmt.Sprintln(bystander.Process.Pid)
	require.NoError(t, os.WriteFile(filepath.Join(p.Dir, i.ID+".log"), []byte(log), 0o600))
	require.NoError(t, p.StopInstance(t.Context(), i.ID, true))
	require.NoError(t, p.TerminateInstance(t.Context(), i.ID))
	reaches(t, p, i.ID, cloud.InstanceTerminated)
	require.NoError(t, bystander.Process.Signal(syscall.Signal(0)), "it runs")
}

func TestAMachineKnowsItsNameAndStopsItself(t *testing.T) {
	t.Parallel()
	p := &local.Provider{Dir: t.TempDir(), Zone: "desk"}
	i := launch(t, p, config("a", "print"), cloud.InstanceStopped)
	log, err := os.ReadFile(filepath.Join(p.Dir, i.ID+".log"))
	require.NoError(t, err)
	require.Contains(t, string(log), fmt.Sprintf("%s local:///desk/%s small\n", i.ID, i.ID))
}

// The answer of a launch was lost, and the process that asked was killed.
func TestANewProviderFindsTheMachinesOfTheLast(t *testing.T) {
	t.Parallel()
	p := &local.Provider{Dir: t.TempDir()}
	i := launch(t, p, config("a", "serve"), cloud.InstanceRunning)
	next := &local.Provider{Dir: p.Dir}
	again, err := next.LaunchInstance(t.Context(), config("a", "serve"))
	require.NoError(t, err)
	require.Equal(t, i.ID, again.ID)
	require.Equal(t, cloud.InstanceRunning, again.State)
	require.True(t, i.LaunchTime.Equal(again.LaunchTime))
	before := pid(t, p, i.ID)
	require.NoError(t, next.StartInstance(t.Context(), i.ID))
	require.Equal(t, before, pid(t, p, i.ID), "it was not started again")
}

// Two processes had the same plan, and each repeats its calls.
func TestManyProvidersShareAFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var all sync.WaitGroup
	failed := make(chan error, 1000)
	for n := range 4 {
		all.Go(func() {
			p := &local.Provider{Dir: dir}
			for turn := range 20 {
				_, err := p.LaunchInstance(t.Context(), config(fmt.Sprint((n+turn)%5), "serve"))
				failed <- err
				_, err = p.ListInstances(t.Context(), nil)
				failed <- err
			}
		})
	}
	all.Wait()
	close(failed)
	for err := range failed {
		require.NoError(t, err)
	}
	p, pids := &local.Provider{Dir: dir}, map[int]bool{}
	list, err := p.ListInstances(t.Context(), nil)
	require.NoError(t, err)
	require.Len(t, list, 5)
	for _, i := range list {
		reaches(t, p, i.ID, cloud.InstanceRunning)
		pids[pid(t, p, i.ID)] = true
		require.NoError(t, p.StopInstance(t.Context(), i.ID, true))
		reaches(t, p, i.ID, cloud.InstanceStopped)
	}
	require.Len(t, pids, 5)
}

// The program was killed after it had written the record, and before that in the middle of
// another.
func TestALaunchThatWasCutIsContinued(t *testing.T) {
	t.Parallel()
	p := &local.Provider{Dir: t.TempDir()}
	i := launch(t, p, config("a", "serve"), cloud.InstanceRunning)
	require.NoError(t, p.StopInstance(t.Context(), i.ID, true))
	reaches(t, p, i.ID, cloud.InstanceStopped)
	require.NoError(t, os.Remove(filepath.Join(p.Dir, i.ID+".log")))
	require.NoError(t, os.WriteFile(filepath.Join(p.Dir, i.ID+".new"), []byte(`{"Insta`), 0o600))
	again, err := p.LaunchInstance(t.Context(), config("a", "serve"))
	require.NoError(t, err)
	require.Equal(t, cloud.InstanceStopped, again.State)
	require.NoError(t, p.StartInstance(t.Context(), i.ID))
	reaches(t, p, i.ID, cloud.InstanceRunning)
}

func TestARecordThatCannotBeReadIsNoMissingMachine(t *testing.T) {
	t.Parallel()
	p := &local.Provider{Dir: t.TempDir()}
	i := launch(t, p, config("a", "serve"), cloud.InstanceRunning)
	path := filepath.Join(p.Dir, i.ID+".json")
	good, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, good[:len(good)/2], 0o600))
	_, err = p.ListInstances(t.Context(), nil)
	require.ErrorContains(t, err, i.ID)
	_, err = p.GetInstance(t.Context(), i.ID)
	require.Error(t, err)
	require.NotErrorIs(t, err, cloud.ErrNotFound)
	_, err = p.LaunchInstance(t.Context(), config("a", "serve"))
	require.ErrorContains(t, err, i.ID)
	require.NoError(t, os.WriteFile(path, good, 0o600))
}

func TestTheFolderIsEmptyAfterTheLastMachine(t *testing.T) {
	t.Parallel()
	p := &local.Provider{Dir: filepath.Join(t.TempDir(), "made [by] it")}
	i := launch(t, p, config("a", "serve"), cloud.InstanceRunning)
	list, err := p.ListInstances(t.Context(), map[string]string{"owner": "test"})
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.NoError(t, p.UpdateInstanceTags(t.Context(), i.ID, map[string]string{"owner": "test"}))
	require.NoError(t, p.TerminateInstance(t.Context(), i.ID))
	reaches(t, p, i.ID, cloud.InstanceTerminated)
	_, err = p.GetInstance(t.Context(), "../"+filepath.Base(p.Dir)+"/"+i.ID)
	require.ErrorIs(t, err, cloud.ErrNotFound)
	files, err := os.ReadDir(p.Dir)
	require.NoError(t, err)
	require.Len(t, files, 1, "the lock")
}

// A signal of the terminal, or the end of its session, is none of the machine's.
func TestAMachineHasASessionOfItsOwn(t *testing.T) {
	t.Parallel()
	p := &local.Provider{Dir: t.TempDir()}
	i := launch(t, p, config("a", "serve"), cloud.InstanceRunning)
	session, err := unix.Getsid(pid(t, p, i.ID))
	require.NoError(t, err)
	require.Equal(t, pid(t, p, i.ID), session)
}

// The order is on record before the process hears of it: one that ends without the record
// would be a machine that has stopped itself, and one that does not is killed in its time.
func TestAProcessIsSignalledAfterTheRecord(t *testing.T) {
	t.Parallel()
	p := &local.Provider{Dir: t.TempDir()}
	i := launch(t, p, config("a", "serve"), cloud.InstanceRunning)
	blocker := filepath.Join(p.Dir, i.ID+".new")
	require.NoError(t, os.Mkdir(blocker, 0o700))
	require.Error(t, p.StopInstance(t.Context(), i.ID, true))
	require.Error(t, p.TerminateInstance(t.Context(), i.ID))
	require.NoError(t, os.Remove(blocker))
	_, err := p.GetInstance(t.Context(), i.ID)
	require.NoError(t, err)
	require.NoError(t, p.UpdateInstanceTags(t.Context(), i.ID, map[string]string{"then": "tagged"}), "an answer, after which it had ended")
	reaches(t, p, i.ID, cloud.InstanceRunning)
}

func TestTheFilesAreOfOneUser(t *testing.T) {
	t.Parallel()
	p := &local.Provider{Dir: filepath.Join(t.TempDir(), "machines")}
	i := launch(t, p, config("a", "serve"), cloud.InstanceRunning)
	modes := map[string]fs.FileMode{}
	for _, name := range []string{".", "lock", i.ID + ".log", i.ID + ".json"} {
		is, err := os.Stat(filepath.Join(p.Dir, name))
		require.NoError(t, err)
		modes[name] = is.Mode().Perm()
	}
	require.Equal(t, map[string]fs.FileMode{".": 0o700, "lock": 0o600, i.ID + ".log": 0o600, i.ID + ".json": 0o600}, modes)
}

// The log is that of the last start: it begins with the id of that process.
func TestAStartHasAnEmptyLog(t *testing.T) {
	t.Parallel()
	p := &local.Provider{Dir: t.TempDir()}
	i := launch(t, p, config("a", "print"), cloud.InstanceStopped)
	path := filepath.Join(p.Dir, i.ID+".log")
	first := pid(t, p, i.ID)
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, append(before, strings.Repeat("much\n", 1000)...), 0o600))
	require.NoError(t, p.StartInstance(t.Context(), i.ID))
	reaches(t, p, i.ID, cloud.InstanceStopped)
	require.NotEqual(t, first, pid(t, p, i.ID))
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, 2, strings.Count(string(after), "\n"), "%s", after)
}

// A launch and a start return before the process runs its program, which here reads from a
// pipe that has no writer yet.
func TestAStartReturnsAtOnce(t *testing.T) {
	t.Parallel()
	p := &local.Provider{Dir: t.TempDir()}
	fifo := filepath.Join(t.TempDir(), "fifo")
	require.NoError(t, syscall.Mkfifo(fifo, 0o600))
	c := config("a", "")
	c.ImageID = "true < " + fifo
	for range 2 {
		i, err := p.LaunchInstance(t.Context(), c)
		require.NoError(t, err)
		require.NoError(t, p.StartInstance(t.Context(), i.ID))
		state, err := p.GetInstanceState(t.Context(), i.ID)
		require.NoError(t, err)
		require.NotEqual(t, cloud.InstanceStopped, state)
		writer, err := os.OpenFile(fifo, os.O_WRONLY, 0)
		require.NoError(t, err)
		require.NoError(t, writer.Close())
		reaches(t, p, i.ID, cloud.InstanceStopped)
	}
}

// Each start has its number: at the first a machine warms up.
func TestAMachineCountsItsStarts(t *testing.T) {
	t.Parallel()
	p := &local.Provider{Dir: t.TempDir()}
	c := config("a", "")
	c.ImageID = `sh -c 'echo boot $MACHINE_BOOT'`
	i := launch(t, p, c, cloud.InstanceStopped)
	for boot := 1; ; boot++ {
		log, err := os.ReadFile(filepath.Join(p.Dir, i.ID+".log"))
		require.NoError(t, err)
		require.Contains(t, string(log), fmt.Sprintf("\nboot %d\n", boot))
		if boot == 3 {
			return
		}
		require.NoError(t, (&local.Provider{Dir: p.Dir}).StartInstance(t.Context(), i.ID))
		reaches(t, p, i.ID, cloud.InstanceStopped)
	}
}

// A write of the same tags leaves the record as it is.
func TestTagsThatAreThereAreNotWritten(t *testing.T) {
	t.Parallel()
	p := &local.Provider{Dir: t.TempDir()}
	i := launch(t, p, config("a", "serve"), cloud.InstanceRunning)
	path := filepath.Join(p.Dir, i.ID+".json")
	same := func(tags map[string]string) bool {
		before, err := os.Stat(path)
		require.NoError(t, err)
		require.NoError(t, p.UpdateInstanceTags(t.Context(), i.ID, tags))
		after, err := os.Stat(path)
		require.NoError(t, err)
		return os.SameFile(before, after)
	}
	require.True(t, same(maps.Clone(i.Tags)))
	require.False(t, same(map[string]string{"owner": "another"}))
}

// TestAFileOfAnotherIsNoMachine has a copy of a record, and a file of another program.
func TestAFileOfAnotherIsNoMachine(t *testing.T) {
	t.Parallel()
	p := &local.Provider{Dir: t.TempDir()}
	i := launch(t, p, config("a", "serve"), cloud.InstanceRunning)
	record, err := os.ReadFile(filepath.Join(p.Dir, i.ID+".json"))
	require.NoError(t, err)
	for name, content := range map[string][]byte{i.ID + " (copy).json": record, "mine.json": []byte(`{"a":1}`)} {
		require.NoError(t, os.WriteFile(filepath.Join(p.Dir, name), content, 0o600))
	}
	list, err := p.ListInstances(t.Context(), nil)
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.NoError(t, p.TerminateInstance(t.Context(), i.ID))
	reaches(t, p, i.ID, cloud.InstanceTerminated)
	list, err = p.ListInstances(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, list)
	var left []string
	files, err := os.ReadDir(p.Dir)
	require.NoError(t, err)
	for _, file := range files {
		left = append(left, file.Name())
	}
	require.Equal(t, []string{i.ID + " (copy).json", "lock", "mine.json"}, left, "neither used nor touched")
}

func TestAProviderHasFewLines(t *testing.T) {
	source, err := os.ReadFile("provider.go")
	require.NoError(t, err)
	code := 0
	for line := range strings.Lines(string(source)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
			code++
		}
	}
	fmt.Printf("figure pool_provider_lines %d lines\n", code)
	require.LessOrEqual(t, code, 250)
	require.Greater(t, code, 100, "they were counted")
}
