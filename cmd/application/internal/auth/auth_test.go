package auth_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/application/internal/auth"
	"github.com/seed-9e1ffd66/trueup/cmd/application/internal/external"
	"github.com/seed-9e1ffd66/trueup/internal/test/httpfunc"
	"github.com/seed-9e1ffd66/trueup/internal/test/keycloaktest"
)

// TestRealms runs everything on one Keycloak.
func TestRealms(t *testing.T) {
	if testing.Short() {
		t.Skip("long: minutes with Keycloak")
	}
	t.Parallel()
	k := keycloaktest.Start(t)
	for name, test := range map[string]func(*bench){
		"made":     made,
		"drift":    drifts,
		"foreign":  foreign,
		"shared":   shared,
		"retain":   retains,
		"crash":    crashes,
		"provider": providers,
		"denied":   denied,
		"race":     race,
		"guests":   guests,
	} {
		t.Run(name, func(t *testing.T) { test(newBench(t, k)) })
	}
}

// trace counts the writes, and can end a life before or after each request.
type trace struct {
	mu     sync.Mutex
	writes []string
	count  int
	at     int // the request that is the last; 0 is none
	after  bool
}

func (tr *trace) RoundTrip(r *http.Request) (*http.Response, error) {
	tr.mu.Lock()
	login := strings.HasSuffix(r.URL.Path, "/token")
	if !login {
		tr.count++
	}
	last := tr.at > 0 && tr.count >= tr.at
	if r.Method != http.MethodGet && !login {
		tr.writes = append(tr.writes, r.Method+" "+r.URL.Path)
	}
	sent := !last || tr.after && tr.count == tr.at
	tr.mu.Unlock()
	if !sent {
		return nil, io.ErrUnexpectedEOF
	}
	response, err := http.DefaultTransport.RoundTrip(r)
	if err == nil && last {
		return nil, fmt.Errorf("the answer is lost: %w", response.Body.Close())
	}
	return response, err
}

type bench struct {
	*testing.T
	k     *keycloaktest.Server
	trace *trace
	*auth.Server
	admin *auth.Server // without the trace
}

func newBench(t *testing.T, k *keycloaktest.Server) *bench {
	t.Helper()
	b := &bench{T: t, k: k, trace: &trace{}}
	b.Server, b.admin = b.open(b.trace), b.open(nil)
	return b
}

func (b *bench) open(transport http.RoundTripper) *auth.Server {
	b.Helper()
	s, err := auth.Open(
		auth.Options{URL: b.k.URL, User: keycloaktest.User, Password: keycloaktest.Password, Transport: transport, Timeout: 3 * time.Minute},
	)
	require.NoError(b, err)
	return s
}

// raw sends a request as the administrator, and decodes the answer.
func (b *bench) raw(method, path string, body, into any) int {
	b.Helper()
	form := strings.NewReader("grant_type=password&client_id=admin-cli&username=" + keycloaktest.User + "&password=" + keycloaktest.Password)
	tokens := b.k.URL + "/realms/master/protocol/openid-connect/token"
	response, err := http.Post(tokens, "application/x-www-form-urlencoded", form) //nolint:noctx // a test
	require.NoError(b, err)
	var token struct {
		Text string `json:"access_token"`
	}
	require.NoError(b, json.NewDecoder(response.Body).Decode(&token))
	require.NoError(b, response.Body.Close())
	text, err := json.Marshal(body)
	require.NoError(b, err)
	request, err := http.NewRequestWithContext(b.Context(), method, b.k.URL+"/admin/realms"+path, bytes.NewReader(text))
	require.NoError(b, err)
	request.Header.Set("Authorization", "Bearer "+token.Text)
	request.Header.Set("Content-Type", "application/json")
	response, err = http.DefaultClient.Do(request)
	require.NoError(b, err)
	defer response.Body.Close()
	text, err = io.ReadAll(response.Body)
	require.NoError(b, err)
	if into != nil && response.StatusCode == http.StatusOK {
		require.NoError(b, json.Unmarshal(text, into), "%s", text)
	}
	return response.StatusCode
}

