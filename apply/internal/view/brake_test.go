package view //nolint:testpackage // time is given, not waited for

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWakesThatNoLongerCountAreDropped(t *testing.T) {
	t.Parallel()
	w := brake{}
	now := time.Unix(0, 0)
	for i := range 2000 {
		w.allow(NameOf("", fmt.Sprint(i)), now)
	}
	w.allow(NameOf("", "next"), now.Add(wakeWindow-1))
	require.Len(t, w, 2001)
	w.allow(NameOf("", "last"), now.Add(wakeWindow))
	require.Len(t, w, 2)
}
