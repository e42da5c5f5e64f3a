package agent

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/isolation"
)

// serviceLabels are the labels of a service's objects and of its pods.
func serviceLabels(p *starbase.Project, s *starbase.Service) map[string]any {
	labels := environmentLabels(p, s.Environment)
	labels[labelServiceID] = hex32(s.ServiceID)
	labels[labelServiceName] = serviceName(s)
	if s.Tier != "" {
		labels[labelTier] = s.Tier
	}
	return labels
}

// selector selects the pods of a service in an environment. It never changes
// in the life of a service.
func selector(s *starbase.Service) object {
	return object{labelProjectID: hex32(s.ProjectID), labelEnvironment: s.Environment, labelServiceID: hex32(s.ServiceID)}
}

// newServiceObject is an object of a service, with its provenance.
func newServiceObject(apiVersion, kind, name string, p *starbase.Project, s *starbase.Service, rest object) *unstructured.Unstructured {
	o := newObject(apiVersion, kind, p.Namespace, name, serviceLabels(p, s), rest)
	if annotations := provenance(s); len(annotations) > 0 {
		o.SetAnnotations(annotations)
	}
	return o
}

// provenance returns the annotations of where the running state comes from. They
// are from the payload alone: the clock would change them on each pass.
func provenance(s *starbase.Service) map[string]string {
	d := s.Deployment
	annotations := map[string]string{}
	for key, v := range map[string]string{
		prefix + "deployment-id": d.ID, prefix + "build-id": d.BuildID, prefix + "git-sha": d.GitSHA, prefix + "git-ref": d.GitRef,
		prefix + "git-repo": d.GitRepo, prefix + "image-ref": d.ImageRef, prefix + "deployed-at": d.DeployedAt,
		prefix + "deployed-by": d.DeployedBy, "kubernetes.io/change-cause": d.ChangeCause,
	} {
		if v != "" {
			annotations[key] = v
		}
	}
	return annotations
}

func configMap(p *starbase.Project, s *starbase.Service) *unstructured.Unstructured {
	rest := object{}
	if len(s.Env) > 0 {
		rest["data"] = anyMap(s.Env)
	}
	return newServiceObject("v1", "ConfigMap", workloadName(s), p, s, rest)
}

func service(p *starbase.Project, s *starbase.Service) *unstructured.Unstructured {
	ports := make([]any, len(s.Ports))
	for i, port := range s.Ports {
		ports[i] = object{"name": portName(port), "port": port.ContainerPort, "protocol": port.Protocol}
	}
	return newServiceObject("v1", "Service", workloadName(s), p, s, object{"spec": object{"selector": selector(s), "ports": ports}})
}

// deployment runs the pods of a service. The checksum covers its var groups.
func deployment(p *starbase.Project, s *starbase.Service, cluster, checksum string) *unstructured.Unstructured {
	labels := serviceLabels(p, s)
	labels[labelManagedBy], labels[labelClusterID] = manager, cluster
	spec := object{
		"selector": object{"matchLabels": selector(s)},
		"template": object{
			"metadata": object{"labels": labels, "annotations": rolloutTriggers(s, checksum)},
			"spec": object{
				"serviceAccountName":           serviceAccountName,
				"automountServiceAccountToken": false,
				"enableServiceLinks":           false,
				"securityContext":              podSecurity(s).Pod(),
				"containers":                   []any{container(s)},
			},
		},
	}
	spec["replicas"] = replicas(s)
	o := newServiceObject("apps/v1", "Deployment", workloadName(s), p, s, object{"spec": spec})
	needs := append(limitIDs(p),
		policyID(p, s.Environment),
		apply.ID{Kind: "ServiceAccount", Namespace: p.Namespace, Name: serviceAccountName},
		apply.ID{Kind: "ConfigMap", Namespace: p.Namespace, Name: workloadName(s)},
	)
	for _, g := range s.VarGroups {
		needs = append(needs, secretID(p, g.VarGroupID))
	}
	dependOn(o, needs...)
	return o
}

// dependOn makes an object wait for the objects that isolate it and that it reads. It is
// neither created nor changed while one of these cannot be applied, for example because
// its name belongs to a foreign object.
func dependOn(o *unstructured.Unstructured, ids ...apply.ID) {
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = id.String()
	}
	annotations := o.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[annotationDependsOn] = strings.Join(texts, ",")
	o.SetAnnotations(annotations)
}

// podSecurity is the level of a service's pods.
func podSecurity(s *starbase.Service) isolation.Level {
	return cmp.Or(s.PodSecurity, isolation.Restricted)
}

func autoscaled(s *starbase.Service) bool { return s.Autoscaling != (starbase.Autoscaling{}) }

// replicas is the number of pods that a Deployment has from the start. An autoscaler
// decides about it from then on.
func replicas(s *starbase.Service) int {
	if autoscaled(s) {
		return min(max(s.Replicas, s.Autoscaling.Min), s.Autoscaling.Max)
	}
	return s.Replicas
}

