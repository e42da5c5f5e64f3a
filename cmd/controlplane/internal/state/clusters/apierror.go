package clusters

import (
	"context"
	"net/http"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/adminapi"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/keyring"
)

// conditions are how the errors of the store are answered.
var conditions = []adminapi.Condition{ //nolint:gochecknoglobals // a table, never written to
	adminapi.On(ErrUnknownCluster, http.StatusNotFound, "unknown_cluster", "this cluster is not registered"),
	adminapi.On(ErrUnknownProject, http.StatusNotFound, "unknown_project", "this project does not exist"),
	adminapi.On(ErrUnknownService, http.StatusNotFound, "unknown_service", "this service does not exist"),
	adminapi.On(ErrProjectMoved, http.StatusConflict, "project_moved", "the project lives on another cluster and stays there"),
	adminapi.On(ErrProjectDeleted, http.StatusConflict, "project_deleted", "the project is deleted; put it again first"),
	{
		Err: ErrGenerationAhead,
		Answer: adminapi.Error{
			Status:  http.StatusBadRequest,
			Code:    "generation_ahead",
			Message: "the report is about a generation that does not exist; if the database was restored, start a new epoch",
		},
		Log: true,
	},
	adminapi.On(ErrHostnameTaken, http.StatusConflict, "hostname_taken", "another service of the cluster has the hostname"),
	adminapi.On(ErrUnknownVarGroup, http.StatusNotFound, "unknown_var_group", "this var group does not exist"),
	adminapi.On(ErrVarGroupElsewhere, http.StatusConflict, "var_group_elsewhere",
		"the var group is one of another project and stays there"),
	adminapi.On(ErrVarGroupName, http.StatusConflict, "var_group_name", "another var group of the project has the name"),
	adminapi.On(ErrVarGroupAttached, http.StatusConflict, "var_group_attached",
		"the var group is attached to services; GET it for which, and detach it first"),
	adminapi.On(keyring.ErrNoKeys, http.StatusServiceUnavailable, "no_keys",
		"the control plane has no keys for var groups; start it with --var-group-keys-file"),
	adminapi.On(ErrSealed, http.StatusServiceUnavailable, "sealed",
		"a value of a var group cannot be decrypted; the control plane's log says why"),
	adminapi.On(ErrTooManyStatuses, http.StatusRequestEntityTooLarge, "too_large",
		"more services reported than are kept for a cluster"),
	adminapi.On(db.ErrBusy, http.StatusServiceUnavailable, "busy", "the database is busy"),
	adminapi.On(db.ErrFull, http.StatusServiceUnavailable, "disk_full", "the disk of the database is full; free space there"),
	adminapi.On(context.DeadlineExceeded, http.StatusServiceUnavailable, "busy", "the database is busy"),
}
