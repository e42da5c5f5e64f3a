package render

import (
	"encoding/base64"
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/specs"
	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/isolation"
)

// Deployment returns the objects of a deployment, in the order in which they are
// applied: network policy, Secret and ServiceAccount deploy-<id>, ReplicaSet, autoscaler,
// disruption budget. [Cell.Namespace] renders the objects of its namespace.
//
// Variables are the decrypted encrypted_environment_variables. Nil means not decrypted,
// which is an error if there is something to decrypt: an outage of the vault never
// empties a Secret. Owner is the UID of the ReplicaSet, empty before it exists.
//
// The error joins a [*specs.FieldError] for each wrong field. There are no objects then.
func (c Cell) Deployment(d *ctrlv1.ApplyDeployment, variables map[string]string, owner types.UID) ([]*unstructured.Unstructured, error) {
	check, err := c.validateDeployment(d, variables)
	if err != nil {
		return nil, fmt.Errorf("deployment %s: %w", d.GetDeploymentId(), err)
	}
	level, err := isolation.ParseLevel(d.GetPodSecurity())
	if err != nil {
		return nil, err // validateDeployment has found it
	}
	r := deployment{cell: c, d: d, check: check, level: level}
	objects := []*unstructured.Unstructured{
		r.ingress(),
		r.secret(variables),
		r.serviceAccount(),
		r.replicaSet(),
		r.autoscaler(),
		budget(d.GetK8SNamespace(), d.GetK8SName(), r.labels(), r.selector()),
	}
	own(objects, "apps/v1", "ReplicaSet", d.GetK8SName(), owner)
	return objects, nil
}

// own makes the object of that kind and name the owner of all others, but for what isolates its pods: the garbage collector
// deletes what is owned at once, and pods may run until their grace is over.
func own(objects []*unstructured.Unstructured, apiVersion, kind, name string, uid types.UID) {
	if uid == "" {
		return
	}
	for _, o := range objects {
		if o.GetKind() != kind && o.GetKind() != specs.PolicyKind {
			metadata, _ := o.Object["metadata"].(object)
			metadata["ownerReferences"] = []any{object{"apiVersion": apiVersion, "kind": kind, "name": name, "uid": string(uid)}}
		}
	}
}

// deployment renders one deployment.
type deployment struct {
	cell  Cell
	d     *ctrlv1.ApplyDeployment
	check *specs.Healthcheck // nil: none
	level isolation.Level    // of its pods
}

func (r deployment) labels() object {
	return r.cell.labels(Deployment, map[string]string{
		labelWorkspaceID: r.d.GetWorkspaceId(), labelProjectID: r.d.GetProjectId(), labelAppID: r.d.GetAppId(),
		labelEnvironmentID: r.d.GetEnvironmentId(), labelDeploymentID: r.d.GetDeploymentId(), labelBuildID: r.d.GetBuildId(),
		labelPlatform: r.cell.Platform,
	})
}

// selector selects the pods. It never changes in the life of a deployment.
func (r deployment) selector() object { return object{labelDeploymentID: r.d.GetDeploymentId()} }

func (r deployment) object(apiVersion, kind, name string, rest object) *unstructured.Unstructured {
	return newObject(apiVersion, kind, r.d.GetK8SNamespace(), name, r.labels(), rest)
}

func (r deployment) secret(variables map[string]string) *unstructured.Unstructured {
	rest := object{"type": "Opaque"}
	if len(variables) > 0 {
		data := object{}
		for name, v := range variables {
			data[name] = base64.StdEncoding.EncodeToString([]byte(v))
		}
		rest["data"] = data
	}
	return r.object("v1", "Secret", specs.IdentityName(r.d.GetDeploymentId()), rest)
}

func (r deployment) serviceAccount() *unstructured.Unstructured {
	return r.object("v1", "ServiceAccount", specs.IdentityName(r.d.GetDeploymentId()), object{"automountServiceAccountToken": false})
}

func (r deployment) replicaSet() *unstructured.Unstructured {
	name := specs.IdentityName(r.d.GetDeploymentId())
	pod := r.cell.pod(r.selector(), r.container(), r.level)
	pod["serviceAccountName"] = name
	if r.d.GetShutdownSignal() == signalKill {
		pod["terminationGracePeriodSeconds"] = int64(1)
	}
	if size := r.d.GetEphemeralStorage().GetSizeMib(); size > 0 {
		claim := object{
			"accessModes": []any{"ReadWriteOnce"},
			"resources":   object{"requests": object{"storage": mebibytes(int64(size))}},
		}
		if r.cell.StorageClass != "" {
			claim["storageClassName"] = r.cell.StorageClass
		}
		pod["volumes"] = []any{object{"name": "data", "ephemeral": object{"volumeClaimTemplate": object{"spec": claim}}}}
	}
	set := r.object("apps/v1", "ReplicaSet", r.d.GetK8SName(), object{"spec": object{
		"selector": object{"matchLabels": r.selector()},
		"template": object{"metadata": object{"labels": r.labels()}, "spec": pod},
	}})
	namespace := r.d.GetK8SNamespace()
	set.SetAnnotations(map[string]string{
		domain + "/depends-on": "Secret/" + namespace + "/" + name + ",ServiceAccount/" + namespace + "/" + name,
	})
	return set
}

