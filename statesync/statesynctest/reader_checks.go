package statesynctest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"time"

	"github.com/seed-9e1ffd66/trueup/statesync"
)

func readsEmpty(ctx context.Context, s *stand) error {
	_, err := s.reaches(ctx)
	return err
}

// begun commits three changes of two keys and waits for the reader.
func (s *stand) begun(ctx context.Context) error {
	_, err := s.changes(ctx, puts("1", 1), puts("2", 1), puts("1", 2))
	return err
}

func readsChanges(ctx context.Context, s *stand) error {
	if err := s.begun(ctx); err != nil {
		return err
	}
	if _, err := s.changes(ctx, puts("3", 1)); err != nil {
		return err
	}
	odd := statesync.Change{Key: statesync.Key{Collection: "b", ID: "ü/<&>\u2028😀"}, Value: []byte("null")}
	_, err := s.changes(ctx, puts("1", 3), puts("3", 2), odd)
	return err
}

func readsTombstone(ctx context.Context, s *stand) error {
	if err := s.begun(ctx); err != nil {
		return err
	}
	state, err := s.changes(ctx, deletes("1"))
	if err != nil {
		return err
	}
	if len(state.Deleted) != 1 || state.Deleted[0].ID != "1" {
		return fmt.Errorf("deleted: is %v after a tombstone of 1", state.Deleted)
	}
	_, err = s.changes(ctx, puts("1", 4))
	return err
}

func readsWhole(ctx context.Context, s *stand) error {
	for value := range 2 {
		var changes []statesync.Change
		for id := range 1200 {
			changes = append(changes, puts(strconv.Itoa(id), value))
		}
		if _, err := s.changes(ctx, changes...); err != nil {
			return err
		}
	}
	return nil
}

func readsOn(ctx context.Context, s *stand) error {
	if err := s.begun(ctx); err != nil {
		return err
	}
	for n := range 2 {
		requests := s.door.count()
		s.web.CloseClientConnections()
		if err := s.asks(ctx, requests+1, false); err != nil {
			return err
		}
		if _, err := s.changes(ctx, puts("2", n)); err != nil {
			return err
		}
	}
	return nil
}

func readsHalfLine(ctx context.Context, s *stand) error {
	s.door.next(cuts(func(frame map[string]any) bool { return frame["type"] == "changes" && frame["version"] == 5.0 }))
	if err := s.begun(ctx); err != nil {
		return err
	}
	requests := s.door.count()
	if _, err := s.changes(ctx, puts("2", 2)); err != nil {
		return err
	}
	if err := s.commit(ctx, puts("2", 3)); err != nil {
		return err
	}
	if err := s.asks(ctx, requests+1, false); err != nil {
		return err
	}
	_, err := s.reaches(ctx)
	return err
}

// away stops the server under a reader that has read all, and commits what it misses. It returns the
// number of requests until then.
func (s *stand) away(ctx context.Context) (requests int, err error) {
	if err := s.begun(ctx); err != nil {
		return 0, err
	}
	requests = s.door.count()
	s.door.set(true, nil)
	return requests, errors.Join(s.stopServer(), s.commit(ctx, deletes("2"), puts("4", 1)))
}

func readsRestart(ctx context.Context, s *stand) error {
	requests, err := s.away(ctx)
	if err != nil {
		return err
	}
	s.serve(ctx)
	if err := s.asks(ctx, requests+1, false); err != nil {
		return err
	}
	_, err = s.reaches(ctx)
	return err
}

