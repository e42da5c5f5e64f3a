package second_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/controlplanetest"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/second"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/tokens"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/adminapi"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
)

func TestOnlyKnownActionsNeedTwo(t *testing.T) {
	t.Parallel()
	require.NoError(t, second.Check(second.Actions()))
	require.NoError(t, second.Check(nil))
	require.ErrorContains(t, second.Check([]string{"new-epoch", "delete"}), `is "delete", must be some of allow-mass-delete, new-epoch, abandon`)
}

// TestTheSameRequestOfAnotherPersonIsCarriedOut has requests that differ in one thing each.
func TestTheSameRequestOfAnotherPersonIsCarriedOut(t *testing.T) {
	t.Parallel()
	database := controlplanetest.Open(t, t.TempDir()+"/db")
	p := &second.Person{Database: database, Actions: []string{adminapi.ActionApprove}}
	alice, bob := tokens.Admin{Name: "alice"}, tokens.Admin{Name: "bob"}
	ask := func(admin tokens.Admin, action, target, body string) (agreed bool, status int, err error) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, target, strings.NewReader(body))
		answer := httptest.NewRecorder()
		agreed, err = p.Agree(answer, r, action, admin)
		if agreed {
			left, err := io.ReadAll(r.Body)
			require.NoError(t, err)
			require.Equal(t, body, string(left), "the handler reads the body")
		}
		return agreed, answer.Code, err
	}
	no := func(admin tokens.Admin, target, body string) {
		t.Helper()
		agreed, status, err := ask(admin, adminapi.ActionApprove, target, body)
		require.NoError(t, err)
		require.False(t, agreed)
		require.Equal(t, http.StatusAccepted, status)
	}
	no(alice, "/a", `{"digest":"x"}`)
	no(bob, "/a", `{"digest":"y"}`)
	no(bob, "/b", `{"digest":"x"}`)
	no(bob, "/a?abandon=true", `{"digest":"x"}`)
	_, _, err := ask(alice, adminapi.ActionApprove, "/a", `{"digest":"x"}`)
	require.ErrorContains(t, err, "same_person: allow-mass-delete needs two people: admin/alice has asked for it already")
	_, _, err = ask(tokens.Admin{}, adminapi.ActionApprove, "/a", `{"digest":"x"}`)
	require.ErrorContains(t, err, "nameless_token")
	agreed, _, err := ask(bob, adminapi.ActionApprove, "/a", ` {"digest":"x"} `)
	require.NoError(t, err)
	require.True(t, agreed)
	no(bob, "/a", `{"digest":"x"}`) // the next needs two again
	require.NoError(t, database.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.ExecContext(t.Context(), `UPDATE second_person SET asked_at = asked_at - 3600000`)
		return err
	}))
	no(alice, "/a", `{"digest":"x"}`) // the hour is over

	agreed, _, err = ask(alice, adminapi.ActionEpoch, "/c", "")
	require.NoError(t, err)
	require.True(t, agreed, "one is enough for it")
	agreed, err = (*second.Person)(nil).Agree(nil, nil, adminapi.ActionApprove, alice)
	require.NoError(t, err)
	require.True(t, agreed)
	large := strings.Repeat(" ", adminapi.MaxBody+1)
	_, _, err = ask(alice, adminapi.ActionApprove, "/a", large)
	require.ErrorContains(t, err, "too_large")
}
