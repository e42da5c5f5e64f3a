package regions_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1/ctrlv1connect"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/tokens"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/audit"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/regions"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
)

// gcp is a region with the name that another has on aws.
const gcp = "reg_gcp"

func (w *world) alsoOnGCP() {
	w.t.Helper()
	token, created, err := w.store.PutRegion(w.t.Context(), regions.Region{ID: gcp, Name: "eu-1", Platform: "gcp"}, false)
	require.NoError(w.t, err)
	require.True(w.t, created)
	w.tokens[gcp] = token
	for id, image := range map[string]string{eu: "aws:1", gcp: "gcp:1"} {
		_, err := w.store.PutDeployment(w.t.Context(), id, "d_1", regions.Wanted{State: "running", Spec: deployment("one", image)})
		require.NoError(w.t, err)
	}
}

// ask returns the image of d_1 that the client's region gets, or the reason or code of the error.
func (w *world) ask(token, platform string) string {
	w.t.Helper()
	var answer string
	await.Eventually(w.t, "the log has a number for it", func() bool {
		got, err := w.client("Bearer "+token, "eu-1", "X-Krane-Platform", platform).
			GetDesiredDeploymentState(w.t.Context(), connect.NewRequest(&ctrlv1.GetDesiredDeploymentStateRequest{DeploymentId: "d_1"}))
		switch code := connect.CodeOf(err); {
		case err == nil:
			answer = got.Msg.GetApply().GetImage()
		case reason(err) != "":
			answer = reason(err)
		case code == connect.CodeNotFound:
			return false
		default:
			answer = code.String()
		}
		return true
	})
	return answer
}

// TestOneNameOnTwoPlatforms is B7: regions are unique by platform and name. Neither sees or
// changes anything of the other.
func TestOneNameOnTwoPlatforms(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.alsoOnGCP()
		for _, c := range []struct{ token, platform, want string }{
			{w.tokens[eu], "", "aws:1"},
			{w.tokens[eu], "aws", "aws:1"},
			{w.tokens[eu], "gcp", "permission_denied"},
			{w.tokens[gcp], "", "gcp:1"},
			{w.tokens[gcp], "gcp", "gcp:1"},
			{w.tokens[gcp], "aws", "permission_denied"},
			{w.tokens[us], "", "permission_denied"},
			{bearer, "aws", "aws:1"},
			{bearer, "gcp", "gcp:1"},
			{bearer, "azure", "unknown-region"},
			{bearer, "", "invalid_argument"},
			{bearer, "a\tb", "invalid_argument"},
		} {
			require.Equal(w.t, c.want, w.ask(c.token, c.platform), "%+v", c)
		}
		_, _, err := w.store.PutRegion(w.t.Context(), regions.Region{ID: "reg_longer", Name: "us-1.east", Platform: "gcp"}, false)
		require.NoError(w.t, err)
		_, err = w.client("Bearer "+bearer, "us-1").Heartbeat(w.t.Context(), connect.NewRequest(&ctrlv1.HeartbeatRequest{}))
		require.NoError(w.t, err, "a name of one platform needs none")

		var items struct {
			Items []struct{ Value json.RawMessage }
		}
		await.Eventually(w.t, "the pulled log has the deployment", func() bool {
			request, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, w.url+"/api/v1/scopes/eu-1/items", http.NoBody)
			require.NoError(w.t, err)
			request.Header.Set("Authorization", "Bearer "+w.tokens[gcp])
			answer, err := http.DefaultClient.Do(request)
			require.NoError(w.t, err)
			text, err := io.ReadAll(answer.Body)
			require.NoError(w.t, err)
			require.NoError(w.t, answer.Body.Close())
			require.Equal(w.t, http.StatusOK, answer.StatusCode, string(text))
			require.NoError(w.t, json.Unmarshal(text, &items))
			return len(items.Items) > 0
		})
		require.Len(w.t, items.Items, 1)
		require.Contains(w.t, string(items.Items[0].Value), "gcp:1")

		var listed []string
		for after := ""; ; {
			part, err := w.store.RegionsAfter(w.t.Context(), after, 1)
			require.NoError(w.t, err)
			if len(part) == 0 {
				break
			}
			listed, after = append(listed, part[0].Scope), part[0].Scope
		}
		require.Equal(w.t, []string{"eu-1", "eu-1@gcp", "us-1", "us-1.east"}, listed)

		r := &regions.Reconciler{Store: w.store, Settle: time.Millisecond, Registerer: prometheus.NewRegistry()}
		require.NoError(w.t, r.Register())
		require.NoError(w.t, r.Pass(w.t.Context()))
		require.Equal(w.t, "aws:1", w.ask(w.tokens[eu], ""))
		require.Equal(w.t, "gcp:1", w.ask(w.tokens[gcp], ""))
		found, err := w.registry.Gather()
		require.NoError(w.t, err, "no two series of one name")
		require.NotEmpty(w.t, found)
	})
}

