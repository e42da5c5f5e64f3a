package simtest_test

import (
	"fmt"
	"net/http"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest/internal/talktest"
)

// TestARandomConversationIsTheSameWithARealServer sends the same requests to a
// kube-apiserver and to the Server. SIMTEST_STEPS is how many, SIMTEST_TALK the seed.
func TestARandomConversationIsTheSameWithARealServer(t *testing.T) {
	if testing.Short() {
		t.Skip("long: a Kubernetes of its own")
	}
	t.Parallel()
	cluster := kubetest.Start(t, kubetest.Options{})
	client, err := rest.HTTPClientFor(cluster.Config)
	require.NoError(t, err)
	p := talktest.Party{
		Real: talktest.Side{
			Client: client,
			Host:   cluster.Config.Host,
		},
		Seed:  number(t, "SIMTEST_TALK", 1),
		Steps: int(number(t, "SIMTEST_STEPS", 4000)),
		Server: func() http.RoundTripper {
			return &simtest.Server{Kinds: talktest.Kinds(), Admit: talktest.Admit}
		},
	}
	r := p.Hold(t)
	fmt.Printf("figure sim_conversation_steps %d count\nfigure sim_conversation_differences %d count\n", r.Steps, len(r.Differences))
	t.Log(r)
}

func number(t *testing.T, variable string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	require.NoError(t, err, "%s is %q; want a number", variable, text)
	return n
}
