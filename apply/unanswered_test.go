package apply //nolint:testpackage // views show what a test gives them

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

func TestAWebhookThatTimesOutHoldsUpAPassOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const timeout = 10 * time.Second
		s := newStage(t, program, configMapKind, secretKind)
		woken := 0
		s.Live.OnDrift = func(Observed) { woken++ }
		down := true
		s.patches = func(resource, name string) error {
			if !down || resource != "configmaps" || name == "unselected" {
				return nil
			}
			time.Sleep(timeout)
			return apierrors.NewInternalError(errors.New(`failed calling webhook "x.example.com": context deadline exceeded`))
		}
		ids := []ID{{Kind: "Secret", Namespace: "shop", Name: "s"}, mapID("unselected")}
		for i := range 200 {
			ids = append(ids, mapID(fmt.Sprintf("a%03d", i)))
		}
		set := s.set(SetOptions{}, ids...)
		applied := func(id ID) bool { return s.Live.registry.view(id.GroupKind()).Len() > 0 }
		pass := func() Report {
			began := time.Now()
			report, _ := s.Apply(t.Context(), set)
			require.LessOrEqual(t, time.Since(began), timeout, "not for each object")
			return report
		}
		report := pass()
		require.True(t, applied(ids[0]), "another kind goes on")
		require.GreaterOrEqual(t, report.Count(Waiting), 190)
		require.ErrorContains(t, report.Err(), "failed calling webhook")

		// No object holds back a neighbour for ever that the webhook does not select.
		for end := time.Now().Add(25 * (timeout + maxPause)); time.Now().Before(end); time.Sleep(time.Second) {
			pass()
		}
		require.Equal(t, 1, s.Live.registry.view(configMapKind).Len(), "the one that is not selected")
		sent := len(s.patched)
		for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); time.Sleep(time.Second) {
			pass()
		}
		require.LessOrEqual(t, len(s.patched)-sent, 8*(5*60/15+1), "eight in each pause and timeout")

		down, woken = false, 0
		began := time.Now()
		for s.Live.registry.view(configMapKind).Len() < 201 {
			pass()
			time.Sleep(100 * time.Millisecond)
		}
		require.LessOrEqual(t, time.Since(began), maxPause+time.Second)
		require.Positive(t, woken, "the end starts a pass")
	})
}

func TestCredentialsThatTheServerRefusesAreNotTriedForEachObject(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, program, configMapKind)
		refused := true
		s.patches = func(string, string) error {
			if refused {
				return apierrors.NewUnauthorized("the token has expired")
			}
			return nil
		}
		var ids []ID
		for i := range 20 {
			ids = append(ids, mapID(fmt.Sprintf("a%02d", i)))
		}
		set := s.set(SetOptions{}, ids...)
		pass := func() {
			_, err := s.Apply(t.Context(), set)
			require.ErrorContains(t, err, "the token has expired")
			time.Sleep(100 * time.Millisecond)
		}
		for range 8 {
			pass()
		}
		require.LessOrEqual(t, len(s.patched), 8, "those under way at once")
		refused = false
		time.Sleep(maxPause)
		report, err := s.Apply(t.Context(), set)
		require.NoError(t, err)
		require.Equal(t, 20, report.Count(Created))

		// A kind whose view was refused is not written at all.
		s.patched = nil
		end := s.failsWith(configMapKind, apierrors.NewUnauthorized("the token has expired"))
		defer end()
		synctest.Wait()
		changed := s.set(SetOptions{}, append(ids, mapID("more"))...)
		report, err = s.Apply(t.Context(), changed)
		require.ErrorIs(t, err, ErrNotSynced)
		require.Equal(t, 21, report.Count(Waiting))
		require.Empty(t, s.patched)
	})
}
