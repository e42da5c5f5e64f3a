package starbase

import (
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/isolation"
)

// Bounds of the contract.
const (
	maxReplicas = 1000
	maxPort     = 65535
	maxPercent  = 1000
	maxLBSize   = 200
	// maxEnvBytes keeps the environment of a service inside one ConfigMap.
	maxEnvBytes = 512 << 10
	// maxText is the length in bytes of a text that becomes an annotation.
	maxText = 1024
)

const (
	wantUUID     = "a UUID in lower case, like 3f0c9d6e-8a51-4c77-9b1e-2d4f6a8b0c12"
	wantSlug     = "2 to 63 characters of a-z, 0-9 and -, first and last not -"
	wantLabel    = "a label of RFC 1123: at most %d characters of a-z, 0-9 and -, first and last not -"
	wantQuantity = "a Kubernetes quantity, like 250m, 1.5 or 256Mi"
	wantResource = "a resource name, like cpu or requests.memory"
	wantPort     = "1 to 65535"
	wantProtocol = "TCP or UDP"
)

//nolint:gochecknoglobals // never written to
var (
	uuidPattern     = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)
	slugPattern     = short(63, `^[a-z0-9][a-z0-9-]*[a-z0-9]$`)
	labelPattern    = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)
	namePattern     = short(63, `^[a-z]([a-z0-9-]*[a-z0-9])?$`)
	addressPattern  = regexp.MustCompile(`(^|\.)[0-9]+$`) // no domain has a last label of digits (RFC 3696)
	tierPattern     = short(63, `^([A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?)?$`)
	imagePattern    = short(512, `^[!-~]+$`)
	imageRefPattern = regexp.MustCompile(`^([a-z0-9.-]+(:[0-9]+)?/)?[a-z0-9._/-]+@sha256:[0-9a-f]{64}$`)
	envPattern      = short(253, `^[A-Za-z_][A-Za-z0-9_.-]*$`)
	quantityPattern = regexp.MustCompile(`^([0-9]{1,18}(\.[0-9]{0,9})?|\.[0-9]{1,9})([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,2})?$`)
	// varGroupNamePattern is that of what people call a group.
	varGroupNamePattern = short(63, `^[A-Za-z0-9]([A-Za-z0-9 _.-]*[A-Za-z0-9])?$`)
	resourcePattern     = short(253, `^[a-z0-9]([a-z0-9./-]*[a-z0-9])?$`)
)

// form is a pattern and the most bytes of what matches it. A bound in the pattern would have the
// package take a megabyte and some milliseconds in each process that imports it.
type form struct {
	most    int
	pattern *regexp.Regexp
}

func short(most int, pattern string) form { return form{most, regexp.MustCompile(pattern)} }

// MatchString reports whether the text is short enough and matches the pattern.
func (f form) MatchString(text string) bool {
	return len(text) <= f.most && f.pattern.MatchString(text)
}

// validHost reports whether a text is labels of RFC 1123 with dots between them.
func validHost(text string) bool {
	for label := range strings.SplitSeq(text, ".") {
		if len(label) > 63 || !labelPattern.MatchString(label) {
			return false
		}
	}
	return true
}

// ValidUUID reports whether id has the form of every id of the contract: a
// UUID in lower case.
func ValidUUID(id string) bool { return uuidPattern.MatchString(id) }

// ValidSlug reports whether slug can name a project or a workspace.
func ValidSlug(slug string) bool { return slugPattern.MatchString(slug) }

// Validate returns what is wrong with the configuration.
func (c ClusterConfig) Validate() []FieldError {
	var v violations
	v.require("lb_size_units", c.LBSizeUnits, c.LBSizeUnits >= 1 && c.LBSizeUnits <= maxLBSize, "1 to 200")
	return v
}

// Validate returns what is wrong with the project. Of a tombstone only the
// ids and the namespace are looked at.
func (p *Project) Validate() []FieldError {
	var v violations
	v.match("project_id", p.ProjectID, uuidPattern, wantUUID)
	v.match("workspace_id", p.WorkspaceID, uuidPattern, wantUUID)
	v.require(
		"namespace",
		p.Namespace,
		labelPattern.MatchString(p.Namespace) && len(p.Namespace) <= 63 && strings.HasPrefix(p.Namespace, NamespacePrefix),
		"proj-<slug>, at most 63 characters",
	)
	if p.Deleted {
		return v
	}
	v.match("slug", p.Slug, slugPattern, wantSlug)
	v.quantities("quota", p.Quota)
	v.quantities("limits.default", p.Limits.Default)
	v.quantities("limits.default_request", p.Limits.DefaultRequest)
	v.quantities("limits.max", p.Limits.Max)
	v.quantities("limits.min", p.Limits.Min)
	for i, egress := range p.Egress {
		in := fmt.Sprintf("egress[%d].", i)
		prefix, err := netip.ParsePrefix(egress.CIDR)
		v.require(in+"cidr", egress.CIDR, err == nil && prefix == prefix.Masked(), "a network like 203.0.113.0/24, no bits set behind the prefix")
		v.require(in+"port", egress.Port, egress.Port >= 0 && egress.Port <= maxPort, wantPort+", or 0 for all")
		v.protocol(in+"protocol", egress.Protocol)
	}
	return v
}

