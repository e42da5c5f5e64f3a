package render

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
)

// A FieldError names a field of a message that cannot be rendered.
type FieldError struct {
	// Field is the name on the wire, such as autoscaling.max_replicas.
	Field string
	// Value is what it holds. It is never the value of a variable or the content
	// of a policy.
	Value string
	// Want is a description of what would be right.
	Want string
}

func (e *FieldError) Error() string {
	return fmt.Sprintf("%s is %q: want %s", e.Field, e.Value, e.Want)
}

const (
	wantLabelName  = "at most 63 lower case letters, digits and -, with a letter or digit at both ends"
	wantLabelValue = "1 to 63 letters, digits, -, _ or ., with a letter or digit at both ends"
	// maxSecret is the most bytes that the server takes in a Secret.
	maxSecret = 1 << 20
)

// problems collects what is wrong with a message.
type problems []error

func (p *problems) add(field string, value any, want string) {
	*p = append(*p, &FieldError{Field: field, Value: fmt.Sprint(value), Want: want})
}

func (p *problems) err() error { return errors.Join(*p...) }

// ids are the values of ids by the names of their fields.
type ids [][2]string

// common checks what deployments and sentinels both state.
func (p *problems) common(namespace, image string, millicores, mebi int64, ids ids) {
	p.namespace(namespace)
	for _, id := range ids {
		p.label(id[0], id[1])
	}
	if image == "" || strings.ContainsFunc(image, func(r rune) bool { return r <= ' ' || r > '~' }) {
		p.add("image", image, "the reference of an image, without spaces")
	}
	// More than the most would overflow where it is counted in bytes or nanocores.
	if millicores < 1 || millicores > math.MaxInt32 {
		p.add("cpu_millicores", millicores, "1 or more, in thousandths of a core")
	}
	if mebi < 1 || mebi > math.MaxInt32 {
		p.add("memory_mib", mebi, "1 or more, in MiB")
	}
}

// namespace takes any but those of Kubernetes itself.
func (p *problems) namespace(name string) {
	if len(validation.IsDNS1123Label(name)) > 0 || strings.HasPrefix(name, "kube-") {
		p.add("k8s_namespace", name, wantLabelName+", not kube- first")
	}
}

func (p *problems) label(field, value string) {
	if value == "" || len(validation.IsValidLabelValue(value)) > 0 {
		p.add(field, value, wantLabelValue)
	}
}

// validateDeployment returns the health check, nil for none.
func (c Cell) validateDeployment(d *ctrlv1.ApplyDeployment, variables map[string]string) (*healthcheck, error) {
	var p problems
	p.common(d.GetK8SNamespace(), d.GetImage(), d.GetCpuMillicores(), d.GetMemoryMib(), ids{
		{"workspace_id", d.GetWorkspaceId()},
		{"project_id", d.GetProjectId()},
		{"app_id", d.GetAppId()},
		{"environment_id", d.GetEnvironmentId()},
		{"deployment_id", d.GetDeploymentId()},
	})
	if len(validation.IsDNS1123Label(d.GetK8SName())) > 0 {
		p.add("k8s_name", d.GetK8SName(), wantLabelName)
	}
	if d.GetDeploymentId() != "" && len(validation.IsDNS1123Subdomain(identityName(d.GetDeploymentId()))) > 0 {
		p.add("deployment_id", d.GetDeploymentId(), "an id from which the name "+identityName(d.GetDeploymentId())+" can be made")
	}
	if d.BuildId != nil {
		p.label("build_id", d.GetBuildId())
	}
	if d.GetRegion() != "" && d.GetRegion() != c.Region {
		p.add("region", d.GetRegion(), "this agent's, "+c.Region)
	}
	if port := d.GetPort(); port < 1 || port > 65535 {
		p.add("port", port, "1 to 65535")
	}
	if _, ok := stopSignal(d.GetShutdownSignal()); !ok {
		p.add("shutdown_signal", d.GetShutdownSignal(), "SIGTERM, SIGINT, SIGQUIT, SIGKILL or nothing")
	}
	for i, arg := range d.GetCommand() {
		if strings.ContainsRune(arg, 0) {
			p.add(fmt.Sprintf("command[%d]", i), arg, "text without a zero byte")
		}
	}
	if d.GetEphemeralStorage().GetSizeMib() > math.MaxInt32 {
		p.add("ephemeral_storage.size_mib", d.GetEphemeralStorage().GetSizeMib(), fmt.Sprint("at most ", math.MaxInt32))
	}
	p.autoscaling(d)
	p.variables(d, variables)
	check := p.healthcheck(d.GetHealthcheck())
	return check, p.err()
}

