package applytest_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
)

// store is a server that keeps names, and how often each was made.
type store struct {
	mu    sync.Mutex
	names map[string]int
}

func (s *store) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	code := http.StatusOK
	switch r.Method {
	case http.MethodGet:
		if s.names[name] == 0 {
			code = http.StatusNotFound
		}
	case http.MethodPut:
		s.names[name] = 1
	case http.MethodPost:
		s.names[name]++
	case http.MethodDelete:
		delete(s.names, name)
	}
	return &http.Response{StatusCode: code, Body: http.NoBody}, nil
}

// subject is a program under a sweep, in a world of its own.
type subject struct {
	store
	world string
	lives int // how often it was started
}

// do sends one request, and says with which code it was answered.
func (s *subject) do(ctx context.Context, net *applytest.Transport, method, name string) (int, error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://server/api/v1/namespaces/"+s.world+"/configmaps/"+name, http.NoBody)
	if err != nil {
		return 0, err
	}
	answer, err := net.Wrap(&s.store).RoundTrip(r)
	if err != nil {
		return 0, err
	}
	return answer.StatusCode, answer.Body.Close()
}

// subjects are programs to judge. All but the first have one fault, which a
// sweep does or does not find.
var subjects = map[string]func(s *subject, ctx context.Context, net *applytest.Transport) error{
	"sound": func(s *subject, ctx context.Context, net *applytest.Transport) error {
		for _, step := range []string{"PUT a", "GET a", "GET a", "PUT b", "DELETE old"} {
			method, name, _ := strings.Cut(step, " ")
			if _, err := s.do(ctx, net, method, name); err != nil {
				return err
			}
		}
		return nil
	},
	"makes twice": func(s *subject, ctx context.Context, net *applytest.Transport) error {
		_, err := s.do(ctx, net, "POST", "a")
		return err
	},
	"cleans up on its second start": func(s *subject, ctx context.Context, net *applytest.Transport) error {
		if s.lives > 1 {
			if _, err := s.do(ctx, net, "DELETE", "theirs"); err != nil {
				return err
			}
			s.names["theirs"] = 1 // it is the deletion that counts
		}
		_, err := s.do(ctx, net, "PUT", "a")
		return err
	},
	"cleans up after a failure": func(s *subject, ctx context.Context, net *applytest.Transport) error {
		for {
			code, err := s.do(ctx, net, "PUT", "a")
			if err != nil {
				return err
			}
			if code == http.StatusOK {
				return nil
			}
			if _, err := s.do(ctx, net, "DELETE", "theirs"); err != nil {
				return err
			}
			s.names["theirs"] = 1
		}
	},
	"always cleans up": func(s *subject, ctx context.Context, net *applytest.Transport) error {
		_, err := s.do(ctx, net, "DELETE", "theirs")
		s.names["theirs"] = 1
		return err
	},
	"ignores errors": func(s *subject, ctx context.Context, net *applytest.Transport) error {
		if _, err := s.do(ctx, net, "PUT", "a"); errors.Is(err, applytest.ErrLost) {
			return err
		}
		return nil
	},
	"outlives its end": func(s *subject, ctx context.Context, net *applytest.Transport) error {
		if _, err := s.do(ctx, net, "PUT", "a"); err != nil && ctx.Err() != nil {
			return err
		}
		return nil
	},
	"does not start again": func(s *subject, ctx context.Context, net *applytest.Transport) error {
		if s.lives > 1 {
			return errors.New("there is a lock file")
		}
		_, err := s.do(ctx, net, "PUT", "a")
		return err
	},
	"is of two minds": func(s *subject, ctx context.Context, net *applytest.Transport) error {
		name := "b"
		if s.world == "world-1" {
			name = "a"
		}
		if _, err := s.do(ctx, net, "GET", name); err != nil {
			return err
		}
		_, err := s.do(ctx, net, "PUT", "c")
		return err
	},
}

// TestSubject is what TestASweepNamesWhatIsWrong runs in a process of its own.
func TestSubject(t *testing.T) {
	run, ok := subjects[os.Getenv("APPLYTEST_SUBJECT")]
	if !ok {
		t.Skip("run by TestASweepNamesWhatIsWrong")
	}
	var sweep applytest.Sweep
	if os.Getenv("APPLYTEST_GOES_ON") != "" {
		sweep.Disturbances = []applytest.Disturbance{applytest.ServerError, applytest.LoseAnswer}
	}
	var worlds atomic.Int64
	sweep.Run(t, func(t *testing.T) applytest.Scenario {
		t.Helper()
		s := &subject{world: fmt.Sprintf("world-%d", worlds.Add(1)), store: store{names: map[string]int{"theirs": 1, "old": 1}}}
		return applytest.Scenario{
			World: s.world,
			Run: func(ctx context.Context, net *applytest.Transport) error {
				s.lives++
				return run(s, ctx, net)
			},
			State: func(context.Context) (string, error) {
				return fmt.Sprint(slices.Sorted(maps.Keys(s.names)), s.names), nil
			},
			MayDelete: func(r applytest.Request) bool { return r.Name == "old" },
		}
	})
}

func TestASweepNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		subject string
		goesOn  bool // it is not killed
		fails   bool
		want    []string
	}{
		{"sound", false, false, []string{
			"figure boundaries 10 boundaries", "figure boundaries_tried 10 boundaries", "figure boundaries_covered 100.0 %",
			"--- PASS: TestSubject/kill_before_request_1", "--- PASS: TestSubject/kill_after_request_5",
		}},
		{"makes twice", false, true, []string{"/a, and it ends in another state", "map[a:2", "--- PASS: TestSubject/kill_before_request_1"}},
		{"cleans up on its second start", false, true, []string{"kill_before_request_1", "kill_after_request_1", "a wrong deletion: delete configmaps world-"}},
		{"cleans up after a failure", true, true, []string{"a wrong deletion: delete configmaps world-"}},
		{"always cleans up", false, true, []string{"a wrong deletion: delete configmaps world-1/theirs"}},
		{"ignores errors", false, true, []string{"the program reports that it converged, in spite of: kill before update configmaps world-"}},
		{"outlives its end", false, false, nil},
		{"does not start again", false, true, []string{"kill before update configmaps world-", "and it does not converge: there is a lock file"}},
		{"is of two minds", false, false, []string{"get /api/v1/namespaces/WORLD/configmaps/a: no such request", "figure boundaries_covered 50.0 %"}},
	} {
		t.Run(test.subject, func(t *testing.T) {
			t.Parallel()
			program := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSubject$", "-test.v", "-test.parallel=1")
			program.Env = append(os.Environ(), "APPLYTEST_SUBJECT="+test.subject)
			if test.goesOn {
				program.Env = append(program.Env, "APPLYTEST_GOES_ON=1")
			}
			out, err := program.CombinedOutput()
			require.Equal(t, test.fails, err != nil, "%s", out)
			for _, want := range test.want {
				require.Contains(t, string(out), want)
			}
		})
	}
}
