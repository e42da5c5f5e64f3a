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
	const (
		list   = adminapi.Prefix + "regions"
		region = list + "/{region_id}"
	)
	a, agent := &admin{store}, store.Agents()
	routes := []adminapi.Route{
		adminapi.Get(region, regionPath, a.show).Named("getRegion", "Show a region, and the state of its resources as its agent reported it."),
		adminapi.Remove(region, regionPath, agent.Registered, agent.Remove).
			Named("removeRegion", "Remove a region that has no resources and whose agent is silent. What its agent has made stays."),
		adminapi.Post(region+"/rotate-token", regionPath, a.rotateToken).
			Named("rotateRegionToken", "Make another token. The one of before ends at once, or after an overlap."),
		adminapi.PostByTwo(region+"/allow-mass-delete", adminapi.ActionApprove, regionPath, agent.Approvable, a.approveDeletions).
			Refuses(http.StatusConflict, "other_deletions").
			Named("approveRegionDeletions", "Let the agent carry out the deletions that it holds, which it has reported under this digest."),
	}
	for _, c := range []struct {
		collection, one, name string
		put                   put
	}{
		{deployments, "a deployment", "Deployment", store.PutDeployment},
		{sentinels, "a sentinel", "Sentinel", store.PutSentinel},
		{policies, "a network policy", "Policy", store.PutPolicy},
	} {
		all := region + "/" + c.collection
		resource := all + "/{id}"
		routes = append(routes,
			adminapi.List(all, c.collection, regionPath, func(r *Resource) string { return r.ID }, a.listResources(c.collection)).
				Named("list"+c.name+"s", "List the "+c.collection+" of a region."),
			adminapi.Get(resource, resourcePath, a.showResource(c.collection)).Refuses(http.StatusNotFound, "unknown_resource").
				Named("get"+c.name, "Show "+c.one+" as it was put."),
			adminapi.Set(resource, resourcePath, putResource(c.put)).Operated().Refuses(http.StatusConflict, "name_taken").
				Named("put"+c.name, "Create or change "+c.one+", or its desired state alone."),
			adminapi.Delete(resource, resourcePath, archiveResource(c.put)).Operated().Refuses(http.StatusNotFound, "unknown_resource").
				Named("delete"+c.name, "Archive "+c.one+": its agent deletes it, and its row is purged later."),
		)
	}
	for i := range routes {
		routes[i] = routes[i].Refuses(http.StatusNotFound, "unknown_region")
	}
	return append(routes,
		adminapi.List(list, "regions", adminapi.Everything, func(r *Region) string { return r.Scope },
			func(ctx context.Context, _ struct{}, after string, limit int) ([]Region, error) {
				return store.RegionsAfter(ctx, after, limit)
			}).
			Named("listRegions", "List the regions."),
		adminapi.Put(region, regionPath, a.put).Refuses(http.StatusConflict, "name_taken").
			Named("putRegion", "Register a region: the answer has the token of its agent, once. For a registered one, set its platform."),
		adminapi.PostByTwo(adminapi.Prefix+"new-log-epoch", adminapi.ActionEpoch, adminapi.Everything, a.mayStartLogEpoch, a.startLogEpoch).
			Named("startLogEpoch", "Begin another epoch of the change log after the database was restored: all agents of regions list again."),
		adminapi.Get(adminapi.Prefix+"log", adminapi.Everything, a.showLog).
			Named("getLog", "Show how far the numbering of the change log is."),
	)
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
		adminapi.On(ErrUnknownRegion, http.StatusNotFound, "unknown_region",
			"this region is not registered, or its name belongs to another"),
		adminapi.On(ErrUnknownResource, http.StatusNotFound, "unknown_resource", "the region has no such resource"),
		adminapi.On(ErrRegistered, http.StatusConflict, "name_taken",
			"another region is registered with this name and platform, and cannot be replaced"),
		adminapi.On(ErrNameTaken, http.StatusConflict, "name_taken",
			"the name belongs to another region, or did on this platform; put it with replace to give it to this one"),
	}
}

// regionBody is the body that registers a region.
type regionBody struct {
	// Name is what the agent says it is, unique in the platform: 1 to 63 characters of a-z,
	// 0-9, . and -.
	Name string `json:"name"`
	// Platform is where it runs, such as aws.
	Platform string `json:"platform"`
	// Replace gives the region a name that belongs to another one that is not registered, or a name and
	// platform that another one had. An agent with the shared token that sends these then gets the log of
	// this region, which is empty.
	Replace bool `json:"replace,omitempty"`
}

