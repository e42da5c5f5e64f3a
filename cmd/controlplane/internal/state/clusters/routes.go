package clusters

import (
	"context"
	"net/http"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/adminapi"
)

// agentRoutes are what agents may ask, each for its own cluster.
func (s *Server) agentRoutes() []adminapi.Route {
	none := map[int]any{http.StatusNoContent: nil}
	routes := []adminapi.Route{
		{
			Method: http.MethodGet, Path: "desired-state", Handle: s.pullDesiredState,
			Operation: adminapi.Operation{
				Name: "pullDesiredState", Summary: "Return all that the cluster should run, or 304 if If-None-Match has its version.",
				Answers: map[int]any{http.StatusOK: starbase.DesiredState{}, http.StatusNotModified: nil},
				Errors:  map[int][]string{http.StatusServiceUnavailable: {"no_keys", "sealed"}},
			},
		},
		{
			Method: http.MethodPost, Path: "status", Handle: s.postStatus,
			Operation: adminapi.Operation{
				Name: "reportStatus", Summary: "Report where the services of the cluster stand.",
				Body: starbase.StatusReport{}, Answers: none, Errors: map[int][]string{http.StatusBadRequest: {"generation_ahead"}},
			},
		},
		{
			Method: http.MethodPost, Path: "capacity", Handle: s.postCapacity,
			Operation: adminapi.Operation{
				Name: "reportCapacity", Summary: "Report how many pods the cluster has.",
				Body: starbase.CapacityReport{}, Answers: none,
			},
		},
		{
			Method: http.MethodPost, Path: "snapshots", Handle: s.postSnapshots,
			Operation: adminapi.Operation{
				Name: "sendSnapshots", Summary: "Send billing records. What is wrong with one holds back no other.",
				Body: snapshotBody{}, Answers: map[int]any{http.StatusOK: starbase.SnapshotReceipt{}},
			},
		},
		s.streamRoute(),
	}
	for i := range routes {
		routes[i].Path, routes[i].Handle = agentPrefix+"{cluster_id}/"+routes[i].Path, s.ownCluster(routes[i].Handle)
		routes[i] = routes[i].Refuses(http.StatusForbidden, "forbidden").Refuses(http.StatusTooManyRequests, "too_many_requests").
			Refuses(http.StatusNotFound, "unknown_cluster")
	}
	return routes
}

// snapshotBody is what a [starbase.SnapshotBatch] has, whose records are read one by one.
type snapshotBody struct {
	// Snapshots are at most 5000 records.
	Snapshots []starbase.Snapshot `json:"snapshots"`
}

// adminRoutes are the administration of clusters and of what runs on them.
func (s *Server) adminRoutes() []adminapi.Route {
	return append(append(s.clusterRoutes(), s.projectRoutes()...), meRoute())
}

func (s *Server) clusterRoutes() []adminapi.Route {
	const (
		list    = adminapi.Prefix + "clusters"
		cluster = list + "/{cluster_id}"
	)
	agent := s.store.Agents()
	routes := []adminapi.Route{
		adminapi.Put(cluster, clusterPath, s.putCluster).
			Named("putCluster", "Register a cluster: the answer has the token of its agent, once. For a registered one, set its region."),
		adminapi.Get(cluster, clusterPath, s.showCluster).Named("getCluster", "Show a cluster, its progress and its services."),
		adminapi.Remove(cluster, clusterPath, agent.Registered, agent.Remove).
			Named("removeCluster", "Remove a cluster that has no projects and whose agent does not ask. What its agent has made stays."),
		adminapi.Set(cluster+"/config", clusterPath, s.putConfig).Named("putClusterConfig", "Set the settings of a cluster."),
		adminapi.Get(cluster+"/config", clusterPath, s.showConfig).Named("getClusterConfig", "Show the settings of a cluster."),
		adminapi.PostByTwo(cluster+"/allow-mass-delete", adminapi.ActionApprove, clusterPath, agent.Approvable, s.allowMassDelete).
			Refuses(http.StatusConflict, "other_deletions").
			Named("approveClusterDeletions", "Let the agent carry out the deletions that it holds, which it has reported under this digest."),
		adminapi.Post(cluster+"/rotate-token", clusterPath, s.rotateToken).
			Named("rotateClusterToken", "Make another token. The one of before ends at once, or after an overlap."),
		adminapi.PostByTwo(cluster+"/new-epoch", adminapi.ActionEpoch, clusterPath, s.mayStartEpoch, s.startEpoch).
			Named("startClusterEpoch", "Begin another epoch after the database was restored."),
	}
	for i := range routes {
		if routes[i].Operation.Name != "putCluster" {
			routes[i] = routes[i].Refuses(http.StatusNotFound, "unknown_cluster")
		}
	}
	return append([]adminapi.Route{adminapi.List(list, "clusters", adminapi.Everything, func(c *Cluster) string { return c.ClusterID },
		func(ctx context.Context, _ struct{}, after string, limit int) ([]Cluster, error) {
			return s.store.ClustersAfter(ctx, after, limit)
		}).Named("listClusters", "List the clusters.")}, routes...)
}

