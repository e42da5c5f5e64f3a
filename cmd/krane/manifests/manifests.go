// Package manifests renders the objects that a krane agent needs in its cluster.
package manifests

import (
	"strings"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/installation"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/isolation"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/config"
)

// Manifests are what differs between installations. Image, ControlURL and
// Region are required.
type Manifests struct {
	Image, ControlURL, Region string
	// AllowHTTP lets ControlURL be one of http.
	AllowHTTP bool
	// StateClaim is the PersistentVolumeClaim that keeps the limit of deletions. Empty: a
	// volume that goes with the pod.
	StateClaim string
	// Authorities is a ConfigMap with certificates that the agent trusts beside those of
	// its image. Empty: none.
	Authorities string
}

// Where the agent lives.
const (
	// Namespace is the namespace of the agent.
	Namespace = "krane-system"
	// Account is the name of its ServiceAccount, roles and Deployment.
	Account = "krane"

	// tokenSecret has the token of the agent, and renewed the one that it renews.
	tokenSecret, renewed = "krane-token", "krane-token-renewed"
)

// YAML returns the objects as a stream for kubectl apply. The Secret with the
// token is the operator's to make. The error for a field that the agent would refuse has a
// *[config.FieldError].
func (m Manifests) YAML() (string, error) {
	values := map[string]string{
		config.Variable("control.url"): m.ControlURL, config.Variable("cluster.region"): m.Region,
		config.Variable("control.token"): "mounted", config.Variable("instance_id"): Account,
	}
	if m.AllowHTTP {
		values[config.Variable("allow_http")] = "true"
	}
	if _, err := config.Read(nil, func(variable string) (string, bool) { return values[variable], values[variable] != "" }); err != nil {
		return "", err
	}
	const tokenDir, stateDir, namespaces = "/var/run/krane", "/var/lib/krane", Account + "-namespaces"
	agent := installation.Agent{Name: Account, Namespace: Namespace, TokenSecret: tokenSecret, TokenDir: tokenDir}
	objects := agent.Base()
	objects = append(objects, agent.ClusterRole(Account, toRules(rules())...)...)
	objects = append(objects, agent.ClusterRole(namespaces, toRules(namespaceRules())...)...)
	env := []installation.Variable{
		{Name: "KRANE_CONTROL_URL", Value: m.ControlURL},
		{Name: "KRANE_CLUSTER_REGION", Value: m.Region},
		{Name: "KRANE_TOKEN_FILE", Value: tokenDir + "/token"},
		{Name: "KRANE_TOKEN_SECRET", Value: Namespace + "/" + renewed},
		{Name: "KRANE_STATE_DIR", Value: stateDir},
	}
	if m.AllowHTTP {
		env = append(env, installation.Variable{Name: config.Variable("allow_http"), Value: "true"})
	}
	objects = append(objects, agent.Deployment(installation.Workload{
		Image: m.Image,
		Env:   env,
		Port:  8070, PortName: "http", MemoryLimit: "512Mi",
		State:       installation.State{Dir: stateDir, Size: "16Mi", Claim: m.StateClaim},
		Authorities: m.Authorities,
	}))
	objects = append(objects, agent.WritePolicy(writes())...)
	out, err := agent.YAML([]string{
		"The role " + namespaces + " may be left out: then no empty namespace is ever deleted.",
		"A namespace is empty when no kind of the server has an object in it. One with a kind",
		"that the agent may not list stays, and the agent logs which: let it list that kind in",
		"a ClusterRole of its own, bound to the ServiceAccount " + Account + ".",
	}, objects...)
	return explain(out, append(rules(), namespaceRules()...)), err
}

// NamespaceLabel is the label, with the value of [Account], of a namespace that people have made and given to
// the agent: the write policy lets it write there.
const NamespaceLabel = "unkey.com/agent"

// writes are what the agent writes: its own objects in its own namespaces and in those that were given to it, the
// default account of such a namespace, and its token.
func writes() installation.WritePolicy {
	labeled := func(object, label string) string {
		labels := object + ".metadata.labels"
		return "has(" + labels + ") && '" + label + "' in " + labels + " && " + labels + "['" + label + "'] == '" + Account + "'"
	}
	const managed = "app.kubernetes.io/managed-by"
	const account = "object.spec.template.spec.serviceAccountName"
	return installation.WritePolicy{
		Message: "krane writes only objects with its label, in namespaces that have it or the label " + NamespaceLabel +
			", none of the platform; no token of an account, and no pod of an account of others",
		Variables: []installation.Variable{
			// What is in no namespace is refused, as what is in one of the platform.
			{
				Name: "home",
				Value: "request.kind.kind == 'Namespace' && request.kind.group == '' ? request.name : " +
					"has(request.namespace) ? request.namespace : 'kube-'",
			},
			{Name: "tenant", Value: "!(" + isolation.PlatformExpression("variables.home") + ") && (namespaceObject == null || " +
				labeled("namespaceObject", managed) + " || " + labeled("namespaceObject", NamespaceLabel) + ")"},
			{Name: "account", Value: "request.kind.kind == 'ServiceAccount' && request.kind.group == '' && request.name == 'default'"},
			// A person has taken the label away from what the agent has applied.
			{Name: "repaired", Value: "object != null && oldObject != null && " + labeled("object", managed) +
				" && has(oldObject.metadata.managedFields) && oldObject.metadata.managedFields.exists(f, f.manager == '" + Account +
				"' && f.operation == 'Apply')"},
			// A Secret can be the token of any account of its namespace.
			{Name: "harmless", Value: "request.kind.kind == 'Secret' ? object.type in ['Opaque', 'kubernetes.io/dockerconfigjson'] : " +
				"request.kind.kind in ['Deployment', 'ReplicaSet'] ? !has(" + account + ") || " + account + " in ['', 'default'] || " +
				account + ".startsWith('deploy-') : true"},
		},
		Allowed: []string{
			"request.operation == 'CREATE' && variables.tenant && variables.harmless && " + labeled("object", managed),
			"request.operation == 'UPDATE' && variables.tenant && variables.harmless && (variables.account || " +
				labeled("oldObject", managed) + " || variables.repaired)",
			"request.operation == 'DELETE' && variables.tenant && " + labeled("oldObject", managed),
			"variables.home == '" + Namespace + "' && request.kind.kind == 'Secret' && request.kind.group == '' && " +
				"request.name == '" + renewed + "' && (request.operation == 'DELETE' || variables.harmless)",
		},
	}
}

