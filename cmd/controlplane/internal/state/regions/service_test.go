package regions_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1/ctrlv1connect"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/limits"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/adminapi"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/openapi/openapitest"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/regions"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/internal/test/pgtest"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

const (
	bearer = "the-shared-bearer-of-the-tests"
	eu, us = "reg_eu", "reg_us"
)

// world is a service on a real database, with two regions.
type world struct {
	t        *testing.T
	database *db.Database
	store    *regions.Store
	url      string
	tokens   map[string]string
	registry *prometheus.Registry
	service  *regions.Service
}

// each runs test on both databases, at the same time.
func each(t *testing.T, test func(w *world)) {
	t.Helper()
	for name, open := range databases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(newWorld(t, open(t)))
		})
	}
}

// eachAlone is each for a test of what the whole process does, such as its heap: nothing
// else runs meanwhile.
func eachAlone(t *testing.T, test func(w *world)) {
	t.Helper()
	for name, open := range databases() {
		t.Run(name, func(t *testing.T) { test(newWorld(t, open(t))) })
	}
}

func databases() map[string]func(*testing.T) *db.Database {
	return map[string]func(*testing.T) *db.Database{
		"SQLite": func(t *testing.T) *db.Database {
			t.Helper()
			database, err := db.SQLite{Path: filepath.Join(t.TempDir(), "trueup.db")}.Open(t.Context())
			require.NoError(t, err)
			return database
		},
		"PostgreSQL": func(t *testing.T) *db.Database {
			t.Helper()
			database, err := db.PostgreSQL{URL: pgtest.NewDatabase(t)}.Open(t.Context())
			require.NoError(t, err)
			return database
		},
	}
}

func newWorld(t *testing.T, database *db.Database) *world {
	t.Helper()
	t.Cleanup(func() { require.NoError(t, database.Close()) })
	w := &world{t: t, database: database, store: &regions.Store{Database: database}, tokens: map[string]string{}}
	w.url = w.serve(database)
	for id, name := range map[string]string{eu: "eu-1", us: "us-1"} {
		token, created, err := w.store.PutRegion(t.Context(), regions.Region{ID: id, Name: name, Platform: "aws"}, false)
		require.NoError(t, err)
		require.True(t, created)
		w.tokens[id] = token
	}
	return w
}

// serve starts one replica on the database and returns its URL.
func (w *world) serve(database *db.Database) string {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	feed := &statesync.Server{Log: database.Log, Heartbeat: 100 * time.Millisecond}
	w.registry = prometheus.NewRegistry()
	usage, err := limits.New(limits.Config{Registerer: w.registry})
	require.NoError(w.t, err)
	service, err := regions.New(
		regions.Config{
			Database:   database,
			Feed:       feed,
			Bearer:     bearer,
			Limits:     usage,
			Logger:     slog.New(slog.DiscardHandler),
			Registerer: w.registry,
		},
	)
	require.NoError(w.t, err)
	w.service = service
	ended := make(chan error, 3)
	go func() { ended <- service.Start(ctx) }()
	go func() { ended <- database.Log.Start(ctx) }()
	go func() { ended <- feed.Start(ctx) }()
	handler := http.NewServeMux()
	service.Mount(handler)
	web := httptest.NewUnstartedServer(openapitest.Handler(w.t, handler))
	web.Config.Protocols = new(http.Protocols)
	web.Config.Protocols.SetHTTP1(true)
	web.Config.Protocols.SetUnencryptedHTTP2(true)
	web.Start()
	w.t.Cleanup(func() {
		cancel()
		for range cap(ended) {
			require.NoError(w.t, <-ended)
		}
		web.Close()
	})
	return web.URL
}

// admin returns the administration, each of whose answers the reference must describe.
func (w *world) admin() http.Handler {
	api := &adminapi.API{Logger: slog.New(slog.DiscardHandler), Conditions: regions.AdminConditions()}
	return openapitest.Handler(w.t, api.Mux(regions.AdminRoutes(w.store)))
}

// client returns one with these headers.
func (w *world) client(token, region string, more ...string) ctrlv1connect.ClusterServiceClient {
	w.t.Helper()
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	w.t.Cleanup(transport.CloseIdleConnections)
	headers := append([]string{"Authorization", token, "X-Krane-Region", region}, more...)
	return ctrlv1connect.NewClusterServiceClient(&http.Client{Transport: headed{transport, headers}}, w.url)
}