func (r deployment) container() object {
	d := r.d
	container := object{
		"name":    "deployment",
		"image":   d.GetImage(),
		"ports":   []any{object{"containerPort": int64(d.GetPort()), "protocol": "TCP"}},
		"envFrom": []any{object{"secretRef": object{"name": specs.IdentityName(d.GetDeploymentId())}}},
		"env": environment([][2]string{
			{"PORT", strconv.Itoa(int(d.GetPort()))},
			{"UNKEY_WORKSPACE_ID", d.GetWorkspaceId()},
			{"UNKEY_PROJECT_ID", d.GetProjectId()},
			{"UNKEY_APP_ID", d.GetAppId()},
			{"UNKEY_ENVIRONMENT_ID", d.GetEnvironmentId()},
			{"UNKEY_ENVIRONMENT_SLUG", d.GetEnvironmentSlug()},
			{"UNKEY_DEPLOYMENT_ID", d.GetDeploymentId()},
			{"UNKEY_REGION", r.cell.Region},
			{"UNKEY_GIT_COMMIT_SHA", d.GetGitCommitSha()},
			{"UNKEY_GIT_BRANCH", d.GetGitBranch()},
			{"UNKEY_GIT_REPO", d.GetGitRepo()},
			{"UNKEY_GIT_COMMIT_MESSAGE", d.GetGitCommitMessage()},
		}),
		"resources": resources(d.GetCpuMillicores(), d.GetMemoryMib()),
	}
	if len(d.GetCommand()) > 0 {
		command := make([]any, len(d.GetCommand()))
		for i, arg := range d.GetCommand() {
			command[i] = arg
		}
		container["command"] = command
	}
	if r.check != nil {
		container["livenessProbe"] = probe(r.check, d.GetPort())
		container["readinessProbe"] = probe(r.check, d.GetPort())
	}
	if stop := stopSignal(d.GetShutdownSignal()); stop != "" {
		container["lifecycle"] = object{"preStop": object{"exec": object{"command": []any{"/bin/sh", "-c", stopScript, "stop", stop}}}}
	}
	if d.GetEphemeralStorage().GetSizeMib() > 0 {
		container["volumeMounts"] = []any{object{"name": "data", "mountPath": scratchPath}}
	}
	return container
}

func (r deployment) autoscaler() *unstructured.Unstructured {
	least, most, cpu := int64(1), int64(1), int64(defaultCPUPercent)
	a := r.d.GetAutoscaling()
	if a != nil {
		least, most = int64(a.GetMinReplicas()), int64(a.GetMaxReplicas())
		if a.CpuThreshold != nil {
			cpu = int64(a.GetCpuThreshold())
		}
	}
	metrics := []any{utilization("cpu", cpu)}
	if a != nil && a.MemoryThreshold != nil {
		metrics = append(metrics, utilization("memory", int64(a.GetMemoryThreshold())))
	}
	return r.object("autoscaling/v2", "HorizontalPodAutoscaler", r.d.GetK8SName(), object{"spec": object{
		"scaleTargetRef": object{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": r.d.GetK8SName()},
		"minReplicas":    least,
		"maxReplicas":    most,
		"metrics":        metrics,
		"behavior":       object{"scaleDown": object{"stabilizationWindowSeconds": int64(scaleDownSeconds)}},
	}})
}

func utilization(resource string, percent int64) object {
	return object{"type": "Resource", "resource": object{
		"name": resource, "target": object{"type": "Utilization", "averageUtilization": percent},
	}}
}

// IngressPolicy returns the name of the network policy of the deployment of that name.
func IngressPolicy(name string) string { return name + "-frontline-ingress" }

// ingress lets only pods of the namespace frontline in, and only to the port.
func (r deployment) ingress() *unstructured.Unstructured {
	return r.object(specs.PolicyAPIVersion, specs.PolicyKind, IngressPolicy(r.d.GetK8SName()), object{"spec": object{
		"endpointSelector": object{"matchLabels": r.selector()},
		"ingress": []any{object{
			"fromEndpoints": []any{object{"matchLabels": object{"k8s:io.kubernetes.pod.namespace": frontline}}},
			"toPorts":       []any{object{"ports": []any{object{"port": strconv.Itoa(int(r.d.GetPort())), "protocol": "TCP"}}}},
		}},
	}})
}
