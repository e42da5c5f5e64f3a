package agent_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/controlplanetest"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// TestTheAgentMayBeKilledAnywhere is D19: it kills the agent before and after each request to the API
// server and to the control plane, in all the life of a cluster.
func TestTheAgentMayBeKilledAnywhere(t *testing.T) {
	t.Parallel()
	if testing.Short() { // two lives, in which it is killed now and then
		simtest.Histories(t, simulated(t, func(p *starbaseWorld, s *simtest.Scenario) {
			lifeOfACluster(p, s)
			s.Disturbances, s.Histories, s.Rest = []applytest.Disturbance{applytest.KillBefore, applytest.KillAfter}, 2, time.Minute
		}))
		return
	}
	c := simtest.Sweep(t, simulated(t, lifeOfACluster), 1)
	c.Check(t, 97)
	require.Positive(t, c.Boundaries)
	fmt.Printf("figure sim_shuttle_boundaries %d count\n", c.Boundaries)
}

// step is a change of what is wanted, and how long the agent may take, with a restart.
type step struct {
	name string
	do   func(*simtest.World)
	// kinds are the kinds of the agent's objects in the cluster after the step.
	kinds []string
	takes time.Duration
}

// lifeOfACluster begins with nothing. All the kinds of the contract are made, then changed, then taken
// away, then with their service and their project, until nothing is left. The state is what it must be
// after each step, whatever was killed in it.
func lifeOfACluster(p *starbaseWorld, s *simtest.Scenario) {
	service := func(image string, more map[string]any) map[string]any {
		spec := map[string]any{
			"service_name": "web", "image": image, "replicas": 2, "env": map[string]any{"GREETING": image},
			"ports": []any{map[string]any{"container_port": 8080}},
		}
		maps.Copy(spec, more)
		return spec
	}
	full := map[string]any{
		"hostname": "web.example.com", "autoscaling": map[string]any{"min": 1, "max": 5, "cpu_percent": 80},
	}
	project := func(n int, more map[string]any) {
		spec := map[string]any{
			"cluster_id": clusterID, "workspace_id": uuid(1000 + n), "workspace_slug": "acme", "slug": fmt.Sprint("shop", n),
		}
		maps.Copy(spec, more)
		p.plane.Put(projectPath(n), spec)
	}
	limits := func(pods, cpu string) map[string]any {
		return map[string]any{"quota": map[string]any{"pods": pods}, "limits": map[string]any{"default": map[string]any{"cpu": cpu}}}
	}
	group := func(value string) {
		entry := map[string]any{"key": "TOKEN", "value": value, "secret": true}
		p.plane.Put(groupPath(1), map[string]any{"name": "group", "entries": []any{entry}})
	}
	size := func(units int) {
		p.plane.Put("clusters/"+clusterID+"/config", map[string]any{"lb_size_units": units})
		p.units = fmt.Sprint(units)
	}
	web, api, other := servicePathOf(1, 0, productionOf), servicePathOf(1, 1, stagingOf), servicePathOf(2, 0, productionOf)
	basic := []string{
		"ConfigMap", "Deployment", "Namespace", "NetworkPolicy", "PodDisruptionBudget", "Role", "RoleBinding", "Service", "ServiceAccount",
	}
	all := append([]string{"HTTPRoute", "HorizontalPodAutoscaler", "LimitRange", "ResourceQuota", "Secret"}, basic...)
	steps := []step{
		{"all is made", func(*simtest.World) {
			size(3)
			project(1, limits("20", "500m"))
			project(2, nil)
			group("secret")
			p.plane.Put(web, service("example.com/web:1", full))
			p.plane.Put(web+"/var-groups", map[string]any{"var_groups": []string{uuid(101)}})
			p.plane.Put(api, service("example.com/api:1", nil))
			p.plane.Put(other, service("example.com/other:1", nil))
		}, all, 2 * time.Minute},
		{"all is changed, by a person, too", func(w *simtest.World) {
			size(5)
			project(1, limits("30", "1"))
			group("another secret")
			p.plane.Put(web, service("example.com/web:2", full))
			for _, kind := range []string{"configmaps", "networkpolicies.networking.k8s.io"} {
				for _, o := range w.Objects(kind) {
					if ownObject(o) && o.Label("starform.io/environment") == "staging" {
						must(w.As("person").Delete(kind, o.Namespace(), o.Name()))
					}
				}
			}
		}, all, 2 * time.Minute},
		{"what is optional goes, and a service", func(*simtest.World) {
			project(1, nil)
			p.plane.Put(web+"/var-groups", map[string]any{"var_groups": []string{}})
			p.plane.Remove(groupPath(1))
			p.plane.Put(web, service("example.com/web:2", nil))
			p.plane.Remove(api)
		}, basic, 4 * time.Minute}, // what is absent goes after a minute of answers
		{"a project goes", func(*simtest.World) { p.plane.Remove(projectPath(1)) }, basic, 2 * time.Minute},
		{"the last project goes", func(*simtest.World) { p.plane.Remove(projectPath(2)) }, nil, 2 * time.Minute},
	}
	start := s.Start
	s.Start = func(w *simtest.World) {
		start(w)
		for _, o := range others() {
			must(w.Create(o))
		}
	}
	s.Edit = func(w *simtest.World) {
		var after time.Duration
		for _, each := range steps {
			w.After(after, func() {
				each.do(w)
				p.note()
			})
			after += each.takes
			w.After(after-time.Second, func() {
				if err := p.asStated(w, each.kinds); err != nil {
					w.Blame("%s, and then: %v", each.name, err)
				}
			})
		}
	}
	p.transport = "poll"
	s.Bounds = nil // they would end a while after the last step
	s.Edits, s.Pause, s.Settle = 1, time.Second, 0
	for _, each := range steps {
		s.Settle += each.takes
	}
	state := s.State
	s.State = func(w *simtest.World) string { return state(w) + "\n" + p.others(w) }
}

