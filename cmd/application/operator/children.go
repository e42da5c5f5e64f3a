package operator

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/cmd/api/platform/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/diff"
)

type object = map[string]any

// manager is the field manager, and what app.kubernetes.io/managed-by names.
const manager = "plattr-operator"

const labelManagedBy = "app.kubernetes.io/managed-by"

// owner is the identity of the operator: the children of one object are a part, named by
// its UID.
func owner() apply.Owner {
	return apply.Owner{
		Manager:   manager,
		Labels:    map[string]string{labelManagedBy: manager},
		Domain:    v1alpha1.Group,
		PartLabel: v1alpha1.LabelOwner,
	}
}

// ignored are the fields that are stated once: the number of pods is the autoscaler's.
func ignored() (diff.Ignore, error) {
	return diff.NewIgnore(diff.Rule{Kind: "Deployment.apps", Paths: []string{".spec.replicas"}})
}

// labels returns the labels of all children in the cluster.
func (s *subject) labels() object {
	return object{
		"app.kubernetes.io/name": s.names.Workload(), labelManagedBy: manager, v1alpha1.LabelApp: s.app.Name,
		v1alpha1.LabelEnvironment: string(s.app.Spec.Environment), v1alpha1.LabelOwner: string(s.app.UID),
	}
}

// selector selects the pods.
func (p *pass) selector() object {
	return object{v1alpha1.LabelApp: p.subject.app.Name, v1alpha1.LabelEnvironment: string(p.subject.app.Spec.Environment)}
}

// child returns an object in the namespace of the app.
func (p *pass) child(apiVersion, kind, name string, fields object) *unstructured.Unstructured {
	metadata := object{"name": name, "namespace": p.subject.app.Namespace, "labels": p.subject.labels()}
	if p.subject.home == nil {
		metadata["ownerReferences"] = []any{
			object{
				"apiVersion":         v1alpha1.GroupVersion().String(),
				"kind":               p.subject.kind,
				"name":               p.subject.object.GetName(),
				"uid":                string(p.subject.object.GetUID()),
				"controller":         true,
				"blockOwnerDeletion": true,
			},
		}
	}
	o := object{"apiVersion": apiVersion, "kind": kind, "metadata": metadata}
	maps.Copy(o, fields)
	return &unstructured.Unstructured{Object: o}
}

// config returns a ConfigMap with these data.
func (p *pass) config(name string, data map[string]string) *unstructured.Unstructured {
	return p.child("v1", "ConfigMap", name, object{"data": texts(data)})
}

func texts(data map[string]string) object {
	o := object{}
	for key, value := range data {
		o[key] = value
	}
	return o
}

// checksum digests what pods read when they start: names and data of Secrets and
// ConfigMaps.
func checksum(objects []*unstructured.Unstructured) string {
	all := sha256.New()
	for _, o := range objects {
		for _, field := range []string{"stringData", "data"} {
			data, _, _ := unstructured.NestedStringMap(o.Object, field) // made by texts
			for _, key := range slices.Sorted(maps.Keys(data)) {
				for _, text := range []string{o.GetKind(), o.GetName(), key, data[key]} {
					all.Write([]byte(text))
					all.Write([]byte{0})
				}
			}
		}
	}
	return hex.EncodeToString(all.Sum(nil)[:16])
}
