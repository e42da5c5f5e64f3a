package applytest_test

import (
	"encoding/binary"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
)

// fed is a server whose watches are written by the test.
type fed struct {
	contentType string
	watches     []*io.PipeWriter
}

func (f *fed) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {f.contentType}}, Body: http.NoBody}
	if r.URL.Query().Get("watch") != "" {
		var writer *io.PipeWriter
		answer.Body, writer = io.Pipe()
		f.watches = append(f.watches, writer)
	}
	return answer, nil
}

// program is a client that collects what its watch delivers.
type program struct {
	net    applytest.Transport
	server fed
	got    *strings.Builder
	ended  error
}

// watch opens one, and returns a function that has the server send events.
func (p *program) watch(t *testing.T) (send func(events ...string)) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://server/api/v1/nodes?watch=true", http.NoBody)
	require.NoError(t, err)
	answer, err := p.net.Wrap(&p.server).RoundTrip(r)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, answer.StatusCode)
	p.got = &strings.Builder{}
	t.Cleanup(func() { _ = answer.Body.Close() })
	go func(into *strings.Builder) { _, p.ended = io.Copy(into, answer.Body) }(p.got)
	writer := p.server.watches[len(p.server.watches)-1]
	return func(events ...string) {
		for _, e := range events {
			_, err := io.WriteString(writer, e)
			require.NoError(t, err)
		}
		synctest.Wait()
	}
}

// delivered returns what has come through since the last call.
func (p *program) delivered() string {
	synctest.Wait()
	defer p.got.Reset()
	return p.got.String()
}

func TestAFrozenWatchKeepsItsOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var p program
		send := p.watch(t)
		send("1\n", "2", "\n3\n")
		require.Equal(t, "1\n2\n3\n", p.delivered(), "an event may come in pieces")
		p.net.Freeze()
		send("4\n", "5\n")
		require.Empty(t, p.delivered())
		p.net.Replay()
		require.Equal(t, "1\n2\n3\n", p.delivered(), "events held back were not delivered yet")
		p.net.Replay()
		require.Equal(t, "1\n2\n3\n", p.delivered(), "what comes again is no more than before")
		p.net.Thaw()
		require.Equal(t, "4\n5\n", p.delivered())
		p.net.Thaw()
		require.Empty(t, p.delivered(), "it is let go once")
		send("6\n")
		p.net.Replay()
		require.Equal(t, "6\n1\n2\n3\n4\n5\n6\n", p.delivered())
	})
}

func TestAWatchThatBeginsWhileFrozenIsFrozen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var p program
		p.net.Freeze()
		send := p.watch(t)
		send("1\n")
		require.Empty(t, p.delivered())
		p.net.Thaw()
		require.Equal(t, "1\n", p.delivered())
	})
}

func TestACutWatchLosesWhatWasHeldBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var p program
		send := p.watch(t)
		send("1\n")
		p.net.Freeze()
		send("2\n")
		p.net.Cut()
		p.net.Thaw()
		require.Equal(t, "1\n", p.delivered())
		require.ErrorIs(t, p.ended, io.ErrUnexpectedEOF)
	})
}

func TestAnExpiredWatchIsRefusedOnceAndNothingElseIs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var p program
		p.watch(t)
		p.net.Expire()
		synctest.Wait()
		require.ErrorIs(t, p.ended, io.ErrUnexpectedEOF)
		status := func(path string) int {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://server/api/v1/nodes"+path, http.NoBody)
			require.NoError(t, err)
			answer, err := p.net.Wrap(&p.server).RoundTrip(r)
			require.NoError(t, err)
			require.NoError(t, answer.Body.Close())
			return answer.StatusCode
		}
		require.Equal(t, []int{200, 410, 200}, []int{status(""), status("?watch=true"), status("?watch=true")})
	})
}

func TestACrashEndsTheWatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := program{net: applytest.Transport{Fault: func(r applytest.Request) applytest.Fault {
			return applytest.Fault{Crash: r.Verb == "delete"}
		}}}
		p.watch(t)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, "http://server/api/v1/nodes/a", http.NoBody)
		require.NoError(t, err)
		_, err = p.net.Wrap(&p.server).RoundTrip(r) //nolint:bodyclose // there is no answer
		require.ErrorIs(t, err, applytest.ErrCrashed)
		synctest.Wait()
		require.ErrorIs(t, p.ended, io.ErrUnexpectedEOF)
	})
}

func TestAWatchInProtobufIsTakenApart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		frame := func(s string) string { return string(binary.BigEndian.AppendUint32(nil, uint32(len(s)))) + s }
		p := program{server: fed{contentType: "application/vnd.kubernetes.protobuf;stream=watch"}}
		send := p.watch(t)
		send(frame("a\nb"), frame("c")[:3], frame("c")[3:4])
		require.Equal(t, frame("a\nb"), p.delivered(), "the second is not whole yet")
		send(frame("c")[4:])
		require.Equal(t, frame("c"), p.delivered())
	})
}

func TestAWatchThatTheServerEndsDeliversWhatCameBefore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var p program
		send := p.watch(t)
		p.net.Freeze()
		send("1\n")
		require.NoError(t, p.server.watches[0].Close())
		require.Empty(t, p.delivered())
		require.NoError(t, p.ended, "it still has something to say")
		p.net.Thaw()
		require.Equal(t, "1\n", p.delivered())
	})
}
