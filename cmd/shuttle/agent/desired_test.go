package agent //nolint:testpackage // a licence to delete is decided within

import (
	"testing"

	"github.com/stretchr/testify/require"

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

	d.accept(of("e1", 1))
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
	d.accept(of("e1", 7))
	d.take()
	d.accept(of("e2", 2))
	current, confirmed := d.take()
	require.Equal(t, "e2", current.state.Epoch)
	require.False(t, confirmed)
	d.confirm()
	_, confirmed = d.take()
	require.True(t, confirmed)

	d.accept(of("e3", 1))
	d.accept(of("e3", 2))
	_, confirmed = d.take()
	require.True(t, confirmed, "the second body of the epoch")
}
