package main_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1/ctrlv1connect"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/stream"
	"github.com/seed-9e1ffd66/trueup/internal/bench/benchfigures"
	"github.com/seed-9e1ffd66/trueup/internal/test/pgtest"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

// BenchmarkFanout has regions follow the program while an administrator writes, each with
// the reader of krane and a connection of its own, and prints what each write took from
// the request to the region, the lost changes, and what a stream costs the program: 500 streams on
// SQLite, then 100, 1,000 and 10,000 on two replicas with PostgreSQL of which one is killed, what
// a stream costs with the most of them against the fewest, and the most once more with 25 streams for each
// region (a credential may have 32), so that 400 writes a second are 10,000 messages. TRUEUP_STREAMS is the most; default 10,000.
func BenchmarkFanout(b *testing.B) {
	program := binary(b)
	most := 10_000
	if text := os.Getenv("TRUEUP_STREAMS"); text != "" {
		n, err := strconv.Atoi(text)
		require.NoError(b, err, "TRUEUP_STREAMS")
		require.GreaterOrEqual(b, n, 100, "TRUEUP_STREAMS")
		most = n
	}
	b.Run("sqlite", func(b *testing.B) {
		for b.Loop() {
			sqlite := fanout{program: program, database: filepath.Join(b.TempDir(), "trueup.db"), replicas: 1, streams: min(500, most)}
			sqlite.run(b, "fanout")
		}
	})
	b.Run("postgres", func(b *testing.B) {
		for b.Loop() {
			var costs []cost
			for streams := 100; streams <= most; streams *= 10 {
				server := pgtest.Start(b, pgtest.Options{})
				killed := fanout{program: program, database: server.Database(b), replicas: 2, streams: streams, kill: true}
				costs = append(costs, killed.run(b, fmt.Sprintf("fanout_postgres_%d", streams)))
				server.Stop()
			}
			if len(costs) > 1 {
				book, first, last := &benchfigures.Book{Out: os.Stdout}, costs[0], costs[len(costs)-1]
				book.Add("fanout_memory_ratio", last.kib/first.kib, "ratio")
				book.Add("fanout_cpu_ratio", last.cpu/first.cpu, "ratio")
			}
		}
	})
	b.Run("messages", func(b *testing.B) {
		for b.Loop() {
			shared := fanout{
				program: program, database: pgtest.Start(b, pgtest.Options{}).Database(b), replicas: 2, kill: true,
				streams: most, readers: 25, rate: 400,
			}
			shared.run(b, "fanout_postgres_messages")
		}
	})
}

// cost is what a stream takes: memory in KiB, and at rest processor time in microseconds a second.
type cost struct{ kib, cpu float64 }

const (
	fanoutRate   = 200 // writes a second, by default
	fanoutLength = time.Minute
	fanoutRest   = 20 * time.Second // before the writes: heartbeats only
)

// fanout is one measurement.
type fanout struct {
	program, database string
	replicas, streams int
	readers, rate     int // streams of each region, and writes a second; 0 means 1, and fanoutRate
	// kill ends the first replica after a third of the writes, as by kill -9.
	kill bool

	processes []*process
	token     string
	// sent is the time of each write, and received that at each reader of its region; zero: not yet.
	sent, received []atomic.Int64
	// of is the region of each write, and moved whether a stream has lost its replica.
	of        []int
	moved     []bool
	delivered atomic.Int64
	misled    atomic.Int64 // changes that came to another region
}

func (f *fanout) run(b *testing.B, name string) cost {
	b.Helper()
	f.rate = cmp.Or(f.rate, fanoutRate)
	many := f.rate * int(fanoutLength/time.Second)
	f.readers = max(1, f.readers)
	f.streams -= f.streams % f.readers
	f.sent, f.received = make([]atomic.Int64, many), make([]atomic.Int64, many*f.readers)
	f.of, f.moved = make([]int, many), make([]bool, f.streams)
	for stream := range f.moved {
		f.moved[stream] = f.kill && f.first(stream) == 0
	}
	f.token = writeFile(b, adminToken)
	for range f.replicas {
		f.processes = append(
			f.processes,
			serveProcess(
				b,
				f.program,
				"--listen",
				"127.0.0.1:0",
				"--metrics-bind-address",
				"127.0.0.1:0",
				"--database",
				f.database,
				"--admin-token-file",
				f.token,
			),
		)
	}
	tokens := f.register(b)
	before := f.resident(b)
	ctx, cancel := context.WithCancel(b.Context())
	var followers sync.WaitGroup
	var synced atomic.Int64
	for stream := range f.streams {
		replica := f.follower(stream, tokens[stream%f.regions()], &synced)
		followers.Go(func() { _ = replica.Start(ctx) })
	}
	wait(b, "every stream is synced", func() bool { return int(synced.Load()) >= f.streams })
	after := f.resident(b)
	resting := f.processor(b)
	time.Sleep(fanoutRest)
	used := f.processor(b)
	resting = used - resting
	f.write(b)
	wait(b, "every write has come", func() bool { return int(f.delivered.Load()) == len(f.received) })
	used = f.processor(b) - used
	require.Zero(b, f.misled.Load(), "changes that came to another region")
	cancel()
	followers.Wait()
	for _, p := range f.processes {
		_ = p.command.Process.Kill() // one of them is
	}
	f.report(name, used)
	c := cost{
		kib: float64(after-before) / float64(f.streams),
		cpu: float64(resting.Microseconds()) / fanoutRest.Seconds() / float64(f.streams) * float64(f.replicas) / float64(f.counted()),
	}
	book := &benchfigures.Book{Out: os.Stdout}
	book.Add(name+"_kib_per_stream", c.kib, "KiB")
	book.Add(name+"_rest_cpu_us_per_stream_second", c.cpu, "us")
	return c
}

