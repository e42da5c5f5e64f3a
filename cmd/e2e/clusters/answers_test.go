package clusters_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/controlplanetest"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
)

// cutBody is D8 and C1: of forty services the answer has twenty-five. The next whole one
// is used.
func cutBody(b *bench, _ database) {
	t := b.t
	all := names(40)
	b.put(nil, all...)
	a := b.agent().start()
	b.healthy(len(all))
	a.quiet()
	writes := len(a.writes())
	var cut, after atomic.Int64
	after.Store(-1)
	b.link.set(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if endpointOf(r) != "desired-state" {
			next.ServeHTTP(w, r)
			return
		}
		if cut.Load() > 0 {
			after.CompareAndSwap(-1, int64(len(a.writes()))) // the next question: the cut answer was judged
			next.ServeHTTP(w, r)
			return
		}
		whole := httptest.NewRecorder()
		next.ServeHTTP(whole, r)
		body, end := whole.Body.Bytes(), 0
		if whole.Code != http.StatusOK {
			w.WriteHeader(whole.Code)
			return
		}
		for range 26 {
			end += bytes.Index(body[end:], []byte(`"service_id"`)) + 1
		}
		cut.Store(int64(end))
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(body[:end])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	b.put(spec{"image": "example.com/new"}, all[0])
	await.Eventually(t, "it asks again", func() bool { return after.Load() >= 0 })
	require.Positive(t, cut.Load())
	require.EqualValues(t, writes, after.Load(), "nothing comes from the cut answer")
	await.Eventually(t, "the next whole answer is used", func() bool { return b.image(all[0]) == "example.com/new" })
	require.InDelta(t, 1, a.metric("desired_state_rejected_total"), 0)
	b.healthy(len(all))
	a.quiet()
	require.Len(t, a.since(writes), 1)
	require.Empty(t, a.deletes())
}

// empties is D9 and C2: all rows of tables vanish. Nothing is deleted, after the grace of a minute because of the limit:
// not the services, nor what isolates them, which no one asks for without them.
func empties(tables ...string) func(*bench, database) {
	return func(b *bench, _ database) { emptyDatabase(b, tables) }
}

func emptyDatabase(b *bench, tables []string) {
	t := b.t
	all := names(40)
	b.put(nil, all...)
	a := b.agent().start()
	b.healthy(len(all))
	a.quiet()
	uids := b.uids(all...)
	policies := b.count("NetworkPolicy")
	require.Positive(t, policies)
	for _, table := range tables {
		b.byHand("DELETE FROM " + table)
	}
	emptied := time.Now()
	held := func() bool {
		services := b.services()
		if len(services) != len(all) {
			return false
		}
		for _, s := range services {
			if s.ErrorClass != starbase.ClassDeletionHeld {
				return false
			}
		}
		return true
	}
	await.Eventually(t, "each service is reported as held", held)
	await.Eventually(t, "the grace ends, and the limit holds", func() bool { return a.metric(`deletions_held{reason="limit"}`) >= 4*40 })
	if everything() {
		for time.Since(emptied) < 10*time.Minute {
			a.passes(10)
		}
	}
	b.pulls(5)
	a.passes(5)
	require.GreaterOrEqual(t, time.Since(emptied), time.Minute)
	require.Empty(t, a.deletes())
	require.Equal(t, uids, b.uids(all...))
	require.True(t, held())
	require.Equal(t, 40, b.count("Pod"))
	require.Equal(t, policies, b.count("NetworkPolicy"), "they are isolated")
}

// massDelete is D10 and C4: thirty tombstones in one answer are held until they are
// allowed.
func massDelete(b *bench, _ database) {
	t := b.t
	all := names(40)
	b.put(nil, all...)
	a := b.agent().start()
	b.healthy(len(all))
	a.quiet()
	gone, kept := all[:30], b.uids(all[30:]...)
	b.link.set(unavailable("desired-state")) // or some would go before the others are named
	b.remove(gone...)
	b.link.set(nil)
	await.Eventually(t, "all are held, and reported so", func() bool {
		held := 0
		for _, s := range b.services() {
			if s.Deleted && s.ErrorClass == starbase.ClassDeletionHeld {
				held++
			}
		}
		return held == len(gone)
	})
	a.passes(5)
	require.Empty(t, a.deletes())
	require.Len(t, b.uids(gone...), len(gone))
	require.GreaterOrEqual(t, a.metric(`deletions_held{reason="limit"}`), 4.0*30)

	// A pass that no answer has started reports nothing else.
	b.link.set(unavailable("desired-state"))
	a.deleteAndRepair(all[30])
	kept[all[30]] = b.uids(all[30])[all[30]]
	require.Equal(t, starbase.ClassDeletionHeld, b.stands(gone[0]).ErrorClass)
	b.link.set(nil)

	// D33: an unrelated write does not spoil the approval, and it covers nothing else.
	held := b.heldDeletions()
	require.Equal(t, len(gone), held.Count)
	require.Equal(t, http.StatusConflict, b.approve("another"))
	require.Equal(t, http.StatusOK, b.approve(held.Digest))
	b.put(spec{"image": "example.com/next"}, all[31])
	await.Eventually(t, "all thirty go", func() bool {
		deleted := 0
		for _, s := range b.services() {
			if s.Standing == "Deleted" {
				deleted++
			}
		}
		return deleted == len(gone) && len(b.uids(gone...)) == 0
	})
	b.asWanted()
	b.healthy(10)
	require.Equal(t, kept, b.uids(all[30:]...))
	require.Zero(t, a.metric(`deletions_held{reason="limit"}`))
}

// wrongCluster is D11 and C21: the body of another cluster is refused, and a token opens
// one cluster alone.
func wrongCluster(b *bench, _ database) {
	t := b.t
	b.put(nil, "web")
	a := b.agent().start()
	b.healthy(1)
	a.quiet()
	other, project := uuid(b.name+" other"), uuid(b.name+" other project")
	var registered struct{ Token string }
	b.admin(http.MethodPut, "clusters/"+other, spec{"region": "nyc3"}, &registered)
	b.admin(
		http.MethodPut,
		"projects/"+project,
		spec{"cluster_id": other, "workspace_id": uuid("workspace"), "workspace_slug": "acme", "slug": b.name + "-other"},
		nil,
	)
	b.admin(http.MethodPut, "projects/"+project+"/services/"+uuid("x")+"/production", spec{"image": "example.com/evil", "replicas": 1}, nil)
	b.link.set(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if endpointOf(r) == "desired-state" { // sent to another cluster's state
			r.URL.Path = strings.Replace(r.URL.Path, b.id, other, 1)
			r.Header.Set("Authorization", "Bearer "+registered.Token)
		}
		next.ServeHTTP(w, r)
	})
	writes := len(a.writes())
	await.Eventually(t, "it is refused", func() bool { return a.metric(`desired_state_rejected_total{reason="cluster_id"}`) >= 3 })
	web := b.deleteByHand("web")
	await.Eventually(t, "what it has accepted is kept up", func() bool { return b.isBack("web", web) })
	require.Len(t, a.since(writes), 1)
	require.Empty(t, a.deletes())
	b.link.set(nil)
	b.put(spec{"image": "example.com/new"}, "web")
	await.Eventually(t, "it goes on", func() bool { return b.image("web") == "example.com/new" })

	own := b.link.to("desired-state")[0].token
	ask := func(cluster, token, endpoint, body string) int {
		method := http.MethodPost
		if endpoint == "desired-state" {
			method = http.MethodGet
		}
		request, err := http.NewRequestWithContext(
			t.Context(),
			method,
			"http://"+b.proxy.Listen+"/api/v1/clusters/"+cluster+"/"+endpoint,
			strings.NewReader(body),
		)
		require.NoError(t, err)
		request.Header.Set("Authorization", "Bearer "+token)
		request.Header.Set("Content-Type", "application/json")
		response, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		return response.StatusCode
	}
	for endpoint, body := range map[string]string{
		"desired-state": "", "snapshots": `{"snapshots":[]}`, "capacity": `{}`, "status": `{}`,
	} {
		require.Equal(t, http.StatusForbidden, ask(other, own, endpoint, body), endpoint)
		require.Equal(t, http.StatusForbidden, ask(b.id, registered.Token, endpoint, body), endpoint)
		require.Equal(t, http.StatusUnauthorized, ask(b.id, "a-token-that-is-not-known", endpoint, body), endpoint)
	}
}

