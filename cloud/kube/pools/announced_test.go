package pools //nolint:testpackage // as the others

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cloud"
)

// mailbox is a queue whose messages come again every 30 s until they are deleted.
type mailbox struct {
	mu       sync.Mutex
	messages []cloud.Message
	fails    int // so many calls
	keeps    bool
	receives []time.Time
	deleted  []string
}

func (q *mailbox) Receive(ctx context.Context) ([]cloud.Message, error) {
	q.mu.Lock()
	q.receives = append(q.receives, time.Now())
	fails, empty := q.fails > 0, len(q.messages) == 0
	q.fails = max(0, q.fails-1)
	q.mu.Unlock()
	if fails {
		return nil, errors.New("denied")
	}
	if empty {
		return nil, nil
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(30 * time.Second):
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.messages), nil
}

// gone are the receipts of what was deleted.
func (q *mailbox) gone() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.deleted)
}

// clear has another process read all messages.
func (q *mailbox) clear() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.messages = nil
}

func (q *mailbox) Delete(_ context.Context, messages []cloud.Message) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.keeps {
		return errors.New("cannot be deleted")
	}
	for _, m := range messages {
		q.deleted = append(q.deleted, m.Receipt)
		for i := range q.messages {
			if q.messages[i].Receipt == m.Receipt {
				q.messages = append(q.messages[:i:i], q.messages[i+1:]...)
				break
			}
		}
	}
	return nil
}

// announce runs an Announced on the Node of machine() for a time, and does what is planned.
func announce(t *testing.T, q *mailbox, plan func(a *Announced, saw func(state string, started time.Time))) (looks []string, logs string) {
	t.Helper()
	var text bytes.Buffer // both are read at the end
	synctest.Test(t, func(t *testing.T) {
		version := 10
		a := &Announced{
			Queue: q, Cluster: newCluster(), Look: func(pool string) { looks = append(looks, pool) },
			Logger: slog.New(slog.NewTextHandler(&text, nil)),
		}
		saw := func(state string, at time.Time) {
			n := machine()
			version++
			n.ResourceVersion, n.Labels[domain.StateLabel()] = strconv.Itoa(version), state
			n.Annotations[string(domain)+"/last-started"] = at.Format(time.RFC3339)
			a.Cluster.SawNode(n)
		}
		saw("running", started)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- a.Start(ctx) }()
		plan(a, saw)
		stop()
		require.NoError(t, <-done)
	})
	return looks, text.String()
}

func notice(receipt string, ends bool) cloud.Message {
	return cloud.Message{Receipt: receipt, Notices: []cloud.Notice{{Machine: "i-1", Reason: "it goes", Ends: ends}}}
}

func TestAMessageIsDeletedOnceItsMachineIsDrained(t *testing.T) {
	t.Parallel()
	q := &mailbox{messages: []cloud.Message{notice("a", true)}}
	looks, logs := announce(t, q, func(a *Announced, saw func(string, time.Time)) {
		require.Empty(t, a.Notices())
		time.Sleep(95 * time.Second)
		require.Equal(t, map[string]cloud.Notice{"i-1": {Machine: "i-1", Reason: "it goes", Ends: true}}, a.Notices())
		require.Empty(t, q.gone(), "it is not drained yet")
		saw("terminating", started)
		time.Sleep(30 * time.Second)
		require.Equal(t, []string{"a"}, q.gone())
		require.Empty(t, a.Notices())
	})
	require.Equal(t, []string{"web", "web", "web"}, looks)
	require.Equal(t, 1, strings.Count(logs, "notice of the cloud"), logs)
}

func TestAMachineThatStopsOnceHasDoneWhatIsAnnounced(t *testing.T) {
	t.Parallel()
	q := &mailbox{messages: []cloud.Message{notice("a", false)}}
	announce(t, q, func(a *Announced, saw func(string, time.Time)) {
		time.Sleep(31 * time.Second)
		require.Len(t, a.Notices(), 1)
		saw("standby", started)
		require.Empty(t, a.Notices())
		saw("running", started.Add(time.Hour)) // before the message comes again
		require.Empty(t, a.Notices(), "it is not stopped twice")
		time.Sleep(30 * time.Second)
		require.Equal(t, []string{"a"}, q.gone())
	})
}

func TestAMachineOnStandbyThatEndsIsAnnounced(t *testing.T) {
	t.Parallel()
	q := &mailbox{messages: []cloud.Message{notice("stops", false), notice("ends", true)}}
	announce(t, q, func(a *Announced, saw func(string, time.Time)) {
		saw("standby", started)
		time.Sleep(31 * time.Second)
		require.Len(t, a.Notices(), 1)
		require.Equal(t, []string{"stops"}, q.gone())
		a.Cluster.DropNode("node", "")
		time.Sleep(30 * time.Second)
		require.Equal(t, []string{"stops", "ends"}, q.gone())
	})
}

