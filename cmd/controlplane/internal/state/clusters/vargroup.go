package clusters

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/adminapi"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/audit"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
)

// VarGroup is what an administrator puts for a group of variables.
type VarGroup struct {
	// Name is unique in the project.
	Name string `json:"name"`
	// Environment is the one that the group may be attached in. Empty: all.
	Environment string `json:"environment,omitempty"`
	// Entries are all that the group has. Each key is there once.
	Entries []VarGroupEntry `json:"entries"`
}

// VarGroupEntry is one variable.
type VarGroupEntry struct {
	Key string `json:"key"`
	// Value may be left out for a key that the group has: its value stays, but where it was secret and
	// would be shown now.
	Value *string `json:"value,omitempty"`
	// Secret values are never answered. Left out: true.
	Secret *bool `json:"secret,omitempty"`
}

// StoredVarGroup is a group as GET answers it: without secret values.
type StoredVarGroup struct {
	VarGroupID string `json:"var_group_id"`
	ProjectID  string `json:"project_id"`
	VarGroup
	// Checksum is the checksum of all entries, as agents get it.
	Checksum string `json:"checksum"`
	// Services are those that the group is attached to.
	Services []Attachment `json:"services"`
}

// Attachment is a service that has a group.
type Attachment struct {
	Environment string `json:"environment"`
	ServiceID   string `json:"service_id"`
}

// varGroupRow is a group as the database has it.
type varGroupRow struct {
	id, projectID, name, environment, checksum string
}

// entry is an entry of a group in the clear. It must never be logged.
type entry struct {
	value  string
	secret bool
}

// PutVarGroup creates or changes a group. Its name must be valid, and each key be there
// once. What is wrong with the rest is an error that names the field, and no value.
func (s *Store) PutVarGroup(ctx context.Context, projectID, groupID string, group VarGroup) (change Change, err error) {
	err = s.Database.Write(ctx, func(tx *db.Tx) error {
		change = Change{}
		project, err := liveProject(ctx, tx, projectID)
		if err != nil {
			return err
		}
		have, err := varGroupByID(ctx, tx, groupID)
		change.Created = errors.Is(err, ErrUnknownVarGroup)
		switch {
		case err != nil && !change.Created:
			return err
		case !change.Created && have.projectID != projectID:
			return ErrVarGroupElsewhere
		}
		old, err := s.entries(ctx, tx, groupID)
		if err != nil {
			return err
		}
		entries, values, err := merge(group.Entries, old)
		if err != nil {
			return err
		}
		// As agents will see it, values that stay among the others.
		served := starbase.VarGroup{VarGroupID: groupID, ProjectID: projectID, Environment: group.Environment, Entries: values}
		if served.Checksum, err = s.checksum(have, old, &served); err != nil {
			return err
		}
		if fields := served.Validate(); len(fields) > 0 {
			return adminapi.Invalid(fields...)
		}
		if err := nameIsFree(ctx, tx, projectID, groupID, group.Name); err != nil {
			return err
		}
		if err := environmentFits(ctx, tx, groupID, group.Environment); err != nil {
			return err
		}
		want := varGroupRow{groupID, projectID, group.Name, group.Environment, served.Checksum}
		change.Changed = change.Created || have != want || !maps.Equal(entries, old)
		if err := change.number(ctx, tx, project.clusterID); err != nil || !change.Changed {
			return err
		}
		if err := s.writeVarGroup(ctx, tx, want, entries, change.Generation); err != nil {
			return err
		}
		return audit.Record(
			ctx,
			tx,
			audit.Change{Verb: "put", Kind: audit.KindVarGroup, Name: about(projectID, groupID), Outcome: audit.CreatedOr(change.Created)},
		)
	})
	if err != nil {
		return Change{}, fmt.Errorf("put var group %s: %w", groupID, err)
	}
	return change, nil
}

// keyed is what a checksum under a key of the ring begins with.
const keyed = "hmac-sha256:"

