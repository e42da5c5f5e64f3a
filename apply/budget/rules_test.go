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
	"github.com/seed-9e1ffd66/trueup/internal/test/httpfunc"
)

// says is an answer with a code, and with Retry-After unless it is empty.
func says(code int, retryAfter string) *http.Response {
	answer := &http.Response{StatusCode: code, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("{}"))}
	if retryAfter != "" {
		answer.Header.Set("Retry-After", retryAfter)
	}
	return answer
}

// send makes one request and reads its answer.
func send(t *testing.T, through http.RoundTripper, path string) (int, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://server"+path, http.NoBody)
	require.NoError(t, err)
	answer, err := through.RoundTrip(r)
	if err != nil {
		return 0, err
	}
	return answer.StatusCode, answer.Body.Close()
}

func TestABudgetIsHalvedOnceByRequestsThatWereUnderWayTogether(t *testing.T) {
	t.Parallel()
	for _, code := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		synctest.Test(t, func(t *testing.T) {
			var bound budget.Budget
			through := bound.Wrap(httpfunc.Transport(func(*http.Request) (*http.Response, error) {
				time.Sleep(time.Second)
				return says(code, ""), nil
			}))
			halve := func(requests, want int) {
				t.Helper()
				time.Sleep(time.Millisecond) // later than the answers before
				var all sync.WaitGroup
				for range requests {
					all.Go(func() { _, _ = send(t, through, "/") })
				}
				all.Wait()
				require.Equal(t, want, bound.Limit())
			}
			halve(8, 4)
			halve(4, 2)
			halve(2, 1)
			halve(1, 1)
		})
	}
}

func TestABudgetGrowsByOneForAsManySuccessesAsItAllows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var bound budget.Budget
		through := bound.Wrap(httpfunc.Transport(func(*http.Request) (*http.Response, error) { return says(200, ""), nil }))
		for _, want := range []int{8, 9, 10} {
			for range want {
				require.Equal(t, want, bound.Limit())
				time.Sleep(time.Second)
				_, err := send(t, through, "/")
				require.NoError(t, err)
			}
		}
		require.Equal(t, 11, bound.Limit())
	})
}

func TestABudgetWaitsForTheLongestRetryAfter(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		first, second string // of two requests under way, answered after 1 s and 2 s
		want          time.Duration
	}{
		{"10", "1", 11 * time.Second},
		{"1", "10", 12 * time.Second},
		{"3600", "", 61 * time.Second}, // a server cannot stop us for longer than a minute
		{"soon", "-5", 2 * time.Second},
		{"", "", 2 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			var sent time.Duration
			through := (&budget.Budget{}).Wrap(httpfunc.Transport(func(r *http.Request) (*http.Response, error) {
				switch r.URL.Path {
				case "/first":
					time.Sleep(time.Second)
					return says(429, test.first), nil
				case "/second":
					time.Sleep(2 * time.Second)
					return says(429, test.second), nil
				default:
					sent = time.Since(start)
					return says(200, ""), nil
				}
			}))
			var all sync.WaitGroup
			for _, path := range []string{"/first", "/second"} {
				all.Go(func() { _, _ = send(t, through, path) })
			}
			all.Wait()
			_, err := send(t, through, "/third")
			require.NoError(t, err)
			require.Equal(t, test.want, sent)
		})
	}
}

func TestABudgetGetsItsPlaceBack(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, through http.RoundTripper){
		"when a request fails": func(t *testing.T, through http.RoundTripper) {
			t.Helper()
			_, err := send(t, through, "/fail")
			require.EqualError(t, err, "no route")
		},
		"when an answer has been read": func(t *testing.T, through http.RoundTripper) {
			t.Helper()
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://server/", http.NoBody)
			require.NoError(t, err)
			answer, err := through.RoundTrip(r)
			require.NoError(t, err)
			_, err = io.ReadAll(answer.Body)
			require.NoError(t, err)
			t.Cleanup(func() { _ = answer.Body.Close() })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				through := (&budget.Budget{Max: 1}).Wrap(httpfunc.Transport(func(r *http.Request) (*http.Response, error) {
					if r.URL.Path == "/fail" {
						return nil, errors.New("no route")
					}
					return says(200, ""), nil
				}))
				end(t, through)
				code, err := send(t, through, "/") // a deadlock if the place were taken
				require.NoError(t, err)
				require.Equal(t, 200, code)
			})
		})
	}
}

func TestATurnThatNobodyTakesIsPassedOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		through := (&budget.Budget{Max: 1}).Wrap(httpfunc.Transport(func(r *http.Request) (*http.Response, error) {
			return says(200, ""), r.Context().Err()
		}))
		for range 100 { // which of the two a waiter sees first is left to chance
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://server/", http.NoBody)
			require.NoError(t, err)
			held, err := through.RoundTrip(r)
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			var all sync.WaitGroup
			all.Go(func() {
				if answer, err := through.RoundTrip(r.WithContext(ctx)); err == nil {
					_ = answer.Body.Close()
				}
			})
			synctest.Wait()
			all.Go(func() { _, _ = send(t, through, "/") })
			synctest.Wait()
			cancel()
			require.NoError(t, held.Body.Close())
			all.Wait() // a deadlock if the turn were lost
		}
	})
}
