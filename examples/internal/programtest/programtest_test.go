package programtest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/examples/internal/programtest"
)

func TestAProgramIsBuiltRunAndStopped(t *testing.T) {
	t.Chdir("../../loop")
	p, stop := programtest.Start(t, programtest.Build(t), "--no-such-flag")
	<-p.Exited()
	require.Error(t, stop())
	require.Contains(t, p.Tail(), "no-such-flag")
}
