package agent_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/internal/controltest"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

func scenarios() map[string]scenario {
	all := map[string]scenario{
		"lost delete report":             {run: lostDeleteReport},
		"a human edit":                   {run: humanEdit},
		"one refused object":             {run: oneRefused},
		"a refused one is withdrawn":     {run: refusedAndWithdrawn, leaves: true},
		"order":                          {run: order},
		"a fight is counted":             {run: countsWhatIsFoughtOver},
		"a burst":                        {run: burst},
		"a crash loop":                   {run: crashLoop},
		"breakers":                       {run: breakers},
		"point queries fail":             {run: queriesFail},
		"a lost watch of pods":           {run: podWatchLost},
		"queries beside a closed stream": {run: queriesBesideAClosedStream},
		"kubernetes outage":              {run: kubernetesOutage},
		"a token is replaced":            {run: func(b *bench) { tokenReplaced(b, 30*time.Second) }},
		"a token file is replaced":       {run: func(b *bench) { tokenReplaced(b, time.Hour) }, leaves: true},
		"streams are revoked":            {run: streamsRevoked, leaves: true},
		"an orphan":                      {run: orphan, leaves: true},
		"a row that cannot be sent":      {run: unsendable},
		"more orphans than the limit":    {run: limit, leaves: true},
		"what is held is reported":       {run: heldAtOnce, leaves: true},
		"what is kept is reported":       {run: keptForAnEmptyList, leaves: true},
		"an empty namespace":             {run: emptyNamespace, leaves: true},
		"an empty one of two agents":     {run: emptyWhileSuperseded, leaves: true},
		"a namespace of others":          {run: namespaceOfOthers, leaves: true},
		"two agents":                     {run: twoAgents},
		"what two agents cannot do":      {run: refusedBeforeTheOther, leaves: true},
		"ids of one name":                {run: idsOfOneName},
		"ids of one name at once":        {run: idsOfOneNameAtOnce},
		"two versions at once":           {run: twoVersions},
		"a second cell":                  {run: secondCell, leaves: true},
		"a lost region":                  {run: regionLost, leaves: true},
		"a region lost to calls":         {run: regionLostToCalls},
		"a silent region":                {run: silentRegion},
		"no deletion by wrong lists":     {run: noDeletionBeforeProof(true)},
		"no deletion by point queries":   {run: noDeletionBeforeProof(false)},
		"no proof not found":             {run: noProof(wrong(controltest.Faults{Refuse: refuse{notFound()}}), false)},
	}
	internal := no("Watch", connect.CodeInternal)
	database := controltest.Faults{Refuse: refuse{internal, no("Get", connect.CodeUnavailable)}}
	for what, d := range map[string]disturbance{
		"a dead server": deadServer(), "a wrong token": wrongToken(), "a dead database": wrong(database),
	} {
		all["one line for "+what] = scenario{run: oneLine(d, "no contact with the control plane")}
	}
	all["one line for a lost region"] = scenario{run: oneLine(lostRegion(), "the control plane refuses the region")}
	for what, d := range map[string]disturbance{
		"unknown region": lostRegion(), "wrong credential": wrongToken(),
		"cut list":            wrong(controltest.Faults{Lie: controltest.CutAfter(1)}),
		"wrong count":         wrong(controltest.Faults{Lie: controltest.WrongCount()}),
		"wrong digest":        wrong(controltest.Faults{Lie: controltest.WrongDigest()}),
		"empty list":          wrong(controltest.Faults{Lie: controltest.Hide(), Refuse: refuse{notFound()}}),
		"database error":      wrong(controltest.Faults{Refuse: refuse{notFound(), internal}}),
		"one broken stream":   wrong(controltest.Faults{Refuse: refuse{notFound(), no("WatchCilium", connect.CodeInternal)}}),
		"without any markers": wrong(controltest.Faults{Plain: true, Refuse: refuse{notFound()}}),
	} {
		all["no proof "+what] = scenario{run: noProof(d, true), leaves: true}
	}
	return all
}

// disturbance is what is wrong for a while.
type disturbance struct{ begin, end func(*bench) }

// wrong answers wrongly. Open streams end as it begins and as it ends.
func wrong(f controltest.Faults) disturbance {
	set := func(f controltest.Faults) func(*bench) {
		return func(b *bench) {
			b.liar.Set(f)
			b.liar.Cut(0)
		}
	}
	return disturbance{set(f), set(controltest.Faults{})}
}

type refuse = []controltest.Refusal

