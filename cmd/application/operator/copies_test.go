package operator_test

import (
	"github.com/seed-9e1ffd66/trueup/cmd/api/platform/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/cmd/application/names"
)

// copyIn returns the namespace of the copy of an Application of the bench.
func (b *bench) copyIn(app string, pullRequest int64) string {
	parent := &v1alpha1.Application{}
	parent.Name, parent.Namespace = app, b.name
	return names.OfPreview(parent, pullRequest).Namespace()
}
