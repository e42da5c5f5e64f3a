package operator

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed-9e1ffd66/trueup/cmd/api/thurkube/v1alpha1"
)

// Where the pod of a run has things.
const (
	// container is the name of the agent's container.
	container   = "agent"
	home        = "/home/agent"
	tokensPath  = "/var/run/thurkube/repos"
	headersPath = "/var/run/thurkube/mcp"
	tokenFile   = "token"
	headersFile = "headers.json"
	user        = int64(65532)
	// scratch bounds what a run writes to /tmp and to its home.
	scratch = "1Gi"
)

// podTemplate returns the pod template of Jobs and CronJobs.
func (p *plan) podTemplate() object {
	volumes, mounts := p.volumes()
	agent := object{
		"name": container, "image": p.from.runtime.Spec.Image, "env": p.variables(), "volumeMounts": mounts,
		"securityContext": object{
			"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "runAsNonRoot": true,
			"capabilities": object{"drop": []any{"ALL"}},
		},
	}
	if command := p.from.runtime.Spec.Command; len(command) > 0 {
		agent["command"] = list(command)
	}
	if from := p.from.job.Spec.EnvFrom; len(from) > 0 {
		sources := make([]any, len(from))
		for i := range from {
			sources[i] = toObject(&from[i])
		}
		agent["envFrom"] = sources
	}
	if resources := toObject(&p.from.job.Spec.Resources); len(resources) > 0 {
		agent["resources"] = resources
	}
	spec := object{
		"restartPolicy": "Never", "serviceAccountName": accountName(p.from.job.Name),
		"automountServiceAccountToken": p.from.access != nil, "enableServiceLinks": false,
		"activeDeadlineSeconds": p.from.job.Spec.TimeoutSeconds,
		"securityContext": object{
			"runAsNonRoot": true, "runAsUser": user, "runAsGroup": user, "fsGroup": user,
			"seccompProfile": object{"type": "RuntimeDefault"},
		},
		"containers": []any{agent}, "volumes": volumes,
	}
	maps.Copy(spec, toObject(placementOf(&p.from.job.Spec)))
	return object{
		"metadata": object{"labels": labels(p.from.job), "annotations": object{
			v1alpha1.AnnotationConfigHash: p.configHash, v1alpha1.AnnotationRunHash: p.want().hash,
		}},
		"spec": spec,
	}
}

// placement is where a run goes and what its image is pulled with, as a pod has it.
type placement struct {
	ImagePullSecrets  []v1alpha1.ImagePullSecret `json:"imagePullSecrets,omitempty"`
	NodeSelector      map[string]string          `json:"nodeSelector,omitempty"`
	Tolerations       []corev1.Toleration        `json:"tolerations,omitempty"`
	PriorityClassName string                     `json:"priorityClassName,omitempty"`
}

func placementOf(spec *v1alpha1.AgentJobSpec) *placement {
	return &placement{spec.ImagePullSecrets, spec.NodeSelector, spec.Tolerations, spec.PriorityClassName}
}

// variables returns the variables of users, the token, and HOME.
func (p *plan) variables() []any {
	all := []any{}
	env := p.from.env()
	for i := range env {
		all = append(all, toObject(&env[i]))
	}
	return append(all,
		object{"name": p.from.runtime.Spec.AuthEnvVar, "valueFrom": object{"secretKeyRef": object{
			"name": string(p.from.auth.Spec.SecretRef.Name), "key": p.from.auth.Spec.SecretRef.Key,
		}}},
		object{"name": "HOME", "value": home})
}

// volumes are the config, scratch, the claim, and the Secrets that are files.
func (p *plan) volumes() (volumes, mounts []any) {
	add := func(name, path string, readOnly bool, source object) {
		source["name"] = name
		volumes = append(volumes, source)
		mount := object{"name": name, "mountPath": path}
		if readOnly {
			mount["readOnly"] = true
		}
		mounts = append(mounts, mount)
	}
	add("config", string(p.from.runtime.Spec.ConfigPath), true, object{"configMap": object{"name": configName(p.from.job.Name, p.configHash)}})
	add("tmp", "/tmp", false, object{"emptyDir": object{"sizeLimit": scratch}})
	add("home", home, false, object{"emptyDir": object{"sizeLimit": scratch}})
	if p.from.job.Spec.Persist {
		add(
			"data",
			string(p.from.runtime.Spec.PersistPath),
			false,
			object{"persistentVolumeClaim": object{"claimName": claimName(p.from.job.Name)}},
		)
	}
	var tokens, headers []any
	for _, repository := range p.from.repositories {
		if ref := repository.Spec.TokenSecretRef; ref != nil {
			tokens = append(tokens, projected(*ref, repository.Name+"/"+tokenFile))
		}
	}
	for _, server := range p.from.servers {
		if ref := server.Spec.HeadersSecretRef; ref != nil {
			headers = append(headers, projected(*ref, server.Name+"/"+headersFile))
		}
	}
	if len(tokens) > 0 {
		add("repos", tokensPath, true, object{"projected": object{"sources": tokens}})
	}
	if len(headers) > 0 {
		add("mcp", headersPath, true, object{"projected": object{"sources": headers}})
	}
	return volumes, mounts
}

// projected is one key of a Secret as a file.
func projected(key v1alpha1.SecretKey, path string) object {
	return object{"secret": object{"name": string(key.Name), "items": []any{object{"key": key.Key, "path": path}}}}
}

func list(texts []string) []any {
	all := make([]any, 0, len(texts))
	for text := range slices.Values(texts) {
		all = append(all, text)
	}
	return all
}
