package clusters_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/clusters"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/usage"
)

func snapshotsPath(cluster string) string { return "/api/v1/clusters/" + cluster + "/snapshots" }

// billed is a good record of pod n of cluster A.
func billed(n int, at time.Time) starbase.Snapshot {
	s := starbase.Snapshot{
		WorkspaceID:       workspace,
		ProjectID:         projectX,
		Environment:       "production",
		ServiceID:         serviceX,
		PodID:             fmt.Sprintf("pod-%d", n),
		Tier:              "nova",
		Phase:             "Running",
		ClusterID:         clusterA,
		SnapshotTimestamp: at.UTC().Format(time.RFC3339),
		CPUMillis:         250,
		MemoryBytes:       512 << 20,
	}
	s.SnapshotID = s.ID()
	return s
}

func batchOf(t *testing.T, records ...any) string {
	t.Helper()
	text, err := json.Marshal(map[string]any{"snapshots": records})
	require.NoError(t, err)
	return string(text)
}

// minute is the one that has begun.
func minute() time.Time { return time.Now().UTC().Truncate(time.Minute) }

func (w *world) snapshots() (rows []string) {
	w.t.Helper()
	require.NoError(w.t, w.store.Database.Read(w.t.Context(), func(tx *db.Tx) error {
		found, err := tx.QueryContext(
			w.t.Context(),
			`SELECT pod_id, cluster_id, cpu_millis, memory_bytes, phase, taken_at FROM snapshots ORDER BY taken_at, pod_id`,
		)
		if err != nil {
			return err
		}
		defer found.Close()
		for found.Next() {
			var pod, cluster, phase string
			var cpu, memory, at int64
			if err := found.Scan(&pod, &cluster, &cpu, &memory, &phase, &at); err != nil {
				return err
			}
			rows = append(rows, fmt.Sprint(pod, " ", cluster, " ", cpu, " ", memory, " ", phase, " ", time.UnixMilli(at).UTC().Format("15:04:05")))
		}
		return found.Err()
	}))
	return rows
}

func (w *world) bill(body string) (receipt starbase.SnapshotReceipt) {
	w.t.Helper()
	got := w.do("POST", snapshotsPath(clusterA), w.tokens[clusterA], body)
	require.Equal(w.t, 200, got.status, got.body)
	require.NoError(w.t, json.Unmarshal([]byte(got.body), &receipt))
	return receipt
}

func TestARecordIsStoredOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.seed()
	at := minute()
	first := batchOf(t, billed(1, at), billed(2, at), billed(1, at))
	none := []starbase.RejectedSnapshot{}
	require.Equal(t, starbase.SnapshotReceipt{Accepted: 2, Duplicates: 1, Rejected: none}, w.bill(first))
	rows := w.snapshots()
	require.Equal(t, []string{
		"pod-1 " + clusterA + " 250 536870912 Running " + at.Format("15:04:05"),
		"pod-2 " + clusterA + " 250 536870912 Running " + at.Format("15:04:05"),
	}, rows)
	require.Equal(t, starbase.SnapshotReceipt{Duplicates: 3, Rejected: none}, w.bill(first), "the answer was lost")
	require.Equal(t, rows, w.snapshots())
	require.Equal(t, []clusters.SnapshotMinute{{At: at, Records: 2}}, w.overview().Snapshots)

	later := billed(1, at)
	later.Phase = "Failed"
	require.Equal(t, 1, w.bill(batchOf(t, later, billed(3, at))).Duplicates)
	require.Equal(t, rows[0], w.snapshots()[0], "the first one counts")
	require.Len(t, w.snapshots(), 3)
	require.Equal(t, []clusters.SnapshotMinute{{At: at, Records: 3}}, w.overview().Snapshots)
	require.Equal(t, starbase.SnapshotReceipt{Rejected: none}, w.bill(`{"snapshots":[]}`))
	require.Contains(t, w.do("POST", snapshotsPath(clusterA), w.tokens[clusterA], `{"snapshots":[]}`).body, `"rejected":[]`)
}

