// Package owntoken keeps the token of an agent for its control plane, and renews it when the
// control plane asks for that; see package agenttoken.
//
// A person gives the agent a first token, as a file or a variable. What the agent renews it keeps in
// a Secret of its own, with the hash of the token that it was given: when people give it another
// one, that is used. So nothing that people, or what they deploy with, have written is ever
// overwritten.
package owntoken

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/seed-9e1ffd66/trueup/cmd/api/agenttoken"
	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/between"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
	"github.com/seed-9e1ffd66/trueup/internal/httpretry"
	"github.com/seed-9e1ffd66/trueup/reconcile"
)

// The keys of the Secret.
const (
	keyToken = "token" // as renewed
	keyGiven = "given" // SHA-256 of the token that it goes back to, in hex
	keyAgent = "agent" // Config.Agent
)

const (
	// interval is how soon a renewal that failed is tried again, at the latest.
	interval = time.Minute
	// rest is how long a renewed token is not renewed again, whatever the control plane asks for, and after
	// which the Secret is looked at again; up to half of it is added. A token that lives for less than
	// four times as long rests for a quarter of its life.
	rest     = time.Hour
	restPart = 4
	// timeout bounds a request to the API server.
	timeout = 10 * time.Second
	// maxAnswer is the size in bytes above which an answer of the control plane is cut.
	maxAnswer = 64 << 10
)

// Config is what a [Source] needs.
type Config struct {
	// Given returns the token that people gave the agent, as it is now. Required.
	Given func() (string, error)
	// Agent names the cluster or region: the Secret of another one is left alone. Required with Secret.
	Agent string
	// Kubernetes reaches the API server with the rights to get, create and patch the Secret.
	// Required with Secret.
	Kubernetes dynamic.Interface
	// Secret is where renewed tokens are kept. Zero: the agent renews none.
	Secret types.NamespacedName
	// ControlPlane is its URL. Required with Secret.
	ControlPlane *url.URL
	// Transport carries the requests to it. Nil: one of its own.
	Transport http.RoundTripper
	// Logger gets a line for each renewal. Required.
	Logger *slog.Logger
}

// Source has the token of an agent. It is safe for concurrent use.
type Source struct {
	config  Config
	client  between.Client
	secrets dynamic.ResourceInterface // nil: it renews none
	loop    *reconcile.Loop

	mu     sync.Mutex
	loaded bool
	own    renewed
	// turned is true while the own token is refused and the given one is tried.
	turned bool
	due    bool
	// restUntil is before when own is not renewed again.
	restUntil time.Time
	// kept is from when on the Secret is looked at again, and look that it is time.
	kept time.Time
	look bool
	said string // the last error of a load
}

// renewed is a token that the agent has renewed, and what it goes back to.
type renewed struct{ token, given string }

// New returns a source.
func New(config Config) *Source {
	s := &Source{config: config, client: between.Client{HTTP: httpretry.New(httpretry.Config{Transport: config.Transport})}}
	if config.Secret.Name != "" {
		secrets := schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
		s.secrets = config.Kubernetes.Resource(secrets).Namespace(config.Secret.Namespace)
	}
	s.loop = &reconcile.Loop{
		Name: "token renewal", Reconciler: s, Interval: interval, Jitter: 0.5, Logger: config.Logger,
		Backoff: reconcile.Backoff{Min: time.Second, Max: interval, Jitter: 0.5},
	}
	return s
}

// Loop renews the token when it is time. It does nothing without a Secret.
func (s *Source) Loop() reconcile.Starter { return s.loop }

