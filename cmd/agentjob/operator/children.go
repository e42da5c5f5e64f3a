package operator

import (
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/cmd/api/thurkube/v1alpha1"
)

type object = map[string]any

// manager is the field manager, and what app.kubernetes.io/managed-by names.
const manager = "thurkube"

const labelManagedBy = "app.kubernetes.io/managed-by"

// owner is the identity of the operator: the children of a job are a part, named by the
// UID of the job. A job of the same name that was created again has another part, so the
// children of its predecessor are never taken for its own.
func owner() apply.Owner {
	return apply.Owner{
		Manager:   manager,
		Labels:    map[string]string{labelManagedBy: manager},
		Domain:    v1alpha1.Group,
		PartLabel: v1alpha1.LabelOwner,
	}
}

// plan is the desired children of a job, apart from the Job of a run.
type plan struct {
	from *resolved

	config       map[string]string
	configHash   string
	templateHash string
}

func newPlan(r *resolved) (*plan, error) {
	config, err := renderConfig(r)
	if err != nil {
		return nil, err
	}
	template, err := templateHash(r)
	if err != nil {
		return nil, err
	}
	return &plan{from: r, config: config, configHash: configHash(config), templateHash: template}, nil
}

func (p *plan) want() want {
	return want{runHash(p.configHash, p.templateHash), p.from.job.Annotations[v1alpha1.AnnotationRerun]}
}

// The names of the children.
func configName(job, hash string) string            { return job + "-config-" + hash }
func accountName(job string) string                 { return job + "-runner" }
func claimName(job string) string                   { return job + "-data" }
func roleName(job *v1alpha1.AgentJob) string        { return manager + ":" + job.Namespace + ":" + job.Name }
func jobName(job *v1alpha1.AgentJob, w want) string { return job.Name + "-" + w.jobSuffix() }

// labels are the four of everything made for a job.
func labels(job *v1alpha1.AgentJob) object {
	return object{
		labelManagedBy: manager, v1alpha1.LabelJob: job.Name,
		v1alpha1.LabelNamespace: job.Namespace, v1alpha1.LabelOwner: string(job.UID),
	}
}

// child returns an object of the job's namespace whose controller is the job.
func child(job *v1alpha1.AgentJob, apiVersion, kind, name string, fields object) *unstructured.Unstructured {
	o := object{"apiVersion": apiVersion, "kind": kind, "metadata": object{
		"name": name, "namespace": job.Namespace, "labels": labels(job),
		"ownerReferences": []any{object{
			"apiVersion": v1alpha1.GroupVersion().String(), "kind": "AgentJob", "name": job.Name, "uid": string(job.UID),
			"controller": true, "blockOwnerDeletion": true,
		}},
	}}
	maps.Copy(o, fields)
	return &unstructured.Unstructured{Object: o}
}

// base returns what every run needs: config, identity, access and volume.
func (p *plan) base() []*unstructured.Unstructured {
	job := p.from.job
	account := child(job, "v1", "ServiceAccount", accountName(job.Name), object{"automountServiceAccountToken": false})
	account.SetAnnotations(job.Spec.ServiceAccountAnnotations)
	objects := []*unstructured.Unstructured{
		child(job, "v1", "ConfigMap", configName(job.Name, p.configHash), object{"immutable": true, "data": toObject(p.config)}), account,
	}
	if p.from.access != nil {
		objects = append(objects, p.rights()...)
	}
	if job.Spec.Persist {
		objects = append(objects, p.claim())
	}
	if job.Spec.NetworkPolicy != nil {
		objects = append(objects, p.isolation())
	}
	return objects
}

// rights are a role and its binding of this job alone.
func (p *plan) rights() []*unstructured.Unstructured {
	kind, name := "ClusterRole", roleName(p.from.job)
	if p.from.job.Spec.Access == v1alpha1.NamespaceScope {
		kind = "Role"
	}
	const group = "rbac.authorization.k8s.io"
	rules := make([]any, len(p.from.access.Spec.Rules))
	for i := range p.from.access.Spec.Rules {
		rules[i] = toObject(&p.from.access.Spec.Rules[i])
	}
	role := child(p.from.job, group+"/v1", kind, name, object{"rules": rules})
	binding := child(p.from.job, group+"/v1", kind+"Binding", name, object{
		"roleRef":  object{"apiGroup": group, "kind": kind, "name": name},
		"subjects": []any{object{"kind": "ServiceAccount", "name": accountName(p.from.job.Name), "namespace": p.from.job.Namespace}},
	})
	if kind == "ClusterRole" {
		// A namespaced object cannot own one of the cluster: the finalizer sees to it.
		for _, o := range []*unstructured.Unstructured{role, binding} {
			o.SetNamespace("")
			o.SetOwnerReferences(nil)
		}
	}
	// Nothing is bound to an account of that name which is not ours.
	dependOn(binding, id(role), apply.ID{Kind: "ServiceAccount", Namespace: p.from.job.Namespace, Name: accountName(p.from.job.Name)})
	return []*unstructured.Unstructured{role, binding}
}

