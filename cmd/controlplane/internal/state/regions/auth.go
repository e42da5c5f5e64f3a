package regions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"connectrpc.com/connect"

	"github.com/seed-9e1ffd66/trueup/cmd/api/agenttoken"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/origin"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/requestid"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/adminapi"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/agents"
	"github.com/seed-9e1ffd66/trueup/internal/serve"
)

// The headers of a request.
const (
	headerRegion   = "X-Krane-Region"
	headerPlatform = "X-Krane-Platform"
	headerCell     = "X-Krane-Cell"
)

// sender is what a request says that it comes from.
type sender struct {
	region, platform, cell string
	// repeated is a header that the request has more than once. Empty: there is none.
	repeated string
}

type senderKey struct{}

// caller is the region that a request acts for.
type caller struct {
	Region
	cell string
}

// reflectionMethod is the only method of the reflection services.
const reflectionMethod = "ServerReflectionInfo"

// authenticate refuses a request without a valid token, with fail, before anything else
// of it is read.
func (s *Service) authenticate(next http.Handler, fail func(http.ResponseWriter, *http.Request, error)) http.Handler {
	return requestid.Handler(origin.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := func(name string) string { return strings.TrimSpace(r.Header.Get(name)) }
		from := sender{region: header(headerRegion), platform: header(headerPlatform), cell: header(headerCell)}
		for _, name := range []string{"Authorization", headerRegion, headerPlatform, headerCell} {
			if len(r.Header.Values(name)) > 1 {
				from.repeated = name
			}
		}
		method := path.Base(r.URL.Path)
		watch := strings.HasPrefix(method, "Watch")
		// Nothing of the body of a stream is held.
		admitted, leave, err := s.gate.Enter(w.Header(), r, from.region, watch || method == reflectionMethod || r.Method == http.MethodGet)
		refused, ok := errors.AsType[*adminapi.Error](err)
		switch {
		case err == nil:
			defer leave()
			patient := &patientWriter{ResponseWriter: w, control: http.NewResponseController(w), patience: cmp.Or(s.patience, defaultPatience)}
			ctx := context.WithValue(context.WithValue(admitted.Context(), senderKey{}, from), writerKey{}, patient)
			next.ServeHTTP(patient, admitted.WithContext(ctx)) //nolint:contextcheck // it is the context of r, with values
			return
		case ok && refused.Wait > 0:
			serve.RetryAfter(w.Header(), refused.Wait)
			failure := connect.NewError(connect.CodeResourceExhausted, errors.New(refused.Message))
			if refused.Code == agenttoken.TooManyAttempts {
				failure = because(strings.ReplaceAll(refused.Code, "_", "-"), failure)
			}
			err = failure
		case ok:
			err = connect.NewError(connect.CodeUnauthenticated, errors.New(refused.Message))
		default:
			if err = s.internal(r.Context(), "authenticate", err); watch {
				err = forStream(err)
			}
		}
		fail(w, r, err)
	}), nil))
}

// caller returns the region that the request is about. The header decides; a
// field of the message may repeat it.
func (s *Service) caller(ctx context.Context, field string) (caller, error) {
	found, _ := ctx.Value(senderKey{}).(sender)
	own := agents.Of(ctx).ID
	if found.repeated != "" {
		return caller{}, connect.NewError(connect.CodeInvalidArgument, errors.New(found.repeated+": is there more than once, must be there once"))
	}
	if found.region == "" {
		return caller{}, connect.NewError(connect.CodeInvalidArgument, errors.New(headerRegion+": is required"))
	}
	if err := errors.Join(
		plain(headerRegion, found.region), plain(headerPlatform, found.platform), plain(headerCell, found.cell),
	); err != nil {
		return caller{}, connect.NewError(connect.CodeInvalidArgument, err)
	}
	if field != "" && field != found.region {
		return caller{}, connect.NewError(
			connect.CodeInvalidArgument,
			errors.New("region: must be that of the header "+headerRegion+", or empty"),
		)
	}
	region, err := s.store.RegionByName(ctx, found.region, found.platform, own)
	switch {
	case errors.Is(err, ErrAmbiguous):
		return caller{}, connect.NewError(
			connect.CodeInvalidArgument,
			errors.New(headerPlatform+": is required: regions of several platforms have this name, or had it"),
		)
	case err != nil && !errors.Is(err, ErrUnknownRegion):
		return caller{}, s.internal(ctx, "region", err)
	case own != "" && err != nil:
		return caller{}, s.foreignRegion(ctx, own, found)
	case err != nil:
		return caller{}, s.unknownRegion(ctx, found.region)
	}
	return caller{Region: region, cell: found.cell}, nil
}

// foreignRegion refuses the token of one region for another. The answer is the same
// whether or not the other is registered. The region of the token itself may be
// unknown: its log was made for another.
func (s *Service) foreignRegion(ctx context.Context, id string, said sender) error {
	own, err := s.store.Region(ctx, id)
	switch {
	case err != nil && !errors.Is(err, ErrUnknownRegion):
		return s.internal(ctx, "region", err)
	case err == nil && own.Name == said.region && said.platform != "" && said.platform != own.Platform:
		return connect.NewError(connect.CodePermissionDenied, fmt.Errorf(
			"the token is that of region %s on %q, and %s is %q", own.Name, own.Platform, headerPlatform, said.platform,
		))
	case err == nil && own.Name == said.region:
		return s.unknownRegion(ctx, said.region)
	}
	return connect.NewError(connect.CodePermissionDenied, errors.New("the token is that of another region"))
}

// plain returns an error if text is not UTF-8 or has control characters, which no
// database of this program takes.
func plain(field, text string) error {
	switch {
	case len(text) > maxText:
		return fmt.Errorf("%s: has %d bytes, must have %d at most", field, len(text), maxText)
	case !utf8.ValidString(text):
		return errors.New(field + ": must be UTF-8")
	case strings.ContainsFunc(text, unicode.IsControl):
		return errors.New(field + ": must not contain control characters")
	}
	return nil
}

func (s *Service) unknownRegion(ctx context.Context, name string) error {
	s.logger.ErrorContext(ctx, "region unknown, or its log belongs to another region", slog.String("region", name))
	return refuse(unknownRegion, "this region is unknown, which says nothing about what it should run: delete nothing")
}

// admit returns the region that the request is about, if the caller's cell may speak
// for it: every call renews the lease of its cell, or is refused while another cell has
// the lease.
func (s *Service) admit(ctx context.Context, field string) (caller, error) {
	c, err := s.caller(ctx, field)
	if err != nil {
		return c, err
	}
	if c.cell == c.CellID && time.Since(c.HeartbeatAt) < renewal {
		return c, nil
	}
	return c, s.claim(ctx, c, 0)
}

// renewal is the age from which another call than a heartbeat renews a lease.
const renewal = 10 * time.Second

// claim renews the lease of the caller's cell.
func (s *Service) claim(ctx context.Context, c caller, epoch uint64) error {
	err := s.store.Heartbeat(ctx, c.ID, c.cell, epoch)
	if errors.Is(err, ErrClaimed) {
		if s.refused.isNew(c.ID, "cell "+c.cell, time.Now()) {
			s.logger.WarnContext(ctx, "second agent refused", slog.String("region", c.Scope), slog.String("cell", c.cell))
		}
		return refuse("region-claimed", "an agent of another cell is alive in this region; stop it, or wait until its lease has run out")
	}
	if err != nil {
		return s.internal(ctx, "heartbeat", err)
	}
	return nil
}
