//go:build unix

package kube_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

// TestLeaseOnARealServer runs the tests that need one on a single API server, each
// subtest with a Lease object of its own.
func TestLeaseOnARealServer(t *testing.T) {
	t.Parallel()
	cluster := kubetest.Start(t, kubetest.Options{})
	for name, test := range map[string]func(*scene){
		"a lease given back is taken at once":                        givenBack,
		"a stolen lease stops the work":                              stolen,
		"a lease that cannot be renewed stops the work":              unreachable,
		"a deleted lease is put back":                                deleted,
		"processes that are killed and paused never work at a time":  killedAndPaused,
		"a process that was paused for long does no more work":       paused,
		"least access is enough, and a missing watch costs a period": leastAccess,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			words := strings.Fields(strings.ToLower(strings.ReplaceAll(name, ",", "")))
			test(&scene{t: t, cluster: cluster, name: strings.Join(words[:min(5, len(words))], "-"), file: filepath.Join(t.TempDir(), "work")})
		})
	}
}

// scene is one Lease object and a file in which its holders write down that
// they work.
type scene struct {
	t       *testing.T
	cluster *kubetest.Cluster
	name    string
	file    string
}

const (
	duration = 3 * time.Second
	deadline = 2 * time.Second
	period   = 400 * time.Millisecond
)

func (s *scene) lease(t *testing.T, config *rest.Config, who string) *kube.Lease {
	t.Helper()
	client, err := dynamic.NewForConfig(config)
	require.NoError(t, err)
	return &kube.Lease{
		Client: client, Namespace: "default", Name: s.name, Identity: who,
		Duration: duration, RenewDeadline: deadline, RetryPeriod: period,
		Starter: diligent(s.file, who),
	}
}

// long makes the lease one that no test waits for the end of: who holds it next was given it.
func long(lease *kube.Lease) *kube.Lease {
	lease.Duration = 2 * time.Hour
	return lease
}

// diligent works at a high rate and writes down when. The time of each line is
// taken before ctx is asked: a pause right between asking and writing is not
// held against it.
func diligent(file, who string) reconcile.Starter {
	return reconcile.StarterFunc(func(ctx context.Context) error {
		out, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		defer out.Close()
		for {
			at := time.Now()
			if ctx.Err() != nil {
				return nil
			}
			if _, err := fmt.Fprintf(out, "%d %s\n", at.UnixNano(), who); err != nil {
				return err
			}
			time.Sleep(time.Millisecond)
		}
	})
}

// line is one piece of work.
type line struct {
	at  time.Time
	who string
}

func (s *scene) lines(t *testing.T) []line {
	t.Helper()
	in, err := os.Open(s.file)
	if os.IsNotExist(err) {
		return nil
	}
	require.NoError(t, err)
	defer in.Close()
	var all []line
	for scanner := bufio.NewScanner(in); scanner.Scan(); {
		var l line
		var at int64
		_, err := fmt.Sscan(scanner.Text(), &at, &l.who)
		require.NoError(t, err)
		l.at = time.Unix(0, at)
		all = append(all, l)
	}
	slices.SortStableFunc(all, func(a, b line) int { return a.at.Compare(b.at) })
	return all
}

// turns lists the electors that worked, in order, each with the first and last time.
func (s *scene) turns(t *testing.T) []span {
	t.Helper()
	var turns []span
	for _, l := range s.lines(t) {
		if n := len(turns); n == 0 || turns[n-1].who != l.who {
			turns = append(turns, span{who: l.who, start: l.at})
		}
		turns[len(turns)-1].stop = l.at
	}
	return turns
}

func (s *scene) order(t *testing.T) string {
	t.Helper()
	var names []string
	for _, turn := range s.turns(t) {
		names = append(names, turn.who)
	}
	return strings.Join(names, " ")
}

func (s *scene) waitFor(t *testing.T, order string) {
	t.Helper()
	await.Eventually(t, fmt.Sprintf("want %s", order), func() bool { return s.order(t) == order })
}

func (s *scene) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := s.cluster.Kubectl(t.Context(), args...)
	require.NoError(t, err)
	return strings.TrimSpace(out)
}

