package nodes_test

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/kube/nodes"
)

// store is an object with a journal, as a server has it.
type store struct {
	object *corev1.ConfigMap
	writes int
	fail   error
	lost   bool // the answer of a write that arrived
}

func (s *store) write(_ context.Context, object *corev1.ConfigMap, update func(*corev1.ConfigMap)) error {
	if s.fail != nil && !s.lost {
		return s.fail
	}
	if s.object == nil {
		return nil // gone: as kube.Status.Update
	}
	next := s.object.DeepCopy()
	update(next)
	if next.Data["launches"] != s.object.Data["launches"] {
		s.writes++
		version, err := strconv.Atoi(next.ResourceVersion)
		if err != nil {
			return err
		}
		next.ResourceVersion = strconv.Itoa(version + 1)
	}
	s.object = next
	if s.lost {
		return s.fail
	}
	*object = *next.DeepCopy()
	return nil
}

type stored struct {
	Launches []cloud.LaunchIntent
	Ordinal  int64
}

func (s *store) journal() *nodes.Journal[*corev1.ConfigMap] {
	return &nodes.Journal[*corev1.ConfigMap]{
		Write: s.write,
		Get: func(o *corev1.ConfigMap) ([]cloud.LaunchIntent, int64) {
			var d stored
			_ = json.Unmarshal([]byte(o.Data["launches"]), &d) // empty at first
			return d.Launches, d.Ordinal
		},
		Set: func(o *corev1.ConfigMap, launches []cloud.LaunchIntent, ordinal int64) {
			for i := range launches {
				launches[i].Since = launches[i].Since.Truncate(time.Second) // as metav1.Time
			}
			text, _ := json.Marshal(stored{launches, ordinal})
			o.Data = map[string]string{"launches": string(text)}
		},
		Copy: (*corev1.ConfigMap).DeepCopy,
	}
}

func newStore() *store {
	return &store{object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "web", ResourceVersion: "7"}}}
}

func launch(operation string, ordinal int64) cloud.LaunchIntent {
	return cloud.LaunchIntent{Operation: operation, Ordinal: ordinal, Count: 1, Since: time.Date(2026, 1, 2, 3, 4, 5, 678, time.UTC)}
}

func operations(j *nodes.Journal[*corev1.ConfigMap]) (all []string, ordinal int64) {
	intents, ordinal := j.Intents()
	for _, i := range intents {
		all = append(all, i.Operation)
	}
	return all, ordinal
}

func TestAJournalOutlivesItsProcess(t *testing.T) {
	t.Parallel()
	s := newStore()
	j := s.journal()
	require.Error(t, j.Record(t.Context(), launch("a", 1)), "it is not open")
	j.Open(s.object)
	require.NoError(t, j.Record(t.Context(), launch("a", 1)))
	require.NoError(t, j.Record(t.Context(), launch("b", 2)))
	require.NoError(t, j.Record(t.Context(), launch("c", 1)), "another attempt takes the place of the first")
	require.NoError(t, j.Erase(t.Context(), "b"))
	require.NoError(t, j.Erase(t.Context(), "b"))
	require.Equal(t, 4, s.writes, "what is not there is not written")
	for _, process := range []*nodes.Journal[*corev1.ConfigMap]{j, s.journal()} {
		process.Open(s.object)
		all, ordinal := operations(process)
		require.Equal(t, []string{"c"}, all)
		require.EqualValues(t, 2, ordinal, "the highest is kept")
	}
}

func TestAnotherProcessIsNoticedBeforeALaunch(t *testing.T) {
	t.Parallel()
	s := newStore()
	first, second := s.journal(), s.journal()
	first.Open(s.object)
	second.Open(s.object)
	require.NoError(t, second.Record(t.Context(), launch("other", 1)))
	require.ErrorIs(t, first.Record(t.Context(), launch("mine", 1)), nodes.ErrJournal)
	require.ErrorIs(t, first.Record(t.Context(), launch("mine", 1)), nodes.ErrJournal, "until a pass has opened it again")
	first.Open(s.object)
	all, _ := operations(first)
	require.Equal(t, []string{"other"}, all)
	require.NoError(t, first.Record(t.Context(), launch("mine", 2)))

	s.object = nil
	require.ErrorIs(t, first.Record(t.Context(), launch("late", 3)), nodes.ErrJournal, "the object is gone")
}

func TestAWriteWhoseAnswerIsLostIsReadAgain(t *testing.T) {
	t.Parallel()
	s := newStore()
	j := s.journal()
	j.Open(s.object)
	s.fail, s.lost = errors.New("cut"), true
	require.ErrorIs(t, j.Record(t.Context(), launch("a", 1)), s.fail)
	s.fail, s.lost = nil, false
	j.Open(s.object)
	all, ordinal := operations(j)
	require.Equal(t, []string{"a"}, all)
	require.EqualValues(t, 1, ordinal)
	// A pass that sees an older object does not undo what this process wrote.
	old := s.object.DeepCopy()
	require.NoError(t, j.Record(t.Context(), launch("b", 2)))
	j.Open(old)
	all, _ = operations(j)
	require.Equal(t, []string{"a", "b"}, all)
	require.NoError(t, j.Erase(t.Context(), "a"))
}
