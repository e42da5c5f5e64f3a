package storytest_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/test/storytest"
)

func TestAStoryIsPlayed(t *testing.T) {
	t.Parallel()
	storytest.Each(t, "testdata/*.txtar", func(t *testing.T, s *storytest.Story) { //nolint:thelper // a test
		require.Equal(t, map[string]string{"words": "the words\n", "more": ""}, s.Files)
		sum, played := 0, 0
		s.Play(t, func(line string) string {
			played++
			words := strings.Fields(line)
			if words[0] == "show" {
				return s.Files[words[1]]
			}
			for _, word := range words[1:] {
				n, err := strconv.Atoi(word)
				require.NoError(t, err)
				sum += n
			}
			return fmt.Sprint("\n", sum, "\n\n")
		})
		require.Equal(t, 3, played)
	})
}
