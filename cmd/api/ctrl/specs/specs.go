package specs

import (
	"fmt"
	"math"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/isolation"
)

const (
	wantLabelName  = "at most 63 lower case letters, digits and -, with a letter or digit at both ends"
	wantLabelValue = "1 to 63 letters, digits, -, _ or ., with a letter or digit at both ends"
	// maxImage is the length in bytes of the reference of an image.
	maxImage = 1024
)

// ids are the values of ids by the names of their fields.
type ids [][2]string

// common checks what deployments and sentinels both state.
func (e *Errors) common(namespace, image string, millicores, mebi int64, ids ids) {
	e.Namespace(namespace)
	for _, id := range ids {
		e.label(id[0], id[1])
	}
	if image == "" || len(image) > maxImage || strings.ContainsFunc(image, func(r rune) bool { return r <= ' ' || r > '~' }) {
		e.Add("image", image, "the reference of an image, without spaces")
	}
	// More than the max would overflow where it is counted in bytes or nanocores.
	if millicores < 1 || millicores > math.MaxInt32 {
		e.Add("cpu_millicores", millicores, "1 to 2147483647, in thousandths of a core")
	}
	if mebi < 1 || mebi > math.MaxInt32 {
		e.Add("memory_mib", mebi, "1 to 2147483647, in MiB")
	}
}

// Namespace checks the name of a namespace: any but those of the platform.
func (e *Errors) Namespace(name string) {
	switch {
	case len(validation.IsDNS1123Label(name)) > 0:
		e.Add("k8s_namespace", name, wantLabelName)
	case isolation.PlatformNamespace(name):
		e.Add("k8s_namespace", name, isolation.WantNamespace)
	}
}

func (e *Errors) label(field, value string) {
	if value == "" || len(validation.IsValidLabelValue(value)) > 0 {
		e.Add(field, value, wantLabelValue)
	}
}

// IdentityName returns the name of the Secret and the ServiceAccount of a deployment.
func IdentityName(deploymentID string) string {
	return "deploy-" + strings.ReplaceAll(strings.ToLower(deploymentID), "_", "-")
}

// Deployment checks a deployment. It returns its health check, nil for none.
func (e *Errors) Deployment(d *ctrlv1.ApplyDeployment) *Healthcheck {
	e.common(d.GetK8SNamespace(), d.GetImage(), d.GetCpuMillicores(), d.GetMemoryMib(), ids{
		{"workspace_id", d.GetWorkspaceId()},
		{"project_id", d.GetProjectId()},
		{"app_id", d.GetAppId()},
		{"environment_id", d.GetEnvironmentId()},
		{"deployment_id", d.GetDeploymentId()},
	})
	if len(validation.IsDNS1123Label(d.GetK8SName())) > 0 {
		e.Add("k8s_name", d.GetK8SName(), wantLabelName)
	}
	if name := IdentityName(d.GetDeploymentId()); d.GetDeploymentId() != "" && len(validation.IsDNS1123Subdomain(name)) > 0 {
		e.Add("deployment_id", d.GetDeploymentId(), "an id from which the name "+name+" can be made")
	}
	if d.BuildId != nil {
		e.label("build_id", d.GetBuildId())
	}
	if port := d.GetPort(); port < 1 || port > math.MaxUint16 {
		e.Add("port", port, "1 to 65535")
	}
	switch d.GetShutdownSignal() {
	case "", "SIGTERM", "SIGINT", "SIGQUIT", "SIGKILL":
	default:
		e.Add("shutdown_signal", d.GetShutdownSignal(), "SIGTERM, SIGINT, SIGQUIT, SIGKILL or nothing")
	}
	if _, err := isolation.ParseLevel(d.GetPodSecurity()); err != nil {
		e.Add("pod_security", d.GetPodSecurity(), isolation.Want+", or nothing for "+string(isolation.Restricted))
	}
	for i, arg := range d.GetCommand() {
		if strings.ContainsRune(arg, 0) {
			e.Add(fmt.Sprintf("command[%d]", i), arg, "text without a zero byte")
		}
	}
	if d.GetEphemeralStorage().GetSizeMib() > math.MaxInt32 {
		e.Add("ephemeral_storage.size_mib", d.GetEphemeralStorage().GetSizeMib(), fmt.Sprint("at most ", math.MaxInt32))
	}
	e.autoscaling(d)
	return e.healthcheck(d.GetHealthcheck())
}

func (e *Errors) autoscaling(d *ctrlv1.ApplyDeployment) {
	a := d.GetAutoscaling()
	if a == nil {
		return
	}
	if n := a.GetMinReplicas(); n < 1 || n > math.MaxInt32 {
		e.Add("autoscaling.min_replicas", n, "1 or more")
	}
	if n := a.GetMaxReplicas(); n < a.GetMinReplicas() || n > math.MaxInt32 {
		e.Add("autoscaling.max_replicas", n, fmt.Sprint("min_replicas, which is ", a.GetMinReplicas(), ", or more"))
	}
	// A pod can use twice what it requests.
	const want = "1 to 200 percent of what is requested"
	if n := a.GetCpuThreshold(); a.CpuThreshold != nil && (n < 1 || n > 200) {
		e.Add("autoscaling.cpu_threshold", n, want)
	}
	if n := a.GetMemoryThreshold(); a.MemoryThreshold != nil && (n < 1 || n > 200) {
		e.Add("autoscaling.memory_threshold", n, want)
	}
}

// Sentinel checks a sentinel.
func (e *Errors) Sentinel(s *ctrlv1.ApplySentinel) {
	e.common(s.GetK8SNamespace(), s.GetImage(), s.GetCpuMillicores(), s.GetMemoryMib(), ids{
		{"workspace_id", s.GetWorkspaceId()},
		{"project_id", s.GetProjectId()},
		{"app_id", s.GetAppId()},
		{"environment_id", s.GetEnvironmentId()},
		{"sentinel_id", s.GetSentinelId()},
	})
	// It names a Service, too.
	if len(validation.IsDNS1035Label(s.GetK8SName())) > 0 {
		e.Add("k8s_name", s.GetK8SName(), wantLabelName+", and a letter first")
	}
	if s.GetReplicas() < 0 {
		e.Add("replicas", s.GetReplicas(), "0 or more")
	}
}
