package regions

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"connectrpc.com/connect"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
)

// maxInstances is how many instances one report may have.
const maxInstances = 10_000

// maxReason is how long the reason of one instance may be, in bytes.
const maxReason = 1024

// made is when a report was made: by which start of the agent, and as which of
// its reports. An agent without the extension sends neither.
type made struct{ epoch, sequence uint64 }

// valid returns an error that names the number which no database stores, or after which no
// epoch could be claimed.
func (m made) valid() error {
	for _, field := range []struct {
		name           string
		value, highest uint64
	}{{"agent_epoch", m.epoch, math.MaxInt64 / 2}, {"sequence", m.sequence, math.MaxInt64}} {
		if field.value > field.highest {
			return fmt.Errorf("%s: is %d, above %d", field.name, field.value, field.highest)
		}
	}
	return nil
}

// before reports whether a report is older than the stored one.
func (m made) before(kept made) bool {
	if m == (made{}) {
		return false
	}
	return m.epoch < kept.epoch || m.epoch == kept.epoch && m.sequence <= kept.sequence
}

// ReportDeploymentStatus stores what runs of one deployment: the instances of
// the report and no others.
func (s *Service) ReportDeploymentStatus(
	ctx context.Context,
	r *connect.Request[ctrlv1.ReportDeploymentStatusRequest],
) (_ *connect.Response[ctrlv1.ReportDeploymentStatusResponse], err error) {
	ended := s.observe(deployments)
	defer func() { ended(err) }()
	c, err := s.admit(ctx, "")
	if err != nil {
		return nil, err
	}
	name := r.Msg.GetUpdate().GetK8SName()
	if r.Msg.GetDelete() != nil {
		name = r.Msg.GetDelete().GetK8SName()
	}
	instances := r.Msg.GetUpdate().GetInstances()
	switch {
	case r.Msg.GetChange() == nil:
		err = errors.New("change: must be update or delete")
	case name == "":
		err = errors.New("k8s_name: must not be empty")
	case len(instances) > maxInstances:
		err = errors.New("instances: are more than 10000")
	}
	for _, i := range instances {
		switch {
		case i.GetK8SName() == "":
			err = errors.New("instances.k8s_name: must not be empty")
		case len(i.GetReason()) > maxReason:
			err = fmt.Errorf("instances.reason: is longer than %d bytes", maxReason)
		case i.GetRestarts() < 0:
			err = errors.New("instances.restarts: must not be negative")
		case err == nil:
			err = cmp.Or(
				plain("instances.k8s_name", i.GetK8SName()),
				plain("instances.address", i.GetAddress()),
				plain("instances.reason", i.GetReason()),
			)
		}
	}
	at := made{r.Msg.GetAgentEpoch(), r.Msg.GetSequence()}
	if err = cmp.Or(err, plain("k8s_name", name), at.valid()); err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, err)
	}
	if err = s.current(ctx, c, at); err != nil {
		return nil, err
	}
	err = s.store.Database.Write(ctx, func(tx *db.Tx) error { return saveInstances(ctx, tx, c.ID, name, instances, at) })
	if err := s.reported(ctx, err, name); err != nil {
		return nil, err
	}
	return connect.NewResponse(&ctrlv1.ReportDeploymentStatusResponse{}), nil
}

// reported returns the answer to a report that failed. By contract an error of the
// database has no code.
func (s *Service) reported(ctx context.Context, err error, name string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrUnknownResource):
		return connect.NewError(connect.CodeNotFound, errors.New("the region has nothing that is named "+name))
	}
	s.logger.ErrorContext(ctx, "report failed", slog.String("k8s_name", name), slog.Any("error", err))
	return connect.NewError(connect.CodeUnknown, errors.New("the report could not be stored; send it again"))
}

func saveInstances(
	ctx context.Context,
	tx *db.Tx,
	regionID, name string,
	instances []*ctrlv1.ReportDeploymentStatusRequest_Update_Instance,
	at made,
) error {
	var deploymentID string
	var kept made
	err := tx.QueryRowContext(ctx, `SELECT t.deployment_id, t.agent_epoch, t.sequence FROM deployment_topology t
		WHERE t.region_id = ? AND t.deployment_id = (SELECT id FROM deployments WHERE k8s_name = ?)`+tx.Lock, regionID, name).
		Scan(&deploymentID, &kept.epoch, &kept.sequence)
	if err = db.Missing(err, ErrUnknownResource); err != nil {
		if len(instances) == 0 && errors.Is(err, ErrUnknownResource) {
			return forgetInstances(ctx, tx, regionID, name)
		}
		return err
	}
	if at.before(kept) {
		return nil
	}
	rows, err := tx.QueryContext(ctx, `SELECT k8s_name FROM instances WHERE deployment_id = ? AND region_id = ?`, deploymentID, regionID)
	gone, err := db.Collect(rows, err, func(rows *sql.Rows, name *string) error { return rows.Scan(name) })
	if err != nil {
		return err
	}
	now := time.Now().UnixMilli()
	stay := map[string]bool{}
	for _, i := range instances {
		stay[i.GetK8SName()] = true
		if _, err := tx.ExecContext(
			ctx,
			`INSERT INTO instances (k8s_name, region_id, deployment_id, address, cpu_millicores, memory_mib, status, reason, restarts, reported_at)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (k8s_name, region_id) DO UPDATE SET deployment_id = excluded.deployment_id,
			address = excluded.address, cpu_millicores = excluded.cpu_millicores, memory_mib = excluded.memory_mib,
			status = excluded.status, reason = excluded.reason, restarts = excluded.restarts, reported_at = excluded.reported_at`,
			i.GetK8SName(),
			regionID,
			deploymentID,
			i.GetAddress(),
			i.GetCpuMillicores(),
			i.GetMemoryMib(),
			statusOf(i.GetStatus()),
			i.GetReason(),
			i.GetRestarts(),
			now,
		); err != nil {
			return err
		}
	}
	for _, name := range gone {
		if stay[name] {
			continue
		}
		if _, err := tx.ExecContext(
			ctx,
			`DELETE FROM instances WHERE k8s_name = ? AND region_id = ? AND deployment_id = ?`,
			name,
			regionID,
			deploymentID,
		); err != nil {
			return err
		}
	}
	if at == (made{}) {
		return nil
	}
	_, err = tx.ExecContext(ctx, `UPDATE deployment_topology SET agent_epoch = ?, sequence = ? WHERE deployment_id = ? AND region_id = ?`,
		at.epoch, at.sequence, deploymentID, regionID)
	return err
}