// restore is D12 and C5: an older copy of the database is put back, first without and then
// with a new epoch. An agent that has just started knows what is older, too. What the restored
// state changes is applied at once; what it lacks or names as deleted goes after the second
// answer, what it merely lacks a minute later.
func restore(b *bench, kind database) {
	t := b.t
	b.put(nil, "web", "keep", "revived")
	a := b.agent().start()
	b.healthy(3)
	b.remove("revived")
	await.Eventually(t, "the tombstone is carried out", func() bool { return b.stands("revived").Standing == "Deleted" })
	a.quiet()

	source := b.source
	b.kill()
	require.NoError(t, b.desired().Database.Close())
	older := kind.Copied(t, source)
	b.open(source)
	b.replica()
	b.put(spec{"image": "example.com/web:2"}, "web")
	b.put(nil, "revived", "late")
	b.remove("keep")
	await.Eventually(t, "one is gone", func() bool { return b.stands("keep").Standing == "Deleted" })
	b.healthy(3)
	a.quiet()
	uids, before := b.uids("web", "revived", "late"), b.generation()

	b.kill()
	require.NoError(t, b.desired().Database.Close())
	b.open(older) // and "controlplane restored" is forgotten
	b.replica()
	a.start()
	await.Eventually(t, "also an agent that has just started refuses what is older", func() bool {
		return a.metric("desired_state_rejected_total") >= 3
	})
	require.Equal(t, "example.com/web:2", b.image("web"))
	require.Equal(t, uids, b.uids("web", "revived", "late"))
	require.Empty(t, a.deletes())

	b.kill()
	_, err := b.desired().StartEpochs(t.Context()) // "controlplane restored"
	require.NoError(t, err)
	require.Less(t, b.generation(), before, "it goes back")
	var open atomic.Bool
	b.link.set(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		// The agent has accepted none since its start but the restored one.
		if endpointOf(r) == "desired-state" && !open.Load() && strings.Contains(a.log.String(), "desired state accepted") {
			unavailable("")(w, r, next)
			return
		}
		next.ServeHTTP(w, r)
	})
	b.replica()
	a.applied()
	await.Eventually(t, "what changes is applied, and what was deleted is back", func() bool {
		return b.image("web") == "example.com/web:1" && len(b.uids("keep")) == 1
	})
	a.passes(5)
	require.Empty(t, a.deletes(), "one answer is no licence to delete")
	require.Equal(t, uids, b.uids("web", "revived", "late"))

	second := time.Now()
	open.Store(true)
	await.Eventually(t, "after a second answer its tombstone is carried out", func() bool { return len(b.uids("revived")) == 0 })
	require.Len(t, b.uids("late"), 1, "that it is absent is weaker")
	await.Eventually(t, "what it lacks goes", func() bool { return len(b.uids("late")) == 0 })
	require.GreaterOrEqual(t, time.Since(second), 50*time.Second, "the first answer began the grace at the earliest")
	b.asWanted()
	b.healthy(2)
	require.Equal(t, uids["web"], b.uids("web")["web"], "it was never deleted")
}

