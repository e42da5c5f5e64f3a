package operator

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/cmd/api/platform/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/cmd/application/internal/storage"
)

// storagePart is buckets, and a ConfigMap that names them.
func (p *pass) storagePart() *part {
	spec, n := &p.subject.app.Spec.Storage, p.subject.names
	t := &part{
		name:      "storage",
		condition: v1alpha1.ConditionStorage,
		enabled:   spec.Enabled,
		gate:      p.op.gates.storage,
		kinds:     []v1alpha1.ExternalKind{v1alpha1.KindBucket},
		child:     apply.ID{Kind: "ConfigMap", Namespace: p.subject.app.Namespace, Name: n.StorageConfig()},
	}
	for _, bucket := range spec.Buckets {
		t.external = append(t.external, v1alpha1.External{Kind: v1alpha1.KindBucket, ID: n.Bucket(bucket.Name), Policy: spec.DeletionPolicy})
	}
	t.apply = func(ctx context.Context) error {
		t.note = ""
		var failed []error
		for _, bucket := range spec.Buckets {
			result, err := p.op.storage.Apply(
				ctx,
				storage.Want{Name: n.Bucket(bucket.Name), Public: bucket.Public, Origins: p.origins(), Mark: p.subject.mark},
			)
			if result.NoCORS {
				t.note = "the service has no CORS: browsers cannot reach the buckets from other origins"
			}
			failed = append(failed, err)
		}
		return errors.Join(failed...)
	}
	t.delete = func(ctx context.Context, e v1alpha1.External) error {
		return p.op.storage.Delete(ctx, e.ID, p.subject.mark, e.Policy == v1alpha1.Retain)
	}
	t.configs = func(context.Context) ([]*unstructured.Unstructured, error) {
		return []*unstructured.Unstructured{p.config(n.StorageConfig(), p.op.settings.storageVariables(p.subject.app, n))}, nil
	}
	return t
}

// origins are those that browsers send requests from: the app's own and what its spec
// names.
func (p *pass) origins() []string {
	var origins []string
	if p.hostErr == nil {
		origins = append(origins, "https://"+p.host())
	}
	for _, origin := range p.subject.app.Spec.CORS.Origins {
		origins = append(origins, string(origin))
	}
	return origins
}