// readsRestore cuts the first list after the restore before it is proven.
func readsRestore(ctx context.Context, s *stand) error {
	if err := s.begun(ctx); err != nil {
		return err
	}
	page, err := s.all(ctx)
	if err != nil {
		return err
	}
	items := slices.DeleteFunc(page.Items, func(i statesync.Item) bool { return i.ID == "2" })
	requests := s.door.count()
	s.door.next(cuts(func(frame map[string]any) bool { return frame["type"] == "synced" }))
	if err := errors.Join(s.log.Restore(standScope, items), s.record(ctx)); err != nil {
		return err
	}
	for n := range 2 {
		if err := s.asks(ctx, requests+1+n, true); err != nil {
			return err
		}
	}
	state, err := s.reaches(ctx)
	if err == nil && (len(state.Deleted) > 0 || len(state.Absent) != 1 || state.Absent[0].ID != "2") {
		err = fmt.Errorf("deleted: is %v, absent: is %v after a restore without 2", state.Deleted, state.Absent)
	}
	return err
}

func readsFloor(ctx context.Context, s *stand) error {
	requests, err := s.away(ctx)
	if err != nil {
		return err
	}
	delete(s.gone, statesync.Key{Collection: "a", ID: "2"}) // no reader can know it
	if err := s.log.Forget(standScope, 5); err != nil {
		return err
	}
	s.serve(ctx)
	if err := s.asks(ctx, requests+1, false); err != nil {
		return err
	}
	if err := s.asks(ctx, requests+2, true); err != nil {
		return err
	}
	state, err := s.reaches(ctx)
	if err == nil && (len(state.Absent) != 1 || state.Absent[0].ID != "2") {
		err = fmt.Errorf("absent: is %v after the tombstone of 2 was pruned", state.Absent)
	}
	return err
}

// readsListedTombstone has a list after a doubt: what was deleted meanwhile is in it as a tombstone.
func readsListedTombstone(ctx context.Context, s *stand) error {
	requests, err := s.away(ctx)
	if err != nil {
		return err
	}
	s.door.next(fails(http.StatusNotFound, "unknown_scope", ""))
	s.serve(ctx)
	for n, list := range []bool{false, true} {
		if err := s.asks(ctx, requests+1+n, list); err != nil {
			return err
		}
	}
	state, err := s.reaches(ctx)
	if err == nil && (len(state.Deleted) != 1 || state.Deleted[0].ID != "2" || len(state.Absent) > 0) {
		err = fmt.Errorf("deleted: is %v, absent: is %v after a list with a tombstone of 2", state.Deleted, state.Absent)
	}
	return err
}

// readsBehind has a server of the same epoch that knows the first change only.
func readsBehind(ctx context.Context, s *stand) error {
	if _, err := s.changes(ctx, puts("1", 1)); err != nil {
		return err
	}
	old, err := s.all(ctx)
	if err != nil {
		return err
	}
	if _, err := s.changes(ctx, puts("2", 1)); err != nil {
		return err
	}
	digest, count := statesync.DigestOf(old.Items)
	var lines []byte
	for _, f := range []map[string]any{
		{"type": "header", "head": 1, "heartbeat": int64(time.Minute)},
		{"type": "items", "version": 1, "head": 1, "items": old.Items},
		{"type": "synced", "after": 1, "version": 1, "head": 1, "count": count, "digest": digest},
	} {
		f["epoch"] = old.Epoch
		lines = append(lines, encoded(f)...)
	}
	requests := s.door.count()
	s.door.next(fails(http.StatusGone, "resync_required", "cursor-ahead"), leaves(lines))
	s.web.CloseClientConnections()
	for n, list := range []bool{false, true, true} {
		if err := s.asks(ctx, requests+1+n, list); err != nil {
			return err
		}
	}
	_, err = s.changes(ctx, puts("2", 2))
	return err
}

// leaves sends the lines and leaves the stream open.
func leaves(lines []byte) act {
	return func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		w.Header().Set("Content-Type", "application/x-ndjson")
		_, err := w.Write(lines)
		if errors.Join(err, http.NewResponseController(w).Flush()) == nil {
			<-r.Context().Done()
		}
	}
}

// outage answers requests wrongly, and expects that the reader goes on as if nothing was.
func (s *stand) outage(ctx context.Context, list bool, answers ...act) error {
	if err := s.begun(ctx); err != nil {
		return err
	}
	requests := s.door.count()
	s.door.next(answers...)
	s.web.CloseClientConnections()
	if err := s.asks(ctx, requests+1, false); err != nil {
		return err
	}
	for n := range answers {
		if err := s.asks(ctx, requests+2+n, list); err != nil {
			return err
		}
	}
	_, err := s.changes(ctx, puts("2", 2))
	return err
}

