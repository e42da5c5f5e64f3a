package budget_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/seed-9e1ffd66/trueup/apply/budget"
)

// A budget is shared by all clients of one API server. It yields when that is
// busy, and then grows again.
func ExampleBudget() {
	busy := true
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if busy {
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	defer server.Close()
	bound := &budget.Budget{Max: 16}
	client := server.Client()
	client.Transport = bound.Wrap(client.Transport) // for client-go: config.Wrap(bound.Wrap)
	get := func() {
		answer, err := client.Get(server.URL) //nolint:noctx // a server of its own
		if err != nil {
			fmt.Println(err)
			return
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
	}
	fmt.Println("at first:", bound.Limit())
	get()
	fmt.Println("once it was busy:", bound.Limit())
	busy = false
	for range 4 {
		get()
	}
	fmt.Println("after four successes:", bound.Limit())
	// Output:
	// at first: 8
	// once it was busy: 4
	// after four successes: 5
}
