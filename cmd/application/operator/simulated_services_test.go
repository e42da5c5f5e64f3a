package operator_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"time"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/cmd/application/internal/database"
	"github.com/seed-9e1ffd66/trueup/cmd/application/internal/external"
	application "github.com/seed-9e1ffd66/trueup/cmd/application/operator"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// The services of a world.
const (
	theDatabase = "database"
	theStorage  = "storage"
	theLogins   = "logins"
)

// What services of a world do, beside what its API server does. A history has about half of it.
const (
	stopServices  applytest.Disturbance = "stop services"
	failCalls     applytest.Disturbance = "fail calls of services"
	loseAnswers   applytest.Disturbance = "lose answers of services"
	slowServices  applytest.Disturbance = "slow down services"
	restoreBackup applytest.Disturbance = "restore services"
	changeByHand  applytest.Disturbance = "change services by hand"
)

// thing is one schema with its roles, one bucket, or one realm.
type thing struct {
	// mark says whose it is: a comment, a tag, or the attributes of a realm, by their names.
	mark string
	// fields are all else that it has, such as the password of a role and the policy of a bucket.
	fields map[string]string
}

func (t thing) copy() thing { return thing{t.mark, maps.Clone(t.fields)} }

// services are in memory, and of one world. The name of a thing begins with its service.
type services struct {
	things map[string]thing
	// strangers are the things that existed before. They must not change.
	strangers map[string]thing
	// past has the things at the end of each write.
	past []backup
	// restored has the marks of what came back with a backup, after it was removed.
	restored map[string]string
	// judge is called for each write that a program makes. It is not called for a write of others.
	judge func(w *simtest.World, name string, before, after *thing)
	// refuses reports whether a service refuses a call that has come; nil: none does.
	refuses func(service string) bool
	// denies reports whether the account of the operator has no right to a call; nil: it has all.
	denies func(service, what string) bool
	// away is until when each service does not answer.
	away map[string]time.Time
	// made counts names.
	made int
}

type backup struct {
	at     time.Time
	things map[string]thing
}

func newServices() *services {
	s := &services{things: map[string]thing{}, strangers: map[string]thing{}, restored: map[string]string{}, away: map[string]time.Time{}}
	other := external.Mark{Cluster: "other", Namespace: "blue", Name: "taken", UID: "other"}.String()
	for name, mark := range map[string]string{
		"database prod_taken": "", "storage plattr-prod-taken-files": other, "logins taken": ownerMarks(other),
	} {
		s.strangers[name] = thing{mark, map[string]string{"since": "before"}}
	}
	maps.Copy(s.things, s.strangers)
	s.keep()
	return s
}

// keep adds a backup.
func (s *services) keep() {
	b := backup{time.Now(), map[string]thing{}}
	for name, t := range s.things {
		b.things[name] = t.copy()
	}
	s.past = append(s.past, b)
}

// put writes a thing for a program, nil to remove it.
func (s *services) put(w *simtest.World, name string, after *thing) {
	var before *thing
	if t, ok := s.things[name]; ok {
		before = &t
	}
	s.judge(w, name, before, after)
	if after == nil {
		delete(s.things, name)
	} else {
		s.things[name] = after.copy()
	}
	w.Log("%s is written", name)
	s.keep()
}

var (
	errAway   = fmt.Errorf("the service is stopped: %w", external.ErrUnreachable)
	errLost   = fmt.Errorf("the answer was lost: %w", external.ErrUnreachable)
	errDenied = fmt.Errorf("the account has no right to: %w", external.ErrDenied)
)

// call lets a call of a program to a service take its turn, and its time.
func (s *services) call(ctx context.Context, net http.RoundTripper, service, what string, do func(*simtest.World) error) error {
	var takes time.Duration
	err := simtest.Call(ctx, net, service+" "+what, func(w *simtest.World) error {
		dice := w.Dice(service + " " + what)
		happens := func(habit applytest.Disturbance, oneIn int) bool {
			return dice.IntN(oneIn) == 0 && w.Has(habit) && w.Faulty()
		}
		if happens(slowServices, 5) {
			takes = time.Duration(dice.Int64N(int64(40 * time.Second)))
			w.Disturb(time.Now().Add(takes))
		}
		if happens(restoreBackup, 40) {
			s.restore(w, service)
		}
		if happens(changeByHand, 40) {
			s.byHand(w)
		}
		if happens(stopServices, 20) {
			s.stop(w, service, time.Duration(dice.Int64N(int64(2*time.Minute))))
		}
		if time.Now().Before(s.away[service]) || happens(failCalls, 8) || s.refuses != nil && s.refuses(service) {
			w.Disturb(time.Now())
			return errAway
		}
		if s.denies != nil && s.denies(service, what) {
			return errDenied
		}
		err := do(w)
		if happens(loseAnswers, 8) {
			w.Disturb(time.Now())
			return errLost
		}
		return err
	})
	select {
	case <-time.After(takes):
		return err
	case <-ctx.Done():
		return errors.Join(err, ctx.Err())
	}
}

// stop has a service away for a while.
func (s *services) stop(w *simtest.World, service string, d time.Duration) {
	s.away[service] = time.Now().Add(d)
	w.Disturb(s.away[service])
	w.Log("the %s is away for %v", service, d)
}

