package clusters

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/agents"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
)

// ServiceState is the desired state of a service beside what its agent reported
// about it.
type ServiceState struct {
	starbase.ServiceStatus
	// ServiceName and ProjectSlug are what people call the service and its project. Empty:
	// the service has no name, is deleted, or is not in the database.
	ServiceName string `json:"service_name,omitempty"`
	ProjectSlug string `json:"project_slug,omitempty"`
	// WantedGeneration is the generation that last changed the service. Zero:
	// the service is not in the database, only reported.
	WantedGeneration int64 `json:"wanted_generation"`
	// Deleted is true for a tombstone.
	Deleted bool `json:"deleted"`
	// ReportedEpoch and ReportedGeneration name the state the report is
	// about. Zero: not reported yet.
	ReportedEpoch      string `json:"reported_epoch,omitempty"`
	ReportedGeneration int64  `json:"reported_generation,omitempty"`
	// ReportedAt is when the report came in.
	ReportedAt time.Time `json:"reported_at,omitzero"`
	// Since is since when the agent reports this phase and error class. Zero: unknown.
	Since time.Time `json:"since,omitzero"`
	// ChangedAt is when the desired state of the service was changed last. Zero: the service is
	// not in the database.
	ChangedAt time.Time `json:"changed_at,omitzero"`
	// InstanceID is the agent process that reported.
	InstanceID string `json:"instance_id,omitempty"`
	// Standing is the status of the service relative to its current desired state: the
	// reported phase if the report is about that state or a newer one, else one of the
	// constants of type [Standing].
	Standing Standing `json:"standing"`
}

// Standing is a [starbase.Phase], or what holds without a report of the current
// desired state.
type Standing string

// The standings that no agent reports.
const (
	// StandingUnknown is a service without any report.
	StandingUnknown Standing = "Unknown"
	// StandingPending is a service whose wanted state is newer than the last
	// report.
	StandingPending Standing = "Pending"
	// StandingDeleted is a tombstone without objects: the agent has reported on
	// that state or a newer one without the service. That the agent has fetched
	// the state is not enough, nor is its silence.
	StandingDeleted Standing = "Deleted"
)

// stand sets the standing, given the newest generation of the current epoch
// that the cluster's agent has reported on.
func (s *ServiceState) stand(epoch string, newest int64) {
	known := s.ReportedEpoch == epoch && s.ReportedGeneration >= s.WantedGeneration
	switch {
	case s.Deleted && newest >= s.WantedGeneration && !known:
		s.Standing = StandingDeleted
	case s.Phase == "":
		s.Standing = StandingUnknown
	case !known:
		s.Standing = StandingPending
	default:
		s.Standing = Standing(s.Phase)
	}
}

// maxStatusRows bounds what one agent can make the database keep.
const maxStatusRows = 20_000

