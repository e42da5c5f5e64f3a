package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/owntoken"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
	"github.com/seed-9e1ffd66/trueup/internal/kubewatch"
	"github.com/seed-9e1ffd66/trueup/reconcile"
)

// term is the agent's work from its start, or from taking the lease, to its
// end. It has no state of an earlier one.
type term struct {
	live  *apply.Live
	pods  *podView
	state *desired
	group *reconcile.Group
}

func (a *Agent) newTerm(metrics *metrics) (*term, error) {
	owner := Owner(a.Config.ClusterID)
	live, err := a.live(owner, metrics)
	if err != nil {
		return nil, err
	}
	deployments, err := a.rollouts(owner, metrics)
	if err != nil {
		return nil, err
	}
	billing, err := a.podView(owner, metrics)
	if err != nil {
		return nil, err
	}
	objects, err := kubewatch.Dynamic(a.budgeted(metrics), nil)
	if err != nil {
		return nil, fmt.Errorf("kubernetes client: %w", err)
	}
	tokens := owntoken.New(owntoken.Config{
		Given: a.Config.givenToken, Agent: a.Config.ClusterID, Kubernetes: objects,
		Secret: a.Config.TokenSecret, ControlPlane: a.Config.StarbaseURL, Transport: a.Starbase, Logger: a.Logger,
	})
	client := newClient(&a.Config, tokens, a.Starbase, metrics.observeStarbase)
	state := &desired{}

	status := &reporter{
		client: client, rollouts: deployments, instance: instanceID(), region: a.Config.Region, backoff: a.backoff(), pods: billing,
	}
	statusLoop := &reconcile.Loop{
		Name:       "status",
		Reconciler: status,
		Interval:   reportInterval,
		Timeout:    time.Minute,
		Backoff:    a.backoff(),
		Logger:     program.Changes(a.Logger),
	}
	status.trigger = statusLoop.Trigger
	deployments.Changed = func(types.NamespacedName) { status.changed() }
	billing.Changed = func(starbase.Identity) { status.changed() }

	deletions := &apply.ConfigMapMemory{Client: objects, Namespace: a.namespace(), Name: "shuttle-deletions-" + a.Config.ClusterID}
	generation := &apply.ConfigMapMemory{
		Client: objects, Namespace: a.namespace(), Name: "shuttle-generation-" + a.Config.ClusterID, Key: "accepted",
	}
	awaits := &atomic.Bool{}
	applier := &apply.Applier{Live: live, OnWrite: metrics.observeWrite}
	convergeLoop := a.loop("converge", &converger{
		applier: applier, awaits: awaits, memory: "ConfigMap " + deletions.Namespace + "/" + deletions.Name,
		desired: state, guard: newGuard(a.Config.MaxDeletePercent, deletions), metrics: metrics, logger: a.Logger, status: status,
	})
	live.OnWatch = metrics.observeWatchOf
	live.OnSynced = func(schema.GroupKind) { convergeLoop.Trigger() }
	if a.Config.WakeOnDrift {
		live.OnDrift = func(apply.Observed) { convergeLoop.Trigger() }
		live.OnChange = func(o apply.Observed) {
			if o.Gone && awaits.Load() {
				convergeLoop.Trigger() // it may have been the last that had to go
			}
		}
	}

	pull := &puller{
		client: client, owner: owner, cluster: a.Config.ClusterID, rules: a.Config.rules(),
		desired: state, newest: &newest{memory: generation, name: "ConfigMap " + generation.Namespace + "/" + generation.Name},
		metrics: metrics, logger: a.Logger, changed: convergeLoop.Trigger, report: status.updateState,
	}
	var from source = pull
	var stream *streamed
	if a.Config.Stream {
		stream = newStreamed(pull, a.Logger)
		from = stream
	}
	pullLoop := a.loop("pull", from)
	if stream != nil {
		stream.look = pullLoop.Trigger
	}
	pullLoop.Timeout = a.Config.ReconcileInterval // one call never outlives its interval
	pullLoop.Logger = program.Changes(a.Logger)

	t := &term{live: live, pods: billing, state: state, group: &reconcile.Group{StopTimeout: stopTimeout, Members: []reconcile.Member{
		{Name: "token renewal", Starter: tokens.Loop()},
		{Name: "live view", Starter: live},
		{Name: "rollouts", Starter: deployments},
		{Name: "pull", Starter: pullLoop},
		{Name: "source", Starter: from},
		{Name: "converge", Starter: convergeLoop},
		{Name: "status", Starter: statusLoop},
		{Name: "pods", Starter: billing},
		{Name: "snapshots", Starter: newSnapshots(&a.Config, billing, client, metrics, a.Logger)},
		{Name: "capacity", Starter: newCapacityLoop(&a.Config, billing, client, metrics, a.Logger)},
	}}}
	gatewayLoop := a.loop("gateway", &gateway{
		// An agent of another cluster ID may have a gateway in the same Kubernetes.
		fields: apply.Overlay{
			Objects: objects, Mapper: live.Mapper, Manager: manager + "-gateway-" + a.Config.ClusterID, OnWrite: metrics.observeWrite,
		},
		service: a.Config.GatewayService,
		desired: state,
		metrics: metrics,
		logger:  a.Logger,
		report:  func(p problem) { status.updateCluster(ofGateway, p) },
	})
	pull.changed = func() { convergeLoop.Trigger(); gatewayLoop.Trigger() }
	t.group.Members = append(t.group.Members, reconcile.Member{Name: "gateway", Starter: gatewayLoop})
	return t, nil
}

