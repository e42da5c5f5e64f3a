// Package webapp is the kind of the example operators, WebApp, and its children.
package webapp

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seed-9e1ffd66/trueup/diff"
)

// Version returns the group and version of the kind.
func Version() schema.GroupVersion { return schema.GroupVersion{Group: "example.com", Version: "v1"} }

// WebApp is a web server with some replicas and a configuration.
type WebApp struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		Image    string            `json:"image"`
		Replicas int32             `json:"replicas"`
		Port     int32             `json:"port"`
		Config   map[string]string `json:"config,omitempty"` // environment variables
	} `json:"spec"`
	Status struct {
		ObservedGeneration int64              `json:"observedGeneration,omitempty"`
		Conditions         []metav1.Condition `json:"conditions,omitempty"`
	} `json:"status,omitzero"`
}

// Children returns the objects that an app is made of, each with its name: a
// Deployment, a Service and, if it has a configuration, a ConfigMap.
func Children(app *WebApp) []*unstructured.Unstructured {
	type object = map[string]any
	labels := object{"app": app.Name}
	container := object{"name": "web", "image": app.Spec.Image, "ports": []any{object{"containerPort": app.Spec.Port}}}
	pod := object{"metadata": object{"labels": labels}, "spec": object{"containers": []any{container}}}
	deployment := object{"replicas": app.Spec.Replicas, "selector": object{"matchLabels": labels}, "template": pod}
	service := object{"selector": labels, "ports": []any{object{"port": 80, "targetPort": app.Spec.Port}}}
	children := []*unstructured.Unstructured{child(app, app.Name, "apps/v1", "Deployment", "spec", deployment)}
	children = append(children, child(app, app.Name, "v1", "Service", "spec", service))
	if len(app.Spec.Config) == 0 {
		return children
	}
	// Another configuration is another template, so that the pods are replaced.
	hash, _ := diff.Hash(app.Spec.Config) // JSON can hold it
	config := app.Name + "-config"
	pod["metadata"] = object{"labels": labels, "annotations": object{"example.com/config": hash.String()}}
	container["envFrom"] = []any{object{"configMapRef": object{"name": config}}}
	return append(children, child(app, config, "v1", "ConfigMap", "data", app.Spec.Config))
}

// child returns an object with one field. The app is its controller.
func child(app *WebApp, name, version, kind, field string, value any) *unstructured.Unstructured {
	c := &unstructured.Unstructured{Object: map[string]any{"apiVersion": version, "kind": kind, field: value}}
	c.SetNamespace(app.Namespace)
	c.SetName(name)
	c.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(app, Version().WithKind("WebApp"))})
	return c
}
