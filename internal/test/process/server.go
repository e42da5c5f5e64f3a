package process

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"
)

// askLimit bounds one question whether a server has started. A process that has ended is
// noticed between two questions.
const askLimit = 10 * time.Second

// Answers waits, for limit at most, until a GET of url is answered with status; 0 is any. It is
// an error, with the last lines of the log, if the process ends before.
func (p *Process) Answers(ctx context.Context, url string, status int, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	client := &http.Client{Timeout: askLimit}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return err
		}
		if response, err := client.Do(request); err == nil {
			if err := response.Body.Close(); err != nil {
				return err
			}
			if status == 0 || response.StatusCode == status {
				return nil
			}
		}
		select {
		case <-tick.C:
		case <-p.Exited():
			return fmt.Errorf("%s has ended: %w\n%s", p.Name, p.Err(), p.Tail())
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer: %w\n%s", p.Name, ctx.Err(), p.Tail())
		}
	}
}

// Started ends a test whose server has not started, for the reason err. A test that lacks what
// cannot be installed here, which is the error missing, is skipped, or fails if
// TRUEUP_REQUIRE_SERVICES is 1.
func Started(tb testing.TB, err, missing error) {
	tb.Helper()
	switch {
	case errors.Is(err, missing) && os.Getenv("TRUEUP_REQUIRE_SERVICES") != "1":
		tb.Skip(err)
	case err != nil:
		tb.Fatal(err)
	}
}