// synced is nil when the live views are complete, without waiting for them.
func (t *term) synced(context.Context) error { return errors.Join(t.live.Unseen(), t.pods.synced()) }

// inhabitants are the kinds that the agent may list. Before it deletes a namespace
// it looks among these for objects of others: those that it writes, and those in which
// others keep data or let something run.
type inhabitants struct {
	server apply.Discovery
	mapper meta.RESTMapper
}

// lookedFor are kinds that the agent lists and does not write.
func lookedFor() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{
		{Version: "v1", Kind: "Pod"},
		{Version: "v1", Kind: "PersistentVolumeClaim"},
		{Version: "v1", Kind: "ReplicationController"},
		{Group: "apps", Version: "v1", Kind: "StatefulSet"},
		{Group: "apps", Version: "v1", Kind: "DaemonSet"},
		{Group: "apps", Version: "v1", Kind: "ReplicaSet"},
		{Group: "batch", Version: "v1", Kind: "Job"},
		{Group: "batch", Version: "v1", Kind: "CronJob"},
		{Group: "networking.k8s.io", Version: "v1", Kind: "Ingress"},
	}
}

// ServerGroups implements apply.Discovery.
func (i inhabitants) ServerGroups() (*metav1.APIGroupList, error) { return i.server.ServerGroups() }

// ServerResourcesForGroupVersion implements apply.Discovery.
func (i inhabitants) ServerResourcesForGroupVersion(version string) (*metav1.APIResourceList, error) {
	return i.server.ServerResourcesForGroupVersion(version)
}

// ServerPreferredResources implements apply.Discovery.
func (i inhabitants) ServerPreferredResources() ([]*metav1.APIResourceList, error) {
	var lists []*metav1.APIResourceList
	for _, kind := range slices.Concat(Kinds(), lookedFor()) {
		mapping, err := i.mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if meta.IsNoMatchError(err) {
			continue
		}
		if err != nil {
			return lists, err
		}
		lists = append(lists, &metav1.APIResourceList{GroupVersion: kind.GroupVersion().String(), APIResources: []metav1.APIResource{{
			Name: mapping.Resource.Resource, Kind: kind.Kind, Namespaced: mapping.Scope.Name() == meta.RESTScopeNameNamespace,
			Verbs: metav1.Verbs{"list", "watch"},
		}}})
	}
	return lists, nil
}

// answered is nil once Starbase has answered with a state that was accepted.
func (t *term) answered(context.Context) error {
	if _, answered := t.state.peek(); answered {
		return nil
	}
	err := t.state.why()
	if p := acceptance(err); p != (problem{}) {
		return errors.New("no state is accepted yet: " + p.message)
	}
	if answer, ok := errors.AsType[*StarbaseError](err); ok {
		return fmt.Errorf("no state is accepted yet: %w", answer)
	}
	return errors.New("no answer yet") // the log says why, with the URL
}
