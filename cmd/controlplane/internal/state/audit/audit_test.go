package audit_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/origin"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/requestid"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/audit"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
	"github.com/seed-9e1ffd66/trueup/internal/test/pgtest"
)

// world is a database.
type world struct {
	t        *testing.T
	database *db.Database
}

// each runs test on both databases.
func each(t *testing.T, test func(w world)) {
	t.Helper()
	run := func(t *testing.T, database *db.Database, err error) {
		t.Helper()
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, database.Close()) })
		test(world{t, database})
	}
	t.Run("SQLite", func(t *testing.T) {
		database, err := db.SQLite{Path: filepath.Join(t.TempDir(), "trueup.db")}.Open(t.Context())
		run(t, database, err)
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		database, err := db.PostgreSQL{URL: pgtest.NewDatabase(t)}.Open(t.Context())
		run(t, database, err)
	})
}

func names(t *testing.T, log *audit.Log, f audit.Filter) (list []string) {
	t.Helper()
	entries, _, err := log.List(t.Context(), f, 1000)
	require.NoError(t, err)
	for _, e := range entries {
		list = append(list, e.Name)
	}
	return list
}

func TestAnEntryIsThereIfItsTransactionIs(t *testing.T) {
	each(t, func(w world) {
		t, database := w.t, w.database
		log := &audit.Log{Database: database}
		ctx := requestid.NewContext(audit.NewContext(t.Context(), "admin/1a2b3c4d"), "r-1")
		change := audit.Change{Verb: "put", Kind: audit.KindCluster, Name: "a", Outcome: audit.Created}
		errUndone := errors.New("undone")
		require.ErrorIs(t, database.Write(ctx, func(tx *db.Tx) error {
			require.NoError(t, audit.Record(ctx, tx, change))
			return errUndone
		}), errUndone)
		require.Empty(t, names(t, log, audit.Filter{}))
		require.NoError(t, database.Write(ctx, func(tx *db.Tx) error { return audit.Record(ctx, tx, change) }))
		require.NoError(t, database.Write(t.Context(), func(tx *db.Tx) error {
			return audit.Record(
				t.Context(),
				tx,
				audit.Change{Verb: "purge", Kind: audit.KindPolicy, Name: "b"},
				audit.Change{Verb: "purge", Kind: audit.KindPolicy, Name: "c"},
			)
		}))
		entries, more, err := log.List(t.Context(), audit.Filter{}, 3)
		require.NoError(t, err)
		require.False(t, more)
		require.Len(t, entries, 3)
		require.Equal(t, []string{"c", "b", "a"}, names(t, log, audit.Filter{}), "the newest first, those of one call in their order")
		require.Equal(t, audit.ControlPlane, entries[0].Actor)
		require.Equal(t, audit.Changed, entries[0].Outcome)
		require.Empty(t, entries[0].RequestID)
		require.Equal(
			t,
			audit.Entry{
				ID:        entries[2].ID,
				Log:       audit.Changes,
				At:        entries[2].At,
				Actor:     "admin/1a2b3c4d",
				Verb:      "put",
				Kind:      "cluster",
				Name:      "a",
				Outcome:   "created",
				RequestID: "r-1",
			},
			entries[2],
		)
		require.WithinDuration(t, time.Now(), entries[2].At, time.Minute)
		_, more, err = log.List(t.Context(), audit.Filter{}, 2)
		require.NoError(t, err)
		require.True(t, more)
	})
}

