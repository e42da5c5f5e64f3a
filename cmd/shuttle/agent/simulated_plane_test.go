package agent_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/controlplanetest"
	"github.com/seed-9e1ffd66/trueup/internal/test/httpfunc"
	"github.com/seed-9e1ffd66/trueup/internal/test/proxytest"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// starbaseWorld is the control plane of one simulated world.
type starbaseWorld struct {
	t     *testing.T
	plane *controlplanetest.Simulated
	// since and until are from when on an object is wanted, and when it last ceased to be.
	since, until map[string]time.Time
	rested       string // the database at the beginning of the rest
	undisturbed  bool   // no edit begins a habit
	began        time.Time
	beside       atomic.Bool // an agent of another version has run beside this one
	last         rendered
	log          bytes.Buffer
	proxy        *proxytest.Proxy // before the control plane, if not nil
	units        string           // of the load balancer
	transport    string           // empty: Start draws it
	// stands, if not nil, may answer in place of the control plane: it does not if it returns nothing.
	stands func(*http.Request) (*http.Response, error)
}

// link is the way of one life of the agent to the control plane.
func (p *starbaseWorld) link(net http.RoundTripper) http.RoundTripper {
	link := p.plane.Link(net)
	if stands := p.stands; stands != nil {
		next := link
		link = httpfunc.Transport(func(r *http.Request) (*http.Response, error) {
			if answer, err := stands(r); answer != nil || err != nil {
				return answer, err
			}
			return next.RoundTrip(r)
		})
	}
	if p.proxy == nil {
		return link
	}
	return p.proxy.Before(link)
}

// must ends the whole test binary: the end of a goroutine would be a deadlock in a bubble.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// newPlanes returns the control planes of worlds, which begin with the cluster and the token of
// its agent.
func newPlanes(t *testing.T) *controlplanetest.Simulation {
	t.Helper()
	keys, err := controlplanetest.ParseKeys("one " + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{1}, 32)) + "\n")
	must(err)
	planes := controlplanetest.NewSimulation(t, keys, func(ctx context.Context, p *controlplanetest.Simulated) string {
		token, _, err := p.Clusters.RegisterCluster(ctx, clusterID, "nyc3")
		must(err)
		return token
	})
	planes.Rank = rank
	planes.Rotate = func(ctx context.Context, p *controlplanetest.Simulated) string {
		token, err := p.Clusters.Agents().Rotate(ctx, clusterID, 0)
		must(err)
		return token
	}
	return planes
}

// rank sorts what others refer to first: projects, groups, services, what is attached.
func rank(path string) int {
	switch {
	case strings.HasSuffix(path, "/var-groups"):
		return 3
	case strings.Contains(path, "/services/"):
		return 2
	case strings.Contains(path, "/var-groups/"):
		return 1
	}
	return 0
}

const emptyState applytest.Disturbance = "lose all rows for a moment at"

// habits returns the habits of the control plane, for Scenario.Habits.
func (p *starbaseWorld) habits() []simtest.Habit {
	return append(p.plane.Habits(), simtest.Habit{
		Name: emptyState, Does: "The desired state is empty for less than a minute.", Spell: 50 * time.Second,
	})
}

// begin lets one of the habits begin.
func (p *starbaseWorld) begin(w *simtest.World) {
	all := p.habits()
	p.plane.Begin(w, all[w.Random.IntN(len(all))])
}

// empty takes all rows out of a desired state while the habit lasts.
func (p *starbaseWorld) empty(w *simtest.World, r *http.Request, body []byte) []byte {
	if !p.plane.Lasts(w, emptyState) || !strings.HasSuffix(r.URL.Path, "/desired-state") {
		return body
	}
	state, err := starbase.Decode(bytes.NewReader(body), clusterID)
	must(err)
	state.Nonce, state.Projects, state.Services, state.VarGroups = "empty", nil, nil, nil
	must(state.Seal())
	body, err = json.Marshal(state)
	must(err)
	return body
}

// environment returns what an agent is configured with.
func (p *starbaseWorld) environment(transport string) func(string) string {
	env := map[string]string{
		"STARFORM_STARBASE_URL": "https://starbase.example.com", "STARFORM_CLUSTER_ID": clusterID, "STARFORM_REGION": "nyc3",
		"STARFORM_AUTH_TOKEN_FILE": p.plane.TokenFile(), "STARFORM_GATEWAY_SERVICE": "edge/gateway",
		"STARFORM_TRANSPORT": transport,
	}
	return func(name string) string { return env[name] }
}