func (s *Server) projectRoutes() []adminapi.Route {
	const (
		list     = adminapi.Prefix + "projects"
		project  = list + "/{project_id}"
		services = project + "/services"
		service  = services + "/{service_id}/{environment}"
		attached = service + "/var-groups"
		groups   = project + "/var-groups"
		group    = groups + "/{var_group_id}"
	)
	routes := []adminapi.Route{
		adminapi.Get(project, projectPath, s.store.Project).Named("getProject", "Show a project."),
		adminapi.Delete(project, projectPath, s.store.DeleteProject).
			Named("deleteProject", "Delete a project with its services. It stays as a tombstone until its agent has removed it."),
		adminapi.List(services, "services", projectPath, serviceKey, s.store.ServicesAfter).
			Named("listServices", "List the services of a project."),
		adminapi.Put(service, servicePath, s.putService).Refuses(http.StatusConflict, "project_deleted", "hostname_taken").
			Named("putService", "Create or change a service."),
		adminapi.Get(service, servicePath, s.store.Service).Refuses(http.StatusNotFound, "unknown_service").
			Named("getService", "Show a service as it was put."),
		adminapi.Delete(service, servicePath, s.store.DeleteService).Refuses(http.StatusNotFound, "unknown_service").
			Named("deleteService", "Delete a service. It stays as a tombstone until its agent has removed it."),
		adminapi.Set(attached, servicePath, s.attachVarGroups).Refuses(http.StatusNotFound, "unknown_service").
			Refuses(http.StatusConflict, "project_deleted").Refuses(http.StatusUnprocessableEntity, "invalid").
			Named("attachVarGroups", "Set which var groups a service has, in which order: a later one wins."),
		adminapi.Get(attached, servicePath, s.showAttached).Refuses(http.StatusNotFound, "unknown_service").
			Named("getAttachedVarGroups", "Show which var groups a service has."),
		adminapi.List(groups, "var_groups", projectPath, func(g *StoredVarGroup) string { return g.VarGroupID }, s.listVarGroups).
			Refuses(http.StatusServiceUnavailable, "no_keys", "sealed").
			Named("listVarGroups", "List the var groups of a project, without secret values."),
		adminapi.Put(group, groupPath, s.putVarGroup).
			Refuses(http.StatusConflict, "project_deleted", "var_group_attached", "var_group_elsewhere", "var_group_name").
			Refuses(http.StatusServiceUnavailable, "no_keys", "sealed").
			Named("putVarGroup", "Create or change a group of variables."),
		adminapi.Get(group, groupPath, s.showVarGroup).Refuses(http.StatusNotFound, "unknown_var_group").
			Refuses(http.StatusServiceUnavailable, "no_keys", "sealed").
			Named("getVarGroup", "Show a var group, without secret values."),
		adminapi.Delete(group, groupPath, s.deleteVarGroup).Refuses(http.StatusNotFound, "unknown_var_group").
			Refuses(http.StatusConflict, "var_group_attached").Named("deleteVarGroup", "Delete a var group that no service has."),
	}
	for i := range routes {
		routes[i] = routes[i].Refuses(http.StatusNotFound, "unknown_project").Operated()
	}
	projects := adminapi.Route{
		Method: http.MethodGet, Path: list, Handle: s.listProjects,
		Operation: adminapi.ListOperation("projects", ListedProject{}, adminapi.Parameter{
			Name: "cluster_id", Description: "The projects of this cluster alone.",
			Schema: map[string]any{"type": "string", "format": "uuid"},
		}),
	}
	return append([]adminapi.Route{
		projects.Refuses(http.StatusNotFound, "unknown_cluster").Named("listProjects", "List the projects."),
		adminapi.Put(project, projectPath, s.putProject).Refuses(http.StatusNotFound, "unknown_cluster").
			Refuses(http.StatusConflict, "project_moved").
			Named("putProject",
				"Create, change or revive a project. It stays on its cluster for life. Who pays, and its bounds, are not the operator's."),
	}, routes...)
}
