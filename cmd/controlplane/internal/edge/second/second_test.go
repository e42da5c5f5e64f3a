package second_test

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/controlplanetest"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/oidcauth"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/second"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/tokens"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/adminapi"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/internal/test/pgtest"
)

func TestOnlyKnownActionsNeedTwo(t *testing.T) {
	t.Parallel()
	require.NoError(t, second.Check(second.Actions()))
	require.NoError(t, second.Check(nil))
	require.ErrorContains(
		t,
		second.Check([]string{"new-epoch", "delete"}),
		`is "delete", must be some of allow-mass-delete, new-epoch, abandon`,
	)
}

// TestTheSameRequestOfAnotherPersonIsCarriedOut has requests that differ in one thing each.
func TestTheSameRequestOfAnotherPersonIsCarriedOut(t *testing.T) {
	t.Parallel()
	database := controlplanetest.Open(t, t.TempDir()+"/db")
	path := filepath.Join(t.TempDir(), "tokens")
	one, _ := tokens.New()
	two, _ := tokens.New()
	people := &tokens.File{Path: path, Logger: slog.New(slog.DiscardHandler)}
	file := func(first string) {
		require.NoError(t, os.WriteFile(path, []byte(first+" "+one+"\nname=bob "+two+"\n"), 0o600))
		require.NoError(t, people.Read(t.Context()))
	}
	admins := func(name string) tokens.Admin {
		for _, a := range people.Admins() {
			if a.Name == name {
				return a
			}
		}
		t.Fatalf("there is no %s", name)
		return tokens.Admin{}
	}
	file("name=alice")
	p := &second.Person{Database: database, Admins: people.Admins, Actions: []string{adminapi.ActionApprove}}
	alice, bob := admins("alice"), admins("bob")
	ask := func(admin tokens.Admin, action, target, digest string) (agreed bool, status int, err error) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, target, http.NoBody)
		answer := httptest.NewRecorder()
		agreed, err = p.Agree(answer, r, action, admin, map[string]string{"digest": digest})
		return agreed, answer.Code, err
	}
	no := func(admin tokens.Admin, target, body string) {
		t.Helper()
		agreed, status, err := ask(admin, adminapi.ActionApprove, target, body)
		require.NoError(t, err)
		require.False(t, agreed)
		require.Equal(t, http.StatusAccepted, status)
	}
	no(alice, "/a", "x")
	no(bob, "/a", "y")
	no(bob, "/b", "x")
	no(bob, "/a?abandon=true", "x")
	r := httptest.NewRequestWithContext(t.Context(), http.MethodDelete, "/a", http.NoBody)
	answer := httptest.NewRecorder()
	deleted, err := p.Agree(answer, r, adminapi.ActionApprove, bob, map[string]string{"digest": "x"})
	require.NoError(t, err)
	require.False(t, deleted, "another method is another request")
	var waiting adminapi.Waiting
	require.NoError(t, json.Unmarshal(answer.Body.Bytes(), &waiting))
	require.WithinDuration(t, time.Now().Add(time.Hour), waiting.Until, time.Minute)
	_, _, err = ask(alice, adminapi.ActionApprove, "/a", "x")
	require.ErrorContains(t, err, "same_person: allow-mass-delete needs two people: admin/alice has asked for it already")
	capital := bob
	capital.Name = "Alice"
	_, _, err = ask(capital, adminapi.ActionApprove, "/a", "x")
	require.ErrorContains(t, err, "same_person", "an issuer may not tell capitals apart")
	_, _, err = ask(tokens.Admin{}, adminapi.ActionApprove, "/a", "x")
	require.ErrorContains(t, err, "nameless_token")
	agreed, _, err := ask(bob, adminapi.ActionApprove, "/a", "x")
	require.NoError(t, err)
	require.True(t, agreed)
	no(bob, "/a", "x") // the next needs two again
	pass := func(minutes int) {
		t.Helper()
		require.NoError(t, database.Write(t.Context(), func(tx *db.Tx) error {
			_, err := tx.ExecContext(t.Context(), `UPDATE second_person SET asked_at = asked_at - ?`, minutes*60_000)
			return err
		}))
	}
	asked := func() (entries int) {
		require.NoError(t, database.Read(t.Context(), func(tx *db.Tx) error {
			return tx.QueryRowContext(t.Context(), `SELECT count(*) FROM audit WHERE verb = 'ask-allow-mass-delete'`).Scan(&entries)
		}))
		return entries
	}
	pass(60)
	no(alice, "/a", "x") // the hour is over

	agreed, _, err = ask(alice, adminapi.ActionEpoch, "/c", "")
	require.NoError(t, err)
	require.True(t, agreed, "one is enough for it")
	agreed, err = (*second.Person)(nil).Agree(nil, nil, adminapi.ActionApprove, alice, nil)
	require.NoError(t, err)
	require.True(t, agreed)

	// The first requester has lost the role, or was renamed.
	no(alice, "/d", "x")
	pass(40)
	file("name=alice role=reader")
	written := asked()
	no(bob, "/d", "x") // his hour begins now
	require.Equal(t, written+1, asked(), "the audit has it")
	pass(40)
	file("name=alice")
	agreed, _, err = ask(admins("alice"), adminapi.ActionApprove, "/d", "x")
	require.NoError(t, err)
	require.True(t, agreed)
	no(admins("alice"), "/f", "x")
	file("name=alice expires=2001-01-31")
	no(bob, "/f", "x") // her token has ended
	file("name=alice")
	no(admins("alice"), "/g", "x")
	one, _ = tokens.New()
	file("name=alice")
	no(bob, "/g", "x") // her token has been replaced
	agreed, _, err = ask(admins("alice"), adminapi.ActionApprove, "/g", "x")
	require.NoError(t, err)
	require.True(t, agreed)
	no(admins("alice"), "/e", "x")
	file("name=alicia")
	no(admins("alicia"), "/e", "x")
	_, _, err = ask(admins("alicia"), adminapi.ActionApprove, "/e", "x")
	require.ErrorContains(t, err, "same_person")
}

