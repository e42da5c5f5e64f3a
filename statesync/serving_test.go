package statesync_test

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/statesync"
)

// counted counts what a log is asked.
type counted struct {
	statesync.Log
	reads, waits, marks atomic.Int64
	down                atomic.Bool
}

func (c *counted) Read(ctx context.Context, scope string, after uint64, limit int) (statesync.Page, error) {
	c.reads.Add(1)
	if c.down.Load() {
		return statesync.Page{}, errors.New("no connection")
	}
	return c.Log.Read(ctx, scope, after, limit)
}

func (c *counted) Marked(ctx context.Context, scope string, mark statesync.Mark) (bool, error) {
	c.marks.Add(1)
	marks, ok := c.Log.(statesync.Marks)
	if !ok {
		return false, errors.ErrUnsupported
	}
	return marks.Marked(ctx, scope, mark)
}

func (c *counted) Wait(ctx context.Context, scope string, at statesync.Position) error {
	c.waits.Add(1)
	err := c.Log.Wait(ctx, scope, at)
	c.waits.Add(-1)
	return err
}

// virtual runs test in virtual time, with a server of a log in memory.
func virtual(t *testing.T, server *statesync.Server, test func(t *testing.T, ctx context.Context, log *statesync.Memory, counts *counted)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		log := &statesync.Memory{}
		require.NoError(t, log.AddScope("eu"))
		counts := &counted{Log: log}
		server.Log = counts
		done := make(chan error, 1)
		go func() { done <- server.Start(ctx) }()
		// Also after a test that failed: nothing may outlive it.
		defer func() {
			cancel()
			require.NoError(t, <-done)
		}()
		test(t, ctx, log, counts)
	})
}

// open opens a stream and returns its frames and its end.
func open(ctx context.Context, s statesync.Source, w statesync.Watch) (<-chan statesync.Frame, <-chan error) {
	frames, end := make(chan statesync.Frame, 1000), make(chan error, 1)
	go func() {
		end <- s.Watch(ctx, w, func(f statesync.Frame) error { frames <- f; return nil })
		close(frames)
	}()
	return frames, end
}

var eu = statesync.Watch{Scope: "eu"}

func TestThousandStreamsAreOneReaderOfTheLog(t *testing.T) {
	server := &statesync.Server{}
	virtual(t, server, func(t *testing.T, ctx context.Context, log *statesync.Memory, counts *counted) { //nolint:thelper // a test
		ctx, cancel := context.WithCancel(ctx)
		ends := make([]<-chan error, 1000)
		for n := range ends {
			_, ends[n] = open(ctx, server, eu)
		}
		synctest.Wait()
		require.Equal(t, int64(1), counts.reads.Load())
		for n := range 10 {
			require.NoError(t, log.Commit(put("a", n)))
			synctest.Wait()
		}
		require.Equal(t, int64(11), counts.reads.Load())
		time.Sleep(time.Hour / 2)
		require.Equal(t, int64(11), counts.reads.Load(), "idle streams cost queries")
		cancel()
		for _, end := range ends {
			<-end
		}
		// The scope is forgotten a minute after the last stream, not before.
		synctest.Wait()
		require.Equal(t, int64(1), counts.waits.Load())
		time.Sleep(61 * time.Second)
		synctest.Wait()
		require.Zero(t, counts.waits.Load())
	})
}

func TestAnIdleStreamHasAHeartbeatAndGetsOld(t *testing.T) {
	server := &statesync.Server{}
	virtual(t, server, func(t *testing.T, ctx context.Context, _ *statesync.Memory, _ *counted) { //nolint:thelper // a test
		began := time.Now()
		frames, end := open(ctx, server, eu)
		var last time.Time
		kinds := map[statesync.FrameType]int{}
		for f := range frames {
			if kinds[f.Type]++; f.Type == statesync.FrameBookmark {
				require.LessOrEqual(t, time.Since(last), 5*time.Second)
			}
			last = time.Now()
		}
		age := time.Since(began)
		require.Equal(t, 1, kinds[statesync.FrameHeader])
		require.Equal(t, 1, kinds[statesync.FrameSynced])
		require.Equal(t, int((age-time.Nanosecond)/(5*time.Second)), kinds[statesync.FrameBookmark])
		require.True(t, 24*time.Minute <= age && age <= 36*time.Minute, age)
		var ended *statesync.EndError
		require.ErrorAs(t, <-end, &ended)
		require.Equal(t, statesync.EndOfAge, ended.Reason)
	})
}

