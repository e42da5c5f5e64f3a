package kube_test

import (
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

var tailed = regexp.MustCompile(`(^|-)[bcdfghjklmnpqrstvwxz2456789]{13}$`)

func TestANameHasATailExactlyWhenThePartsCouldNotBeTold(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		limit int
		parts []string
		want  string // the full name, or its part before a tail
		tail  bool
	}{
		{63, []string{"krane"}, "krane", false},
		{63, []string{"shop", "web", "8080"}, "shop-web-8080", false},
		{63, []string{"configuration", "configuration"}, "configuration-configuration", false},
		{63, []string{"my-shop", "web"}, "my-shop-web-", true},
		{63, []string{"my", "shop-web"}, "my-shop-web-", true},
		{63, []string{"my-shop-web"}, "my-shop-web-", true},
		{63, []string{"Web"}, "web-", true},
		{63, []string{"web", ""}, "web-", true},
		{63, []string{"", "web"}, "web-", true},
		{63, []string{"---"}, "", true},
		{63, []string{"öl", "ok"}, "l-ok-", true},
		{63, nil, "", true},
		{63, []string{""}, "", true},
		{63, []string{"a", "bcdfghjklmnpq"}, "a-bcdfghjklmnpq-", true},
		{63, []string{strings.Repeat("a", 63)}, strings.Repeat("a", 63), false},
		{63, []string{strings.Repeat("a", 64)}, strings.Repeat("a", 49) + "-", true},
		{253, []string{strings.Repeat("a", 200), strings.Repeat("b", 52)}, strings.Repeat("a", 200) + "-" + strings.Repeat("b", 52), false},
		{52, []string{strings.Repeat("a", 37), strings.Repeat("b", 52)}, strings.Repeat("a", 37) + "-", true},
		{0, []string{strings.Repeat("a", 64)}, strings.Repeat("a", 49) + "-", true},
		{15, []string{"a", "b", strings.Repeat("c", 15)}, "a-", true},
		{14, []string{strings.Repeat("c", 15)}, "", true},
	} {
		got := kube.Name(row.limit, row.parts...)
		if !row.tail {
			require.Equal(t, row.want, got)
			continue
		}
		require.Regexp(t, tailed, got)
		if row.want == "" {
			require.Len(t, got, 13)
		}
		require.Equal(t, row.want, got[:len(got)-13])
	}
	require.Len(t, kube.Name(5, "my-shop", "web"), 5)
}

// The tail of a name never changes: objects are found by it after an upgrade.
func TestNamesStayWhatTheyAre(t *testing.T) {
	t.Parallel()
	require.Equal(t, "my-shop-web-tkvgwtwjc5bv8", kube.Name(63, "my-shop", "web"))
	require.Equal(t, "my-shop-web-cpt9bjvlb2wfd", kube.Name(63, "my", "shop-web"))
	require.Equal(t, "my-sho-tkvgwtwjc5bv8", kube.Name(20, "my-shop", "web"))
}

// valid returns the error of an API server for a name.
func valid(t *testing.T, limit int, name string) {
	t.Helper()
	require.NotEmpty(t, name)
	require.LessOrEqual(t, len(name), limit)
	require.Empty(t, validation.IsDNS1123Subdomain(name), name)
	if limit <= kube.LabelLimit {
		require.Empty(t, validation.IsDNS1123Label(name), name)
	}
}

// TestNoTwoInputsShareAName draws parts that differ in little: in where one ends
// and the next begins, in case, in what is cut off, and names of others as parts.
func TestNoTwoInputsShareAName(t *testing.T) {
	t.Parallel()
	const seed = 4711
	random := rand.New(rand.NewPCG(seed, 0))
	names := map[string][]string{}
	alphabet := []string{"a", "b", "1", "-", "-", "A", ".", "", "ab", strings.Repeat("x", 30)}
	var last string
	for i := range 300_000 {
		parts := make([]string, random.IntN(5))
		for p := range parts {
			for range random.IntN(6) {
				parts[p] += alphabet[random.IntN(len(alphabet))]
			}
		}
		if i%10 == 0 {
			parts = strings.Split(last, "-")
		}
		limit := []int{63, 63, 253, 40}[random.IntN(4)]
		name := kube.Name(limit, parts...)
		if other, ok := names[name]; ok && !slices.Equal(other, parts) {
			t.Fatalf("seed %d: %q and %q are both %s", seed, other, parts, name)
		}
		if i%50 == 0 {
			valid(t, limit, name)
		}
		names[name], last = parts, name
	}
	require.Greater(t, len(names), 100_000)
}

func FuzzName(f *testing.F) {
	f.Add(63, "a-b\x00c", "a\x00b-c")
	f.Add(63, "a\x00b", "a-b")
	f.Add(253, "A", "a")
	f.Add(20, strings.Repeat("a", 40), strings.Repeat("a", 41))
	f.Add(0, "", "\x00")
	f.Fuzz(func(t *testing.T, limit int, one, two string) {
		limit = max(limit, 0) % 300
		first, second := strings.Split(one, "\x00"), strings.Split(two, "\x00")
		name := kube.Name(limit, first...)
		bound := limit
		if limit == 0 {
			bound = kube.LabelLimit
		}
		valid(t, bound, name)
		require.Equal(t, name, kube.Name(limit, first...))
		if limit == 0 || limit >= 13 {
			require.Equal(t, one == two, name == kube.Name(limit, second...), "%q %q", one, two)
		}
		// A name is a name: it stays as it is unless it holds a hyphen.
		if !strings.Contains(name, "-") && !tailed.MatchString(name) {
			require.Equal(t, name, kube.Name(limit, name))
		}
	})
}