func readsLogin(ctx context.Context, s *stand) error {
	return s.outage(ctx, false, says(http.StatusOK, "text/html", page))
}

func readsProxy404(ctx context.Context, s *stand) error {
	return s.outage(ctx, false, says(http.StatusNotFound, "text/html", page))
}

// readsRedirect has a redirect that could carry the credential elsewhere.
func readsRedirect(ctx context.Context, s *stand) error {
	followed := make(chan struct{}, 1)
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		select {
		case followed <- struct{}{}:
		default: // it was seen before
		}
	}))
	defer elsewhere.Close()
	err := s.outage(ctx, false, func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		http.Redirect(w, r, elsewhere.URL+"/sign-in", http.StatusTemporaryRedirect)
	})
	if len(followed) > 0 {
		err = errors.Join(err, errors.New("the reader follows a redirect"))
	}
	return err
}

func readsUnknown(ctx context.Context, s *stand) error {
	unknown := fails(http.StatusNotFound, "unknown_scope", "")
	return s.outage(ctx, true, unknown, unknown)
}

// rests expects no request for a while after the answer.
func (s *stand) rests(ctx context.Context, answer act) error {
	if err := s.begun(ctx); err != nil {
		return err
	}
	requests := s.door.count()
	s.door.next(answer)
	s.web.CloseClientConnections()
	if err := s.asks(ctx, requests+1, false); err != nil {
		return err
	}
	// An ordinary reader comes back within half a second, one that obeys in half a minute.
	short, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_, _, err := s.request(short, requests+2)
	switch {
	case err == nil:
		return errors.New("the reader comes back at once with a credential that was refused")
	case errors.Is(err, errAway):
		return nil
	}
	return err
}

func readsUnauthenticated(ctx context.Context, s *stand) error {
	return s.rests(ctx, fails(http.StatusUnauthorized, "unauthenticated", ""))
}

func readsForbidden(ctx context.Context, s *stand) error {
	return s.rests(ctx, says(http.StatusForbidden, "text/html", page))
}

// soon is a heartbeat for checks of silence.
const soon = 300 * time.Millisecond

func readsSilence(ctx context.Context, s *stand) error {
	s.door.next(bends(func(frame map[string]any, line []byte) []byte {
		switch {
		case frame["type"] == "header":
			frame["heartbeat"] = int64(soon)
			return encoded(frame)
		case frame["type"] == "changes" && frame["version"] != 3.0, frame["type"] == "bookmark":
			return nil
		}
		return line
	}))
	return s.silent(ctx)
}

// silent expects that the reader gives a stream up.
func (s *stand) silent(ctx context.Context) error {
	if err := s.begun(ctx); err != nil {
		return err
	}
	if err := s.asks(ctx, 2, false); err != nil {
		return err
	}
	_, err := s.changes(ctx, puts("3", 1))
	return err
}

func readsDrip(ctx context.Context, s *stand) error {
	s.door.next(func(w http.ResponseWriter, r *http.Request, inner http.Handler) {
		bends(func(frame map[string]any, line []byte) []byte {
			if frame["type"] == "header" {
				frame["heartbeat"] = int64(soon)
				return encoded(frame)
			}
			if frame["version"] != 3.0 || frame["digest"] == nil {
				return line
			}
			_, _ = w.Write(line)
			for r.Context().Err() == nil { // for ever, or until the reader has gone
				if _, err := w.Write([]byte(" ")); err != nil || http.NewResponseController(w).Flush() != nil {
					break
				}
				select {
				case <-time.After(soon / 3):
				case <-r.Context().Done():
				}
			}
			abort()
			return nil
		})(w, r, inner)
	})
	return s.silent(ctx)
}
