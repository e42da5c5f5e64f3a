package main

import (
	"bytes"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/bench/benchfigures"
)

func TestWhatWasCommittedAndNeverCameIsSkipped(t *testing.T) {
	t.Parallel()
	seen := &tally{missing: map[string]bool{}, came: map[string]bool{}}
	value := func(ago time.Duration) string { return strconv.FormatInt(time.Now().Add(-ago).UnixNano(), 10) + "-3" }
	early, late, never := value(time.Second), value(2*time.Second), value(0)
	seen.got(early) // before its writer knew that it was committed
	seen.wrote(early)
	seen.wrote(late)
	seen.wrote(never)
	seen.wrote("stalled")
	require.Equal(t, 3, seen.open())
	seen.got(late)
	seen.got("stalled") // how long it took is no figure: it was meant to
	require.Equal(t, 1, seen.open())
	require.Len(t, seen.millis, 2)
	require.InDelta(t, 1000, seen.millis[0], 900, "milliseconds")
	require.InDelta(t, 2000, seen.millis[1], 900)
}

func TestACommitThatOurReaderDoesNotSeeIsAnError(t *testing.T) {
	t.Parallel()
	book := &benchfigures.Book{Out: &bytes.Buffer{}}
	for _, name := range []string{"trueup_quiet", "kine_stalled"} {
		book.Add("S3_"+name+"_skipped", float64(len(name)-len("trueup_quiet")), "commits")
	}
	require.ErrorContains(t, complete(book), "S3_trueup_stalled_skipped: was not measured")
	book.Add("S3_trueup_stalled_skipped", 1, "commits")
	require.ErrorContains(t, complete(book), "S3_trueup_stalled_skipped: is 1 commits, must be 0 commits")
	book.Add("S3_trueup_stalled_skipped", 0, "commits")
	book.Add("S3_kine_stalled_skipped", 5, "commits")
	require.NoError(t, complete(book))
}
