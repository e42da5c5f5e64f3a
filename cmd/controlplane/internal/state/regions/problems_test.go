package regions_test

import (
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/regions"
)

func TestWhatAnAgentCannotDoIsKeptUntilItsNextHeartbeat(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		t, ctx := w.t, w.t.Context()
		beat := func(problems ...*ctrlv1.Problem) error {
			_, err := w.agent().Heartbeat(ctx, connect.NewRequest(&ctrlv1.HeartbeatRequest{Problems: problems}))
			return err
		}
		read := func() []regions.Problem {
			region, err := w.store.Region(ctx, eu)
			require.NoError(t, err)
			return region.Problems
		}
		require.Empty(t, read())
		require.NoError(t, beat(&ctrlv1.Problem{Resource: "deployments/ws/web", Message: "is not ours: \"ws/web\""}))
		want := []regions.Problem{{Resource: "deployments/ws/web", Message: "is not ours: \"ws/web\""}}
		require.Equal(t, want, read())
		for name, test := range map[string]struct {
			problems []*ctrlv1.Problem
			want     string
		}{
			"no resource": {[]*ctrlv1.Problem{{Message: "m"}}, "problems[0].resource: is required"},
			"no text":     {[]*ctrlv1.Problem{{Resource: "a\x00"}}, "problems[0].resource: must not contain control characters"},
			"too long": {
				[]*ctrlv1.Problem{{Resource: "a"}, {Resource: "b", Message: strings.Repeat("x", 1025)}},
				"problems[1].message: has 1025 bytes, must have 1024 at most",
			},
			"character 0": {[]*ctrlv1.Problem{{Resource: "a", Message: "m\x00"}}, "problems[0].message: must be UTF-8 without the character 0"},
			"too many":    {make([]*ctrlv1.Problem, 101), "problems: are 101, must be 100 at most"},
		} {
			for i := range test.problems {
				if test.problems[i] == nil {
					test.problems[i] = &ctrlv1.Problem{Resource: "a"}
				}
			}
			err := beat(test.problems...)
			require.Equal(t, connect.CodeInvalidArgument, connect.CodeOf(err), name)
			require.ErrorContains(t, err, test.want, name)
		}
		require.Equal(t, want, read(), "a refused heartbeat changes nothing")
		other, err := w.store.Region(ctx, us)
		require.NoError(t, err)
		require.Empty(t, other.Problems, "they are of one region")
		most := make([]*ctrlv1.Problem, 100)
		for i := range most {
			most[i] = &ctrlv1.Problem{Resource: "deployments/ws/web", Message: strings.Repeat("x", 1024)}
		}
		require.NoError(t, beat(most...), "as many, and as long, as an agent reports")
		require.Len(t, read(), 100)
		require.NoError(t, beat())
		require.Empty(t, read())
	})
}