func givenBack(s *scene) {
	t := s.t
	stopA := start(t, long(s.lease(t, s.cluster.Config, "a")))
	s.waitFor(t, "a")
	stopB := start(t, long(s.lease(t, s.cluster.Config, "b")))
	time.Sleep(5 * time.Second)
	require.NoError(t, stopA())
	s.waitFor(t, "a b")
	turns := s.turns(t)
	gap := turns[1].start.Sub(turns[0].stop)
	t.Logf("handover after a graceful stop: %v", gap)
	spec := s.kubectl(t, "get", "lease", s.name, "-o", "jsonpath={.spec.holderIdentity} {.spec.leaseDurationSeconds} {.spec.leaseTransitions}")
	require.Equal(t, "b 7200 1", spec)
	require.NoError(t, stopB())
	require.Empty(t, s.kubectl(t, "get", "lease", s.name, "-o", "jsonpath={.spec.holderIdentity}"))
}

func stolen(s *scene) {
	t := s.t
	lease := s.lease(t, s.cluster.Config, "a")
	causes := make(chan error, 10)
	lease.Starter = reconcile.StarterFunc(func(ctx context.Context) error {
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return nil
	})
	held := make(chan bool, 10)
	lease.OnChange = func(state kube.LeaseState) { held <- state.Held }
	stop := start(t, lease)
	require.True(t, <-held)
	s.kubectl(t, "patch", "lease", s.name, "--type=merge", "-p", `{"spec":{"holderIdentity":"thief"}}`)
	at := time.Now()
	require.ErrorIs(t, <-causes, kube.ErrLeaseLost)
	t.Logf("a stolen lease stopped the work after %v", time.Since(at))
	require.Less(t, time.Since(at), deadline)
	require.False(t, <-held)
	require.True(t, <-held, "taken back once the thief's record has run out")
	require.GreaterOrEqual(t, time.Since(at), duration-period)
	require.NoError(t, stop())
}

// failing is a transport whose requests fail on demand.
type failing struct {
	http.RoundTripper

	down atomic.Bool
}

func (f *failing) RoundTrip(request *http.Request) (*http.Response, error) {
	if f.down.Load() {
		return nil, errNetwork
	}
	return f.RoundTripper.RoundTrip(request)
}

func unreachable(s *scene) {
	t := s.t
	network := &failing{}
	config := rest.CopyConfig(s.cluster.Config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		network.RoundTripper = next
		return network
	})
	stopA := start(t, s.lease(t, config, "a"))
	s.waitFor(t, "a")
	stopB := start(t, s.lease(t, s.cluster.Config, "b"))
	network.down.Store(true)
	time.Sleep(deadline / 2)
	network.down.Store(false)
	time.Sleep(deadline)
	require.Equal(t, "a", s.order(t), "a short outage is ridden out")

	network.down.Store(true)
	s.waitFor(t, "a b")
	turns := s.turns(t)
	t.Logf("handover after an outage of one: %v", turns[1].start.Sub(turns[0].stop))
	require.Positive(t, turns[1].start.Sub(turns[0].stop))
	require.NoError(t, stopB())
	network.down.Store(false)
	s.waitFor(t, "a b a")
	require.NoError(t, stopA())
}

func deleted(s *scene) {
	t := s.t
	stopA := start(t, s.lease(t, s.cluster.Config, "a"))
	s.waitFor(t, "a")
	stopB := start(t, s.lease(t, s.cluster.Config, "b"))
	time.Sleep(time.Second)
	for range 3 {
		s.kubectl(t, "delete", "lease", s.name)
		time.Sleep(time.Second)
	}
	require.Equal(t, "a", s.kubectl(t, "get", "lease", s.name, "-o", "jsonpath={.spec.holderIdentity}"))
	require.Equal(t, "a", s.order(t))
	require.NoError(t, stopB())
	require.NoError(t, stopA())
}

