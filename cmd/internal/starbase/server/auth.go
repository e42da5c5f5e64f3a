package server

import (
	"context"
	"errors"
	"net/http"
	"strings"
)

// agentKey is the context key of the cluster whose token a request carries.
type agentKey struct{}

func (s *Server) authenticateAdmin(w http.ResponseWriter, r *http.Request) error {
	token, ok := bearer(r)
	if !ok || !sameToken(token, s.admin) {
		return errUnauthorized(w)
	}
	return dispatch(s.adminMux, w, r)
}

func (s *Server) authenticateAgent(w http.ResponseWriter, r *http.Request) error {
	token, ok := bearer(r)
	if !ok {
		return errUnauthorized(w)
	}
	clusterID, err := s.store.Authenticate(r.Context(), token)
	if errors.Is(err, ErrUnknownToken) {
		return errUnauthorized(w)
	}
	if err != nil {
		return err
	}
	return dispatch(s.agentMux, w, r.WithContext(context.WithValue(r.Context(), agentKey{}, clusterID)))
}

// dispatch lets the mux answer and notes the route it chose.
func dispatch(mux *http.ServeMux, w http.ResponseWriter, r *http.Request) error {
	mux.ServeHTTP(w, r)
	if recorder, ok := w.(*statusRecorder); ok {
		recorder.route = strings.TrimPrefix(r.Pattern, r.Method+" ")
	}
	return nil
}

// ownCluster lets only the agent of the cluster in the path through.
func (s *Server) ownCluster(handle handler) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		own, _ := r.Context().Value(agentKey{}).(string)
		asked := r.PathValue("cluster_id")
		if own != "" && own == asked {
			return handle(w, r)
		}
		if _, err := s.store.Version(r.Context(), asked); err != nil {
			return err
		}
		return &apiError{status: http.StatusForbidden, code: "forbidden", message: "the token belongs to another cluster"}
	}
}

// bearer returns the token of the request.
func bearer(r *http.Request) (string, bool) {
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	return token, ok && strings.EqualFold(scheme, "Bearer") && token != ""
}

func errUnauthorized(w http.ResponseWriter) error {
	w.Header().Set("WWW-Authenticate", "Bearer")
	return &apiError{status: http.StatusUnauthorized, code: "unauthorized", message: "the bearer token is missing or not valid"}
}
