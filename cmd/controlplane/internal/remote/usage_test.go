package remote_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
)

// TestAPersonReadsWhatWasUsed sends records as an agent does, and reads their sums.
func TestAPersonReadsWhatWasUsed(t *testing.T) {
	t.Parallel()
	s, plane := newShell(t)
	var registered struct{ Token string }
	require.NoError(t, json.Unmarshal([]byte(s.must("region: nyc3", "put cluster "+cluster+" -o json -f -")), &registered))
	const workspace = "22222222-2222-4222-8222-222222222222"
	yesterday := time.Now().UTC().Truncate(24 * time.Hour).Add(-12 * time.Hour)
	var records []starbase.Snapshot
	for _, minute := range []int{0, 1, 2, 7, 8} {
		for _, pod := range []string{"a", "b"} {
			r := starbase.Snapshot{
				WorkspaceID: workspace, ProjectID: project, Environment: "production", ServiceID: service, PodID: pod, Tier: "nova",
				Phase: "Running", ClusterID: cluster, CPUMillis: 250, MemoryBytes: 1 << 29,
				SnapshotTimestamp: yesterday.Add(time.Duration(minute) * time.Minute).Format(time.RFC3339),
			}
			r.SnapshotID = r.ID()
			records = append(records, r)
		}
	}
	batch, err := json.Marshal(map[string]any{"snapshots": records})
	require.NoError(t, err)
	ask(t, "POST", "http://"+plane.Address+"/api/v1/clusters/"+cluster+"/snapshots", registered.Token, string(batch))

	ask(t, "POST", "http://"+plane.Address+"/api/v1/clusters/"+cluster+"/capacity", registered.Token,
		`{"cluster_id":"`+cluster+`","current_pod_count":2,"soft_limit":800,"timestamp":"`+yesterday.Format(time.RFC3339)+`"}`)

	date := yesterday.Format(time.DateOnly)
	require.Equal(t, [][]string{
		{"DAY", "WORKSPACE", "POD-MINUTES", "CPU-MILLI-MINUTES", "MEMORY-BYTE-MINUTES", "FINAL"},
		{date, workspace, "10", "2500", "5368709120", "false"},
	}, cells(s.must("", "list usage --from "+date+" --by day,workspace")))
	require.Equal(t, [][]string{
		{
			"DAY",
			"CLUSTER",
			"WORKSPACE",
			"PROJECT",
			"ENVIRONMENT",
			"SERVICE",
			"PHASE",
			"POD-MINUTES",
			"CPU-MILLI-MINUTES",
			"MEMORY-BYTE-MINUTES",
			"FINAL",
		},
		{date, cluster, workspace, project, "production", service, "Running", "10", "2500", "5368709120", "false"},
	}, cells(s.must("", "list usage --from "+date+" --project "+project)))
	require.Equal(t, "pod_minutes,cpu_milli_minutes,memory_byte_minutes,final\n10,2500,5368709120,false\n",
		s.must("", "list usage --by none -o csv --from "+date))
	for _, none := range []string{"--phase Pending", "--service " + project, "--environment staging", "--workspace " + project, "--cluster " + project} {
		require.Len(t, cells(s.must("", "list usage --from "+date+" "+none)), 1, none)
	}

	gaps := cells(s.must("", "list usage-gaps --from "+date+" --to "+time.Now().UTC().Format(time.DateOnly)))
	require.Equal(t, [][]string{
		{"CLUSTER", "REASON", "FROM", "TO", "MINUTES"},
		{cluster, "Silent", yesterday.Add(3 * time.Minute).Format(time.RFC3339), yesterday.Add(7 * time.Minute).Format(time.RFC3339), "4"},
	}, gaps[:2])

	require.Equal(t, "service_id,environment,service_name,image,replicas,deleted\n", func() string {
		s.fill()
		first, _, _ := strings.Cut(s.must("", "list services "+project+" -o csv"), "\n")
		return first + "\n"
	}())
	for line, want := range map[string]string{
		"list usage --from " + date + " -o csv --limit 1 --by day,phase": "",
		"list usage --from " + date + " -o xml":                          `--output: is "xml", must be json, yaml or csv`,
		"list clusters --by day":                                         "--by: is for usage, not for clusters",
		"list usage-gaps --by day":                                       "--by: is for usage, not for usage-gaps",
		"list usage --from soon":                                         `from is "soon": want a day`,
		"get config " + cluster + " -o csv":                              "--output: is csv, which is for list; must be json or yaml",
		"watch usage -o csv":                                             "unknown shorthand flag",
	} {
		code, out, errs := s.run("", line)
		if want == "" {
			require.Zero(t, code, errs)
			continue
		}
		require.NotZero(t, code, line)
		require.Empty(t, out, line)
		require.Contains(t, errs, want, line)
	}
	code, out, errs := s.run("", "list audit -o csv --limit 1")
	require.Equal(t, 2, code)
	require.Empty(t, out)
	require.Contains(t, errs, "--limit: is 1, and there are more; a part of a table is not printed")
}