type headed struct {
	http.RoundTripper
	headers []string
}

func (h headed) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for n := 0; n < len(h.headers); n += 2 {
		if h.headers[n+1] != "" {
			r.Header.Set(h.headers[n], h.headers[n+1])
		}
	}
	return h.RoundTripper.RoundTrip(r)
}

func (w *world) agent() ctrlv1connect.ClusterServiceClient {
	w.t.Helper()
	return w.client("Bearer "+w.tokens[eu], "eu-1")
}

func deployment(name, image string) json.RawMessage {
	return json.RawMessage(
		fmt.Sprintf(
			`{"k8s_namespace":"ws","k8s_name":%q,"workspace_id":"ws_1","project_id":"prj_1","app_id":"app_1","environment_id":"env_1","image":%q,"cpu_millicores":"250","memory_mib":"256","port":8080}`,
			name,
			image,
		),
	)
}

func (w *world) put(id, state string, spec json.RawMessage) {
	w.t.Helper()
	_, err := w.store.PutDeployment(w.t.Context(), eu, id, regions.Wanted{State: state, Spec: spec})
	require.NoError(w.t, err)
	// A client that asks too soon may see the old state: wait for the number.
	await.Eventually(w.t, "what it waits for, at ./cmd/controlplane/internal/state/regions/service_test.go", func() bool {
		page, err := w.database.Log.Read(w.t.Context(), "eu-1", 0, 1000)
		require.NoError(w.t, err)
		for _, i := range page.Items {
			if i.ID == id {
				var value struct {
					State string
					Apply json.RawMessage
				}
				require.NoError(w.t, json.Unmarshal(i.Value, &value))
				return value.State == state && (spec == nil || strings.Contains(string(value.Apply), image(spec)))
			}
		}
		return false
	})
}

func image(spec json.RawMessage) string {
	var value struct{ Image string }
	_ = json.Unmarshal(spec, &value)
	return fmt.Sprintf("%q", value.Image)
}

// watch reads deployments until enough returns true.
func (w *world) watch(r *ctrlv1.WatchDeploymentsRequest, enough func(*ctrlv1.DeploymentState) bool) error {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 50*time.Second)
	defer cancel()
	stream, err := w.agent().WatchDeployments(ctx, connect.NewRequest(r))
	require.NoError(w.t, err)
	for stream.Receive() {
		if enough(stream.Msg()) {
			cancel()
			_ = stream.Close()
			return nil
		}
	}
	return stream.Err()
}

func TestAStreamBringsWhatIsWantedAndThenWhatChanges(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.put("d_1", "running", deployment("one", "one:1"))
		w.put("d_2", "running", deployment("two", "two:1"))
		w.put("d_2", "stopped", nil)
		var seen []string
		var epoch, lines string
		var last uint64
		err := w.watch(&ctrlv1.WatchDeploymentsRequest{Markers: true}, func(m *ctrlv1.DeploymentState) bool {
			switch {
			case m.GetApply() != nil:
				seen = append(seen, "apply "+m.GetApply().GetImage())
				lines += fmt.Sprintf("ws/%s %d apply\n", m.GetApply().GetK8SName(), m.GetVersion())
			case m.GetDelete() != nil:
				seen = append(seen, "delete "+m.GetDelete().GetK8SName())
				lines += fmt.Sprintf("ws/%s %d delete\n", m.GetDelete().GetK8SName(), m.GetVersion())
			case m.GetSynced() != nil:
				seen, epoch = append(seen, fmt.Sprintf("synced %d", m.GetSynced().GetCount())), m.GetSynced().GetEpoch()
				sum := sha256.Sum256([]byte(lines))
				require.Equal(w.t, sum[:], m.GetSynced().GetDigest(), lines)
				w.put("d_1", "running", deployment("one", "one:2"))
			}
			last = max(last, m.GetVersion())
			return len(seen) == 4
		})
		require.NoError(w.t, err)
		require.Equal(w.t, []string{"apply one:1", "delete two", "synced 2", "apply one:2"}, seen)

		// Resume: nothing older is sent again.
		w.put("d_3", "running", deployment("three", "three:1"))
		seen = nil
		require.NoError(
			w.t,
			w.watch(&ctrlv1.WatchDeploymentsRequest{Markers: true, VersionLastSeen: last, Epoch: epoch}, func(m *ctrlv1.DeploymentState) bool {
				if m.GetBookmark() != nil { // nothing has come for some time
					return false
				}
				seen = append(seen, m.GetApply().GetImage())
				return true
			}),
		)
		require.Equal(w.t, []string{"three:1"}, seen)
	})
}

