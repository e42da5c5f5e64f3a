package upgrade_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1/ctrlv1connect"
	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/controlplanetest"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
)

const (
	clusterID = "aaaaaaaa-0000-4000-8000-000000000001"
	projectID = "bbbbbbbb-0000-4000-8000-000000000001"
	workspace = "cccccccc-0000-4000-8000-000000000001"
	// things is how many services and how many deployments there are.
	things = 8
)

// traffic is what a control plane is asked, and what it has answered.
type traffic struct {
	t                         *testing.T
	url                       string
	clusterToken, regionToken string
	client, streams           *http.Client
	ctx, writing              context.Context //nolint:containedctx // of the goroutines
	stop, stopWriting         context.CancelFunc
	parts, writer             sync.WaitGroup

	mu sync.Mutex
	// wanted are the images that a write was confirmed for.
	services, deployments map[string]string
	// billed are the records that were accepted.
	billed []starbase.Snapshot
	// done counts what was answered, by kind.
	done map[string]int
	// wrong is each answer that no retry excuses.
	wrong []string
	// epoch and generation are the newest of the cluster, log and version belong to the stream,
	// and streamed its images.
	epoch      string
	generation int64
	log        string
	version    uint64
	streamed   map[string]string
}

func newTraffic(t *testing.T, url string) *traffic {
	t.Helper()
	// Each request may go to another replica.
	single := &http.Transport{DisableKeepAlives: true}
	streams := &http.Transport{Protocols: new(http.Protocols)}
	streams.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(streams.CloseIdleConnections)
	l := &traffic{
		t: t, url: url, client: &http.Client{Transport: single, Timeout: await.Moment}, streams: &http.Client{Transport: streams},
		services: map[string]string{}, deployments: map[string]string{}, done: map[string]int{}, streamed: map[string]string{},
	}
	l.ctx, l.stop = context.WithCancel(t.Context())
	l.writing, l.stopWriting = context.WithCancel(l.ctx)
	t.Cleanup(l.end)
	l.clusterToken = l.register("clusters/"+clusterID, `{"region":"nyc3"}`)
	l.regionToken = l.register("regions/reg_eu", `{"name":"eu-1","platform":"aws"}`)
	l.register("projects/"+projectID, `{"cluster_id":"`+clusterID+`","workspace_id":"`+workspace+`","workspace_slug":"acme","slug":"shop"}`)
	return l
}

// register makes an object, and returns the token of its agent if it has one.
func (l *traffic) register(path, body string) string {
	l.t.Helper()
	status, answer, err := l.ask(http.MethodPut, l.url+"/api/v1/admin/"+path, controlplanetest.AdminToken, body)
	require.NoError(l.t, err)
	require.Equal(l.t, http.StatusCreated, status, string(answer))
	var created struct{ Token string }
	require.NoError(l.t, json.Unmarshal(answer, &created))
	return created.Token
}

func (l *traffic) ask(method, url, token, body string) (status int, answer []byte, err error) {
	request, err := http.NewRequestWithContext(l.t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", "application/json")
	response, err := l.client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	answer, err = io.ReadAll(response.Body)
	return response.StatusCode, answer, err
}

// try asks until it is answered with success, and returns the answer. A replica may be gone, and
// may say that it cannot now (503); any other answer is wrong.
func (l *traffic) try(kind, method, path, token, body string) []byte {
	for l.ctx.Err() == nil {
		status, answer, err := l.ask(method, l.url+path, token, body)
		l.mu.Lock()
		success := err == nil && status < 300
		switch {
		case success:
			l.done[kind]++
		case err == nil && status != http.StatusServiceUnavailable:
			l.wrong = append(l.wrong, fmt.Sprintf("%s %s: %d %s", method, path, status, answer))
		}
		l.mu.Unlock()
		if success {
			return answer
		}
		l.pause()
	}
	return nil
}

func (l *traffic) pause() {
	select {
	case <-l.ctx.Done():
	case <-time.After(20 * time.Millisecond):
	}
}

// start runs all parts until end.
func (l *traffic) start() {
	l.writer.Go(func() {
		for n := 0; l.writing.Err() == nil; n++ {
			l.putService(n)
			l.putDeployment(n)
			l.bill(n)
			l.pause()
		}
	})
	l.parts.Go(func() {
		for l.ctx.Err() == nil {
			l.agent()
			l.pause()
		}
	})
	l.parts.Go(func() {
		for l.ctx.Err() == nil {
			_ = l.stream() // a replica that went away; the next stream resumes
			l.pause()
		}
	})
}

func (l *traffic) putService(n int) {
	id, image := fmt.Sprintf("dddddddd-0000-4000-8000-%012d", n%things), fmt.Sprintf("registry.example.com/web:%d", n)
	body := `{"service_name":"web-` + fmt.Sprint(n%things) + `","image":"` + image + `","replicas":1,"tier":"nova"}`
	path := "/api/v1/admin/projects/" + projectID + "/services/" + id + "/production"
	if l.try("service written", http.MethodPut, path, controlplanetest.AdminToken, body) != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.services[id] = image
	}
}

