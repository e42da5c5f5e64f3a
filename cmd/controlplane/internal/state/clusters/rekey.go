package clusters

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/audit"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
)

// ErrNewKeyFirst is a first key that other replicas may not know.
var ErrNewKeyFirst = errors.New(
	"the first key is new, and replicas that do not know it could not read what it encrypts: put it last, restart every replica, then put it first",
)

// ErrKeyMissing is a key that values are encrypted with, and that is not among the keys, or has
// other bytes there.
var ErrKeyMissing = errors.New("values of var groups are encrypted with it")

// KnowKeys notes the keys that this replica knows. The error wraps [ErrNewKeyFirst] if the
// first is not among those that the replica knows which has started last, and [ErrKeyMissing]
// if a key that is in use is not known. Call it at the start.
func (s *Store) KnowKeys(ctx context.Context) error {
	if s.Keys.Current() == "" {
		return s.Database.Read(ctx, s.usable(ctx))
	}
	return s.Database.Write(ctx, func(tx *db.Tx) error {
		rows, err := tx.QueryContext(ctx, `SELECT id FROM var_group_keys`)
		known, err := db.Collect(rows, err, func(rows *sql.Rows, id *string) error { return rows.Scan(id) })
		switch {
		case err != nil:
			return err
		case len(known) > 0 && !slices.Contains(known, s.Keys.Current()):
			return fmt.Errorf("%s: %w", s.Keys.Current(), ErrNewKeyFirst)
		}
		if err := s.usable(ctx)(tx); err != nil {
			return err
		}
		ids := slices.Sorted(slices.Values(s.Keys.IDs()))
		if slices.Sort(known); slices.Equal(known, ids) {
			return nil // so it starts with a full disk, too
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM var_group_keys`); err != nil {
			return err
		}
		for _, id := range ids {
			if _, err := tx.ExecContext(ctx, `INSERT INTO var_group_keys (id) VALUES (?) ON CONFLICT (id) DO NOTHING`, id); err != nil {
				return err
			}
		}
		return nil
	})
}

// usable returns an error for a key that is in use and opens nothing. One value that is damaged
// is none of the key.
func (s *Store) usable(ctx context.Context) func(tx *db.Tx) error {
	return func(tx *db.Tx) error {
		type use struct {
			values int
			opens  bool
		}
		keys := map[string]*use{}
		rows, err := tx.QueryContext(ctx, `SELECT key_id, sealed, var_group_id, name FROM var_group_entries ORDER BY key_id`)
		if _, err := db.Collect(rows, err, func(rows *sql.Rows, _ *struct{}) error {
			var key, sealed, group, name string
			if err := rows.Scan(&key, &sealed, &group, &name); err != nil {
				return err
			}
			if keys[key] == nil {
				keys[key] = &use{}
			}
			keys[key].values++
			if !keys[key].opens {
				_, err := s.Keys.Open(key, sealed, about(group, name))
				keys[key].opens = err == nil
			}
			return nil
		}); err != nil {
			return err
		}
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			switch {
			case keys[key].opens:
			case slices.Contains(s.Keys.IDs(), key):
				return fmt.Errorf(
					"key %s: %w (%d), and none is read with its bytes, which are others: put back the line of that key as it was",
					key,
					ErrKeyMissing,
					keys[key].values,
				)
			default:
				return fmt.Errorf(
					"key %s: %w (%d), and it is not among the keys: add its line again, as the last",
					key,
					ErrKeyMissing,
					keys[key].values,
				)
			}
		}
		return nil
	}
}

// ForgetKeys forgets which keys the replicas know: the database was restored.
func (s *Store) ForgetKeys(ctx context.Context) error {
	return s.Database.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.ExecContext(ctx, `DELETE FROM var_group_keys`)
		return err
	})
}

// Rekey re-encrypts what is not encrypted with the current key, and returns how many
// values that was. When it returns no error, the other keys are needed no more. One value
// that cannot be decrypted does not hold back the others; the error joins those of all.
func (s *Store) Rekey(ctx context.Context) (n int, err error) {
	type row struct{ project, group, name, key, sealed string }
	rows, err := db.List(ctx, s.Database, `SELECT g.project_id, e.var_group_id, e.name, e.key_id, e.sealed
		FROM var_group_entries e JOIN var_groups g ON g.id = e.var_group_id WHERE e.key_id <> ?`, []any{s.Keys.Current()},
		func(rows *sql.Rows, r *row) error { return rows.Scan(&r.project, &r.group, &r.name, &r.key, &r.sealed) })
	if err != nil {
		return 0, fmt.Errorf("rekey: %w", err)
	}
	var errs []error
	for _, r := range rows {
		value, err := s.Keys.Open(r.key, r.sealed, about(r.group, r.name))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		key, sealed, err := s.Keys.Seal(value, about(r.group, r.name))
		if err != nil {
			return n, fmt.Errorf("rekey: %w", err)
		}
		changed := int64(0)
		err = s.Database.Write(ctx, func(tx *db.Tx) error {
			// Unless it was put again meanwhile.
			changed, err = tx.Affected(
				ctx,
				`UPDATE var_group_entries SET key_id = ?, sealed = ? WHERE var_group_id = ? AND name = ? AND sealed = ?`,
				key,
				sealed,
				r.group,
				r.name,
				r.sealed,
			)
			if err != nil || changed == 0 {
				return err
			}
			return audit.Record(ctx, tx, audit.Change{Verb: "rekey", Kind: audit.KindVarGroup, Name: about(r.project, r.group)})
		})
		if err != nil {
			return n, fmt.Errorf("rekey: %w", err)
		}
		n += int(changed)
	}
	errs = append(errs, s.keyChecksums(ctx))
	if err := errors.Join(errs...); err != nil {
		return n, fmt.Errorf("rekey: %w", err)
	}
	return n, nil
}

// keyChecksums replaces the checksums of earlier versions, which were plain hashes of values.
// The pods that have such a group are restarted, once.
func (s *Store) keyChecksums(ctx context.Context) error {
	groups, err := db.List(ctx, s.Database, `SELECT id, project_id FROM var_groups WHERE checksum NOT LIKE ?`, []any{keyed + "%"},
		func(rows *sql.Rows, g *varGroupRow) error { return rows.Scan(&g.id, &g.projectID) })
	if err != nil {
		return err
	}
	var errs []error
	for _, g := range groups {
		errs = append(errs, s.Database.Write(ctx, func(tx *db.Tx) error {
			project, err := projectByID(ctx, tx, g.projectID)
			if err != nil {
				return err
			}
			have, err := varGroupByID(ctx, tx, g.id)
			if err != nil || strings.HasPrefix(have.checksum, keyed) {
				return err
			}
			entries, err := s.entries(ctx, tx, g.id)
			if err != nil {
				return err
			}
			group := starbase.VarGroup{VarGroupID: g.id, Entries: map[string]string{}}
			for name, e := range entries {
				group.Entries[name] = e.value
			}
			checksum, err := s.checksum(have, entries, &group)
			if err != nil {
				return err
			}
			generation, err := raise(ctx, tx, project.clusterID)
			if err != nil {
				return err
			}
			if _, err := tx.ExecContext(
				ctx,
				`UPDATE var_groups SET checksum = ?, generation = ? WHERE id = ?`,
				checksum,
				generation,
				g.id,
			); err != nil {
				return err
			}
			return audit.Record(ctx, tx, audit.Change{Verb: "rekey", Kind: audit.KindVarGroup, Name: about(g.projectID, g.id)})
		}))
	}
	return errors.Join(errs...)
}