func TestAnAgentWithoutMarkersSeesNone(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.put("d_1", "running", deployment("one", "one:1"))
		var messages int
		require.NoError(w.t, w.watch(&ctrlv1.WatchDeploymentsRequest{Region: "eu-1"}, func(m *ctrlv1.DeploymentState) bool {
			require.Nil(w.t, m.GetSynced())
			require.Nil(w.t, m.GetBookmark())
			if messages++; messages == 1 {
				w.put("d_1", "archived", nil)
			}
			return m.GetDelete() != nil
		}))
		require.Equal(w.t, 2, messages)
	})
}

func TestARowThatCannotBeSentHoldsUpNothing(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.put("d_1", "running", deployment("one", "one:1"))
		err := w.database.Write(w.t.Context(), func(tx *db.Tx) error {
			if _, err := tx.ExecContext(w.t.Context(), `UPDATE deployment_topology SET desired_state = 'weird'`); err != nil {
				return err
			}
			return w.database.Log.Append(w.t.Context(), tx.Tx, statesync.Change{
				Scope: "eu-1", Key: statesync.Key{Collection: "deployments", ID: "d_1"}, Value: json.RawMessage(`{"state":"weird","apply":{}}`),
			})
		})
		require.NoError(w.t, err)
		w.put("d_2", "running", deployment("two", "two:1"))
		var names []string
		require.NoError(w.t, w.watch(&ctrlv1.WatchDeploymentsRequest{Markers: true}, func(m *ctrlv1.DeploymentState) bool {
			if m.GetApply() != nil {
				names = append(names, m.GetApply().GetK8SName())
			}
			return m.GetSynced() != nil && m.GetSynced().GetCount() == 1
		}))
		require.Equal(w.t, []string{"two"}, names)
		_, err = w.agent().
			GetDesiredDeploymentState(w.t.Context(), connect.NewRequest(&ctrlv1.GetDesiredDeploymentStateRequest{DeploymentId: "d_1"}))
		require.Equal(w.t, connect.CodeInternal, connect.CodeOf(err))
	})
}

// TestEveryRPCIsGuarded calls each method of the service by reflection, so that
// a new one cannot be forgotten.
func TestEveryRPCIsGuarded(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		methods := reflect.TypeFor[ctrlv1connect.ClusterServiceClient]()
		require.Equal(w.t, 9, methods.NumMethod())
		for _, c := range []struct {
			name, token, region string
			code                connect.Code
		}{
			{"no header", "", "eu-1", connect.CodeUnauthenticated},
			{"another scheme", "Basic " + bearer, "eu-1", connect.CodeUnauthenticated},
			{"another token", "Bearer nobody-has-this-token", "eu-1", connect.CodeUnauthenticated},
			{"no region", "Bearer " + bearer, "", connect.CodeInvalidArgument},
			{"blank region", "Bearer " + bearer, " ", connect.CodeInvalidArgument},
			{"unknown region", "Bearer " + bearer, "mars-1", connect.CodeFailedPrecondition},
			{"another's region", "Bearer " + w.tokens[us], "eu-1", connect.CodePermissionDenied},
		} {
			client := reflect.ValueOf(w.client(c.token, c.region))
			for n := range methods.NumMethod() {
				method := methods.Method(n)
				err := call(w.t.Context(), client.Method(n))
				require.Equal(w.t, c.code.String(), connect.CodeOf(err).String(), "%s: %s: %v", method.Name, c.name, err)
				if c.code == connect.CodeFailedPrecondition {
					require.Equal(w.t, "unknown-region", reason(err), method.Name)
				}
			}
		}
	})
}

