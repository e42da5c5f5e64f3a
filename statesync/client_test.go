package statesync_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/statesync"
)

type assertT = assert.CollectT

// answering returns a client of a server that answers everything with answer.
func answering(t *testing.T, answer http.HandlerFunc) *statesync.Client {
	t.Helper()
	web := httptest.NewServer(answer)
	t.Cleanup(web.Close)
	c := &statesync.Client{URL: web.URL, Patience: time.Minute}
	t.Cleanup(c.Close)
	return c
}

const header = `{"type":"header","epoch":"e","after":0,"version":0,"head":9,"heartbeat":50000000}` + "\n"

func watchOnce(t *testing.T, c *statesync.Client) error {
	t.Helper()
	return c.Watch(t.Context(), statesync.Watch{Scope: "eu"}, func(statesync.Frame) error { return nil })
}

func TestAClientTakesASilentStreamForDead(t *testing.T) {
	for name, first := range map[string]string{"before the header": "", "after the header": header} {
		t.Run(name, func(t *testing.T) {
			c := answering(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, first)
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			})
			c.Patience = 200 * time.Millisecond
			require.EqualError(t, watchOnce(t, c), "stream is silent")
		})
	}
}

func TestAStreamThatIsCutIsNoEnd(t *testing.T) {
	for name, rest := range map[string]string{
		"between frames": "",
		"in a frame":     `{"type":"synced","epoch":"e","after":0,"vers`,
	} {
		t.Run(name, func(t *testing.T) {
			c := answering(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, header+rest) })
			require.ErrorContains(t, watchOnce(t, c), "unexpected")
		})
	}
}

func TestTheWordOfAProxyIsNotThatOfTheServer(t *testing.T) {
	for status, is := range map[int]error{
		http.StatusNotFound:     nil,
		http.StatusGone:         nil,
		http.StatusUnauthorized: statesync.ErrUnauthenticated,
		http.StatusForbidden:    statesync.ErrUnauthenticated,
	} {
		c := answering(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<html>no such page</html>", status) })
		err := watchOnce(t, c)
		require.ErrorContains(t, err, fmt.Sprint(status))
		require.NotErrorIs(t, err, statesync.ErrUnknownScope)
		require.NotErrorIs(t, err, statesync.ErrResync)
		if is != nil {
			require.ErrorIs(t, err, is)
		}
	}
}

func TestTheWordOfTheProgramBeforeTheHandlerIsHeard(t *testing.T) {
	c := answering(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"error":{"code":"token_expired","message":"the token has ended"}}`)
	})
	err := watchOnce(t, c)
	require.ErrorIs(t, err, statesync.ErrUnauthenticated)
	require.ErrorContains(t, err, "the token has ended")
}

func TestARedirectDoesNotGetTheCredential(t *testing.T) {
	thief := make(chan struct{}, 1)
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { thief <- struct{}{} }))
	t.Cleanup(elsewhere.Close)
	c := answering(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
	})
	require.ErrorContains(t, watchOnce(t, c), "307")
	require.Empty(t, thief)
}
