package operator //nolint:testpackage // a pass is not exported

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/api/platform/v1alpha1"
	outside "github.com/seed-9e1ffd66/trueup/reconcile/external"
)

// TestNothingIsMadeOutsideThatIsNotRecorded has a status that is left alone: the object is
// gone, or another process has acted on a later generation.
func TestNothingIsMadeOutsideThatIsNotRecorded(t *testing.T) {
	t.Parallel()
	bucket := v1alpha1.External{Kind: v1alpha1.KindBucket, ID: "shop-files", Policy: v1alpha1.Delete}
	app := &v1alpha1.Application{}
	p := &pass{
		subject: subject{app: app, write: func(context.Context, func(*v1alpha1.ApplicationStatus)) error { return nil }},
		outside: outside.Pass{Parts: []*outside.Part{{
			Name: "storage", Wanted: true, Kinds: []string{string(v1alpha1.KindBucket)}, Things: things(bucket),
			Delete: func(context.Context, outside.Thing) error { return nil },
		}}},
	}
	require.ErrorContains(t, p.plan(t.Context()), "record what is made outside: the object has changed meanwhile")
	p.subject.write = func(_ context.Context, change func(*v1alpha1.ApplicationStatus)) error {
		change(&app.Status)
		return nil
	}
	require.NoError(t, p.plan(t.Context()))
	require.Equal(t, []v1alpha1.External{bucket}, app.Status.External)
}
