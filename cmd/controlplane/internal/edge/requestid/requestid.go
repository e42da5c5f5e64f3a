// Package requestid gives each request an id, by which the answer, the lines of the log
// and the audit of one request are found.
package requestid

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"net/http"
	"regexp"
)

// Header is the header of the id, in requests and in answers.
const Header = "X-Request-Id"

// pattern is what an id of a client may be: it becomes part of log lines and headers.
var pattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/+=@-]{0,127}$`)

type key struct{}

// Handler gives the requests of next an id: the value of the client's header if it has 1 to
// 128 letters, digits and ._:/+=@-, else a new one. The answer has it in the same header. A
// request that has an id keeps it.
func Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := Of(r.Context())
		if id == "" {
			if id = r.Header.Get(Header); !pattern.MatchString(id) {
				id = fresh()
			}
			r = r.WithContext(NewContext(r.Context(), id))
		}
		w.Header().Set(Header, id)
		next.ServeHTTP(w, r)
	})
}

// NewContext returns a context with the id.
func NewContext(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, key{}, id)
}

// Of returns the id of the request whose context this is; empty for none.
func Of(ctx context.Context) string {
	id, _ := ctx.Value(key{}).(string)
	return id
}

func fresh() string {
	text := make([]byte, 16)
	// Read never fails and fills the whole slice; see crypto/rand.
	_, _ = rand.Read(text)
	return hex.EncodeToString(text)
}

// Logger returns a handler that adds the id of the request to each record, as request_id.
func Logger(next slog.Handler) slog.Handler { return handler{next} }

type handler struct{ slog.Handler }

// Handle implements [slog.Handler].
func (h handler) Handle(ctx context.Context, record slog.Record) error {
	if id := Of(ctx); id != "" {
		record = record.Clone()
		record.AddAttrs(slog.String("request_id", id))
	}
	return h.Handler.Handle(ctx, record)
}

// WithAttrs implements [slog.Handler].
func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return handler{h.Handler.WithAttrs(attrs)}
}

// WithGroup implements [slog.Handler].
func (h handler) WithGroup(name string) slog.Handler { return handler{h.Handler.WithGroup(name)} }