// others are objects with the agent's labels or names that another client owns.
func others() []simtest.Object {
	labels := func() map[string]any {
		return map[string]any{"starform.io/managed-by": "shuttle", "starform.io/cluster-id": uuid(4242)}
	}
	return []simtest.Object{
		{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "proj-theirs", "labels": labels()}},
		{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"namespace": "proj-theirs", "name": "theirs", "labels": labels()},
			"data": map[string]any{"theirs": "yes"},
		},
		{
			"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"namespace": "edge", "name": "vg-" + uuid(101)},
			"data": map[string]any{},
		},
	}
}

// asStated returns what is not as it is stated now, or not as others have left it.
func (p *starbaseWorld) asStated(w *simtest.World, kinds []string) error {
	if err := p.converged(w); err != nil {
		return err
	}
	var found []string
	for _, o := range objects().In(w) {
		if kind := fmt.Sprint(o["kind"]); !slices.Contains(found, kind) {
			found = append(found, kind)
		}
	}
	gateway := w.Stored("services", "edge", "gateway").Field("metadata", "annotations")
	if units := fmt.Sprint(gateway); !strings.HasSuffix(units, "size-unit:"+p.units+"]") {
		return fmt.Errorf("the gateway has %s, want %s units", units, p.units)
	}
	slices.Sort(found)
	if kinds = slices.Sorted(slices.Values(kinds)); !slices.Equal(found, kinds) {
		return fmt.Errorf("there are objects of %q, want %q", found, kinds)
	}
	return nil
}

// others returns what is another's.
func (p *starbaseWorld) others(w *simtest.World) string {
	var text strings.Builder
	for _, o := range others() {
		kind, _ := o["kind"].(string)
		live := w.Stored(objects().Resource(kind), o.Namespace(), o.Name())
		if live == nil {
			w.Blame("%s is gone", controlplanetest.Key(o))
			continue
		}
		_, _ = fmt.Fprintln(&text, controlplanetest.Content(live), live.Field("metadata", "labels")) // a Builder takes everything
	}
	return text.String()
}
