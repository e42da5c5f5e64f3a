package agent_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// head returns the last version of the region and the epoch of its log. It is called in the world.
func (r *region) head() (version uint64, epoch string) {
	page, err := r.plane.Regions.Database.Log.Read(context.Background(), regionName, 0, 1)
	must(err)
	return page.Head, page.Epoch
}

func (r *region) epoch() string {
	_, epoch := r.head()
	return epoch
}

// fails waits until the operation has failed for each collection.
func (b *bench) fails(operation string, collections ...string) {
	for _, collection := range collections {
		prefix := fmt.Sprintf("reconcile_operations_total{operation=%q,resource_type=%q,result=\"error\"}", operation, collection)
		before := b.metric(prefix)
		b.eventually(operation+" of "+collection+" fails", func() bool { return b.metric(prefix) != before })
	}
}

// kubernetesOutage is D19: an object that the API server does not accept is not
// acknowledged, and an object that cannot be read does not count as deleted.
func kubernetesOutage(b *bench) {
	b.agent.Periods.Retry.Retries, b.agent.Periods.Retry.Min, b.agent.Periods.Retry.Max = 0, time.Second, time.Minute // it never gives up
	acknowledged := func(below uint64) func() bool {
		return func() (so bool) {
			b.do(func(*simtest.World) {
				head, epoch := b.head()
				beat := b.liar.Beat()
				so = beat.GetEpoch() == epoch && beat.GetMark() != "" && beat.GetObservedVersion()+below == head
			})
			return so
		}
	}
	var away atomic.Bool
	fault := func(applytest.Request) applytest.Fault { return applytest.Fault{Lose: away.Load()} }
	web, api, guard := deployment("web"), deployment("api"), sentinel("guard")
	b.want(web, api, guard, policy("egress"), policy("ingress"))
	b.startWith(fault)
	b.eventually("all of it runs", func() bool { return b.running("web", "api") && len(b.names(ciliums, "policy")) == 2 })
	b.eventually("all of it is acknowledged", func() bool { return b.lag() == "0 0 0" && b.isReady() == nil })
	b.eventually("heartbeats report it", acknowledged(0))

	away.Store(true)
	b.net.Cut()
	web.Image, guard.Image = "registry.example.com/web:2", "registry.example.com/sentinel:2"
	b.gone(api)
	b.want(web, guard, deployment("late"))
	b.gone(policy("ingress"))
	// Up to five versions are not applied, from the first of each collection on.
	b.eventually("they are received", func() bool { return b.lag() == "5 3 1" })
	b.fails("apply", "deployments", "sentinels")
	b.fails("delete", "deployments", "policies")
	require.Equal(b, "5 3 1", b.lag())
	b.eventually("heartbeats report it", acknowledged(5))
	require.False(b, b.reportedGone("api"))
	unseen := func() bool {
		return strings.Contains(strings.Join(b.problems(), " "), "ReplicaSet.apps: its objects are not seen")
	}
	b.within(2*time.Minute, "a person learns that nothing is seen", unseen)

	// The next process has not observed the cluster.
	b.startWith(fault)
	b.fails("apply", "deployments", "sentinels", "policies")
	b.fails("delete", "deployments", "policies")
	b.eventually("no version is acknowledged", func() bool { return b.lag() == "5 3 7" })
	b.eventually("watches give way to lists", func() bool { return b.net.Count("list") > 0 })
	require.Error(b, b.isReady())
	require.False(b, b.reportedGone("api"))
	require.Len(b, b.instances("web"), 1)
	b.within(time.Minute, "and of this one, too", unseen)
	b.pause(2 * time.Minute)

	away.Store(false)
	b.eventually("all is acknowledged", func() bool { return b.lag() == "0 0 0" && b.isReady() == nil })
	b.eventually("heartbeats report it", acknowledged(0))
	b.within(time.Minute, "everything is seen", func() bool { return len(b.problems()) == 0 })
	b.eventually("the new one runs", func() bool { return b.running("late", "web") })
	b.eventually("the other is gone, and reported so", func() bool { return b.away("api") && b.reportedGone("api") })
	require.Equal(b, web.GetImage(), b.image("web"))
	require.Equal(b, []string{"egress"}, b.names(ciliums, "policy"))
	for _, deletion := range b.deletes() {
		require.Regexp(b, "api|ingress$", deletion, "of what was to go")
	}
}
