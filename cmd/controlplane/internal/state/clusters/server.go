package clusters

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/guard"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/limits"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/oidcauth"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/origin"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/requestid"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/second"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/tokens"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/adminapi"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/agents"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

const (
	// requestTimeout is how long the database may take for one request.
	requestTimeout = 15 * time.Second

	agentPrefix = "/api/v1/clusters/"
)

// Config is what a [Server] needs.
type Config struct {
	// Store is the database. Required.
	Store *Store
	// Admins are the tokens that open the endpoints below /api/v1/admin/. Required, each of
	// at least 16 bytes.
	Admins tokens.Admins
	// People are those who sign in with OpenID Connect. Nil: there are none.
	People *oidcauth.People
	// Used stores when these were used. Nil: it is not stored.
	Used *tokens.Uses
	// Second asks for a second person where one is not enough. Nil: one always is.
	Second *second.Person
	// AdminRoutes are further endpoints below /api/v1/admin/, and AdminConditions
	// how the errors of their stores are answered. Empty: there are none.
	AdminRoutes     []adminapi.Route
	AdminConditions []adminapi.Condition
	// OpenRoutes are further endpoints, which check the caller by themselves. Empty: there are none.
	OpenRoutes []adminapi.Route
	// Guard slows down those that guess tokens. Nil: nothing does.
	Guard *guard.Guard
	// Limits keep one cluster from taking what others need. Nil: there are none.
	Limits *limits.Limits
	// Heartbeat is the longest time between two frames of a stream. Zero: 5 s.
	Heartbeat time.Duration
	// Logger gets a line for each change, each refusal of a request with a valid token and
	// each failure, and on level debug for each request. Tokens and bodies are never logged.
	// Nil: nothing is logged.
	Logger *slog.Logger
	// Registerer gets the metrics. Nil: they are not collected anywhere.
	Registerer prometheus.Registerer
}

// Server answers the Starbase API. It checks the token of a request before
// anything else of it, and never answers an error with a body that could be
// read as a desired state. It is safe for concurrent use.
type Server struct {
	store    *Store
	api      *adminapi.API
	admins   tokens.Admins
	people   *oidcauth.People
	used     *tokens.Uses
	second   *second.Person
	gate     agents.Gate
	logger   *slog.Logger
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	dropped  *prometheus.CounterVec
	// snapshots are counted by what became of them.
	snapshots *prometheus.CounterVec
	bodies    *bodies
	placed    placed
	// versions are streamed by items to the agents of streams.
	versions *versions
	items    *statesync.Handler
	streams  agents.Streams
	// Muxes of their own, so that an agent's token cannot reach an admin handler
	// whatever the path looks like.
	adminMux, agentMux, openMux *http.ServeMux
	open                        map[string]bool // the paths of openMux
	routes                      []adminapi.Route
}

