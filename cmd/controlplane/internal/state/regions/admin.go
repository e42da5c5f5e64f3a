package regions

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/adminapi"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

// regionName is what a region and its platform may be called.
var regionName = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$`)

// resourceID is what a deployment, sentinel or policy may be called.
var resourceID = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_.-]{0,98}[A-Za-z0-9])?$`)

// admin has the endpoints of the administration of regions.
type admin struct{ store *Store }

// AdminRoutes returns the endpoints of the administration of regions and what
// they run.
func AdminRoutes(store *Store) []adminapi.Route {
	const region = adminapi.Prefix + "regions/{region_id}"
	a := &admin{store}
	return []adminapi.Route{
		{Method: http.MethodGet, Path: adminapi.Prefix + "regions", Handle: a.list},
		{Method: http.MethodPut, Path: region, Handle: adminapi.By(regionPath, a.put)},
		{Method: http.MethodGet, Path: region, Handle: adminapi.By(regionPath, a.show)},
		{Method: http.MethodDelete, Path: region, Handle: adminapi.By(regionPath, adminapi.Removal(store.RemoveRegion))},
		{Method: http.MethodPost, Path: region + "/rotate-token", Handle: adminapi.By(regionPath, a.rotateToken)},
		{Method: http.MethodPost, Path: region + "/allow-mass-delete", Handle: adminapi.By(regionPath, a.approveDeletions)},
		{Method: http.MethodGet, Path: region + "/deployments", Handle: adminapi.By(regionPath, a.listResources(deployments))},
		{Method: http.MethodGet, Path: region + "/sentinels", Handle: adminapi.By(regionPath, a.listResources(sentinels))},
		{Method: http.MethodGet, Path: region + "/policies", Handle: adminapi.By(regionPath, a.listResources(policies))},
		{Method: http.MethodGet, Path: region + "/deployments/{id}", Handle: adminapi.By(resourcePath, a.showResource(deployments))},
		{Method: http.MethodGet, Path: region + "/sentinels/{id}", Handle: adminapi.By(resourcePath, a.showResource(sentinels))},
		{Method: http.MethodGet, Path: region + "/policies/{id}", Handle: adminapi.By(resourcePath, a.showResource(policies))},
		{Method: http.MethodPut, Path: region + "/deployments/{id}", Handle: adminapi.By(resourcePath, a.putResource(store.PutDeployment))},
		{
			Method: http.MethodDelete,
			Path:   region + "/deployments/{id}",
			Handle: adminapi.By(resourcePath, a.archiveResource(store.PutDeployment)),
		},
		{Method: http.MethodPut, Path: region + "/sentinels/{id}", Handle: adminapi.By(resourcePath, a.putResource(store.PutSentinel))},
		{Method: http.MethodDelete, Path: region + "/sentinels/{id}", Handle: adminapi.By(resourcePath, a.archiveResource(store.PutSentinel))},
		{Method: http.MethodPut, Path: region + "/policies/{id}", Handle: adminapi.By(resourcePath, a.putResource(store.PutPolicy))},
		{Method: http.MethodDelete, Path: region + "/policies/{id}", Handle: adminapi.By(resourcePath, a.archiveResource(store.PutPolicy))},
		{Method: http.MethodPost, Path: adminapi.Prefix + "new-log-epoch", Handle: a.startLogEpoch},
		{Method: http.MethodGet, Path: adminapi.Prefix + "log", Handle: a.showLog},
	}
}

func regionPath(r *http.Request) (string, error) {
	return adminapi.PathName(r, "region_id", resourceID)
}

// resourceKey is the resource that a path names.
type resourceKey struct{ region, id string }

func resourcePath(r *http.Request) (key resourceKey, err error) {
	if key.region, err = regionPath(r); err != nil {
		return key, err
	}
	key.id, err = adminapi.PathName(r, "id", resourceID)
	return key, err
}

// AdminConditions returns how the errors of a [Store] are answered.
func AdminConditions() []adminapi.Condition {
	return []adminapi.Condition{
		{
			Err: ErrUnknownRegion,
			Answer: adminapi.Error{
				Status:  http.StatusNotFound,
				Code:    "unknown_region",
				Message: "this region is not registered, or its name belongs to another",
			},
		},
		{
			Err: ErrNotEmpty,
			Answer: adminapi.Error{
				Status:  http.StatusConflict,
				Code:    "not_empty",
				Message: "the region has resources that are not archived; delete them first, or give them up with ?abandon=true",
			},
		},
		{
			Err: ErrAlive,
			Answer: adminapi.Error{
				Status:  http.StatusConflict,
				Code:    "alive",
				Message: "the region's agent sends heartbeats; stop it, and wait two minutes",
			},
		},
		{
			Err:    ErrUnknownResource,
			Answer: adminapi.Error{Status: http.StatusNotFound, Code: "unknown_resource", Message: "the region has no such resource"},
		},
		{
			Err: ErrRegistered,
			Answer: adminapi.Error{
				Status:  http.StatusConflict,
				Code:    "name_taken",
				Message: "another region is registered with this name, and cannot be replaced",
			},
		},
		{
			Err: ErrNameTaken,
			Answer: adminapi.Error{
				Status:  http.StatusConflict,
				Code:    "name_taken",
				Message: "the name belongs to another region; put it with replace to give it to this one",
			},
		},
	}
}

