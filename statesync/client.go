package statesync

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/seed-9e1ffd66/trueup/internal/httpretry"
)

// Client reads a [Server] over HTTP, through its [Handler]. It is a [Source]. It is
// safe for concurrent use; its fields must not change after the first use.
type Client struct {
	// URL is where the Handler is mounted, as https://control.example/sync. It has no
	// query. Required.
	URL string
	// Authorize, if set, adds the credential to each request once; a repeated attempt
	// reuses it. Default nil: none.
	Authorize func(*http.Request) error
	// Transport carries requests. Default: one of its own with the settings of
	// http.DefaultTransport, which also speaks HTTP/2 without TLS to an http
	// URL if UnencryptedHTTP2 is set.
	Transport http.RoundTripper
	// UnencryptedHTTP2 makes the default transport speak HTTP/2 to an http URL.
	UnencryptedHTTP2 bool
	// Patience is how long to wait for the first answer of a stream. Default
	// 10 s. After that the server's heartbeat decides.
	Patience time.Duration
	// Logger gets a line when streams are held back and the client polls pages instead.
	// Default nil: no log.
	Logger *slog.Logger

	polling polling
	once    sync.Once
	streams http.Client
	calls   *http.Client
}

// maxLine is the max length of a frame that a Client reads; a Server sends less.
const maxLine = 16 << 20

// validate returns an error unless the URL can be asked.
func (c *Client) validate() error {
	const must = "must be an http or https URL without query and fragment, such as https://control.example/sync"
	at, err := url.Parse(c.URL)
	switch {
	case c.URL == "":
		return wrong("Client.URL", "is required, "+must)
	case err != nil:
		return wrong("Client.URL", "cannot be read, "+must) // the error would show a password in it
	case at.Scheme != "http" && at.Scheme != "https", at.Host == "", at.RawQuery != "", at.Fragment != "":
		return wrong("Client.URL", "is %q, "+must, at.Redacted())
	}
	return nil
}

