package clusters

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/keyring"
)

// Conditions that callers of a [Store] branch on.
var (
	// ErrUnknownCluster is a cluster that is not registered.
	ErrUnknownCluster = errors.New("unknown cluster")
	// ErrUnknownProject is a project that was never put.
	ErrUnknownProject = errors.New("unknown project")
	// ErrUnknownService is a service that was never put.
	ErrUnknownService = errors.New("unknown service")
	// ErrProjectMoved is a project that was put on another cluster before; it
	// stays there for life.
	ErrProjectMoved = errors.New("project lives on another cluster")
	// ErrHostnameTaken is a service with the hostname of another one on its cluster.
	ErrHostnameTaken = errors.New("the hostname is taken")
	// ErrProjectDeleted is a service put into a deleted project.
	ErrProjectDeleted = errors.New("project is deleted")
	// ErrGenerationAhead is a report about a generation that does not exist
	// yet. The usual cause is a database restored without a new epoch.
	ErrGenerationAhead = errors.New("generation is ahead of the database")
	// ErrUnknownVarGroup is a group of variables that the project does not have.
	ErrUnknownVarGroup = errors.New("unknown var group")
	// ErrVarGroupElsewhere is a group that another project has.
	ErrVarGroupElsewhere = errors.New("var group of another project")
	// ErrVarGroupName is a name that another group of the project has.
	ErrVarGroupName = errors.New("another var group has the name")
	// ErrVarGroupAttached is a group that services have.
	ErrVarGroupAttached = errors.New("the var group is attached")
	// ErrSealed is a value that cannot be decrypted.
	ErrSealed = errors.New("a value cannot be decrypted")
	// ErrTooManyStatuses is a cluster that reports more services than can be.
	ErrTooManyStatuses = errors.New("too many services reported")
)

// Store has the desired state of clusters. It is safe for concurrent use. A call
// that returns an error has not changed the database.
type Store struct {
	// Database has the tables. Required.
	Database *db.Database
	// Keys encrypt the values of var groups. Without any none can be put.
	Keys *keyring.Ring
	// TokenLifetime is the [agents.Scopes.Lifetime] of clusters.
	TokenLifetime time.Duration
}

// Change is the outcome of a call.
type Change struct {
	// Generation is the cluster's generation after the call.
	Generation int64 `json:"generation"`
	// Changed is false when the database already matched the call.
	Changed bool `json:"changed"`
	// Created is true when the row is new.
	Created bool `json:"-"`
}

// number gives the change its generation: a new one if it is Changed.
func (c *Change) number(ctx context.Context, tx *db.Tx, clusterID string) (err error) {
	if c.Changed {
		c.Generation, err = raise(ctx, tx, clusterID)
		return err
	}
	cluster, err := clusterByID(ctx, tx, clusterID)
	c.Generation = cluster.Generation
	return err
}

// raise raises the generation of the cluster and returns it.
func raise(ctx context.Context, tx *db.Tx, clusterID string) (int64, error) {
	var generation int64
	err := tx.QueryRowContext(ctx, `UPDATE clusters SET generation = generation + 1, nonce = ? WHERE id = ? RETURNING generation`, randomText(), clusterID).
		Scan(&generation)
	if err != nil {
		return 0, fmt.Errorf("raise generation: %w", db.Missing(err, ErrUnknownCluster))
	}
	return generation, nil
}