func TestMessagesOfOthersAreDeleted(t *testing.T) {
	t.Parallel()
	q := &mailbox{messages: []cloud.Message{
		{Receipt: "other", Notices: []cloud.Notice{{Machine: "i-9", Reason: "it goes", Ends: true}}},
		{Receipt: "odd", Err: errors.New("no event")},
		{Receipt: "nothing"},
		{Receipt: "both", Notices: []cloud.Notice{{Machine: "i-9"}, {Machine: "i-1", Reason: "it goes"}}},
	}}
	looks, logs := announce(t, q, func(a *Announced, _ func(string, time.Time)) {
		time.Sleep(31 * time.Second)
		require.Equal(t, []string{"other", "odd", "nothing"}, q.gone())
		require.Len(t, a.Notices(), 1)
	})
	require.Equal(t, []string{"web"}, looks)
	require.Contains(t, logs, "no event")
}

func TestANoticeThatDoesNotComeAgainIsForgotten(t *testing.T) {
	t.Parallel()
	q := &mailbox{messages: []cloud.Message{notice("a", true)}}
	announce(t, q, func(a *Announced, _ func(string, time.Time)) {
		time.Sleep(31 * time.Second)
		q.clear()
		time.Sleep(40 * time.Second)
		require.Len(t, a.Notices(), 1)
		time.Sleep(10 * time.Minute)
		require.Empty(t, a.Notices())
	})
}

func TestAQueueThatFailsIsAskedLessAndLess(t *testing.T) {
	t.Parallel()
	q := &mailbox{fails: 8, messages: []cloud.Message{notice("a", true)}}
	_, logs := announce(t, q, func(a *Announced, _ func(string, time.Time)) {
		time.Sleep(10 * time.Minute)
		require.Len(t, a.Notices(), 1)
	})
	require.Equal(t, 8, strings.Count(logs, "denied"))
	require.GreaterOrEqual(t, q.receives[7].Sub(q.receives[6]), 30*time.Second)
}

func TestAnEmptyQueueIsNotAskedWithoutPause(t *testing.T) {
	t.Parallel()
	q := &mailbox{}
	announce(t, q, func(*Announced, func(string, time.Time)) { time.Sleep(time.Minute) })
	require.LessOrEqual(t, len(q.receives), 61)
	require.GreaterOrEqual(t, len(q.receives), 59)
}

func TestAMachineThatEndsIsAnnouncedAlsoAfterARestart(t *testing.T) {
	t.Parallel()
	q := &mailbox{messages: []cloud.Message{notice("a", true)}}
	announce(t, q, func(a *Announced, saw func(string, time.Time)) {
		time.Sleep(31 * time.Second)
		saw("running", started.Add(time.Hour))
		require.Len(t, a.Notices(), 1)
		time.Sleep(10 * time.Minute)
		require.Len(t, a.Notices(), 1, "it comes again and again")
		require.Empty(t, q.gone())
	})
}

func TestALaterNoticeOfAMachineReplacesTheFirst(t *testing.T) {
	t.Parallel()
	q := &mailbox{messages: []cloud.Message{notice("a", false)}}
	announce(t, q, func(a *Announced, _ func(string, time.Time)) {
		time.Sleep(31 * time.Second)
		q.mu.Lock()
		q.messages = []cloud.Message{notice("b", true)}
		q.mu.Unlock()
		time.Sleep(31 * time.Second)
		require.True(t, a.Notices()["i-1"].Ends)
	})
}

func TestAMessageOfSeveralMachinesWaitsForEach(t *testing.T) {
	t.Parallel()
	q := &mailbox{messages: []cloud.Message{{Receipt: "m", Notices: []cloud.Notice{{Machine: "i-1", Reason: "it goes"}, {Machine: "i-9"}}}}}
	announce(t, q, func(a *Announced, _ func(string, time.Time)) {
		time.Sleep(31 * time.Second)
		require.Empty(t, q.gone())
		require.Len(t, a.Notices(), 1)
	})
}

func TestAMessageThatIsNotDeletedIsReported(t *testing.T) {
	t.Parallel()
	q := &mailbox{messages: []cloud.Message{{Receipt: "nothing"}}, keeps: true}
	_, logs := announce(t, q, func(*Announced, func(string, time.Time)) { time.Sleep(10 * time.Minute) })
	require.Contains(t, logs, "cannot be deleted")
	require.Less(t, len(q.receives), 15, "it is asked less and less")
}
