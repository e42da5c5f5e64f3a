package regions

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/audit"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

// The collections of a region's log.
const (
	deployments = ctrlv1.Deployments
	sentinels   = ctrlv1.Sentinels
	policies    = ctrlv1.Policies
)

// wanted is an item's value in the log: a state, and what to apply in it.
type wanted struct {
	State string          `json:"state"`
	Apply json.RawMessage `json:"apply"`
}

// Wanted is what an administrator wants of one resource in one region.
type Wanted struct {
	// State is the desired state, such as running or archived.
	State string `json:"desired_state"`
	// Spec is the message ApplyDeployment, ApplySentinel or
	// ApplyCiliumNetworkPolicy in the JSON form of protobuf, without the ids
	// that the path has. It may be left out to change the state alone.
	Spec json.RawMessage `json:"spec,omitempty"`
}

// states are the states that can be wanted: those that the contract names.
var states = []string{"running", "started", "starting", "archived", "standby", "stopped", "stopping"} //nolint:gochecknoglobals // a table

// adopt sets the id of an apply message, and its region.
func adopt(apply ctrlv1.Order, id string, region Region) {
	switch m := apply.(type) {
	case *ctrlv1.ApplyDeployment:
		m.DeploymentId, m.Region = id, region.Name
	case *ctrlv1.ApplySentinel:
		m.SentinelId = id
	case *ctrlv1.ApplyCiliumNetworkPolicy:
		m.CiliumNetworkPolicyId = id
	}
}

// PutDeployment sets the desired state of the deployment in the region.
func (s *Store) PutDeployment(ctx context.Context, regionID, id string, want Wanted) (changed bool, err error) {
	return s.put(ctx, regionID, id, want, deployments)
}

// PutSentinel sets the desired state of the sentinel in the region.
func (s *Store) PutSentinel(ctx context.Context, regionID, id string, want Wanted) (changed bool, err error) {
	return s.put(ctx, regionID, id, want, sentinels)
}

// PutPolicy sets the network policy of the region. Its state is running, or
// archived for a policy that must be deleted.
func (s *Store) PutPolicy(ctx context.Context, regionID, id string, want Wanted) (changed bool, err error) {
	return s.put(ctx, regionID, id, want, policies)
}

func (s *Store) put(ctx context.Context, regionID, id string, want Wanted, collection string) (changed bool, err error) {
	err = s.Database.Write(ctx, func(tx *db.Tx) error {
		changed = false
		if kindOf(collection, want.State) == "" {
			possible := slices.DeleteFunc(slices.Clone(states), func(state string) bool { return kindOf(collection, state) == "" })
			return invalid("desired_state", fmt.Sprintf("%.80q", want.State), "one of "+strings.Join(possible, ", "))
		}
		region, err := regionOf(ctx, tx, regionID)
		if err != nil {
			return err
		}
		apply := ctrlv1.NewApply(collection)
		oldState, oldSpec, err := load(ctx, tx, collection, regionID, id)
		isNew := errors.Is(err, ErrUnknownResource)
		if err != nil && !isNew {
			return err
		}
		text := []byte(want.Spec)
		if text == nil {
			if isNew {
				return invalid("spec", "none", "a spec, which is required for a new resource")
			}
			text = []byte(oldSpec)
		}
		if err := protojson.Unmarshal(text, apply); err != nil {
			return unread(err)
		}
		adopt(apply, id, region)
		// What was put by older rules can be stopped, and not started again.
		if want.Spec != nil || kindOf(collection, want.State) == "apply" {
			if err := valid(apply); err != nil {
				return err
			}
		}
		spec, err := canonical(apply)
		if err != nil {
			return err
		}
		if !isNew && oldState == want.State && oldSpec == spec {
			return nil
		}
		changed = true
		if err := save(ctx, tx, apply, regionID, id, want.State, spec); err != nil {
			return err
		}
		value, err := json.Marshal(wanted{State: want.State, Apply: json.RawMessage(spec)})
		if err != nil {
			return err
		}
		if err := audit.Record(ctx, tx, auditOf(collection, regionID, id, want.State, isNew)); err != nil {
			return err
		}
		return s.Database.Log.Append(ctx, tx.Tx, statesync.Change{
			Scope: region.Scope, Key: statesync.Key{Collection: collection, ID: id}, Value: value,
		})
	})
	if err != nil {
		return false, fmt.Errorf("put %s/%s in region %s: %w", collection, id, regionID, err)
	}
	s.Database.Log.Wake()
	return changed, nil
}

// auditOf is the entry for a resource that is put in a state.
func auditOf(collection, regionID, id, state string, isNew bool) audit.Change {
	c := audit.Change{Verb: "put", Kind: auditKind(collection), Name: regionID + "/" + id, Outcome: audit.CreatedOr(isNew)}
	if state == "archived" && !isNew {
		c.Verb, c.Outcome = "delete", audit.Deleted
	}
	return c
}

// auditKind is the kind of a resource in the audit.
func auditKind(collection string) string {
	return map[string]string{deployments: audit.KindDeployment, sentinels: audit.KindSentinel, policies: audit.KindPolicy}[collection]
}