// New returns a server, or an error that names the field of config that
// is missing or wrong.
func New(config Config) (*Server, error) {
	if config.Store == nil {
		return nil, errors.New("server.Config: Store is required")
	}
	if !config.Admins.Usable() {
		return nil, errors.New("server.Config: Admins must have a token, each of at least 16 bytes")
	}
	logger := cmp.Or(config.Logger, slog.New(slog.DiscardHandler))
	s := &Server{
		store:  config.Store,
		api:    &adminapi.API{Logger: logger, Conditions: slices.Concat(conditions, config.AdminConditions)},
		admins: config.Admins,
		people: config.People,
		used:   config.Used,
		second: config.Second,
		gate:   agents.Gate{Scopes: config.Store.Agents(), Door: agents.NewDoor(), Guard: config.Guard, Limits: config.Limits},
		logger: logger,
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "trueup_controlplane_requests_total",
			Help: "Requests answered, by route, method and status code.",
		}, []string{"route", "method", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "trueup_controlplane_request_duration_seconds",
			Help: "Time to answer a request, by route.",
		}, []string{"route"}),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "trueup_controlplane_tombstones_dropped_total",
			Help: "Tombstones that were dropped, because an agent had reported them gone and 7 days had passed, by kind: service or project.",
		}, []string{"kind"}),
		snapshots: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "trueup_controlplane_snapshots_total",
			Help: "Billing records received, by result: accepted, duplicate or rejected.",
		}, []string{"result"}),
	}
	s.bodies, s.versions = &bodies{}, newVersions(config.Store.Database)
	s.items = newItems(s.versions, config.Heartbeat, config.Logger)
	if config.Registerer != nil {
		if err := errors.Join(
			config.Registerer.Register(s.requests),
			config.Registerer.Register(s.seconds),
			config.Registerer.Register(s.dropped),
			config.Registerer.Register(s.snapshots),
			config.Registerer.Register(newContacts(s.store, s.bodies, logger)),
		); err != nil {
			return nil, err
		}
	}
	ofAgents, ofAdmins := s.agentRoutes(), append(s.adminRoutes(), config.AdminRoutes...)
	administration := *s.api
	administration.Admit = s.admit
	ofAll := slices.Concat(oidcauth.Routes(config.People), config.OpenRoutes)
	s.open = map[string]bool{}
	for _, route := range ofAll {
		s.open[route.Path] = true
	}
	s.agentMux, s.adminMux, s.openMux = s.api.Mux(ofAgents), administration.Mux(ofAdmins), s.api.Mux(ofAll)
	s.routes = slices.Concat(ofAgents, ofAdmins, ofAll)
	return s, nil
}

// Routes returns all that the server answers, [Config.AdminRoutes] included.
func (s *Server) Routes() []adminapi.Route { return s.routes }

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	requestid.Handler(origin.Handler(http.HandlerFunc(s.serve), nil)).ServeHTTP(w, r)
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	begin := time.Now()
	ctx, stream := r.Context(), streams(r)
	if !stream {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		r = r.WithContext(ctx)
	}
	recorder := &statusRecorder{ResponseWriter: w, status: http.StatusOK}
	recorder.Header().Set("Cache-Control", "no-store")
	recorder.Header().Set("X-Content-Type-Options", "nosniff")

	serve := s.api.Answer(adminapi.UnknownPath)
	switch {
	case strings.HasPrefix(r.URL.Path, adminapi.Prefix):
		serve = s.api.Answer(s.authenticateAdmin)
	case strings.HasPrefix(r.URL.Path, agentPrefix):
		serve = s.api.Answer(s.authenticateAgent)
	case s.open[r.URL.Path]:
		serve = s.api.Answer(func(w http.ResponseWriter, r *http.Request) error { return dispatch(s.openMux, w, r) })
	}
	serve(recorder, r)

	route := cmp.Or(recorder.route, "none")
	s.requests.WithLabelValues(route, methodLabel(r.Method), strconv.Itoa(recorder.status)).Inc()
	if !stream {
		s.seconds.WithLabelValues(route).Observe(time.Since(begin).Seconds())
	}
	if r.Method != http.MethodGet && strings.HasPrefix(r.URL.Path, adminapi.Prefix) {
		s.versions.wake() // it may have changed a desired state
	}
	level, actor := slog.LevelDebug, origin.Actor(ctx)
	if actor != "" &&
		(recorder.status >= http.StatusBadRequest || r.Method != http.MethodGet && strings.HasPrefix(r.URL.Path, adminapi.Prefix)) {
		level = slog.LevelInfo
	}
	s.logger.LogAttrs(ctx, level, "request", slog.String("method", r.Method), slog.String("path", r.URL.Path), slog.String("actor", actor),
		slog.String("from", origin.Address(ctx)), slog.Int("status", recorder.status), slog.Duration("duration", time.Since(begin)))
}

// statusRecorder records the status of the answer, and the route.
type statusRecorder struct {
	http.ResponseWriter
	status int
	route  string
}

// WriteHeader implements [http.ResponseWriter].
func (r *statusRecorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

// Unwrap lets [http.ResponseController] reach the connection.
func (r *statusRecorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// methodLabel keeps the metric's label set closed.
func methodLabel(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPut, http.MethodPost, http.MethodDelete:
		return method
	}
	return "other"
}
