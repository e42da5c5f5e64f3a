// Package control calls the control plane as the agent of a region.
package control

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"connectrpc.com/connect"

	"github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1/ctrlv1connect"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/between"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/owntoken"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/config"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/stream"
)

// How long a connection may be silent before it is asked whether it lives, and
// how long it may take to answer.
const (
	readIdle    = 10 * time.Second
	pingTimeout = 5 * time.Second
	// maxMessage is more than any message of the contract has, in bytes.
	maxMessage = 16 << 20
)

// tooManyAttempts is the reason of an error that is in place of Unauthenticated, see
// [agenttoken.TooManyAttempts].
const tooManyAttempts = "too-many-attempts"

// New returns a client with the region and cell of the configuration and the token of the source,
// nil for one that renews none, in
// each call. The token is read again for each, so that a new token file is used
// without a restart. A redirect is an error, and no call has an overall time limit but that
// of its context. The requests go through transport, nil for one of its own: it speaks HTTP/2,
// in cleartext to an http URL, and finds a dead connection by pings.
func New(c config.Config, tokens *owntoken.Source, transport http.RoundTripper) ctrlv1connect.ClusterServiceClient {
	if transport == nil {
		transport = newTransport(c)
	}
	if tokens == nil {
		tokens = owntoken.New(owntoken.Config{Given: c.GivenToken})
	}
	client := between.Client{Own: hasCode, HTTP: &http.Client{
		Transport: transport,
		// The token is for this server alone.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	return ctrlv1connect.NewClusterServiceClient(client, c.Control.URL.String(),
		connect.WithInterceptors(identity{c, tokens}), connect.WithReadMaxBytes(maxMessage))
}

// hasCode reports whether a body is an error of Connect.
func hasCode(body []byte) bool {
	var document struct{ Code connect.Code }
	return json.Unmarshal(body, &document) == nil && document.Code != 0
}

func newTransport(c config.Config) *http.Transport {
	protocols := &http.Protocols{}
	if c.Control.URL.Scheme == "http" {
		protocols.SetUnencryptedHTTP2(true)
	} else {
		protocols.SetHTTP2(true)
		protocols.SetHTTP1(true)
	}
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		Protocols:           protocols,
		HTTP2:               &http.HTTP2Config{SendPingTimeout: readIdle, PingTimeout: pingTimeout},
		TLSHandshakeTimeout: readIdle,
		IdleConnTimeout:     90 * time.Second,
	}
}

// identity adds region, platform, cell and token to each call.
type identity struct {
	config config.Config
	tokens *owntoken.Source
}

func (i identity) sign(ctx context.Context, header http.Header) (token string, err error) {
	header.Set("X-Krane-Region", i.config.Cluster.Region)
	if platform := i.config.Cluster.Platform; platform != "" {
		header.Set("X-Krane-Platform", platform)
	}
	if cell := i.config.Cluster.CellID; cell != "" {
		header.Set("X-Krane-Cell", cell)
	}
	if token, err = i.tokens.Token(ctx); err != nil {
		return "", connect.NewError(connect.CodeUnauthenticated, err)
	}
	header.Set("Authorization", "Bearer "+token)
	return token, nil
}

// WrapUnary implements connect.Interceptor.
func (i identity) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, request connect.AnyRequest) (connect.AnyResponse, error) {
		token, err := i.sign(ctx, request.Header())
		if err != nil {
			return nil, err
		}
		answer, err := next(ctx, request)
		switch {
		case err == nil:
			i.tokens.Answered(answer.Header())
		case connect.CodeOf(err) == connect.CodeUnauthenticated || stream.Reason(err) == tooManyAttempts:
			i.tokens.Refused(ctx, token)
		}
		return answer, err
	}
}

// WrapStreamingClient implements connect.Interceptor.
func (i identity) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		conn := next(ctx, spec)
		// Without a token the server answers Unauthenticated, which is correct.
		_, _ = i.sign(ctx, conn.RequestHeader())
		return conn
	}
}

// WrapStreamingHandler implements connect.Interceptor.
func (identity) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}
