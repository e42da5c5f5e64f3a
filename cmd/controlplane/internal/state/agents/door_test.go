package agents_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/agents"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
)

func TestADoorLetsFourInAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		door := agents.NewDoor()
		var inside, through atomic.Int32
		next := make(chan struct{})
		for range 10 {
			go func() {
				leave, err := door.Enter(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				inside.Add(1)
				<-next
				inside.Add(-1)
				through.Add(1)
				leave()
				leave() // does nothing
			}()
		}
		for n := range int32(10) {
			synctest.Wait()
			require.Equal(t, min(4, 10-n), inside.Load())
			require.Equal(t, n, through.Load())
			next <- struct{}{}
		}
		synctest.Wait()
		require.Equal(t, int32(10), through.Load())
	})
}

func TestOneWhoWaitsAtADoorMayGo(t *testing.T) {
	t.Parallel()
	door := agents.NewDoor()
	for range 4 {
		_, err := door.Enter(t.Context())
		require.NoError(t, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := door.Enter(ctx)
	require.ErrorIs(t, err, context.Canceled)
}

func TestWhatOpensForTooLongEndsAndTheNextOneComes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		door := agents.NewDoor()
		within, opened, err := door.Open(t.Context())
		require.NoError(t, err)
		opened()
		time.Sleep(time.Hour)
		require.NoError(t, within.Err(), "it has begun")
		require.NoError(t, agents.Slow(within))

		var slow []context.Context
		for range 4 {
			within, opened, err := door.Open(t.Context())
			require.NoError(t, err)
			go func() {
				<-within.Done()
				opened()
			}()
			slow = append(slow, within)
		}
		began := time.Now()
		_, last, err := door.Open(t.Context())
		if err == nil {
			last()
		} else { // its own time is over in the same instant
			require.ErrorIs(t, err, db.ErrBusy)
		}
		require.Equal(t, 15*time.Second, time.Since(began))
		synctest.Wait()
		for _, within := range slow {
			require.ErrorIs(t, agents.Slow(within), db.ErrBusy)
		}
	})
}

func TestOfTooManyAtADoorTheLastGoAtOnceAndTheOthersInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		door := agents.NewDoor()
		for range 4 {
			_, err := door.Enter(t.Context())
			require.NoError(t, err)
		}
		errs := make(chan error, 10_000)
		for range cap(errs) {
			go func() {
				_, err := door.Enter(t.Context())
				errs <- err
			}()
		}
		synctest.Wait()
		began := time.Now()
		_, err := door.Enter(t.Context())
		require.ErrorIs(t, err, db.ErrBusy)
		require.ErrorContains(t, err, "10000 streams wait")
		require.Zero(t, time.Since(began))
		for range cap(errs) {
			require.ErrorIs(t, <-errs, db.ErrBusy)
		}
		require.Equal(t, 15*time.Second, time.Since(began))
		_, err = door.Enter(t.Context())
		require.ErrorContains(t, err, "could not be opened within 15s", "others may wait again")
	})
}

func TestTheFirstWriteBeginsAStream(t *testing.T) {
	t.Parallel()
	for name, write := range map[string]func(http.ResponseWriter){
		"a body":   func(w http.ResponseWriter) { _, _ = w.Write([]byte("x")) },
		"a status": func(w http.ResponseWriter) { w.WriteHeader(http.StatusNoContent) },
	} {
		begun, recorder := 0, httptest.NewRecorder()
		w := agents.OnWrite(recorder, func() { begun++ })
		require.Zero(t, begun, name)
		write(w)
		require.Equal(t, 1, begun, name)
		require.NoError(t, http.NewResponseController(w).Flush(), name)
		require.True(t, recorder.Flushed, name)
	}
}