// checksum returns the new checksum of a group whose old row and entries are have and old. It
// changes only if a value changes: another key of the ring restarts no pod.
func (s *Store) checksum(have varGroupRow, old map[string]entry, group *starbase.VarGroup) (string, error) {
	if strings.HasPrefix(have.checksum, keyed) &&
		maps.EqualFunc(old, group.Entries, func(e entry, value string) bool { return e.value == value }) {
		return have.checksum, nil
	}
	sum, err := s.Keys.MAC(group.Canonical(), group.VarGroupID)
	return keyed + sum, err
}

// merge returns the entries of a group that is put over old ones.
func merge(put []VarGroupEntry, old map[string]entry) (entries map[string]entry, values map[string]string, err error) {
	entries, values = make(map[string]entry, len(put)), make(map[string]string, len(put))
	for i, e := range put {
		value, known := old[e.Key]
		secret := e.Secret == nil || *e.Secret
		switch {
		case e.Value != nil:
			value.value = *e.Value
		case known && value.secret && !secret:
			return nil, nil, adminapi.Invalid(starbase.FieldError{
				Field: fmt.Sprintf("entries[%d].value", i), Value: "none",
				Want: fmt.Sprintf("the value: that of %q is secret, and is not shown to who does not know it", e.Key),
			})
		case !known:
			return nil, nil, adminapi.Invalid(
				starbase.FieldError{
					Field: fmt.Sprintf("entries[%d].value", i),
					Value: "none",
					Want:  fmt.Sprintf("a value: the group has no entry %q whose value could stay", e.Key),
				},
			)
		}
		value.secret = secret
		entries[e.Key], values[e.Key] = value, value.value
	}
	return entries, values, nil
}

func (s *Store) writeVarGroup(ctx context.Context, tx *db.Tx, group varGroupRow, entries map[string]entry, generation int64) error {
	_, err := tx.ExecContext(
		ctx,
		`INSERT INTO var_groups (id, project_id, name, environment, checksum, generation, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (id) DO UPDATE SET name = excluded.name, environment = excluded.environment, checksum = excluded.checksum,
		generation = excluded.generation, updated_at = excluded.updated_at`,
		group.id,
		group.projectID,
		group.name,
		group.environment,
		group.checksum,
		generation,
		time.Now().UnixMilli(),
	)
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `DELETE FROM var_group_entries WHERE var_group_id = ?`, group.id); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		key, sealed, err := s.Keys.Seal(entries[name].value, about(group.id, name))
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO var_group_entries (var_group_id, name, secret, key_id, sealed) VALUES (?, ?, ?, ?, ?)`,
			group.id, name, flag(entries[name].secret), key, sealed); err != nil {
			return err
		}
	}
	return nil
}

// about ties an encrypted value to its place.
func about(groupID, name string) string { return groupID + "/" + name }

func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}

// DeleteVarGroup deletes a group that is attached to no service.
func (s *Store) DeleteVarGroup(ctx context.Context, projectID, groupID string) (change Change, err error) {
	err = s.Database.Write(ctx, func(tx *db.Tx) error {
		change = Change{Changed: true}
		project, err := liveProject(ctx, tx, projectID)
		if err != nil {
			return err
		}
		if _, err := varGroupOf(ctx, tx, projectID, groupID); err != nil {
			return err
		}
		attached, err := attachments(ctx, tx, groupID)
		if err != nil {
			return err
		}
		if len(attached) > 0 {
			return ErrVarGroupAttached
		}
		if err := change.number(ctx, tx, project.clusterID); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM var_group_entries WHERE var_group_id = ?`, groupID); err != nil {
			return err
		}
		if _, err = tx.ExecContext(ctx, `DELETE FROM var_groups WHERE id = ?`, groupID); err != nil {
			return err
		}
		return audit.Record(
			ctx,
			tx,
			audit.Change{Verb: "delete", Kind: audit.KindVarGroup, Name: about(projectID, groupID), Outcome: audit.Deleted},
		)
	})
	if err != nil {
		return Change{}, fmt.Errorf("delete var group %s: %w", groupID, err)
	}
	return change, nil
}