// call calls one method of a client with an empty request, and returns how it
// ended.
func call(ctx context.Context, method reflect.Value) error {
	message := reflect.New(method.Type().In(1).Elem().Field(0).Type.Elem())
	request := reflect.New(method.Type().In(1).Elem())
	request.Elem().FieldByName("Msg").Set(message)
	results := method.Call([]reflect.Value{reflect.ValueOf(ctx), request})
	if err, _ := results[1].Interface().(error); err != nil {
		return err
	}
	stream, ok := results[0].Interface().(interface {
		Receive() bool
		Err() error
		Close() error
	})
	if !ok {
		return nil
	}
	stream.Receive()
	return errors.Join(stream.Err(), stream.Close())
}

func reason(err error) string {
	var failure *connect.Error
	if !errors.As(err, &failure) {
		return ""
	}
	for _, detail := range failure.Details() {
		value, err := detail.Value()
		if m, ok := value.(*ctrlv1.ErrorDetail); ok && err == nil {
			return m.GetReason()
		}
	}
	return ""
}

func TestACursorThatCannotBeResumedIsToldSo(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.put("d_1", "running", deployment("one", "one:1"))
		var epoch string
		require.NoError(w.t, w.watch(&ctrlv1.WatchDeploymentsRequest{Markers: true}, func(m *ctrlv1.DeploymentState) bool {
			epoch = m.GetSynced().GetEpoch()
			return epoch != ""
		}))
		never := func(*ctrlv1.DeploymentState) bool { return false }
		for name, r := range map[string]*ctrlv1.WatchDeploymentsRequest{
			"of the future":    {Markers: true, VersionLastSeen: 99, Epoch: epoch},
			"of another epoch": {Markers: true, VersionLastSeen: 1, Epoch: "another"},
			"without markers":  {VersionLastSeen: 99},
		} {
			err := w.watch(r, never)
			require.Equal(w.t, connect.CodeFailedPrecondition, connect.CodeOf(err), "%s: %v", name, err)
			require.Equal(w.t, "resync-required", reason(err), name)
		}
		for name, r := range map[string]*ctrlv1.WatchDeploymentsRequest{
			"no epoch":       {Markers: true, VersionLastSeen: 1},
			"another region": {Region: "us-1"},
		} {
			require.Equal(w.t, connect.CodeInvalidArgument, connect.CodeOf(w.watch(r, never)), name)
		}
		require.NoError(w.t, w.database.Log.NewEpoch(w.t.Context()))
		require.Equal(
			w.t,
			"resync-required",
			reason(w.watch(&ctrlv1.WatchDeploymentsRequest{Markers: true, VersionLastSeen: 1, Epoch: epoch}, never)),
		)
	})
}

func TestARegionThatWasMadeAnewIsUnknownAndNotEmpty(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ctx := w.t.Context()
		require.NoError(w.t, w.database.Write(ctx, func(tx *db.Tx) error {
			_, err := tx.ExecContext(ctx, `UPDATE regions SET id = 'reg_eu_2' WHERE id = 'reg_eu'`)
			return err
		}))
		_, err := w.client("Bearer "+bearer, "eu-1").Heartbeat(ctx, connect.NewRequest(&ctrlv1.HeartbeatRequest{}))
		require.Equal(w.t, "unknown-region", reason(err))
		_, _, err = w.store.PutRegion(ctx, regions.Region{ID: "reg_eu_3", Name: "eu-1", Platform: "aws"}, false)
		require.ErrorIs(w.t, err, regions.ErrNameTaken)
	})
}