// Token returns the token to use now: the own one, unless people have given another since, or it
// was refused.
func (s *Source) Token(ctx context.Context) (string, error) {
	given, err := s.config.Given()
	if err != nil || s.secrets == nil {
		return given, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.loaded {
		if err := s.load(ctx); err != nil {
			// The given token may do, and what it may not do says so.
			s.unread(ctx, err)
			return given, nil
		}
	}
	if s.own.token != "" && s.own.given == hash(given) && !s.turned {
		return s.own.token, nil
	}
	return given, nil
}

// Refused says that the control plane does not know the token. The next one is the token that another
// process of the agent has renewed since, else in turns the given one and the own one.
func (s *Source) Refused(ctx context.Context, token string) {
	if s.secrets == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.own
	if err := s.load(ctx); err != nil {
		s.unread(ctx, err)
	}
	s.turned = s.own == before && token == s.own.token
}

// Answered takes the header of an answer of the control plane to a token that was not refused. It has
// the token renewed if the header asks for that, and once an hour the Secret written again if that
// has no token any more.
func (s *Source) Answered(header http.Header) {
	if s.secrets == nil {
		return
	}
	s.mu.Lock()
	before := s.due || s.look
	s.due = s.due || header.Get(agenttoken.Header) == agenttoken.Renew
	s.look = s.look || s.own.token != "" && !time.Now().Before(s.kept)
	trigger := !before && (s.due || s.look)
	s.mu.Unlock()
	if trigger {
		s.loop.Trigger()
	}
}

// Reconcile implements [reconcile.Reconciler]: it renews the token if it is time, and looks at the
// Secret.
func (s *Source) Reconcile(ctx context.Context) (reconcile.Result, error) {
	s.mu.Lock()
	due, look := s.due, s.look
	s.mu.Unlock()
	if look {
		if err := s.keep(ctx); err != nil {
			return reconcile.Result{}, fmt.Errorf("keep token: secret %s: %w", s.config.Secret, err)
		}
	}
	if due {
		if err := s.renew(ctx); err != nil {
			return reconcile.Result{}, fmt.Errorf("renew token: %w", err)
		}
	}
	return reconcile.Result{}, nil
}

// keep writes the own token to the Secret again if that has none, as after people have deleted it, and
// the token is in use.
func (s *Source) keep(ctx context.Context) error {
	token, err := s.Token(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	own := s.own
	s.look, s.kept = false, time.Now().Add(spread(rest)) // also after an error, which the loop logs
	s.mu.Unlock()
	if token != own.token {
		return nil
	}
	stored, err := s.store(ctx, own, false)
	if stored {
		s.config.Logger.WarnContext(ctx, "renewed token written again: its secret had none",
			slog.String("secret", s.config.Secret.String()))
	}
	return err
}

// spread adds up to half of it to a time.
func spread(d time.Duration) time.Duration { return d + rand.N(max(0, d/2)+1) }

func (s *Source) renew(ctx context.Context) error {
	given, err := s.config.Given()
	if err != nil {
		return err
	}
	token, err := s.Token(ctx)
	if err != nil {
		return err
	}
	if s.rests(token) {
		s.renewed(renewed{}, 0)
		return nil
	}
	next, err := s.ask(ctx, token)
	refused, ok := errors.AsType[*refusal](err)
	switch {
	case ok && refusesToken(refused.status, refused.code):
		s.Refused(ctx, token)
		return err
	case ok && refused.status == http.StatusConflict:
		// Another process was first, or it is no longer time.
		s.Refused(ctx, token)
		s.renewed(renewed{}, 0)
		return nil
	case err != nil:
		return err
	}
	// Before its first use, which ends the token of now: whatever dies here has one that is valid.
	own := renewed{token: next.Token, given: hash(given)}
	if _, err := s.store(ctx, own, true); err != nil {
		return fmt.Errorf("secret %s: %w", s.config.Secret, err)
	}
	life := time.Duration(next.ExpiresInSeconds) * time.Second
	s.renewed(own, life)
	s.config.Logger.InfoContext(ctx, "token renewed", slog.String("secret", s.config.Secret.String()), slog.Duration("expires_in", life))
	return nil
}

// rests reports whether this is the own token, which was renewed just before.
func (s *Source) rests(token string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return token == s.own.token && time.Now().Before(s.restUntil)
}

// renewed notes that it is no longer time, and the own token with its life, unless it is zero.
func (s *Source) renewed(own renewed, life time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.due = false
	if own != (renewed{}) {
		s.own, s.turned = own, false
		s.restUntil = time.Now().Add(spread(min(rest, life/restPart)))
		s.look, s.kept = false, time.Now().Add(spread(rest))
	}
}

// refusal is an answer of the control plane that is not 200.
type refusal struct {
	status        int
	code, message string // of the error body, empty when there was none
}

func (r *refusal) Error() string {
	return fmt.Sprintf("the control plane answered %d %s: %s", r.status, r.code, r.message)
}

// RefusesToken reports whether the answer says that the token of its request is not valid. Its body
// can still be read.
func RefusesToken(answer *http.Response) bool {
	if answer.StatusCode != http.StatusTooManyRequests {
		return refusesToken(answer.StatusCode, "")
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	answer.Body.Close() //nolint:errcheck,gosec // it was read, or is of no use
	answer.Body = io.NopCloser(bytes.NewReader(body))
	return err == nil && refusesToken(answer.StatusCode, detail(body).Code)
}

// refusesToken reports whether an answer says that the token is not valid. A control plane answers 429
// in place of 401 to an address that has sent too many such tokens.
func refusesToken(status int, code string) bool {
	return status == http.StatusUnauthorized || status == http.StatusTooManyRequests && code == agenttoken.TooManyAttempts
}

func detail(body []byte) starbase.ErrorDetail {
	var answer starbase.ErrorBody
	_ = json.Unmarshal(body, &answer) // zero: it is none of a control plane
	return answer.Error
}

// ask asks the control plane for the next token.
func (s *Source) ask(ctx context.Context, token string) (next agenttoken.Renewed, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.config.ControlPlane.JoinPath(agenttoken.Path).String(), http.NoBody)
	if err != nil {
		return next, err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := s.client.Do(request)
	if err != nil {
		return next, err
	}
	defer response.Body.Close() //nolint:errcheck // it was read, or is of no use
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	switch {
	case response.StatusCode != http.StatusOK:
		said := detail(body)
		return next, &refusal{status: response.StatusCode, code: said.Code, message: said.Message}
	case err != nil:
		return next, err
	}
	// What is not of the control plane may have a token too, of another use: it would replace the only
	// valid one. The errors do not show the body, which may have one.
	var members struct {
		Life *int64 `json:"expires_in_seconds"`
	}
	if json.Unmarshal(body, &next) != nil || !program.IsToken(next.Token) || json.Unmarshal(body, &members) != nil || members.Life == nil {
		return next, errors.New("the control plane answered 200 with no token and its life: is there a proxy in between?")
	}
	return next, nil
}