// TestANameOfTwoPlatformsIsRegistered is what can be registered beside a name of two platforms,
// and after one of the two was removed.
func TestANameOfTwoPlatformsIsRegistered(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ctx := w.t.Context()
		w.alsoOnGCP()
		put := func(id, platform string, replace bool) error {
			_, _, err := w.store.PutRegion(ctx, regions.Region{ID: id, Name: "eu-1", Platform: platform}, replace)
			return err
		}
		require.ErrorIs(w.t, put("reg_new", "gcp", false), regions.ErrRegistered)
		require.ErrorIs(w.t, put("reg_new", "gcp", true), regions.ErrRegistered)
		require.ErrorIs(w.t, put("reg_new", "aws", true), regions.ErrRegistered)
		require.ErrorIs(w.t, put(eu, "gcp", false), regions.ErrRegistered, "its platform cannot become the other's")
		require.ErrorIs(w.t, put(eu, "gcp", true), regions.ErrRegistered)
		before := w.verbs(gcp)
		require.NoError(w.t, put(gcp, "gcp", false), "nothing changes")
		require.Equal(w.t, before, w.verbs(gcp))
		require.NoError(w.t, put(gcp, "azure", false))
		require.Equal(w.t, "gcp:1", w.ask(w.tokens[gcp], "azure"), "it stays what it was")
		require.ErrorIs(w.t, put("reg_new", "gcp", true), regions.ErrRegistered, "its log is still the one of gcp")
		require.NoError(w.t, put(gcp, "gcp", false))

		require.Contains(w.t, w.items(), "deployments/d_1")

		// The first goes. Its name stays its own: what gets it has to say so, and is empty.
		w.remove(eu)
		require.ErrorIs(w.t, put("reg_new", "aws", false), regions.ErrNameTaken)
		require.Equal(w.t, "gcp:1", w.ask(w.tokens[gcp], ""))
		require.Equal(w.t, "invalid_argument", w.ask(bearer, ""), "its agent may still send the name alone")
		require.ErrorIs(w.t, put(gcp, "aws", false), regions.ErrNameTaken, "its agent may still send its platform")
		token, created, err := w.store.PutRegion(ctx, regions.Region{ID: "reg_new", Name: "eu-1", Platform: "aws"}, true)
		require.NoError(w.t, err)
		require.True(w.t, created)
		for _, id := range []string{"reg_new", gcp} {
			_, resources, err := w.store.Resources(ctx, id)
			require.NoError(w.t, err)
			require.Len(w.t, resources, map[string]int{gcp: 1}[id])
		}
		agent := w.client("Bearer "+token, "eu-1")
		_, err = agent.Heartbeat(ctx, connect.NewRequest(&ctrlv1.HeartbeatRequest{}))
		require.NoError(w.t, err)
		_, err = agent.Heartbeat(ctx, connect.NewRequest(&ctrlv1.HeartbeatRequest{AgentEpoch: 7, Sequence: 1}))
		require.Equal(w.t, "superseded", reason(err), "it was given for the region of before")
		require.Equal(w.t, "replace", w.verbs("reg_new")[0])
		require.NotContains(w.t, w.items(), "deployments/d_1", "it inherits nothing")

		// The second goes, and comes back under its id: the log that is left is its own.
		w.remove(gcp)
		require.ErrorIs(w.t, put("reg_other", "gcp", false), regions.ErrNameTaken)
		require.NoError(w.t, put(gcp, "gcp", false))
		view, err := w.store.Region(ctx, gcp)
		require.NoError(w.t, err)
		require.Equal(w.t, "eu-1@gcp", view.Scope)
	})
}