func TestASecondCellIsRefusedInEveryCall(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.put("d_1", "running", deployment("one", "one:1"))
		beat := func(cell string) error {
			_, err := w.client("Bearer "+bearer, "eu-1", "X-Krane-Cell", cell).
				Heartbeat(w.t.Context(), connect.NewRequest(&ctrlv1.HeartbeatRequest{Region: "eu-1"}))
			return err
		}
		require.NoError(w.t, beat("cell-a"))
		second := w.client("Bearer "+bearer, "eu-1", "X-Krane-Cell", "cell-b")
		calls := map[string]func() error{
			"heartbeat": func() error { return beat("cell-b") },
			"report": func() error {
				_, err := second.ReportDeploymentStatus(w.t.Context(), connect.NewRequest(&ctrlv1.ReportDeploymentStatusRequest{
					Change: &ctrlv1.ReportDeploymentStatusRequest_Update_{Update: &ctrlv1.ReportDeploymentStatusRequest_Update{K8SName: "one"}},
				}))
				return err
			},
			"report of a sentinel": func() error {
				_, err := second.ReportSentinelStatus(w.t.Context(), connect.NewRequest(&ctrlv1.ReportSentinelStatusRequest{K8SName: "one"}))
				return err
			},
			"point query": func() error {
				_, err := second.GetDesiredDeploymentState(
					w.t.Context(),
					connect.NewRequest(&ctrlv1.GetDesiredDeploymentStateRequest{DeploymentId: "d_1"}),
				)
				return err
			},
			"stream": func() error {
				stream, err := second.WatchDeployments(w.t.Context(), connect.NewRequest(&ctrlv1.WatchDeploymentsRequest{}))
				require.NoError(w.t, err)
				require.False(w.t, stream.Receive())
				return stream.Err()
			},
		}
		for name, call := range calls {
			require.Equal(w.t, "region-claimed", reason(call()), name)
		}
		require.Equal(w.t, "region-claimed", reason(beat("")), "no cell is another cell, too")
		require.NoError(w.t, beat("cell-a"))
		require.NoError(w.t, w.database.Write(w.t.Context(), func(tx *db.Tx) error {
			_, err := tx.ExecContext(w.t.Context(), `UPDATE regions SET heartbeat_at = ?`, time.Now().Add(-2*adminapi.Silence).UnixMilli())
			return err
		}))
		require.NoError(w.t, calls["point query"](), "after the lease")
		require.Equal(w.t, "region-claimed", reason(beat("cell-a")), "the query has claimed the region")
	})
}

// revokedWithin is a condition's limit: of a condition, not of the product.
const revokedWithin = 2 * time.Minute

func TestARevokedCredentialLosesItsStreamsOnEveryReplica(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ctx := w.t.Context()
		first := w.agent()
		w.url = w.serve(w.database)
		second, others := w.agent(), w.client("Bearer "+w.tokens[us], "us-1")
		type ending struct {
			name string
			err  error
		}
		ended := make(chan ending, 4)
		open := func(name string, client ctrlv1connect.ClusterServiceClient) {
			stream, err := client.WatchDeployments(ctx, connect.NewRequest(&ctrlv1.WatchDeploymentsRequest{Markers: true}))
			require.NoError(w.t, err)
			require.True(w.t, stream.Receive(), stream.Err())
			go func() {
				for stream.Receive() {
				}
				ended <- ending{name, stream.Err()}
			}()
		}
		open("first replica", first)
		open("second replica", second)
		open("another region", others)
		open("shared token", w.client("Bearer "+bearer, "eu-1"))

		next, err := w.store.Agents().Rotate(ctx, eu, time.Hour)
		require.NoError(w.t, err)
		w.tokens[eu] = next
		open("new token", w.agent())
		select {
		case e := <-ended:
			require.Fail(w.t, "the old token is valid for an hour", "%s: %v", e.name, e.err)
		case <-time.After(5 * time.Second): // longer than two checks
		}
		_, err = w.store.Agents().Rotate(ctx, eu, 0)
		require.NoError(w.t, err)
		names := map[string]bool{}
		for range 3 {
			select {
			case e := <-ended:
				require.Equal(w.t, connect.CodeUnauthenticated, connect.CodeOf(e.err), "%s: %v", e.name, e.err)
				names[e.name] = true
			case <-time.After(revokedWithin):
				require.Fail(w.t, "streams go on", "ended: %v", names)
			}
		}
		require.Equal(w.t, map[string]bool{"first replica": true, "second replica": true, "new token": true}, names)
		require.Empty(w.t, ended)
	})
}

