package apply_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
)

// A rollback of a definition removes a field from objects. No watch shows that, and
// managedFields still name the field.
func TestAFieldThatASchemaDroppedForAWhileIsRestored(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	group := strings.ReplaceAll(b.ns, "-", "") + ".example.com"
	define := func(fields string) {
		file := filepath.Join(t.TempDir(), "crd.yaml")
		crd := `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: widgets.` + group + `},
 spec: {group: ` + group + `, scope: Namespaced, names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList},
  versions: [{name: v1, served: true, storage: true,
   schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {` +
			fields + `}}}}}}]}}`
		require.NoError(t, os.WriteFile(file, []byte(crd), 0o600))
		b.kubectl(t, "apply", "-f", file)
	}
	live := func() string {
		return b.kubectl(t, "get", "-n", b.ns, "widgets."+group, "w", "-o", "jsonpath={.spec}")
	}
	define("size: {type: integer}, old: {type: string}")
	b.kubectl(t, "wait", "--for=condition=Established", "--timeout=3m", "crd/widgets."+group)
	a := &agent{}
	var err error
	a.Applier, err = b.program(&a.net, []schema.GroupVersionKind{{Group: group, Version: "v1", Kind: "Widget"}})
	require.NoError(t, err)
	a.Live.ReapplyInterval = 4 * time.Second
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Live.Start(ctx) }()
	t.Cleanup(func() { cancel(); require.NoError(t, <-done) })
	waitSynced(t, a)
	set := b.set(t, "{apiVersion: "+group+"/v1, kind: Widget, metadata: {name: w, namespace: NAMESPACE}, spec: {size: 1, old: x}}")
	require.Equal(t, 1, apply1(t, a, set).Count(apply.Created))

	define("size: {type: integer}")
	await.Eventually(t, "the field is dropped from what is stored", func() bool {
		b.kubectl(t, "annotate", "--overwrite", "-n", b.ns, "widgets."+group, "w", "example.com/now="+time.Now().Format("150405.000"))
		return live() == `{"size":1}`
	})
	define("size: {type: integer}, old: {type: string}")
	await.Eventually(t, "the field is there again", func() bool {
		_, _ = a.Apply(t.Context(), set) // refused until the server has the schema
		return live() == `{"old":"x","size":1}`
	})

	// At rest it is applied in vain, and reported unchanged.
	a.net.Reset()
	await.Eventually(t, "applied again", func() bool {
		require.Equal(t, 1, apply1(t, a, set).Unchanged)
		plan, err := a.Plan(t.Context(), set, apply.PruneOptions{})
		require.NoError(t, err)
		require.Empty(t, plan.Changes)
		return len(a.net.Writes()) > 1
	})
}