func TestASlowReaderGetsTheNewestState(t *testing.T) {
	server := &statesync.Server{}
	virtual(t, server, func(t *testing.T, ctx context.Context, log *statesync.Memory, _ *counted) { //nolint:thelper // a test
		ctx, cancel := context.WithCancel(ctx)
		var values []string
		resume := make(chan struct{})
		end := make(chan error, 1)
		go func() {
			end <- server.Watch(ctx, eu, func(f statesync.Frame) error {
				for _, i := range f.Items {
					values = append(values, string(i.Value))
				}
				if f.Type == statesync.FrameSynced {
					<-resume
				}
				return nil
			})
		}()
		synctest.Wait()
		for n := range 1000 {
			require.NoError(t, log.Commit(put("a", n)))
		}
		synctest.Wait()
		close(resume)
		synctest.Wait()
		cancel()
		<-end
		require.Equal(t, []string{"999"}, values)
	})
}

func TestALogThatCannotBeReadEndsStreamsAndComesBack(t *testing.T) {
	server := &statesync.Server{}
	virtual(t, server, func(t *testing.T, ctx context.Context, log *statesync.Memory, counts *counted) { //nolint:thelper // a test
		_, end := open(ctx, server, eu)
		synctest.Wait()
		counts.down.Store(true)
		require.NoError(t, log.Commit(put("a", 1)))
		var ended *statesync.EndError
		require.ErrorAs(t, <-end, &ended)
		require.Equal(t, statesync.EndOfLog, ended.Reason)
		counts.down.Store(false)
		time.Sleep(2 * time.Minute)
		ctx, cancel := context.WithCancel(ctx)
		frames, end := open(ctx, server, eu)
		synctest.Wait()
		cancel()
		<-end
		var items int
		for f := range frames {
			items += len(f.Items)
		}
		require.Equal(t, 1, items)
	})
}

func TestALogThatLostItsRowsIsNotBelieved(t *testing.T) {
	server := &statesync.Server{}
	virtual(t, server, func(t *testing.T, ctx context.Context, log *statesync.Memory, counts *counted) { //nolint:thelper // a test
		require.NoError(t, log.Commit(put("a", 1)))
		counts.Log = rowless{log}
		frames, end := open(ctx, server, eu)
		var ended *statesync.EndError
		require.ErrorAs(t, <-end, &ended)
		require.Empty(t, frames)
		require.ErrorContains(t, ended, "head is 1, but nothing follows version 0")
	})
}

// rowless is a log whose query finds no rows.
type rowless struct{ statesync.Log }

func (l rowless) Read(ctx context.Context, scope string, after uint64, limit int) (statesync.Page, error) {
	page, err := l.Log.Read(ctx, scope, after, limit)
	page.Items, page.More = nil, false
	return page, err
}

func TestAServerThatEndsSaysSo(t *testing.T) {
	log := &statesync.Memory{}
	require.NoError(t, log.AddScope("eu"))
	server := &statesync.Server{Log: log}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- server.Start(ctx) }()
	frames, end := open(t.Context(), server, eu)
	<-frames
	cancel()
	var ended *statesync.EndError
	require.ErrorAs(t, <-end, &ended)
	require.Equal(t, statesync.EndOfServer, ended.Reason)
	require.NoError(t, <-done)
	require.ErrorAs(t, server.Watch(t.Context(), eu, nil), &ended, "after the end of Start")
}

func TestWhatCannotBeIsNamedBeforeAnythingRuns(t *testing.T) {
	require.ErrorContains(
		t,
		(&statesync.Server{Heartbeat: -1}).Start(t.Context()),
		"statesync: Server.Log: is required\nstatesync: Server.Heartbeat: is -1ns, must not be negative",
	)
	require.ErrorContains(t, (&statesync.Replica{Workers: -1}).Start(t.Context()), "statesync: Replica.Source: is required")

	const must = ", must be an http or https URL without query and fragment, such as https://control.example/sync"
	handle := func(context.Context, statesync.Item) error { return nil }
	for url, want := range map[string]string{
		"":                           "is required",
		"foo bar":                    `is "foo%20bar"`,
		"control.example/sync":       `is "control.example/sync"`,
		"https:///sync":              `is "https:///sync"`,
		"ftp://u:pw@example.com":     `is "ftp://u:xxxxx@example.com"`,
		"https://example.com?a=b":    `is "https://example.com?a=b"`,
		"https://u:pw@example.com/%": "cannot be read",
	} {
		client := &statesync.Client{URL: url}
		require.EqualError(t, (&statesync.Replica{Source: client, Scope: "eu", Handle: handle}).Start(t.Context()),
			"statesync: Client.URL: "+want+must)
		err := client.Watch(t.Context(), statesync.Watch{Scope: "eu"}, func(statesync.Frame) error { return nil })
		require.EqualError(t, err, "statesync: Client.URL: "+want+must)
	}
}

func put(id string, n int) statesync.Change {
	return statesync.Change{Scope: "eu", Key: statesync.Key{Collection: "things", ID: id}, Value: json.RawMessage(strconv.Itoa(n))}
}

func drop(id string) statesync.Change {
	return statesync.Change{Scope: "eu", Key: statesync.Key{Collection: "things", ID: id}, Deleted: true}
}
