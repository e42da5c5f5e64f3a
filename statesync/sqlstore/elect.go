package sqlstore

import (
	"context"
	"database/sql/driver"
	"time"
)

const (
	// stuck is how long a standby watches rows wait in the queue before it moves
	// them itself: the leader is dead and its lock not, or a pooler lost it.
	stuck = time.Second
	// acting is how long it then goes on.
	acting = 30 * time.Second
)

// onConnection sequences while a session holds the advisory lock, and is a standby
// while another does. The lock keeps standbys from competing for the row that makes
// a batch exclusive, and has no part in what is correct.
func (q *sequencer) onConnection(ctx context.Context) error {
	s := q.running.store
	limited, cancel := s.within(ctx)
	conn, err := s.DB.Conn(limited)
	cancel()
	if err != nil {
		return err
	}
	// Closed, not given back to the pool: the end of the session ends its lock.
	defer func() {
		_ = conn.Raw(func(any) error { return driver.ErrBadConn })
		_ = conn.Close()
	}()
	standby := &standby{sequencer: q, checked: nothingSeen}
	return q.run(ctx, conn, func(ctx context.Context, woken bool) (bool, error) {
		switch {
		case q.leads || time.Now().Before(standby.actsUntil):
			return true, nil
		case woken:
			signal(q.running.notifyWake)
			return false, nil
		}
		return standby.elect(ctx)
	})
}

// standby watches what another sequencer leaves behind.
type standby struct {
	sequencer *sequencer
	// checked is a snapshot whose rows were all moved, next one whose rows must be
	// gone at nextAt. Only what became visible between the two is looked at, so
	// that dead rows cost nothing.
	checked, next string
	nextAt        time.Time
	actsUntil     time.Time
}

// elect tries to become the leader, and reports whether to act as one.
func (b *standby) elect(ctx context.Context) (bool, error) {
	q := b.sequencer
	s := q.running.store
	ctx, cancel := s.within(ctx)
	defer cancel()
	var now string
	if err := q.on.QueryRowContext(ctx, s.sql.elect, s.lockKey("sequence")).Scan(&q.leads, &now); err != nil {
		return false, err
	}
	switch {
	case q.leads:
		s.logger().InfoContext(ctx, "this process numbers what is committed")
		s.happened(Event{Kind: EventElected})
		return true, nil
	case b.next == "":
		b.next, b.nextAt = now, time.Now().Add(stuck)
		return false, nil
	case time.Now().Before(b.nextAt):
		return false, nil
	}
	var left bool
	if err := q.on.QueryRowContext(ctx, s.sql.leftBehind, b.checked, b.next).Scan(&left); err != nil {
		return false, err
	}
	if left {
		s.logger().WarnContext(ctx, "the sequencer holds its lock and does not work: taking over")
		b.actsUntil = time.Now().Add(acting)
		b.next = ""
		q.running.failing(ctx, nil)
		return true, nil
	}
	s.moving(ctx, b.next)
	b.checked, b.next, b.nextAt = b.next, now, time.Now().Add(stuck)
	return false, nil
}
