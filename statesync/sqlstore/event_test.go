package sqlstore_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/statesync/sqlstore"
)

// stateError is an error of PostgreSQL.
type stateError string

func (e stateError) Error() string    { return "SQLSTATE " + string(e) }
func (e stateError) SQLState() string { return string(e) }

// codeError is an error of SQLite.
type codeError int

func (e codeError) Error() string { return "code" }
func (e codeError) Code() int     { return int(e) }

func TestWhatAPersonWantsToHearIsToldOnce(t *testing.T) {
	t.Parallel()
	for name, full := range map[string]error{"postgresql": stateError("53100"), "sqlite": codeError(13)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var told events
			var text bytes.Buffer
			s := &sqlstore.Store{OnEvent: told.note, Logger: slog.New(slog.NewTextHandler(&text, nil))}
			for range 2 { // a second time after the first is over
				for range 5 {
					sqlstore.Fail(t.Context(), s, full, time.Minute)
				}
				sqlstore.Move(t.Context(), s)
				sqlstore.Move(t.Context(), s)
				require.Zero(t, s.Stalled())
			}
			require.Equal(t, 2, told.count(sqlstore.EventFull))
			require.Equal(t, 1, told.count(sqlstore.EventStuck), "the second was not long enough")
			require.Equal(t, 1, told.count(sqlstore.EventMoving))
			require.Equal(t, 2, strings.Count(text.String(), "no space left"))
			require.Equal(t, 1, strings.Count(text.String(), "queue is stuck"))
			require.Equal(t, 1, strings.Count(text.String(), "sequencer recovered"))
		})
	}
}