func regionOf(ctx context.Context, tx *db.Tx, regionID string) (region Region, err error) {
	row := tx.QueryRowContext(ctx, `SELECT `+regionColumns+` FROM regions r
		`+withLog+` WHERE r.id = ?`, regionID)
	return region, db.Missing(scanRegion(row.Scan, &region), ErrUnknownRegion)
}

// load returns the state and spec of the resource, whose row it locks: versions
// of one key follow the order of these locks.
func load(ctx context.Context, tx *db.Tx, collection, regionID, id string) (state, spec string, err error) {
	switch collection {
	case deployments:
		err = tx.QueryRowContext(ctx, `SELECT t.desired_state, t.spec FROM deployment_topology t
			WHERE t.deployment_id = ? AND t.region_id = ?`+tx.Lock, id, regionID).Scan(&state, &spec)
	case sentinels:
		err = tx.QueryRowContext(ctx, `SELECT desired_state, spec FROM sentinels WHERE id = ? AND region_id = ?`+tx.Lock, id, regionID).
			Scan(&state, &spec)
	case policies:
		var deleted bool
		err = tx.QueryRowContext(ctx, `SELECT deleted, policy FROM cilium_network_policies WHERE id = ? AND region_id = ?`+tx.Lock, id, regionID).
			Scan(&deleted, &spec)
		if state = "running"; deleted {
			state = "archived"
		}
	}
	return state, spec, db.Missing(err, ErrUnknownResource)
}

func save(ctx context.Context, tx *db.Tx, apply ctrlv1.Order, regionID, id, state, spec string) error {
	namespace, name := apply.GetK8SNamespace(), apply.GetK8SName()
	now := time.Now().UnixMilli()
	var err error
	switch m := apply.(type) {
	case *ctrlv1.ApplyDeployment:
		var owner string
		err := tx.QueryRowContext(ctx, `SELECT id FROM deployments WHERE k8s_name = ?`, name).Scan(&owner)
		if err == nil && owner != id {
			return fmt.Errorf("%w: %q is that of deployment %s", ErrNameTaken, name, owner)
		}
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		var known [2]string
		err = tx.QueryRowContext(ctx, `SELECT k8s_namespace, k8s_name FROM deployments WHERE id = ?`+tx.Lock, id).Scan(&known[0], &known[1])
		if err == nil && known != [2]string{namespace, name} {
			// Reports and other regions refer to it by that name.
			return fmt.Errorf(
				"%w: namespace and name of deployment %s are %s/%s and cannot change to %s/%s",
				ErrNameTaken,
				id,
				known[0],
				known[1],
				namespace,
				name,
			)
		}
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO deployments (id, workspace_id, k8s_namespace, k8s_name, updated_at) VALUES (?, ?, ?, ?, ?)
			ON CONFLICT (id) DO UPDATE SET workspace_id = excluded.workspace_id, updated_at = excluded.updated_at`,
			id, m.GetWorkspaceId(), namespace, name, now); err != nil {
			return err
		}
		_, err = tx.ExecContext(
			ctx,
			`INSERT INTO deployment_topology (deployment_id, region_id, workspace_id, desired_state, spec, updated_at) VALUES (?, ?, ?, ?, ?, ?)
			ON CONFLICT (deployment_id, region_id) DO UPDATE SET workspace_id = excluded.workspace_id,
			desired_state = excluded.desired_state, spec = excluded.spec, updated_at = excluded.updated_at`,
			id,
			regionID,
			m.GetWorkspaceId(),
			state,
			spec,
			now,
		)
		return err
	case *ctrlv1.ApplySentinel:
		_, err = tx.ExecContext(
			ctx,
			`INSERT INTO sentinels (id, region_id, k8s_namespace, k8s_name, desired_state, spec, wanted_at, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT (id, region_id) DO UPDATE SET k8s_namespace = excluded.k8s_namespace, k8s_name = excluded.k8s_name,
			desired_state = excluded.desired_state, spec = excluded.spec, wanted_at = excluded.wanted_at, updated_at = excluded.updated_at`,
			id,
			regionID,
			namespace,
			name,
			state,
			spec,
			now,
			now,
		)
	case *ctrlv1.ApplyCiliumNetworkPolicy:
		deleted := 0
		if state != "running" {
			deleted = 1
		}
		_, err = tx.ExecContext(
			ctx,
			`INSERT INTO cilium_network_policies (id, region_id, k8s_namespace, k8s_name, policy, deleted, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT (id, region_id) DO UPDATE SET k8s_namespace = excluded.k8s_namespace, k8s_name = excluded.k8s_name,
			policy = excluded.policy, deleted = excluded.deleted, updated_at = excluded.updated_at`,
			id,
			regionID,
			namespace,
			name,
			spec,
			deleted,
			now,
		)
	}
	return err
}

// canonical returns the JSON form of m, the same text for the same message:
// protojson adds spaces at random on purpose.
func canonical(m proto.Message) (string, error) {
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil {
		return "", err
	}
	var members any
	if err := json.Unmarshal(text, &members); err != nil {
		return "", err
	}
	text, err = json.Marshal(members)
	return string(text), err
}
