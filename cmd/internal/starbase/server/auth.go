package server

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/adminapi"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/audit"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/serve"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/tokens"
)

// agentKey is the context key of the cluster whose token a request carries.
type agentKey struct{}

func (s *Server) authenticateAdmin(w http.ResponseWriter, r *http.Request) error {
	if wait := s.guard.Wait(r, "admin"); wait > 0 {
		return errTooManyAttempts(w, wait)
	}
	token, ok := tokens.Bearer(r.Header)
	if !ok || !s.admins.Valid(token) {
		s.guard.Failed(r, "admin", token)
		return errUnauthorized(w)
	}
	s.guard.Succeeded(r)
	return dispatch(s.adminMux, w, r.WithContext(audit.NewContext(r.Context(), "admin/"+tokens.Fingerprint(token))))
}

func (s *Server) authenticateAgent(w http.ResponseWriter, r *http.Request) error {
	if wait := s.guard.Wait(r, "cluster"); wait > 0 {
		return errTooManyAttempts(w, wait)
	}
	token, ok := tokens.Bearer(r.Header)
	clusterID, err := "", tokens.ErrUnknown
	if ok {
		clusterID, err = s.store.Authenticate(r.Context(), token)
	}
	switch {
	case errors.Is(err, tokens.ErrUnknown):
		s.guard.Failed(r, "cluster", token)
		return errUnauthorized(w)
	case err != nil:
		return err
	}
	s.guard.Succeeded(r)
	leave, wait := s.limits.Request("cluster/"+clusterID, r)
	if wait > 0 {
		serve.RetryAfter(w.Header(), wait)
		return &adminapi.Error{Status: http.StatusTooManyRequests, Code: "too_many_requests", Message: "too many requests with this token at once, or too many bytes; wait"}
	}
	defer leave()
	ctx := audit.NewContext(context.WithValue(r.Context(), agentKey{}, clusterID), audit.KindCluster+"/"+clusterID)
	return dispatch(s.agentMux, w, r.WithContext(ctx))
}

// dispatch lets the mux answer and stores the route of the request.
func dispatch(mux *http.ServeMux, w http.ResponseWriter, r *http.Request) error {
	mux.ServeHTTP(w, r)
	if recorder, ok := w.(*statusRecorder); ok {
		recorder.route = strings.TrimPrefix(r.Pattern, r.Method+" ")
	}
	return nil
}

// ownCluster lets only the agent of the cluster in the path through.
func (s *Server) ownCluster(handle adminapi.Handler) adminapi.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		own, _ := r.Context().Value(agentKey{}).(string)
		asked := r.PathValue("cluster_id")
		if own != "" && own == asked {
			return handle(w, r)
		}
		if _, err := s.store.Version(r.Context(), asked); err != nil {
			return err
		}
		return &adminapi.Error{Status: http.StatusForbidden, Code: "forbidden", Message: "the token belongs to another cluster"}
	}
}

func errTooManyAttempts(w http.ResponseWriter, wait time.Duration) error {
	serve.RetryAfter(w.Header(), wait)
	return &adminapi.Error{Status: http.StatusTooManyRequests, Code: "too_many_attempts", Message: "too many tokens that are not valid came from this address; wait"}
}

func errUnauthorized(w http.ResponseWriter) error {
	w.Header().Set("WWW-Authenticate", "Bearer")
	return &adminapi.Error{Status: http.StatusUnauthorized, Code: "unauthorized", Message: "the bearer token is missing or not valid"}
}
