package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/cluster"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/starbase"
)

// regionName is what a region and its platform may be called.
var regionName = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$`)

// resourceID is what a deployment, sentinel or policy may be called.
var resourceID = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_.-]{0,98}[A-Za-z0-9])?$`)

// regionRoutes are the routes of the administration of regions.
func (s *Server) regionRoutes() []route {
	const region = adminPrefix + "regions/{region_id}"
	return []route{
		{http.MethodGet, adminPrefix + "regions", s.listRegions},
		{http.MethodPut, region, s.putRegion},
		{http.MethodGet, region, s.showRegion},
		{http.MethodPost, region + "/rotate-token", s.rotateRegionToken},
		{http.MethodPut, region + "/deployments/{id}", s.putResource(s.regions.PutDeployment)},
		{http.MethodDelete, region + "/deployments/{id}", s.archiveResource(s.regions.PutDeployment)},
		{http.MethodPut, region + "/sentinels/{id}", s.putResource(s.regions.PutSentinel)},
		{http.MethodDelete, region + "/sentinels/{id}", s.archiveResource(s.regions.PutSentinel)},
		{http.MethodPut, region + "/policies/{id}", s.putResource(s.regions.PutPolicy)},
		{http.MethodDelete, region + "/policies/{id}", s.archiveResource(s.regions.PutPolicy)},
		{http.MethodPost, adminPrefix + "new-log-epoch", s.startLogEpoch},
	}
}

// pathName returns a path value that must match.
func pathName(r *http.Request, name string, pattern *regexp.Regexp) (string, error) {
	value := r.PathValue(name)
	if !pattern.MatchString(value) {
		return "", errInvalid(starbase.FieldError{Field: name, Value: fmt.Sprintf("%.80q", value), Want: "a name in the path like " + pattern.String()})
	}
	return value, nil
}

// regionAnswer is the answer to the registration of a region.
type regionAnswer struct {
	RegionID string `json:"region_id"`
	Name     string `json:"name"`
	Token    string `json:"token,omitempty"`
}

func (s *Server) putRegion(w http.ResponseWriter, r *http.Request) error {
	id, err := pathName(r, "region_id", resourceID)
	if err != nil {
		return err
	}
	var body struct {
		Name     string `json:"name"`
		Platform string `json:"platform"`
		Replace  bool   `json:"replace"`
	}
	if err := decodeBody(w, r, &body, true); err != nil {
		return err
	}
	for _, field := range []struct{ name, value string }{{"name", body.Name}, {"platform", body.Platform}} {
		if !regionName.MatchString(field.value) {
			return errInvalid(starbase.FieldError{Field: field.name, Value: fmt.Sprintf("%.80q", field.value), Want: "1 to 63 characters of a-z, 0-9, . and -, like us-east-1.aws"})
		}
	}
	token, isNew, err := s.regions.PutRegion(r.Context(), cluster.Region{ID: id, Name: body.Name, Platform: body.Platform}, body.Replace)
	if err != nil {
		return err
	}
	s.writeJSON(w, r, created(Change{Created: isNew}), regionAnswer{RegionID: id, Name: body.Name, Token: token})
	return nil
}

func (s *Server) listRegions(w http.ResponseWriter, r *http.Request) error {
	regions, err := s.regions.Regions(r.Context())
	if err != nil {
		return err
	}
	if regions == nil {
		regions = []cluster.Region{}
	}
	s.writeJSON(w, r, http.StatusOK, map[string]any{"regions": regions})
	return nil
}

// regionView is one region as GET shows it.
type regionView struct {
	cluster.Region
	Resources []cluster.Resource `json:"resources"`
}

func (s *Server) showRegion(w http.ResponseWriter, r *http.Request) error {
	id, err := pathName(r, "region_id", resourceID)
	if err != nil {
		return err
	}
	view := regionView{}
	if view.Region, view.Resources, err = s.regions.Resources(r.Context(), id); err != nil {
		return err
	}
	if view.Resources == nil {
		view.Resources = []cluster.Resource{}
	}
	s.writeJSON(w, r, http.StatusOK, view)
	return nil
}

func (s *Server) rotateRegionToken(w http.ResponseWriter, r *http.Request) error {
	id, err := pathName(r, "region_id", resourceID)
	if err != nil {
		return err
	}
	var body struct {
		OverlapSeconds int64 `json:"overlap_seconds"`
	}
	if err := decodeOptional(w, r, &body); err != nil {
		return err
	}
	overlap := time.Duration(body.OverlapSeconds) * time.Second
	if body.OverlapSeconds < 0 || overlap > maxOverlap || body.OverlapSeconds > int64(maxOverlap/time.Second) {
		return errInvalid(starbase.FieldError{Field: "overlap_seconds", Value: fmt.Sprint(body.OverlapSeconds), Want: "0 to 604800"})
	}
	token, err := s.regions.RotateToken(r.Context(), id, overlap)
	if err != nil {
		return err
	}
	s.writeJSON(w, r, http.StatusOK, regionAnswer{RegionID: id, Token: token})
	return nil
}

// put is one of the store's Put methods.
type put func(ctx context.Context, regionID, id string, want cluster.Wanted) (changed bool, err error)

func (s *Server) putResource(do put) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		var want cluster.Wanted
		if err := decodeBody(w, r, &want, true); err != nil {
			return err
		}
		return s.want(w, r, do, want)
	}
}

// archiveResource is the soft removal of a resource: its state changes, so that
// the change reaches the agent.
func (s *Server) archiveResource(do put) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		return s.want(w, r, do, cluster.Wanted{State: "archived"})
	}
}

func (s *Server) want(w http.ResponseWriter, r *http.Request, do put, want cluster.Wanted) error {
	regionID, err := pathName(r, "region_id", resourceID)
	if err != nil {
		return err
	}
	id, err := pathName(r, "id", resourceID)
	if err != nil {
		return err
	}
	changed, err := do(r.Context(), regionID, id, want)
	switch {
	case errors.Is(err, cluster.ErrInvalid) && r.Method == http.MethodDelete:
		return cluster.ErrUnknownResource
	case errors.Is(err, cluster.ErrInvalid):
		return &apiError{status: http.StatusBadRequest, code: "invalid", message: err.Error()}
	case errors.Is(err, cluster.ErrNameTaken):
		return &apiError{status: http.StatusConflict, code: "name_taken", message: err.Error()}
	case err != nil:
		return err
	}
	s.writeJSON(w, r, http.StatusOK, map[string]bool{"changed": changed})
	return nil
}

// startLogEpoch is for after the database was restored from a backup: every
// agent of a region lists anew.
func (s *Server) startLogEpoch(w http.ResponseWriter, r *http.Request) error {
	if err := s.regions.Log.NewEpoch(r.Context()); err != nil {
		return err
	}
	s.writeJSON(w, r, http.StatusOK, map[string]bool{"changed": true})
	return nil
}
