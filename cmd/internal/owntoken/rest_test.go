package owntoken_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubetesting "k8s.io/client-go/testing"

	"github.com/seed-9e1ffd66/trueup/cmd/api/agenttoken"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/owntoken"
)

// live has the control plane answer with tokens of this life.
func (w *world) live(life time.Duration) {
	w.answer = func(string) (int, string) {
		return http.StatusOK, fmt.Sprintf(`{"token":"own-%d","expires_in_seconds":%d}`, w.renewed, int(life.Seconds()))
	}
}

// pass sends a request each half minute for so long, whose answers have this header.
func (w *world) pass(s *owntoken.Source, header http.Header, duration time.Duration) {
	w.Helper()
	for end := time.Now().Add(duration); time.Now().Before(end); time.Sleep(30 * time.Second) {
		s.Answered(header)
		_, err := s.Reconcile(w.Context())
		require.NoError(w, err)
	}
}

func TestAControlPlaneThatAlwaysAsksGetsOneRenewalAnHour(t *testing.T) {
	t.Parallel()
	always := http.Header{agenttoken.Header: {agenttoken.Renew}}
	for life, want := range map[time.Duration][2]int{
		720 * time.Hour: {16, 24}, // a rest has an hour to an hour and a half
		time.Hour:       {64, 96}, // a quarter of its life, and up to half as much again
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.live(life)
			s := w.process()
			w.pass(s, always, 24*time.Hour)
			require.GreaterOrEqual(t, w.renewed, want[0], life)
			require.LessOrEqual(t, w.renewed, want[1], life)

			// What people give does not wait for the own token.
			before := w.renewed
			w.given = "other"
			w.pass(s, always, time.Minute)
			require.Equal(t, before+1, w.renewed)
			w.token(s, fmt.Sprintf("own-%d", w.renewed))
		})
	}
}

func TestASecretThatLosesTheTokenGetsItAgain(t *testing.T) {
	t.Parallel()
	lose := map[string]func(w *world){
		"deleted": func(w *world) {
			require.NoError(w, w.secrets().Delete(w.Context(), "renewed", metav1.DeleteOptions{}))
		},
		"emptied": func(w *world) {
			secret, err := w.secrets().Get(w.Context(), "renewed", metav1.GetOptions{})
			require.NoError(w, err)
			delete(secret.Object, "data")
			_, err = w.secrets().Update(w.Context(), secret, metav1.UpdateOptions{})
			require.NoError(w, err)
		},
	}
	for name, lose := range lose {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.live(720 * time.Hour)
			s := w.process()
			require.NoError(t, w.renew(s))
			idle := w.process()
			w.token(idle, "own-1")
			lose(w)
			w.kubernetes.ClearActions()
			w.pass(s, http.Header{}, 59*time.Minute)
			require.Empty(t, w.kubernetes.Actions(), "it is looked at once an hour")
			w.pass(s, http.Header{}, 32*time.Minute)
			w.token(w.process(), "own-1")
			require.Contains(t, w.log.String(), "renewed token written again", name)
			require.NotContains(t, w.log.String(), "own-1", "it is secret")

			w.kubernetes.ClearActions()
			w.pass(s, http.Header{}, 24*time.Hour)
			require.Empty(t, writes(w.kubernetes.Actions()))
			looks := len(w.kubernetes.Actions())
			require.True(t, looks >= 16 && looks <= 24, "%s: %d", name, looks)

			// A process that sends no requests does not know whether its token is still valid.
			lose(w)
			time.Sleep(24 * time.Hour)
			_, err := idle.Reconcile(t.Context())
			require.NoError(t, err)
			w.token(w.process(), "given")
			// What the agent does not use is not written: people have given it another one.
			w.given = "other"
			w.pass(s, http.Header{}, 2*time.Hour)
			w.token(w.process(), "other")
			w.given = "given"
			w.token(w.process(), "given")
			require.Empty(t, writes(w.kubernetes.Actions()[looks:])[1:], "the test has written")
		})
	}
}

func TestASecretThatCannotBeWrittenAgainIsAnErrorOnceAnHour(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.live(720 * time.Hour)
		s := w.process()
		require.NoError(t, w.renew(s))
		require.NoError(t, w.secrets().Delete(t.Context(), "renewed", metav1.DeleteOptions{}))
		w.kubernetes.PrependReactor("create", "secrets", func(kubetesting.Action) (bool, runtime.Object, error) {
			return true, nil, errors.New("forbidden")
		})
		var said []string
		for range 24 * 60 {
			s.Answered(http.Header{})
			if _, err := s.Reconcile(t.Context()); err != nil {
				said = append(said, err.Error())
			}
			time.Sleep(time.Minute)
		}
		require.True(t, len(said) >= 15 && len(said) <= 24, strings.Join(said, "\n"))
		require.Equal(t, "keep token: secret system/renewed: forbidden", said[0])
		w.token(s, "own-1")
	})
}