// rule is what the agent may do to some resources of an API group.
type rule struct {
	group     string
	resources []string
	verbs     []string
	// why is written above the rule. Empty: nothing.
	why string
}

// rules are what the agent does at any time: it reads, writes and deletes the kinds
// that it renders, and reads pods. A server-side apply of an object that is absent
// needs create beside patch. The verb get is used when an apply finds an object that
// the watch has not shown, and list by servers without streaming lists.
func rules() []rule {
	write, list := []string{"get", "list", "watch", "create", "patch", "delete"}, []string{"list"}
	return []rule{
		{resources: []string{"namespaces"}, verbs: []string{"get", "list", "watch", "create", "patch"}},
		{resources: []string{"secrets"}, verbs: write, why: whySecrets},
		{resources: []string{"serviceaccounts", "services"}, verbs: write},
		{group: "apps", resources: []string{"replicasets", "deployments"}, verbs: write},
		{group: "autoscaling", resources: []string{"horizontalpodautoscalers"}, verbs: write},
		{group: "policy", resources: []string{"poddisruptionbudgets"}, verbs: write},
		{group: "cilium.io", resources: []string{"ciliumnetworkpolicies"}, verbs: write},
		{resources: []string{"pods"}, verbs: []string{"list", "watch"}},
		{group: "apps", resources: []string{"daemonsets", "statefulsets"}, verbs: list, why: whyWorkloads},
		{group: "batch", resources: []string{"cronjobs", "jobs"}, verbs: list},
		{resources: []string{"replicationcontrollers"}, verbs: list},
	}
}

const whyWorkloads = `A network policy goes after the pods that it isolates: those whose workload is
being deleted or gone, whatever made them.`

const whySecrets = `In all namespaces, because RBAC cannot state the narrower right. The namespaces
are named by the control plane and made later, and a rule selects neither by
label nor by a pattern of names. A Role in each namespace would need the right
to create RoleBindings in all of them, with which the account can give itself
every Secret. The agent watches the Secrets with its own labels alone.`

const whyDefinitions = `A definition of which no version is served keeps its objects, which no list shows.`

// namespaceRules are what the agent does to delete an empty namespace. They name
// each kind of Kubernetes and of Cilium that lives in namespaces.
func namespaceRules() []rule {
	list := []string{"list"}
	return []rule{
		{resources: []string{"namespaces"}, verbs: []string{"delete"}},
		{resources: []string{
			"configmaps", "events", "limitranges", "persistentvolumeclaims", "podtemplates", "resourcequotas",
		}, verbs: list},
		{group: "apiextensions.k8s.io", resources: []string{"customresourcedefinitions"}, verbs: list, why: whyDefinitions},
		{group: "apps", resources: []string{"controllerrevisions"}, verbs: list},
		{group: "cilium.io", resources: []string{
			"ciliumendpoints", "ciliumenvoyconfigs", "ciliumgatewayclassconfigs", "ciliumlocalredirectpolicies", "ciliumnodeconfigs",
		}, verbs: list},
		{group: "coordination.k8s.io", resources: []string{"leases"}, verbs: list},
		{group: "discovery.k8s.io", resources: []string{"endpointslices"}, verbs: list},
		{group: "events.k8s.io", resources: []string{"events"}, verbs: list},
		{group: "networking.k8s.io", resources: []string{"ingresses", "networkpolicies"}, verbs: list},
		{group: "rbac.authorization.k8s.io", resources: []string{"rolebindings", "roles"}, verbs: list},
		{group: "resource.k8s.io", resources: []string{"resourceclaims", "resourceclaimtemplates"}, verbs: list},
		{group: "storage.k8s.io", resources: []string{"csistoragecapacities"}, verbs: list},
	}
}

func toRules(rules []rule) []any {
	all := make([]any, len(rules))
	for n, r := range rules {
		all[n] = installation.Rule(r.group, toAny(r.resources), toAny(r.verbs))
	}
	return all
}

func toAny(texts []string) []any {
	all := make([]any, len(texts))
	for n, text := range texts {
		all[n] = text
	}
	return all
}

// explain writes the reason of each rule above it.
func explain(yaml string, rules []rule) string {
	for _, r := range rules {
		if r.why == "" {
			continue
		}
		group := r.group
		if group == "" {
			group = `""`
		}
		begin := "- apiGroups:\n  - " + group + "\n  resources:\n  - " + strings.Join(r.resources, "\n  - ") + "\n  verbs:\n"
		yaml = strings.Replace(yaml, begin, "# "+strings.ReplaceAll(r.why, "\n", "\n# ")+"\n"+begin, 1)
	}
	return yaml
}
