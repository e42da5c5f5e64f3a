package upstream_test

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest/internal/talktest"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest/upstream"
)

// TestARandomConversationIsTheSameWithARealServer sends the same requests to a
// kube-apiserver and to a Server with a Machinery. SIMTEST_STEPS is how many,
// SIMTEST_TALK the seed. One of the two custom kinds has the definition that the real server has,
// and the other one has none here.
func TestARandomConversationIsTheSameWithARealServer(t *testing.T) {
	if testing.Short() {
		t.Skip("long: a Kubernetes of its own")
	}
	t.Parallel()
	cluster := kubetest.Start(t, kubetest.Options{})
	client, err := rest.HTTPClientFor(cluster.Config)
	require.NoError(t, err)
	r := party(t, talktest.Side{Client: client, Host: cluster.Config.Host}).Hold(t)
	fmt.Printf("figure sim_upstream_conversation_steps %d count\n", r.Steps)
	fmt.Printf("figure sim_upstream_conversation_differences %d count\n", len(r.Differences))
	t.Log(r)
}

func party(t *testing.T, genuine talktest.Side) talktest.Party {
	t.Helper()
	defined, err := upstream.Definitions("testdata/widgets.yaml")
	require.NoError(t, err)
	kinds := slices.DeleteFunc(talktest.Kinds(), func(k simtest.Kind) bool { return k.Kind == "Widget" })
	kinds = append(kinds, defined...)
	return talktest.Party{
		Real: genuine, Seed: number(t, "SIMTEST_TALK", uint64(1)), Steps: number(t, "SIMTEST_STEPS", 4000), Machinery: true,
		Server: func() http.RoundTripper {
			return &simtest.Server{Kinds: kinds, Admit: talktest.Admit, Machinery: &upstream.Machinery{Scheme: scheme.Scheme}}
		},
	}
}

func number[T uint64 | int](t *testing.T, variable string, otherwise T) T {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 32)
	require.NoError(t, err, "%s is %q; want a number", variable, text)
	return T(n)
}
