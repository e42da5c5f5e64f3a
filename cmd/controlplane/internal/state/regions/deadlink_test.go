package regions_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/regions"
	"github.com/seed-9e1ffd66/trueup/internal/serve"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
)

func TestAnAgentThatTakesNothingIsGivenUp(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		regions.SetPatience(w.service, 300*time.Millisecond)
		// More than the buffers of both sides.
		for n := range 60 {
			small := string(deployment(fmt.Sprintf("d-%d", n), "web:1"))
			spec := json.RawMessage(strings.TrimSuffix(small, "}") + `,"git_commit_message":"` + strings.Repeat("x", 200_000) + `"}`)
			_, err := w.store.PutDeployment(w.t.Context(), eu, fmt.Sprintf("d_%d", n), regions.Wanted{State: "running", Spec: spec})
			require.NoError(w.t, err)
		}
		await.Eventually(w.t, "w.at().Head == 60", func() bool { return w.at().Head == 60 })
		w.askSlowly(true)
		await.Eventually(w.t, `w.service.Streams("eu-1") == 1`, func() bool { return w.service.Streams("eu-1") == 1 })
		await.Eventually(w.t, `w.service.Streams("eu-1") == 0`, func() bool { return w.service.Streams("eu-1") == 0 })
	})
}

// askSlowly asks for a stream on a connection of its own, and reads nothing. Without sends it keeps the
// request itself for later.
func (w *world) askSlowly(sends bool) {
	w.t.Helper()
	conn, body := w.begin(w.tokens[eu], "")
	if sends {
		_, err := conn.Write(body)
		require.NoError(w.t, err)
	}
}

// begin sends the headers of a request for a stream on a connection of its own, and returns the body.
func (w *world) begin(token, header string) (conn net.Conn, body []byte) {
	w.t.Helper()
	u, err := url.Parse(w.url)
	require.NoError(w.t, err)
	conn, err = new(net.Dialer).DialContext(w.t.Context(), "tcp", u.Host)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = conn.Close() })
	tcp, ok := conn.(*net.TCPConn)
	require.True(w.t, ok)
	require.NoError(w.t, tcp.SetReadBuffer(4096))
	message, err := proto.Marshal(&ctrlv1.WatchDeploymentsRequest{Markers: true})
	require.NoError(w.t, err)
	body = envelope(len(message), message)
	_, err = fmt.Fprintf(
		conn,
		"POST %sWatchDeployments HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nX-Krane-Region: eu-1\r\nContent-Type: application/connect+proto\r\nConnect-Protocol-Version: 1\r\nContent-Length: %d\r\n%s\r\n",
		service,
		u.Host,
		token,
		len(body),
		header,
	)
	require.NoError(w.t, err)
	return conn, body
}

// TestAStreamIsAuthenticatedAndOpenedThroughTheDoor has a door that is full: one stream is at its token, and
// one has sent its request late.
func TestAStreamIsAuthenticatedAndOpenedThroughTheDoor(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		late, body := w.begin(w.tokens[eu], "Expect: 100-continue\r\n")
		answers := map[net.Conn]*bufio.Reader{late: bufio.NewReader(late)}
		for _, line := range []string{"HTTP/1.1 100 Continue\r\n", "\r\n"} { // its token is right
			read, err := answers[late].ReadString('\n')
			require.NoError(w.t, err)
			require.Equal(w.t, line, read)
		}
		var leaves []func()
		for range 4 {
			leave, err := regions.Enter(w.t.Context(), w.service)
			require.NoError(w.t, err)
			w.t.Cleanup(leave) // a handler that waits for it keeps the server from its end
			leaves = append(leaves, leave)
		}
		_, err := late.Write(body)
		require.NoError(w.t, err)
		unknown, body := w.begin("wrong", "")
		_, err = unknown.Write(body)
		require.NoError(w.t, err)
		answers[unknown] = bufio.NewReader(unknown)
		for conn, answer := range answers {
			require.NoError(w.t, conn.SetReadDeadline(time.Now().Add(time.Second)))
			_, err := answer.Peek(1)
			require.ErrorIs(w.t, err, os.ErrDeadlineExceeded)
		}
		for _, leave := range leaves {
			leave()
		}
		for conn, answer := range answers {
			require.NoError(w.t, conn.SetReadDeadline(time.Now().Add(await.Moment)))
			_, err := answer.Peek(1)
			require.NoError(w.t, err)
		}
	})
}

