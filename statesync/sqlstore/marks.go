package sqlstore

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/seed-9e1ffd66/trueup/statesync"
)

const (
	// maxKeptMarks is how many marks of a scope are kept above its floor.
	maxKeptMarks = 100_000
	// renewalPause is the min time between two epochs that reports cause: a faulty
	// agent must not make all others list for ever.
	renewalPause = 10 * time.Minute
)

// drawMark returns a random number for a batch's mark, never 0.
func drawMark() int64 {
	var bytes [8]byte
	// Read never fails; see crypto/rand.
	_, _ = rand.Read(bytes[:])
	return int64(binary.BigEndian.Uint64(bytes[:]) | 1) //nolint:gosec // any number will do
}

// seal returns the mark of a version: its random number and a MAC with the scope's
// secret. A mark with a valid MAC that the log does not have was lost, not invented.
func seal(secret, scope string, version uint64, drawn int64) statesync.Mark {
	if version == 0 || drawn == 0 {
		return statesync.Mark{}
	}
	mac := hmac.New(sha256.New, []byte(secret))
	var numbers [16]byte
	binary.BigEndian.PutUint64(numbers[:8], version)
	binary.BigEndian.PutUint64(numbers[8:], uint64(drawn)) //nolint:gosec // the same bits
	_, _ = mac.Write(numbers[:])                           // a hash never fails
	_, _ = mac.Write([]byte(scope))
	return statesync.Mark{Version: version, ID: hex.EncodeToString(numbers[8:]) + hex.EncodeToString(mac.Sum(nil)[:8])}
}

// sealed reports whether a log with this secret made the mark.
func sealed(secret, scope string, mark statesync.Mark) bool {
	var number [8]byte
	if len(mark.ID) != 32 {
		return false
	}
	if _, err := hex.Decode(number[:], []byte(mark.ID[:16])); err != nil {
		return false
	}
	want := seal(secret, scope, mark.Version, int64(binary.BigEndian.Uint64(number[:]))) //nolint:gosec // the same bits
	return hmac.Equal([]byte(want.ID), []byte(mark.ID))
}

// place scans the columns of a position.
type place struct {
	statesync.Position
	secret string
	marked uint64
	drawn  int64
}

func (p *place) into() []any {
	return []any{&p.Epoch, &p.Floor, &p.Head, &p.secret, &p.marked, &p.drawn}
}

// position returns the scanned position. A head has no mark if it is older than marks.
func (p *place) position(scope string) statesync.Position {
	at := p.Position
	if p.marked == p.Head {
		at.Mark = seal(p.secret, scope, p.Head, p.drawn)
	}
	return at
}

// Marked implements [statesync.Marks]. A mark that this log has made and no longer has
// shows that commits were lost: the scope gets a new epoch then, at most one in ten
// minutes.
func (s *Store) Marked(ctx context.Context, scope string, mark statesync.Mark) (bool, error) {
	if err := s.ready(); err != nil {
		return false, err
	}
	if err := mark.Validate(); err != nil {
		return false, err
	}
	ctx, cancel := s.within(ctx)
	defer cancel()
	has, lost, err := s.hasMark(ctx, s.readDB(), scope, mark)
	if err == nil && lost && !has {
		// Ask the reader's own database again: it decides.
		err = s.transact(ctx, func(tx *sql.Tx) error {
			has, lost, err = s.hasMark(ctx, tx, scope, mark)
			if err != nil || !lost {
				return err
			}
			return s.renewReported(ctx, tx, scope, "a reader has a mark that the log has lost")
		})
		s.watcher.stale(nil)
	}
	if err != nil {
		return false, fmt.Errorf("mark of scope %q: %w", scope, err)
	}
	return has, nil
}

// hasMark reports whether the log has the mark, and whether it has lost it: it made the
// mark, and has not pruned it.
func (s *Store) hasMark(ctx context.Context, from interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}, scope string, mark statesync.Mark,
) (has, lost bool, err error) {
	var epoch, secret string
	var floor, oldest uint64
	var drawn sql.NullInt64
	err = from.QueryRowContext(ctx, s.sql.marked, scope, int64(min(mark.Version, maxVersion))).
		Scan(&epoch, &secret, &floor, &oldest, &drawn)
		//nolint:gosec // bounded
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return false, false, unknown(scope)
	case err != nil:
		return false, false, err
	}
	if drawn.Valid && seal(secret, scope, mark.Version, drawn.Int64) == mark {
		return true, false, nil
	}
	return false, mark.Version >= floor && mark.Version >= oldest && sealed(secret, scope, mark), nil
}

// renewReported gives the scope a new epoch, unless reports have done so lately.
func (s *Store) renewReported(ctx context.Context, tx *sql.Tx, scope, why string) error {
	var p place
	if err := tx.QueryRowContext(ctx, s.sql.position, scope).Scan(p.into()...); err != nil {
		return err
	}
	return s.renew(ctx, tx, scope, p.Epoch, why, s.sql.reportedEpoch, renewalPause.Milliseconds())
}
