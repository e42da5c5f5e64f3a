package snapshot_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"time"

	"github.com/seed-9e1ffd66/trueup/snapshot"
)

// usage is what a customer pays for, once a minute.
type usage struct {
	ID   string `json:"id"`
	VM   string `json:"vm"`
	At   string `json:"at"`
	CPUs int    `json:"cpus"`
}

// The minute is recorded by two agents, and stored once.
func Example() {
	// The receiver stores each identity once.
	stored := map[string]bool{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct{ Usage []usage }
		text, err := io.ReadAll(r.Body)
		if err != nil || json.Unmarshal(text, &body) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		accepted := 0
		for _, u := range body.Usage {
			if !stored[u.ID] {
				accepted++
			}
			stored[u.ID] = true
		}
		_, _ = fmt.Fprintf(w, `{"accepted": %d, "duplicates": %d}`, accepted, len(body.Usage)-accepted)
	}))
	defer server.Close()

	// The hour stands in for the minute, so that this example sees one instant.
	for range 2 {
		dir, err := os.MkdirTemp("", "snapshot")
		if err != nil {
			fmt.Println(err)
			return
		}
		defer os.RemoveAll(dir) //nolint:errcheck // a folder of this example
		ctx, stop := context.WithCancel(context.Background())
		agent := &snapshot.Recorder[usage]{
			Period: time.Hour,
			Collect: func(_ context.Context, at time.Time) (iter.Seq[usage], error) {
				instant := at.Format(time.RFC3339)
				return slices.Values([]usage{
					{snapshot.ID("vm-1", instant), "vm-1", instant, 4},
					{snapshot.ID("vm-2", instant), "vm-2", instant, 8},
				}), nil
			},
			Sink:  &snapshot.HTTPSink{URL: server.URL, Member: "usage"},
			Spool: &snapshot.Spool{Dir: dir},
			OnPass: func(p snapshot.Pass) {
				fmt.Println(p.Collected, "collected,", p.Accepted, "accepted,", p.Duplicates, "duplicates,", p.Spooled, "wait", p.Err)
				stop()
			},
		}
		if err := agent.Start(ctx); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println(len(stored), "rows")
	// Output:
	// 2 collected, 2 accepted, 0 duplicates, 0 wait <nil>
	// 2 collected, 0 accepted, 2 duplicates, 0 wait <nil>
	// 2 rows
}
