package kubelet_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/nodepool/internal/kubelet"
)

func TestCapacityIsThatOfTheType(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][2]string{
		"m5.large": {"2", "8Gi"}, "m5.xlarge": {"4", "16Gi"}, "m7i.4xlarge": {"16", "64Gi"}, "c6i.2xlarge": {"8", "16Gi"},
		"r5.large": {"2", "16Gi"}, "t3.small": {"2", "2Gi"}, "t3a.xlarge": {"4", "16Gi"}, "what": {"2", "8Gi"},
	} {
		c := kubelet.Capacity(name)
		require.Equal(t, want, [2]string{c.Cpu().String(), c.Memory().String()}, name)
	}
}