func TestAnEpochIsGivenAndAnEarlierStartOfTheAgentRefused(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ctx := w.t.Context()
		w.put("d_1", "running", deployment("one", "one:1"))
		claim := func() uint64 {
			answer, err := w.agent().Heartbeat(ctx, connect.NewRequest(&ctrlv1.HeartbeatRequest{Claim: true}))
			require.NoError(w.t, err)
			return answer.Msg.GetAgentEpoch()
		}
		beat := func(epoch uint64) error {
			answer, err := w.agent().Heartbeat(ctx, connect.NewRequest(&ctrlv1.HeartbeatRequest{AgentEpoch: epoch}))
			if err == nil {
				require.Zero(w.t, answer.Msg.GetAgentEpoch(), "none was claimed")
			}
			return err
		}
		report := func(epoch, sequence uint64, pod string) error {
			_, err := w.agent().ReportDeploymentStatus(ctx, connect.NewRequest(&ctrlv1.ReportDeploymentStatusRequest{
				Change: &ctrlv1.ReportDeploymentStatusRequest_Update_{Update: &ctrlv1.ReportDeploymentStatusRequest_Update{
					K8SName: "one", Instances: []*ctrlv1.ReportDeploymentStatusRequest_Update_Instance{{K8SName: pod, Address: "10.0.0.1:8080"}},
				}}, AgentEpoch: epoch, Sequence: sequence,
			}))
			return err
		}
		pods := func() (names []string) {
			_, resources, err := w.store.Resources(ctx, eu)
			require.NoError(w.t, err)
			for _, i := range resources[0].Instances {
				names = append(names, i.Name)
			}
			return names
		}
		// An agent that numbers its starts by the clock, of a node that is ahead.
		ahead := uint64(time.Now().Add(time.Hour).UnixNano())
		require.NoError(w.t, report(ahead, 1, "by-the-clock"))
		first := claim()
		require.Greater(w.t, first, ahead)
		require.NoError(w.t, report(first, 1, "first"))
		require.Equal(w.t, []string{"first"}, pods())
		second := claim()
		require.Greater(w.t, second, first)
		require.NoError(w.t, report(second, 1, "second"))
		for stale, want := range map[uint64]string{first: "superseded", ahead: "superseded", second + 1: "stale-epoch"} {
			require.Equal(w.t, want, reason(report(stale, 100, "stale")))
			require.Equal(w.t, want, reason(beat(stale)))
			_, err := w.agent().ReportSentinelStatus(ctx, connect.NewRequest(&ctrlv1.ReportSentinelStatusRequest{K8SName: "s", AgentEpoch: stale}))
			require.Equal(w.t, want, reason(err))
		}
		// An agent that has lost the answer to its claim sends a number without an epoch.
		require.Equal(w.t, "stale-epoch", reason(report(0, 101, "numbered")))
		_, err := w.agent().ReportSentinelStatus(ctx, connect.NewRequest(&ctrlv1.ReportSentinelStatusRequest{K8SName: "s", Sequence: 101}))
		require.Equal(w.t, "stale-epoch", reason(err))
		_, err = w.agent().Heartbeat(ctx, connect.NewRequest(&ctrlv1.HeartbeatRequest{Sequence: 101}))
		require.Equal(w.t, "stale-epoch", reason(err))
		require.NoError(w.t, beat(0), "without the extension there is neither")
		require.NoError(w.t, beat(second))
		require.Equal(w.t, []string{"second"}, pods())

		// One that yields takes over from one that is silent, and from no other.
		yield := func() (uint64, error) {
			answer, err := w.agent().Heartbeat(ctx, connect.NewRequest(&ctrlv1.HeartbeatRequest{Claim: true, Yield: true}))
			if err != nil {
				return 0, err
			}
			return answer.Msg.GetAgentEpoch(), nil
		}
		heard := func(ago time.Duration) {
			w.sql(fmt.Sprintf(`UPDATE regions SET epoch_heard_at = %d`, time.Now().Add(-ago).UnixMilli()))
		}
		for range 3 {
			await.Eventually(w.t, "one asks within the second", func() bool {
				begin := time.Now()
				heard(119 * time.Second)
				epoch, err := yield()
				if time.Since(begin) >= time.Second { // it may have been silent for two minutes meanwhile
					second = max(second, epoch)
					return false
				}
				require.Equal(w.t, "epoch-held", reason(err))
				return true
			})
		}
		heard(121 * time.Second)
		require.NoError(w.t, beat(second), "which is heard of again")
		_, err = yield()
		require.Equal(w.t, "epoch-held", reason(err))
		heard(121 * time.Second)
		require.Equal(w.t, "superseded", reason(beat(first)), "which does not hold it")
		third, err := yield()
		require.NoError(w.t, err)
		require.Greater(w.t, third, second)
		require.Equal(w.t, "superseded", reason(beat(second)))
		_, err = yield()
		require.Equal(w.t, "epoch-held", reason(err), "it was heard of when it claimed")
	})
}

