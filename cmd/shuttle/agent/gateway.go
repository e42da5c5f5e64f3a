package agent

import (
	"context"
	"encoding/json"
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
	"k8s.io/client-go/dynamic"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
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
	client  dynamic.Interface
	service types.NamespacedName
	desired *desired
	metrics *metrics
	logger  *slog.Logger
	report  func(problem)
	refused string // the version whose configuration was refused last
}

// Reconcile implements reconcile.Reconciler. What fails is reported, and tried again.
func (g *gateway) Reconcile(ctx context.Context) (reconcile.Result, error) {
	current, _ := g.desired.peek()
	if current == nil {
		return reconcile.Result{}, nil // without a desired state nothing is changed
	}
	err := g.set(ctx, apply.ID{Kind: "Namespace", Name: g.service.Namespace}, "labels", labelNamespaceRole, roleGateway)
	config := current.state.ClusterConfig
	refused := config.Validate()
	if len(refused) > 0 {
		g.refuse(ctx, current.state.Version, refused)
	} else {
		id := apply.ID{Kind: "Service", Namespace: g.service.Namespace, Name: g.service.Name}
		err = errors.Join(err, g.set(ctx, id, "annotations", annotationSizeUnits, strconv.Itoa(config.LBSizeUnits)))
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

// set gives an object that label or annotation, if it has not got it.
func (g *gateway) set(ctx context.Context, id apply.ID, in, key, value string) error {
	resources := map[string]string{"Service": "services", "Namespace": "namespaces"}
	resource := g.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: resources[id.Kind]})
	client := dynamic.ResourceInterface(resource)
	if id.Namespace != "" {
		client = resource.Namespace(id.Namespace)
	}
	o, err := client.Get(ctx, id.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("%s: %w", id, err)
	}
	if have, _, _ := unstructured.NestedString(o.Object, "metadata", in, key); have == value {
		return nil
	}
	patch, err := json.Marshal(object{"metadata": object{in: object{key: value}, "uid": o.GetUID()}})
	if err != nil {
		return err
	}
	if _, err := client.Patch(ctx, id.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: manager}); err != nil {
		return fmt.Errorf("%s: %s %s: %w", id, key, value, err)
	}
	g.metrics.observeWrite(apply.Write{ID: id, Verb: "patch"})
	g.logger.InfoContext(ctx, "gateway changed", slog.String("object", id.String()), slog.String(key, value))
	return nil
}
