package agent_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// TestANewerControlPlaneIsUnderstood has each message of it say more than this agent has heard of.
func TestANewerControlPlaneIsUnderstood(t *testing.T) {
	t.Parallel()
	var messages atomic.Int64
	simtest.Histories(t, simulated(t, func(p *simulatedRegion, s *simtest.Scenario) {
		lifeOfADeployment(p, s)
		p.before = func(next http.RoundTripper) http.RoundTripper { return newer{next, &messages} }
		s.Histories, s.Disturbances, s.Rest = 1, []applytest.Disturbance{}, 20*time.Minute
	}))
	require.Greater(t, messages.Load(), int64(100))
}

// newer is a transport that adds fields to all messages.
type newer struct {
	next     http.RoundTripper
	messages *atomic.Int64
}

// RoundTrip implements http.RoundTripper.
func (n newer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for _, each := range []string{"Accept-Encoding", "Connect-Accept-Encoding"} {
		r.Header.Del(each) // compressed, a message could not be added to
	}
	answer, err := n.next.RoundTrip(r)
	if err != nil || answer.StatusCode != http.StatusOK {
		return answer, err
	}
	if strings.HasPrefix(answer.Header.Get("Content-Type"), "application/connect+") {
		answer.Body = &newerStream{ReadCloser: answer.Body, messages: n.messages}
		return answer, nil
	}
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, err
	}
	body = n.add(body)
	answer.Body, answer.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	answer.Header.Set("Content-Length", strconv.Itoa(len(body)))
	return answer, nil
}

// add adds a number, a text and an empty message.
func (n newer) add(message []byte) []byte {
	n.messages.Add(1)
	message = protowire.AppendVarint(protowire.AppendTag(message, 1000, protowire.VarintType), 7)
	message = protowire.AppendString(protowire.AppendTag(message, 1001, protowire.BytesType), "later")
	return protowire.AppendBytes(protowire.AppendTag(message, 1002, protowire.BytesType), nil)
}

// newerStream is the body of a stream, with more in each message.
type newerStream struct {
	io.ReadCloser
	messages *atomic.Int64
	ready    []byte
}

// Read implements io.Reader.
func (s *newerStream) Read(p []byte) (int, error) {
	if len(s.ready) == 0 {
		const flags, envelope = 1, 5
		head := make([]byte, envelope)
		if _, err := io.ReadFull(s.ReadCloser, head); err != nil {
			return 0, err
		}
		message := make([]byte, binary.BigEndian.Uint32(head[flags:]))
		if _, err := io.ReadFull(s.ReadCloser, message); err != nil {
			return 0, err
		}
		if head[0] == 0 { // not the end, which is JSON
			message = newer{messages: s.messages}.add(message)
			binary.BigEndian.PutUint32(head[flags:], uint32(len(message))) //nolint:gosec // it is small
		}
		s.ready = slices.Concat(head, message)
	}
	n := copy(p, s.ready)
	s.ready = s.ready[n:]
	return n, nil
}
