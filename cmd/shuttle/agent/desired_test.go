package agent //nolint:testpackage // a licence to delete is decided within

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
)

func of(epoch string, generation int64) *accepted {
	return &accepted{state: &starbase.DesiredState{Epoch: epoch, Generation: generation}}
}

func TestOnlyAnAnswerOfStarbaseIsALicenceToDelete(t *testing.T) {
	t.Parallel()
	var d desired
	current, confirmed := d.take()
	require.Nil(t, current)
	require.False(t, confirmed)

	d.accept(of("e1", 1), false)
	_, confirmed = d.take()
	require.True(t, confirmed)
	_, confirmed = d.take()
	require.False(t, confirmed, "a pass between two answers deletes nothing")
	d.confirm()
	_, confirmed = d.take()
	require.True(t, confirmed)
}

func TestTheFirstBodyOfANewEpochIsNoLicenceToDelete(t *testing.T) {
	t.Parallel()
	var d desired
	d.accept(of("e1", 7), false)
	d.take()
	d.accept(of("e2", 2), true)
	current, confirmed := d.take()
	require.Equal(t, "e2", current.state.Epoch)
	require.False(t, confirmed)
	d.confirm()
	_, confirmed = d.take()
	require.True(t, confirmed)

	d.accept(of("e3", 1), true)
	d.accept(of("e3", 2), false)
	_, confirmed = d.take()
	require.True(t, confirmed, "the second body of the epoch")
}

// TestAStreamConfirmsTheStateWhoseVersionItNames since the last take, but not the first one of another epoch.
func TestAStreamConfirmsTheStateWhoseVersionItNames(t *testing.T) {
	t.Parallel()
	d := &desired{}
	require.False(t, d.named("e1-1"), "there is none")
	confirmed := func() bool {
		_, confirmed := d.take()
		return confirmed
	}
	accept := func(version string, otherEpoch bool) {
		next := of(version[:2], 1)
		next.state.Version = version
		d.accept(next, otherEpoch)
	}
	accept("e1-1", false)
	require.True(t, confirmed())
	require.False(t, d.named("e1-2"))
	require.False(t, d.named(""))
	require.False(t, confirmed())
	require.True(t, d.named("e1-1"))
	require.True(t, confirmed())
	require.False(t, confirmed())

	accept("e2-1", true)
	require.False(t, d.named("e2-1"))
	require.False(t, d.has("e2-1"), "it is to be pulled again")
	require.False(t, confirmed())
	d.confirm()
	require.True(t, d.has("e2-1"))
	require.True(t, confirmed())
}

func TestAnOlderStateIsRefusedAlsoAfterARestart(t *testing.T) {
	t.Parallel()
	memory := &counted{FileMemory: apply.FileMemory{Path: filepath.Join(t.TempDir(), "accepted")}}
	for _, step := range []struct {
		name       string
		epoch      string
		generation int64
		other      bool
		refused    string
		saves      int
	}{
		{name: "the first", epoch: "e1", generation: 7, saves: 1},
		{name: "the same", epoch: "e1", generation: 7},
		{name: "a newer one", epoch: "e1", generation: 9, saves: 1},
		{name: "an older one", epoch: "e1", generation: 8, refused: "generation 8 is older than 9 of the same epoch"},
		{name: "a new epoch", epoch: "e2", generation: 3, other: true, saves: 1},
		{name: "older in the new epoch", epoch: "e2", generation: 2, refused: "generation 2 is older than 3 of the same epoch"},
	} {
		running, restarted := &newest{memory: memory}, &newest{memory: memory}
		require.NoError(t, running.load(t.Context()))
		saves := memory.saves
		for _, n := range []*newest{running, restarted} {
			other, err := n.reach(t.Context(), of(step.epoch, step.generation).state)
			if step.refused != "" {
				var refused *starbase.RefusedError
				require.ErrorAs(t, err, &refused, step.name)
				require.Equal(t, reasonGeneration, refused.Reason)
				require.ErrorContains(t, err, step.refused)
				continue
			}
			require.NoError(t, err, step.name)
			require.Equal(t, step.other && n == running, other, step.name)
		}
		require.Equal(t, step.saves, memory.saves-saves, step.name)
	}
}

