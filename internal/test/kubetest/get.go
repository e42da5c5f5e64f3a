package kubetest

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"strings"
	"text/template"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubejson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/jsonpath"
)

// errElsewhere is a command or an answer that is left to kubectl.
var errElsewhere = errors.New("left to kubectl")

// A query is a kubectl get that prints names or a template.
type query struct {
	kinds, names   []string
	namespace      string
	all            bool
	ignoreNotFound bool
	selectors      url.Values
	format         string
}

// get answers a kubectl get within this process, to the byte as kubectl does. Tests poll,
// and each process of kubectl takes a tenth of a second of a core from the program under
// test. What is outside this subset, and each failure but a missing object, is
// errElsewhere: kubectl runs and words it.
func (c *Cluster) get(ctx context.Context, args []string) (string, error) {
	q, ok := parseGet(args)
	if !ok {
		return "", errElsewhere
	}
	client, err := rest.HTTPClientFor(c.Config)
	if err != nil {
		return "", err
	}
	reader := reader{client: client, host: c.Config.Host, served: &c.served}
	var found [][]byte
	for _, kind := range q.kinds {
		objects, err := reader.objects(ctx, kind, q)
		if err != nil {
			return "", err
		}
		found = append(found, objects...)
	}
	var out bytes.Buffer
	if len(found) == 0 && len(q.names) > 0 {
		return "", nil
	}
	if err := q.print(&out, found); err != nil {
		return "", errElsewhere
	}
	return out.String(), nil
}

// parseGet reads the arguments after "get"; false is a command that is not of the subset.
func parseGet(args []string) (query, bool) {
	if len(args) == 0 || args[0] != "get" {
		return query{}, false
	}
	q := query{namespace: metav1.NamespaceDefault, selectors: url.Values{}}
	var words []string
	for rest := args[1:]; len(rest) > 0; {
		flag, value, joined := strings.Cut(rest[0], "=")
		rest = rest[1:]
		switch flag {
		case "-A", "--all-namespaces":
			q.all = true
			continue
		case "--ignore-not-found":
			if joined && value != "true" {
				return query{}, false
			}
			q.ignoreNotFound = true
			continue
		case "-n", "--namespace", "-l", "--selector", "--field-selector", "-o", "--output":
			if !joined {
				if len(rest) == 0 {
					return query{}, false
				}
				value, rest = rest[0], rest[1:]
			}
		default:
			if strings.HasPrefix(flag, "-") {
				return query{}, false
			}
			if joined {
				flag += "=" + value
			}
			words = append(words, flag)
			continue
		}
		switch flag {
		case "-n", "--namespace":
			q.namespace = value
		case "-l", "--selector":
			q.selectors.Set("labelSelector", value)
		case "--field-selector":
			q.selectors.Set("fieldSelector", value)
		default:
			q.format = value
		}
	}
	if len(words) == 0 {
		return query{}, false
	}
	kinds, name, slash := strings.Cut(words[0], "/")
	q.kinds, q.names = strings.Split(kinds, ","), words[1:]
	if slash {
		if len(words) > 1 {
			return query{}, false
		}
		q.names = []string{name}
	}
	known := q.format == "name" || strings.HasPrefix(q.format, "jsonpath={") || strings.HasPrefix(q.format, "go-template=")
	// With several kinds, and with names and selectors, kubectl has rules of its own.
	return q, known && (len(q.names) == 0 || len(q.kinds) == 1 && len(q.selectors) == 0 && !q.all)
}

// print writes the objects as kubectl does: one that was asked for by its name as itself,
// everything else as the items of a List.
func (q query) print(out io.Writer, found [][]byte) error {
	if q.format == "name" {
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
	if len(q.names) == 1 && len(found) == 1 {
		whole = found[0]
	}
	var value map[string]any
	if text, ok := strings.CutPrefix(q.format, "jsonpath="); ok {
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
	parsed, err := template.New("output").Funcs(template.FuncMap{"base64decode": decode}).Parse(strings.TrimPrefix(q.format, "go-template="))
	if err != nil {
		return err
	}
	return parsed.Execute(out, value)
}

func decode(text string) (string, error) {
	data, err := base64.StdEncoding.DecodeString(text)
	return string(data), err
}

// A resource is what the server serves under a path.
type resource struct {
	group, version, plural string
	namespaced             bool
}

func (r resource) path(namespace, name string) string {
	parts := []string{"/api", r.version}
	if r.group != "" {
		parts = []string{"/apis", r.group, r.version}
	}
	if r.namespaced && namespace != "" {
		parts = append(parts, "namespaces", namespace)
	}
	return path.Join(append(parts, r.plural, name)...)
}

// A reader reads from the API server. What it finds served is kept in served, by each name
// under which kubectl knows it.
type reader struct {
	client *http.Client
	host   string
	served *served
}

// objects returns the objects that the query names, or all of the kind.
func (r reader) objects(ctx context.Context, kind string, q query) ([][]byte, error) {
	resource, err := r.resource(ctx, kind)
	if err != nil {
		return nil, err
	}
	namespace := q.namespace
	if q.all {
		namespace = ""
	}
	if len(q.names) == 0 {
		var list struct {
			APIVersion, Kind string
			Items            []json.RawMessage
		}
		body, err := r.read(ctx, resource.path(namespace, "")+"?"+q.selectors.Encode())
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
	for _, name := range q.names {
		body, err := r.read(ctx, resource.path(namespace, name))
		switch {
		case errors.Is(err, errMissing) && q.ignoreNotFound:
		case errors.Is(err, errMissing):
			var status metav1.Status
			if json.Unmarshal(body, &status) != nil || status.Reason != metav1.StatusReasonNotFound || len(q.names) > 1 {
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

// errMissing is the answer 404.
var errMissing = errors.New("not found")

func (r reader) read(ctx context.Context, path string, accept ...string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.host+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	for _, form := range accept {
		request.Header.Add("Accept", form)
	}
	response, err := r.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close() //nolint:errcheck // read only
	body, err := io.ReadAll(response.Body)
	switch {
	case err != nil:
		return nil, err
	case response.StatusCode == http.StatusNotFound:
		return body, errMissing
	case response.StatusCode != http.StatusOK:
		return body, errors.New(response.Status)
	}
	return body, nil
}
