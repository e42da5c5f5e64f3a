package statuspage

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"html/template"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/guard"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/oidcauth"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/origin"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/tokens"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/adminapi"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/audit"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/clusters"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/regions"
)

// Where the page is.
const (
	// Path is where the page is mounted, with everything below it.
	Path = "/status"
	// Root is the pattern of what leads there.
	Root = "/{$}"

	loginPath  = Path + "/login"
	logoutPath = Path + "/logout"
	eventsPath = Path + "/events"
	rowsPath   = Path + "/rows"
	assetsPath = Path + "/assets/"
	// servicesPath, clustersPath and regionsPath have every service, cluster and region, and
	// each below it.
	servicesPath = Path + "/services"
	clustersPath = Path + "/clusters"
	regionsPath  = Path + "/regions"
)

const (
	defaultInterval   = 2 * time.Second
	defaultHeartbeat  = 15 * time.Second
	defaultMaxViewers = 100
	// requestTimeout is how long the database may take for one request.
	requestTimeout = 15 * time.Second
)

//go:embed assets
var assets embed.FS

// Config is what a [Page] needs.
type Config struct {
	// Database is the database that the page shows. Required.
	Database *db.Database
	// Admins are the tokens that open the page. Required, each of at least 16 bytes.
	Admins tokens.Admins
	// People are those who sign in with OpenID Connect. Nil: there are none.
	People *oidcauth.People
	// Used stores when these were used to log in. Nil: it is not stored.
	Used *tokens.Uses
	// Streams returns how many streams of the region of that scope are open.
	// Nil: this is not shown.
	Streams func(region string) int
	// StateBytes returns the size of the desired state that this process has served last to a
	// cluster, 0 for none. Nil: it is not known.
	StateBytes func(clusterID string) int
	// Log returns how the change log of the regions is. Nil: this is not shown.
	Log func(ctx context.Context) (regions.LogState, error)
	// Interval is the min time between two reads of the database. Zero:
	// 2 s.
	Interval time.Duration
	// Silence is how long after its last request a cluster counts as silent.
	// Zero: [adminapi.Silence], which is four requests of its agent.
	Silence time.Duration
	// TokenLifetime is how long a token is valid that an agent has renewed. Zero: tokens have no
	// end, and the page says nothing of them.
	TokenLifetime time.Duration
	// Heartbeat is the max time between two writes to a viewer. Zero: 15 s.
	Heartbeat time.Duration
	// MaxViewers is how many streams may be open at once; one more gets 503. Zero:
	// 100.
	MaxViewers int
	// Guard slows down those that guess the token. Nil: nothing does.
	Guard *guard.Guard
	// Logger gets a line for each login, refused or not, and for each failure.
	// Nil: nothing is logged.
	Logger *slog.Logger
	// Registerer gets the metrics. Nil: they are not collected anywhere.
	Registerer prometheus.Registerer
}

// Page serves the status page. Without its Start, what it shows does not change
// while it is being looked at. It is safe for concurrent use.
type Page struct {
	admins     tokens.Admins
	people     *oidcauth.People
	used       *tokens.Uses
	guard      *guard.Guard
	sessions   *sessions
	feed       *feed
	heartbeat  time.Duration
	logger     *slog.Logger
	template   *template.Template
	routes     map[string]http.HandlerFunc
	handler    http.Handler
	api        *adminapi.API
	database   *db.Database
	clusters   *clusters.Store
	regions    *regions.Store
	changes    *audit.Log
	directory  *directory
	silence    time.Duration
	lifetime   time.Duration
	streams    func(region string) int
	stateBytes func(clusterID string) int
}

