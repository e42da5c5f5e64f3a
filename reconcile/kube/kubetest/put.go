package kubetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
)

// put applies the objects of a YAML stream within this process, as kubectl apply does: to
// the end also when the server refuses one. What is no answer of the server is
// errElsewhere: applying once more changes nothing, and kubectl words it.
func (c *Cluster) put(ctx context.Context, text string) error {
	client, err := rest.HTTPClientFor(c.Config)
	if err != nil {
		return err
	}
	reader := reader{client: client, host: c.Config.Host, served: &c.served}
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewBufferString(text), 4096)
	var refused []error
	for {
		var object unstructured.Unstructured
		err := documents.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return errors.Join(refused...)
		}
		if err != nil || object.IsList() {
			return errElsewhere
		}
		if len(object.Object) == 0 {
			continue
		}
		var status *apierrors.StatusError
		switch err := reader.put(ctx, &object); {
		case errors.As(err, &status):
			refused = append(refused, fmt.Errorf("apply: Error from server (%s): %w", status.ErrStatus.Reason, status))
		case err != nil:
			return errElsewhere
		}
	}
}

func (r reader) put(ctx context.Context, object *unstructured.Unstructured) error {
	kind := object.GroupVersionKind()
	resource, err := r.resource(ctx, kind.Kind+"."+kind.Version+"."+kind.Group)
	if err != nil {
		return err
	}
	namespace := object.GetNamespace()
	if namespace == "" && resource.namespaced {
		namespace = metav1.NamespaceDefault
	}
	body, err := object.MarshalJSON()
	if err != nil {
		return err
	}
	answer, err := r.do(
		ctx,
		http.MethodPatch,
		resource.path(namespace, object.GetName())+"?fieldManager=kubectl&force=true&fieldValidation=Strict",
		body,
		content("application/apply-patch+yaml"),
	)
	var status metav1.Status
	if err != nil && json.Unmarshal(answer, &status) == nil && status.Kind == "Status" {
		return &apierrors.StatusError{ErrStatus: status}
	}
	return err
}
