package simtest

import (
	"slices"
	"strings"
)

// Kind is a kind of objects that a [Server] serves.
type Kind struct {
	// Group is empty for the core group. Version, Resource, which is the plural in
	// lower case, and Kind are required.
	Group, Version, Resource, Kind string
	// Cluster is whether the objects have no namespace.
	Cluster bool
	// Status is whether the status is a subresource. Writes of the object then
	// leave it as it is, and writes of /status change nothing else of a custom
	// resource.
	Status bool
	// Singular and ShortNames are for discovery. Default for Singular: the Kind in
	// lower case.
	Singular   string
	ShortNames []string
	// Schema is that of the definition of a custom kind. Default nil: objects are stored as they
	// are sent.
	Schema Schema
	// Scale is whether a custom kind has a subresource scale, and of which fields. Default nil.
	Scale *Scale
	// Selectable are the paths of more fields that a field selector of a custom kind may have,
	// such as spec.color.
	Selectable []string
}

func (k Kind) apiVersion() string {
	if k.Group == "" {
		return k.Version
	}
	return k.Group + "/" + k.Version
}

// resource is the name of the resource with its group, as in messages.
func (k Kind) resource() string { return qualified(k.Resource, k.Group) }

func qualified(name, group string) string {
	if group == "" {
		return name
	}
	return name + "." + group
}

// unasked are kinds that every server has, and that most programs write to.
var unasked = []Kind{ //nolint:gochecknoglobals // never changed
	{Version: "v1", Resource: "events", Kind: "Event", ShortNames: []string{"ev"}},
	{Group: "events.k8s.io", Version: "v1", Resource: "events", Kind: "Event", ShortNames: []string{"ev"}},
	{Group: "coordination.k8s.io", Version: "v1", Resource: "leases", Kind: "Lease"},
}

// served are all kinds that the server serves.
func (s *Server) served() []Kind {
	all := slices.Clone(s.Kinds)
	for _, k := range unasked {
		if !slices.ContainsFunc(all, func(o Kind) bool { return o.Group == k.Group && o.Resource == k.Resource }) {
			all = append(all, k)
		}
	}
	return all
}

func (s *Server) kind(group, version, resource string) (Kind, bool) {
	fits := func(k Kind) bool {
		return k.Group == group && k.Resource == resource && (version == "" || k.Version == version)
	}
	if i := slices.IndexFunc(s.Kinds, fits); i >= 0 {
		return s.Kinds[i], true
	}
	if i := slices.IndexFunc(unasked, fits); i >= 0 {
		return unasked[i], true
	}
	return Kind{}, false
}

// groups are those of a real server itself. The kinds of all others are custom
// resources.
var groups = []string{ //nolint:gochecknoglobals // never changed
	"", "apps", "autoscaling", "batch", "policy", "admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io",
	"authentication.k8s.io", "authorization.k8s.io", "certificates.k8s.io", "coordination.k8s.io", "discovery.k8s.io", "events.k8s.io",
	"flowcontrol.apiserver.k8s.io", "internal.apiserver.k8s.io", "networking.k8s.io", "node.k8s.io", "rbac.authorization.k8s.io",
	"resource.k8s.io", "scheduling.k8s.io", "storage.k8s.io", "storagemigration.k8s.io",
}

// custom reports whether the kind is one of a definition.
func (k Kind) custom() bool { return !slices.Contains(groups, k.Group) }

// traits are what a real server does with a built-in kind and not with others.
type traits struct {
	// spec is the field whose changes make generations, empty for a kind without
	// generations. annotated is whether those of the annotations do, too.
	spec      string
	annotated bool
	// conditional is whether an update must have a version. upsert is whether it
	// creates what does not exist.
	conditional, upsert bool
	// returned is whether a deletion is answered with the object.
	returned bool
	// orphans is whether dependents are orphaned by default. single is whether there
	// are no propagation policies.
	orphans, single bool
	// status is whether there is a subresource status; kept are the fields of the
	// metadata that it leaves as they are.
	status bool
	kept   []string
	// scale is whether there is a subresource scale.
	scale bool
	// fields are the paths that a field selector may have, by how it names them.
	fields map[string]string
}

