package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/seed-9e1ffd66/trueup/statesync"
)

// Progress is the position of a scope and of its readers.
type Progress struct {
	statesync.Position
	// Scope is the name.
	Scope string
	// Readers are the last reports of the readers, sorted by Reader, without Body and
	// without Mark.
	Readers []statesync.Reader
}

// Progress returns the progress of every scope, sorted by name. It is two queries,
// whatever the number of scopes; the readers are read after the positions.
func (s *Store) Progress(ctx context.Context) ([]Progress, error) {
	if err := s.ready(); err != nil {
		return nil, err
	}
	ctx, cancel := s.within(ctx)
	defer cancel()
	list, err := collect(ctx, s.readDB(), func(row *sql.Rows, p *Progress) error {
		var at place
		err := row.Scan(append([]any{&p.Scope}, at.into()...)...)
		p.Position = at.position(p.Scope)
		return err
	}, s.sql.allPositions)
	if err != nil {
		return nil, fmt.Errorf("progress: %w", err)
	}
	type reader struct {
		scope string
		statesync.Reader
	}
	readers, err := collect(ctx, s.readDB(), func(row *sql.Rows, r *reader) error {
		var at int64
		err := row.Scan(&r.scope, &r.Reader.Reader, &r.Session, &r.Sequence, &r.Applied.Epoch, &r.Applied.Version, &at)
		r.At = time.UnixMilli(at)
		return err
	}, s.sql.allReaders)
	if err != nil {
		return nil, fmt.Errorf("progress: %w", err)
	}
	place := make(map[string]int, len(list))
	for n := range list {
		place[list[n].Scope] = n
	}
	for _, r := range readers {
		if n, ok := place[r.scope]; ok {
			list[n].Readers = append(list[n].Readers, r.Reader)
		}
	}
	return list, nil
}
