package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
)

// Labels and annotations of the contract.
const (
	prefix = "starform.io/"

	labelManagedBy     = prefix + "managed-by"
	labelClusterID     = prefix + "cluster-id"
	labelWorkspaceID   = prefix + "workspace-id"
	labelProjectID     = prefix + "project-id"
	labelEnvironment   = prefix + "environment"
	labelServiceID     = prefix + "service-id"
	labelServiceName   = prefix + "service-name"
	labelTier          = prefix + "tier"
	labelVarGroupID    = prefix + "var-group-id"
	labelNamespaceRole = prefix + "namespace-role"

	annotationConfigChecksum = prefix + "config-checksum"
	annotationRestartNonce   = prefix + "restart-nonce"
	annotationVarGroups      = prefix + "var-group-checksum"
	annotationDependsOn      = prefix + "depends-on" // of package apply

	manager     = "shuttle"
	roleGateway = "gateway"

	// ownerDomain is the prefix of the annotations of package apply.
	ownerDomain = "starform.io"
)

// The shared Gateway that every route attaches to, unless a setting names another.
const (
	gatewayNamespace = "starform-gateway"
	gatewayName      = "starform-gateway"
)

// Names of the objects that a namespace has once.
const (
	serviceAccountName = "workload"
	quotaName          = "project-quota"
	limitRangeName     = "project-limits"
	roleName           = "workload-config-reader"
	containerName      = "main" // in each pod
)

// hex32 returns a UUID as its 32 hexadecimal digits.
func hex32(uuid string) string { return strings.ReplaceAll(uuid, "-", "") }

// uuidOf is the inverse of hex32. It returns any other text unchanged.
func uuidOf(digits string) string {
	if len(digits) != 32 {
		return digits
	}
	return digits[:8] + "-" + digits[8:12] + "-" + digits[12:16] + "-" + digits[16:20] + "-" + digits[20:]
}

// serviceName is the service's name for people. In basic mode the id serves.
func serviceName(s *starbase.Service) string {
	if s.ServiceName != "" {
		return s.ServiceName
	}
	return s.ServiceID
}

// maxName is the length to which the service's name is cut in the names of objects.
const maxName = 22

// workloadName names the objects of a service in an environment: at most 22
// characters of the service's name, the environment, and 8 digits of a hash of the
// service id. Where another service could have the same name, such as x-a in b and x in
// a-b, the hash covers the environment, too. The name has at most 62 characters. It
// depends on the service alone, so no other service ever changes it.
func workloadName(s *starbase.Service) string {
	name := serviceName(s)
	if name[0] >= '0' && name[0] <= '9' {
		name = "s-" + name // a Service is named by a label of RFC 1035
	}
	name = strings.TrimRight(name[:min(len(name), maxName)], "-")
	hashed := s.ServiceID
	// A longer name that begins with this one takes at least the first word of the
	// environment. Of two services with one plain name, the one with the shorter
	// name gives it up.
	if word := strings.IndexByte(s.Environment, '-'); word >= 0 && len(name)+1+word <= maxName {
		hashed += "/" + s.Environment
	}
	sum := sha256.Sum256([]byte(hashed))
	return name + "-" + s.Environment + "-" + hex.EncodeToString(sum[:4])
}

// routeName names the HTTPRoute of a service in an environment.
func routeName(s *starbase.Service) string {
	return hex32(s.ProjectID) + hex32(s.ServiceID) + "-" + s.Environment
}

// secretName names the Secret of a var group.
func secretName(groupID string) string { return "vg-" + groupID }

// secretID is the Secret of a var group.
func secretID(p *starbase.Project, groupID string) apply.ID {
	return apply.ID{Kind: "Secret", Namespace: p.Namespace, Name: secretName(groupID)}
}

func policyName(environment string) string { return "env-isolation-" + environment }

// policyID is the NetworkPolicy of an environment.
func policyID(p *starbase.Project, environment string) apply.ID {
	return apply.ID{Group: "networking.k8s.io", Kind: "NetworkPolicy", Namespace: p.Namespace, Name: policyName(environment)}
}