// everything is a traits.spec of kinds whose generation counts all but the metadata.
const everything = "*"

var metadata = []string{"labels", "annotations", "finalizers", "ownerReferences"} //nolint:gochecknoglobals // never changed

// builtin has the traits by resource and group, as in Kubernetes 1.36.
var builtin = map[string]traits{ //nolint:gochecknoglobals // never changed
	"configmaps": {},
	"endpoints":  {upsert: true},
	"events": {upsert: true, single: true, fields: map[string]string{
		"involvedObject.kind": "involvedObject.kind", "involvedObject.namespace": "involvedObject.namespace",
		"involvedObject.name": "involvedObject.name", "involvedObject.uid": "involvedObject.uid",
		"involvedObject.apiVersion": "involvedObject.apiVersion", "involvedObject.resourceVersion": "involvedObject.resourceVersion",
		"involvedObject.fieldPath": "involvedObject.fieldPath", "reason": "reason", "reportingComponent": "reportingComponent",
		"source": "source.component", "type": "type",
	}},
	"events.events.k8s.io": {upsert: true, single: true, fields: map[string]string{
		"regarding.kind": "involvedObject.kind", "regarding.namespace": "involvedObject.namespace", "regarding.name": "involvedObject.name",
		"regarding.uid": "involvedObject.uid", "regarding.apiVersion": "involvedObject.apiVersion",
		"regarding.resourceVersion": "involvedObject.resourceVersion", "regarding.fieldPath": "involvedObject.fieldPath", "reason": "reason",
		"reportingController": "reportingComponent", "type": "type",
	}},
	"limitranges":            {upsert: true},
	"namespaces":             {returned: true, status: true, fields: map[string]string{"status.phase": "status.phase"}},
	"nodes":                  {status: true, fields: map[string]string{"spec.unschedulable": "spec.unschedulable"}},
	"persistentvolumes":      {returned: true, status: true},
	"persistentvolumeclaims": {returned: true, status: true},
	"pods": {spec: "spec", returned: true, status: true, kept: []string{"ownerReferences"}, fields: map[string]string{
		"spec.nodeName": "spec.nodeName", "spec.restartPolicy": "spec.restartPolicy", "spec.schedulerName": "spec.schedulerName",
		"spec.serviceAccountName": "spec.serviceAccountName", "spec.hostNetwork": "spec.hostNetwork", "status.phase": "status.phase",
		"status.podIP": "status.podIP", "status.nominatedNodeName": "status.nominatedNodeName",
	}},
	"podtemplates": {spec: "template", returned: true},
	"replicationcontrollers": {
		spec: "spec", orphans: true, status: true, scale: true, fields: map[string]string{"status.replicas": "status.replicas"},
	},
	"resourcequotas":  {returned: true, status: true},
	"secrets":         {fields: map[string]string{"type": "type"}},
	"serviceaccounts": {returned: true},
	"services": {upsert: true, returned: true, status: true, fields: map[string]string{
		"spec.clusterIP": "spec.clusterIP", "spec.type": "spec.type",
	}},
	"controllerrevisions.apps": {},
	"daemonsets.apps":          {spec: "spec", status: true},
	"deployments.apps":         {spec: "spec", annotated: true, status: true, kept: []string{"labels"}, scale: true},
	"replicasets.apps": {
		spec: "spec", status: true, scale: true, fields: map[string]string{"status.replicas": "status.replicas"},
	},
	"statefulsets.apps":                    {spec: "spec", status: true, scale: true},
	"horizontalpodautoscalers.autoscaling": {status: true},
	"cronjobs.batch":                       {spec: "spec", status: true},
	"jobs.batch": {
		spec: "spec", orphans: true, status: true, fields: map[string]string{"status.successful": "status.succeeded"},
	},
	"poddisruptionbudgets.policy":                                    {spec: "spec", conditional: true, status: true},
	"mutatingwebhookconfigurations.admissionregistration.k8s.io":     {spec: everything, conditional: true},
	"validatingwebhookconfigurations.admissionregistration.k8s.io":   {spec: everything, conditional: true},
	"validatingadmissionpolicies.admissionregistration.k8s.io":       {spec: "spec", conditional: true, status: true, kept: metadata},
	"validatingadmissionpolicybindings.admissionregistration.k8s.io": {spec: "spec", conditional: true},
	"customresourcedefinitions.apiextensions.k8s.io":                 {spec: "spec", conditional: true, status: true, kept: metadata},
	"apiservices.apiregistration.k8s.io":                             {status: true, conditional: true, kept: metadata},
	"certificatesigningrequests.certificates.k8s.io": {
		status: true,
		fields: map[string]string{"spec.signerName": "spec.signerName"},
	},
	"leases.coordination.k8s.io":                    {upsert: true, conditional: true},
	"endpointslices.discovery.k8s.io":               {spec: everything},
	"flowschemas.flowcontrol.apiserver.k8s.io":      {spec: "spec", status: true},
	"ingresses.networking.k8s.io":                   {spec: "spec", status: true},
	"ingressclasses.networking.k8s.io":              {spec: "spec"},
	"networkpolicies.networking.k8s.io":             {spec: "spec"},
	"servicecidrs.networking.k8s.io":                {status: true, kept: metadata},
	"runtimeclasses.node.k8s.io":                    {conditional: true, upsert: true},
	"clusterroles.rbac.authorization.k8s.io":        {upsert: true},
	"clusterrolebindings.rbac.authorization.k8s.io": {upsert: true},
	"roles.rbac.authorization.k8s.io":               {upsert: true},
	"rolebindings.rbac.authorization.k8s.io":        {upsert: true},
	"deviceclasses.resource.k8s.io":                 {spec: "spec", returned: true},
	"resourceclaims.resource.k8s.io":                {returned: true, status: true, kept: metadata},
	"resourceclaimtemplates.resource.k8s.io":        {returned: true},
	"resourceslices.resource.k8s.io":                {spec: "spec", returned: true},
	"priorityclasses.scheduling.k8s.io":             {spec: everything},
	"csidrivers.storage.k8s.io":                     {conditional: true, returned: true},
	"csinodes.storage.k8s.io":                       {conditional: true, returned: true},
	"storageclasses.storage.k8s.io":                 {returned: true},
	"volumeattachments.storage.k8s.io":              {conditional: true, returned: true, status: true, kept: metadata},
}

func (k Kind) traits() traits {
	if k.custom() {
		return traits{spec: everything, conditional: true}
	}
	return builtin[k.resource()]
}

// fieldPath returns the path of a field that a field selector names.
func (k Kind) fieldPath(name string) ([]string, bool) {
	if name == "metadata.name" || name == "metadata.namespace" || slices.Contains(k.Selectable, name) {
		return strings.Split(name, "."), true
	}
	path, ok := k.traits().fields[name]
	return strings.Split(path, "."), ok
}

// respecified reports whether a change makes a new generation.
func (k Kind) respecified(live, next Object) bool {
	is := k.traits()
	switch {
	case is.spec == "":
		return false
	case is.spec != everything:
		return !same(live.Field(is.spec), next.Field(is.spec)) ||
			is.annotated && !same(live.Field("metadata", "annotations"), next.Field("metadata", "annotations"))
	}
	live, next = shallow(live), shallow(next)
	for _, o := range []Object{live, next} {
		delete(o, "metadata")
		if k.Status {
			delete(o, "status")
		}
	}
	return !same(map[string]any(live), map[string]any(next))
}