// TestALogStaysItsRegionsWhenAnotherLeavesThePlace has a region with the log of the name, which
// leaves the platform where a removed one has its own.
func TestALogStaysItsRegionsWhenAnotherLeavesThePlace(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.alsoOnGCP()
		put := func(id, platform string, replace bool) {
			token, _, err := w.store.PutRegion(w.t.Context(), regions.Region{ID: id, Name: "eu-1", Platform: platform}, replace)
			require.NoError(w.t, err)
			w.tokens[id] = token
		}
		w.remove(gcp)
		w.remove(eu)
		put("reg_new", "gcp", true)
		put("reg_new", "azure", false)
		put(gcp, "gcp", false)
		view, err := w.store.Region(w.t.Context(), gcp)
		require.NoError(w.t, err)
		require.Equal(w.t, "eu-1@gcp", view.Scope)
	})
}

// TestAPlaceThatWasAnothersIsTakenWithReplaceAlone has agents with the shared token that still send
// the name and platform of before.
func TestAPlaceThatWasAnothersIsTakenWithReplaceAlone(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ctx := w.t.Context()
		put := func(id, platform string, replace bool) error {
			_, _, err := w.store.PutRegion(ctx, regions.Region{ID: id, Name: "eu-1", Platform: platform}, replace)
			return err
		}
		shared := func(platform string) error {
			_, err := w.store.RegionByName(ctx, "eu-1", platform, "")
			return err
		}
		// One moves away, and another comes to where it was.
		require.NoError(w.t, put(eu, "gcp", false))
		require.ErrorIs(w.t, shared("aws"), regions.ErrUnknownRegion)
		require.ErrorIs(w.t, put("reg_new", "aws", false), regions.ErrNameTaken)
		require.ErrorIs(w.t, shared("aws"), regions.ErrUnknownRegion)
		require.NoError(w.t, put(eu, "aws", false), "it may come back")
		require.NoError(w.t, put(eu, "gcp", false))
		require.NoError(w.t, put("reg_new", "aws", true))
		require.NoError(w.t, shared("aws"))

		// Two change places by a third one.
		require.NoError(w.t, put(eu, "azure", false))
		require.ErrorIs(w.t, put("reg_new", "gcp", false), regions.ErrNameTaken)
		require.NoError(w.t, put("reg_new", "gcp", true))
		require.ErrorIs(w.t, put(eu, "aws", false), regions.ErrNameTaken)

		// One goes for ever, and another comes to where it was, or is alone with the name.
		require.ErrorIs(w.t, shared(""), regions.ErrAmbiguous)
		w.tokens["reg_new"] = ""
		w.remove("reg_new")
		require.ErrorIs(w.t, shared(""), regions.ErrAmbiguous, "its log is left")
		require.NoError(w.t, shared("azure"))
		require.ErrorIs(w.t, put(eu, "gcp", false), regions.ErrNameTaken)
		require.Equal(w.t, "put", w.verbs(eu)[0], "it was refused")
		require.NoError(w.t, put(eu, "gcp", true))
		require.NoError(w.t, shared("gcp"))
		require.Equal(w.t, "replace", w.verbs(eu)[0])
	})
}

// TestRegionsOfOneNameAreListedInParts follows the next of each part, which has the platform for all
// regions of a name but the first.
func TestRegionsOfOneNameAreListedInParts(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.alsoOnGCP()
		_, err := w.store.PutDeployment(w.t.Context(), eu, "d_2", regions.Wanted{State: "running", Spec: deployment("two", "aws:1")})
		require.NoError(w.t, err)
		api := w.admin()
		list := func(path, name, id string) (ids []string) {
			for query := "?limit=1"; query != "" && len(ids) < 10; {
				r := httptest.NewRequestWithContext(w.t.Context(), http.MethodGet, "/api/v1/admin/"+path+query, http.NoBody)
				answer := httptest.NewRecorder()
				api.ServeHTTP(answer, r)
				require.Equal(w.t, http.StatusOK, answer.Code, "%s: %s", query, answer.Body)
				var part map[string]json.RawMessage
				require.NoError(w.t, json.Unmarshal(answer.Body.Bytes(), &part))
				var items []map[string]any
				require.NoError(w.t, json.Unmarshal(part[name], &items))
				require.Len(w.t, items, 1)
				ids, query = append(ids, fmt.Sprint(items[0][id])), ""
				var next string
				if part["next"] != nil {
					require.NoError(w.t, json.Unmarshal(part["next"], &next))
					query = "?limit=1&after=" + url.QueryEscape(next)
				}
			}
			return ids
		}
		require.Equal(w.t, []string{"d_1", "d_2"}, list("regions/"+eu+"/deployments", "deployments", "id"))
		require.Equal(w.t, []string{eu, gcp, us}, list("regions", "regions", "region_id"))
	})
}

