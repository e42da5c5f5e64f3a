package agent

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/isolation"
)

// Kinds are the kinds that the agent writes, and so those that it watches.
func Kinds() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{
		{Version: "v1", Kind: "Namespace"},
		{Version: "v1", Kind: "ResourceQuota"},
		{Version: "v1", Kind: "LimitRange"},
		{Version: "v1", Kind: "ServiceAccount"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "Role"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleBinding"},
		{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"},
		{Version: "v1", Kind: "Secret"},
		{Version: "v1", Kind: "ConfigMap"},
		{Version: "v1", Kind: "Service"},
		{Group: "apps", Version: "v1", Kind: "Deployment"},
		{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"},
		{Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscaler"},
		{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "HTTPRoute"},
	}
}

// Rendered is a desired state as Kubernetes objects.
type Rendered struct {
	Objects []*unstructured.Unstructured
	// Services are the services to run, with the IDs of their own objects.
	Services []RenderedService
	// Rejected are the services that must not be applied as they were sent.
	Rejected []Rejection

	absence absence
}

// RenderedService is a service and the objects it alone has.
type RenderedService struct {
	Identity   starbase.Identity
	Replicas   int // of an autoscaled service, the ones it begins with
	Autoscaled bool
	Deployment types.NamespacedName
	Objects    []apply.ID
	// Shared are the objects of the project and of the environment, which it needs.
	Shared []apply.ID
}

// Rejection is a service that is left as it is.
type Rejection struct {
	Identity starbase.Identity
	Class    string
	Message  string
}

// Classes of a Rejection.
const (
	classInvalid   = "Invalid"
	classDuplicate = "DuplicateIdentity"
	classNoProject = "NoProject"
	classNoGroup   = "NoVarGroup"
	classCollision = "NameCollision"
)

// Rules are the settings of a cluster that decide about objects.
type Rules struct {
	DNS DNSSelector
	// PodSecurity is the loosest level that a service may ask for, and what namespaces
	// enforce. Empty: restricted.
	PodSecurity isolation.Level
	// Gateway is what routes attach to. Zero: starform-gateway/starform-gateway.
	Gateway types.NamespacedName
	// ImagePullSecrets are names of Secrets in the namespaces of the projects, which others put
	// there, that images are pulled with.
	ImagePullSecrets []string
	// ClusterRanges are public ranges that pods and nodes of the cluster have: the rule for TCP 443
	// leaves them out, as it does the private ones.
	ClusterRanges []netip.Prefix
}

// Render turns a desired state of a cluster into objects. It is pure: one state
// gives one result, whatever the cluster holds. What is wrong with one service, or one
// project, rejects that one and touches no other.
func Render(state *starbase.DesiredState, cluster string, rules Rules) Rendered {
	rules.PodSecurity = cmp.Or(rules.PodSecurity, isolation.Restricted)
	rules.Gateway = cmp.Or(rules.Gateway, types.NamespacedName{Namespace: gatewayNamespace, Name: gatewayName})
	r := renderer{
		state: state, cluster: cluster, rules: rules,
		projects: map[string]*starbase.Project{}, refused: map[string]string{},
	}
	r.readProjects()
	r.readVarGroups()
	duplicates := state.Duplicates()
	rejected := map[starbase.Identity]bool{}
	services := make([]*starbase.Service, 0, len(state.Services))
	for i := range state.Services {
		s := &state.Services[i]
		id := s.Identity()
		switch class, message := r.judge(s, duplicates); {
		case s.Deleted && class == "":
			r.out.absence.gone(id)
		case class == "":
			services = append(services, s)
		case !rejected[id]:
			rejected[id] = true
			r.out.Rejected = append(r.out.Rejected, Rejection{id, class, message})
			r.out.absence.reject(id)
		}
	}
	slices.SortFunc(services, func(a, b *starbase.Service) int { return a.Identity().Compare(b.Identity()) })
	r.render(r.distinct(services))
	return r.out
}

// distinct rejects services whose objects would have the same names, which takes two
// service ids with one hash, and returns the others.
func (r *renderer) distinct(services []*starbase.Service) []*starbase.Service {
	names := make(map[types.NamespacedName][]*starbase.Service, len(services))
	name := func(s *starbase.Service) types.NamespacedName {
		return types.NamespacedName{Namespace: r.projects[s.ProjectID].Namespace, Name: workloadName(s)}
	}
	for _, s := range services {
		names[name(s)] = append(names[name(s)], s)
	}
	return slices.DeleteFunc(services, func(s *starbase.Service) bool {
		for _, other := range names[name(s)] {
			if other != s {
				message := fmt.Sprintf("its objects would be named %s, as those of %s; none of them is applied", workloadName(s), other.Identity())
				r.out.Rejected = append(r.out.Rejected, Rejection{s.Identity(), classCollision, message})
				r.out.absence.reject(s.Identity())
				return true
			}
		}
		return false
	})
}

type renderer struct {
	state    *starbase.DesiredState
	cluster  string
	rules    Rules
	projects map[string]*starbase.Project
	refused  map[string]string // project id -> why its services are rejected
	groups   varGroups
	out      Rendered
}

// readProjects finds the projects by id; in basic mode it makes one for each
// project id that a service names.
func (r *renderer) readProjects() {
	if r.state.Basic() {
		for i := range r.state.Services {
			s := &r.state.Services[i]
			r.projects[s.ProjectID] = &starbase.Project{
				ProjectID: s.ProjectID, WorkspaceID: s.WorkspaceID, Slug: s.ProjectID, Namespace: starbase.NamespacePrefix + s.ProjectID,
			}
		}
		return
	}
	namespaces := map[string]string{}
	for i := range r.state.Projects {
		p := &r.state.Projects[i]
		switch other, taken := namespaces[p.Namespace]; {
		case r.projects[p.ProjectID] != nil || r.refused[p.ProjectID] != "":
			r.refuse(p.ProjectID, "the project is stated more than once")
		case taken && !p.Deleted:
			r.refuse(p.ProjectID, fmt.Sprintf("namespace %s is also that of project %s", p.Namespace, other))
		default:
			if problems := p.Validate(); len(problems) > 0 {
				r.refuse(p.ProjectID, "the project is invalid: "+join(problems))
				continue
			}
			r.projects[p.ProjectID] = p
			if !p.Deleted {
				namespaces[p.Namespace] = p.ProjectID
			} else {
				r.out.absence.goneProject(p.ProjectID)
			}
		}
	}
}

func (r *renderer) refuse(project, why string) {
	r.refused[project] = why
	delete(r.projects, project)
	r.out.absence.rejectProject(project)
}

// judge returns the class of a service's rejection, "" when it may be applied.
func (r *renderer) judge(s *starbase.Service, duplicates []starbase.Identity) (class, message string) {
	if problems := s.Validate(); len(problems) > 0 {
		return classInvalid, join(problems)
	}
	if _, twice := slices.BinarySearchFunc(duplicates, s.Identity(), starbase.Identity.Compare); twice {
		return classDuplicate, "the identity " + s.Identity().String() + " is stated more than once; none of them is applied"
	}
	if s.Deleted {
		return "", ""
	}
	switch p := r.projects[s.ProjectID]; {
	case r.refused[s.ProjectID] != "":
		return classInvalid, r.refused[s.ProjectID]
	case p == nil:
		return classNoProject, "project " + s.ProjectID + " is not in the desired state"
	case p.Deleted:
		return classNoProject, "project " + s.ProjectID + " is deleted"
	case !r.rules.PodSecurity.Allows(podSecurity(s)):
		return classInvalid, fmt.Sprintf("pod_security: %q; want what the cluster allows: %s", s.PodSecurity, r.rules.PodSecurity)
	case s.Hostname != "" && routedPort(s) == 0:
		return classInvalid, fmt.Sprintf("hostname: %q; want a TCP port to route it to, or no hostname", s.Hostname)
	default:
		return r.groups.judge(s)
	}
}

func join(problems []starbase.FieldError) string {
	texts := make([]string, len(problems))
	for i, p := range problems {
		texts[i] = p.Error()
	}
	return strings.Join(texts, "; ")
}

// render emits the objects of the projects, of the environments and of the
// services.
func (r *renderer) render(services []*starbase.Service) {
	type environment struct{ project, name string }
	seen := map[environment]bool{}
	shared := map[string][]apply.ID{} // by project
	projects := make([]*starbase.Project, 0, len(r.projects))
	for _, p := range r.projects {
		projects = append(projects, p)
	}
	slices.SortFunc(projects, func(a, b *starbase.Project) int { return cmp.Compare(a.ProjectID, b.ProjectID) })
	for _, p := range projects {
		if !p.Deleted {
			first := len(r.out.Objects)
			r.project(p)
			shared[p.ProjectID] = idsOfObjects(r.out.Objects[first:])
			r.add(r.groups.secrets(p)...)
		}
	}
	for _, s := range services {
		p := r.projects[s.ProjectID]
		if at := (environment{s.ProjectID, s.Environment}); !seen[at] {
			seen[at] = true
			r.add(networkPolicy(p, s.Environment, &r.rules))
		}
		first := len(r.out.Objects)
		r.service(p, s)
		rendered := RenderedService{
			Identity:   s.Identity(),
			Replicas:   replicas(s),
			Autoscaled: autoscaled(s),
			Deployment: types.NamespacedName{Namespace: p.Namespace, Name: workloadName(s)},
			Shared:     append(slices.Clone(shared[p.ProjectID]), policyID(p, s.Environment)),
			Objects:    idsOfObjects(r.out.Objects[first:]),
		}
		for _, g := range s.VarGroups {
			rendered.Shared = append(rendered.Shared, secretID(p, g.VarGroupID))
		}
		r.out.Services = append(r.out.Services, rendered)
	}
}

func idsOfObjects(objects []*unstructured.Unstructured) []apply.ID {
	ids := make([]apply.ID, len(objects))
	for i, o := range objects {
		ids[i] = idOfObject(o)
	}
	return ids
}

func idOfObject(o *unstructured.Unstructured) apply.ID {
	kind := o.GroupVersionKind()
	return apply.ID{Group: kind.Group, Kind: kind.Kind, Namespace: o.GetNamespace(), Name: o.GetName()}
}

// invalid returns why objects of a service, or those that it needs, cannot be applied
// at all, by service.
func (r *Rendered) invalid(owner apply.Owner) map[starbase.Identity]error {
	byID := make(map[apply.ID]*unstructured.Unstructured, len(r.Objects))
	for _, o := range r.Objects {
		byID[idOfObject(o)] = o
	}
	found := map[starbase.Identity]error{}
	for i := range r.Services {
		s := &r.Services[i]
		var objects []*unstructured.Unstructured
		for _, id := range slices.Concat(s.Shared, s.Objects) {
			objects = append(objects, byID[id])
		}
		if _, err := newSet(owner, objects); err != nil {
			found[s.Identity] = err
		}
	}
	return found
}

func (r *renderer) add(objects ...*unstructured.Unstructured) {
	r.out.Objects = append(r.out.Objects, objects...)
}

func (r *renderer) project(p *starbase.Project) {
	r.add(namespace(p, r.rules.PodSecurity), serviceAccount(p, r.rules.ImagePullSecrets))
	r.add(tenantRole(p)...)
	if len(p.Quota) > 0 {
		r.add(resourceQuota(p))
	}
	if limits := limitRange(p); limits != nil {
		r.add(limits)
	}
}

func (r *renderer) service(p *starbase.Project, s *starbase.Service) {
	r.add(configMap(p, s))
	if len(s.Ports) > 0 {
		r.add(service(p, s))
	}
	r.add(deployment(p, s, r.cluster, r.groups.checksum(s)), disruptionBudget(p, s))
	if autoscaled(s) {
		r.add(autoscaler(p, s))
	}
	if s.Hostname != "" {
		r.add(httpRoute(p, s, r.rules.Gateway))
	}
}

// routedPort is the port that a hostname leads to: the first TCP one, 0 when
// there is none.
func routedPort(s *starbase.Service) int {
	for _, p := range s.Ports {
		if p.Protocol == starbase.ProtocolTCP {
			return p.ContainerPort
		}
	}
	return 0
}
