package kubetest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// pollEvery is how often a command asks for what it waits for.
const pollEvery = 25 * time.Millisecond

// create creates a namespace. With a controller manager it waits until pods can be made in it:
// until it has its ServiceAccount.
func (r reader) create(ctx context.Context, c command) error {
	if c.kinds[0] != "namespace" || len(c.names) != 1 {
		return errElsewhere
	}
	body := fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`, c.names[0])
	_, err := r.do(ctx, http.MethodPost, "/api/v1/namespaces?fieldManager=kubectl-create", body, content("application/json"))
	if err != nil || !r.controllers {
		return refused(err)
	}
	account := resource{version: "v1", plural: "serviceaccounts", namespaced: true}.path(c.names[0], "default")
	return r.until(ctx, c, time.Minute, func() (bool, error) {
		_, err := r.read(ctx, account)
		if errors.Is(err, errMissing) {
			return false, nil
		}
		return err == nil, err
	})
}

// patchTypes are the types of a patch, by kubectl's names.
var patchTypes = map[string]string{ //nolint:gochecknoglobals // constant
	"": "application/strategic-merge-patch+json", "merge": "application/merge-patch+json", "json": "application/json-patch+json",
}

func (r reader) patch(ctx context.Context, c command) error {
	object, err := r.one(ctx, c)
	if err != nil {
		return err
	}
	body, err := yaml.ToJSON([]byte(c.flags["patch"]))
	if err != nil || patchTypes[c.flags["type"]] == "" {
		return errElsewhere
	}
	if c.flags["subresource"] != "" {
		object += "/" + c.flags["subresource"]
	}
	object += "?fieldManager=" + cmp.Or(c.flags["field-manager"], "kubectl-patch")
	_, err = r.do(ctx, http.MethodPatch, object, body, content(patchTypes[c.flags["type"]]))
	return refused(err)
}

// remove deletes an object and, with --wait, which is the default, waits until it is deleted.
func (r reader) remove(ctx context.Context, c command) error {
	object, err := r.one(ctx, c)
	policy, known := map[string]string{"": "Background", "foreground": "Foreground"}[c.flags["cascade"]]
	if err != nil || !known {
		return errElsewhere
	}
	body := fmt.Appendf(nil, `{"apiVersion":"v1","kind":"DeleteOptions","propagationPolicy":%q}`, policy)
	answer, err := r.do(ctx, http.MethodDelete, object, body, content("application/json"))
	var status metav1.Status
	if errors.Is(err, errMissing) && c.flags["ignore-not-found"] == "true" &&
		json.Unmarshal(answer, &status) == nil && status.Reason == metav1.StatusReasonNotFound {
		return nil
	}
	if err != nil || c.flags["wait"] == "false" {
		return refused(err)
	}
	// The answer is the object, or its status when it is gone.
	var deleted struct{ Metadata, Details metav1.ObjectMeta }
	if err := json.Unmarshal(answer, &deleted); err != nil {
		return err
	}
	uid := cmp.Or(deleted.Details.UID, deleted.Metadata.UID)
	return r.until(ctx, c, 0, func() (bool, error) {
		var now metav1.PartialObjectMetadata
		body, err := r.read(ctx, object)
		if errors.Is(err, errMissing) {
			return true, nil
		}
		return err == nil && json.Unmarshal(body, &now) == nil && now.UID != uid, err
	})
}

// wait waits until a condition of an object, or of all objects of a kind, is true. A
// CustomResourceDefinition is established once discovery lists it, too: the server lists it
// a moment later.
func (r reader) wait(ctx context.Context, c command) error {
	condition, ok := strings.CutPrefix(c.flags["for"], "condition=")
	if !ok || strings.Contains(condition, "=") || len(c.kinds) != 1 {
		return errElsewhere
	}
	all := c.flags["all"] == "true" && len(c.names) == 0
	if len(c.names) != 1 && !all {
		return errElsewhere
	}
	resource, err := r.resource(ctx, c.kinds[0])
	if err != nil {
		return err
	}
	path := resource.path(c.namespace(), strings.Join(c.names, ""))
	return r.until(ctx, c, 30*time.Second, func() (bool, error) {
		body, err := r.read(ctx, path)
		if err != nil {
			return false, refused(err)
		}
		var list unstructured.UnstructuredList
		if all {
			err = list.UnmarshalJSON(body)
		} else {
			list.Items = make([]unstructured.Unstructured, 1)
			err = list.Items[0].UnmarshalJSON(body)
		}
		if err != nil || len(list.Items) == 0 {
			return false, errElsewhere
		}
		for _, object := range list.Items {
			if !isTrue(object, condition) {
				return false, nil
			}
			if resource.plural == "customresourcedefinitions" {
				if listed, err := r.listed(ctx, object); !listed || err != nil {
					return false, err
				}
			}
		}
		return true, nil
	})
}

// listed reports whether discovery lists each served version of a definition.
func (r reader) listed(ctx context.Context, definition unstructured.Unstructured) (bool, error) {
	var want struct {
		Spec struct {
			Group    string
			Versions []struct {
				Name   string
				Served bool
			}
		}
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(definition.Object, &want); err != nil {
		return false, err
	}
	body, err := r.read(ctx, "/apis")
	var groups metav1.APIGroupList
	if err != nil || json.Unmarshal(body, &groups) != nil {
		return false, refused(err)
	}
	for _, v := range want.Spec.Versions {
		version := metav1.GroupVersionForDiscovery{GroupVersion: want.Spec.Group + "/" + v.Name, Version: v.Name}
		if v.Served && !slices.ContainsFunc(groups.Groups, func(g metav1.APIGroup) bool { return slices.Contains(g.Versions, version) }) {
			return false, nil
		}
	}
	return true, nil
}

// isTrue reports whether a condition is true of the object's present generation.
func isTrue(object unstructured.Unstructured, condition string) bool {
	conditions, _, err := unstructured.NestedSlice(object.Object, "status", "conditions")
	if err != nil {
		return false
	}
	for _, value := range conditions {
		have, ok := value.(map[string]any)
		if !ok || !strings.EqualFold(fmt.Sprint(have["type"]), condition) {
			continue
		}
		observed, stated, err := unstructured.NestedInt64(have, "observedGeneration")
		if !stated {
			observed, stated, err = unstructured.NestedInt64(object.Object, "status", "observedGeneration")
		}
		return err == nil && (!stated || observed >= object.GetGeneration()) && have["status"] == "True"
	}
	return false
}

// until polls until done, for the time that the command gives.
func (r reader) until(ctx context.Context, c command, unless time.Duration, done func() (bool, error)) error {
	if text := c.flags["timeout"]; text != "" {
		var err error
		if unless, err = time.ParseDuration(text); err != nil || unless <= 0 {
			return errElsewhere
		}
	}
	if unless > 0 {
		limited, cancel := context.WithTimeout(ctx, unless)
		defer cancel()
		ctx = limited
	}
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("timed out waiting for the condition on %s %s: %w", c.kinds[0], strings.Join(c.names, ""), context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// refused is errElsewhere for whatever keeps a request from being carried out.
func refused(err error) error {
	if err != nil {
		return errElsewhere
	}
	return nil
}