// rolloutTriggers holds what makes the pods roll when it changes.
func rolloutTriggers(s *starbase.Service, checksum string) map[string]any {
	annotations := object{annotationConfigChecksum: configChecksum(s)}
	if checksum != "" {
		annotations[annotationVarGroups] = checksum
	}
	if s.RestartNonce != "" {
		annotations[annotationRestartNonce] = s.RestartNonce
	}
	return annotations
}

// configChecksum covers what the pods read only when they start: ports,
// probes, limits, and the plain environment.
func configChecksum(s *starbase.Service) string {
	data, err := json.Marshal([]any{s.Ports, s.Probes, s.Resources, s.Env})
	if err != nil {
		return "" // structs and maps of strings and numbers always encode
	}
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func container(s *starbase.Service) object {
	// Of two sources that have a key, the later one wins it: the service's own last.
	var sources []any
	for _, g := range s.Attached() {
		sources = append(sources, object{"secretRef": object{"name": secretName(g.VarGroupID)}})
	}
	c := object{
		"name":    containerName,
		"image":   s.Image,
		"envFrom": append(sources, object{"configMapRef": object{"name": workloadName(s)}}),
	}
	if len(s.Ports) > 0 {
		ports := make([]any, len(s.Ports))
		for i, port := range s.Ports {
			ports[i] = object{"name": portName(port), "containerPort": port.ContainerPort, "protocol": port.Protocol}
		}
		c["ports"] = ports
	}
	if confined := podSecurity(s).Container(); confined != nil {
		c["securityContext"] = confined
	}
	resources := object{}
	if len(s.Resources.Requests) > 0 {
		resources["requests"] = anyMap(s.Resources.Requests)
	}
	if len(s.Resources.Limits) > 0 {
		resources["limits"] = anyMap(s.Resources.Limits)
	}
	if len(resources) > 0 {
		c["resources"] = resources
	}
	for name, probe := range map[string]starbase.Probe{
		"startupProbe": s.Probes.Startup, "readinessProbe": s.Probes.Readiness, "livenessProbe": s.Probes.Liveness,
	} {
		if probe != (starbase.Probe{}) {
			c[name] = probeObject(probe)
		}
	}
	return c
}

func probeObject(p starbase.Probe) object {
	o := object{}
	if p.Path != "" {
		o["httpGet"] = object{"path": p.Path, "port": p.Port}
	} else {
		o["tcpSocket"] = object{"port": p.Port}
	}
	for key, v := range map[string]int{
		"initialDelaySeconds": p.InitialDelaySeconds, "periodSeconds": p.PeriodSeconds,
		"timeoutSeconds": p.TimeoutSeconds, "failureThreshold": p.FailureThreshold,
	} {
		if v != 0 {
			o[key] = v
		}
	}
	return o
}

func disruptionBudget(p *starbase.Project, s *starbase.Service) *unstructured.Unstructured {
	return newServiceObject("policy/v1", "PodDisruptionBudget", workloadName(s), p, s, object{
		"spec": object{"maxUnavailable": 1, "selector": object{"matchLabels": selector(s)}},
	})
}

func autoscaler(p *starbase.Project, s *starbase.Service) *unstructured.Unstructured {
	var metrics []any
	for _, target := range []struct {
		resource string
		percent  int
	}{{"cpu", s.Autoscaling.CPUPercent}, {"memory", s.Autoscaling.MemoryPercent}} {
		if target.percent > 0 {
			metrics = append(metrics, object{"type": "Resource", "resource": object{
				"name": target.resource, "target": object{"type": "Utilization", "averageUtilization": target.percent},
			}})
		}
	}
	spec := object{
		"scaleTargetRef": object{"apiVersion": "apps/v1", "kind": "Deployment", "name": workloadName(s)},
		"minReplicas":    s.Autoscaling.Min,
		"maxReplicas":    s.Autoscaling.Max,
	}
	if len(metrics) > 0 {
		spec["metrics"] = metrics
	}
	o := newServiceObject("autoscaling/v2", "HorizontalPodAutoscaler", workloadName(s), p, s, object{"spec": spec})
	dependOn(o, apply.ID{Group: "apps", Kind: "Deployment", Namespace: p.Namespace, Name: workloadName(s)})
	return o
}

func httpRoute(p *starbase.Project, s *starbase.Service, gateway types.NamespacedName) *unstructured.Unstructured {
	return newServiceObject("gateway.networking.k8s.io/v1", "HTTPRoute", routeName(s), p, s, object{
		"spec": object{
			"parentRefs": []any{object{"namespace": gateway.Namespace, "name": gateway.Name}},
			"hostnames":  []any{s.Hostname},
			"rules":      []any{object{"backendRefs": []any{object{"name": workloadName(s), "port": routedPort(s)}}}},
		},
	})
}

// portName is unique within a service, whose ports are unique by number and
// protocol.
func portName(p starbase.Port) string {
	return map[string]string{starbase.ProtocolTCP: "tcp", starbase.ProtocolUDP: "udp"}[cmp.Or(p.Protocol, starbase.ProtocolTCP)] +
		"-" + strconv.Itoa(p.ContainerPort)
}
