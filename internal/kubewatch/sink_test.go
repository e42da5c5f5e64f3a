package kubewatch //nolint:testpackage // what a reflector gets is not to be seen from outside

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// picky is a sink that takes nothing.
type picky struct{}

func (picky) Put(any) error               { return errors.New("put") }
func (picky) Drop(any) error              { return errors.New("drop") }
func (picky) Replace([]any, string) error { return errors.New("replace") }
func (picky) Reached(string)              {}

func TestWhatASinkDoesNotTakeIsAFailure(t *testing.T) {
	t.Parallel()
	var failed []string
	w := &Watch{
		Sink:   picky{},
		Failed: func(err error) { failed = append(failed, err.Error()) },
		Alive:  func() { t.Error("a list that was not taken proves nothing") },
	}
	s := &store{w}
	require.Error(t, s.Replace([]any{&metav1.ObjectMeta{}}, "1"))
	require.False(t, w.listed.Load())
	_, _, _ = s.Add(&metav1.ObjectMeta{}), s.Update(&metav1.ObjectMeta{}), s.Delete(&metav1.ObjectMeta{})
	require.Equal(t, []string{"replace", "put", "put", "drop"}, failed)
}
