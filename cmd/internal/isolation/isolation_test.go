package isolation_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/isolation"
)

func TestALevelIsOneOfTwo(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]isolation.Level{"": isolation.Restricted, "restricted": isolation.Restricted, "baseline": isolation.Baseline} {
		level, err := isolation.ParseLevel(text)
		require.NoError(t, err)
		require.Equal(t, want, level)
	}
	for _, text := range []string{"privileged", "Restricted", "none"} {
		_, err := isolation.ParseLevel(text)
		require.EqualError(t, err, `"`+text+`"; want restricted or baseline`)
	}
}

func TestALevelIsNeverLooserThanWhatIsAllowed(t *testing.T) {
	t.Parallel()
	require.True(t, isolation.Restricted.Allows(isolation.Restricted))
	require.False(t, isolation.Restricted.Allows(isolation.Baseline))
	require.True(t, isolation.Baseline.Allows(isolation.Restricted))
	require.True(t, isolation.Baseline.Allows(isolation.Baseline))
	require.False(t, isolation.Restricted.Allows("privileged"))
}

func TestNamespacesOfThePlatformAreNoHomes(t *testing.T) {
	t.Parallel()
	for name := range strings.FieldsSeq("default kube-system kube-public frontline krane-system trueup-system cilium cilium-secrets openshift-monitoring istio-ingress cert-manager argocd starform-gateway") {
		require.True(t, isolation.PlatformNamespace(name), name)
	}
	for name := range strings.FieldsSeq("ws-acme proj-shop defaults system kubernetes my-frontline") {
		require.False(t, isolation.PlatformNamespace(name), name)
	}
	for name := range strings.FieldsSeq("default frontline kube- openshift- cilium istio- -system cert-manager ingress-nginx argocd starform-gateway") {
		require.Contains(t, isolation.WantNamespace, name, "the error names every rule")
	}
}

// TestTheExpressionHasEachRuleOfTheNames reads the terms of the expression and asks them for the same names.
func TestTheExpressionHasEachRuleOfTheNames(t *testing.T) {
	t.Parallel()
	expression := isolation.PlatformExpression("variables.home")
	terms := strings.Split(expression, " || ")
	platform := func(name string) bool {
		return slices.ContainsFunc(terms, func(term string) bool {
			text, found := strings.CutPrefix(term, "variables.home")
			require.True(t, found, term)
			switch quoted := strings.Split(text, "'"); quoted[0] {
			case " in [":
				return slices.Contains(quoted[1:], name)
			case ".startsWith(":
				return strings.HasPrefix(name, quoted[1])
			case ".endsWith(":
				return strings.HasSuffix(name, quoted[1])
			}
			t.Fatalf("%q", term)
			return false
		})
	}
	for name := range strings.FieldsSeq("default frontline cert-manager ingress-nginx argocd starform-gateway kube-a openshift-a cilium " +
		"istio-a a-system ws-acme defaults system kubernetes my-frontline a-kube- a-istio-") {
		require.Equal(t, isolation.PlatformNamespace(name), platform(name), name)
	}
}

func TestTheAddressesOfMetadataAreNetworks(t *testing.T) {
	t.Parallel()
	for _, text := range isolation.MetadataAddresses() {
		prefix, err := netip.ParsePrefix(text)
		require.NoError(t, err)
		require.Equal(t, prefix.Addr().BitLen(), prefix.Bits(), "%s is one address", text)
	}
}