// Validate returns what is wrong with the service, with the path of each
// field, its value and what would be right. Values of environment variables
// are never among them. Of a tombstone only the identity is looked at.
func (s *Service) Validate() []FieldError {
	var v violations
	v.match("project_id", s.ProjectID, uuidPattern, wantUUID)
	v.match("service_id", s.ServiceID, uuidPattern, wantUUID)
	v.environmentName(s.Environment)
	if s.Deleted {
		return v
	}
	v.match("workspace_id", s.WorkspaceID, uuidPattern, wantUUID)
	if s.ServiceName != "" {
		v.match(
			"service_name",
			s.ServiceName,
			namePattern,
			"a label of RFC 1035: at most 63 characters of a-z, 0-9 and -, first a letter, last not -",
		)
	}
	v.match("tier", s.Tier, tierPattern, "a label value: at most 63 characters of A-Z, a-z, 0-9, -, _ and ., first and last a letter or digit")
	v.match("image", s.Image, imagePattern, "an image reference without spaces, at most 512 characters")
	v.require("replicas", s.Replicas, s.Replicas >= 0 && s.Replicas <= maxReplicas, "0 to 1000")
	v.variables("env", s.Env)
	v.ports(s.Ports)
	if s.Hostname != "" {
		v.require(
			"hostname",
			s.Hostname,
			len(s.Hostname) <= 253 && validHost(s.Hostname) && !addressPattern.MatchString(s.Hostname),
			"a host name in lower case, like shop.example.com, and no address",
		)
	}
	v.quantities("resources.requests", s.Resources.Requests)
	v.quantities("resources.limits", s.Resources.Limits)
	v.ordered(s.Resources)
	v.probe("probes.startup", s.Probes.Startup)
	v.probe("probes.readiness", s.Probes.Readiness)
	v.probe("probes.liveness", s.Probes.Liveness)
	_, err := isolation.ParseLevel(string(s.PodSecurity))
	v.require("pod_security", string(s.PodSecurity), err == nil, isolation.Want+", or nothing for "+string(isolation.Restricted))
	v.autoscaling(s.Autoscaling)
	if s.RestartNonce != "" {
		v.match("restart_nonce", s.RestartNonce, uuidPattern, wantUUID)
	}
	v.varGroups(s.VarGroups)
	v.deployment(s.Deployment)
	return v
}

// violations collects field errors in the order in which they are found.
type violations []FieldError

func (v *violations) add(field, value, want string) {
	const longest = 80
	if len(value) > longest {
		value = strings.ToValidUTF8(value[:longest], "") + "..."
	}
	*v = append(*v, FieldError{Field: field, Value: value, Want: want})
}

func (v *violations) require(field string, value any, ok bool, want string) {
	if ok {
		return
	}
	if text, isText := value.(string); isText {
		value = fmt.Sprintf("%q", text)
	}
	v.add(field, fmt.Sprint(value), want)
}

func (v *violations) match(field, value string, pattern interface{ MatchString(text string) bool }, want string) {
	v.require(field, value, pattern.MatchString(value), want)
}

func (v *violations) bounded(field, value string, least, most int) {
	v.require(field, value, len(value) >= least && len(value) <= most, fmt.Sprintf("%d to %d bytes", least, most))
}

func (v *violations) protocol(field, value string) {
	v.require(field, value, value == "" || value == ProtocolTCP || value == ProtocolUDP, wantProtocol)
}

func (v *violations) quantities(field string, quantities map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(quantities)) {
		v.match(field, name, resourcePattern, wantResource)
		v.match(field+"."+name, quantities[name], quantityPattern, wantQuantity)
	}
}

func (v *violations) environmentName(name string) {
	v.require("environment", name, len(name) <= 30 && labelPattern.MatchString(name), fmt.Sprintf(wantLabel, 30))
}