func TestReportsAreKeptInOrder(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ctx := w.t.Context()
		w.put("d_1", "running", deployment("one", "one:1"))
		report := func(epoch, sequence uint64, pods ...string) error {
			update := &ctrlv1.ReportDeploymentStatusRequest_Update{K8SName: "one"}
			for _, pod := range pods {
				update.Instances = append(update.Instances, &ctrlv1.ReportDeploymentStatusRequest_Update_Instance{
					K8SName: pod, Address: "10.0.0.1:8080", Status: ctrlv1.ReportDeploymentStatusRequest_Update_Instance_STATUS_RUNNING,
				})
			}
			_, err := w.agent().ReportDeploymentStatus(ctx, connect.NewRequest(&ctrlv1.ReportDeploymentStatusRequest{
				Change: &ctrlv1.ReportDeploymentStatusRequest_Update_{Update: update}, AgentEpoch: epoch, Sequence: sequence,
			}))
			return err
		}
		pods := func() string {
			_, resources, err := w.store.Resources(ctx, eu)
			require.NoError(w.t, err)
			var names []string
			for _, i := range resources[0].Instances {
				names = append(names, i.Name+" "+i.Status)
			}
			return strings.Join(names, ", ")
		}
		_, err := w.agent().Heartbeat(ctx, connect.NewRequest(&ctrlv1.HeartbeatRequest{}))
		require.NoError(w.t, err)
		require.NoError(w.t, report(1, 1, "a", "b", "c"))
		require.NoError(w.t, report(1, 2, "a", "b"))
		require.Equal(w.t, "a running, b running", pods())
		require.NoError(w.t, report(1, 1, "c"), "late")
		require.Equal(w.t, "a running, b running", pods())
		require.NoError(w.t, report(2, 1, "d"), "after a restart")
		require.Equal(w.t, "d running", pods())
		require.NoError(w.t, report(2, 1, "x"), "the number of the last one")
		require.Equal(w.t, "d running", pods())
		require.NoError(w.t, report(0, 0, "f"), "without the extension")
		require.NoError(w.t, report(1, 9, "x"), "which does not forget the order")
		require.Equal(w.t, "f running", pods())
		_, err = w.agent().ReportDeploymentStatus(ctx, connect.NewRequest(&ctrlv1.ReportDeploymentStatusRequest{
			Change: &ctrlv1.ReportDeploymentStatusRequest_Delete_{
				Delete: &ctrlv1.ReportDeploymentStatusRequest_Delete{K8SName: "one"},
			},
			AgentEpoch: 2,
			Sequence:   2,
		}))
		require.NoError(w.t, err)
		require.Empty(w.t, pods())
		require.NoError(w.t, report(2, 3, "e"))
		require.NoError(w.t, w.database.Write(ctx, func(tx *db.Tx) error {
			_, err := tx.ExecContext(ctx, `UPDATE regions SET heartbeat_at = 1`)
			return err
		}))
		require.Equal(w.t, "e inactive", pods(), "of a silent region")
		_, err = w.agent().ReportDeploymentStatus(ctx, connect.NewRequest(&ctrlv1.ReportDeploymentStatusRequest{
			Change: &ctrlv1.ReportDeploymentStatusRequest_Delete_{Delete: &ctrlv1.ReportDeploymentStatusRequest_Delete{K8SName: "nobody"}},
		}))
		require.Equal(w.t, connect.CodeNotFound, connect.CodeOf(err))
	})
}