// client is what Keycloak shows of the client of a realm.
type client struct {
	ID             string            `json:"id"`
	RedirectURIs   []string          `json:"redirectUris"`
	WebOrigins     []string          `json:"webOrigins"`
	PublicClient   bool              `json:"publicClient"`
	DirectGrants   bool              `json:"directAccessGrantsEnabled"`
	ImplicitFlow   bool              `json:"implicitFlowEnabled"`
	Attributes     map[string]string `json:"attributes"`
	StandardFlowOn bool              `json:"standardFlowEnabled"`
}

func (b *bench) client(realm string) client {
	b.Helper()
	var list []client
	require.Equal(b, 200, b.raw("GET", "/"+realm+"/clients?clientId="+realm, nil, &list))
	require.Len(b, list, 1)
	slices.Sort(list[0].RedirectURIs)
	return list[0]
}

func (b *bench) there(realm string) bool {
	b.Helper()
	return b.raw("GET", "/"+realm, nil, nil) == 200
}

func want(name, environment string) auth.Want {
	host := environment + "." + name + ".example.com"
	return auth.Want{
		Realm: name, Client: name, Share: environment, Redirects: []string{"https://" + host + "/*"}, Origins: []string{"https://" + host},
		Mark: external.Mark{Cluster: "c", Namespace: "team", Name: name, UID: "uid-" + environment},
	}
}

// quiet applies, and requires that nothing is written.
func (b *bench) quiet(w auth.Want) {
	b.Helper()
	b.trace.writes = nil
	result, err := b.Apply(b.Context(), w)
	require.NoError(b, err)
	require.Empty(b, result.Done)
	require.Empty(b, b.trace.writes)
}

// made is D1 and C12: the realm answers, the client is public with exact URIs, and a
// second pass writes nothing.
func made(b *bench) {
	w := want("made", "production")
	result, err := b.Apply(b.Context(), w)
	require.NoError(b, err)
	require.Equal(b, []string{"create realm made", "create client made"}, result.Done)
	require.Empty(b, result.Missing)
	b.quiet(w)
	response, err := http.Get(b.Issuer("made") + "/.well-known/openid-configuration") //nolint:noctx // a test
	require.NoError(b, err)
	require.NoError(b, response.Body.Close())
	require.Equal(b, 200, response.StatusCode)
	c := b.client("made")
	require.Equal(b, w.Redirects, c.RedirectURIs)
	require.Equal(b, w.Origins, c.WebOrigins)
	require.True(b, c.PublicClient && c.StandardFlowOn)
	require.False(b, c.DirectGrants || c.ImplicitFlow)
	require.Equal(b, "S256", c.Attributes["pkce.code.challenge.method"])
	var r map[string]any
	b.raw("GET", "/made", nil, &r)
	require.Equal(b, true, r["registrationAllowed"])
	require.Equal(b, true, r["loginWithEmailAllowed"])
	done, err := b.Delete(b.Context(), w, false)
	require.NoError(b, err)
	require.Equal(b, []string{"delete realm made"}, done)
	require.False(b, b.there("made"))
	done, err = b.Delete(b.Context(), w, false)
	require.NoError(b, err)
	require.Empty(b, done, "it is gone already")
}

