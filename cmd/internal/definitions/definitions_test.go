package definitions_test

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/definitions"
)

func TestTheDefinitionsAreInTheOrderOfTheirNames(t *testing.T) {
	t.Parallel()
	text, err := definitions.YAML(fstest.MapFS{
		"b.yaml": {Data: []byte("---\nb\n")}, "a.yaml": {Data: []byte("---\na\n")}, "read.me": {Data: []byte("no")},
	})
	require.NoError(t, err)
	require.Equal(t, "---\na\n---\nb\n", string(text))
}