// TestThePeopleOfAnIssuerAreFound has names as issuers have them.
func TestThePeopleOfAnIssuerAreFound(t *testing.T) {
	each(t, func(w world) {
		t := w.t
		actors := []string{"oidc/alice", "oidc/alice/b", "oidc/Jos\u00e9 #1", "oidcs/x", "admin/alice"}
		for n, actor := range actors {
			require.NoError(t, w.database.Write(t.Context(), func(tx *db.Tx) error {
				change := audit.Change{Verb: "put", Kind: audit.KindCluster, Name: fmt.Sprint(n)}
				return audit.Record(audit.NewContext(t.Context(), actor), tx, change)
			}))
		}
		handle := audit.Routes(&audit.Log{Database: w.database})[0].Handle
		ask := func(actor string) (found []string, err error) {
			answer := httptest.NewRecorder()
			query := url.Values{"actor": {actor}}
			err = handle(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/?"+query.Encode(), http.NoBody))
			if err != nil {
				return nil, err
			}
			var body struct{ Entries []audit.Entry }
			require.NoError(t, json.Unmarshal(answer.Body.Bytes(), &body))
			for _, e := range body.Entries {
				found = append(found, e.Actor)
			}
			return found, nil
		}
		for actor, want := range map[string][]string{
			"oidc": {actors[2], actors[1], actors[0]}, actors[0]: actors[:1], actors[1]: actors[1:2], actors[2]: actors[2:3],
			"oidc/bob": nil, "admin": actors[4:],
		} {
			found, err := ask(actor)
			require.NoError(t, err, actor)
			require.Equal(t, want, found, actor)
		}
		for _, actor := range []string{"oidc/", "oidcs", "oidc/a\nb", "oidc/\x00", "oidc/" + strings.Repeat("a", 64)} {
			_, err := ask(actor)
			require.ErrorContains(t, err, "want controlplane, shared-agent-token, stranger, or admin, oidc, cluster", actor)
		}
	})
}

func TestWhatIsTooOldOrTooManyIsRemoved(t *testing.T) {
	each(t, func(w world) {
		t, database := w.t, w.database
		record := func(n int) {
			require.NoError(t, database.Write(t.Context(), func(tx *db.Tx) error {
				return audit.Record(t.Context(), tx, audit.Change{Verb: "put", Kind: audit.KindCluster, Name: fmt.Sprint(n)})
			}))
		}
		for n := range 10 {
			record(n)
		}
		log := &audit.Log{Database: database, Retention: time.Hour, MaxEntries: 10}
		removed := func(want int64) {
			t.Helper()
			n, err := log.Prune(t.Context())
			require.NoError(t, err)
			require.Equal(t, want, n)
		}
		removed(0)
		log.MaxEntries = 7
		removed(3)
		require.Equal(t, []string{"9", "8", "7", "6", "5", "4", "3"}, names(t, log, audit.Filter{}))
		require.NoError(t, database.Write(t.Context(), func(tx *db.Tx) error {
			_, err := tx.ExecContext(
				t.Context(),
				`UPDATE audit SET at = ? WHERE name IN ('3', '4')`,
				time.Now().Add(-time.Hour-time.Minute).UnixMilli(),
			)
			return err
		}))
		removed(2)
		require.Equal(t, []string{"9", "8", "7", "6", "5"}, names(t, log, audit.Filter{}))
		require.Equal(
			t,
			[]string{"9", "8", "7", "6", "5"},
			names(t, &audit.Log{Database: database}, audit.Filter{Since: time.Now().Add(-time.Minute)}),
		)
		n, err := (&audit.Log{Database: database}).Prune(t.Context())
		require.NoError(t, err)
		require.Zero(t, n, "the defaults keep a year and 100,000")
	})
}

// asked returns the context of a request from that address.
func asked(t *testing.T, address string) context.Context {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
	r.RemoteAddr = address + ":7"
	answered := make(chan context.Context, 1)
	origin.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { answered <- r.Context() }), nil).
		ServeHTTP(httptest.NewRecorder(), r)
	return <-answered
}