// TestOfPeopleWhomAnIssuerIdentifiesTheSubjectDecides has two with one name, and one whose group
// loses its role.
func TestOfPeopleWhomAnIssuerIdentifiesTheSubjectDecides(t *testing.T) {
	t.Parallel()
	run := func(t *testing.T, source string) {
		t.Helper()
		groups := &tokens.GroupFile{Path: filepath.Join(t.TempDir(), "groups")}
		list := func(text string) {
			require.NoError(t, os.WriteFile(groups.Path, []byte(text), 0o600))
			require.NoError(t, groups.Read(t.Context()))
		}
		list("role=administrator a\nrole=administrator b\n")
		people, err := oidcauth.New(oidcauth.Config{Issuer: "https://login.example.com", ClientID: "trueup", Groups: groups})
		require.NoError(t, err)
		token, _ := tokens.New()
		file := &tokens.File{Path: filepath.Join(t.TempDir(), "tokens"), Logger: slog.New(slog.DiscardHandler)}
		require.NoError(t, os.WriteFile(file.Path, []byte("name=alice "+token+"\n"), 0o600))
		require.NoError(t, file.Read(t.Context()))
		p := &second.Person{
			Database: controlplanetest.Open(t, source), Admins: file.Admins, People: people, Actions: []string{adminapi.ActionEpoch},
		}
		person := func(subject, name, group string) tokens.Admin {
			admin, err := people.Admin(tokens.Person{Issuer: "https://login.example.com", Subject: subject, Groups: []string{group}}, name)
			require.NoError(t, err)
			return admin
		}
		ask := func(admin tokens.Admin, path string) string {
			answer := httptest.NewRecorder()
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, http.NoBody)
			agreed, err := p.Agree(answer, r, adminapi.ActionEpoch, admin, nil)
			switch refused, _ := errors.AsType[*adminapi.Error](err); {
			case refused != nil:
				return refused.Code
			case agreed:
				return "agreed"
			}
			require.NoError(t, err)
			return "waits"
		}
		require.Equal(t, "waits", ask(person("1", "alice", "a"), "/a"))
		require.Equal(t, "same_person", ask(person("1", "alice", "a"), "/a"))
		require.Equal(t, "same_person", ask(person("1", "renamed", "b"), "/a"))
		require.Equal(t, "agreed", ask(person("2", "alice", "a"), "/a"), "another person with that name")
		require.Equal(t, "waits", ask(file.Admins()[0], "/b"))
		require.Equal(t, "same_person", ask(person("1", "alice", "a"), "/b"), "the name of a token")
		require.Equal(t, "agreed", ask(person("3", "bob", "a"), "/b"))
		require.Equal(t, "waits", ask(person("3", "bob", "a"), "/c"))
		list("role=reader a\nrole=administrator b\n")
		require.Equal(t, "waits", ask(person("2", "carol", "b"), "/c"), "the group of the first has lost the role")
		require.Equal(t, "agreed", ask(file.Admins()[0], "/c"))
	}
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		run(t, filepath.Join(t.TempDir(), "db"))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		run(t, pgtest.NewDatabase(t))
	})
}

