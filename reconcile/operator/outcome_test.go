package operator //nolint:testpackage // outcomes are given

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/apply/readiness"
	"github.com/seed-9e1ffd66/trueup/reconcile"
)

var (
	a = apply.ID{Kind: "ConfigMap", Namespace: "shop", Name: "a"}
	b = apply.ID{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "b"}
)

func TestConditionsHaveTheHeaviestCause(t *testing.T) {
	t.Parallel()
	var (
		foreign  = apply.Result{ID: a, Err: apply.ErrNotOurs}
		down     = apply.Result{ID: b, Err: errors.New("connection refused")}
		deadline = readiness.Cause{Reason: readiness.ProgressDeadline, Outlook: readiness.Lasting, Message: "it took too long"}
		slow     = readiness.Result{Status: readiness.InProgress, Message: "1 of 2"}
		broken   = readiness.Result{Status: readiness.Failed, Message: "for good"}
	)
	of := func(results ...apply.Result) outcome { return outcomeOf(nil, results, nil, nil) }
	with := func(o outcome, id apply.ID, r readiness.Result, c readiness.Cause) outcome {
		o.notReady(id, r, c)
		return o
	}
	for name, test := range map[string]struct {
		outcome outcome
		want    string
	}{
		"none":                    {of(apply.Result{ID: a}), "Ready Ready: every child is as stated, and ready"},
		"a lasting one":           {of(foreign), "Stalled NotOurs: ConfigMap/shop/a: " + apply.ErrNotOurs.Error()},
		"one that is tried again": {of(down), "Reconciling RequestFailed: Deployment.apps/shop/b: connection refused"},
		"both": {
			of(down, foreign),
			"Stalled NotOurs: ConfigMap/shop/a: " + apply.ErrNotOurs.Error() + " (and 1 more)",
		},
		"a deadline of another": {
			with(of(apply.Result{ID: a, Err: down.Err}), b, slow, deadline),
			"Stalled ProgressDeadline: Deployment.apps/shop/b: it took too long (and 1 more)",
		},
		"progress": {
			with(of(), b, slow, readiness.Cause{}),
			"Reconciling Progressing: Deployment.apps/shop/b: is InProgress: 1 of 2",
		},
		"a failure without a cause": {
			with(of(), b, broken, readiness.Cause{}),
			"Stalled Progressing: Deployment.apps/shop/b: is Failed: for good",
		},
		"two of the same weight": {
			with(with(of(), b, slow, deadline), a, slow, deadline),
			"Stalled ProgressDeadline: ConfigMap/shop/a: it took too long (and 1 more)",
		},
		"beside the results": {
			outcomeOf(nil, nil, apply.ErrNotSynced, nil),
			"Reconciling NotSynced: " + apply.ErrNotSynced.Error(),
		},
		"that joins the results": {
			outcomeOf(nil, []apply.Result{foreign}, foreign.Err, down.Err),
			"Stalled NotOurs: ConfigMap/shop/a: " + apply.ErrNotOurs.Error(),
		},
		"a deletion that failed": {
			stuck(apply.PruneReport{Results: []apply.Result{down}}, down.Err),
			"Reconciling RequestFailed: Deployment.apps/shop/b: connection refused",
		},
		"a function that failed": {
			failed(errors.New("no answer\nfrom the shop")),
			"Reconciling InvalidChildren: no answer; from the shop",
		},
		"one that gave up": {
			failed(fmt.Errorf("site: %w", reconcile.Terminal(errors.New("no such theme")))),
			"Stalled InvalidChildren: site: no such theme",
		},
		"one that panicked": {
			failed(&reconcile.PanicError{Value: "no such page"}),
			"Stalled InvalidChildren: panic: no such page",
		},
		"children that are none": {
			outcomeOf(reconcile.Terminal(errors.Join(errors.New("child 0: is nil"), errors.New("child 1: is nil"))), nil, nil, nil),
			"Stalled InvalidChildren: child 0: is nil; child 1: is nil",
		},
	} {
		state, reason, message := test.outcome.state()
		require.Equal(t, test.want, fmt.Sprintf("%s %s: %s", state, reason, message), name)
	}
	notReady := with(of(), b, slow, deadline)
	require.Equal(t, askAgain, notReady.again, "pods may show another cause without an event")
	require.Zero(t, outcomeOf(nil, []apply.Result{foreign}, nil, nil).again)
}

func TestOnlyObjectsWithAnErrorHaveFailed(t *testing.T) {
	t.Parallel()
	results := []apply.Result{{ID: a, Err: apply.ErrNotOurs}, {ID: b, Action: apply.Created}}
	require.True(t, failedIn(results, a))
	require.False(t, failedIn(results, b))
}