// drifts is C12: manual changes of our fields are reverted, and fields that others set stay.
func drifts(b *bench) {
	w := want("drift", "production")
	_, err := b.Apply(b.Context(), w)
	require.NoError(b, err)
	c := b.client("drift")
	require.Equal(
		b,
		204,
		b.raw(
			"PUT",
			"/drift/clients/"+c.ID,
			map[string]any{"redirectUris": []string{"*"}, "webOrigins": []string{"*"}, "directAccessGrantsEnabled": true, "description": "theirs"},
			nil,
		),
	)
	require.Equal(b, 204, b.raw("PUT", "/drift", map[string]any{"registrationAllowed": false, "displayName": "Ours"}, nil))
	result, err := b.Apply(b.Context(), w)
	require.NoError(b, err)
	require.Equal(b, []string{"update realm drift", "update client drift"}, result.Done)
	b.quiet(w)
	c = b.client("drift")
	require.Equal(b, w.Redirects, c.RedirectURIs)
	require.Equal(b, w.Origins, c.WebOrigins)
	require.False(b, c.DirectGrants)
	var r map[string]any
	b.raw("GET", "/drift", nil, &r)
	require.Equal(b, "Ours", r["displayName"])

	w.Redirects, w.Origins = []string{"https://new.example.com/*"}, []string{"https://new.example.com"}
	_, err = b.Apply(b.Context(), w)
	require.NoError(b, err)
	require.Equal(b, w.Redirects, b.client("drift").RedirectURIs, "another domain")
	require.Equal(b, 204, b.raw("DELETE", "/drift/clients/"+c.ID, nil, nil))
	_, err = b.Apply(b.Context(), w)
	require.NoError(b, err)
	require.Equal(b, w.Redirects, b.client("drift").RedirectURIs, "it was deleted")
	require.Equal(b, 204, b.raw("DELETE", "/drift", nil, nil))
	result, err = b.Apply(b.Context(), w)
	require.NoError(b, err)
	require.Equal(b, []string{"create realm drift", "create client drift"}, result.Done)
}

// foreign is C9 and D18: a realm of another is not touched, whatever mark it has.
func foreign(b *bench) {
	other := want("foreign", "production").Mark
	for name, change := range map[string]func(*external.Mark){
		"uid":       func(m *external.Mark) { m.UID = "another" },
		"namespace": func(m *external.Mark) { m.Namespace = "another" },
		"cluster":   func(m *external.Mark) { m.Cluster = "another" },
		"none":      nil,
	} {
		realm := "foreign-" + name
		mark := other
		attributes := map[string]string{}
		if mark.Name = realm; change != nil {
			change(&mark)
			attributes["platform.internal/owner.production"] = mark.String()
		}
		require.Equal(b, 201, b.raw("POST", "", map[string]any{"realm": realm, "enabled": false, "attributes": attributes}, nil))
		var before, after map[string]any
		b.raw("GET", "/"+realm, nil, &before)
		w := want(realm, "production")
		_, err := b.Apply(b.Context(), w)
		require.ErrorIs(b, err, external.ErrOwnedByOther, name)
		require.ErrorContains(b, err, "realm "+realm)
		done, err := b.Delete(b.Context(), w, false)
		require.NoError(b, err)
		require.Empty(b, done)
		require.Empty(b, b.trace.writes, name)
		b.raw("GET", "/"+realm, nil, &after)
		require.Equal(b, before, after)
	}
	// Another name in the realm of this one.
	_, err := b.Apply(b.Context(), want("foreign-shared", "production"))
	require.NoError(b, err)
	w := want("foreign-shared", "staging")
	w.Mark.Name = "another"
	_, err = b.Apply(b.Context(), w)
	require.ErrorIs(b, err, external.ErrOwnedByOther)
}

// shared is C10 and D20: two environments share a realm and its users; each takes its URIs
// along, and the last one the realm.
func shared(b *bench) {
	staging, production := want("shared", "staging"), want("shared", "production")
	for _, w := range []auth.Want{staging, production} {
		_, err := b.Apply(b.Context(), w)
		require.NoError(b, err)
	}
	b.quiet(staging)
	b.quiet(production)
	require.Equal(b, []string{production.Redirects[0], staging.Redirects[0]}, b.client("shared").RedirectURIs)
	require.Equal(b, 201, b.raw("POST", "/shared/users", map[string]any{"username": "ada", "enabled": true}, nil))
	done, err := b.Delete(b.Context(), staging, false)
	require.NoError(b, err)
	require.Equal(b, []string{"leave realm shared", "update client shared"}, done)
	var users []map[string]any
	b.raw("GET", "/shared/users", nil, &users)
	require.Len(b, users, 1)
	require.Equal(b, production.Redirects, b.client("shared").RedirectURIs)
	b.quiet(production)
	done, err = b.Delete(b.Context(), staging, false)
	require.NoError(b, err)
	require.Empty(b, done)
	_, err = b.Delete(b.Context(), production, false)
	require.NoError(b, err)
	require.False(b, b.there("shared"))
}