// claim returns the volume that survives the runs. A volume cannot change but for its size,
// which grow raises.
func (p *plan) claim() *unstructured.Unstructured {
	storage := &p.from.job.Spec.Storage
	spec := object{"resources": object{"requests": object{"storage": storage.Size.String()}}}
	modes := []any{}
	for _, mode := range storage.AccessModes {
		modes = append(modes, string(mode))
	}
	if len(modes) == 0 {
		modes = []any{string(corev1.ReadWriteOnce)}
	}
	spec["accessModes"] = modes
	if storage.ClassName != nil {
		spec["storageClassName"] = *storage.ClassName
	}
	return child(p.from.job, "v1", "PersistentVolumeClaim", claimName(p.from.job.Name), object{"spec": spec})
}

func (p *plan) isolation() *unstructured.Unstructured {
	spec := object{"podSelector": object{"matchLabels": object{v1alpha1.LabelOwner: string(p.from.job.UID)}}, "policyTypes": []any{"Ingress"}}
	if egress := p.from.job.Spec.NetworkPolicy.Egress; egress != nil {
		rules := make([]any, len(egress))
		for i := range egress {
			rules[i] = toObject(&egress[i])
		}
		spec["egress"], spec["policyTypes"] = rules, []any{"Ingress", "Egress"}
	}
	return child(p.from.job, "networking.k8s.io/v1", "NetworkPolicy", p.from.job.Name, object{"spec": spec})
}

// run returns the Job of a run, which is started once all of base is there. It is held
// by the finalizer until its outcome is recorded.
func (p *plan) run(w want) *unstructured.Unstructured {
	o := child(p.from.job, "batch/v1", "Job", jobName(p.from.job, w), object{"spec": p.jobSpec()})
	o.SetFinalizers([]string{v1alpha1.Finalizer})
	annotations := map[string]string{v1alpha1.AnnotationConfigHash: p.configHash, v1alpha1.AnnotationRunHash: w.hash}
	if w.rerun != "" {
		annotations[v1alpha1.AnnotationRerun] = w.rerun
	}
	o.SetAnnotations(annotations)
	return o
}

// cron returns the CronJob. suspended holds all runs back.
func (p *plan) cron(suspended bool) *unstructured.Unstructured {
	spec := &p.from.job.Spec
	o := child(p.from.job, "batch/v1", "CronJob", p.from.job.Name, object{"spec": object{
		"schedule": spec.Schedule, "timeZone": spec.Timezone, "suspend": suspended, "concurrencyPolicy": "Forbid",
		"successfulJobsHistoryLimit": int64(3), "failedJobsHistoryLimit": int64(3),
		"jobTemplate": object{
			"metadata": object{"labels": labels(p.from.job), "annotations": object{v1alpha1.AnnotationConfigHash: p.configHash}},
			"spec":     p.jobSpec(),
		},
	}})
	o.SetAnnotations(map[string]string{v1alpha1.AnnotationConfigHash: p.configHash, v1alpha1.AnnotationRunHash: p.want().hash})
	dependOn(o, idsOf(p.base())...)
	return o
}

func (p *plan) jobSpec() object {
	return object{
		"backoffLimit":          int64(0),
		"completions":           int64(1),
		"parallelism":           int64(1),
		"activeDeadlineSeconds": p.from.job.Spec.TimeoutSeconds,
		"template":              p.podTemplate(),
	}
}

func id(o *unstructured.Unstructured) apply.ID {
	kind := o.GroupVersionKind()
	return apply.ID{Group: kind.Group, Kind: kind.Kind, Namespace: o.GetNamespace(), Name: o.GetName()}
}

func idsOf(objects []*unstructured.Unstructured) (ids []apply.ID) {
	for _, o := range objects {
		ids = append(ids, id(o))
	}
	return ids
}

// dependOn applies an object only after these.
func dependOn(o *unstructured.Unstructured, ids ...apply.ID) {
	texts := make([]string, len(ids))
	for i, needed := range ids {
		texts[i] = needed.String()
	}
	annotations := o.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[v1alpha1.Group+"/depends-on"] = strings.Join(texts, ",")
	o.SetAnnotations(annotations)
}

// toObject returns a typed value as JSON has it.
func toObject(of any) object {
	if m, ok := of.(map[string]string); ok {
		o := object{}
		for key, value := range m {
			o[key] = value
		}
		return o
	}
	o, _ := runtime.DefaultUnstructuredConverter.ToUnstructured(of) // types of Kubernetes are JSON
	return o
}