func no(methods string, code connect.Code) controltest.Refusal {
	return controltest.Refusal{Methods: methods, Code: code}
}

func notFound() controltest.Refusal { return no("Get", connect.CodeNotFound) }

// deadServer drops all connections.
func deadServer() disturbance {
	lose := func(all bool) func(*bench) {
		return func(b *bench) {
			b.do(func(*simtest.World) { b.plane.Lose = func(string) bool { return all } })
			b.liar.Cut(0)
		}
	}
	return disturbance{lose(true), lose(false)}
}

// wrongToken has the control plane take another token than the agent has.
func wrongToken() disturbance {
	var token string
	return disturbance{
		func(b *bench) { token = b.rotate() },
		func(b *bench) { b.do(func(*simtest.World) { b.plane.SetToken(token) }) },
	}
}

// lostRegion renames the row of the region.
func lostRegion() disturbance {
	name := func(name string) func(*bench) {
		return func(b *bench) { b.byHand("UPDATE regions SET name = '" + name + "' WHERE id = '" + regionID + "'") }
	}
	return disturbance{
		func(b *bench) {
			b.do(func(*simtest.World) { b.plane.SetToken(bearer) }) // the token of the region would not be taken
			b.pause(time.Minute)
			name("lost")(b)
		},
		name(regionName),
	}
}

// lostDeleteReport is D21 and C23.
func lostDeleteReport(b *bench) {
	b.want(all("api")...)
	b.start()
	b.eventually("both run", func() bool { return b.running("web", "api") })
	b.liar.Set(controltest.Faults{Refuse: refuse{no("ReportDeploymentStatus", connect.CodeUnavailable)}})
	b.gone(deployment("web"))
	b.eventually("it is gone", func() bool { return !b.exists(replicaSets, "web") })
	b.eventually("the report is owed", func() bool { return b.metric("unreported_deletions") == "1" })
	require.Len(b, b.instances("web"), 1)
	b.stop()
	b.liar.Set(controltest.Faults{})
	b.start()
	b.within(10*time.Minute, "it is reported after the restart", func() bool {
		return b.away("web") && b.metric("unreported_deletions") == "0"
	})
	require.True(b, b.running("api"))
}

// humanEdit is D25: an owned field is taken back, a foreign one stays.
func humanEdit(b *bench) {
	b.want(all()...)
	b.start()
	b.eventually("it runs", func() bool { return b.running("web") })
	b.person(func(c simtest.Client) error {
		return c.Update(replicaSets, namespace, "web", func(o simtest.Object) { o.Set("theirs", "metadata", "annotations", "example.com/note") })
	})
	b.setImage("web")
	b.within(time.Minute, "the image is back", func() bool { return b.image("web") == "registry.example.com/web:1" })
	require.Equal(b, "theirs", b.object(replicaSets, "web").Field("metadata", "annotations", "example.com/note"))
	b.person(func(c simtest.Client) error { return c.Delete("secrets", namespace, "deploy-d-web") })
	b.within(time.Minute, "what is deleted comes back", func() bool { return b.exists("secrets", "deploy-d-web") })
}

// oneRefused is D16: two of many are always refused, one of which no right control plane sends.
func oneRefused(b *bench) {
	all := append(all(), deployment("broken"), deployment("taken")) // the account of that name belongs to a person
	for n := range 8 {
		d := deployment(fmt.Sprintf("web-%d", n))
		d.Autoscaling = &ctrlv1.Autoscaling{MinReplicas: 1, MaxReplicas: 1}
		all = append(all, d)
	}
	b.person(func(c simtest.Client) error { return c.Create(object("v1", "Namespace", "", namespace)) })
	b.person(func(c simtest.Client) error {
		return c.Create(object("v1", "ServiceAccount", namespace, "deploy-d-taken"))
	})
	b.liar.Set(controltest.Faults{Lie: func(m ctrlv1.Message, _ int) ([]ctrlv1.Message, error) {
		if order, _ := ctrlv1.Carried(m); order != nil && order.GetK8SName() == "broken" {
			order.(*ctrlv1.ApplyDeployment).CpuMillicores = 0 //nolint:forcetypeassert // it is one
		}
		return []ctrlv1.Message{m}, nil
	}})
	b.agent.Periods.Retry = reconcile.Backoff{Min: time.Second, Max: time.Minute, Retries: 2}
	b.want(all...)
	b.start()
	for n := range 8 {
		b.eventually("the others run", func() bool { return b.running(fmt.Sprintf("web-%d", n)) })
	}
	b.within(15*time.Minute, "two are parked", func() bool { return b.metric(`parked_objects{resource_type="deployments"}`) == "2" })
	b.within(10*time.Second, "and their reasons are known", func() bool { return len(b.problems()) == 2 })
	require.Regexp(b, `^deployments/`+namespace+`/broken: .*cpu`, b.problems()[0])
	require.Regexp(b, `^deployments/`+namespace+`/taken: .*ServiceAccount.*deploy-d-taken`, b.problems()[1])
	require.False(b, b.exists(replicaSets, "broken"))
	b.liar.Set(controltest.Faults{})
	right := deployment("broken")
	right.Image = "registry.example.com/broken:2"
	b.want(right)
	b.eventually("it runs when it is right", func() bool { return b.running("broken") })
	b.person(func(c simtest.Client) error { return c.Delete("serviceaccounts", namespace, "deploy-d-taken") })
	b.later("the other runs once the name is free", func() bool { return b.running("taken") })
	b.within(time.Minute, "nothing is wrong any more", func() bool { return len(b.problems()) == 0 })
	// The agent does not make a namespace of others its own.
	b.person(func(c simtest.Client) error { return c.Delete("namespaces", "", namespace) })
	b.later("and all of it in a namespace of the agent", func() bool { return b.running("web", "taken", "broken", "web-0") })
}