// retains is C8: the realm stays with its mark and its users, without a redirect URI. The
// next object of the name adopts it.
func retains(b *bench) {
	w := want("retain", "production")
	_, err := b.Apply(b.Context(), w)
	require.NoError(b, err)
	require.Equal(b, 201, b.raw("POST", "/retain/users", map[string]any{"username": "ada", "enabled": true}, nil))
	done, err := b.Delete(b.Context(), w, true)
	require.NoError(b, err)
	require.Equal(b, []string{"leave realm retain", "update client retain"}, done)
	require.Empty(b, b.client("retain").RedirectURIs)
	b.trace.writes = nil
	done, err = b.Delete(b.Context(), w, true)
	require.NoError(b, err)
	require.Empty(b, done, "again")
	require.Empty(b, b.trace.writes)
	stranger := w
	stranger.Mark.Namespace, stranger.Mark.UID = "another", "another"
	_, err = b.Apply(b.Context(), stranger)
	require.ErrorIs(b, err, external.ErrOwnedByOther)
	next := w
	next.Mark.UID = "next"
	_, err = b.Apply(b.Context(), next)
	require.NoError(b, err)
	b.quiet(next)
	require.Equal(b, w.Redirects, b.client("retain").RedirectURIs)
	var users []map[string]any
	b.raw("GET", "/retain/users", nil, &users)
	require.Len(b, users, 1)
}

// crashes cuts a life before or after some requests, and both of each with
// TRUEUP_SWEEP=all: the next one ends it the same.
func crashes(b *bench) {
	boundaries := 0
	for at := 1; ; at++ {
		whole := false
		for _, after := range []bool{false, true} {
			if sampled := at%3 == 1 && after == (at%2 == 0); !sampled && os.Getenv("TRUEUP_SWEEP") != "all" {
				continue
			}
			w := want(fmt.Sprintf("crash-%d-%v", at, after), "production")
			cut := &trace{at: at, after: after}
			s := b.open(cut)
			_, err := s.Apply(b.Context(), w)
			if err == nil {
				_, err = s.Delete(b.Context(), w, false)
			}
			whole = err == nil
			boundaries++
			_, err = b.Apply(b.Context(), w)
			require.NoError(b, err, "cut at %d, after %v", at, after)
			b.quiet(w)
			require.Equal(b, w.Redirects, b.client(w.Realm).RedirectURIs)
			_, err = b.Delete(b.Context(), w, false)
			require.NoError(b, err)
			require.False(b, b.there(w.Realm))
		}
		if whole {
			break
		}
	}
	fmt.Printf("figure application_auth_crash_boundaries %d boundaries\n", boundaries)
	require.GreaterOrEqual(b, boundaries, 3)
}

// providers is C12: those that are not set up are named.
func providers(b *bench) {
	w := want("provider", "production")
	w.Providers = []string{"github", "google"}
	result, err := b.Apply(b.Context(), w)
	require.NoError(b, err)
	require.Equal(b, []string{"github", "google"}, result.Missing)
	require.Equal(
		b,
		201,
		b.raw(
			"POST",
			"/provider/identity-provider/instances",
			map[string]any{
				"alias":      "hub",
				"providerId": "github",
				"enabled":    true,
				"config":     map[string]string{"clientId": "i", "clientSecret": "s"},
			},
			nil,
		),
	)
	require.Equal(
		b,
		201,
		b.raw(
			"POST",
			"/provider/identity-provider/instances",
			map[string]any{
				"alias":      "g",
				"providerId": "google",
				"enabled":    false,
				"config":     map[string]string{"clientId": "i", "clientSecret": "s"},
			},
			nil,
		),
	)
	result, err = b.Apply(b.Context(), w)
	require.NoError(b, err)
	require.Equal(b, []string{"google"}, result.Missing)
	require.Empty(b, result.Done)
}