// habits are what the services do.
func (s *services) habits() []simtest.Habit {
	return []simtest.Habit{
		{Name: stopServices, Does: "A service is away for up to two minutes.", Source: "a failover", Always: true},
		{Name: failCalls, Does: "A call fails, and is not carried out.", Source: "a full pool of connections", Always: true},
		{Name: loseAnswers, Does: "A call is carried out, and fails.", Source: "a proxy that restarts", Always: true},
		{Name: slowServices, Does: "An answer takes up to 40 seconds.", Source: "a slow disk", Always: true},
		{Name: restoreBackup, Does: "A service is as it was up to a minute ago.", Source: "a database that is restored", Always: true},
		{Name: changeByHand, Does: "A person changes what a service has.", Source: "an administrator", Always: true},
	}
}

// restore takes one service back.
func (s *services) restore(w *simtest.World, service string) {
	at := time.Now().Add(-time.Duration(w.Dice("backup of the " + service).Int64N(int64(time.Minute))))
	old := s.past[0]
	for _, b := range s.past {
		if !b.at.After(at) {
			old = b
		}
	}
	for name := range s.things {
		if _, there := old.things[name]; !there && serviceOf(name) == service {
			delete(s.things, name)
		}
	}
	for name, t := range old.things {
		if serviceOf(name) != service {
			continue
		}
		if _, there := s.things[name]; !there || s.things[name].mark != t.mark {
			s.restored[name] = t.mark
		}
		s.things[name] = t.copy()
	}
	w.Disturb(time.Now())
	w.Log("the %s is as it was at %s", service, old.at.Format(time.TimeOnly))
	s.keep()
}

// byHand changes what Applications have, but not whose it is.
func (s *services) byHand(w *simtest.World) {
	dice := w.Dice("a person at a service")
	for _, name := range keysOf(s.things) {
		_, stranger := s.strangers[name]
		t := s.things[name].copy()
		for _, field := range keysOf(t.fields) {
			if dice.IntN(3) > 0 || stranger {
				continue
			}
			switch field {
			case "password", "login", "grants", "anon", "realm", "client":
				t.fields[field] = "by hand"
			case "policy", "cors":
				delete(t.fields, field)
			}
			w.Log("a person changes %s of %s", field, name)
		}
		s.things[name] = t
	}
	s.keep()
}

// memory is the database of a world as the operator calls it. A call is carried out whole or
// not at all, as the transactions of the server that it stands for are.
type memory struct {
	application.Databases // the URLs

	of  *services
	net http.RoundTripper
}

func (m memory) call(ctx context.Context, what string, want database.Want, do func(w *simtest.World, t *thing) error) error {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	err := m.of.call(ctx, m.net, theDatabase, what+" "+want.Schema, func(w *simtest.World) error {
		if t, ok := m.of.things[theDatabase+" "+want.Schema]; ok {
			return do(w, new(t.copy()))
		}
		return do(w, nil)
	})
	if err != nil && !errors.Is(err, external.ErrOwnedByOther) {
		return fmt.Errorf("database: %s: %w", what, err)
	}
	return err
}

func notOf(want database.Want, t *thing) error {
	if t != nil && want.Mark.Claim(t.mark) == external.Foreign {
		return external.Owned("schema "+want.Schema, t.mark)
	}
	return nil
}

// Check implements [application.Databases].
func (m memory) Check(ctx context.Context, want database.Want) error {
	return m.call(ctx, "read", want, func(_ *simtest.World, t *thing) error { return notOf(want, t) })
}

// Apply implements [application.Databases].
func (m memory) Apply(ctx context.Context, want database.Want) (done []string, err error) {
	wanted := thing{want.Mark.String(), map[string]string{
		"password": want.Password, "login": "true", "grants": "all", "anon": fmt.Sprint(want.AnonRead),
	}}
	differs := false
	err = m.call(ctx, "read", want, func(_ *simtest.World, t *thing) error {
		differs = t == nil || t.mark != wanted.mark || !maps.Equal(t.fields, wanted.fields)
		return notOf(want, t)
	})
	if err != nil || !differs {
		return nil, err
	}
	err = m.call(ctx, "commit", want, func(w *simtest.World, t *thing) error {
		if err := notOf(want, t); err != nil {
			return err
		}
		m.of.put(w, theDatabase+" "+want.Schema, &wanted)
		done = []string{"write " + want.Schema}
		return nil
	})
	return done, err
}

// Delete implements [application.Databases].
func (m memory) Delete(ctx context.Context, want database.Want, retain bool) (done []string, err error) {
	left := want.Mark
	left.Retained = true
	due := func(t *thing) bool {
		if t == nil || want.Mark.Claim(t.mark) == external.Foreign || retain && t.mark == left.String() {
			return false
		}
		found, _ := external.ParseMark(t.mark)
		return found.UID == want.Mark.UID
	}
	if err := m.call(ctx, "read", want, func(_ *simtest.World, t *thing) error {
		if due(t) {
			done = []string{"remove " + want.Schema}
		}
		return nil
	}); err != nil || len(done) == 0 {
		return nil, err
	}
	return done, m.call(ctx, "remove", want, func(w *simtest.World, t *thing) error {
		switch {
		case !due(t):
		case retain:
			t.mark, t.fields["login"] = left.String(), "false"
			m.of.put(w, theDatabase+" "+want.Schema, t)
		default:
			m.of.put(w, theDatabase+" "+want.Schema, nil)
		}
		return nil
	})
}