// regionAnswer is the answer to the registration of a region.
type regionAnswer struct {
	RegionID string `json:"region_id"`
	Name     string `json:"name"`
	Token    string `json:"token,omitempty"`
}

func (a *admin) put(w http.ResponseWriter, r *http.Request, id string) error {
	var body struct {
		Name     string `json:"name"`
		Platform string `json:"platform"`
		Replace  bool   `json:"replace"`
	}
	if err := adminapi.Decode(w, r, &body, true); err != nil {
		return err
	}
	for _, field := range []struct{ name, value string }{{"name", body.Name}, {"platform", body.Platform}} {
		if !regionName.MatchString(field.value) {
			return adminapi.Invalid(
				starbase.FieldError{
					Field: field.name,
					Value: fmt.Sprintf("%.80q", field.value),
					Want:  "1 to 63 characters of a-z, 0-9, . and -, like us-east-1.aws",
				},
			)
		}
	}
	token, created, err := a.store.PutRegion(r.Context(), Region{ID: id, Name: body.Name, Platform: body.Platform}, body.Replace)
	if err != nil {
		return err
	}
	return adminapi.WriteJSON(w, adminapi.CreatedStatus(created), regionAnswer{RegionID: id, Name: body.Name, Token: token})
}

func (a *admin) list(w http.ResponseWriter, r *http.Request) error {
	return adminapi.WritePart(r.Context(), w, adminapi.NewQuery(r), "regions", func(r *Region) string { return r.Name }, a.store.RegionsAfter)
}

// regionView is one region as GET shows it.
type regionView struct {
	Region
	// LogEpoch and LogHead are the epoch of the region's log and the version of its newest
	// change. Empty: it has none.
	LogEpoch string `json:"log_epoch,omitempty"`
	LogHead  uint64 `json:"log_head,omitempty"`

	Resources []Resource `json:"resources"`
}

func (a *admin) show(w http.ResponseWriter, r *http.Request, id string) error {
	region, resources, err := a.store.Resources(r.Context(), id)
	if err != nil {
		return err
	}
	view := regionView{Region: region, Resources: resources}
	if view.Resources == nil {
		view.Resources = []Resource{}
	}
	switch page, err := a.store.Database.Log.Read(r.Context(), view.Name, 0, 1); {
	case err == nil:
		view.LogEpoch, view.LogHead = page.Epoch, page.Head
	case !errors.Is(err, statesync.ErrUnknownScope):
		return err
	}
	return adminapi.WriteJSON(w, http.StatusOK, view)
}

func (a *admin) rotateToken(w http.ResponseWriter, r *http.Request, id string) error {
	overlap, err := adminapi.DecodeOverlap(w, r)
	if err != nil {
		return err
	}
	token, err := a.store.RotateToken(r.Context(), id, overlap)
	if err != nil {
		return err
	}
	return adminapi.WriteJSON(w, http.StatusOK, regionAnswer{RegionID: id, Token: token})
}

// put is one of the store's Put methods.
type put func(ctx context.Context, regionID, id string, want Wanted) (changed bool, err error)

// resourceHandler answers a request about one resource.
type resourceHandler func(w http.ResponseWriter, r *http.Request, key resourceKey) error

func (a *admin) putResource(do put) resourceHandler {
	return func(w http.ResponseWriter, r *http.Request, key resourceKey) error {
		var want Wanted
		if err := adminapi.Decode(w, r, &want, true); err != nil {
			return err
		}
		return a.want(w, r, key, do, want)
	}
}

// archiveResource is the soft removal of a resource: the row stays and its state
// changes, because only a change reaches the agent.
func (a *admin) archiveResource(do put) resourceHandler {
	return func(w http.ResponseWriter, r *http.Request, key resourceKey) error {
		return a.want(w, r, key, do, Wanted{State: "archived"})
	}
}

func (a *admin) want(w http.ResponseWriter, r *http.Request, key resourceKey, do put, want Wanted) error {
	changed, err := do(r.Context(), key.region, key.id, want)
	wrong, ok := errors.AsType[*invalidError](err)
	switch {
	case ok && r.Method == http.MethodDelete:
		return ErrUnknownResource
	case ok:
		return wrong.answer()
	case errors.Is(err, ErrNameTaken):
		return &adminapi.Error{Status: http.StatusConflict, Code: "name_taken", Message: err.Error()}
	case err != nil:
		return err
	}
	return adminapi.WriteJSON(w, http.StatusOK, map[string]bool{"changed": changed})
}

// startLogEpoch is for after the database was restored from a backup: every
// agent of a region lists again.
func (a *admin) startLogEpoch(w http.ResponseWriter, r *http.Request) error {
	if err := adminapi.DecodeOptional(w, r, &struct{}{}); err != nil {
		return err
	}
	if err := a.store.StartLogEpoch(r.Context()); err != nil {
		return err
	}
	return adminapi.WriteJSON(w, http.StatusOK, map[string]bool{"changed": true})
}
