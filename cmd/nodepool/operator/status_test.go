package operator //nolint:testpackage // what a condition says is not exported

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAFailureThatRepeatsSaysTheSame: what AWS numbers is not in a condition.
func TestAFailureThatRepeatsSaysTheSame(t *testing.T) {
	t.Parallel()
	failure := func(request, encoded string) string {
		return "operation error EC2: RunInstances, https response error StatusCode: 403, RequestID: " + request +
			", api error UnauthorizedOperation: You are not authorized. Encoded authorization failure message: " + encoded + "\nsecond line"
	}
	got := short(failure("9b7c", "AbC-1"))
	require.Equal(
		t,
		"operation error EC2: RunInstances, https response error StatusCode: 403, api error UnauthorizedOperation: You are not authorized. second line",
		strings.ReplaceAll(got, "; ", " "),
	)
	require.Equal(t, got, short(failure("", "xyz_2")))
}

func TestALongMessageEndsInDots(t *testing.T) {
	t.Parallel()
	got := short(strings.Repeat("é", 1000))
	require.LessOrEqual(t, len(got), 1024)
	require.True(t, strings.HasSuffix(got, "é..."))
	require.Equal(t, strings.Repeat("a", 1024), short(strings.Repeat("a", 1024)))
}

func TestAZoneIsInTheRegionThatItsNameBeginsWith(t *testing.T) {
	t.Parallel()
	regions := []string{"us-west-2", "us-west-2-x", "eu-west-1"}
	for zone, want := range map[string]string{
		"eu-west-1a": "eu-west-1", "us-west-2-lax-1a": "us-west-2", "us-west-2-x1": "us-west-2-x", "eu-central-1b": "", "": "",
	} {
		require.Equal(t, want, regionOf(zone, regions), zone)
	}
}
