package kubetest

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"text/template"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubejson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/util/jsonpath"
)

// get answers a kubectl get that prints names or a template. Each failure but a missing
// object is left to kubectl.
func (r reader) get(ctx context.Context, c command) (string, error) {
	format := c.flags["output"]
	known := format == "name" || strings.HasPrefix(format, "jsonpath={") || strings.HasPrefix(format, "go-template=")
	several := len(c.kinds) > 1 || c.flags["selector"] != "" || c.flags["field-selector"] != "" || c.flags["all-namespaces"] == "true"
	// With several kinds, and with names and selectors, kubectl has rules of its own.
	if !known || len(c.names) > 0 && several {
		return "", errElsewhere
	}
	var found [][]byte
	for _, kind := range c.kinds {
		objects, err := r.objects(ctx, kind, c)
		if err != nil {
			return "", err
		}
		found = append(found, objects...)
	}
	var out bytes.Buffer
	if len(found) == 0 && len(c.names) > 0 {
		return "", nil
	}
	if err := c.print(&out, found); err != nil {
		return "", errElsewhere
	}
	return out.String(), nil
}

// print writes the objects as kubectl does: one that was asked for by its name as itself,
// everything else as the items of a List.
func (c command) print(out io.Writer, found [][]byte) error {
	format := c.flags["output"]
	if format == "name" {
		for _, object := range found {
			var o metav1.PartialObjectMetadata
			if err := json.Unmarshal(object, &o); err != nil {
				return err
			}
			kind := o.GroupVersionKind().GroupKind()
			kind.Kind = strings.ToLower(kind.Kind)
			if _, err := fmt.Fprintf(out, "%s/%s\n", kind, o.Name); err != nil {
				return err
			}
		}
		return nil
	}
	whole := []byte(
		`{"apiVersion":"v1","kind":"List","metadata":{"resourceVersion":""},"items":[` + string(bytes.Join(found, []byte(","))) + `]}`,
	)
	if len(c.names) == 1 && len(found) == 1 {
		whole = found[0]
	}
	var value map[string]any
	if text, ok := strings.CutPrefix(format, "jsonpath="); ok {
		if err := kubejson.Unmarshal(whole, &value); err != nil {
			return err
		}
		parsed := jsonpath.New("out").AllowMissingKeys(true)
		if err := parsed.Parse(text); err != nil {
			return err
		}
		return parsed.Execute(out, value)
	}
	if err := json.Unmarshal(whole, &value); err != nil {
		return err
	}
	parsed, err := template.New("output").Funcs(template.FuncMap{"base64decode": decode}).Parse(strings.TrimPrefix(format, "go-template="))
	if err != nil {
		return err
	}
	return parsed.Execute(out, value)
}

func decode(text string) (string, error) {
	data, err := base64.StdEncoding.DecodeString(text)
	return string(data), err
}

// objects returns the objects that the query names, or all of the kind.
func (r reader) objects(ctx context.Context, kind string, c command) ([][]byte, error) {
	resource, err := r.resource(ctx, kind)
	if err != nil {
		return nil, err
	}
	if len(c.names) == 0 {
		namespace, selectors := c.namespace(), url.Values{}
		if c.flags["all-namespaces"] == "true" {
			namespace = ""
		}
		for flag, name := range map[string]string{"selector": "labelSelector", "field-selector": "fieldSelector"} {
			if value := c.flags[flag]; value != "" {
				selectors.Set(name, value)
			}
		}
		var list struct {
			APIVersion, Kind string
			Items            []json.RawMessage
		}
		body, err := r.read(ctx, resource.path(namespace, "")+"?"+selectors.Encode())
		if err != nil || json.Unmarshal(body, &list) != nil {
			return nil, errElsewhere
		}
		// The items of a list of a built-in kind do not state it.
		head := fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,`, list.APIVersion, strings.TrimSuffix(list.Kind, "List"))
		var found [][]byte
		for _, item := range list.Items {
			if !bytes.HasPrefix(item, []byte(`{"apiVersion"`)) {
				item = append(bytes.Clone(head), item[1:]...)
			}
			found = append(found, item)
		}
		return found, nil
	}
	var found [][]byte
	for _, name := range c.names {
		body, err := r.read(ctx, resource.path(c.namespace(), name))
		switch {
		case errors.Is(err, errMissing) && c.flags["ignore-not-found"] == "true":
		case errors.Is(err, errMissing):
			var status metav1.Status
			if json.Unmarshal(body, &status) != nil || status.Reason != metav1.StatusReasonNotFound || len(c.names) > 1 {
				return nil, errElsewhere
			}
			return nil, fmt.Errorf("exit status 1: Error from server (NotFound): %s", status.Message)
		case err != nil:
			return nil, errElsewhere
		default:
			found = append(found, body)
		}
	}
	return found, nil
}
