package snapshot_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"iter"
	"runtime"
	"testing"
	"time"

	"github.com/seed-9e1ffd66/trueup/snapshot"
)

// pod is what a record is made of.
type pod struct{ workspace, project, environment, service, uid, tier, phase string }

// billing is a record with the fields of one.
type billing struct {
	ID          string `json:"snapshot_id"`
	Workspace   string `json:"workspace_id"`
	Project     string `json:"project_id"`
	Environment string `json:"environment"`
	Service     string `json:"service_id"`
	Pod         string `json:"pod_id"`
	Tier        string `json:"tier"`
	Phase       string `json:"phase"`
	Cluster     string `json:"cluster_id"`
	At          string `json:"snapshot_timestamp"`
	CPU         int64  `json:"cpu_millis"`
	Memory      int64  `json:"memory_bytes"`
}

func pods(n int) []pod {
	uuid := func(n int) string { return fmt.Sprintf("3f0c9d6e-8a51-4c77-9b1e-%012d", n) }
	list := make([]pod, n)
	for i := range list {
		list[i] = pod{uuid(i % 300), uuid(i % 700), "production", uuid(i % 1500), uuid(i), "nova", "Running"}
	}
	return list
}

const cluster = "7d1c9d6e-8a51-4c77-9b1e-000000000001"

func (p *pod) record(id, at string) billing {
	return billing{id, p.workspace, p.project, p.environment, p.service, p.uid, p.tier, p.phase, cluster, at, 250, 512 << 20}
}

// discard takes everything, and looks at the memory in use with the first and the last
// batch.
type discard struct {
	records int
	heap    uint64
}

func (d *discard) Send(_ context.Context, records []json.RawMessage) (snapshot.Receipt, error) {
	d.records += len(records)
	if d.heap == 0 {
		return snapshot.Receipt{Accepted: len(records)}, nil
	}
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	d.heap = max(d.heap, m.HeapAlloc)
	return snapshot.Receipt{Accepted: len(records)}, nil
}

// record runs one instant.
func record(b *testing.B, list []pod, to snapshot.Sink) {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	r := &snapshot.Recorder[billing]{
		Period: time.Hour, Sink: to,
		Collect: func(_ context.Context, at time.Time) (iter.Seq[billing], error) {
			instant := at.Format(time.RFC3339)
			return func(yield func(billing) bool) {
				for i := range list {
					p := &list[i]
					if !yield(p.record(snapshot.ID(p.project, p.service, p.uid, instant), instant)) {
						return
					}
				}
			}, nil
		},
		OnPass: func(p snapshot.Pass) {
			cancel()
			if p.Err != nil || p.Accepted != len(list) {
				b.Errorf("%+v", p)
			}
		},
	}
	if err := r.Start(ctx); err != nil {
		b.Fatal(err)
	}
}

// bare is what cannot be done without: the hash and the encoding.
func bare(b *testing.B, list []pod) {
	b.Helper()
	instant, size := time.Now().UTC().Truncate(time.Hour).Format(time.RFC3339), 0
	for i := range list {
		p := &list[i]
		sum := sha256.Sum256([]byte(p.project + p.service + p.uid + instant))
		text, err := json.Marshal(p.record(hex.EncodeToString(sum[:]), instant))
		if err != nil {
			b.Fatal(err)
		}
		size += len(text)
	}
	if size == 0 {
		b.Fatal("nothing was encoded")
	}
}

// BenchmarkEncode compares collecting, identifying and encoding with hash and encoding
// alone, in turns.
func BenchmarkEncode(b *testing.B) {
	list := pods(100_000)
	var ours, least time.Duration
	b.ReportAllocs()
	for b.Loop() {
		begin := time.Now()
		record(b, list, &discard{})
		middle := time.Now()
		bare(b, list)
		ours, least = ours+middle.Sub(begin), least+time.Since(middle)
	}
	fmt.Printf("figure snapshot_encode_ratio %.2f x\n", float64(ours)/float64(least))
	b.ReportMetric(float64(ours.Nanoseconds())/float64(b.N)/float64(len(list)), "ns/record")
}

// BenchmarkMemory compares the memory in use while ten times as many records are sent.
func BenchmarkMemory(b *testing.B) {
	grown := func(n int) float64 {
		list := pods(n)
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		d := &discard{heap: m.HeapAlloc}
		record(b, list, d)
		runtime.KeepAlive(list)
		return float64(d.heap - m.HeapAlloc)
	}
	for b.Loop() {
		few, many := grown(10_000), grown(100_000)
		fmt.Printf("figure snapshot_memory_100000_kib %.0f KiB\nfigure snapshot_memory_ratio %.2f x\n", many/1024, many/few)
	}
}
