package statesynctest

import (
	"context"
	"errors"
	"fmt"
)

// begun opens a transaction that has appended the changes.
func begun(ctx context.Context, s Store, id string, values ...any) (Tx, error) {
	tx, err := s.Begin(ctx)
	if err != nil {
		return nil, fmt.Errorf("begin: %w", err)
	}
	for _, v := range values {
		if err := tx.Append(ctx, put(id, v)); err != nil {
			return nil, errors.Join(fmt.Errorf("append: %w", err), tx.Rollback())
		}
	}
	return tx, nil
}

// reversed commits transactions in the reverse order of their first write, while a
// reader reads in between: it skips versions of a log that assigns them at the write.
func reversed(ctx context.Context, s Store) error {
	if err := addScope(ctx, s, scope); err != nil {
		return err
	}
	const many = 5
	var open []Tx
	for n := range many {
		tx, err := begun(ctx, s, fmt.Sprint("key-", n), n)
		if err != nil {
			return err
		}
		open = append(open, tx)
	}
	var after uint64
	for n := many - 1; n >= 0; n-- {
		if err := open[n].Commit(); err != nil {
			return fmt.Errorf("commit: %w", err)
		}
		if err := reaches(ctx, s, scope, after+1); err != nil {
			return fmt.Errorf("a transaction that committed late: %w", err)
		}
		page, err := all(ctx, s, scope, after)
		if err := errors.Join(err, holds(page, item(after+1, put(fmt.Sprint("key-", n), n)))); err != nil {
			return err
		}
		after++
	}
	return nil
}

func stalled(ctx context.Context, s Store) error {
	if err := addScope(ctx, s, scope); err != nil {
		return err
	}
	slow, err := begun(ctx, s, "slow", 1)
	if err != nil {
		return err
	}
	for n := range 20 {
		if err := commit(ctx, s, put(fmt.Sprint("fast-", n), n)); err != nil {
			return errors.Join(fmt.Errorf("beside a stalled transaction: %w", err), slow.Rollback())
		}
	}
	if err := slow.Commit(); err != nil {
		return err
	}
	if err := reaches(ctx, s, scope, 21); err != nil {
		return err
	}
	page, err := all(ctx, s, scope, 20)
	return errors.Join(err, holds(page, item(21, put("slow", 1))))
}

func rollback(ctx context.Context, s Store) error {
	if err := addScope(ctx, s, scope); err != nil {
		return err
	}
	for n := range 5 {
		tx, err := begun(ctx, s, "undone", n, n+1)
		if err != nil {
			return err
		}
		if err := tx.Rollback(); err != nil {
			return fmt.Errorf("rollback: %w", err)
		}
		if err := commit(ctx, s, put("done", n)); err != nil {
			return fmt.Errorf("after a rollback: %w", err)
		}
	}
	page, err := all(ctx, s, scope, 0)
	return errors.Join(err, holds(page, item(5, put("done", 4))))
}

func invisible(ctx context.Context, s Store) error {
	if err := addScope(ctx, s, scope); err != nil {
		return err
	}
	tx, err := begun(ctx, s, "a", 1, 2)
	if err != nil {
		return err
	}
	page, err := all(ctx, s, scope, 0)
	if err := errors.Join(err, holds(page), stays(ctx, s, scope, 0)); err != nil {
		return errors.Join(fmt.Errorf("before the commit: %w", err), tx.Rollback())
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	if err := reaches(ctx, s, scope, 2); err != nil {
		return err
	}
	page, err = all(ctx, s, scope, 0)
	return errors.Join(err, holds(page, item(2, put("a", 2))))
}
