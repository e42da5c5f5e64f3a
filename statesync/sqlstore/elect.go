package sqlstore

import (
	"context"
	"database/sql/driver"
	"time"
)

const (
	// stuck is how long rows may wait in the queue before a standby moves them itself:
	// the leader is dead but its lock is held, or a pooler has lost it.
	stuck = time.Second
	// acting is how long the standby then acts as the leader.
	acting = 30 * time.Second
)

// onConnection sequences while a session holds the advisory lock, and is a standby
// while another does. The lock only keeps standbys from competing for the row that
// makes a batch exclusive; correctness does not depend on it.
func (q *sequencer) onConnection(ctx context.Context) error {
	s := q.running.store
	limited, cancel := s.within(ctx)
	conn, err := s.DB.Conn(limited)
	cancel()
	if err != nil {
		return err
	}
	// Close the connection instead of returning it to the pool: the end of the session
	// ends its lock.
	defer func() {
		_ = conn.Raw(func(any) error { return driver.ErrBadConn })
		_ = conn.Close()
	}()
	standby := &standby{sequencer: q, checked: nothingSeen}
	acts := &q.running.acts
	defer acts.Store(false)
	return q.run(ctx, conn, func(ctx context.Context, woken bool) (active bool, err error) {
		switch {
		case q.leads || time.Now().Before(standby.actsUntil):
			active = true
		case woken && acts.Load(): // it acted until now, and has a Wake of another process
		case woken:
			signal(q.running.notifyWake)
		default:
			active, err = standby.elect(ctx)
		}
		acts.Store(active)
		return active, err
	})
}

// standby watches the rows that another sequencer leaves behind.
type standby struct {
	sequencer *sequencer
	// checked is a snapshot whose rows were all moved, next one whose rows must be
	// moved by nextAt. Only rows that became visible between the two are checked, so
	// dead rows cost nothing.
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
		s.logger().InfoContext(ctx, "sequencer elected leader")
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
		s.logger().WarnContext(ctx, "sequencer leader is stuck, taking over")
		b.actsUntil = time.Now().Add(acting)
		b.next = ""
		q.running.failing(ctx, nil)
		return true, nil
	}
	s.moving(ctx, b.next)
	b.checked, b.next, b.nextAt = b.next, now, time.Now().Add(stuck)
	return false, nil
}