func (p *problems) autoscaling(d *ctrlv1.ApplyDeployment) {
	a := d.GetAutoscaling()
	if a == nil {
		return
	}
	if n := a.GetMinReplicas(); n < 1 || n > math.MaxInt32 {
		p.add("autoscaling.min_replicas", n, "1 or more")
	}
	if n := a.GetMaxReplicas(); n < a.GetMinReplicas() || n > math.MaxInt32 {
		p.add("autoscaling.max_replicas", n, fmt.Sprint("min_replicas, which is ", a.GetMinReplicas(), ", or more"))
	}
	// A pod can use twice what it requests.
	const want = "1 to 200 percent of what is requested"
	if n := a.GetCpuThreshold(); a.CpuThreshold != nil && (n < 1 || n > 200) {
		p.add("autoscaling.cpu_threshold", n, want)
	}
	if n := a.GetMemoryThreshold(); a.MemoryThreshold != nil && (n < 1 || n > 200) {
		p.add("autoscaling.memory_threshold", n, want)
	}
}

func (p *problems) variables(d *ctrlv1.ApplyDeployment, variables map[string]string) {
	if len(d.GetEncryptedEnvironmentVariables()) > 0 && variables == nil {
		p.add("encrypted_environment_variables", "not decrypted", "the variables, before anything is applied")
	}
	size := 0
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		size += len(name) + len(variables[name])
		if len(validation.IsConfigMapKey(name)) > 0 {
			p.add("encrypted_environment_variables", name, "names of letters, digits, -, _ and .")
		} else if strings.ContainsRune(variables[name], 0) {
			p.add("encrypted_environment_variables", name, "a value without a zero byte")
		}
	}
	if size > maxSecret {
		p.add("encrypted_environment_variables", fmt.Sprint(size, " bytes"), fmt.Sprint("at most ", maxSecret))
	}
}

// healthcheck is the field of that name. Its own fields are seconds, but for the
// count.
type healthcheck struct {
	Method              string `json:"method"`
	Path                string `json:"path"`
	IntervalSeconds     int32  `json:"intervalSeconds"`
	TimeoutSeconds      int32  `json:"timeoutSeconds"`
	FailureThreshold    int32  `json:"failureThreshold"`
	InitialDelaySeconds int32  `json:"initialDelaySeconds"`
}

func (p *problems) healthcheck(data []byte) *healthcheck {
	if len(data) == 0 {
		return nil
	}
	check := &healthcheck{Method: http.MethodGet, Path: "/", IntervalSeconds: 10, TimeoutSeconds: 5, FailureThreshold: 3}
	if err := json.Unmarshal(data, &check); err != nil {
		p.add("healthcheck", err, "a JSON object")
		return nil
	}
	if check == nil { // the JSON null
		return nil
	}
	if check.Method != http.MethodGet && check.Method != http.MethodPost {
		p.add("healthcheck.method", check.Method, "GET or POST")
	}
	if u, err := url.ParseRequestURI(check.Path); err != nil || !strings.HasPrefix(check.Path, "/") || u.Host != "" ||
		strings.ContainsFunc(check.Path, func(r rune) bool { return r <= ' ' || r > '~' }) {
		p.add("healthcheck.path", check.Path, "a path that begins with /, in printable ASCII")
	}
	for _, field := range []struct {
		name  string
		value int32
		least int32
	}{
		{"intervalSeconds", check.IntervalSeconds, 1},
		{"timeoutSeconds", check.TimeoutSeconds, 1},
		{"failureThreshold", check.FailureThreshold, 1},
		{"initialDelaySeconds", check.InitialDelaySeconds, 0},
	} {
		if field.value < field.least {
			p.add("healthcheck."+field.name, field.value, fmt.Sprint(field.least, " or more"))
		}
	}
	return check
}

func (c Cell) validateSentinel(s *ctrlv1.ApplySentinel) error {
	var p problems
	p.common(s.GetK8SNamespace(), s.GetImage(), s.GetCpuMillicores(), s.GetMemoryMib(), ids{
		{"workspace_id", s.GetWorkspaceId()},
		{"project_id", s.GetProjectId()},
		{"app_id", s.GetAppId()},
		{"environment_id", s.GetEnvironmentId()},
		{"sentinel_id", s.GetSentinelId()},
	})
	// It names a Service, too.
	if len(validation.IsDNS1035Label(s.GetK8SName())) > 0 {
		p.add("k8s_name", s.GetK8SName(), wantLabelName+", and a letter first")
	}
	if s.GetReplicas() < 0 {
		p.add("replicas", s.GetReplicas(), "0 or more")
	}
	return p.err()
}
