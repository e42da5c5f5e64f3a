package buffers

import (
	"context"
	"errors"
	"log/slog"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

var definitionsResource = schema.GroupVersionResource{ //nolint:gochecknoglobals // constant
	Group:    "apiextensions.k8s.io",
	Version:  "v1",
	Resource: "customresourcedefinitions",
}

// definition has the fields that are read of a CustomResourceDefinition.
type definition struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec struct {
		Versions []struct {
			Name   string `json:"name"`
			Served bool   `json:"served"`
		} `json:"versions"`
	} `json:"spec"`
	Status struct {
		Conditions []metav1.Condition `json:"conditions"`
	} `json:"status"`
}

// usable reports whether the version of this package is one that is served once the definition is established.
func (d *definition) usable() bool {
	for _, v := range d.Spec.Versions {
		if v.Name == Version {
			return v.Served
		}
	}
	return false
}

// served reports whether the API server has the buffers. The error is why that is not known.
func (c *Controller) served() (bool, error) {
	c.prepare()
	if ok, err := c.definitions.Synced(); !ok {
		return false, errors.Join(errors.New("whether the cluster has CapacityBuffers is not known yet"), err)
	}
	d, err := c.definitions.Get(types.NamespacedName{Name: Definition})
	switch {
	case errors.Is(err, kube.ErrAbsent):
		return false, nil
	case err != nil:
		return false, err
	}
	return d.DeletionTimestamp == nil && d.usable() && slices.ContainsFunc(d.Status.Conditions, func(c metav1.Condition) bool {
		return c.Type == "Established" && c.Status == metav1.ConditionTrue
	}), nil
}

// reconcileDefinition takes in the definition, which is nil if there is none.
func (c *Controller) reconcileDefinition(ctx context.Context, _ types.NamespacedName, d *definition) (reconcile.Result, error) {
	if d != nil && !d.usable() {
		c.logger.WarnContext(ctx, "capacity buffers are not served in the version", slog.String("version", Version))
	}
	signal(c.turned)
	return reconcile.Result{}, nil
}
