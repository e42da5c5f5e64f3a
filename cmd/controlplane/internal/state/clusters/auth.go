package clusters

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/tokens"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/adminapi"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/agents"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/audit"
)

func (s *Server) authenticateAdmin(w http.ResponseWriter, r *http.Request) error {
	token, ok := tokens.Bearer(r.Header)
	if !ok {
		return s.gate.Guard.Refused(r, "admin", token)
	}
	admin, err := s.people.Authenticate(r, s.admins, s.gate.Guard, "admin", token)
	if err != nil {
		return err
	}
	s.used.Note(r.Context(), admin)
	ctx := audit.NewContext(context.WithValue(r.Context(), adminKey{}, admin), admin.Actor())
	return dispatch(s.adminMux, w, r.WithContext(ctx))
}

// adminKey is the context key of the administrator whose token a request carries.
type adminKey struct{}

// admit refuses an administrator whose role lacks the right that a route needs, and has a
// second person asked for where two are needed.
func (s *Server) admit(r *http.Request, route adminapi.Route) (*http.Request, error) {
	admin, ok := r.Context().Value(adminKey{}).(tokens.Admin)
	if !ok || !admin.May(route.Needs(), r.PathValue("project_id"), r.PathValue("region_id")) {
		return nil, lacks(admin, route)
	}
	if route.Operation.Action == "" {
		return r, nil
	}
	return r.WithContext(adminapi.NeedAgreement(r.Context(), func(w http.ResponseWriter, r *http.Request, body any) (bool, error) {
		return s.second.Agree(w, r, route.Operation.Action, admin, body)
	})), nil
}

// lacks is the answer to an administrator without the right that a route needs.
func lacks(admin tokens.Admin, route adminapi.Route) error {
	need := "the role administrator"
	if route.Needs() == adminapi.RightOperate {
		need = "the role operator of the project or region in the path, or administrator"
	}
	return &adminapi.Error{
		Status: http.StatusForbidden,
		Code:   "forbidden",
		Message: fmt.Sprintf("%s has the role %s and may change %s; %s needs %s",
			admin.Actor(), admin.Role, admin.Scope(), route.Operation.Name, need),
	}
}

func (s *Server) authenticateAgent(w http.ResponseWriter, r *http.Request) error {
	admitted, leave, err := s.gate.Enter(w.Header(), r, "", streams(r))
	if err != nil {
		return err
	}
	defer leave()
	return dispatch(s.agentMux, w, admitted)
}

// dispatch lets the mux answer and stores the route of the request.
func dispatch(mux *http.ServeMux, w http.ResponseWriter, r *http.Request) error {
	mux.ServeHTTP(w, r)
	if recorder, ok := w.(*statusRecorder); ok {
		recorder.route = strings.TrimPrefix(r.Pattern, r.Method+" ")
	}
	return nil
}

// ownCluster lets only the agent of the cluster in the path through. The answer is the same
// whether or not the other cluster is registered.
func (s *Server) ownCluster(handle adminapi.Handler) adminapi.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		own := agents.Of(r.Context()).ID
		if own != "" && own == r.PathValue("cluster_id") {
			return handle(w, r)
		}
		return &adminapi.Error{Status: http.StatusForbidden, Code: "forbidden", Message: "the token belongs to another cluster"}
	}
}