// badInput is D13 and C13: the control plane refuses wrong services; of those that are in
// its database all the same, each is rejected alone.
func badInput(b *bench, _ database) {
	t := b.t
	long := strings.Repeat("e", 40)
	good := spec{"image": "example.com/x", "replicas": 1, "ports": []spec{{"container_port": 8080}}}
	with := func(field string, value any) spec {
		body := maps.Clone(good)
		body[field] = value
		return body
	}
	for _, wrong := range []struct {
		path string
		body spec
		want string
	}{
		{b.path(mainProject, production, "bad"), with("replicas", -1), "replicas"},
		{b.path(mainProject, long, "bad"), good, "environment"},
		{b.path(mainProject, production, "bad"), with("ports", []spec{{"container_port": 70000}}), "container_port"},
		{b.path(mainProject, production, "bad"), with("image", "no image"), "image"},
	} {
		status, content := b.try(http.MethodPut, wrong.path, wrong.body)
		require.Equal(t, http.StatusBadRequest, status, "%s", content)
		require.Contains(t, string(content), wrong.want)
	}

	all := names(10)
	b.put(nil, all...)
	b.put(nil, "negative", "port")
	a := b.agent().start()
	b.healthy(12)
	uids := b.uids("negative", "port")
	b.link.set(unavailable("desired-state"))
	for _, name := range all {
		b.put(spec{"image": "example.com/new"}, name)
	}
	b.putIn(mainProject, "short", "environment", nil)
	spoil(b, "negative", func(s map[string]any) { s["replicas"] = -1 })
	spoil(b, "port", func(s map[string]any) { s["ports"] = []spec{{"container_port": 70000, "protocol": "TCP"}} })
	b.byHand("UPDATE services SET environment = '" + long + "' WHERE environment = 'short'")
	b.link.set(nil)
	rejected := map[starbase.Identity]string{
		b.identity("negative", production): "replicas is -1: want 0 to 1000",
		b.identity("port", production):     "ports[0].container_port is 70000: want 1 to 65535",
		b.identity("environment", long):    "environment is ",
	}
	await.Eventually(t, "ten run, three are rejected with their reason", func() bool {
		healthy, refused := 0, 0
		for id, s := range b.services() {
			if s.Standing == "Healthy" {
				healthy++
			}
			if want, wrong := rejected[id]; wrong && s.Standing == "Rejected" && s.ErrorClass == "Invalid" && strings.Contains(s.Message, want) {
				refused++
			}
		}
		return healthy == len(all) && refused == len(rejected)
	})
	for _, name := range all {
		require.Equal(t, "example.com/new", b.image(name))
	}
	require.Equal(t, uids, b.uids("negative", "port"), "what the rejected ones had stays")
	require.Equal(t, 12, b.count("Deployment"))
	require.Empty(t, a.deletes())
	require.InDelta(t, b.generation(), a.metric("applied_generation"), 0)
}

// spoil changes a service in the database behind the control plane's back.
func spoil(b *bench, name string, change func(map[string]any)) {
	t := b.t
	t.Helper()
	id := b.identity(name, production)
	require.NoError(t, b.desired().Database.Write(t.Context(), func(tx *controlplanetest.Tx) error {
		var text string
		row := tx.QueryRowContext(t.Context(), `SELECT spec FROM services WHERE project_id = ? AND service_id = ?`, id.ProjectID, id.ServiceID)
		if err := row.Scan(&text); err != nil {
			return err
		}
		var stored map[string]any
		if err := json.Unmarshal([]byte(text), &stored); err != nil {
			return err
		}
		change(stored)
		changed, err := json.Marshal(stored)
		if err != nil {
			return err
		}
		result, err := tx.ExecContext(
			t.Context(),
			`UPDATE services SET spec = ? WHERE project_id = ? AND service_id = ?`,
			string(changed),
			id.ProjectID,
			id.ServiceID,
		)
		if err != nil {
			return err
		}
		if n, err := result.RowsAffected(); err != nil || n != 1 {
			return fmt.Errorf("%d rows of %s: %w", n, name, err)
		}
		return nil
	}))
	b.byHand()
}
