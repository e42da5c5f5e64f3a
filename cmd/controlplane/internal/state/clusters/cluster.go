package clusters

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/tokens"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/agents"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/audit"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
)

// Cluster is one cluster as administrators see it.
type Cluster struct {
	// ClusterID is a UUID.
	ClusterID string `json:"cluster_id"`
	// Region is where the cluster runs, such as nyc3.
	Region string `json:"region"`
	// Epoch and Generation name the state that is served now.
	Epoch      string `json:"epoch"`
	Generation int64  `json:"generation"`
	// LBSizeUnits is the size of the load balancer.
	LBSizeUnits int `json:"lb_size_units"`
	// HeldDeletions are what the agent would delete if a person approved it, as it
	// reported last. Nil: nothing.
	HeldDeletions *starbase.HeldDeletions `json:"held_deletions,omitempty"`
	// ApprovedDeletions is the digest of held deletions that was approved last.
	ApprovedDeletions string `json:"approved_deletions,omitempty"`
	// CreatedAt is the time of registration.
	CreatedAt time.Time `json:"created_at"`
	// LastPullAt is when the agent last asked for its desired state; zero
	// for never.
	LastPullAt time.Time `json:"last_pull_at,omitzero"`
	// LastPullVersion is the version it was answered.
	LastPullVersion string `json:"last_pull_version,omitempty"`
	// LastReportAt is when the agent last reported on a state of the epoch
	// that was current then; zero for never.
	LastReportAt time.Time `json:"last_report_at,omitzero"`
	// ReportedEpoch and ReportedGeneration name the newest state that it
	// reported on.
	ReportedEpoch      string `json:"reported_epoch,omitempty"`
	ReportedGeneration int64  `json:"reported_generation,omitempty"`
	// ReportedErrorClass and ReportedMessage are why, by that report, the
	// configuration of the cluster, or a newer state, is not in effect, such as
	// [starbase.ClassGatewayMissing]. Empty: it is.
	ReportedErrorClass string `json:"reported_error_class,omitempty"`
	ReportedMessage    string `json:"reported_message,omitempty"`
	// TokenUntil is until when the token is valid, unless its agent renews it; zero for one without an
	// end. While --agent-token-lifetime is 0, no token has an end, whatever is here.
	TokenUntil time.Time `json:"token_until,omitzero"`
	// PreviousTokenUntil is until when the token before the last rotation is valid; zero if
	// it is not.
	PreviousTokenUntil time.Time `json:"previous_token_until,omitzero"`

	nonce string // of the version that is served now
}

// Contact returns when the agent last asked or reported; zero for never.
func (c *Cluster) Contact() time.Time {
	if c.LastReportAt.After(c.LastPullAt) {
		return c.LastReportAt
	}
	return c.LastPullAt
}

// newClusterLBSize is the size of the load balancer of a new cluster.
const newClusterLBSize = 1

const clusterColumns = `id, region, epoch, generation, lb_size_units, held_deletions, approved_deletions, created_at, last_pull_at, last_pull_version,
	reported_at, reported_epoch, reported_generation, reported_error_class, reported_message,
	CASE WHEN terms_of = token_hash THEN token_until ELSE 0 END, previous_token_until, nonce`

func scanCluster(scan func(...any) error, c *Cluster) error {
	var created, pulled, reported, until, previous int64
	var held string
	err := scan(&c.ClusterID, &c.Region, &c.Epoch, &c.Generation, &c.LBSizeUnits, &held, &c.ApprovedDeletions, &created, &pulled,
		&c.LastPullVersion, &reported, &c.ReportedEpoch, &c.ReportedGeneration, &c.ReportedErrorClass, &c.ReportedMessage,
		&until, &previous, &c.nonce)
	if err != nil {
		return err
	}
	c.CreatedAt = time.UnixMilli(created).UTC()
	if pulled != 0 {
		c.LastPullAt = time.UnixMilli(pulled).UTC()
	}
	if reported != 0 {
		c.LastReportAt = time.UnixMilli(reported).UTC()
	}
	if until != 0 {
		c.TokenUntil = time.UnixMilli(until).UTC()
	}
	if until := time.UnixMilli(previous).UTC(); until.After(time.Now()) {
		c.PreviousTokenUntil = until
	}
	c.HeldDeletions, err = agents.ParseHeld(held)
	return err
}

func clusterByID(ctx context.Context, tx *db.Tx, clusterID string) (Cluster, error) {
	var c Cluster
	row := tx.QueryRowContext(ctx, `SELECT `+clusterColumns+` FROM clusters WHERE id = ?`+tx.Lock, clusterID)
	return c, db.Missing(scanCluster(row.Scan, &c), ErrUnknownCluster)
}

// RegisterCluster registers the cluster and returns its token, which is shown this
// once. For a registered cluster it returns no token, and sets the region.
func (s *Store) RegisterCluster(ctx context.Context, clusterID, region string) (token string, change Change, err error) {
	fresh, hash := tokens.New()
	err = s.Database.Write(ctx, func(tx *db.Tx) error {
		token, change = fresh, Change{}
		inserted, err := tx.Affected(ctx, `INSERT INTO clusters (id, region, token_hash, token_until, terms_of, epoch, nonce,
			generation, lb_size_units, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, 1, ?, ?) ON CONFLICT (id) DO NOTHING`,
			clusterID, region, hash, s.Agents().Shown(), hash, randomText(), randomText(), newClusterLBSize, time.Now().UnixMilli())
		if err != nil {
			return err
		}
		change.Created, change.Changed = inserted == 1, inserted == 1
		if inserted == 0 {
			token = ""
			// The region is not served, so the generation stays.
			updated, err := tx.Affected(ctx, `UPDATE clusters SET region = ? WHERE id = ? AND region <> ?`, region, clusterID, region)
			if err != nil {
				return err
			}
			change.Changed = updated == 1
		}
		cluster, err := clusterByID(ctx, tx, clusterID)
		change.Generation = cluster.Generation
		if err != nil || !change.Changed {
			return err
		}
		return audit.Record(
			ctx,
			tx,
			audit.Change{Verb: "put", Kind: audit.KindCluster, Name: clusterID, Outcome: audit.CreatedOr(change.Created)},
		)
	})
	if err != nil {
		return "", Change{}, fmt.Errorf("register cluster %s: %w", clusterID, err)
	}
	return token, change, nil
}

