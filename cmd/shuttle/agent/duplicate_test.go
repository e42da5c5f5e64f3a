package agent_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// TestADuplicateLeavesWhatIsThereAsItIs is C26: for ten minutes the desired state has one of two running
// services more than once, with other images. Its objects stay what they were, the status names it, and
// the other service goes on.
func TestADuplicateLeavesWhatIsThereAsItIs(t *testing.T) {
	t.Parallel()
	simtest.Histories(t, simulated(t, func(p *starbaseWorld, s *simtest.Scenario) {
		const lasts = 10 * time.Minute
		p.transport = "poll" // the version that a stream would name is not the one of the answers
		twins, other := servicePathOf(1, 0, productionOf), servicePathOf(1, 1, productionOf)
		start := s.Start
		s.Start = func(w *simtest.World) {
			start(w)
			p.putProject(1)
			p.putWeb(twins, 1)
			p.putWeb(other, 1)
		}
		twice := false
		p.plane.Answer = func(_ *simtest.World, r *http.Request, body []byte) []byte {
			if !twice || !strings.HasSuffix(r.URL.Path, "/desired-state") {
				return body
			}
			state, err := starbase.Decode(bytes.NewReader(body), clusterID)
			must(err)
			for _, image := range []string{"example.com/web:8", "example.com/web:9"} {
				for i := range state.Services {
					if s := state.Services[i]; s.ServiceID == uuid(10) && s.Image == "example.com/web:1" {
						s.Image = image
						state.Services = append(state.Services, s)
						break
					}
				}
			}
			state.Nonce = "twice"
			must(state.Seal())
			body, err = json.Marshal(state)
			must(err)
			return body
		}
		// ofTwins are the objects of the service that is there twice, with all but what the cluster adds.
		ofTwins := func(w *simtest.World) string {
			var all []string
			for _, o := range objects().In(w) {
				if o.Label("starform.io/service-id") == strings.ReplaceAll(uuid(10), "-", "") {
					all = append(all, fmt.Sprint(o["kind"], " ", o.Name(), " ", o.Field("metadata", "uid"), " ", o["spec"], " ", o["data"]))
				}
			}
			return strings.Join(all, "\n")
		}
		var before string
		s.Edits, s.Pause, s.Settle, s.Rest, s.Histories = 1, time.Second, 15*time.Minute, time.Minute, 1
		s.Disturbances, s.Bounds, s.Prompt = []applytest.Disturbance{}, nil, true
		s.Edit = func(w *simtest.World) {
			blame := func(when string, err error) {
				if err != nil {
					w.Blame("%s: %v", when, err)
				}
			}
			w.After(2*time.Minute, func() {
				blame("at first", errors.Join(objects().Unlike(w, p.stated()), p.reported(w)))
				before, twice = ofTwins(w), true
				p.putWeb(other, 2)
			})
			w.After(2*time.Minute+lasts, func() {
				if after := ofTwins(w); after != before || strings.Count(before, "\n") < 3 {
					w.Blame("the objects of the duplicate were\n%s\nand are\n%s", before, after)
				}
				if !strings.Contains(fmt.Sprint(w.Objects("deployments.apps")), "example.com/web:2") {
					w.Blame("the other service did not go on")
				}
				cluster, services, err := p.plane.Clusters.Cluster(p.t.Context(), clusterID)
				must(err)
				if cluster.HeldDeletions != nil {
					w.Blame("held: %v", cluster.HeldDeletions)
				}
				for _, s := range services {
					if class := s.ErrorClass; (class == "DuplicateIdentity") != (s.ServiceID == uuid(10)) {
						w.Blame("service %s has the error %q: %s", s.Identity(), class, s.Message)
					}
				}
				twice = false
			})
			w.After(2*time.Minute+lasts+time.Minute, func() {
				blame("a minute after", errors.Join(objects().Unlike(w, p.stated()), p.reported(w)))
				if after := ofTwins(w); after != before {
					w.Blame("a minute after, the objects were\n%s\nand are\n%s", before, after)
				}
			})
		}
	}))
}