func TestABadRecordAmongGoodOnesIsListed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.seed()
	at := minute()
	text := func(change func(*starbase.Snapshot)) json.RawMessage {
		s := billed(50, at)
		change(&s)
		text, err := json.Marshal(s)
		require.NoError(t, err)
		return text
	}
	with := func(member string) json.RawMessage {
		return json.RawMessage(strings.Replace(string(text(func(*starbase.Snapshot) {})), "{", "{"+member+",", 1))
	}
	for name, test := range map[string]struct {
		record json.RawMessage
		reason string
	}{
		"customer_id":        {with(`"customer_id":"c"`), `there is no field "customer_id"`},
		"no workspace":       {text(func(s *starbase.Snapshot) { s.WorkspaceID = "" }), `workspace_id is "": want a UUID`},
		"no project":         {text(func(s *starbase.Snapshot) { s.ProjectID = "shop" }), `project_id is "shop"`},
		"no service":         {text(func(s *starbase.Snapshot) { s.ServiceID = "" }), `service_id is ""`},
		"a long environment": {text(func(s *starbase.Snapshot) { s.Environment = strings.Repeat("x", 40) }), `environment is`},
		"no pod":             {text(func(s *starbase.Snapshot) { s.PodID = "" }), `pod_id is ""`},
		"no id":              {text(func(s *starbase.Snapshot) { s.SnapshotID = "" }), `snapshot_id is ""`},
		"upper case":         {text(func(s *starbase.Snapshot) { s.SnapshotID = strings.ToUpper(s.SnapshotID) }), `snapshot_id is`},
		"no phase":           {text(func(s *starbase.Snapshot) { s.Phase = "" }), `phase is "": want Pending`},
		"another cluster":    {text(func(s *starbase.Snapshot) { s.ClusterID = clusterB }), `want the cluster of the path`},
		"the future":         {text(func(s *starbase.Snapshot) { s.SnapshotTimestamp = at.Add(10 * time.Minute).Format(time.RFC3339) }), `no more than 5 minutes ahead`},
		"long ago":           {text(func(s *starbase.Snapshot) { s.SnapshotTimestamp = at.Add(-49 * time.Hour).Format(time.RFC3339) }), `no more than 48 hours ago`},
		"no time":            {text(func(s *starbase.Snapshot) { s.SnapshotTimestamp = "" }), `a time of RFC 3339 in UTC`},
		"another zone":       {text(func(s *starbase.Snapshot) { s.SnapshotTimestamp = "2026-11-22T12:00:00+01:00" }), `a time of RFC 3339 in UTC`},
		"another spelling":   {text(func(s *starbase.Snapshot) { s.SnapshotTimestamp = at.Format("2006-01-02T15:04:05") + ",0Z" }), `want ` + at.Format(time.RFC3339)},
		"UTC as an offset":   {text(func(s *starbase.Snapshot) { s.SnapshotTimestamp = at.Format("2006-01-02T15:04:05") + "+00:00" }), `want ` + at.Format(time.RFC3339)},
		"less than no CPU":   {text(func(s *starbase.Snapshot) { s.CPUMillis = -1 }), `cpu_millis is -1`},
		"too much memory":    {text(func(s *starbase.Snapshot) { s.MemoryBytes = 1 << 51 }), `memory_bytes is`},
		"CPU as text":        {with(`"cpu_millis":"1"`), `cpu_millis is a JSON string`},
		"a number":           {json.RawMessage(`7`), `a JSON number`},
	} {
		before := len(w.snapshots())
		receipt := w.bill(batchOf(t, billed(before+100, at), test.record))
		require.Equal(t, 1, receipt.Accepted, name)
		require.Len(t, receipt.Rejected, 1, name)
		require.Contains(t, receipt.Rejected[0].Reason, "snapshots[1]: ", name)
		require.Contains(t, receipt.Rejected[0].Reason, test.reason, name)
		require.Len(t, w.snapshots(), before+1, "the good one is stored")

		got := w.do("POST", snapshotsPath(clusterA), w.tokens[clusterA], batchOf(t, test.record))
		require.Equal(t, 400, got.status, "%s: by itself: %s", name, got.body)
		failure := got.failure(t)
		require.Contains(t, failure.Message, test.reason, name)
		require.Contains(t, []string{"invalid", "unknown_field"}, failure.Code, name)
		require.True(t, strings.HasPrefix(failure.Fields[0].Field, "snapshots[0]."), name)
		require.Len(t, w.snapshots(), before+1, name)
	}
	bad := text(func(s *starbase.Snapshot) { s.WorkspaceID = "" })
	got := w.bill(batchOf(t, bad, billed(1, at), bad))
	require.Equal(t, []string{"snapshots[0]", "snapshots[2]"}, []string{got.Rejected[0].Reason[:12], got.Rejected[1].Reason[:12]})
	require.Equal(t, billed(50, at).SnapshotID, got.Rejected[0].SnapshotID)
}

