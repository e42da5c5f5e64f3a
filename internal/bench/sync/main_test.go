package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/bench/benchfigures"
)

// TestEachResourceIsCountedOnce: also one that the end of a read cuts in two.
func TestEachResourceIsCountedOnce(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	for n := range 300 {
		text.WriteString(value(n, n))
	}
	require.Len(t, value(1, 2), 1024, "a kilobyte")
	for name, body := range map[string]io.Reader{
		"whole": strings.NewReader(text.String()), "byte by byte": iotest.OneByteReader(strings.NewReader(text.String())),
		"halves": iotest.HalfReader(strings.NewReader(text.String())),
	} {
		counted := 0
		require.ErrorIs(t, count(body, []byte(`"padding":`), func(n int) { counted += n }), io.EOF, name)
		require.Equal(t, 300, counted, name)
	}
}

// TestAChangeHasComeWithItOrALaterOneOfItsResource has three resources, whose first versions are no changes.
func TestAChangeHasComeWithItOrALaterOneOfItsResource(t *testing.T) {
	t.Parallel()
	sent := time.Now().Add(-2 * time.Second)
	a := &arrivals{
		resources: 3, sent: []time.Time{sent, sent, sent, sent}, received: make([]time.Time, 4),
		of: []int{0, 1, 0, 2}, next: make([]int, 3), left: 4, all: make(chan struct{}),
	}
	a.came(0, 1) // its first
	require.Equal(t, 4, a.left)
	a.came(0, 6) // the third change: with it the first has come
	a.came(0, 4)
	a.came(1, 5)
	require.Equal(t, 1, a.left)
	var out bytes.Buffer
	a.report(&benchfigures.Book{Out: &out}, 8*time.Millisecond)
	require.Contains(t, out.String(), "_lost 1 changes\n")
	require.Contains(t, out.String(), "_cpu_us_per_change 2000 us\n")
	require.Regexp(t, `_lag_p50_ms 2\d\d\d ms\n`, out.String())
	a.came(2, 7)
	<-a.all
	a.came(2, 7)
}

// TestWhatAServerHasUsedIsReadAgain compares it with what the system says.
func TestWhatAServerHasUsedIsReadAgain(t *testing.T) {
	t.Parallel()
	text, err := used()
	require.NoError(t, err)
	var st stats
	_, err = fmt.Sscan(text, &st.memory, &st.resident, &st.peak, &st.cpu)
	require.NoError(t, err)
	memory, err := benchfigures.MemoryOf(os.Getpid())
	require.NoError(t, err)
	require.InEpsilon(t, memory.Resident, float64(st.resident), 0.5)
	require.GreaterOrEqual(t, st.peak, st.resident)
	require.Less(t, st.memory, st.peak)
	require.Less(t, st.cpu, time.Minute)
	require.Positive(t, st.cpu)
}