// TestSlowAgentsKeepNoOtherFromItsStream has ten agents that do not send their request, and ten that
// do not read: each is past the door that lets four streams open at a time.
func TestSlowAgentsKeepNoOtherFromItsStream(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		for n := range 20 {
			small := string(deployment(fmt.Sprintf("d-%d", n), "web:1"))
			large := json.RawMessage(strings.TrimSuffix(small, "}") + `,"git_commit_message":"` + strings.Repeat("x", 900_000) + `"}`)
			_, err := w.store.PutDeployment(w.t.Context(), eu, fmt.Sprintf("d_%d", n), regions.Wanted{State: "running", Spec: large})
			require.NoError(w.t, err)
		}
		for range 10 {
			w.askSlowly(false)
			w.askSlowly(true)
		}
		await.Eventually(w.t, "ten streams are open", func() bool { return w.service.Streams("eu-1") == 10 })
		require.NoError(w.t, w.watch(&ctrlv1.WatchDeploymentsRequest{}, func(*ctrlv1.DeploymentState) bool { return true }))
	})
}

// TestARefusedStreamKeepsNoOtherFromItsStream has more streams that are refused than may open at a time, by their
// token and by what they ask for.
func TestARefusedStreamKeepsNoOtherFromItsStream(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.put("d_1", "running", deployment("one", "web:1"))
		for range 5 {
			ctx, cancel := context.WithTimeout(w.t.Context(), await.Moment)
			stream, err := w.client("wrong", "eu-1").WatchDeployments(ctx, connect.NewRequest(&ctrlv1.WatchDeploymentsRequest{}))
			require.NoError(w.t, err)
			require.False(w.t, stream.Receive())
			require.Equal(w.t, connect.CodeUnauthenticated, connect.CodeOf(stream.Err()))
			cancel()
			err = w.watch(&ctrlv1.WatchDeploymentsRequest{Mark: "wrong"}, func(*ctrlv1.DeploymentState) bool { return false })
			require.Equal(w.t, connect.CodeInvalidArgument, connect.CodeOf(err))
		}
		require.NoError(w.t, w.watch(&ctrlv1.WatchDeploymentsRequest{}, func(*ctrlv1.DeploymentState) bool { return true }))
	})
}

// TestTheServerOfTheProgramsFindsADeadLink has a stream on which nothing is sent:
// only the pings of HTTP/2 can detect that its link is dead.
func TestTheServerOfTheProgramsFindsADeadLink(t *testing.T) {
	t.Parallel()
	began, ended := make(chan struct{}), make(chan struct{})
	addresses := make(chan net.Addr, 1)
	server := &serve.Server{
		UnencryptedHTTP2: true, OnListen: func(a net.Addr) { addresses <- a },
		Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			control := http.NewResponseController(rw)
			_ = control.SetWriteDeadline(time.Time{})
			_ = control.SetReadDeadline(time.Time{})
			rw.WriteHeader(http.StatusOK)
			_ = control.Flush()
			close(began)
			<-r.Context().Done()
			close(ended)
		}),
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- server.Start(ctx) }()
	address := <-addresses
	proxy := toxiproxy.NewProxy(
		toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()),
		"idle",
		"127.0.0.1:0",
		address.String(),
	)
	require.NoError(t, proxy.Start())
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(func() {
		cancel()
		proxy.Stop()
		transport.CloseIdleConnections()
		require.NoError(t, <-done)
	})
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+proxy.Listen+"/", nil)
	require.NoError(t, err)
	response, err := transport.RoundTrip(request)
	require.NoError(t, err)
	defer response.Body.Close()
	<-began
	for _, direction := range []string{"upstream", "downstream"} {
		_, err := proxy.Toxics.AddToxicJson(
			strings.NewReader(fmt.Sprintf(`{"name":%q,"type":"timeout","stream":%q,"toxicity":1,"attributes":{"timeout":0}}`, direction, direction)),
		)
		require.NoError(t, err)
	}
	select {
	case <-ended:
	case <-time.After(25 * time.Second):
		t.Error("the server has not found that the link is dead")
	}
}
