package application

import "github.com/seed-9e1ffd66/trueup/cmd/api/platform/v1alpha1"

func (p *pass) storagePart() *part {
	t := &part{name: "storage", condition: v1alpha1.ConditionStorage, enabled: p.app.Spec.Storage.Enabled, gate: p.gates.storage, kinds: []v1alpha1.ExternalKind{v1alpha1.KindBucket}}
	if t.enabled {
		t.err = unset("storage", "S3")
	}
	return t
}