func (l *traffic) putDeployment(n int) {
	id, image := fmt.Sprintf("d_%d", n%things), fmt.Sprintf("web:%d", n)
	body := fmt.Sprintf(
		`{"desired_state":"running","spec":{"k8s_namespace":"ws","k8s_name":"d-%d","workspace_id":"ws_1","project_id":"prj_1",`+
			`"app_id":"app_1","environment_id":"env_1","image":%q,"cpu_millicores":"250","memory_mib":"256","port":8080}}`,
		n%things,
		image,
	)
	if l.try("deployment written", http.MethodPut, "/api/v1/admin/regions/reg_eu/deployments/"+id, controlplanetest.AdminToken, body) != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.deployments[id] = image
	}
}

// bill sends a billing record, again until it is accepted or known.
func (l *traffic) bill(n int) {
	record := starbase.Snapshot{
		WorkspaceID:       workspace,
		ProjectID:         projectID,
		Environment:       "production",
		ServiceID:         fmt.Sprintf("dddddddd-0000-4000-8000-%012d", n%things),
		PodID:             fmt.Sprint("pod-", n),
		Tier:              "nova",
		Phase:             "Running",
		ClusterID:         clusterID,
		CPUMillis:         250,
		MemoryBytes:       1 << 30,
		SnapshotTimestamp: time.Now().UTC().Truncate(time.Minute).Format(time.RFC3339),
	}
	record.SnapshotID = record.ID()
	answer := l.send(record)
	if answer == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.billed = append(l.billed, record)
	if len(answer.Rejected) > 0 {
		l.wrong = append(l.wrong, fmt.Sprint(answer.Rejected))
	}
}

func (l *traffic) send(records ...starbase.Snapshot) *starbase.SnapshotReceipt {
	body, _ := json.Marshal(map[string]any{"snapshots": records}) // of plain fields
	answer := l.try("record sent", http.MethodPost, "/api/v1/clusters/"+clusterID+"/snapshots", l.clusterToken, string(body))
	var receipt starbase.SnapshotReceipt
	if answer == nil || json.Unmarshal(answer, &receipt) != nil {
		return nil
	}
	return &receipt
}

// agent takes the desired state of the cluster and reports it, as an agent does.
func (l *traffic) agent() {
	answer := l.try("state taken", http.MethodGet, "/api/v1/clusters/"+clusterID+"/desired-state", l.clusterToken, "")
	if answer == nil {
		return
	}
	state, err := starbase.Decode(bytes.NewReader(answer), clusterID)
	l.mu.Lock()
	switch {
	case err != nil:
		l.wrong = append(l.wrong, err.Error())
	case l.epoch != "" && state.Epoch != l.epoch:
		l.wrong = append(l.wrong, "another epoch of the cluster without a restore")
	case state.Generation < l.generation:
		l.wrong = append(l.wrong, fmt.Sprintf("generation %d comes after %d", state.Generation, l.generation))
	default:
		l.epoch, l.generation = state.Epoch, state.Generation
	}
	l.mu.Unlock()
	if err == nil {
		report, _ := json.Marshal(starbase.StatusReport{Epoch: state.Epoch, Generation: state.Generation, InstanceID: "one"})
		l.try("status reported", http.MethodPost, "/api/v1/clusters/"+clusterID+"/status", l.clusterToken, string(report))
	}
}

func (l *traffic) watch(
	ctx context.Context,
	url string,
	version uint64,
	epoch string,
) (*connect.ServerStreamForClient[ctrlv1.DeploymentState], error) {
	request := connect.NewRequest(&ctrlv1.WatchDeploymentsRequest{Markers: true, VersionLastSeen: version, Epoch: epoch})
	request.Header().Set("Authorization", "Bearer "+l.regionToken)
	request.Header().Set("X-Krane-Region", "eu-1")
	return ctrlv1connect.NewClusterServiceClient(l.streams, url).WatchDeployments(ctx, request)
}

func (l *traffic) stream() error {
	l.mu.Lock()
	version, epoch := l.version, l.log
	l.mu.Unlock()
	stream, err := l.watch(l.ctx, l.url, version, epoch)
	if err != nil {
		return err
	}
	defer stream.Close()
	for stream.Receive() {
		l.take(stream.Msg())
	}
	return stream.Err()
}