// process runs an elector in a process of its own.
func (s *scene) process(t *testing.T, who string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestElectorProcess$")
	cmd.Env = append(
		os.Environ(),
		"ELECTOR="+strings.Join(
			[]string{s.cluster.Config.Host, s.cluster.Config.BearerToken, s.cluster.Config.CAFile, s.name, s.file, who},
			"\t",
		),
	)
	_, err := cmd.StdinPipe() // it ends when this process does
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

// TestElectorProcess is the program of the processes, and no test.
func TestElectorProcess(t *testing.T) {
	args := strings.Split(os.Getenv("ELECTOR"), "\t")
	if len(args) != 6 {
		t.Skip("is the program of other tests")
	}
	config := &rest.Config{Host: args[0], BearerToken: args[1], TLSClientConfig: rest.TLSClientConfig{CAFile: args[2]}, QPS: -1}
	s := &scene{name: args[3], file: args[4]}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	require.NoError(t, s.lease(t, config, args[5]).Start(ctx))
}

func paused(s *scene) {
	t := s.t
	a := s.process(t, "a")
	s.waitFor(t, "a")
	stopB := start(t, s.lease(t, s.cluster.Config, "b"))
	time.Sleep(time.Second)
	require.NoError(t, a.Process.Signal(syscall.SIGSTOP))
	s.waitFor(t, "a b")
	require.NoError(t, a.Process.Signal(syscall.SIGCONT))
	time.Sleep(2 * time.Second)
	require.Equal(t, "a b", s.order(t), "the process that was paused did not go on")
	require.NoError(t, stopB())
	s.waitFor(t, "a b a")
}

// killedAndPaused has three processes compete, kills and pauses the one that
// works, and checks whether any two ever worked at the same time.
func killedAndPaused(s *scene) {
	t := s.t
	processes := map[string]*exec.Cmd{}
	for i := range 3 {
		who := fmt.Sprint("p", i)
		processes[who] = s.process(t, who)
	}
	var worst time.Duration
	for round := range 8 {
		await.Eventually(t, "len(s.turns(t)) > round", func() bool { return len(s.turns(t)) > round })
		turns := s.turns(t)
		who := turns[len(turns)-1].who
		time.Sleep(500 * time.Millisecond)
		at := time.Now()
		if round%2 == 0 {
			require.NoError(t, processes[who].Process.Kill())
		} else {
			require.NoError(t, processes[who].Process.Signal(syscall.SIGSTOP))
		}
		before := len(s.turns(t))
		await.Eventually(t, "len(s.turns(t)) > before", func() bool { return len(s.turns(t)) > before })
		worst = max(worst, time.Since(at))
		if round%2 == 0 {
			processes[who] = s.process(t, who)
		} else {
			require.NoError(t, processes[who].Process.Signal(syscall.SIGCONT))
		}
	}
	turns := s.turns(t)
	require.GreaterOrEqual(t, len(turns), 9, "each disturbance moved the work: %s", s.order(t))
	least := duration
	for i := range turns[1:] {
		least = min(least, turns[i+1].start.Sub(turns[i].stop))
	}
	t.Logf("%d turns, shortest gap %v, longest handover after a kill or pause %v", len(turns), least, worst)
	require.GreaterOrEqual(t, least, duration-deadline)
}

func leastAccess(s *scene) {
	t := s.t
	s.kubectl(t, "create", "serviceaccount", "elector")
	s.kubectl(t, "create", "role", "elector", "--verb=get,create,update", "--resource=leases.coordination.k8s.io")
	s.kubectl(t, "create", "rolebinding", "elector", "--role=elector", "--serviceaccount=default:elector")
	config, _, err := s.cluster.ServiceAccount(t.Context(), "default", "elector")
	require.NoError(t, err)
	stopA := start(t, long(s.lease(t, config, "a")))
	s.waitFor(t, "a")
	stopB := start(t, long(s.lease(t, config, "b")))
	time.Sleep(time.Second)
	require.NoError(t, stopA())
	s.waitFor(t, "a b")
	turns := s.turns(t)
	t.Logf("handover without watch: %v", turns[1].start.Sub(turns[0].stop))
	require.NoError(t, stopB())
}