// Wrong returns the first invalid field.
func (b regionBody) Wrong() []starbase.FieldError {
	for _, field := range []struct{ name, value string }{{"name", b.Name}, {"platform", b.Platform}} {
		if !regionName.MatchString(field.value) {
			return []starbase.FieldError{{
				Field: field.name,
				Value: fmt.Sprintf("%.80q", field.value),
				Want:  "1 to 63 characters of a-z, 0-9, . and -, like us-east-1.aws",
			}}
		}
	}
	return nil
}

// regionAnswer is the answer to the registration of a region.
type regionAnswer struct {
	RegionID string `json:"region_id"`
	Name     string `json:"name"`
	// Token is the token of the region's agent, shown this once. Empty: it was registered
	// before.
	Token string `json:"token,omitempty"`
}

func (a *admin) put(ctx context.Context, id string, body regionBody) (answer regionAnswer, created bool, err error) {
	token, created, err := a.store.PutRegion(ctx, Region{ID: id, Name: body.Name, Platform: body.Platform}, body.Replace)
	return regionAnswer{RegionID: id, Name: body.Name, Token: token}, created, err
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

func (a *admin) show(ctx context.Context, id string) (regionView, error) {
	region, resources, err := a.store.Resources(ctx, id)
	if err != nil {
		return regionView{}, err
	}
	view := regionView{Region: region, Resources: resources}
	if view.Resources == nil {
		view.Resources = []Resource{}
	}
	switch page, err := a.store.Database.Log.Read(ctx, view.Scope, 0, 1); {
	case err == nil:
		view.LogEpoch, view.LogHead = page.Epoch, page.Head
	case !errors.Is(err, statesync.ErrUnknownScope):
		return regionView{}, err
	}
	return view, nil
}

// rotated is the answer to the rotation of a token.
type rotated struct {
	RegionID string `json:"region_id"`
	// Token is the new one, shown this once.
	Token string `json:"token"`
	// OverlapSeconds is how long the token of before stays valid, as it was asked for. It ends before
	// that if its own end comes first, or once the agent has renewed the new token:
	// previous_token_until of the object has the end of now.
	OverlapSeconds int64 `json:"overlap_seconds"`
}

func (a *admin) rotateToken(ctx context.Context, id string, body adminapi.Rotation) (rotated, error) {
	token, err := a.store.Agents().Rotate(ctx, id, body.Overlap())
	return rotated{id, token, body.OverlapSeconds}, err
}

// put is one of the store's Put methods.
type put func(ctx context.Context, regionID, id string, want Wanted) (changed bool, err error)

// changed is the answer to a change.
type changed struct {
	// Changed is false if the database already matched the request.
	Changed bool `json:"changed"`
}

func putResource(do put) func(ctx context.Context, key resourceKey, want Wanted) (changed, error) {
	return func(ctx context.Context, key resourceKey, want Wanted) (changed, error) {
		done, err := do(ctx, key.region, key.id, want)
		if wrong, ok := errors.AsType[*invalidError](err); ok {
			return changed{}, wrong.answer()
		}
		if errors.Is(err, ErrNameTaken) {
			return changed{}, &adminapi.Error{Status: http.StatusConflict, Code: "name_taken", Message: err.Error()}
		}
		return changed{done}, err
	}
}

// archiveResource is the soft removal of a resource: the row stays and its state
// changes, because only a change reaches the agent.
func archiveResource(do put) func(ctx context.Context, key resourceKey) (changed, error) {
	return func(ctx context.Context, key resourceKey) (changed, error) {
		done, err := do(ctx, key.region, key.id, Wanted{State: "archived"})
		if _, ok := errors.AsType[*invalidError](err); ok {
			err = ErrUnknownResource
		}
		return changed{done}, err
	}
}

func (a *admin) mayStartLogEpoch(context.Context, struct{}, struct{}) error { return nil }

// startLogEpoch is for after the database was restored from a backup: every
// agent of a region lists again.
func (a *admin) startLogEpoch(ctx context.Context, _, _ struct{}) (changed, error) {
	return changed{true}, a.store.StartLogEpoch(ctx)
}
