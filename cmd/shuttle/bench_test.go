package main_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/internal/test/process"
)

// BenchmarkShuttle measures the agent, with its default intervals, beside the real control
// plane: how long it takes from nothing to 1,000 services that are applied, and its
// resident memory with 500, 5,000 and 10,000 pods once all is at rest. kubectl then applies the objects of
// the 1,000 services, twice, into a namespace that is as empty as the agent's was.
func BenchmarkShuttle(b *testing.B) {
	for range b.N {
		s := newSystem(b, 100)
		s.measure(b, "500", 250, 2, 60)
		s.measure(b, "5000", 1000, 5, 150)
		s.measure(b, "10000", 1000, 10, 200)
		s.peer(b, 1000)
	}
}

// measure has so many services with so many pods each run, from a cluster of its own id
// on, and takes all away again.
func (s *system) measure(b *testing.B, name string, services, pods int, most float64) {
	b.Helper()
	dir := b.TempDir()
	s.database, s.group = filepath.Join(dir, "trueup.db"), process.NewGroup(dir)
	b.Cleanup(s.group.Close)
	server, control := s.startControlPlane(b, "controlplane", "127.0.0.1:0")
	s.register(b, control)
	var puts sync.WaitGroup
	turns := make(chan struct{}, 4)
	for n := range services {
		turns <- struct{}{}
		puts.Go(func() {
			defer func() { <-turns }()
			control.do(
				b,
				http.MethodPut,
				fmt.Sprintf("projects/%s/services/00000000-0000-4000-8001-%012d/production", projectID, n),
				fmt.Sprintf(
					`{"service_name":"web-%d","image":"example.com/web:1","replicas":%d,"env":{"MODE":"bench"},"ports":[{"container_port":8080}]}`,
					n,
					pods,
				),
			)
		})
	}
	puts.Wait()
	var cluster struct{ Generation int64 }
	require.NoError(b, json.Unmarshal([]byte(control.do(b, http.MethodGet, "clusters/"+clusterID, "")), &cluster))

	began := time.Now()
	agent := s.startAgent(b, control, "STARFORM_RECONCILE_INTERVAL=30s")
	s.until(b, agent, "starform_applied_generation", func(v float64) bool { return v >= float64(cluster.Generation) })
	took := time.Since(began)
	s.until(b, agent, "starform_snapshots_sent_total", func(v float64) bool { return v >= float64(services*pods) })
	before := s.sum(b, agent, "starform_writes_total")
	s.until(b, agent, "starform_passes_total", atLeast(s.sum(b, agent, "starform_passes_total")+4))
	resident := s.sum(b, agent, "process_resident_memory_bytes") / (1 << 20)
	fmt.Printf("figure shuttle_converge_%d_services_s %.1f s\n", services, took.Seconds())
	fmt.Printf("figure shuttle_rss_%s_mib %.1f MiB\n", name, resident)
	writes := s.sum(b, agent, "starform_writes_total") - before
	fmt.Printf("figure shuttle_writes_at_rest_%s %.0f writes\n", name, writes)
	require.GreaterOrEqual(b, before, float64(services), "its writes are counted")
	require.Zero(b, writes, "writes at rest")
	if resident > most {
		b.Logf("%.1f MiB with %s pods is above the mark of %.0f", resident, name, most)
	}
	require.NoError(b, agent.Stop(20*time.Second))
	require.NoError(b, server.Stop(15*time.Second))
	s.applied = s.objects(b)
	s.kubectl(b, "delete", "namespace", namespace, "--timeout=10m")
}

// peerNamespace is where kubectl applies.
const peerNamespace = "peer"

// objects returns what the agent has applied as a person would have written it, for another namespace.
func (s *system) objects(b *testing.B) []byte {
	b.Helper()
	var list unstructured.UnstructuredList
	kinds := "serviceaccounts,configmaps,services,deployments.apps,statefulsets.apps,networkpolicies.networking.k8s.io"
	out := s.kubectl(b, "get", kinds, "--namespace", namespace, "--selector", "starform.io/managed-by=shuttle", "--output", "json")
	require.NoError(b, list.UnmarshalJSON([]byte(out)))
	for i := range list.Items {
		object := list.Items[i].Object
		object["metadata"] = map[string]any{
			"name": list.Items[i].GetName(), "namespace": peerNamespace, "labels": object["metadata"].(map[string]any)["labels"],
		}
		delete(object, "status")
		for _, field := range []string{"clusterIP", "clusterIPs"} {
			unstructured.RemoveNestedField(object, "spec", field)
		}
	}
	data, err := list.MarshalJSON()
	require.NoError(b, err)
	return data
}

// peer applies the objects of the agent with kubectl: from nothing, and once more.
func (s *system) peer(b *testing.B, services int) {
	b.Helper()
	file := filepath.Join(b.TempDir(), "objects.json")
	require.NoError(b, os.WriteFile(file, s.applied, 0o600))
	s.kubectl(b, "create", "namespace", peerNamespace)
	for _, what := range []string{"converge", "again"} {
		began := time.Now()
		s.kubectl(b, "apply", "--server-side", "--filename", file)
		fmt.Printf("figure kubectl_%s_%d_services_s %.1f s\n", what, services, time.Since(began).Seconds())
	}
	s.kubectl(b, "delete", "namespace", peerNamespace, "--timeout=10m")
}

func atLeast(least float64) func(float64) bool { return func(v float64) bool { return v >= least } }

// sum returns the sum of a metric of the agent over its labels.
func (s *system) sum(b *testing.B, agent *process.Process, metric string) (sum float64) {
	b.Helper()
	for line := range strings.Lines(s.metrics(b, agent)) {
		fields := strings.Fields(line)
		if name, _, _ := strings.Cut(line, "{"); len(fields) == 2 && (name == metric || fields[0] == metric) {
			value, err := strconv.ParseFloat(fields[1], 64)
			require.NoError(b, err)
			sum += value
		}
	}
	return sum
}

func (s *system) until(b *testing.B, agent *process.Process, metric string, holds func(float64) bool) {
	b.Helper()
	await.Until(b, 4*await.Hang, metric, func() bool { return holds(s.sum(b, agent, metric)) })
}