func (l *traffic) take(m *ctrlv1.DeploymentState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch state := m.GetState().(type) {
	case *ctrlv1.DeploymentState_Apply:
		if m.GetVersion() <= l.version {
			l.wrong = append(l.wrong, fmt.Sprintf("version %d comes after %d", m.GetVersion(), l.version))
		}
		l.version = m.GetVersion()
		l.streamed[state.Apply.GetDeploymentId()] = state.Apply.GetImage()
		l.done["change streamed"]++
	case *ctrlv1.DeploymentState_Delete:
		l.wrong = append(l.wrong, "a deletion that nobody asked for: "+state.Delete.GetK8SName())
	case *ctrlv1.DeploymentState_Synced:
		if l.log != "" && l.log != state.Synced.GetEpoch() {
			l.wrong = append(l.wrong, "another epoch of the log without a restore")
		}
		l.log = state.Synced.GetEpoch()
		l.version = max(l.version, state.Synced.GetVersion())
	case *ctrlv1.DeploymentState_Bookmark:
		l.version = max(l.version, state.Bookmark.GetVersion())
	}
}

// goesOn waits until each part was answered ten times more.
func (l *traffic) goesOn(step int) {
	l.t.Helper()
	kinds := []string{"record sent", "service written", "deployment written", "state taken", "status reported", "change streamed"}
	l.mu.Lock()
	before := maps.Clone(l.done)
	l.mu.Unlock()
	await.Eventually(l.t, fmt.Sprintf("step %d: each part was answered ten times more", step), func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		if len(l.wrong) > 0 { // it need not be waited for
			return true
		}
		for _, kind := range kinds {
			if l.done[kind] < before[kind]+10 {
				return false
			}
		}
		return true
	}, func() string {
		l.mu.Lock()
		defer l.mu.Unlock()
		return fmt.Sprint(before, l.done)
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	require.Empty(l.t, l.wrong, "step %d", step)
}

// finish ends the writing, and the rest once the stream has brought everything.
func (l *traffic) finish() {
	l.t.Helper()
	l.stopWriting()
	l.writer.Wait()
	await.Eventually(l.t, "the stream has brought everything", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return maps.Equal(l.deployments, l.streamed)
	})
	require.Equal(
		l.t,
		&starbase.SnapshotReceipt{Duplicates: len(l.billed), Rejected: []starbase.RejectedSnapshot{}},
		l.send(l.billed...),
		"each record is there",
	)
	// What a program took that does not sum records is added by those that do.
	yesterday := time.Now().UTC().AddDate(0, 0, -1).Format(time.DateOnly)
	await.Eventually(l.t, "sums of all billing records", func() bool {
		status, answer, err := l.ask(http.MethodGet, l.url+"/api/v1/admin/usage?by=cluster&from="+yesterday, controlplanetest.AdminToken, "")
		require.NoError(l.t, err)
		require.Equal(l.t, http.StatusOK, status, string(answer))
		var sums struct {
			Usage []struct {
				PodMinutes int `json:"pod_minutes"`
			}
		}
		require.NoError(l.t, json.Unmarshal(answer, &sums))
		require.Len(l.t, sums.Usage, 1)
		require.LessOrEqual(l.t, sums.Usage[0].PodMinutes, len(l.billed))
		return sums.Usage[0].PodMinutes == len(l.billed)
	})
	l.end()
}

// end stops all parts.
func (l *traffic) end() {
	l.stop()
	l.writer.Wait()
	l.parts.Wait()
}

// whole requires that nothing was wrong, and that the replica at url has all that was written,
// in the state of the cluster and in a new list of the region.
func (l *traffic) whole(url string) {
	l.t.Helper()
	require.Empty(l.t, l.wrong)
	require.Len(l.t, l.services, things)
	require.Len(l.t, l.deployments, things)
	status, answer, err := l.ask(http.MethodGet, url+"/api/v1/clusters/"+clusterID+"/desired-state", l.clusterToken, "")
	require.NoError(l.t, err)
	require.Equal(l.t, http.StatusOK, status, string(answer))
	state, err := starbase.Decode(bytes.NewReader(answer), clusterID)
	require.NoError(l.t, err)
	have := map[string]string{}
	for _, service := range state.Services {
		have[service.ServiceID] = service.Image
	}
	require.Equal(l.t, l.services, have)

	ctx, cancel := context.WithTimeout(l.t.Context(), await.Moment)
	defer cancel()
	stream, err := l.watch(ctx, url, 0, "")
	require.NoError(l.t, err)
	defer stream.Close()
	clear(have)
	// What was committed last has its version, and so its place in the list or behind it, once the process
	// that numbers has ended and another one does.
	synced := false
	for (!synced || !maps.Equal(l.deployments, have)) && stream.Receive() {
		synced = synced || stream.Msg().GetSynced() != nil
		if order := stream.Msg().GetApply(); order != nil {
			have[order.GetDeploymentId()] = order.GetImage()
		}
	}
	require.Equal(l.t, l.deployments, have, stream.Err())
	require.True(l.t, synced, stream.Err())
}