// forgetInstances removes the instances of a deployment whose row has vanished: its agent
// reports that none is left. Without any the deployment is unknown.
func forgetInstances(ctx context.Context, tx *db.Tx, regionID, name string) error {
	n, err := tx.Affected(
		ctx,
		`DELETE FROM instances WHERE region_id = ? AND deployment_id = (SELECT id FROM deployments WHERE k8s_name = ?)`,
		regionID,
		name,
	)
	if err != nil || n > 0 {
		return err
	}
	return ErrUnknownResource
}

// statusOf returns the word for a status; an unknown one is inactive.
func statusOf(status ctrlv1.ReportDeploymentStatusRequest_Update_Instance_Status) string {
	switch status {
	case ctrlv1.ReportDeploymentStatusRequest_Update_Instance_STATUS_PENDING:
		return "pending"
	case ctrlv1.ReportDeploymentStatusRequest_Update_Instance_STATUS_RUNNING:
		return "running"
	case ctrlv1.ReportDeploymentStatusRequest_Update_Instance_STATUS_FAILED:
		return "failed"
	case ctrlv1.ReportDeploymentStatusRequest_Update_Instance_STATUS_UNSPECIFIED:
	}
	return "inactive"
}

// ReportSentinelStatus stores how one sentinel is.
func (s *Service) ReportSentinelStatus(
	ctx context.Context,
	r *connect.Request[ctrlv1.ReportSentinelStatusRequest],
) (_ *connect.Response[ctrlv1.ReportSentinelStatusResponse], err error) {
	ended := s.observe(sentinels)
	defer func() { ended(err) }()
	c, err := s.admit(ctx, "")
	if err != nil {
		return nil, err
	}
	switch {
	case r.Msg.GetK8SName() == "":
		err = errors.New("k8s_name: must not be empty")
	case r.Msg.GetAvailableReplicas() < 0:
		err = errors.New("available_replicas: must not be negative")
	}
	at := made{r.Msg.GetAgentEpoch(), r.Msg.GetSequence()}
	if err = cmp.Or(err, plain("k8s_name", r.Msg.GetK8SName()), at.valid()); err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, err)
	}
	if err = s.current(ctx, c, at); err != nil {
		return nil, err
	}
	err = s.store.Database.Write(ctx, func(tx *db.Tx) error {
		var kept made
		err := tx.QueryRowContext(ctx, `SELECT agent_epoch, sequence FROM sentinels WHERE region_id = ? AND k8s_name = ?`+tx.Lock, c.ID, r.Msg.GetK8SName()).
			Scan(&kept.epoch, &kept.sequence)
		if err != nil {
			return db.Missing(err, ErrUnknownResource)
		}
		if at.before(kept) {
			return nil
		}
		if at == (made{}) {
			at = kept
		}
		_, err = tx.ExecContext(ctx, `UPDATE sentinels SET available_replicas = ?, health = ?, agent_epoch = ?, sequence = ?, updated_at = ?
			WHERE region_id = ? AND k8s_name = ?`,
			r.Msg.GetAvailableReplicas(), healthOf(r.Msg.GetHealth()), at.epoch, at.sequence, time.Now().UnixMilli(), c.ID, r.Msg.GetK8SName())
		return err
	})
	if err != nil {
		err := s.reported(ctx, err, r.Msg.GetK8SName())
		var failure *connect.Error
		if errors.As(err, &failure) && failure.Code() == connect.CodeUnknown {
			return nil, connect.NewError(connect.CodeInternal, failure.Unwrap())
		}
		return nil, err
	}
	return connect.NewResponse(&ctrlv1.ReportSentinelStatusResponse{}), nil
}

func healthOf(health ctrlv1.Health) string {
	switch health {
	case ctrlv1.Health_HEALTH_HEALTHY:
		return "healthy"
	case ctrlv1.Health_HEALTH_UNHEALTHY:
		return "unhealthy"
	case ctrlv1.Health_HEALTH_PAUSED:
		return "paused"
	case ctrlv1.Health_HEALTH_UNSPECIFIED:
	}
	return "unknown"
}