func TestReportsOfASentinelAreKeptInOrder(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ctx := w.t.Context()
		_, err := w.store.PutSentinel(ctx, eu, "s_1", regions.Wanted{State: "running", Spec: json.RawMessage(
			`{"k8s_namespace":"ws","k8s_name":"gate","workspace_id":"w","project_id":"p",` +
				`"app_id":"a","environment_id":"e","image":"one:1","cpu_millicores":"250","memory_mib":"256","replicas":1}`,
		)})
		require.NoError(w.t, err)
		for _, step := range []struct {
			epoch, sequence uint64
			replicas        int32
			want            int64
			why             string
		}{
			{1, 2, 12, 12, "the first"},
			{1, 1, 11, 12, "late"},
			{1, 2, 11, 12, "the number of the last one"},
			{2, 1, 21, 21, "after a restart"},
			{1, 9, 19, 21, "of the agent before"},
			{0, 0, 30, 30, "without the extension"},
			{2, 1, 21, 30, "which does not forget the order"},
			{2, 2, 22, 22, "the next one"},
		} {
			_, err := w.agent().ReportSentinelStatus(ctx, connect.NewRequest(&ctrlv1.ReportSentinelStatusRequest{
				K8SName: "gate", AvailableReplicas: step.replicas, AgentEpoch: step.epoch, Sequence: step.sequence,
			}))
			require.NoError(w.t, err, step.why)
			_, resources, err := w.store.Resources(ctx, eu)
			require.NoError(w.t, err)
			require.Equal(w.t, step.want, resources[0].AvailableReplicas, step.why)
		}
		answer, err := w.agent().Heartbeat(ctx, connect.NewRequest(&ctrlv1.HeartbeatRequest{Claim: true}))
		require.NoError(w.t, err)
		require.Equal(w.t, uint64(3), answer.Msg.GetAgentEpoch(), "above the one that the agent chose itself")
	})
}

func TestTheReasonOfAFailureIsStoredUntilTheRegionIsSilent(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ctx := w.t.Context()
		w.put("d_1", "running", deployment("one", "one:1"))
		report := func(instance *ctrlv1.ReportDeploymentStatusRequest_Update_Instance) {
			_, err := w.agent().ReportDeploymentStatus(ctx, connect.NewRequest(&ctrlv1.ReportDeploymentStatusRequest{
				Change: &ctrlv1.ReportDeploymentStatusRequest_Update_{Update: &ctrlv1.ReportDeploymentStatusRequest_Update{
					K8SName: "one", Instances: []*ctrlv1.ReportDeploymentStatusRequest_Update_Instance{instance},
				}},
			}))
			require.NoError(w.t, err)
		}
		stored := func() regions.Instance {
			_, resources, err := w.store.Resources(ctx, eu)
			require.NoError(w.t, err)
			require.Len(w.t, resources[0].Instances, 1)
			return resources[0].Instances[0]
		}
		overview := func() []regions.Instance {
			regions, err := w.store.Overview(ctx)
			require.NoError(w.t, err)
			for _, r := range regions {
				if r.ID == eu {
					return r.Failed
				}
			}
			return nil
		}
		_, err := w.agent().Heartbeat(ctx, connect.NewRequest(&ctrlv1.HeartbeatRequest{}))
		require.NoError(w.t, err)
		const why = "container web was restarted 4 times: Error, exit code 1"
		failed := &ctrlv1.ReportDeploymentStatusRequest_Update_Instance{
			K8SName: "one-a", Status: ctrlv1.ReportDeploymentStatusRequest_Update_Instance_STATUS_FAILED, Reason: why, Restarts: 4,
		}
		report(failed)
		require.Equal(w.t, why, stored().Reason)
		require.EqualValues(w.t, 4, stored().Restarts)
		require.Len(w.t, overview(), 1)
		require.Equal(w.t, "one-a "+why, overview()[0].Name+" "+overview()[0].Reason)
		w.sql(`UPDATE regions SET heartbeat_at = 1`)
		require.Equal(w.t, "inactive", stored().Status)
		require.Empty(w.t, stored().Reason)
		require.Empty(w.t, overview())
		// An agent without the extension reports neither.
		_, err = w.agent().Heartbeat(ctx, connect.NewRequest(&ctrlv1.HeartbeatRequest{}))
		require.NoError(w.t, err)
		report(&ctrlv1.ReportDeploymentStatusRequest_Update_Instance{
			K8SName: "one-a", Status: ctrlv1.ReportDeploymentStatusRequest_Update_Instance_STATUS_RUNNING,
		})
		require.Empty(w.t, stored().Reason)
		require.Zero(w.t, stored().Restarts)
		require.Empty(w.t, overview())
	})
}
