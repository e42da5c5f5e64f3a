package regions_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpcreflect"
	"github.com/stretchr/testify/require"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1/ctrlv1connect"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/regions"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

// reply is an answer whose body is closed at the end of the test.
type reply struct {
	status int
	header http.Header
	body   io.Reader
}

// get asks as curl does.
func (w *world) get(ctx context.Context, path, token string, headers ...string) reply {
	w.t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url+path, nil)
	require.NoError(w.t, err)
	if token != "" {
		r.Header.Set("Authorization", token)
	}
	for n := 0; n < len(headers); n += 2 {
		r.Header.Set(headers[n], headers[n+1])
	}
	response, err := http.DefaultClient.Do(r)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = response.Body.Close() })
	return reply{response.StatusCode, response.Header, response.Body}
}

// frame is a page or a line of a stream.
type frame struct {
	Type, Epoch, Mark string
	Version           uint64
	Items             []struct {
		Collection, ID string
		Value          struct {
			State string
			Apply struct{ Image string }
		}
	}
	Error struct{ Code, Message string }
}

func (w *world) page(query string) (f frame) {
	w.t.Helper()
	response := w.get(w.t.Context(), "/api/v1/scopes/eu-1/items"+query, "Bearer "+w.tokens[eu])
	require.Equal(w.t, http.StatusOK, response.status)
	require.NoError(w.t, json.NewDecoder(response.body).Decode(&f))
	return f
}

// TestTheLogOfARegionIsReadWithPlainHTTP lists, waits and watches.
func TestTheLogOfARegionIsReadWithPlainHTTP(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.put("d_1", "running", deployment("one", "one:1"))
		var list frame
		await.Eventually(w.t, "len(list.Items) == 1", func() bool { list = w.page(""); return len(list.Items) == 1 })
		require.Equal(w.t, "deployments", list.Items[0].Collection)
		require.Equal(w.t, "one:1", list.Items[0].Value.Apply.Image)
		require.Empty(w.t, w.page("?collection=sentinels").Items)

		waited := make(chan frame, 1)
		go func() {
			waited <- w.page(fmt.Sprintf("?wait=60s&after=%d&epoch=%s&mark=%s", list.Version, list.Epoch, list.Mark))
		}()
		w.put("d_2", "running", deployment("two", "two:1"))
		require.Equal(w.t, "d_2", (<-waited).Items[0].ID)

		stream := w.get(w.t.Context(), "/api/v1/scopes/eu-1/items?watch&heartbeat=15s", "Bearer "+w.tokens[eu], "X-Krane-Region", "eu-1")
		require.Equal(w.t, "application/x-ndjson", stream.header.Get("Content-Type"))
		lines := bufio.NewScanner(stream.body)
		next := func() (f frame) {
			require.True(w.t, lines.Scan(), "%v", lines.Err())
			require.NoError(w.t, json.Unmarshal(lines.Bytes(), &f))
			return f
		}
		require.Equal(w.t, "header", next().Type)
		require.Len(w.t, next().Items, 2)
		require.Equal(w.t, "synced", next().Type)
		require.Equal(w.t, 1, w.service.Streams("eu-1"))
		w.put("d_2", "stopped", nil)
		changed := next()
		require.Equal(w.t, "changes", changed.Type)
		require.Equal(w.t, "stopped", changed.Items[0].Value.State)

		client := &statesync.Client{URL: w.url + "/api/v1", Authorize: func(r *http.Request) error {
			r.Header.Set("Authorization", "Bearer "+w.tokens[eu])
			return nil
		}}
		defer client.Close()
		page, err := client.Page(w.t.Context(), statesync.Watch{Scope: "eu-1"}, 10, 0)
		require.NoError(w.t, err)
		require.Len(w.t, page.Items, 2)
		_, err = client.Page(w.t.Context(), statesync.Watch{Scope: "us-1"}, 10, 0)
		require.Error(w.t, err)
	})
}