// regions is how many there are. The first stream of each has the number of its region, the others follow in turns.
func (f *fanout) regions() int { return f.streams / f.readers }

// first is the replica that a stream asks first.
func (f *fanout) first(stream int) int { return (stream + stream/f.regions()) % f.replicas }

// register puts the regions and returns their tokens.
func (f *fanout) register(b *testing.B) []string {
	b.Helper()
	tokens := make([]string, f.regions())
	var workers sync.WaitGroup
	next := make(chan int)
	for range 8 {
		workers.Go(func() {
			for n := range next {
				var answer struct{ Token string }
				status, body := request(
					b,
					http.DefaultClient,
					http.MethodPut,
					fmt.Sprintf("http://%s/api/v1/admin/regions/reg_%d", f.processes[0].address, n),
					adminToken,
					fmt.Sprintf(`{"name":"r-%d","platform":"aws"}`, n),
				)
				if status == http.StatusCreated && json.Unmarshal([]byte(body), &answer) == nil {
					tokens[n] = answer.Token
				}
			}
		})
	}
	for n := range tokens {
		next <- n
	}
	close(next)
	workers.Wait()
	require.NotContains(b, tokens, "", "a region was not registered")
	return tokens
}

// follower is what the agent of a region reads with.
func (f *fanout) follower(at int, token string, synced *atomic.Int64) *statesync.Replica {
	region, reader := at%f.regions(), at/f.regions()
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	next := atomic.Int64{}
	next.Store(int64(f.first(at)))
	transport.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		address := f.processes[int(next.Add(1)-1)%len(f.processes)].address // another one each time
		return (&net.Dialer{Timeout: time.Second}).DialContext(ctx, network, address)
	}
	identity := connect.WithInterceptors(signed{"Authorization": "Bearer " + token, "X-Krane-Region": fmt.Sprint("r-", region)})
	first := sync.OnceFunc(func() { synced.Add(1) })
	return &statesync.Replica{
		Source: &stream.Source{
			Client:     ctrlv1connect.NewClusterServiceClient(&http.Client{Transport: transport}, "http://control", identity),
			Collection: stream.Deployments,
		},
		Scope: fmt.Sprint("r-", region),
		Handle: func(_ context.Context, item statesync.Item) error {
			_, name := stream.Split(item.Key)
			n, err := strconv.Atoi(strings.TrimPrefix(name, "d-"))
			if err == nil && f.sent[n].Load() > 0 && f.of[n] != region {
				f.misled.Add(1)
			}
			if err == nil && f.received[n*f.readers+reader].CompareAndSwap(0, time.Now().UnixNano()) {
				f.delivered.Add(1)
			}
			return nil
		},
		OnSynced: func(statesync.Snapshot) { first() },
	}
}

// write puts one deployment after the other, each in a region by chance, whether the ones
// before were answered or not.
func (f *fanout) write(b *testing.B) {
	b.Helper()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}, Timeout: 10 * time.Second}
	defer client.CloseIdleConnections()
	random := rand.New(rand.NewPCG(1, 1))
	tick := time.NewTicker(time.Second / time.Duration(f.rate))
	defer tick.Stop()
	var writers sync.WaitGroup
	for n := range f.sent {
		<-tick.C
		if f.kill && n == len(f.sent)/3 {
			require.NoError(b, f.processes[0].command.Process.Kill())
		}
		region := random.IntN(f.regions())
		f.of[n] = region
		f.sent[n].Store(time.Now().UnixNano())
		writers.Go(func() { f.put(b, client, region, n) })
	}
	writers.Wait()
}