// New returns a page, or an error that names the field of config that is
// missing or wrong.
func New(config Config) (*Page, error) {
	switch {
	case config.Database == nil:
		return nil, errors.New("statuspage.Config: Database is required")
	case !config.Admins.Usable():
		return nil, errors.New("statuspage.Config: Admins must have a token, each of at least 16 bytes")
	}
	parsed, err := template.New("page.html").Funcs(functions()).ParseFS(assets, "assets/page.html")
	if err != nil {
		return nil, err
	}
	p := &Page{
		admins:     config.Admins,
		people:     config.People,
		used:       config.Used,
		guard:      config.Guard,
		sessions:   &sessions{db: config.Database, admins: config.Admins, people: config.People},
		heartbeat:  cmp.Or(config.Heartbeat, defaultHeartbeat),
		logger:     cmp.Or(config.Logger, slog.New(slog.DiscardHandler)),
		template:   parsed,
		database:   config.Database,
		clusters:   &clusters.Store{Database: config.Database},
		regions:    &regions.Store{Database: config.Database},
		changes:    &audit.Log{Database: config.Database},
		silence:    cmp.Or(config.Silence, adminapi.Silence),
		lifetime:   config.TokenLifetime,
		streams:    config.Streams,
		stateBytes: config.StateBytes,
	}
	p.directory = &directory{p.clusters, p.regions}
	p.api = &adminapi.API{Logger: p.logger, Conditions: []adminapi.Condition{
		adminapi.On(db.ErrBusy, http.StatusServiceUnavailable, "busy", "the database is busy"),
		adminapi.On(context.DeadlineExceeded, http.StatusServiceUnavailable, "busy", "the database is busy"),
	}}
	p.feed = newFeed(
		&source{
			clusters: p.clusters, regions: p.regions, changes: p.changes, directory: p.directory,
			streams: config.Streams, stateBytes: config.StateBytes, log: config.Log, silence: p.silence, lifetime: p.lifetime,
		},
		parsed,
		p.logger,
	)
	p.feed.interval = cmp.Or(config.Interval, defaultInterval)
	p.feed.maxViewers = cmp.Or(config.MaxViewers, defaultMaxViewers)
	if config.Registerer != nil {
		if err := errors.Join(config.Registerer.Register(p.feed.looks), config.Registerer.Register(p.feed.watching)); err != nil {
			return nil, err
		}
	}
	files, err := fs.Sub(assets, "assets")
	if err != nil {
		return nil, err
	}
	p.routes = map[string]http.HandlerFunc{
		"GET " + Path:          p.enter(p.show),
		"GET " + Path + "/{$}": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, Path, http.StatusPermanentRedirect) },
		"GET /{$}":             func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, Path, http.StatusFound) },
		"GET " + eventsPath:    p.enter(p.watch),
		"GET " + rowsPath:      p.enter(p.list),
		"GET " + servicesPath:  p.enter(p.services),
		"GET " + clustersPath:  p.enter(p.clusterList().serve(p)),
		"GET " + regionsPath:   p.enter(p.regionList().serve(p)),

		"GET " + servicesPath + "/{project}/{service}/{environment}": p.enter(p.service),
		"GET " + clustersPath + "/{cluster}":                         p.enter(p.cluster),
		"GET " + regionsPath + "/{region}":                           p.enter(p.region),

		"GET " + loginPath:   p.showLogin,
		"POST " + loginPath:  p.login,
		"POST " + logoutPath: p.logout,

		"GET " + ssoPath:               p.beginSSO,
		"GET " + oidcauth.CallbackPath: p.endSSO,
	}
	for name, kind := range map[string]string{"style.css": "text/css; charset=utf-8", "script.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml"} {
		p.routes["GET "+assetsPath+name] = asset(files, name, kind)
	}
	mux := http.NewServeMux()
	for pattern, handler := range p.routes {
		mux.HandleFunc(pattern, handler)
	}
	p.handler = origin.Handler(secure(http.NewCrossOriginProtection().Handler(mux)), nil)
	return p, nil
}

// ServeHTTP implements [http.Handler] for [Path] and all below it, and for [Root], from
// which it leads there.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) { p.handler.ServeHTTP(w, r) }

// Routes returns the patterns of all that the page answers, sorted.
func (p *Page) Routes() []string { return slices.Sorted(maps.Keys(p.routes)) }

// Start reads the database while there are viewers, and sends them what has changed,
// until ctx ends. Then it ends their streams and returns nil.
func (p *Page) Start(ctx context.Context) error { return p.feed.start(ctx) }

// secure sets the headers that every answer has.
func secure(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range map[string]string{
			"Content-Security-Policy":      "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
			"X-Content-Type-Options":       "nosniff",
			"X-Frame-Options":              "DENY",
			"Referrer-Policy":              "same-origin",
			"Cross-Origin-Opener-Policy":   "same-origin",
			"Cross-Origin-Resource-Policy": "same-origin",
			"Cache-Control":                "no-store",
		} {
			w.Header().Set(name, value)
		}
		next.ServeHTTP(w, r)
	})
}

// asset serves one file, which is no secret and changes with the program only.
func asset(files fs.FS, name, kind string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", kind)
		w.Header().Set("Cache-Control", "public, max-age=300")
		http.ServeFileFS(w, r, files, name)
	}
}

// document is what the template page shows.
type document struct {
	Now      time.Time
	Sections []rendered
	// CanLogout is false for a request with a bearer.
	CanLogout bool
	// Query is the search text.
	Query string
}

func (p *Page) show(w http.ResponseWriter, r *http.Request, who visitor) {
	v, err := viewOf(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
	defer cancel()
	sections, err := p.feed.latest(ctx, v)
	if err != nil {
		p.fail(w, r, "read", err)
		return
	}
	p.render(
		w,
		r,
		http.StatusOK,
		"page",
		document{Now: time.Now().UTC(), Sections: sections, CanLogout: who.sessionID != "", Query: clean(v.query)},
	)
}

// render answers with a template.
func (p *Page) render(w http.ResponseWriter, r *http.Request, status int, name string, data any) {
	body, err := execute(p.template, name, data)
	if err != nil {
		p.logger.ErrorContext(r.Context(), "page cannot be rendered", slog.String("template", name), slog.Any("error", err))
		http.Error(w, "the control plane failed; its log says why", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body)) // a client that went away is no error
}

// fail answers an error that is the control plane's own.
func (p *Page) fail(w http.ResponseWriter, r *http.Request, what string, err error) {
	if r.Context().Err() == nil {
		p.logger.ErrorContext(r.Context(), "status page failed", slog.String("request", what), slog.Any("error", err))
	}
	w.Header().Set("Retry-After", "5")
	p.render(w, r, http.StatusServiceUnavailable, "trouble", errors.Is(err, db.ErrFull))
}