func (c *Client) start() {
	c.once.Do(func() {
		transport := c.Transport
		if transport == nil {
			transport = c.transport()
		}
		c.streams = http.Client{
			Transport: transport,
			// A redirect could carry the credential elsewhere.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
		c.calls = httpretry.New(httpretry.Config{Transport: transport, Timeout: maxWait + 10*time.Second})
	})
}

func (c *Client) transport() http.RoundTripper {
	own := &http.Transport{}
	if standard, ok := http.DefaultTransport.(*http.Transport); ok {
		own = standard.Clone()
	}
	// Pings find a connection that has died silently.
	own.HTTP2 = &http.HTTP2Config{SendPingTimeout: 5 * time.Second, PingTimeout: 5 * time.Second}
	if c.UnencryptedHTTP2 {
		own.Protocols = new(http.Protocols)
		own.Protocols.SetHTTP2(true)
		own.Protocols.SetUnencryptedHTTP2(true)
	}
	return own
}

// Close closes connections that are not in use.
func (c *Client) Close() {
	c.start()
	c.streams.CloseIdleConnections()
}

// errSilent is a stream that sends nothing, not even a heartbeat.
var errSilent = errors.New("stream is silent")

// Watch implements [Source]. A stream that is silent for two of the server's
// heartbeats, or for Patience before its header, ends with an error. If it was silent
// from its beginning, or is the second silent one in a row, and pages arrive, a
// buffering proxy holds streams back. Then Watch makes frames from pages, waits up to 5
// s for each, and tries a stream again after half an hour. Logger and Polling report
// this.
func (c *Client) Watch(ctx context.Context, w Watch, receive func(Frame) error) error {
	if err := errors.Join(c.validate(), w.Validate()); err != nil {
		return err
	}
	c.start()
	if until, on := c.polling.on(); on {
		return c.poll(ctx, w, until, receive)
	}
	headed, beats := false, 0
	err := c.watch(ctx, w, func(f Frame) error {
		headed = true
		if f.Type == FrameBookmark || f.Type == FrameSynced {
			beats++
		}
		return receive(f)
	})
	silent := errors.Is(err, errSilent)
	if beats > 1 {
		// Frames arrived; the connection or the server has died.
		c.polling.ended(false, headed)
		return err
	}
	if c.polling.ended(silent, headed) && silent && ctx.Err() == nil {
		return c.fallBack(ctx, w, headed, receive)
	}
	return err
}

// watch reads one stream.
func (c *Client) watch(ctx context.Context, w Watch, receive func(Frame) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	patience := cmp.Or(c.Patience, 10*time.Second)
	silent := time.AfterFunc(patience, func() { cancel(errSilent) })
	defer silent.Stop()

	query := w.query()
	query.Set("watch", "true")
	response, err := c.do(ctx, &c.streams, http.MethodGet, w.Scope, "items?"+query.Encode(), nil)
	if err != nil {
		return because(ctx, err)
	}
	defer response.Body.Close() //nolint:errcheck // nothing was written
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(make([]byte, 0, 4<<10), maxLine)
	for lines.Scan() {
		frame, err := decodeLine(lines.Bytes())
		if err != nil {
			return fmt.Errorf("frame: %w", err)
		}
		if frame.Type == FrameHeader && frame.Heartbeat > 0 {
			patience = silence(frame.Heartbeat)
		}
		// The time that the reader spends on the frame does not count as silence.
		silent.Stop()
		if err := receive(frame); err != nil {
			return err
		}
		silent.Reset(patience)
	}
	// A stream that ends without a reason was cut.
	return because(ctx, cmp.Or(lines.Err(), io.ErrUnexpectedEOF))
}

// because returns why ctx was cancelled, if it was, instead of err.
func because(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

func (w Watch) query() url.Values {
	query := url.Values{"collection": w.Collections}
	if w.Cursor.Version > 0 {
		query.Set("after", strconv.FormatUint(w.Cursor.Version, 10))
	}
	if w.Cursor.Floor > 0 {
		query.Set("floor", strconv.FormatUint(w.Cursor.Floor, 10))
	}
	if w.Cursor.Epoch != "" {
		query.Set("epoch", w.Cursor.Epoch)
	}
	if w.Cursor.Mark != (Mark{}) {
		query.Set("mark", w.Cursor.Mark.String())
	}
	return query
}

// Page returns a part of the log, at most limit items (1 to 1000), that ends at the
// frame's Version. If there is nothing after the cursor, it waits that long, at most a
// minute, and then returns a frame without items. Requests that fail temporarily are
// repeated.
func (c *Client) Page(ctx context.Context, w Watch, limit int, wait time.Duration) (Frame, error) {
	if err := w.Validate(); err != nil {
		return Frame{}, err
	}
	query := w.query()
	query.Set("limit", strconv.Itoa(limit))
	query.Set("wait", wait.String())
	body, err := c.call(ctx, http.MethodGet, w.Scope, "items?"+query.Encode(), nil)
	if err != nil {
		return Frame{}, err
	}
	return decodeLine(body)
}

// Report sends r, and returns whether it was stored: a report older than the stored one
// is not. Requests that fail temporarily are repeated.
func (c *Client) Report(ctx context.Context, scope string, r Report) (stored bool, err error) {
	if err := errors.Join(ValidScope(scope), r.Validate()); err != nil {
		return false, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	text, err := json.Marshal(r)
	if err != nil {
		return false, err
	}
	body, err := c.call(ctx, http.MethodPost, scope, "reports", text)
	if err != nil {
		return false, err
	}
	var answer struct{ Stored bool }
	if err := json.Unmarshal(body, &answer); err != nil {
		return false, fmt.Errorf("answer to a report: %w", err)
	}
	return answer.Stored, nil
}

// call returns the body of the answer to one request.
func (c *Client) call(ctx context.Context, method, scope, rest string, body []byte) ([]byte, error) {
	c.start()
	response, err := c.do(ctx, c.calls, method, scope, rest, body)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close() //nolint:errcheck // nothing was written
	text, err := io.ReadAll(io.LimitReader(response.Body, maxLine))
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	return text, nil
}

// do sends one request and turns a failed answer into the server's error.
func (c *Client) do(ctx context.Context, client *http.Client, method, scope, rest string, body []byte) (*http.Response, error) {
	target := strings.TrimSuffix(c.URL, "/") + "/scopes/" + url.PathEscape(scope) + "/" + rest
	request, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if c.Authorize != nil {
		if err := c.Authorize(request); err != nil {
			return nil, fmt.Errorf("credential: %w", err)
		}
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode == http.StatusOK {
		return response, nil
	}
	defer response.Body.Close() //nolint:errcheck // nothing was written
	text, err := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	if err != nil {
		return nil, fmt.Errorf("read the answer %s: %w", response.Status, err)
	}
	var told failure
	if json.Unmarshal(text, &told) == nil && told.Error.Code != "" {
		err = told.Error.err()
	} else { // not the server's answer, but a proxy's: its 404 proves nothing about the scope
		err = fmt.Errorf("unexpected answer %s", response.Status)
	}
	refused := response.StatusCode == http.StatusUnauthorized || response.StatusCode == http.StatusForbidden
	if refused && !errors.Is(err, ErrUnauthenticated) {
		err = fmt.Errorf("%w: %w", ErrUnauthenticated, err) // of a proxy, or of the program before its Handler
	}
	return nil, err
}