// TestHostileFloodsOfTheAudit has everybody else do as much as they can, before and after a
// change of an administrator: it stays, and each of the others has a bounded log.
func TestHostileFloodsOfTheAudit(t *testing.T) {
	discard := slog.New(slog.DiscardHandler)
	const most, flood = 10, 50
	for name, test := range map[string]struct {
		log   string
		flood func(ctx context.Context, database *db.Database, n int)
	}{
		"an agent that claims its region": {audit.Agents, func(ctx context.Context, database *db.Database, _ int) {
			audit.Note(audit.NewContext(ctx, "region/eu"), database, discard, audit.Change{Verb: "claim", Kind: audit.KindRegion, Name: "eu"})
		}},
		"many agents that claim their regions": {audit.Agents, func(ctx context.Context, database *db.Database, n int) {
			audit.Note(audit.NewContext(ctx, fmt.Sprint("region/", n)), database, discard, audit.Change{Verb: "claim", Kind: audit.KindRegion, Name: fmt.Sprint(n)})
		}},
		"agents with the shared token": {audit.Agents, func(ctx context.Context, database *db.Database, n int) {
			audit.Note(audit.NewContext(ctx, audit.SharedToken), database, discard, audit.Change{Verb: "claim", Kind: audit.KindRegion, Name: fmt.Sprint(n)})
		}},
		"an agent of a cluster": {audit.Agents, func(ctx context.Context, database *db.Database, n int) {
			audit.Note(audit.NewContext(ctx, "cluster/a"), database, discard, audit.Change{Verb: fmt.Sprint("drop-tombstones-", n), Kind: audit.KindCluster, Name: "a"})
		}},
		"strangers": {audit.Refused, func(ctx context.Context, database *db.Database, _ int) {
			audit.Refuse(ctx, database, discard, "admin")
		}},
		"logins": {audit.Access, func(ctx context.Context, database *db.Database, _ int) {
			audit.Note(audit.NewContext(ctx, "admin/1a2b3c4d"), database, discard, audit.Change{Verb: "login", Kind: audit.KindSession, Outcome: audit.Created})
		}},
		"reads": {audit.Access, func(ctx context.Context, database *db.Database, n int) {
			audit.Note(audit.NewContext(ctx, "admin/1a2b3c4d"), database, discard, audit.Change{Verb: audit.Read, Kind: audit.KindVarGroup, Name: fmt.Sprint("p/", n)})
		}},
		"reads of one group": {audit.Access, func(ctx context.Context, database *db.Database, _ int) {
			audit.Note(audit.NewContext(ctx, "admin/1a2b3c4d"), database, discard, audit.Change{Verb: audit.Read, Kind: audit.KindVarGroup, Name: "p/g"})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			database, err := db.SQLite{Path: filepath.Join(t.TempDir(), "trueup.db")}.Open(t.Context())
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, database.Close()) })
			ctx := asked(t, "192.0.2.7")
			admin := audit.NewContext(t.Context(), "admin/1a2b3c4d")
			change := func() {
				require.NoError(t, database.Write(admin, func(tx *db.Tx) error {
					return audit.Record(admin, tx, audit.Change{Verb: "delete", Kind: audit.KindCluster, Name: "a", Outcome: audit.Deleted})
				}))
			}
			change()
			for n := range flood {
				test.flood(ctx, database, n)
			}
			change()
			log := &audit.Log{Database: database, MaxEntries: most}
			_, err = log.Prune(t.Context())
			require.NoError(t, err)
			require.Equal(t, []string{"a", "a"}, names(t, log, audit.Filter{Log: audit.Changes}))
			theirs, _, err := log.List(t.Context(), audit.Filter{Log: test.log}, 1000)
			require.NoError(t, err)
			require.NotEmpty(t, theirs)
			require.Equal(t, "192.0.2.7", theirs[0].From)
			if strings.HasPrefix(name, "an agent that") || strings.HasSuffix(name, "one group") {
				require.Len(t, theirs, 1, "one a minute")
			} else {
				require.Len(t, theirs, most, "no other log is counted")
			}
		})
	}
}

// TestOnlyTheSameWithinAMinuteIsARepetition is the other side of the bounds: what one agent or
// reader does hides nothing that another one does, or that is done to another object.
func TestOnlyTheSameWithinAMinuteIsARepetition(t *testing.T) {
	each(t, func(w world) {
		t, database := w.t, w.database
		note := func(actor, verb, name string) {
			audit.Note(
				audit.NewContext(t.Context(), actor),
				database,
				slog.New(slog.DiscardHandler),
				audit.Change{Verb: verb, Kind: audit.KindVarGroup, Name: name},
			)
		}
		all := func() (found []string) {
			entries, _, err := (&audit.Log{Database: database}).List(t.Context(), audit.Filter{}, 100)
			require.NoError(t, err)
			for _, e := range entries {
				found = append(found, e.Actor+" "+e.Verb+" "+e.Name)
			}
			return found
		}
		for range 2 {
			note("cluster/a", "claim", "p/g")
			note("cluster/b", "claim", "p/g")
			note("cluster/a", "claim", "p/h")
			note("admin/1", audit.Read, "p/g")
			note("admin/2", audit.Read, "p/g")
			note("admin/1", audit.Read, "p/h")
		}
		want := []string{
			"cluster/a claim p/g",
			"cluster/b claim p/g",
			"cluster/a claim p/h",
			"admin/1 read p/g",
			"admin/2 read p/g",
			"admin/1 read p/h",
		}
		require.ElementsMatch(t, want, all())
		require.NoError(t, database.Write(t.Context(), func(tx *db.Tx) error {
			for n, e := range want { // 61 seconds old
				_, err := tx.ExecContext(
					t.Context(),
					`UPDATE audit SET id = ? WHERE actor || ' ' || verb || ' ' || name = ?`,
					fmt.Sprintf("%016x%08x", time.Now().Add(-61*time.Second).UnixNano(), n),
					e,
				)
				if err != nil {
					return err
				}
			}
			return nil
		}))
		note("cluster/a", "claim", "p/g")
		note("admin/1", audit.Read, "p/g")
		require.Len(t, all(), len(want)+2)
	})
}

