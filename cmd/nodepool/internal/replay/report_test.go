package replay_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/demand"
	"github.com/seed-9e1ffd66/trueup/cmd/nodepool/internal/replay"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares with a file below testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(file, got, 0o600))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err, "go test -update writes it")
	require.Equal(t, string(want), string(got), "go test -update, and look at it in a browser")
}

func report(t *testing.T, chosen int) replay.Report {
	t.Helper()
	s := settings(30, 0)
	s.Pool.SurplusTTL = 10 * time.Minute
	r, err := replay.NewReport(s, day(3, 120, 2*time.Hour), []int{0, 2, 4, 6, 8, 10}, chosen)
	require.NoError(t, err)
	return r
}

func TestTheReportOfATraceIsAPictureATableAndJSON(t *testing.T) {
	t.Parallel()
	r := report(t, 3)
	require.Len(t, r.Results, 7, "the chosen one is among them")
	golden(t, "report.svg", r.SVG())
	require.Equal(t, r.SVG(), report(t, 3).SVG(), "the same input gives the same bytes")
	var table bytes.Buffer
	require.NoError(t, r.WriteTable(&table))
	golden(t, "report.txt", table.Bytes())

	var out bytes.Buffer
	require.NoError(t, r.WriteJSON(&out))
	var back struct {
		Chosen  int
		Results []struct {
			MinStandby   int
			HitShare     float64
			WaitSeconds  map[string]float64
			MachineHours map[string]float64
			Cost         float64
		}
	}
	require.NoError(t, json.Unmarshal(out.Bytes(), &back))
	require.Equal(t, 3, back.Chosen)
	require.Len(t, back.Results, 7)
	require.InDelta(t, r.Results[2].Wait.P95.Seconds(), back.Results[2].WaitSeconds["p95"], 1e-9)
	require.Len(t, back.Results[2].MachineHours, 5)
}

func TestAPictureIsWellFormedAndRunsNothing(t *testing.T) {
	t.Parallel()
	picture := report(t, -1).SVG()
	for d := xml.NewDecoder(bytes.NewReader(picture)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if e, ok := token.(xml.StartElement); ok {
			require.Contains(t, []string{"svg", "rect", "line", "path", "text", "circle"}, e.Name.Local)
		}
	}
	for _, text := range []string{"waiting time p95 (", "cost of the trace", "minStandby (machines)", "machines", "pods waiting", "standby", "warming up", `fill="#ffffff"`} {
		require.Contains(t, string(picture), text)
	}
}

func TestWithoutAChoiceTheLeastThatIsEnoughIsDrawn(t *testing.T) {
	t.Parallel()
	r := report(t, -1)
	require.GreaterOrEqual(t, r.Enough, 0)
	require.Equal(t, r.Enough, r.Chosen)
	for _, one := range r.Results {
		if one.MinStandby < r.Enough {
			require.Greater(t, one.Wait.P95, boot)
		}
		if one.MinStandby == r.Enough {
			require.LessOrEqual(t, one.Wait.P95, boot)
		}
	}
	s := settings(1, 0)
	late, err := replay.NewReport(s, []replay.Pod{onePod("a", 0, time.Minute)}, []int{0}, -1)
	require.NoError(t, err)
	require.Equal(t, []int{-1, 0}, []int{late.Enough, late.Chosen})
	var table bytes.Buffer
	require.NoError(t, late.WriteTable(&table))
	require.Contains(t, table.String(), "With none of these")
}