// verbs returns the changes to a region, the last first.
func (w *world) verbs(id string) (verbs []string) {
	w.t.Helper()
	entries, _, err := (&audit.Log{Database: w.database}).List(w.t.Context(), audit.Filter{Kind: audit.KindRegion, Name: id}, 100)
	require.NoError(w.t, err)
	for _, e := range entries {
		verbs = append(verbs, e.Verb)
	}
	require.NotEmpty(w.t, verbs)
	return verbs
}

func (w *world) remove(id string) {
	w.t.Helper()
	ctx, scopes := w.t.Context(), w.store.Agents()
	require.NoError(w.t, w.database.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.ExecContext(ctx, `UPDATE regions SET heartbeat_at = 0 WHERE id = ?`, id)
		return err
	}))
	require.NoError(w.t, scopes.Remove(ctx, id, true))
	_, err := scopes.Authenticate(ctx, w.tokens[id])
	require.ErrorIs(w.t, err, tokens.ErrUnknown)
}

// repeated sends a header a second time.
type repeated struct {
	http.RoundTripper
	name, value string
}

func (h repeated) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Add(h.name, h.value)
	return h.RoundTripper.RoundTrip(r)
}

func TestAHeaderThatSaysWhoAsksIsThereOnce(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		said := []string{"Authorization", "Bearer " + w.tokens[eu], "X-Krane-Region", "eu-1", "X-Krane-Platform", "aws", "X-Krane-Cell", "cell-a"}
		for name, value := range map[string]string{
			"Authorization": "Bearer " + bearer, "X-Krane-Region": "us-1", "X-Krane-Platform": "gcp", "X-Krane-Cell": "cell-a",
		} {
			protocols := &http.Protocols{}
			protocols.SetUnencryptedHTTP2(true)
			transport := &http.Transport{Protocols: protocols}
			w.t.Cleanup(transport.CloseIdleConnections)
			client := ctrlv1connect.NewClusterServiceClient(&http.Client{Transport: headed{repeated{transport, name, value}, said}}, w.url)
			want := name + ": is there more than once, must be there once"
			_, err := client.Heartbeat(w.t.Context(), connect.NewRequest(&ctrlv1.HeartbeatRequest{}))
			require.Equal(w.t, connect.CodeInvalidArgument, connect.CodeOf(err), name)
			require.ErrorContains(w.t, err, want)
			stream, err := client.WatchDeployments(w.t.Context(), connect.NewRequest(&ctrlv1.WatchDeploymentsRequest{}))
			require.NoError(w.t, err)
			require.False(w.t, stream.Receive())
			require.Equal(w.t, connect.CodeInvalidArgument, connect.CodeOf(stream.Err()), name)
			require.ErrorContains(w.t, stream.Err(), want)

			r, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, w.url+"/api/v1/scopes/eu-1/items", http.NoBody)
			require.NoError(w.t, err)
			answer, err := headed{repeated{http.DefaultTransport, name, value}, said}.RoundTrip(r)
			require.NoError(w.t, err)
			text, err := io.ReadAll(answer.Body)
			require.NoError(w.t, err)
			require.NoError(w.t, answer.Body.Close())
			require.Equal(w.t, http.StatusBadRequest, answer.StatusCode, "%s: %s", name, text)
			require.Contains(w.t, string(text), want)
		}
		_, err := w.client("Bearer "+w.tokens[eu], "eu-1", "X-Krane-Cell", "cell-b").Heartbeat(
			w.t.Context(), connect.NewRequest(&ctrlv1.HeartbeatRequest{}))
		require.NoError(w.t, err, "no cell has claimed the region")
	})
}
