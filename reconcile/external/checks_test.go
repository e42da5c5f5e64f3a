package external //nolint:testpackage // what is remembered is not exported

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
)

// TestObjectsThatWereNeverForgottenGo: another client takes their finalizer away.
func TestObjectsThatWereNeverForgottenGo(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	c := Checks{Interval: time.Minute, Now: func() time.Time { return now }}
	c.done("first", "host", "1", true)
	for n := range 10_000 {
		now = now.Add(time.Second)
		c.done("lives", "host", "1", true)
		c.done(types.UID(fmt.Sprint(n)), "host", "1", n%2 == 0)
	}
	require.Less(t, len(c.last), 400, "60 of the last minute, and room")
	due, in := c.due("lives", "host", "1")
	require.False(t, due)
	require.Equal(t, time.Minute, in)
	due, in = c.due("9998", "host", "1")
	require.False(t, due)
	require.Equal(t, 59*time.Second, in)
	due, _ = c.due("first", "host", "1")
	require.True(t, due)
}
