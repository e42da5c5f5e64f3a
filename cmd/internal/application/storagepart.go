package application

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/cmd/api/platform/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/application/storage"
)

// storagePart is buckets, and a ConfigMap that names them.
func (p *pass) storagePart() *part {
	spec, n := &p.app.Spec.Storage, p.names
	t := &part{
		name: "storage", condition: v1alpha1.ConditionStorage, enabled: spec.Enabled, gate: p.gates.storage, kinds: []v1alpha1.ExternalKind{v1alpha1.KindBucket},
		child: apply.ID{Kind: "ConfigMap", Namespace: p.app.Namespace, Name: n.StorageConfig()},
	}
	for _, bucket := range spec.Buckets {
		t.external = append(t.external, v1alpha1.External{Kind: v1alpha1.KindBucket, ID: n.Bucket(bucket.Name), Policy: spec.DeletionPolicy})
	}
	t.apply = func(ctx context.Context) error {
		t.note = ""
		var failed []error
		for _, bucket := range spec.Buckets {
			result, err := p.storage.Apply(ctx, storage.Want{Name: n.Bucket(bucket.Name), Public: bucket.Public, Origins: p.origins(), Mark: p.mark})
			if result.NoCORS {
				t.note = "the service has no CORS: browsers cannot reach the buckets from other origins"
			}
			failed = append(failed, err)
		}
		return errors.Join(failed...)
	}
	t.delete = func(ctx context.Context, e v1alpha1.External) error {
		return p.storage.Delete(ctx, e.ID, p.mark, e.Policy == v1alpha1.Retain)
	}
	t.configs = func(context.Context) ([]*unstructured.Unstructured, error) {
		return []*unstructured.Unstructured{p.config(n.StorageConfig(), p.settings.storageVariables(p.app, n))}, nil
	}
	return t
}

// origins are those that browsers send requests from: the app's own and what its spec
// names.
func (p *pass) origins() []string {
	origins := []string{"https://" + p.host()}
	for _, origin := range p.app.Spec.CORS.Origins {
		origins = append(origins, string(origin))
	}
	return origins
}
