package budget_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/apply/budget"
)

// busy is a server that takes a second for each request, and says 429 when more
// than capacity are under way.
type busy struct {
	capacity   int
	retryAfter string

	mu       sync.Mutex
	under    int
	most     int
	served   int
	refused  int
	lastSeen time.Time
}

func (s *busy) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	s.under++
	s.most = max(s.most, s.under)
	s.lastSeen = time.Now()
	full := s.capacity > 0 && s.under > s.capacity
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.under--
		s.mu.Unlock()
	}()
	answer := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("{}"))}
	if full {
		answer.StatusCode = http.StatusTooManyRequests
		answer.Header.Set("Retry-After", s.retryAfter)
		s.mu.Lock()
		s.refused++
		s.mu.Unlock()
		return answer, nil
	}
	select {
	case <-time.After(time.Second):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	s.mu.Lock()
	s.served++
	s.mu.Unlock()
	return answer, nil
}

func request(t *testing.T, ctx context.Context, through http.RoundTripper) (int, error) { //nolint:revive // ctx is the subject
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://server/api/v1/pods", nil)
	require.NoError(t, err)
	answer, err := through.RoundTrip(r)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, answer.Body)
	require.NoError(t, err)
	return answer.StatusCode, answer.Body.Close()
}

func TestABudgetGrowsWhileTheServerKeepsUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &busy{}
		bound := &budget.Budget{Max: 20}
		through := bound.Wrap(server)
		var all sync.WaitGroup
		for range 1000 {
			all.Go(func() {
				_, err := request(t, t.Context(), through)
				require.NoError(t, err)
			})
		}
		all.Wait()
		require.Equal(t, 1000, server.served)
		require.Equal(t, 20, server.most)
		require.Equal(t, 20, bound.Limit())
	})
}

func TestABudgetSharedByClientsYieldsToAServerThatIsBusy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &busy{capacity: 5, retryAfter: "2"}
		bound := &budget.Budget{}
		one, other := bound.Wrap(server), bound.Wrap(server)
		var all sync.WaitGroup
		for i := range 400 {
			through := one
			if i%2 == 0 {
				through = other
			}
			all.Go(func() {
				for {
					code, err := request(t, t.Context(), through)
					require.NoError(t, err)
					if code == http.StatusOK {
						return
					}
				}
			})
		}
		all.Wait()
		require.Equal(t, 400, server.served)
		require.LessOrEqual(t, server.most, 8, "it starts with 8, and never reaches them again")
		require.Less(t, server.refused, 60, "it probes now and then, and does not storm")
	})
}

func TestABudgetSendsNothingBeforeRetryAfter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &busy{capacity: 1, retryAfter: "7"}
		bound := &budget.Budget{Max: 2}
		through := bound.Wrap(server)
		start := time.Now()
		var all sync.WaitGroup
		var codes [2]int
		for i := range 2 {
			all.Go(func() { codes[i], _ = request(t, t.Context(), through) })
		}
		all.Wait()
		require.ElementsMatch(t, []int{200, 429}, codes[:])
		require.Equal(t, 1, bound.Limit())
		code, err := request(t, t.Context(), through)
		require.NoError(t, err)
		require.Equal(t, 200, code)
		require.Equal(t, 7*time.Second, server.lastSeen.Sub(start))
	})
}

func TestWhoeverWaitsForABudgetLeavesWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		through := (&budget.Budget{Max: 1}).Wrap(&busy{})
		ctx, cancel := context.WithCancelCause(t.Context())
		hold, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://server/", nil)
		require.NoError(t, err)
		held, err := through.RoundTrip(hold)
		require.NoError(t, err)
		done := make(chan error)
		go func() {
			_, err := request(t, ctx, through)
			done <- err
		}()
		synctest.Wait()
		cancel(errors.New("enough"))
		require.EqualError(t, <-done, "enough")
		require.NoError(t, held.Body.Close())
		_, err = request(t, t.Context(), through)
		require.NoError(t, err, "its place is free")
	})
}

func TestAWatchTakesNoPlaceOnceItIsAnswered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		bound := &budget.Budget{Max: 1}
		through := bound.Wrap(&busy{})
		for range 3 {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://server/api/v1/pods?watch=true", nil)
			require.NoError(t, err)
			answer, err := through.RoundTrip(r) // its body stays open
			require.NoError(t, err)
			defer func() { require.NoError(t, answer.Body.Close()) }()
			require.Equal(t, http.StatusOK, answer.StatusCode)
		}
		require.Equal(t, 3*time.Second, time.Since(begin), "none waits for the ones before")
	})
}