// SaveStatus stores the report, which must be valid. For each service the
// newest report wins; an entry about an older generation than the one kept is
// dropped. A report about another epoch than the current one is dropped whole:
// it is about a state that no longer exists. A complete report also voids the
// older reports of services that it does not list. The newest report, or one without a
// generation, decides the error that keeps the configuration of the cluster from being in effect. SaveStatus returns how many
// tombstones of services and projects it has ended: tombstones of objects that the report
// shows to be deleted, 7 days after the deletion.
func (s *Store) SaveStatus(ctx context.Context, clusterID string, report starbase.StatusReport) (services, projects int64, err error) {
	var ended dropped
	err = s.Database.Write(ctx, func(tx *db.Tx) error {
		ended = dropped{}
		cluster, err := clusterByID(ctx, tx, clusterID)
		switch {
		case err != nil:
			return err
		case report.Epoch != cluster.Epoch:
			return nil
		case report.Generation > cluster.Generation:
			return fmt.Errorf("%w: reported %d, have %d", ErrGenerationAhead, report.Generation, cluster.Generation)
		}
		if cluster.ReportedEpoch != cluster.Epoch {
			cluster.ReportedGeneration = 0
		}
		// Later than the last report even if the clock is not, so that the rows
		// of this report differ from older ones.
		now := max(time.Now().UnixMilli(), cluster.LastReportAt.UnixMilli()+1)
		if err := saveStatuses(ctx, tx, clusterID, report, now); err != nil {
			return err
		}
		if report.Complete && report.Generation >= cluster.ReportedGeneration {
			if _, err := tx.ExecContext(ctx, `DELETE FROM service_status WHERE cluster_id = ? AND reported_at <> ?`, clusterID, now); err != nil {
				return err
			}
			if ended, err = dropTombstones(ctx, tx, clusterID, report); err != nil {
				return err
			}
		}
		switch {
		case report.Generation == 0: // of an agent that has accepted no state yet, and says why
			report.HeldDeletions = cluster.HeldDeletions
		case report.Generation < cluster.ReportedGeneration: // a late one
			report.ClusterErrorClass, report.ClusterMessage = cluster.ReportedErrorClass, cluster.ReportedMessage
			report.HeldDeletions = cluster.HeldDeletions
		}
		held, err := agents.HeldText(report.HeldDeletions)
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `UPDATE clusters SET reported_epoch = ?, reported_generation = ?, reported_at = ?,
			reported_error_class = ?, reported_message = ?, held_deletions = ? WHERE id = ?`,
			report.Epoch, max(report.Generation, cluster.ReportedGeneration), now,
			report.ClusterErrorClass, report.ClusterMessage, held, clusterID); err != nil {
			return err
		}
		var kept int
		if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM service_status WHERE cluster_id = ?`, clusterID).Scan(&kept); err != nil {
			return err
		}
		if kept > maxStatusRows {
			return fmt.Errorf("%w: %d, at most %d are kept", ErrTooManyStatuses, kept, maxStatusRows)
		}
		return nil
	})
	if err != nil {
		return 0, 0, fmt.Errorf("save status of cluster %s: %w", clusterID, err)
	}
	return ended.services, ended.projects, nil
}

func saveStatuses(ctx context.Context, tx *db.Tx, clusterID string, report starbase.StatusReport, now int64) error {
	statement, err := tx.PrepareContext(ctx, `INSERT INTO service_status
		(cluster_id, project_id, environment, service_id, epoch, generation, instance_id,
		observed_generation, phase, ready, desired, image_digest, error_class, message, reported_at, since)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (cluster_id, project_id, environment, service_id) DO UPDATE SET
		epoch = excluded.epoch, generation = excluded.generation, instance_id = excluded.instance_id,
		observed_generation = excluded.observed_generation, phase = excluded.phase, ready = excluded.ready,
		desired = excluded.desired, image_digest = excluded.image_digest, error_class = excluded.error_class,
		message = excluded.message, reported_at = excluded.reported_at,
		since = CASE WHEN service_status.phase = excluded.phase AND service_status.error_class = excluded.error_class
			AND service_status.since > 0 THEN service_status.since ELSE excluded.since END
		WHERE service_status.epoch <> excluded.epoch OR service_status.generation <= excluded.generation`)
	if err != nil {
		return err
	}
	for i := range report.Services {
		status := &report.Services[i]
		_, err := statement.ExecContext(ctx, clusterID, status.ProjectID, status.Environment, status.ServiceID,
			report.Epoch, report.Generation, report.InstanceID, status.ObservedGeneration, string(status.Phase),
			status.Ready, status.Desired, status.ImageDigest, status.ErrorClass, status.Message, now, now)
		if err != nil {
			// The transaction that owns the statement is rolled back.
			_ = statement.Close()
			return fmt.Errorf("service %s: %w", status.Identity(), err)
		}
	}
	return statement.Close()
}

// Cluster returns the cluster and the state of every service that is wanted in
// it or was reported from it, sorted by identity.
func (s *Store) Cluster(ctx context.Context, clusterID string) (cluster Cluster, states []ServiceState, err error) {
	err = s.Database.Read(ctx, func(tx *db.Tx) error {
		if cluster, err = clusterByID(ctx, tx, clusterID); err != nil {
			return err
		}
		states, err = standingServices(ctx, tx, cluster, true)
		return err
	})
	if err != nil {
		return Cluster{}, nil, fmt.Errorf("cluster %s: %w", clusterID, err)
	}
	return cluster, states, nil
}

// standingServices returns the services of the cluster with their standing. The names of
// those that do not fail are among it if allNames is true.
func standingServices(ctx context.Context, tx *db.Tx, cluster Cluster, allNames bool) ([]ServiceState, error) {
	states, err := serviceStates(ctx, tx, cluster.ClusterID, allNames)
	var newest int64
	if cluster.ReportedEpoch == cluster.Epoch {
		newest = cluster.ReportedGeneration
	}
	for i := range states {
		states[i].stand(cluster.Epoch, newest)
	}
	return states, err
}

func serviceStates(ctx context.Context, tx *db.Tx, clusterID string, allNames bool) ([]ServiceState, error) {
	rows, err := tx.QueryContext(ctx, `SELECT project_id, environment, service_id, epoch, generation, instance_id,
		observed_generation, phase, ready, desired, image_digest, error_class, message, reported_at, since
		FROM service_status WHERE cluster_id = ?`, clusterID)
	reported, err := db.Collect(rows, err, func(rows *sql.Rows, s *ServiceState) error {
		var at, since int64
		err := rows.Scan(&s.ProjectID, &s.Environment, &s.ServiceID, &s.ReportedEpoch, &s.ReportedGeneration, &s.InstanceID,
			&s.ObservedGeneration, &s.Phase, &s.Ready, &s.Desired, &s.ImageDigest, &s.ErrorClass, &s.Message, &at, &since)
		s.ReportedAt = time.UnixMilli(at).UTC()
		if since > 0 {
			s.Since = time.UnixMilli(since).UTC()
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	// The name is in the spec, which takes most of the time. Of most services it is not read, and then not in a join
	// either: with the statistics of a small table that has grown, a database joins each with each.
	columns := `s.project_id, s.environment, s.service_id, s.generation, s.deleted, s.updated_at, p.slug, `
	rows, err = tx.QueryContext(ctx, `SELECT `+columns+`CASE WHEN ? = 1 THEN s.spec ELSE '{}' END
		FROM projects p CROSS JOIN services s WHERE s.project_id = p.id AND p.cluster_id = ?`, flag(allNames), clusterID)
	wanted, err := db.Collect(rows, err, scanWanted)
	if err != nil {
		return nil, err
	}
	byID := make(map[starbase.Identity]int, len(reported))
	for i := range reported {
		byID[reported[i].Identity()] = i
	}
	for i := range wanted {
		if at, ok := byID[wanted[i].Identity()]; ok {
			r, w := &reported[at], &wanted[i]
			r.WantedGeneration, r.Deleted, r.ServiceName, r.ProjectSlug = w.WantedGeneration, w.Deleted, w.ServiceName, w.ProjectSlug
			r.ChangedAt = w.ChangedAt
			continue
		}
		reported = append(reported, wanted[i])
	}
	if !allNames {
		rows, err = tx.QueryContext(ctx, `SELECT `+columns+`s.spec FROM service_status r CROSS JOIN services s CROSS JOIN projects p
			WHERE r.cluster_id = ? AND r.phase IN ('Failed', 'Rejected') AND s.project_id = r.project_id AND s.environment = r.environment
				AND s.service_id = r.service_id AND p.id = s.project_id AND p.cluster_id = r.cluster_id`, clusterID)
		failed, err := db.Collect(rows, err, scanWanted)
		if err != nil {
			return nil, err
		}
		for i := range failed {
			reported[byID[failed[i].Identity()]].ServiceName = failed[i].ServiceName
		}
	}
	slices.SortFunc(reported, func(a, b ServiceState) int { return a.Identity().Compare(b.Identity()) })
	return reported, nil
}

// scanWanted reads what is desired of a service, with its name if the spec is not empty.
func scanWanted(rows *sql.Rows, s *ServiceState) error {
	var spec string
	var at int64
	if err := rows.Scan(&s.ProjectID, &s.Environment, &s.ServiceID, &s.WantedGeneration, &s.Deleted, &at, &s.ProjectSlug, &spec); err != nil {
		return err
	}
	s.ChangedAt = time.UnixMilli(at).UTC()
	if spec == "{}" {
		return nil
	}
	var named struct {
		ServiceName string `json:"service_name"`
	}
	err := json.Unmarshal([]byte(spec), &named)
	s.ServiceName = named.ServiceName
	return err
}
