package simtest

import (
	"encoding/json"
	"net/http"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
)

// reviews is the group of requests that ask for rights and store nothing.
const reviews = "authorization.k8s.io"

// review answers a SelfSubjectAccessReview: the program has a right unless [Server.Allow], its role or
// a habit refuses the request that needs it.
func (s *Server) review(c call) *answer {
	if c.Resource != "selfsubjectaccessreviews" || c.Verb != "create" {
		return unserved(http.StatusNotFound, "NotFound", "the server could not find the requested resource",
			"of "+reviews+" it serves selfsubjectaccessreviews", c)
	}
	var asked struct {
		Spec struct {
			ResourceAttributes *struct {
				Verb, Group, Version, Resource, Subresource, Namespace, Name string
			} `json:"resourceAttributes"`
		} `json:"spec"`
	}
	var o Object
	if err := json.Unmarshal(c.body, &o); err != nil {
		return badRequest(c, err.Error())
	}
	if err := json.Unmarshal(c.body, &asked); err != nil {
		return badRequest(c, err.Error())
	}
	allowed := true
	if of := asked.Spec.ResourceAttributes; of != nil {
		r := applytest.Request{
			Verb: of.Verb, Group: of.Group, Version: of.Version, Resource: of.Resource, Subresource: of.Subresource,
			Namespace: of.Namespace, Name: of.Name,
		}
		allowed = (s.Allow == nil || s.Allow(r) == nil) && (s.rights == nil || s.rights(r) == nil) && (s.forbids == nil || !s.forbids(r))
	}
	o.Set(map[string]any{"allowed": allowed}, "status")
	return &answer{code: http.StatusCreated, body: o}
}