// refusedAndWithdrawn has two that are refused, of which one is withdrawn, and the row of the other removed
// by hand, which no message says.
func refusedAndWithdrawn(b *bench) {
	b.person(func(c simtest.Client) error { return c.Create(object("v1", "Namespace", "", namespace)) })
	for _, name := range []string{"deploy-d-one", "deploy-d-two"} {
		b.person(func(c simtest.Client) error { return c.Create(object("v1", "ServiceAccount", namespace, name)) })
	}
	b.agent.Periods.Retry = reconcile.Backoff{Min: time.Second, Max: time.Minute, Retries: 2}
	b.want(append(all(), deployment("one"), deployment("two"))...)
	b.start()
	b.within(15*time.Minute, "both are reported", func() bool { return len(b.problems()) == 2 })
	b.gone(deployment("one"))
	b.within(time.Minute, "what is withdrawn is no problem", func() bool { return len(b.problems()) == 1 })
	require.Contains(b, b.problems()[0], "/two: ")
	b.byHand("DELETE FROM deployment_topology WHERE deployment_id = 'd_two'")
	b.later("nor is what no list has", func() bool { return len(b.problems()) == 0 })
}

// object returns an object without content.
func object(version, kind, namespace, name string) simtest.Object {
	meta := map[string]any{"name": name}
	if namespace != "" {
		meta["namespace"] = namespace
	}
	return simtest.Object{"apiVersion": version, "kind": kind, "metadata": meta}
}

// order is D14: a delete that comes while the apply before it is under way.
func order(b *bench) {
	b.want(all("api")...)
	b.start()
	b.eventually("both run", func() bool { return b.running("web", "api") })
	var slow atomic.Bool
	seen := make(chan struct{}, 100)
	b.startWith(func(r applytest.Request) applytest.Fault {
		if r.Verb == "patch" && r.Name == "web" && slow.Load() {
			seen <- struct{}{}
			return applytest.Fault{Delay: 10 * time.Second}
		}
		return applytest.Fault{}
	})
	b.synced(1)
	slow.Store(true)
	changed := deployment("web")
	changed.Image = "registry.example.com/web:2"
	b.want(changed)
	<-seen
	b.gone(changed)
	b.eventually("it is gone", func() bool { return b.away("web") })
	b.pause(5 * time.Minute)
	require.False(b, b.exists(replicaSets, "web"), "it stays so")
	require.True(b, b.exists(replicaSets, "api"))
}

// countsWhatIsFoughtOver: an edit is put right at once, from the sixth time on it is a fight,
// which is counted and left alone for a while. The others are not held back.
func countsWhatIsFoughtOver(b *bench) {
	b.want(all()...)
	b.start()
	b.eventually("it runs", func() bool { return b.running("web") })
	right := b.image("web")
	for range 5 {
		b.setImage("web")
		b.eventually("the image is back", func() bool { return b.image("web") == right })
	}
	require.Equal(b, "0", b.metric("contested_objects"))
	b.setImage("web")
	b.eventually("the fight is counted", func() bool { return b.metric("contested_objects") == "1" })
	require.NotEqual(b, right, b.image("web"), "it is left alone")
	b.want(deployment("api"))
	b.within(time.Minute, "it is reported", func() bool {
		return len(b.problems()) == 1 && strings.Contains(b.problems()[0], "changed back after each of 5 repairs")
	})
	b.within(35*time.Second, "the image is back once more", func() bool { return b.image("web") == right })
	b.eventually("another one is made", func() bool { return b.running("api") })
	require.Equal(b, "1", b.metric("contested_objects"), "it is not over")
	b.within(15*time.Minute, "it is over", func() bool { return b.metric("contested_objects") == "0" })
}