// TestPlainHTTPFollowsTheRulesOfConnect has each refusal of a stream of Connect.
func TestPlainHTTPFollowsTheRulesOfConnect(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		own := "Bearer " + w.tokens[eu]
		_, err := w.client(own, "eu-1", "X-Krane-Cell", "cell-a").Heartbeat(w.t.Context(), connect.NewRequest(&ctrlv1.HeartbeatRequest{}))
		require.NoError(w.t, err)
		for _, c := range []struct {
			name, path, token string
			headers           []string
			status            int
			code, says        string
		}{
			{"no token", "eu-1/items", "", nil, 401, "unauthenticated", "bearer token is missing"},
			{"no token, unknown region", "mars-1/items", "", nil, 401, "unauthenticated", ""},
			{"another scheme", "eu-1/items", "Basic " + bearer, nil, 401, "unauthenticated", ""},
			{"another token", "eu-1/items?limit=x", "Bearer no-agent-has-this-token", nil, 401, "unauthenticated", ""},
			{"the token of another region", "eu-1/items", "Bearer " + w.tokens[us], nil, 403, "permission_denied", "another region"},
			{"the token of a region, for none", "mars-1/items", own, nil, 403, "permission_denied", "another region"},
			{"the shared token, for none", "mars-1/items", "Bearer " + bearer, nil, 404, "unknown_scope", "delete nothing"},
			{"another region in the header", "eu-1/items", own, []string{"X-Krane-Region", "us-1"}, 400, "invalid", "X-Krane-Region"},
			{"another cell", "eu-1/items", own, []string{"X-Krane-Cell", "cell-b"}, 409, "region_claimed", "another cell"},
			{"another cell that watches", "eu-1/items?watch", own, []string{"X-Krane-Cell", "cell-b"}, 409, "region_claimed", "another cell"},
			{"a long cell", "eu-1/items", own, []string{"X-Krane-Cell", strings.Repeat("x", 2000)}, 400, "invalid", "X-Krane-Cell"},
			{"no cell", "eu-1/items", own, nil, 409, "region_claimed", "another cell"},
			{"a parameter", "eu-1/items?sort=asc", own, []string{"X-Krane-Cell", "cell-a"}, 400, "invalid", "sort: is no parameter"},
			{"nanoseconds", "eu-1/items?watch&heartbeat=15000000000", own, []string{"X-Krane-Cell", "cell-a"}, 400, "invalid", "must be a duration from 1s to 1m0s, as 15s"},
			{"another epoch", "eu-1/items?after=1&epoch=other", own, []string{"X-Krane-Cell", "cell-a"}, 410, "resync_required", "other-epoch"},
			{"another path", "eu-1/reports", own, []string{"X-Krane-Cell", "cell-a"}, 404, "unknown_path", ""},
		} {
			response := w.get(w.t.Context(), "/api/v1/scopes/"+c.path, c.token, c.headers...)
			require.Equal(w.t, c.status, response.status, c.name)
			require.Equal(w.t, "application/json", response.header.Get("Content-Type"), c.name)
			require.Equal(w.t, c.status == 401, response.header.Get("WWW-Authenticate") == "Bearer", c.name)
			var f frame
			require.NoError(w.t, json.NewDecoder(response.body).Decode(&f), c.name)
			require.Equal(w.t, c.code, f.Error.Code, c.name)
			require.Contains(w.t, f.Error.Message, c.says, c.name)
		}
		response := w.get(w.t.Context(), "/api/v1/scopes/eu-1/items", own, "X-Krane-Cell", "cell-a")
		require.Equal(w.t, http.StatusOK, response.status)
		regions, err := w.store.Regions(w.t.Context())
		require.NoError(w.t, err)
		require.Equal(w.t, "cell-a", regions[0].CellID)
	})
}

