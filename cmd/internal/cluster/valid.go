package cluster

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/util/validation"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
)

// invalid collects the fields of a spec that no agent could use.
type invalid []error

func (v *invalid) add(field, format string, args ...any) {
	*v = append(*v, fmt.Errorf("spec.%s: %s", field, fmt.Sprintf(format, args...)))
}

// name checks what becomes the name of a Kubernetes object, and a label.
func (v *invalid) name(field, value string) {
	if len(validation.IsDNS1123Label(value)) > 0 {
		v.add(field, "is %.80q, must be 1 to 63 lower case letters, digits and -, with a letter or digit at both ends", value)
	}
}

// namespace takes any but those of Kubernetes itself.
func (v *invalid) namespace(value string) {
	v.name("k8s_namespace", value)
	if strings.HasPrefix(value, "kube-") {
		v.add("k8s_namespace", "is %q, must not be one of Kubernetes itself", value)
	}
}

// labels checks what becomes the value of a label, if it is set, by the name of its
// field.
func (v *invalid) labels(values [][2]string) {
	for _, field := range values {
		if len(validation.IsValidLabelValue(field[1])) > 0 {
			v.add(field[0], "is %.80q, must be at most 63 letters, digits, -, _ or ., with a letter or digit at both ends", field[1])
		}
	}
}

func (v *invalid) required(field, value string) {
	if value == "" {
		v.add(field, "must not be empty")
	}
}

func (v *invalid) image(value string) {
	if value == "" || len(value) > maxText || strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r > '~' }) {
		v.add("image", "is %.80q, must be the reference of an image, without spaces", value)
	}
}

func (v *invalid) between(field string, value, least, most int64) {
	if value < least || value > most {
		v.add(field, "is %d, must be %d to %d", value, least, most)
	}
}

// maxText is the length in bytes of any text that is no value of its own.
const maxText = 1024

// valid returns an error that names each field that no agent could use.
func valid(m proto.Message) error {
	var v invalid
	switch m := m.(type) {
	case *ctrlv1.ApplyDeployment:
		v.deployment(m)
	case *ctrlv1.ApplySentinel:
		v.namespace(m.GetK8SNamespace())
		if len(validation.IsDNS1035Label(m.GetK8SName())) > 0 { // it names a Service, too
			v.add("k8s_name", "is %.80q, must be 1 to 63 lower case letters, digits and -, with a letter first and a letter or digit last", m.GetK8SName())
		}
		v.image(m.GetImage())
		v.between("cpu_millicores", m.GetCpuMillicores(), 1, math.MaxInt32)
		v.between("memory_mib", m.GetMemoryMib(), 1, math.MaxInt32)
		v.between("replicas", int64(m.GetReplicas()), 0, math.MaxInt32)
		v.labels([][2]string{{"workspace_id", m.GetWorkspaceId()}, {"project_id", m.GetProjectId()}, {"app_id", m.GetAppId()}, {"environment_id", m.GetEnvironmentId()}})
	case *ctrlv1.ApplyCiliumNetworkPolicy:
		v.namespace(m.GetK8SNamespace())
		v.name("k8s_name", m.GetK8SName())
		var object map[string]json.RawMessage
		if json.Unmarshal(m.GetPolicy(), &object) != nil || object == nil {
			v.add("policy", "must be a CiliumNetworkPolicy as a JSON object")
		}
		if kind := bytes.TrimSpace(object["kind"]); kind != nil && string(kind) != `"CiliumNetworkPolicy"` {
			v.add("policy.kind", "is %.80s, must be \"CiliumNetworkPolicy\"", kind)
		}
	}
	if err := errors.Join(v...); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}

func (v *invalid) deployment(m *ctrlv1.ApplyDeployment) {
	v.namespace(m.GetK8SNamespace())
	v.name("k8s_name", m.GetK8SName())
	v.required("workspace_id", m.GetWorkspaceId())
	v.labels([][2]string{
		{"workspace_id", m.GetWorkspaceId()}, {"project_id", m.GetProjectId()}, {"app_id", m.GetAppId()}, {"environment_id", m.GetEnvironmentId()}, {"build_id", m.GetBuildId()},
	})
	v.image(m.GetImage())
	v.between("cpu_millicores", m.GetCpuMillicores(), 1, math.MaxInt32)
	v.between("memory_mib", m.GetMemoryMib(), 1, math.MaxInt32)
	v.between("port", int64(m.GetPort()), 1, math.MaxUint16)
	switch m.GetShutdownSignal() {
	case "", "SIGTERM", "SIGINT", "SIGQUIT", "SIGKILL":
	default:
		v.add("shutdown_signal", "is %.80q, must be SIGTERM, SIGINT, SIGQUIT or SIGKILL", m.GetShutdownSignal())
	}
	if check := bytes.TrimSpace(m.GetHealthcheck()); len(check) > 0 {
		var object map[string]json.RawMessage
		if json.Unmarshal(check, &object) != nil {
			v.add("healthcheck", "must be a JSON object")
		}
	}
	if a := m.GetAutoscaling(); a != nil && (a.GetMinReplicas() < 1 || a.GetMaxReplicas() < a.GetMinReplicas() || a.GetMaxReplicas() > math.MaxInt32) {
		v.add("autoscaling", "is %d to %d, must be from 1 up", a.GetMinReplicas(), a.GetMaxReplicas())
	}
}
