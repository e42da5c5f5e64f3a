package sqlstore

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// maxPayload is below PostgreSQL's limit of 8000 bytes.
const maxPayload = 7000

func (s *Store) wakeChannel() string { return s.prefix() + "wake" }
func (s *Store) logChannel() string  { return s.prefix() + "log" }

// announce publishes new heads, in this process at once, in others through the
// notifier.
func (r *running) announce(heads []moved) {
	names := make([]string, 0, len(heads))
	for _, m := range heads {
		r.store.watcher.rise(m.scope, m.head)
		names = append(names, m.scope)
	}
	if r.store.Dialect != PostgreSQL || r.store.Listen == nil || len(names) == 0 {
		return
	}
	for {
		select {
		case r.notify <- names:
			return
		case waiting := <-r.notify: // the notifier is slow: one more at once
			if waiting == nil || len(waiting) > 1000 {
				names = nil
			} else if names != nil {
				names = append(waiting, names...)
			}
		}
	}
}

// notifier sends notifications. They are transactions of their own: one that
// notifies and writes would make all others that notify wait for its disk.
func (r *running) notifier(ctx context.Context) error {
	return r.supervise(ctx, "notifier", func(ctx context.Context) error {
		for {
			channel, payload := r.store.wakeChannel(), ""
			select {
			case <-ctx.Done():
				return nil
			case <-r.notifyWake:
			case scopes := <-r.notify:
				channel, payload = r.store.logChannel(), r.id+" "+scopeList(scopes)
			}
			if err := r.send(ctx, channel, payload); err != nil {
				return fmt.Errorf("notify: %w", err)
			}
		}
	})
}

func (r *running) send(ctx context.Context, channel, payload string) error {
	ctx, cancel := r.store.within(ctx)
	defer cancel()
	_, err := r.store.DB.ExecContext(ctx, `SELECT pg_notify($1, $2)`, channel, payload)
	return err
}

// scopeList is empty for all scopes.
func scopeList(scopes []string) string {
	seen := map[string]bool{}
	short := make([]string, 0, len(scopes))
	for _, scope := range scopes {
		if !seen[scope] {
			short = append(short, scope)
		}
		seen[scope] = true
	}
	list, err := json.Marshal(short)
	if err != nil || len(list) > maxPayload || len(short) == 0 {
		return ""
	}
	return string(list)
}

// listen receives the notifications of other processes. Polling goes on in any case.
func (r *running) listen(ctx context.Context) error {
	return r.supervise(ctx, "listener", func(ctx context.Context) error {
		defer r.listens.Store(false)
		channels := []string{r.store.wakeChannel(), r.store.logChannel()}
		err := r.store.Listen(ctx, channels, func() {
			r.listens.Store(true)
			r.store.watcher.stale(nil)
			signal(r.store.wake)
		}, func(channel, payload string) {
			if channel == r.store.wakeChannel() {
				if r.acts.Load() {
					signal(r.store.wake)
				}
				return
			}
			from, list, _ := strings.Cut(payload, " ")
			if from == r.id {
				return // this process has announced it to itself
			}
			var scopes []string // nil if it cannot be read: all
			_ = json.Unmarshal([]byte(list), &scopes)
			r.store.watcher.stale(scopes)
		})
		return fmt.Errorf("listen: %w", err)
	})
}

// keepPruned prunes now and then. If several processes do, each finds less.
func (r *running) keepPruned(ctx context.Context) error {
	return r.supervise(ctx, "pruning", func(ctx context.Context) error {
		every := time.NewTicker(r.store.pruneEvery())
		defer every.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-every.C:
			}
			if err := r.store.Prune(ctx); err != nil {
				return err
			}
		}
	})
}