// rows returns n policies in that edition.
func rows(n, edition int) []proto.Message {
	all := make([]proto.Message, n)
	for i := range all {
		p := policy(fmt.Sprintf("egress-%d", i))
		p.Policy = fmt.Appendf(
			nil, `{"apiVersion":"cilium.io/v2","kind":"CiliumNetworkPolicy","spec":{"endpointSelector":{},"description":"%d"}}`, edition,
		)
		all[i] = p
	}
	return all
}

// burst is D26 with 300 rows; BenchmarkBurst has the 10,000. The first are applied
// while the others are still to come, and each row is sent once.
func burst(b *bench) {
	const n, method = 300, "WatchCiliumNetworkPolicies"
	b.agent.Periods.Resync = 10 * time.Minute // a query for each row
	written := make(chan struct{})
	var once sync.Once
	b.liar.Set(controltest.Faults{Lie: func(m ctrlv1.Message, orders int) ([]ctrlv1.Message, error) {
		if _, is := m.(*ctrlv1.CiliumNetworkPolicyState); is && orders == n/2 {
			<-written
		}
		return []ctrlv1.Message{m}, nil
	}})
	b.startWith(func(r applytest.Request) applytest.Fault {
		if r.Resource == "ciliumnetworkpolicies" && r.Writes() && !strings.HasPrefix(r.Name, "krane-egress-") {
			once.Do(func() { close(written) })
		}
		return applytest.Fault{}
	})
	b.synced(1)
	lists := b.liar.Lists(method)
	b.want(rows(n, 1)...)
	b.eventually("all of it is applied", func() bool { return len(b.names(ciliums, "policy")) == n })
	b.eventually("all of it is acknowledged", func() bool { return b.lag() == "0 0 0" })
	require.Equal(b, n, b.liar.Sent(method))
	require.Equal(b, lists, b.liar.Lists(method))
	require.Equal(b, "0", b.metric(`parked_objects{resource_type="policies"}`))
	// The namespace, its account and policy, and one write for each.
	require.LessOrEqual(b, len(b.net.Writes()), n+6)
}

// tokenReplaced is D17: the new file alone ends the pauses of 30 s and more, also where no heartbeat is near.
func tokenReplaced(b *bench, heartbeat time.Duration) {
	const refused = `stream_connections_total{resource_type="deployments",status="unauthenticated"}`
	b.agent.Periods.Heartbeat = heartbeat
	b.want(all()...)
	b.start()
	b.synced(1)
	for n := range 4 {
		had := b.metric(refused)
		d := wrongToken()
		d.begin(b)
		b.eventually("the old one is refused", func() bool { return b.metric(refused) != had })
		b.pause(2 * time.Minute)
		opened := b.liar.Calls("WatchDeployments")
		d.end(b)
		b.within(20*time.Second, "the streams do not wait for their pause", func() bool {
			return b.liar.Calls("WatchDeployments") > opened
		})
		name := fmt.Sprintf("new-%d", n)
		b.want(deployment(name))
		b.within(time.Minute, "the new token is good", func() bool { return b.running(name) })
	}
	require.Empty(b, b.deletes())
}

// streamsRevoked ends streams whose token is good again before they pause: no failed
// heartbeat precedes, and no heartbeat is due.
func streamsRevoked(b *bench) {
	const refused = `stream_connections_total{resource_type="deployments",status="unauthenticated"}`
	b.agent.Periods.Heartbeat = time.Hour
	b.want(all()...)
	b.start()
	b.synced(1)
	for range 4 {
		opened, had := b.liar.Calls("WatchDeployments"), b.metric(refused)
		b.liar.Cut(connect.CodeUnauthenticated)
		b.eventually("they are refused", func() bool { return b.metric(refused) != had })
		b.within(20*time.Second, "they are open again, and do not wait for their pause", func() bool {
			return b.liar.Calls("WatchDeployments") > opened
		})
		// One that is refused before its first message pauses: the token may be wrong.
		b.pause(time.Minute)
	}
}
