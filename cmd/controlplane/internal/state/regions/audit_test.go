package regions_test

import (
	"fmt"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/audit"
)

// changes returns the entries of an actor, the newest first.
func (w *world) changes(actor string) (lines []string) {
	w.t.Helper()
	entries, _, err := (&audit.Log{Database: w.database}).List(w.t.Context(), audit.Filter{Actor: actor}, 100)
	require.NoError(w.t, err)
	for _, e := range entries {
		lines = append(lines, e.Actor+" "+e.Verb+" "+e.Kind+" "+e.Name+" "+e.Outcome)
	}
	return lines
}

// TestWhatNoAdministratorAskedForHasAnEntry has the changes of agents and of the
// reconciler.
func TestWhatNoAdministratorAskedForHasAnEntry(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.put("d_1", "running", deployment("one", "one:1"))
		w.put("d_2", "running", deployment("two", "two:1"))
		w.put("d_2", "archived", nil)
		before := len(w.changes(audit.ControlPlane))
		look := func(want ...string) {
			w.t.Helper()
			w.items() // the log has the puts and the repairs
			require.NoError(w.t, w.reconciler().Pass(w.t.Context()))
			found := w.changes(audit.ControlPlane)
			require.Equal(w.t, want, append([]string(nil), found[:len(found)-before]...))
			before = len(found)
		}
		look()
		w.sql(`UPDATE deployment_topology SET desired_state = 'stopped' WHERE deployment_id = 'd_1'`)
		look("controlplane mend deployment reg_eu/d_1 changed")
		w.sql(`DELETE FROM deployment_topology WHERE deployment_id = 'd_1'`)
		look("controlplane withdraw deployment reg_eu/d_1 deleted")
		require.NotContains(w.t, w.items(), "deployments/d_1")
		w.beat(1, w.head())
		w.sql(fmt.Sprintf(`UPDATE deployment_topology SET updated_at = %d`, ago(8)))
		look("controlplane purge deployment reg_eu/d_2 deleted")
		for token, actor := range map[string]string{w.tokens[eu]: "region/reg_eu", bearer: "shared-agent-token"} {
			agent := w.client("Bearer "+token, "eu-1")
			_, err := agent.Heartbeat(w.t.Context(), connect.NewRequest(&ctrlv1.HeartbeatRequest{}))
			require.NoError(w.t, err)
			require.Empty(w.t, w.changes(actor), "a heartbeat is no change of what is wanted")
			response, err := agent.Heartbeat(w.t.Context(), connect.NewRequest(&ctrlv1.HeartbeatRequest{Claim: true}))
			require.NoError(w.t, err)
			require.Positive(w.t, response.Msg.GetAgentEpoch())
			require.Equal(w.t, []string{actor + " claim region reg_eu changed"}, w.changes(actor))
		}
	})
}

func TestHostileClaimsHaveAnEntryAMinute(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		agent := w.agent()
		for range 30 {
			_, err := agent.Heartbeat(w.t.Context(), connect.NewRequest(&ctrlv1.HeartbeatRequest{Claim: true}))
			require.NoError(w.t, err)
		}
		claims := len(w.changes("region/reg_eu"))
		require.Positive(w.t, claims)
		require.LessOrEqual(w.t, claims, 3, "one a minute, on a machine however slow")
		entries, _, err := (&audit.Log{Database: w.database}).List(w.t.Context(), audit.Filter{Log: audit.Agents}, 100)
		require.NoError(w.t, err)
		require.Len(w.t, entries, claims)
		require.Equal(w.t, "127.0.0.1", entries[0].From)
	})
}
