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
	{
		Err:    ErrUnknownCluster,
		Answer: adminapi.Error{Status: http.StatusNotFound, Code: "unknown_cluster", Message: "this cluster is not registered"},
	},
	{
		Err:    ErrUnknownProject,
		Answer: adminapi.Error{Status: http.StatusNotFound, Code: "unknown_project", Message: "this project does not exist"},
	},
	{
		Err:    ErrUnknownService,
		Answer: adminapi.Error{Status: http.StatusNotFound, Code: "unknown_service", Message: "this service does not exist"},
	},
	{
		Err: ErrNotEmpty,
		Answer: adminapi.Error{
			Status:  http.StatusConflict,
			Code:    "not_empty",
			Message: "the cluster has projects that are not deleted; delete them first, or give them up with ?abandon=true",
		},
	},
	{
		Err: ErrAlive,
		Answer: adminapi.Error{
			Status:  http.StatusConflict,
			Code:    "alive",
			Message: "the cluster's agent asks for its desired state; stop it, and wait two minutes",
		},
	},
	{
		Err: ErrProjectMoved,
		Answer: adminapi.Error{
			Status:  http.StatusConflict,
			Code:    "project_moved",
			Message: "the project lives on another cluster and stays there",
		},
	},
	{
		Err:    ErrProjectDeleted,
		Answer: adminapi.Error{Status: http.StatusConflict, Code: "project_deleted", Message: "the project is deleted; put it again first"},
	},
	{
		Err: ErrGenerationAhead,
		Answer: adminapi.Error{
			Status:  http.StatusBadRequest,
			Code:    "generation_ahead",
			Message: "the report is about a generation that does not exist; if the database was restored, start a new epoch",
		},
		Log: true,
	},
	{
		Err:    ErrUnknownVarGroup,
		Answer: adminapi.Error{Status: http.StatusNotFound, Code: "unknown_var_group", Message: "this var group does not exist"},
	},
	{
		Err: ErrVarGroupElsewhere,
		Answer: adminapi.Error{
			Status:  http.StatusConflict,
			Code:    "var_group_elsewhere",
			Message: "the var group is one of another project and stays there",
		},
	},
	{
		Err:    ErrVarGroupName,
		Answer: adminapi.Error{Status: http.StatusConflict, Code: "var_group_name", Message: "another var group of the project has the name"},
	},
	{
		Err: ErrVarGroupAttached,
		Answer: adminapi.Error{
			Status:  http.StatusConflict,
			Code:    "var_group_attached",
			Message: "the var group is attached to services; GET it for which, and detach it first",
		},
	},
	{
		Err: keyring.ErrNoKeys,
		Answer: adminapi.Error{
			Status:  http.StatusServiceUnavailable,
			Code:    "no_keys",
			Message: "the control plane has no keys for var groups; start it with --var-group-keys-file",
		},
	},
	{
		Err: ErrSealed,
		Answer: adminapi.Error{
			Status:  http.StatusServiceUnavailable,
			Code:    "sealed",
			Message: "a value of a var group cannot be decrypted; the control plane's log says why",
		},
	},
	{
		Err: ErrTooManyStatuses,
		Answer: adminapi.Error{
			Status:  http.StatusRequestEntityTooLarge,
			Code:    "too_large",
			Message: "more services reported than are kept for a cluster",
		},
	},
	{Err: db.ErrBusy, Answer: adminapi.Error{Status: http.StatusServiceUnavailable, Code: "busy", Message: "the database is busy"}},
	{
		Err: db.ErrFull,
		Answer: adminapi.Error{
			Status:  http.StatusServiceUnavailable,
			Code:    "disk_full",
			Message: "the disk of the database is full; free space there",
		},
		Log: true,
	},
	{
		Err:    context.DeadlineExceeded,
		Answer: adminapi.Error{Status: http.StatusServiceUnavailable, Code: "busy", Message: "the database is busy"},
	},
}