func TestAStateWithoutAnEpochIsNotThatOfOneThatHadOne(t *testing.T) {
	t.Parallel()
	n := &newest{memory: &apply.FileMemory{Path: filepath.Join(t.TempDir(), "accepted")}, name: "ConfigMap x/y"}
	_, err := n.reach(t.Context(), of("", 1).state)
	require.NoError(t, err)
	other, err := n.reach(t.Context(), of("e1", 1).state)
	require.NoError(t, err)
	require.False(t, other, "there was no other epoch")
	_, err = n.reach(t.Context(), of("", 99).state)
	var refused *starbase.RefusedError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, starbase.ReasonIncomplete, refused.Reason)
	require.ErrorContains(t, err, "delete what the agent remembers (ConfigMap x/y)")
}

func TestAMemoryThatFailsAcceptsNothing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "accepted")
	require.NoError(t, os.WriteFile(path, []byte("nonsense"), 0o600))
	n := &newest{memory: &apply.FileMemory{Path: path}}
	_, err := n.reach(t.Context(), of("e1", 1).state)
	require.ErrorContains(t, err, `has "nonsense", must have {"epoch": ..., "generation": ...}`)

	require.NoError(t, os.Remove(path))
	_, err = n.reach(t.Context(), of("e1", 1).state)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, []byte(`{"epoch":"e1","generation":5}`), 0o600)) // by another agent
	_, err = n.reach(t.Context(), of("e1", 2).state)
	require.ErrorContains(t, err, "was changed by another program")
	_, err = n.reach(t.Context(), of("e1", 2).state)
	require.ErrorContains(t, err, "generation 2 is older than 5", "it reads what the other has saved")
}

// counted counts what is saved.
type counted struct {
	apply.FileMemory

	saves int
}

func (c *counted) Save(ctx context.Context, data []byte, version string) (string, error) {
	c.saves++
	return c.FileMemory.Save(ctx, data, version)
}

// unanswered is a memory whose saves are carried out or not, and fail.
type unanswered struct {
	apply.FileMemory

	saves, fails bool
}

func (u *unanswered) Save(ctx context.Context, data []byte, version string) (string, error) {
	if u.saves || !u.fails {
		version, err := u.FileMemory.Save(ctx, data, version)
		if err != nil || !u.fails {
			return version, err
		}
	}
	return "", context.DeadlineExceeded
}

// TestAStateWhoseSaveFailedIsNoAnswerYet has an answer of another epoch that is not accepted,
// because it was not seen to be saved: the next one is the first.
func TestAStateWhoseSaveFailedIsNoAnswerYet(t *testing.T) {
	t.Parallel()
	for _, saves := range []bool{false, true} {
		memory := &unanswered{FileMemory: apply.FileMemory{Path: filepath.Join(t.TempDir(), "accepted")}, saves: saves}
		n := &newest{memory: memory}
		_, err := n.reach(t.Context(), of("e1", 9).state)
		require.NoError(t, err)
		memory.fails = true
		_, err = n.reach(t.Context(), of("e2", 7).state)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		memory.fails = false
		for _, want := range []bool{true, false} {
			other, err := n.reach(t.Context(), of("e2", 7).state)
			require.NoError(t, err)
			require.Equal(t, want, other, "carried out: %t", saves)
		}
		memory.fails = true
		_, err = n.reach(t.Context(), of("e2", 8).state)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		memory.fails = false
		other, err := n.reach(t.Context(), of("e2", 8).state)
		require.NoError(t, err)
		require.False(t, other, "of the same epoch, carried out: %t", saves)
	}
}
