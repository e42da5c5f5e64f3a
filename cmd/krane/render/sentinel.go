package render

import (
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/specs"
	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/isolation"
)

// Sentinel returns the objects of a sentinel: a Deployment, a Service and a
// PodDisruptionBudget of its name. Owner is the UID of the Deployment, empty as
// long as it does not exist.
//
// The error joins a [*specs.FieldError] for each field that is wrong, and then there are
// no objects.
func (c Cell) Sentinel(s *ctrlv1.ApplySentinel, owner types.UID) ([]*unstructured.Unstructured, error) {
	var p specs.Errors
	p.Sentinel(s)
	if err := p.Err(); err != nil {
		return nil, fmt.Errorf("sentinel %s: %w", s.GetSentinelId(), err)
	}
	namespace, name := s.GetK8SNamespace(), s.GetK8SName()
	labels := func() object {
		return c.labels(Sentinel, map[string]string{
			labelWorkspaceID: s.GetWorkspaceId(), labelProjectID: s.GetProjectId(), labelAppID: s.GetAppId(),
			labelEnvironmentID: s.GetEnvironmentId(), labelSentinelID: s.GetSentinelId(), labelPlatform: c.Platform,
		})
	}
	selector := func() object { return object{labelSentinelID: s.GetSentinelId()} }
	const port int64 = 8040 // that sentinels listen on
	container := object{
		"name":  "sentinel",
		"image": s.GetImage(),
		"ports": []any{object{"containerPort": port, "protocol": "TCP"}},
		"env": environment([][2]string{
			{"PORT", strconv.FormatInt(port, 10)},
			{"UNKEY_WORKSPACE_ID", s.GetWorkspaceId()},
			{"UNKEY_PROJECT_ID", s.GetProjectId()},
			{"UNKEY_APP_ID", s.GetAppId()},
			{"UNKEY_ENVIRONMENT_ID", s.GetEnvironmentId()},
			{"UNKEY_SENTINEL_ID", s.GetSentinelId()},
			{"UNKEY_REGION", c.Region},
			{"UNKEY_PLATFORM", c.Platform},
		}),
		"resources": resources(s.GetCpuMillicores(), s.GetMemoryMib()),
	}
	objects := []*unstructured.Unstructured{
		newObject("apps/v1", "Deployment", namespace, name, labels(), object{"spec": object{
			"replicas": int64(s.GetReplicas()),
			"selector": object{"matchLabels": selector()},
			"template": object{"metadata": object{"labels": labels()}, "spec": c.pod(selector(), container, isolation.Restricted)},
		}}),
		newObject("v1", "Service", namespace, name, labels(), object{"spec": object{
			"selector": selector(),
			"ports":    []any{object{"name": "http", "port": port, "targetPort": port, "protocol": "TCP"}},
		}}),
		budget(namespace, name, labels(), selector()),
	}
	own(objects, "apps/v1", "Deployment", name, owner)
	return objects, nil
}

// budget lets one pod at a time be evicted, and any that is not healthy. It
// counts pods, because a percentage of one pod rounds to 0.
func budget(namespace, name string, labels, selector object) *unstructured.Unstructured {
	return newObject("policy/v1", "PodDisruptionBudget", namespace, name, labels, object{"spec": object{
		"maxUnavailable":             int64(1),
		"unhealthyPodEvictionPolicy": "AlwaysAllow",
		"selector":                   object{"matchLabels": selector},
	}})
}
