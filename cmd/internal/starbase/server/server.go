package server

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/cluster"
)

const (
	// maxRequestBody is the size above which a request gets 413.
	maxRequestBody = 8 << 20
	// requestTimeout is how long the database may take for one request.
	requestTimeout = 15 * time.Second
	// minAdminToken is the length in bytes below which a token is a mistake.
	minAdminToken = 16

	adminPrefix = "/api/v1/admin/"
	agentPrefix = "/api/v1/clusters/"
)

// Config is what a [Server] needs.
type Config struct {
	// Store is the database. Required.
	Store *Store
	// AdminToken opens the endpoints below /api/v1/admin/. Required, at
	// least 16 bytes.
	AdminToken string
	// Logger gets a line for each change, each refusal and each failure, and
	// on level debug for each request. Tokens and bodies are never logged.
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
	regions  *cluster.Store
	admin    string
	logger   *slog.Logger
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	// Two muxes, so that an agent's token cannot reach an admin handler
	// whatever the path looks like.
	adminMux, agentMux *http.ServeMux
}

// New returns a server, or an error that names the field of config that
// is missing or wrong.
func New(config Config) (*Server, error) {
	if config.Store == nil {
		return nil, errors.New("server.Config: Store is required")
	}
	if len(config.AdminToken) < minAdminToken {
		return nil, errors.New("server.Config: AdminToken must have at least 16 bytes")
	}
	s := &Server{
		store:   config.Store,
		regions: &cluster.Store{Database: config.Store.Database},
		admin:   config.AdminToken,
		logger:  cmp.Or(config.Logger, slog.New(slog.DiscardHandler)),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "trueup_controlplane_requests_total",
			Help: "Requests answered, by route, method and status code.",
		}, []string{"route", "method", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "trueup_controlplane_request_duration_seconds",
			Help: "Time to answer a request, by route.",
		}, []string{"route"}),
	}
	if config.Registerer != nil {
		if err := errors.Join(config.Registerer.Register(s.requests), config.Registerer.Register(s.seconds)); err != nil {
			return nil, err
		}
	}
	s.agentMux = s.mux([]route{
		{http.MethodGet, agentPrefix + "{cluster_id}/desired-state", s.ownCluster(s.pullDesiredState)},
		{http.MethodPost, agentPrefix + "{cluster_id}/status", s.ownCluster(s.postStatus)},
		{http.MethodPost, agentPrefix + "{cluster_id}/capacity", s.ownCluster(s.postCapacity)},
	})
	const (
		cluster = adminPrefix + "clusters/{cluster_id}"
		project = adminPrefix + "projects/{project_id}"
		service = project + "/services/{service_id}/{environment}"
	)
	s.adminMux = s.mux(append(s.regionRoutes(), []route{
		{http.MethodGet, adminPrefix + "clusters", s.listClusters},
		{http.MethodPut, cluster, s.putCluster},
		{http.MethodGet, cluster, s.showCluster},
		{http.MethodPut, cluster + "/config", s.putConfig},
		{http.MethodPost, cluster + "/allow-mass-delete", s.allowMassDelete},
		{http.MethodPost, cluster + "/rotate-token", s.rotateToken},
		{http.MethodPost, cluster + "/new-epoch", s.startEpoch},
		{http.MethodPut, project, s.putProject},
		{http.MethodDelete, project, s.deleteProject},
		{http.MethodPut, service, s.putService},
		{http.MethodDelete, service, s.deleteService},
	}...))
	return s, nil
}

// handler answers a request, or returns the error to answer it with.
type handler func(w http.ResponseWriter, r *http.Request) error

type route struct {
	method, path string
	handle       handler
}

func (s *Server) mux(routes []route) *http.ServeMux {
	mux := http.NewServeMux()
	methods := map[string][]string{}
	for _, route := range routes {
		mux.HandleFunc(route.method+" "+route.path, s.answer(route.handle))
		methods[route.path] = append(methods[route.path], route.method)
	}
	for path, allowed := range methods {
		mux.HandleFunc(path, s.answer(func(w http.ResponseWriter, r *http.Request) error {
			w.Header().Set("Allow", strings.Join(allowed, ", "))
			return &apiError{status: http.StatusMethodNotAllowed, code: "method_not_allowed", message: "this path takes " + strings.Join(allowed, ", ") + ", not " + r.Method}
		}))
	}
	mux.HandleFunc("/", s.answer(unknownPath))
	return mux
}

func unknownPath(http.ResponseWriter, *http.Request) error {
	return &apiError{status: http.StatusNotFound, code: "unknown_path", message: "there is nothing at this path"}
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	begin := time.Now()
	ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
	defer cancel()
	r = r.WithContext(ctx)
	recorder := &statusRecorder{ResponseWriter: w, status: http.StatusOK}
	recorder.Header().Set("Cache-Control", "no-store")
	recorder.Header().Set("X-Content-Type-Options", "nosniff")

	serve := s.answer(unknownPath)
	switch {
	case strings.HasPrefix(r.URL.Path, adminPrefix):
		serve = s.answer(s.authenticateAdmin)
	case strings.HasPrefix(r.URL.Path, agentPrefix):
		serve = s.answer(s.authenticateAgent)
	}
	serve(recorder, r)

	route := cmp.Or(recorder.route, "none")
	s.requests.WithLabelValues(route, methodLabel(r.Method), strconv.Itoa(recorder.status)).Inc()
	s.seconds.WithLabelValues(route).Observe(time.Since(begin).Seconds())
	level := slog.LevelDebug
	if recorder.status >= http.StatusBadRequest || (r.Method != http.MethodGet && strings.HasPrefix(r.URL.Path, adminPrefix)) {
		level = slog.LevelInfo
	}
	s.logger.LogAttrs(ctx, level, "request", slog.String("method", r.Method), slog.String("path", r.URL.Path),
		slog.Int("status", recorder.status), slog.Duration("duration", time.Since(begin)))
}

// statusRecorder remembers what was answered, and by which route.
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