// variables checks environment variables, and never shows a value.
func (v *violations) variables(field string, variables map[string]string) {
	size := 0
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		v.match(field, name, envPattern, "names of letters, digits, _, - and ., first a letter or _, at most 253 characters")
		if strings.ContainsRune(variables[name], 0) {
			v.add(field+"."+name, "", "a value without NUL")
		}
		size += len(name) + len(variables[name])
	}
	if size > maxEnvBytes {
		v.add(field, fmt.Sprintf("%d bytes", size), fmt.Sprintf("at most %d bytes in all", maxEnvBytes))
	}
}

func (v *violations) ports(ports []Port) {
	seen := make(map[Port]bool, len(ports))
	for i, port := range ports {
		in := fmt.Sprintf("ports[%d].", i)
		v.require(in+"container_port", port.ContainerPort, port.ContainerPort >= 1 && port.ContainerPort <= maxPort, wantPort)
		v.protocol(in+"protocol", port.Protocol)
		if port.Protocol == "" {
			port.Protocol = ProtocolTCP
		}
		v.require(in+"container_port", port.ContainerPort, !seen[port], "each port once for each protocol")
		seen[port] = true
	}
}

func (v *violations) probe(field string, probe Probe) {
	if probe == (Probe{}) {
		return
	}
	v.require(
		field+".path",
		probe.Path,
		probe.Path == "" || (strings.HasPrefix(probe.Path, "/") && len(probe.Path) <= maxText),
		"a path that starts with /",
	)
	v.require(field+".port", probe.Port, probe.Port >= 1 && probe.Port <= maxPort, wantPort)
	for _, number := range []struct {
		name  string
		value int
	}{
		{"initial_delay_seconds", probe.InitialDelaySeconds},
		{"period_seconds", probe.PeriodSeconds},
		{"timeout_seconds", probe.TimeoutSeconds},
		{"failure_threshold", probe.FailureThreshold},
	} {
		v.require(field+"."+number.name, number.value, number.value >= 0 && number.value <= 3600, "0 to 3600")
	}
}

func (v *violations) autoscaling(scaling Autoscaling) {
	if scaling == (Autoscaling{}) {
		return
	}
	v.require("autoscaling.min", scaling.Min, scaling.Min >= 1 && scaling.Min <= maxReplicas, "1 to 1000")
	v.require("autoscaling.max", scaling.Max, scaling.Max >= scaling.Min && scaling.Max <= maxReplicas, "min to 1000")
	v.require(
		"autoscaling.cpu_percent",
		scaling.CPUPercent,
		scaling.CPUPercent >= 0 && scaling.CPUPercent <= maxPercent,
		"1 to 1000, or 0 for none",
	)
	v.require(
		"autoscaling.memory_percent",
		scaling.MemoryPercent,
		scaling.MemoryPercent >= 0 && scaling.MemoryPercent <= maxPercent,
		"1 to 1000, or 0 for none",
	)
}

func (v *violations) varGroups(groups []ServiceVarGroup) {
	ids, orders := map[string]bool{}, map[int]bool{}
	for i, group := range groups {
		in := fmt.Sprintf("var_groups[%d].", i)
		v.match(in+"var_group_id", group.VarGroupID, uuidPattern, wantUUID)
		v.require(in+"var_group_id", group.VarGroupID, !ids[group.VarGroupID], "each group once")
		v.require(in+"attach_order", group.AttachOrder, !orders[group.AttachOrder], "each order once")
		ids[group.VarGroupID], orders[group.AttachOrder] = true, true
	}
}

func (v *violations) deployment(d Deployment) {
	for _, text := range []struct{ name, value string }{
		{"id", d.ID},
		{"build_id", d.BuildID},
		{"git_sha", d.GitSHA},
		{"git_ref", d.GitRef},
		{"git_repo", d.GitRepo},
		{"deployed_by", d.DeployedBy},
		{"change_cause", d.ChangeCause},
	} {
		v.bounded("deployment."+text.name, text.value, 0, maxText)
	}
	if d.ImageRef != "" {
		v.match(
			"deployment.image_ref",
			d.ImageRef,
			imageRefPattern,
			"an image by digest without a tag, like registry.example.com/shop@sha256:<64 hex digits>",
		)
	}
	if d.DeployedAt != "" {
		_, err := time.Parse(time.RFC3339, d.DeployedAt)
		v.require("deployment.deployed_at", d.DeployedAt, err == nil, "a time of RFC 3339, like 2026-01-31T12:00:00Z")
	}
}