func TestATypeThatIsNotKnownAndPodsThatFitNowhereAreSaid(t *testing.T) {
	t.Parallel()
	s := settings(3, 1)
	s.Capacity, s.InstanceType, s.Price, s.PriceStopped = demand.Resources{}, "x1.huge", 0, 0
	r, err := replay.NewReport(s, []replay.Pod{onePod("a", 0, time.Minute), onePod("b", 0, time.Minute)}, []int{2}, -1)
	require.NoError(t, err)
	require.Equal(t, 2, r.Results[0].Started, "a machine for each pod")
	var table bytes.Buffer
	require.NoError(t, r.WriteTable(&table))
	require.Contains(t, table.String(), `"x1.huge" has room for is not known`)
	require.NotContains(t, table.String(), "COST")
	require.Contains(t, string(r.SVG()), "machine-hours")

	s.InstanceType = "m5.large"
	large := onePod("large", 0, time.Minute)
	large.Requests.CPU = 2000
	r, err = replay.NewReport(s, []replay.Pod{large, onePod("b", 0, time.Minute)}, []int{1}, 1)
	require.NoError(t, err)
	table.Reset()
	require.NoError(t, r.WriteTable(&table))
	require.Contains(t, table.String(), "1 pods fit on no machine of the type and are left out, such as large.")
}

func TestARangeHasAtMostTwelveValuesWithBothEnds(t *testing.T) {
	t.Parallel()
	require.Equal(t, []int{0, 1, 2}, replay.Range(0, 2))
	require.Equal(t, []int{5}, replay.Range(5, 5))
	require.Len(t, replay.Range(0, 11), 12)
	for last := 12; last < 600; last++ {
		all := replay.Range(0, last)
		require.Len(t, all, 12)
		require.Equal(t, []int{0, last}, []int{all[0], all[11]})
		for i := range all[1:] {
			require.Greater(t, all[i+1], all[i])
		}
	}
}

const manifest = `apiVersion: stratos.sh/v1alpha1
kind: NodePool
metadata: {name: workers}
spec:
  poolSize: 24
  minStandby: 3
  reconciliationInterval: 15s
  maxNodeRuntime: 24h
  template:
    nodeClassRef: {kind: AWSNodeClass, name: workers}
  preWarm: {timeout: 6m}
  scaleUp: {defaultPodResources: {requests: {cpu: 250m, memory: 1Gi}}}
  scaleDown: {enabled: false, emptyNodeTTL: 7m, drainTimeout: 2m, surplusStandbyTTL: 20m}
---
apiVersion: stratos.sh/v1alpha1
kind: AWSNodeClass
metadata: {name: workers}
spec: {instanceType: m5.large, kubelet: {maxPods: 17}}
`

func TestTheSettingsOfAManifestAreThoseOfItsSpec(t *testing.T) {
	t.Parallel()
	s, err := replay.ReadManifest(strings.NewReader(manifest))
	require.NoError(t, err)
	require.Equal(t, replay.Settings{
		Pool: cloud.Pool{
			Size: 24, MinStandby: 3, WarmupTimeout: 6 * time.Minute, KeepEmpty: true, EmptyTTL: 7 * time.Minute,
			DrainTimeout: 2 * time.Minute, MaxRuntime: 24 * time.Hour, SurplusTTL: 20 * time.Minute,
		},
		DefaultRequests: demand.Resources{CPU: 250, Memory: 1 << 30}, Interval: 15 * time.Second, InstanceType: "m5.large",
		Capacity: demand.Resources{CPU: 1600, Memory: 8 << 30 * 8 / 10, EphemeralStorage: 16 << 30, Pods: 17},
	}, s)
	require.NoError(t, s.Validate())
	for wrong, text := range map[string]string{
		strings.Replace(manifest, "poolSize", "size", 1):                 `document 1: error unmarshaling JSON: while decoding JSON: json: unknown field "size"`,
		strings.Replace(manifest, "emptyNodeTTL: 7m", "emptyTTL: 7m", 1): `unknown field "emptyTTL"`,
		strings.Replace(manifest, "v1alpha1", "v1", 1):                   `document 1: apiVersion: is "stratos.sh/v1", must be stratos.sh/v1alpha1`,
		strings.Replace(manifest, "kind: NodePool", "kind: Pool", 1):     `kind: is "Pool", must be NodePool or AWSNodeClass`,
		manifest + "---\n" + manifest:                                    "document 3: is a second NodePool",
		"":                                                               "no NodePool",
		"]":                                                              "document 1",
	} {
		_, err := replay.ReadManifest(strings.NewReader(wrong))
		require.ErrorContains(t, err, text)
	}
}
