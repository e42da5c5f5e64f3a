package agent //nolint:testpackage // the mapper is not exported

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// asked is a mapper that takes a second for each answer, and bears one question at a time.
type asked struct {
	meta.ResettableRESTMapper

	t    *testing.T
	busy bool
}

func (a *asked) answer() {
	if a.busy {
		a.t.Error("two ask at once")
	}
	a.busy = true
	time.Sleep(time.Second)
	a.busy = false
}

func (a *asked) RESTMapping(schema.GroupKind, ...string) (*meta.RESTMapping, error) {
	a.answer()
	return &meta.RESTMapping{}, nil
}

func (a *asked) Reset() { a.answer() }

// TestAMapperIsAskedByOneAtATime has goroutines that wait for their turn while virtual time goes on.
func TestAMapperIsAskedByOneAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, begin, done := newMapper(&asked{t: t}), time.Now(), make(chan struct{})
		ask := func() { _, _ = m.RESTMapping(schema.GroupKind{}) } // it has none
		for _, do := range []func(){ask, m.Reset, ask, m.Reset} {
			go func() {
				do()
				done <- struct{}{}
			}()
		}
		for range 4 {
			<-done
		}
		require.Equal(t, 4*time.Second, time.Since(begin))
	})
}
