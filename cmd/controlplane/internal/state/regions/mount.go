package regions

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpcreflect"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1/ctrlv1connect"
	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/adminapi"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/agents"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

const (
	// maxMessage is the size in bytes above which a request is refused.
	maxMessage = 4 << 20
	// minCompressed is the size above which an answer is compressed, if the
	// agent takes that. Below, it costs ten times what sending does.
	minCompressed = 64 << 10

	// logURL is where a [statesync.Client] finds the logs, and itemsPath what it asks for.
	logURL    = "/api/v1"
	itemsPath = logURL + "/scopes/{scope}/items"
)

// Mount adds to mux what the service answers: ctrl.v1.ClusterService, the reflection of
// it for tools such as grpcurl, and the log of each region over plain HTTP, as
// [statesync.Handler] serves it below /api/v1. The credential of a request is checked
// before anything else of it is read, and the same rules hold for all of them.
func (s *Service) Mount(mux *http.ServeMux) {
	path, rpcs := ctrlv1connect.NewClusterServiceHandler(
		s,
		connect.WithCodec(&s.codec),
		jsonCodecs(),
		connect.WithReadMaxBytes(maxMessage),
		connect.WithCompressMinBytes(minCompressed),
	)
	answers := connect.NewErrorWriter()
	fail := func(w http.ResponseWriter, r *http.Request, err error) { _ = answers.Write(indifferent{w}, r, err) }
	mux.Handle(path, s.authenticate(rpcs, fail))
	reflector := grpcreflect.NewStaticReflector(ctrlv1connect.ClusterServiceName)
	for _, version := range []func(*grpcreflect.Reflector, ...connect.HandlerOption) (string, http.Handler){
		grpcreflect.NewHandlerV1, grpcreflect.NewHandlerV1Alpha,
	} {
		path, reflection := version(reflector, connect.WithReadMaxBytes(maxMessage))
		mux.Handle(path, s.authenticate(reflection, fail))
	}
	api := &adminapi.API{Logger: s.logger}
	log := api.Mux([]adminapi.Route{{Method: http.MethodGet, Path: itemsPath, Handle: s.items()}})
	mux.Handle(logURL+"/scopes/", s.authenticate(log, func(w http.ResponseWriter, r *http.Request, err error) {
		api.Answer(func(http.ResponseWriter, *http.Request) error { return plainError(err) })(w, r)
	}))
}

// indifferent is an answer of which it does not matter whether it comes: the ErrorWriter
// panics if a client that is refused a stream has gone, and the refusal cannot be sent.
type indifferent struct{ http.ResponseWriter }

// Write implements http.ResponseWriter.
func (i indifferent) Write(p []byte) (int, error) {
	_, _ = i.ResponseWriter.Write(p)
	return len(p), nil
}

// Routes returns the methods and paths that [Service.Mount] adds.
func Routes() []adminapi.Route {
	routes := []adminapi.Route{itemsRoute()}
	methods := ctrlv1.File_ctrl_v1_cluster_proto.Services().ByName("ClusterService").Methods()
	for i := range methods.Len() {
		routes = append(
			routes,
			adminapi.Route{Method: http.MethodPost, Path: "/" + ctrlv1connect.ClusterServiceName + "/" + string(methods.Get(i).Name())},
		)
	}
	for _, service := range []string{grpcreflect.ReflectV1ServiceName, grpcreflect.ReflectV1AlphaServiceName} {
		routes = append(routes, adminapi.Route{Method: http.MethodPost, Path: "/" + service + "/" + reflectionMethod})
	}
	return routes
}

// itemsRoute describes the log of a region over plain HTTP.
func itemsRoute() adminapi.Route {
	return agents.LogRoute(itemsPath, "listItems",
		"Return a page of what the region should run, from a cursor on; with watch a stream of such pages, each a line of JSON.").
		Refuses(http.StatusUnauthorized, "unauthenticated").Refuses(http.StatusForbidden, "permission_denied").
		Refuses(http.StatusConflict, "region_claimed", "stale_epoch")
}

// items serves the log of the region in the path to its agent.
func (s *Service) items() adminapi.Handler {
	log := http.StripPrefix(logURL, &statesync.Handler{
		Server: s.feed, Logger: s.logger,
		// The caller was admitted before.
		Authorize: func(*http.Request, string) (string, error) { return "agent", nil },
	})
	return func(w http.ResponseWriter, r *http.Request) error {
		from, _ := r.Context().Value(senderKey{}).(sender)
		scope := r.PathValue("scope")
		if from.region != "" && from.region != scope {
			return adminapi.Invalid(starbase.FieldError{Field: headerRegion, Value: strconv.Quote(from.region), Want: "that of the path, or none"})
		}
		from.region = scope
		c, err := s.admit(context.WithValue(r.Context(), senderKey{}, from), "")
		if err != nil {
			return plainError(err)
		}
		// A stream has no end, and a page may be waited for as long as a request may take.
		control := http.NewResponseController(w)
		if c.Scope != scope {
			r = r.Clone(r.Context())
			r.URL = r.URL.JoinPath("../../", c.Scope, "items")
		}
		_, _ = control.SetReadDeadline(time.Time{}), control.SetWriteDeadline(time.Time{})
		if !r.URL.Query().Has("watch") {
			log.ServeHTTP(w, r)
			return nil
		}
		ctx, closed := s.opened.Open(r.Context())
		defer closed()
		defer s.streaming(c.Scope, "all")()
		log.ServeHTTP(w, r.WithContext(ctx))
		return nil
	}
}

// streaming counts an open stream until the function that it returns is called.
func (s *Service) streaming(region, resources string) (ended func()) {
	s.open.add(s.streams, region, resources, 1)
	return func() { s.open.add(s.streams, region, resources, -1) }
}

// plainErrors are the answers to errors of this package over plain HTTP.
var plainErrors = map[connect.Code]adminapi.Error{ //nolint:gochecknoglobals // a table
	connect.CodeUnauthenticated:    {Status: http.StatusUnauthorized, Code: "unauthenticated"},
	connect.CodePermissionDenied:   {Status: http.StatusForbidden, Code: "permission_denied"},
	connect.CodeInvalidArgument:    {Status: http.StatusBadRequest, Code: "invalid"},
	connect.CodeResourceExhausted:  {Status: http.StatusTooManyRequests, Code: "too_many_requests"},
	connect.CodeFailedPrecondition: {Status: http.StatusConflict, Code: "refused"},
	connect.CodeInternal:           {Status: http.StatusInternalServerError, Code: "internal"},
}

// plainError returns the answer to an error of Connect over plain HTTP, with the codes of
// a [statesync.Handler] where it has them.
func plainError(err error) error {
	failure, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return err
	}
	answer, ok := plainErrors[failure.Code()]
	if !ok {
		return err
	}
	answer.Message = failure.Message()
	if field, want, ok := strings.Cut(answer.Message, ": "); ok && failure.Code() == connect.CodeInvalidArgument {
		answer.Fields = []starbase.FieldError{{Field: field, Want: want}}
	}
	switch reason := reasonOf(failure); reason {
	case "":
	case unknownRegion:
		answer.Status, answer.Code = http.StatusNotFound, "unknown_scope"
	default:
		answer.Code = strings.ReplaceAll(reason, "-", "_")
	}
	return &answer
}