// put asks one replica after the other until one has taken the deployment.
func (f *fanout) put(b *testing.B, client *http.Client, region, n int) {
	b.Helper()
	body := fmt.Sprintf(
		`{"desired_state":"running","spec":{"k8s_namespace":"ws","k8s_name":"d-%d","workspace_id":"ws_1","project_id":"prj_1","app_id":"app_1","environment_id":"env_1","image":"web:1","cpu_millicores":"250","memory_mib":"256","port":8080,"git_commit_message":%q}}`,
		n,
		strings.Repeat("x", 700),
	)
	for attempt := 0; b.Context().Err() == nil; attempt++ {
		url := fmt.Sprintf("http://%s/api/v1/admin/regions/reg_%d/deployments/d_%d", f.processes[(n+attempt)%len(f.processes)].address, region, n)
		r, err := http.NewRequestWithContext(b.Context(), http.MethodPut, url, strings.NewReader(body))
		if err != nil {
			b.Error(err)
			return
		}
		r.Header.Set("Authorization", "Bearer "+adminToken)
		r.Header.Set("Content-Type", "application/json")
		response, err := client.Do(r)
		if err != nil {
			continue // it was killed
		}
		_ = response.Body.Close()
		if response.StatusCode/100 == 2 {
			return
		}
	}
}

// report prints the figures of a run.
func (f *fanout) report(name string, used time.Duration) {
	book := &benchfigures.Book{Out: os.Stdout}
	var lags, stayed, moved []float64
	lost := 0
	for message := range f.received {
		n, reader := message/f.readers, message%f.readers
		at := f.received[message].Load()
		if at == 0 {
			lost++
			continue
		}
		lag := float64(at-f.sent[n].Load()) / 1e6
		lags = append(lags, lag)
		if f.moved[reader*f.regions()+f.of[n]] {
			moved = append(moved, lag)
		} else {
			stayed = append(stayed, lag)
		}
	}
	book.Add(name+"_streams", float64(f.streams), "streams")
	book.Add(name+"_messages_per_second", float64(f.rate*f.readers), "messages")
	book.Add(name+"_lost", float64(lost), "messages")
	book.Add(name+"_lag_p50_ms", benchfigures.Percentile(lags, 0.5), "ms")
	book.Add(name+"_lag_p99_ms", benchfigures.Percentile(lags, 0.99), "ms")
	if f.kill {
		book.Add(name+"_stayed_lag_p99_ms", benchfigures.Percentile(stayed, 0.99), "ms")
		book.Add(name+"_moved_lag_p99_ms", benchfigures.Percentile(moved, 0.99), "ms")
	}
	book.Add(name+"_lag_max_ms", slices.Max(lags), "ms")
	book.Add(name+"_cpu_us_per_change", float64(used.Microseconds())/float64(len(f.sent)), "us")
}

// resident is the memory of all replicas that run, in KiB.
func (f *fanout) resident(b *testing.B) int {
	b.Helper()
	total := 0
	for _, p := range f.processes {
		total += memory(b, p.command.Process.Pid, "VmRSS")
	}
	return total
}

// counted is how many replicas processor counts.
func (f *fanout) counted() int {
	if f.kill {
		return f.replicas - 1
	}
	return f.replicas
}

// processor returns the processor time that all replicas have used. A killed replica is not
// counted: the result is the time of the others.
func (f *fanout) processor(b *testing.B) time.Duration {
	b.Helper()
	var total time.Duration
	for n, p := range f.processes {
		if f.kill && n == 0 {
			continue
		}
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.command.Process.Pid))
		require.NoError(b, err)
		fields := strings.Fields(string(stat)[strings.LastIndexByte(string(stat), ')')+1:])
		for _, ticks := range fields[11:13] { // of 10 ms, in user mode and for it in the kernel
			n, err := strconv.Atoi(ticks)
			require.NoError(b, err)
			total += time.Duration(n) * 10 * time.Millisecond
		}
	}
	return total
}

// wait waits for a condition, up to five minutes.
func wait(b *testing.B, what string, holds func() bool) {
	b.Helper()
	deadline := time.After(5 * time.Minute)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-deadline:
			b.Errorf("it did not happen: %s", what)
			return
		case <-tick.C:
		}
	}
}

// signed adds headers to each stream.
type signed map[string]string

// WrapUnary implements connect.Interceptor.
func (s signed) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc { return next }

// WrapStreamingHandler implements connect.Interceptor.
func (s signed) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

// WrapStreamingClient implements connect.Interceptor.
func (s signed) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		conn := next(ctx, spec)
		for name, value := range s {
			conn.RequestHeader().Set(name, value)
		}
		return conn
	}
}