// TestOfOneFirstRequestOneOtherIsCarriedOut has a replica carry out what alice has asked for, while bob asks another one.
func TestOfOneFirstRequestOneOtherIsCarriedOut(t *testing.T) {
	t.Parallel()
	url := pgtest.NewDatabase(t)
	database, replica := controlplanetest.Open(t, url), controlplanetest.Open(t, url)
	path := filepath.Join(t.TempDir(), "tokens")
	one, _ := tokens.New()
	two, _ := tokens.New()
	require.NoError(t, os.WriteFile(path, []byte("name=alice "+one+"\nname=bob "+two+"\n"), 0o600))
	people := &tokens.File{Path: path, Logger: slog.New(slog.DiscardHandler)}
	require.NoError(t, people.Read(t.Context()))
	p := &second.Person{Database: database, Admins: people.Admins, Actions: []string{adminapi.ActionEpoch}}
	ask := func(n int) int {
		answer := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/epoch", http.NoBody)
		agreed, err := p.Agree(answer, r, adminapi.ActionEpoch, people.Admins()[n], nil)
		assert.NoError(t, err)
		assert.False(t, agreed, "one has been carried out")
		return answer.Code
	}
	require.Equal(t, http.StatusAccepted, ask(0))
	answered := make(chan int, 1)
	require.NoError(t, replica.Write(t.Context(), func(tx *db.Tx) error {
		if _, err := tx.ExecContext(t.Context(), `SELECT request FROM second_person FOR UPDATE`); err != nil {
			return err
		}
		go func() { answered <- ask(1) }()
		await.Eventually(t, "bob waits", func() bool {
			var waiting int
			require.NoError(t, replica.Read(t.Context(), func(tx *db.Tx) error {
				return tx.QueryRowContext(t.Context(), `SELECT count(*) FROM pg_stat_activity
					WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting)
			}))
			return waiting == 1
		})
		_, err := tx.ExecContext(t.Context(), `DELETE FROM second_person`)
		return err
	}))
	require.Equal(t, http.StatusAccepted, <-answered, "he is the first now")
}

// TestManyPeopleAtOnceAreCarriedOutInPairs has two people who ask for the same at the same
// time, again and again: each that is carried out had a first, and none fails.
func TestManyPeopleAtOnceAreCarriedOutInPairs(t *testing.T) {
	t.Parallel()
	run := func(t *testing.T, source string) {
		t.Helper()
		database := controlplanetest.Open(t, source)
		path := filepath.Join(t.TempDir(), "tokens")
		one, _ := tokens.New()
		two, _ := tokens.New()
		require.NoError(t, os.WriteFile(path, []byte("name=alice "+one+"\nname=bob "+two+"\n"), 0o600))
		people := &tokens.File{Path: path, Logger: slog.New(slog.DiscardHandler)}
		require.NoError(t, people.Read(t.Context()))
		p := &second.Person{Database: database, Admins: people.Admins, Actions: []string{adminapi.ActionEpoch}}
		var mu sync.Mutex
		first, carriedOut := 0, 0
		var group sync.WaitGroup
		for n := range 40 {
			group.Go(func() {
				answer := httptest.NewRecorder()
				r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/epoch", http.NoBody)
				agreed, err := p.Agree(answer, r, adminapi.ActionEpoch, people.Admins()[n%2], nil)
				if refused, ok := errors.AsType[*adminapi.Error](err); ok && refused.Code == "same_person" || errors.Is(err, db.ErrBusy) {
					return
				}
				assert.NoError(t, err)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case agreed:
					carriedOut++
				case answer.Code == http.StatusAccepted:
					first++
				}
			})
		}
		group.Wait()
		require.Positive(t, carriedOut)
		require.GreaterOrEqual(t, first, carriedOut)
		require.LessOrEqual(t, first-carriedOut, 1)
	}
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		run(t, filepath.Join(t.TempDir(), "db"))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		run(t, pgtest.NewDatabase(t))
	})
}