// Clusters returns every cluster, sorted by id.
func (s *Store) Clusters(ctx context.Context) ([]Cluster, error) {
	return s.list(ctx, `ORDER BY id`)
}

// ClustersAfter returns the clusters whose ids follow the given one, sorted by id, at most
// limit.
func (s *Store) ClustersAfter(ctx context.Context, after string, limit int) ([]Cluster, error) {
	return s.list(ctx, `WHERE id > ? ORDER BY id LIMIT ?`, after, limit)
}

// list returns the clusters that the rest of a query selects.
func (s *Store) list(ctx context.Context, rest string, args ...any) (clusters []Cluster, err error) {
	clusters, err = db.List(ctx, s.Database, `SELECT `+clusterColumns+` FROM clusters `+rest, args,
		func(rows *sql.Rows, c *Cluster) error { return scanCluster(rows.Scan, c) })
	if err != nil {
		return nil, fmt.Errorf("list clusters: %w", err)
	}
	return clusters, nil
}

// SetConfig sets the configuration of the cluster. It must be valid.
func (s *Store) SetConfig(ctx context.Context, clusterID string, config starbase.ClusterConfig) (change Change, err error) {
	err = s.Database.Write(ctx, func(tx *db.Tx) error {
		change = Change{}
		cluster, err := clusterByID(ctx, tx, clusterID)
		if err != nil {
			return err
		}
		change.Generation = cluster.Generation
		if cluster.LBSizeUnits == config.LBSizeUnits {
			return nil
		}
		change.Changed = true
		if change.Generation, err = raise(ctx, tx, clusterID); err != nil {
			return err
		}
		if _, err = tx.ExecContext(ctx, `UPDATE clusters SET lb_size_units = ? WHERE id = ?`, config.LBSizeUnits, clusterID); err != nil {
			return err
		}
		return audit.Record(ctx, tx, audit.Change{Verb: "configure", Kind: audit.KindCluster, Name: clusterID})
	})
	if err != nil {
		return Change{}, fmt.Errorf("configure cluster %s: %w", clusterID, err)
	}
	return change, nil
}

// ApproveDeletions lets the agent of the cluster carry out the held deletions with this
// digest, and no other; see the package documentation and [agents.Scopes.Approve].
func (s *Store) ApproveDeletions(ctx context.Context, clusterID, digest string) (change Change, err error) {
	err = s.Database.Write(ctx, func(tx *db.Tx) error {
		change = Change{}
		if change.Changed, err = s.Agents().Approve(ctx, tx, clusterID, digest); err != nil {
			return err
		}
		return change.number(ctx, tx, clusterID)
	})
	return change, err
}

// StartEpoch gives the cluster a new epoch. Call it after the database was restored from a
// backup: agents may have seen generations that the backup does not have. It raises the
// generation and withdraws what was approved.
func (s *Store) StartEpoch(ctx context.Context, clusterID string) (epoch string, change Change, err error) {
	epoch = randomText()
	err = s.Database.Write(ctx, func(tx *db.Tx) error {
		change = Change{Changed: true}
		if change.Generation, err = raise(ctx, tx, clusterID); err != nil {
			return err
		}
		if _, err = tx.ExecContext(ctx, `UPDATE clusters SET epoch = ?, approved_deletions = '' WHERE id = ?`, epoch, clusterID); err != nil {
			return err
		}
		return audit.Record(ctx, tx, audit.Change{Verb: "new-epoch", Kind: audit.KindCluster, Name: clusterID})
	})
	if err != nil {
		return "", Change{}, fmt.Errorf("start epoch of cluster %s: %w", clusterID, err)
	}
	return epoch, change, nil
}

// randomText returns 16 characters that nothing else has.
func randomText() string {
	text := make([]byte, 8)
	// Read never fails and fills the whole slice; see crypto/rand.
	_, _ = rand.Read(text)
	return hex.EncodeToString(text)
}

// StartEpochs is [Store.StartEpoch] for every cluster, and returns how many there are.
func (s *Store) StartEpochs(ctx context.Context) (clusters int, err error) {
	all, err := s.Clusters(ctx)
	if err != nil {
		return 0, err
	}
	for i := range all {
		if _, _, err := s.StartEpoch(ctx, all[i].ClusterID); err != nil {
			return i, err
		}
	}
	return len(all), nil
}

// RecordPull notes that the agent of the cluster was answered the version.
func (s *Store) RecordPull(ctx context.Context, clusterID, version string) error {
	err := s.Database.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.ExecContext(ctx, `UPDATE clusters SET last_pull_at = ?, last_pull_version = ? WHERE id = ?`,
			time.Now().UnixMilli(), version, clusterID)
		return err
	})
	if err != nil {
		return fmt.Errorf("record pull of cluster %s: %w", clusterID, err)
	}
	return nil
}
