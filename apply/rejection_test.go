package apply //nolint:testpackage // time is given, not waited for

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seed-9e1ffd66/trueup/diff"
)

func TestARejectionStandsUntilSomethingChangesOrItsDelayIsOver(t *testing.T) {
	t.Parallel()
	var r rejections
	now := time.Unix(0, 0)
	a := attempt{id: ID{Kind: "ConfigMap", Namespace: "x", Name: "a"}, part: "p", hash: diff.Sum{1}, seen: diff.Sum{2}}
	result := Result{a.id, Failed, apierrors.NewInvalid(schema.GroupKind{}, "a", nil)}
	stands := func(a attempt, after time.Duration) bool {
		_, ok := r.standing(a, now.Add(after))
		return ok
	}
	require.False(t, stands(a, 0))
	r.note(a, result, now)
	require.True(t, stands(a, firstDelay-1))
	require.False(t, stands(a, firstDelay))
	for name, change := range map[string]func(*attempt){
		"another object is wanted":    func(a *attempt) { a.hash = diff.Sum{9} },
		"the live object was changed": func(a *attempt) { a.seen = diff.Sum{9} },
		"adoption":                    func(a *attempt) { a.policy.adoption = AdoptForeign },
		"conflicts":                   func(a *attempt) { a.policy.conflicts = ReportConflicts },
		"recreation":                  func(a *attempt) { a.policy.recreate = true },
		"upsert":                      func(a *attempt) { a.policy.upsert = true },
	} {
		other := a
		change(&other)
		require.False(t, stands(other, 0), name)
	}

	for range 10 {
		now = now.Add(maxDelay)
		r.note(a, result, now)
	}
	require.True(t, stands(a, maxDelay-1))
	require.False(t, stands(a, maxDelay))

	r.note(a, Result{a.id, Failed, errors.New("connection reset")}, now)
	require.False(t, stands(a, 0), "that may pass at any moment")
	r.note(a, Result{a.id, Refused, ErrNotOurs}, now)
	require.True(t, stands(a, firstDelay-1), "the delay starts again")
	r.forget(a.id)
	require.Empty(t, r.by)
}

func TestAnObjectOverAQuotaIsTriedEach30Seconds(t *testing.T) {
	t.Parallel()
	var r rejections
	now := time.Unix(0, 0)
	a := attempt{id: ID{Kind: "ConfigMap", Namespace: "x", Name: "a"}}
	for range 10 {
		r.note(a, Result{a.id, Failed, apierrors.NewForbidden(schema.GroupResource{}, "a", errors.New("exceeded quota: q, requested: 1"))}, now)
		_, stands := r.standing(a, now.Add(firstDelay-1))
		require.True(t, stands)
		now = now.Add(firstDelay)
		_, stands = r.standing(a, now)
		require.False(t, stands, "the quota may be another program's, which is not watched")
	}
}

func TestCuresThatFollowEachOtherCallForFewPasses(t *testing.T) {
	t.Parallel()
	var r rejections
	a := attempt{id: ID{Kind: "ConfigMap", Namespace: "x", Name: "a"}, part: "p"}
	r.note(a, Result{a.id, Failed, apierrors.NewForbidden(schema.GroupResource{}, "a", errors.New("exceeded quota"))}, time.Unix(0, 0))
	calls := 0
	for range 10 * maxWakes {
		calls += len(r.cure("x"))
	}
	require.Equal(t, maxWakes, calls)
}

func TestACureLetsARejectionBeTriedAgainAndNotForEver(t *testing.T) {
	t.Parallel()
	var r rejections
	now := time.Unix(0, 0)
	a := attempt{id: ID{Kind: "ConfigMap", Namespace: "x", Name: "a"}, part: "p", hash: diff.Sum{1}}
	result := Result{a.id, Failed, apierrors.NewForbidden(schema.GroupResource{}, "a", errors.New("exceeded quota"))}
	try := func() {
		r.begin(&a)
		r.note(a, result, now)
	}
	try()
	require.Empty(t, r.cure("y"), "another namespace cures nothing here")
	_, ok := r.standing(a, now)
	require.True(t, ok)
	for _, namespace := range []string{"x", ""} {
		require.Equal(t, []Observed{{ID: a.id, Part: "p"}}, r.cure(namespace))
		_, ok = r.standing(a, now)
		require.False(t, ok)
		try()
		_, ok = r.standing(a, now)
		require.True(t, ok)
	}
	r.begin(&a)
	r.cure("x")
	r.note(a, result, now)
	_, ok = r.standing(a, now)
	require.False(t, ok, "it changed while the attempt was under way")
	try()
	tries := 0
	for range 20 {
		if r.cure("x"); len(r.by) != 1 {
			continue
		}
		if _, ok := r.standing(a, now); !ok {
			tries++
			try()
		}
	}
	require.Less(t, tries, maxWakes, "what changes all the time cures nothing")
	require.False(t, func() bool { _, ok := r.standing(a, now.Add(firstDelay)); return ok }(), "the delay goes on")
}