// denied covers the errors for a wrong password, a silent Keycloak and another server.
func denied(b *bench) {
	w := want("denied", "production")
	s, err := auth.Open(auth.Options{URL: b.k.URL, User: keycloaktest.User, Password: "a-wrong-password"})
	require.NoError(b, err)
	_, err = s.Apply(b.Context(), w)
	require.ErrorIs(b, err, external.ErrDenied)
	require.ErrorContains(b, err, "KEYCLOAK_ADMIN_PASSWORD")
	require.NotContains(b, err.Error(), "a-wrong-password")

	s, err = auth.Open(auth.Options{URL: "http://127.0.0.1:1", User: "u", Password: "p"})
	require.NoError(b, err)
	_, err = s.Apply(b.Context(), w)
	require.ErrorIs(b, err, external.ErrUnreachable)

	s, err = auth.Open(auth.Options{URL: b.k.URL, User: keycloaktest.User, Password: keycloaktest.Password, Timeout: time.Nanosecond})
	require.NoError(b, err)
	_, err = s.Apply(b.Context(), w)
	require.ErrorIs(b, err, external.ErrUnreachable)
	require.False(b, b.there("denied"))
}

// race makes the realm of two environments at once: both end up in it.
func race(b *bench) {
	all := []auth.Want{want("race", "staging"), want("race", "production"), want("race", "uat")}
	var group sync.WaitGroup
	for _, w := range all {
		group.Go(func() {
			// The loser of a write is refused or overwritten, and comes again.
			_, _ = b.open(nil).Apply(context.WithoutCancel(b.Context()), w)
		})
	}
	group.Wait()
	for range 2 {
		for _, w := range all {
			_, err := b.Apply(b.Context(), w)
			require.NoError(b, err)
		}
	}
	for _, w := range all {
		b.quiet(w)
	}
	require.Len(b, b.client("race").RedirectURIs, 3)
}

func TestWhatIsWrongWithTheOptionsIsNamed(t *testing.T) {
	t.Parallel()
	for field, options := range map[string]auth.Options{
		"KEYCLOAK_ADMIN_URL":      {URL: "auth.example.com", User: "u", Password: "p"},
		"KEYCLOAK_ADMIN_USER":     {URL: "https://auth.example.com", Password: "p"},
		"KEYCLOAK_ADMIN_PASSWORD": {URL: "https://auth.example.com", User: "u"},
	} {
		_, err := auth.Open(options)
		require.ErrorContains(t, err, field)
	}
	for _, url := range []string{"https://u:p@auth.example.com", "https://auth.example.com?a=b", "ftp://auth.example.com", "https://"} {
		_, err := auth.Open(auth.Options{URL: url, User: "u", Password: "p"})
		require.ErrorContains(t, err, "KEYCLOAK_ADMIN_URL", url)
		require.NotContains(t, err.Error(), "u:p")
	}
}

// TestCallersDoNotWaitForTheTimeoutsOfOthers is C27 for many callers at a time: a Keycloak that
// never answers costs each of them one time-out, and one whose context ends waits no longer.
func TestCallersDoNotWaitForTheTimeoutsOfOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const timeout = 30 * time.Second
		logins, began := 0, time.Now()
		hangs := func(r *http.Request) (*http.Response, error) {
			logins++ // under the lock of the server
			<-r.Context().Done()
			return nil, r.Context().Err()
		}
		s, err := auth.Open(auth.Options{URL: "http://keycloak", User: "u", Password: "p", Transport: httpfunc.Transport(hangs)})
		require.NoError(t, err)
		failed := make(chan error)
		for range 6 {
			go func() {
				_, err := s.Apply(t.Context(), want("hangs", "production"))
				failed <- err
			}()
		}
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = s.Apply(ctx, want("hangs", "production"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 2*time.Second, time.Since(began), "it does not wait for the others")
		for range 6 {
			require.ErrorIs(t, <-failed, external.ErrUnreachable)
		}
		require.Equal(t, timeout, time.Since(began))
		require.Equal(t, 1, logins)
		_, err = s.Apply(t.Context(), want("hangs", "production"))
		require.ErrorIs(t, err, external.ErrUnreachable)
		require.Equal(t, 2, logins, "the next one tries again")
	})
}
