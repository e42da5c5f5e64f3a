package tokens_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/tokens"
	"github.com/seed-9e1ffd66/trueup/internal/test/logtest"
)

// TestATokenIsReplacedWhileTheOldOneIsValid is the whole life of a rotation, without a
// restart.
func TestATokenIsReplacedWhileTheOldOneIsValid(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		old, _ := tokens.New()
		next, _ := tokens.New()
		other, _ := tokens.New()
		path := filepath.Join(t.TempDir(), "tokens")
		write := func(text string) {
			require.NoError(t, os.WriteFile(path+".new", []byte(text), 0o600))
			require.NoError(t, os.Rename(path+".new", path)) // never half written
			settle(3 * time.Second)
		}
		var log logtest.Log
		f := &tokens.File{Path: path, Logger: slog.New(slog.NewTextHandler(&log, nil)), Check: func(_ context.Context, token string) error {
			if token == other {
				return errors.New("is that of an agent")
			}
			return nil
		}}
		require.NoError(t, os.WriteFile(path, []byte(old+"\n"), 0o600))
		require.NoError(t, f.Read(t.Context()))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- f.Start(ctx) }()
		admins := tokens.Admins(f.Admins)
		isValid := func(token string) bool {
			_, err := admins.Find(token)
			return err == nil
		}
		valid := func() [2]bool { return [2]bool{isValid(old), isValid(next)} }
		require.Equal(t, [2]bool{true, false}, valid())
		write(old + "\n\n  " + next + "\n")
		require.Equal(t, [2]bool{true, true}, valid())
		write(next + "\n")
		require.Equal(t, [2]bool{false, true}, valid())

		// What cannot be used leaves the tokens as they are, and is said once.
		for text, why := range map[string]string{"": "has 0 tokens, want 1 to 256", next + "\nshort\n": "line 2", other: "line 1 of " + path + ": is that of an agent"} {
			log.Reset()
			write(text)
			settle(10 * time.Second)
			require.Equal(t, [2]bool{false, true}, valid())
			require.Contains(t, log.String(), why)
			require.Equal(t, 1, strings.Count(log.String(), "admin tokens not reloaded"), log.String())
			require.NotContains(t, log.String(), next)
		}
		require.NoError(t, os.Remove(path))
		settle(3 * time.Second)
		require.Equal(t, [2]bool{false, true}, valid())
		require.False(t, isValid(""))
		cancel()
		require.NoError(t, <-done)
	})
}

// settle lets d pass and every look that is due by then end.
func settle(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
