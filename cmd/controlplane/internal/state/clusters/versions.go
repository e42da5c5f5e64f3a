package clusters

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

const (
	// pollVersions is how often versions are read that are waited for: the longest time
	// until a change in another process is seen.
	pollVersions = 250 * time.Millisecond
	// unread is how long the versions may not be readable before the streams end.
	unread = 5 * time.Second
)

// versions is the [statesync.Log] of the versions of desired states: the scope of a cluster has one
// item, the version that a pull is answered with. It is read from the row of the cluster, whatever program has
// written that: there is no second copy which could differ. The position of the item is the generation, its
// mark the nonce. One query serves all that wait.
type versions struct {
	database *db.Database
	ask      chan struct{} // holds at most one request for a query

	mu sync.Mutex
	// marks are the last that were read, by cluster.
	marks map[string]statesync.Mark
	waits map[*wait]bool
	good  time.Time // of the last query that was answered, or the last new wait
}

// wait is one call of Wait.
type wait struct {
	scope string
	at    statesync.Position
	done  chan error
}

var _ statesync.Log = (*versions)(nil)

func newVersions(database *db.Database) *versions {
	return &versions{database: database, ask: make(chan struct{}, 1), marks: map[string]statesync.Mark{}, waits: map[*wait]bool{}}
}

// row is where the desired state of a cluster stands.
type row struct {
	epoch, nonce string
	generation   int64
}

func (r row) position() statesync.Position {
	at := statesync.Position{Epoch: r.epoch, Head: uint64(r.generation)} //nolint:gosec // counted from 1
	if r.nonce != "" {
		at.Mark = statesync.Mark{Version: at.Head, ID: r.nonce}
	}
	return at
}

func (v *versions) row(ctx context.Context, scope string) (r row, err error) {
	err = v.database.Read(ctx, func(tx *db.Tx) error {
		return db.Missing(tx.QueryRowContext(ctx, `SELECT epoch, generation, nonce FROM clusters WHERE id = ?`, scope).
			Scan(&r.epoch, &r.generation, &r.nonce), statesync.ErrUnknownScope)
	})
	if err != nil {
		return row{}, fmt.Errorf("version of cluster %s: %w", scope, err)
	}
	return r, nil
}

// Read implements [statesync.Log].
func (v *versions) Read(ctx context.Context, scope string, after uint64, _ int) (statesync.Page, error) {
	r, err := v.row(ctx, scope)
	if err != nil {
		return statesync.Page{}, err
	}
	page := statesync.Page{Position: r.position()}
	if page.Head > after {
		value, err := json.Marshal(starbase.Version(r.epoch, r.generation, r.nonce))
		if err != nil {
			return statesync.Page{}, err
		}
		page.Items = []statesync.Item{{
			Version: page.Head, Key: statesync.Key{Collection: starbase.VersionCollection, ID: scope}, Value: value,
		}}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	// Older nonces are not stored. What was read here before has not changed: nothing of a superseded version counts.
	if page.Since = v.marks[scope]; page.Since.Version != after {
		page.Since = statesync.Mark{}
	}
	v.marks[scope] = page.Mark
	return page, nil
}

// Wait implements [statesync.Log].
func (v *versions) Wait(ctx context.Context, scope string, at statesync.Position) error {
	w := &wait{scope: scope, at: at, done: make(chan error, 1)}
	v.mu.Lock()
	v.waits[w], v.good = true, time.Now()
	v.mu.Unlock()
	defer func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		delete(v.waits, w)
	}()
	v.wake() // it may have changed since it was read
	select {
	case err := <-w.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// wake has the versions read soon.
func (v *versions) wake() {
	select {
	case v.ask <- struct{}{}:
	default:
	}
}

// Start ends waits until ctx ends.
func (v *versions) Start(ctx context.Context) error {
	poll := time.NewTicker(cmp.Or(v.database.Log.Poll, pollVersions))
	defer poll.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-v.ask:
		case <-poll.C:
		}
		v.look(ctx)
	}
}

// look reads the versions, and ends each wait whose position differs. Without a wait it reads nothing.
func (v *versions) look(ctx context.Context) {
	v.mu.Lock()
	waiting := len(v.waits)
	v.mu.Unlock()
	if waiting == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, unread)
	defer cancel()
	now := map[string]statesync.Position{}
	_, err := db.List(ctx, v.database, `SELECT id, epoch, generation, nonce FROM clusters`, nil, func(rows *sql.Rows, _ *struct{}) error {
		var id string
		var r row
		err := rows.Scan(&id, &r.epoch, &r.generation, &r.nonce)
		now[id] = r.position()
		return err
	})
	v.mu.Lock()
	defer v.mu.Unlock()
	if err != nil && time.Since(v.good) < unread {
		return
	}
	if err == nil {
		v.good = time.Now()
	}
	for w := range v.waits {
		at, known := now[w.scope]
		switch {
		case err != nil:
			w.end(fmt.Errorf("versions of clusters: %w", err))
		case !known:
			w.end(fmt.Errorf("cluster %s: %w", w.scope, statesync.ErrUnknownScope))
		case at != w.at:
			w.end(nil)
		}
	}
}

// end ends the wait, once.
func (w *wait) end(err error) {
	select {
	case w.done <- err:
	default:
	}
}
