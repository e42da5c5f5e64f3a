package statesync_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/statesync"
)

func TestTombstonesStayForReadersThatAreAlive(t *testing.T) {
	now := time.Now()
	log := statesync.Position{Epoch: "e", Head: 100, Floor: 20}
	at := func(epoch string, version uint64, ago time.Duration) statesync.Reader {
		return statesync.Reader{Report: statesync.Report{Applied: statesync.Cursor{Epoch: epoch, Version: version}}, At: now.Add(-ago)}
	}
	for name, c := range map[string]struct {
		readers []statesync.Reader
		horizon uint64
	}{
		"no reader":                   {nil, 100},
		"the slowest decides":         {[]statesync.Reader{at("e", 70, 0), at("e", 50, 0), at("e", 60, 0)}, 50},
		"a lease that still runs":     {[]statesync.Reader{at("e", 50, time.Hour-1)}, 50},
		"a lease that is over":        {[]statesync.Reader{at("e", 50, time.Hour)}, 100},
		"a reader of another epoch":   {[]statesync.Reader{at("f", 50, 0)}, 100},
		"a reader below the floor":    {[]statesync.Reader{at("e", 10, 0)}, 20},
		"a reader ahead of the log":   {[]statesync.Reader{at("e", 200, 0)}, 100},
		"a reader that has no cursor": {[]statesync.Reader{at("", 0, 0)}, 100},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.horizon, statesync.Horizon(log, c.readers, now, time.Hour))
		})
	}
}
