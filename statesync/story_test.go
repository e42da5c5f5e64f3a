package statesync_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/test/storytest"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

// TestStoriesOfAReplica runs testdata/*.txtar in virtual time: a log, its server, a link,
// and a Replica. Each command prints what happened by the time that all is at rest. The
// commands:
//
//	commit KEY=VALUE... KEY-...  one commit of the log
//	start                        start a Replica, which remembers nothing
//	stop                         end it
//	cut                          end its stream without a word
//	drop                         lose the next frame with items
//	refuse ERROR                 unknown-scope, unauthenticated: the answer from the next stream on
//	allow                        no more
//	fail KEY...                  handling these keys fails from now on
//	cure KEY...                  no more
//	restore KEY=VALUE...         put another log in its place, which has that alone
//	forget VERSION               drop tombstones up to it
//	list                         have the Replica list again
//	wait DURATION                let time pass
//	state                        how far the Replica is
func TestStoriesOfAReplica(t *testing.T) {
	t.Parallel()
	storytest.Each(t, "testdata/*.txtar", func(t *testing.T, s *storytest.Story) { //nolint:thelper // a test
		synctest.Test(t, func(t *testing.T) {
			r := &replicaStory{t: t, failing: map[string]bool{}}
			r.serve()
			defer r.end()
			s.Play(t, r.run)
		})
	})
}

// replicaStory is a running script.
type replicaStory struct {
	t       *testing.T
	log     *statesync.Memory
	stopLog func()
	replica *statesync.Replica
	stop    func()

	mu      sync.Mutex
	server  *statesync.Server
	happens []string
	failing map[string]bool
	refused error
	drops   int
	cut     context.CancelCauseFunc
}

// serve makes an empty log with its server.
func (r *replicaStory) serve() {
	r.log = &statesync.Memory{}
	require.NoError(r.t, r.log.AddScope("eu"))
	server := &statesync.Server{Log: r.log}
	r.mu.Lock()
	r.server = server
	r.mu.Unlock()
	r.stopLog = r.background(server.Start)
}

// background runs start and returns what ends it.
func (r *replicaStory) background(start func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(r.t.Context())
	done := make(chan error, 1)
	go func() { done <- start(ctx) }()
	return sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			r.t.Error(err)
		}
	})
}

func (r *replicaStory) end() {
	if r.stop != nil {
		r.stop()
	}
	r.stopLog()
}

// note adds a line to what happened, once for each row of the same.
func (r *replicaStory) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if line := fmt.Sprintf(format, args...); len(r.happens) == 0 || r.happens[len(r.happens)-1] != line {
		r.happens = append(r.happens, line)
	}
}

// proven adds a line ahead of what was handled just now: items are handled while the
// proof is told, by other goroutines.
func (r *replicaStory) proven(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := len(r.happens)
	for i > 0 && strings.HasSuffix(r.happens[i-1], ": handled") {
		i--
	}
	r.happens = slices.Insert(r.happens, i, line)
}

// Watch implements statesync.Source: it is the link.
func (r *replicaStory) Watch(ctx context.Context, w statesync.Watch, receive func(statesync.Frame) error) error {
	ctx, cut := context.WithCancelCause(ctx)
	defer cut(nil)
	r.mu.Lock()
	refused, server := r.refused, r.server
	r.cut = cut
	r.mu.Unlock()
	if refused != nil {
		return refused
	}
	err := server.Watch(ctx, w, func(f statesync.Frame) error {
		r.mu.Lock()
		lost := len(f.Items) > 0 && r.drops > 0
		if lost {
			r.drops--
		}
		r.mu.Unlock()
		if lost {
			return nil
		}
		return receive(f)
	})
	if cause := context.Cause(ctx); errors.Is(cause, io.ErrUnexpectedEOF) {
		return cause
	}
	return err
}

func (r *replicaStory) handle(_ context.Context, i statesync.Item) error {
	r.mu.Lock()
	fails := r.failing[i.ID]
	r.mu.Unlock()
	text := fmt.Sprintf("%s = %s", i.ID, i.Value)
	if i.Deleted {
		text = i.ID + " is deleted"
	}
	if fails {
		r.note("%s: failed", text)
		return errors.New("not now")
	}
	r.note("%s: handled", text)
	return nil
}

func (r *replicaStory) start() {
	r.replica = &statesync.Replica{
		Source: r, Scope: "eu", Workers: 1, Handle: r.handle, Retry: reconcile.Backoff{Max: time.Minute},
		OnSynced: func(s statesync.Snapshot) { r.proven("the list is proven: " + strings.Join(names(s), " ")) },
		OnStream: func(s statesync.Stream) {
			if s.Err != nil && !errors.Is(s.Err, context.Canceled) {
				r.note("the stream ended: %v", s.Err)
			}
		},
	}
	r.stop = r.background(r.replica.Start)
}

func (r *replicaStory) run(line string) string {
	words := strings.Fields(line)
	command, args := words[0], words[1:]
	switch command {
	case "commit":
		require.NoError(r.t, r.log.Commit(changes(args)...))
	case "start":
		r.start()
	case "stop":
		r.stop()
	case "restore":
		r.stopLog()
		r.serve()
		require.NoError(r.t, r.log.Commit(changes(args)...))
	case "forget":
		version, err := strconv.ParseUint(args[0], 10, 64)
		require.NoError(r.t, errors.Join(err, r.log.Forget("eu", version)))
	case "list":
		r.replica.List()
	case "wait":
		d, err := time.ParseDuration(args[0])
		require.NoError(r.t, err)
		time.Sleep(d)
	case "state":
		return r.state()
	default:
		r.disturb(command, args)
	}
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	text := strings.Join(r.happens, "\n")
	r.happens = nil
	return epochs.ReplaceAllString(text, "EPOCH")
}

// epochs are random.
var epochs = regexp.MustCompile(`\b[A-Z2-7]{26}\b`)

// disturb changes how the link and the handler behave.
func (r *replicaStory) disturb(command string, args []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch command {
	case "cut":
		r.cut(io.ErrUnexpectedEOF)
	case "drop":
		r.drops++
	case "refuse":
		r.refused = map[string]error{"unknown-scope": statesync.ErrUnknownScope, "unauthenticated": statesync.ErrUnauthenticated}[args[0]]
		require.Error(r.t, r.refused)
	case "allow":
		r.refused = nil
	case "fail", "cure":
		for _, key := range args {
			r.failing[key] = command == "fail"
		}
	default:
		require.Fail(r.t, "no such command", command)
	}
}

func (r *replicaStory) state() string {
	snapshot, complete := r.replica.Complete()
	status := r.replica.Status()
	word := map[bool]string{true: "complete", false: "not complete"}[complete]
	return fmt.Sprintf(
		"%s; has %s; received up to %d, acknowledged up to %d",
		word,
		strings.Join(names(snapshot), " "),
		status.Cursor.Version,
		status.Applied.Version,
	)
}

// changes reads KEY=VALUE and KEY-.
func changes(words []string) (all []statesync.Change) {
	for _, word := range words {
		id, value, put := strings.Cut(word, "=")
		c := statesync.Change{Scope: "eu", Key: statesync.Key{Collection: "c", ID: strings.TrimSuffix(id, "-")}, Deleted: !put}
		if put {
			c.Value = []byte(strconv.Quote(value))
		}
		all = append(all, c)
	}
	return all
}