func (s *Store) stored(ctx context.Context, tx *db.Tx, row varGroupRow) (StoredVarGroup, error) {
	group := StoredVarGroup{
		VarGroupID: row.id, ProjectID: row.projectID, Checksum: row.checksum,
		VarGroup: VarGroup{Name: row.name, Environment: row.environment, Entries: []VarGroupEntry{}},
	}
	entries, err := s.entries(ctx, tx, row.id)
	if err != nil {
		return group, err
	}
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		e := VarGroupEntry{Key: name, Secret: new(entries[name].secret)}
		if !entries[name].secret {
			e.Value = new(entries[name].value)
		}
		group.Entries = append(group.Entries, e)
	}
	group.Services, err = attachments(ctx, tx, row.id)
	return group, err
}

// entries returns the entries of a group, decrypted.
func (s *Store) entries(ctx context.Context, tx *db.Tx, groupID string) (map[string]entry, error) {
	rows, err := tx.QueryContext(
		ctx,
		`SELECT var_group_id, name, secret, key_id, sealed FROM var_group_entries WHERE var_group_id = ?`,
		groupID,
	)
	all, err := s.open(rows, err)
	return all[groupID], err
}

// open reads and decrypts entries, by group and by name.
func (s *Store) open(rows *sql.Rows, queryErr error) (map[string]map[string]entry, error) {
	type row struct {
		group, name, key, sealed string
		secret                   bool
	}
	sealed, err := db.Collect(rows, queryErr, func(rows *sql.Rows, r *row) error {
		return rows.Scan(&r.group, &r.name, &r.secret, &r.key, &r.sealed)
	})
	if err != nil {
		return nil, err
	}
	all := map[string]map[string]entry{}
	for _, r := range sealed {
		value, err := s.Keys.Open(r.key, r.sealed, about(r.group, r.name))
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrSealed, err)
		}
		if all[r.group] == nil {
			all[r.group] = map[string]entry{}
		}
		all[r.group][r.name] = entry{value, r.secret}
	}
	return all, nil
}

func liveProject(ctx context.Context, tx *db.Tx, projectID string) (projectRow, error) {
	project, err := projectByID(ctx, tx, projectID)
	if err == nil && project.deleted {
		err = ErrProjectDeleted
	}
	return project, err
}

func varGroupByID(ctx context.Context, tx *db.Tx, groupID string) (g varGroupRow, err error) {
	err = tx.QueryRowContext(ctx, `SELECT id, project_id, name, environment, checksum FROM var_groups WHERE id = ?`+tx.Lock, groupID).
		Scan(&g.id, &g.projectID, &g.name, &g.environment, &g.checksum)
	return g, db.Missing(err, ErrUnknownVarGroup)
}

// varGroupOf returns a group of that project.
func varGroupOf(ctx context.Context, tx *db.Tx, projectID, groupID string) (varGroupRow, error) {
	group, err := varGroupByID(ctx, tx, groupID)
	if err == nil && group.projectID != projectID {
		err = ErrUnknownVarGroup
	}
	return group, err
}

func nameIsFree(ctx context.Context, tx *db.Tx, projectID, groupID, name string) error {
	var others int
	err := tx.QueryRowContext(ctx, `SELECT count(*) FROM var_groups WHERE project_id = ? AND name = ? AND id <> ?`, projectID, name, groupID).
		Scan(&others)
	if err == nil && others > 0 {
		err = ErrVarGroupName
	}
	return err
}

// environmentFits returns an error if the group is attached in another environment.
func environmentFits(ctx context.Context, tx *db.Tx, groupID, environment string) error {
	if environment == "" {
		return nil
	}
	attached, err := attachments(ctx, tx, groupID)
	if err != nil {
		return err
	}
	for _, a := range attached {
		if a.Environment != environment {
			return ErrVarGroupAttached
		}
	}
	return nil
}

func attachments(ctx context.Context, tx *db.Tx, groupID string) ([]Attachment, error) {
	rows, err := tx.QueryContext(
		ctx,
		`SELECT environment, service_id FROM service_var_groups WHERE var_group_id = ? ORDER BY environment, service_id`,
		groupID,
	)
	list, err := db.Collect(rows, err, func(rows *sql.Rows, a *Attachment) error { return rows.Scan(&a.Environment, &a.ServiceID) })
	if list == nil {
		list = []Attachment{}
	}
	return list, err
}