// TestAYoungLeaseIsNotRenewedByReading reads within the time in which only heartbeats
// renew the lease.
func TestAYoungLeaseIsNotRenewedByReading(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		agent := w.client("Bearer "+w.tokens[eu], "eu-1", "X-Krane-Cell", "cell-a")
		_, err := agent.Heartbeat(w.t.Context(), connect.NewRequest(&ctrlv1.HeartbeatRequest{}))
		require.NoError(w.t, err)
		begin := time.Now().Add(time.Hour).Truncate(time.Millisecond) // young for the whole test
		w.sql(fmt.Sprintf(`UPDATE regions SET heartbeat_at = %d WHERE id = 'reg_eu'`, begin.UnixMilli()))
		stream, err := agent.WatchDeployments(w.t.Context(), connect.NewRequest(&ctrlv1.WatchDeploymentsRequest{Markers: true}))
		require.NoError(w.t, err)
		require.True(w.t, stream.Receive())
		require.NoError(w.t, stream.Close())
		require.Equal(
			w.t,
			http.StatusOK,
			w.get(w.t.Context(), "/api/v1/scopes/eu-1/items", "Bearer "+w.tokens[eu], "X-Krane-Cell", "cell-a").status,
		)
		region, err := w.store.Region(w.t.Context(), eu)
		require.NoError(w.t, err)
		require.True(w.t, begin.Equal(region.HeartbeatAt), "%s is not %s", region.HeartbeatAt, begin)
	})
}

func TestARevokedTokenLosesItsStreamOverPlainHTTP(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		stream := w.get(w.t.Context(), "/api/v1/scopes/eu-1/items?watch", "Bearer "+w.tokens[eu])
		require.Equal(w.t, http.StatusOK, stream.status)
		_, err := w.store.Agents().Rotate(w.t.Context(), eu, 0)
		require.NoError(w.t, err)
		_, err = io.Copy(io.Discard, stream.body) // it ends
		require.NoError(w.t, err)
		require.Equal(w.t, http.StatusUnauthorized, w.get(w.t.Context(), "/api/v1/scopes/eu-1/items?watch", "Bearer "+w.tokens[eu]).status)
	})
}

// TestToolsFindTheMethodsByReflection asks as grpcurl does.
func TestToolsFindTheMethodsByReflection(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		transport := &http.Transport{Protocols: new(http.Protocols)}
		transport.Protocols.SetUnencryptedHTTP2(true)
		defer transport.CloseIdleConnections()
		ask := func(token string) ([]string, error) {
			client := grpcreflect.NewClient(&http.Client{Transport: headed{transport, []string{"Authorization", token}}}, w.url, connect.WithGRPC())
			stream := client.NewStream(w.t.Context())
			defer stream.Close()
			services, err := stream.ListServices()
			var names []string
			for _, name := range services {
				names = append(names, string(name))
			}
			if err == nil {
				files, err := stream.FileContainingSymbol("ctrl.v1.ClusterService")
				require.NoError(w.t, err)
				require.NotEmpty(w.t, files)
			}
			return names, err
		}
		names, err := ask("Bearer " + w.tokens[eu])
		require.NoError(w.t, err)
		require.Equal(w.t, []string{"ctrl.v1.ClusterService"}, names)
		for _, token := range []string{"", "Bearer no-agent-has-this-token"} {
			_, err := ask(token)
			require.Equal(w.t, connect.CodeUnauthenticated, connect.CodeOf(err), "%v", err)
		}
		require.Len(w.t, regions.Routes(), 12, "the log, nine methods, and reflection in two versions")
	})
}

// gone is the answer to a client that has gone.
type gone struct{ *httptest.ResponseRecorder }

// Write implements http.ResponseWriter.
func (gone) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestAStreamIsRefusedToAClientThatHasGone(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		mux := http.NewServeMux()
		w.service.Mount(mux)
		path := ctrlv1connect.ClusterServiceWatchDeploymentsProcedure
		r := httptest.NewRequestWithContext(w.t.Context(), http.MethodPost, path, http.NoBody)
		r.Header.Set("Content-Type", "application/connect+proto")
		answer := httptest.NewRecorder()
		mux.ServeHTTP(answer, r)
		require.Contains(w.t, answer.Body.String(), "unauthenticated")
		require.NotPanics(w.t, func() { mux.ServeHTTP(gone{httptest.NewRecorder()}, r) })
	})
}
