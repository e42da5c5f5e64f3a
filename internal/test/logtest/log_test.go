package logtest_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/test/logtest"
)

func TestALogIsWrittenWhileItIsRead(t *testing.T) {
	t.Parallel()
	var log logtest.Log
	var writers sync.WaitGroup
	for n := range 8 {
		writers.Go(func() { _, _ = fmt.Fprintln(&log, "line", n) })
	}
	_ = log.String()
	writers.Wait()
	require.Equal(t, 8, strings.Count(log.String(), "line"))
	log.Reset()
	require.Empty(t, log.String())
}
