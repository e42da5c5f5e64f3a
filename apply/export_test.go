package apply

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"

	"github.com/seed-9e1ffd66/trueup/apply/internal/view"
	"github.com/seed-9e1ffd66/trueup/internal/versions"
)

// Behind returns what the live view does not show as the server has it at the moment,
// empty if it shows everything. Kinds that are not known, or cannot be watched, are
// passed over.
func (l *Live) Behind(ctx context.Context, client metadata.Interface) (string, error) {
	if err := l.prepare(); err != nil {
		return "", err
	}
	for _, v := range l.registry.views() {
		mapping := v.Mapping()
		if known := v.Known(); known != (view.Known{State: view.Served}) || mapping == nil {
			continue
		}
		list, err := client.Resource(mapping.Resource).List(ctx, metav1.ListOptions{LabelSelector: l.identity.Selector()})
		if err != nil {
			return "", err
		}
		for i := range list.Items {
			o := &list.Items[i]
			if found := v.Look(view.NameOf(o.Namespace, o.Name)); found.Record.Version() < versions.Parse(o.ResourceVersion) {
				return fmt.Sprintf("%s %s/%s at %s", mapping.Resource.Resource, o.Namespace, o.Name, o.ResourceVersion), nil
			}
		}
		if n := v.Len(); n != len(list.Items) {
			return fmt.Sprintf("%d %s, the server has %d", n, mapping.Resource.Resource, len(list.Items)), nil
		}
	}
	return "", nil
}