func TestARefusalIsRecordedAlsoOfAClientThatHasGone(t *testing.T) {
	each(t, func(w world) {
		t := w.t
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		audit.Refuse(ctx, w.database, slog.New(slog.DiscardHandler), "admin")
		require.Equal(t, []string{"admin"}, names(t, &audit.Log{Database: w.database}, audit.Filter{Log: audit.Refused, Actor: audit.Stranger}))
	})
}

func TestWhatAgentsAndStrangersDoIsKeptForLessTime(t *testing.T) {
	each(t, func(w world) {
		t, database, discard := w.t, w.database, slog.New(slog.DiscardHandler)
		audit.Note(
			audit.NewContext(t.Context(), "region/eu"),
			database,
			discard,
			audit.Change{Verb: "claim", Kind: audit.KindRegion, Name: "agent"},
		)
		audit.Note(t.Context(), database, discard, audit.Change{Verb: "purge", Kind: audit.KindPolicy, Name: "program"})
		audit.Refuse(t.Context(), database, discard, "admin")
		require.NoError(t, database.Write(t.Context(), func(tx *db.Tx) error {
			_, err := tx.ExecContext(t.Context(), `UPDATE audit SET at = ?`, time.Now().Add(-audit.OutsideRetention-time.Minute).UnixMilli())
			return err
		}))
		log := &audit.Log{Database: database}
		n, err := log.Prune(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 2, n)
		require.Equal(t, []string{"program"}, names(t, log, audit.Filter{}))

		// A retention that is shorter is theirs, too.
		audit.Refuse(t.Context(), database, discard, "admin")
		require.NoError(t, database.Write(t.Context(), func(tx *db.Tx) error {
			_, err := tx.ExecContext(t.Context(), `UPDATE audit SET at = ?`, time.Now().Add(-25*time.Hour).UnixMilli())
			return err
		}))
		log.Retention = 24 * time.Hour
		n, err = log.Prune(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 2, n)
	})
}

func TestAnEntryIsExportedOnceItsTransactionIsCommitted(t *testing.T) {
	each(t, func(w world) {
		t, database := w.t, w.database
		file := filepath.Join(t.TempDir(), "audit.jsonl")
		var failures bytes.Buffer
		failed, err := audit.NewFailures(prometheus.NewRegistry())
		require.NoError(t, err)
		audit.Export(database, audit.File(file), slog.New(slog.NewTextHandler(&failures, nil)), failed)
		ctx := audit.NewContext(asked(t, "192.0.2.7"), "admin/1a2b3c4d")
		change := audit.Change{Verb: "put", Kind: audit.KindCluster, Name: "a"}
		errUndone := errors.New("undone")
		require.ErrorIs(t, database.Write(ctx, func(tx *db.Tx) error {
			require.NoError(t, audit.Record(ctx, tx, change))
			return errUndone
		}), errUndone)
		_, err = os.Stat(file)
		require.ErrorIs(t, err, os.ErrNotExist)
		record := func() {
			require.NoError(t, database.Write(ctx, func(tx *db.Tx) error { return audit.Record(ctx, tx, change, change) }))
		}
		record()
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		lines := strings.Split(strings.TrimSpace(string(content)), "\n")
		require.Len(t, lines, 2)
		stored, _, err := (&audit.Log{Database: database}).List(t.Context(), audit.Filter{}, 10)
		require.NoError(t, err)
		var exported audit.Entry
		require.NoError(t, json.Unmarshal([]byte(lines[1]), &exported))
		require.Equal(t, stored[0], exported)
		require.Contains(t, lines[0], `"msg":"audit"`)
		require.Contains(t, lines[0], `"from":"192.0.2.7"`)
		info, err := os.Stat(file)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode())

		require.NoError(t, os.Rename(file, file+".1"))
		record()
		content, err = os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, 2, bytes.Count(content, []byte("\n")), "a file that was moved away is created again")
		require.NoError(t, os.Remove(file))
		require.NoError(t, os.Mkdir(file, 0o700))
		record()
		require.Contains(t, failures.String(), "audit entry not exported")
		require.InDelta(t, 2, testutil.ToFloat64(failed), 0)
		stored, _, err = (&audit.Log{Database: database}).List(t.Context(), audit.Filter{}, 10)
		require.NoError(t, err)
		require.Len(t, stored, 6)
	})
}