func TestABatchThatCannotBeReadIsRefusedWhole(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.seed()
	at := minute()
	good := batchOf(t, billed(1, at))
	post := func(body string, header ...string) answer {
		return w.do("POST", snapshotsPath(clusterA), w.tokens[clusterA], body, header...)
	}
	for name, test := range map[string]struct {
		body   string
		status int
		code   string
	}{
		"cut off":         {good[:len(good)-3], 400, "malformed"},
		"a list":          {"[" + good + "]", 400, "malformed"},
		"something after": {good + "{}", 400, "malformed"},
		"no records":      {`{}`, 400, "invalid"},
		"null":            {`{"snapshots":null}`, 400, "invalid"},
		"no list":         {`{"snapshots":7}`, 400, "invalid"},
		"5,001 records":   {`{"snapshots":[` + strings.Repeat("0,", 5000) + `0]}`, 413, "too_large"},
		"8 MiB":           {strings.Repeat(" ", 8<<20) + good, 413, "too_large"},
	} {
		got := post(test.body)
		require.Equal(t, test.status, got.status, "%s: %s", name, got.body)
		require.Equal(t, test.code, got.failure(t).Code, name)
	}
	require.Equal(t, 415, post(good, "Content-Type", "text/plain").status)
	require.Equal(t, 401, w.do("POST", snapshotsPath(clusterA), "wrong", good).status)
	require.Equal(t, 403, w.do("POST", snapshotsPath(clusterA), w.tokens[clusterB], good).status)
	require.Equal(t, 403, w.do("POST", snapshotsPath(clusterC), w.tokens[clusterA], good).status)
	require.Empty(t, w.snapshots(), "nothing was stored")
	require.Equal(t, 200, post(good).status)
}

func TestAFullBatchIsStored(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.seed()
	at := minute()
	records := make([]any, manySnapshots)
	for n := range records {
		records[n] = billed(n, at)
	}
	body := batchOf(t, records...)
	require.Less(t, len(body), 8<<20)
	require.Equal(t, manySnapshots, w.bill(body).Accepted)
	require.Equal(t, manySnapshots, w.bill(body).Duplicates)
}

func TestAClusterCannotBillTheProjectOfAnother(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.seed() // projectX lives on cluster A
	mine, known := billed(1, minute()), billed(2, minute())
	mine.ClusterID, known.ClusterID = clusterB, clusterB
	known.ProjectID = "99999999-9999-4999-8999-999999999999"
	known.SnapshotID = known.ID()
	got := w.do("POST", snapshotsPath(clusterB), w.tokens[clusterB], batchOf(t, mine, known))
	require.Equal(t, 200, got.status)
	require.Contains(t, got.body, `want a project of this cluster`)
	require.Contains(t, got.body, `"accepted":1,"duplicates":0,"rejected":[{`, "one that was dropped is billed to its end")
	require.Equal(t, 400, w.do("POST", snapshotsPath(clusterB), w.tokens[clusterB], batchOf(t, mine)).status)
	require.Len(t, w.snapshots(), 1)
}

// TestAClusterCannotBillAWorkspaceThatNoProjectHas has records of a known project for its workspace, for one that
// it may have had until lately, and for a stranger.
func TestAClusterCannotBillAWorkspaceThatNoProjectHas(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.seed()
	const stranger = "99999999-9999-4999-8999-999999999999"
	n := 0
	bill := func(workspaceID, projectID string) int {
		n++
		record := billed(n, minute())
		record.WorkspaceID, record.ProjectID = workspaceID, projectID
		record.SnapshotID = record.ID()
		got := w.do("POST", snapshotsPath(clusterA), w.tokens[clusterA], batchOf(t, record))
		if got.status != 200 {
			require.Contains(t, got.body, `workspace_id is`)
			require.Contains(t, got.body, `want that of the project`)
		}
		return got.status
	}
	require.Equal(t, 200, bill(stranger, projectX), "the project was changed lately")
	require.NoError(t, w.store.Database.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.ExecContext(t.Context(), `UPDATE projects SET updated_at = ?`, time.Now().Add(-49*time.Hour).UnixMilli())
		return err
	}))
	require.Equal(t, 200, bill(workspace, projectX))
	require.Equal(t, 400, bill(stranger, projectX))
	require.Equal(t, 200, bill(stranger, stranger), "a project that was dropped is billed to its end")
	require.Len(t, w.snapshots(), 3)
}

