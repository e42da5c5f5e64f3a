package starbase_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
)

const (
	clusterID   = "11111111-1111-4111-8111-111111111111"
	workspaceID = "22222222-2222-4222-8222-222222222222"
	projectID   = "33333333-3333-4333-8333-333333333333"
	serviceID   = "44444444-4444-4444-8444-444444444444"
	groupID     = "55555555-5555-4555-8555-555555555555"
)

func fullService() starbase.Service {
	return starbase.Service{
		WorkspaceID: workspaceID,
		ProjectID:   projectID,
		ServiceID:   serviceID,
		Environment: "production",
		ServiceName: "shop",
		Tier:        "nova",
		Image:       "registry.example.com/shop:1.2",
		Replicas:    3,
		Env:         map[string]string{"MODE": "a<b>&c", "EMPTY": "", "UNICODE": "gr\u00fc\u00df\u2028"},
		Ports:       []starbase.Port{{ContainerPort: 8080, Protocol: "TCP"}, {ContainerPort: 8080, Protocol: "UDP"}},
		Hostname:    "shop.example.com",
		Resources: starbase.Resources{
			Requests: map[string]string{"cpu": "250m", "memory": "256Mi"},
			Limits:   map[string]string{"memory": "1.5Gi"},
		},
		Probes:       starbase.Probes{Readiness: starbase.Probe{Path: "/healthz", Port: 8080, PeriodSeconds: 5}},
		Autoscaling:  starbase.Autoscaling{Min: 1, Max: 5, CPUPercent: 70},
		RestartNonce: groupID,
		VarGroups:    []starbase.ServiceVarGroup{{VarGroupID: groupID, AttachOrder: 1}},
		Deployment: starbase.Deployment{
			ID: "d-1", GitSHA: "0123abc", DeployedAt: "2026-01-31T12:00:00Z",
			ImageRef: "registry.example.com:5000/shop@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
		},
	}
}

func fullProject() starbase.Project {
	return starbase.Project{
		ProjectID: projectID, WorkspaceID: workspaceID, Slug: "shop", Namespace: "proj-shop",
		Quota:  map[string]string{"requests.cpu": "10", "pods": "50"},
		Limits: starbase.Limits{Default: map[string]string{"cpu": "1"}},
		Egress: []starbase.Egress{{CIDR: "203.0.113.0/24", Port: 5432, Protocol: "TCP"}, {CIDR: "2001:db8::/32", Protocol: "UDP"}},
	}
}

// sealed returns a body as a server writes it, and its text.
func sealed(tb testing.TB) (*starbase.DesiredState, []byte) {
	tb.Helper()
	second := fullService()
	second.Environment, second.Deleted = "staging", true
	state := &starbase.DesiredState{
		ClusterID: clusterID, Epoch: "f00d", Generation: 7, ApprovedDeletions: "pXkq0zY1oHZsN5d2",
		ClusterConfig: starbase.ClusterConfig{LBSizeUnits: 3},
		Projects:      []starbase.Project{fullProject()},
		Services:      []starbase.Service{fullService(), second},
		VarGroups: []starbase.VarGroup{{
			VarGroupID: groupID, ProjectID: projectID, Environment: "production",
			Entries: map[string]string{"PASSWORD": "hunter2"}, Checksum: "sha256:00",
		}},
	}
	require.NoError(tb, state.Seal())
	body, err := json.Marshal(state)
	require.NoError(tb, err)
	return state, body
}

// TestTheIdentityOfARecordIsThatOfTheContract has the vector of
//
//	printf '\0\0\0\0\0\0\0\x24%s\0\0\0\0\0\0\0\x24%s\0\0\0\0\0\0\0\x24%s\0\0\0\0\0\0\0\x14%s' PROJECT SERVICE POD TIME | sha256sum
func TestTheIdentityOfARecordIsThatOfTheContract(t *testing.T) {
	t.Parallel()
	s := starbase.Snapshot{
		ProjectID: "11111111-1111-4111-8111-111111111111", ServiceID: "22222222-2222-4222-8222-222222222222",
		PodID: "33333333-3333-4333-8333-333333333333", SnapshotTimestamp: "2026-01-31T12:00:00Z",
		WorkspaceID: "of no matter", ClusterID: "of no matter", Environment: "of no matter",
	}
	require.Equal(t, "f33be5bf18338c05beefd2749d6e2bebec9e923525116fa23fc7516a8d87ebe7", s.ID())
}
