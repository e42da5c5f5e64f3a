package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/diff"
	"github.com/seed-9e1ffd66/trueup/reconcile"
)

// annotationSizeUnits says how large the load balancer of a Service is.
const annotationSizeUnits = "service.beta.kubernetes.io/do-loadbalancer-size-unit"

// reasonClusterConfig is why the part of a body that is the cluster's is refused.
const reasonClusterConfig starbase.Reason = "cluster_config"

// gateway sizes the load balancer of the gateway, and lets the gateway's namespace reach
// the pods. The two objects are others', so they are in no live view: both are read, and
// written only if they differ.
type gateway struct {
	fields  apply.Overlay
	service types.NamespacedName // zero: none
	desired *desired
	metrics *metrics
	logger  *slog.Logger
	report  func(problem)
	refused string // the version whose configuration was refused last
	left    bool   // what a gateway of before had is given back
}

// Reconcile implements reconcile.Reconciler. What fails is reported, and tried again.
func (g *gateway) Reconcile(ctx context.Context) (reconcile.Result, error) {
	current, _ := g.desired.peek()
	if current == nil {
		return reconcile.Result{}, nil // without a desired state nothing is changed
	}
	left := g.leave(ctx)
	if g.service == (types.NamespacedName{}) {
		return reconcile.Result{}, left
	}
	err := errors.Join(left, g.set(ctx, "Namespace", "", g.service.Namespace, "labels", labelNamespaceRole, roleGateway))
	config := current.state.ClusterConfig
	refused := config.Validate()
	if len(refused) > 0 {
		g.refuse(ctx, current.state.Version, refused)
	} else {
		size := strconv.Itoa(config.LBSizeUnits)
		err = errors.Join(err, g.set(ctx, "Service", g.service.Namespace, g.service.Name, "annotations", annotationSizeUnits, size))
	}
	if ctx.Err() == nil { // a pass that was cut short has failed for that alone
		g.tell(problemOf(refused, err))
	}
	return reconcile.Result{}, err
}

// problemOf returns what a pass has come to.
func problemOf(refused []starbase.FieldError, err error) problem {
	message := ""
	if err != nil {
		message = strings.ReplaceAll(err.Error(), "\n", "; ") // of two objects
	}
	switch {
	case len(refused) > 0:
		return problem{classInvalid, shorten(join(refused))}
	case apierrors.IsNotFound(err):
		return problem{starbase.ClassGatewayMissing, shorten(message)}
	case err != nil:
		return problem{classApplyFailed, shorten(message)}
	}
	return problem{}
}

// tell publishes the result of a pass in the reports and the metrics.
func (g *gateway) tell(p problem) {
	g.metrics.gateway.Set(0)
	if p != (problem{}) {
		g.metrics.gateway.Set(1)
	}
	g.report(p)
}

// refuse counts and logs a configuration once.
func (g *gateway) refuse(ctx context.Context, version string, problems []starbase.FieldError) {
	if g.refused == version {
		return
	}
	g.refused = version
	g.metrics.rejected.WithLabelValues(string(reasonClusterConfig)).Inc()
	g.logger.ErrorContext(ctx, "configuration of the cluster refused", slog.String("version", version), slog.String("reason", join(problems)))
}

// set gives an object that label or annotation.
func (g *gateway) set(ctx context.Context, kind, namespace, name, in, key, value string) error {
	metadata := object{"name": name, in: object{key: value}}
	if namespace != "" {
		metadata["namespace"] = namespace
	}
	fields := &unstructured.Unstructured{Object: object{"apiVersion": "v1", "kind": kind, "metadata": metadata}}
	changed, err := g.fields.State(ctx, fields)
	if changed {
		g.logger.InfoContext(ctx, "gateway changed", slog.String("object", kind+"/"+name), slog.String(key, value))
	}
	return err
}

// leave gives back what a gateway of before has: its namespace may no longer reach the pods.
func (g *gateway) leave(ctx context.Context) error {
	if g.left {
		return nil
	}
	labelled := metav1.ListOptions{LabelSelector: labelNamespaceRole + "=" + roleGateway}
	namespaces, err := g.fields.Objects.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).List(ctx, labelled)
	if err != nil {
		return fmt.Errorf("gateway of before: %w", err)
	}
	var errs []error
	for i := range namespaces.Items {
		namespace := namespaces.Items[i].GetName()
		services, err := g.fields.Objects.Resource(schema.GroupVersionResource{Version: "v1", Resource: "services"}).
			Namespace(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			errs = append(errs, err)
			continue // its label is what it is found by
		}
		for j := range services.Items {
			if name := services.Items[j].GetName(); (types.NamespacedName{Namespace: namespace, Name: name}) != g.service {
				err = errors.Join(err, g.giveBack(ctx, "Service", &services.Items[j]))
			}
		}
		if namespace != g.service.Namespace && err == nil {
			err = g.giveBack(ctx, "Namespace", &namespaces.Items[i])
		}
		errs = append(errs, err)
	}
	err = errors.Join(errs...)
	g.left = err == nil
	return err
}

func (g *gateway) giveBack(ctx context.Context, kind string, o *unstructured.Unstructured) error {
	if diff.Entry(o.GetManagedFields(), g.fields.Manager) == nil {
		return nil
	}
	changed, err := g.fields.GiveBack(ctx, schema.GroupVersionKind{Version: "v1", Kind: kind}, o.GetNamespace(), o.GetName())
	if changed && err == nil {
		g.logger.InfoContext(ctx, "gateway of before left", slog.String("object", kind+"/"+o.GetName()))
	}
	return err
}