func TestConcurrentBatchesOfTwoAgentsStoreEachRecordOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.seed()
	at := minute()
	records := make([]any, 600)
	for n := range records {
		records[n] = billed(n, at)
	}
	forward := batchOf(t, records...)
	slices.Reverse(records)
	backward := batchOf(t, records...)
	var group sync.WaitGroup
	accepted := make([]int, 6)
	for n := range accepted {
		group.Go(func() {
			body := forward
			if n%2 == 1 {
				body = backward
			}
			got := w.do("POST", snapshotsPath(clusterA), w.tokens[clusterA], body)
			if got.status != 200 {
				t.Errorf("%d %s", got.status, got.body)
				return
			}
			accepted[n] = int(got.number("accepted"))
		})
	}
	group.Wait()
	sum := 0
	for _, n := range accepted {
		sum += n
	}
	require.Equal(t, 600, sum)
	require.Len(t, w.snapshots(), 600)
}

func TestRecordsAreKeptForTheirTimeAndOutliveTheirCluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.seed()
	now := minute()
	save := func(ages ...time.Duration) {
		var records []clusters.TakenSnapshot
		for n, age := range ages {
			records = append(records, clusters.TakenSnapshot{Record: usage.Record{Snapshot: billed(n, now.Add(-age)), TakenAt: now.Add(-age)}})
		}
		_, _, err := w.store.SaveSnapshots(t.Context(), clusterA, records)
		require.NoError(t, err)
	}
	maintainer := usage.Maintainer{Database: w.store.Database}
	save(usage.RecordRetention-time.Hour, usage.RecordRetention+time.Hour, 0)
	require.Len(t, w.snapshots(), 3, "an agent does not wait until others are removed")
	require.NoError(t, maintainer.Prune(t.Context()))
	require.Len(t, w.snapshots(), 2)
	save(time.Hour)
	maintainer.RecordRetention = 48 * time.Hour
	require.NoError(t, maintainer.Prune(t.Context()))
	require.Len(t, w.snapshots(), 2, "the older one has gone")

	theirs := billed(9, now)
	theirs.ClusterID, theirs.ProjectID = clusterB, "99999999-9999-4999-8999-999999999999"
	theirs.SnapshotID = theirs.ID()
	got := w.do("POST", snapshotsPath(clusterB), w.tokens[clusterB], batchOf(t, theirs))
	require.Equal(t, 1, int(got.number("accepted")), got.body)
	require.NoError(t, w.store.Agents().Remove(t.Context(), clusterB, false))
	require.Len(t, w.snapshots(), 3, "what was used is paid for")
}

// TestHostileClustersDoNotTakeTheRecordsOfOthers has cluster B send records under the ids of
// records of cluster A, before A sends those.
func TestHostileClustersDoNotTakeTheRecordsOfOthers(t *testing.T) {
	t.Parallel()
	at := minute()
	own := billed(1, at)
	for name, forge := range map[string]func(*starbase.Snapshot){
		"a record of its own under the id": func(s *starbase.Snapshot) { s.ProjectID, s.ServiceID, s.PodID = projectY, serviceX, "pod-of-b" },
		"the record, as its own":           func(s *starbase.Snapshot) { s.WorkspaceID = workspace },
		"another minute under the id":      func(s *starbase.Snapshot) { s.SnapshotTimestamp = at.Add(-time.Minute).Format(time.RFC3339) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.seed()
			forged := own
			forged.ClusterID = clusterB
			forge(&forged)
			got := w.do("POST", snapshotsPath(clusterB), w.tokens[clusterB], batchOf(t, forged))
			require.Equal(t, 400, got.status, got.body)
			require.Equal(t, starbase.SnapshotReceipt{Accepted: 1, Rejected: []starbase.RejectedSnapshot{}}, w.bill(batchOf(t, own)))
		})
	}
}
