package server

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/audit"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/db"
)

// Rekey encrypts anew what is not encrypted with the current key, and returns how many
// values that was. When it returns no error, the other keys are needed no more. One value
// that cannot be decrypted does not hold back the others; the error joins those of all.
func (s *Store) Rekey(ctx context.Context) (n int, err error) {
	type row struct{ project, group, name, key, sealed string }
	var rows []row
	err = s.Database.Read(ctx, func(tx *db.Tx) error {
		found, err := tx.QueryContext(ctx, `SELECT g.project_id, e.var_group_id, e.name, e.key_id, e.sealed
			FROM var_group_entries e JOIN var_groups g ON g.id = e.var_group_id WHERE e.key_id <> ?`, s.Keys.Current())
		rows, err = db.Collect(found, err, func(rows *sql.Rows, r *row) error { return rows.Scan(&r.project, &r.group, &r.name, &r.key, &r.sealed) })
		return err
	})
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
			// Unless it was put anew meanwhile.
			result, err := tx.ExecContext(ctx, `UPDATE var_group_entries SET key_id = ?, sealed = ? WHERE var_group_id = ? AND name = ? AND sealed = ?`,
				key, sealed, r.group, r.name, r.sealed)
			if err != nil {
				return err
			}
			if changed, err = result.RowsAffected(); err != nil || changed == 0 {
				return err
			}
			return audit.Record(ctx, tx, audit.Change{Verb: "rekey", Kind: audit.KindVarGroup, Name: about(r.project, r.group)})
		})
		if err != nil {
			return n, fmt.Errorf("rekey: %w", err)
		}
		n += int(changed)
	}
	if len(errs) > 0 {
		return n, fmt.Errorf("rekey: %w", errors.Join(errs...))
	}
	return n, nil
}
