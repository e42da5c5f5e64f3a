package operator

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/cmd/api/platform/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/cmd/application/internal/storage"
	outside "github.com/seed-9e1ffd66/trueup/reconcile/external"
)

// storagePart is buckets, and a ConfigMap that names them.
func (p *pass) storagePart() *part {
	spec, n := &p.subject.app.Spec.Storage, p.subject.names
	t := &part{
		outside: outside.Part{
			Name: "storage", Wanted: spec.Enabled, Gate: p.op.gates.storage, Kinds: []string{string(v1alpha1.KindBucket)},
		},
		condition: v1alpha1.ConditionStorage,
		child:     apply.ID{Kind: "ConfigMap", Namespace: p.subject.app.Namespace, Name: n.StorageConfig()},
	}
	for _, bucket := range spec.Buckets {
		wanted := v1alpha1.External{Kind: v1alpha1.KindBucket, ID: n.Bucket(bucket.Name), Policy: spec.DeletionPolicy}
		t.outside.Things = append(t.outside.Things, things(wanted)...)
	}
	t.outside.Make = func(ctx context.Context) error {
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
	t.outside.Delete = func(ctx context.Context, e outside.Thing) error {
		return p.op.storage.Delete(ctx, e.ID, p.subject.mark, retained(e))
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
