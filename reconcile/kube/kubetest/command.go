package kubetest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"

	"k8s.io/client-go/rest"
)

// errElsewhere is a command or an answer that is left to kubectl.
var errElsewhere = errors.New("left to kubectl")

// flags are the flags of kubectl that are understood here, by their long names.
var flags = map[string]string{ //nolint:gochecknoglobals // constant
	"-A": "all-namespaces", "-l": "selector", "-n": "namespace", "-o": "output", "-p": "patch",
	"--all": "all", "--all-namespaces": "all-namespaces", "--cascade": "cascade", "--field-manager": "field-manager",
	"--field-selector": "field-selector", "--for": "for", "--ignore-not-found": "ignore-not-found", "--namespace": "namespace",
	"--output": "output", "--patch": "patch", "--selector": "selector", "--subresource": "subresource", "--timeout": "timeout",
	"--type": "type", "--wait": "wait",
}

// switches are those that have no value of their own.
var switches = []string{"all", "all-namespaces", "ignore-not-found", "wait"} //nolint:gochecknoglobals // constant

// verbs are the commands of kubectl that are carried out here, with the flags of each.
var verbs = map[string][]string{ //nolint:gochecknoglobals // constant
	"get":    {"all-namespaces", "field-selector", "ignore-not-found", "namespace", "output", "selector"},
	"create": nil,
	"patch":  {"field-manager", "namespace", "patch", "subresource", "type"},
	"delete": {"cascade", "ignore-not-found", "namespace", "timeout", "wait"},
	"wait":   {"all", "for", "namespace", "timeout"},
}

// A command is what the arguments of kubectl ask for.
type command struct {
	verb         string
	kinds, names []string
	flags        map[string]string // by the long name
}

// inside carries out a command of kubectl within this process. Each process of kubectl takes a
// tenth of a second of a core from the program under test, and tests poll. A get answers to the
// byte as kubectl does; the others print nothing. What is outside this subset, and what the
// server refuses, is errElsewhere: kubectl runs and words it.
func (c *Cluster) inside(ctx context.Context, args []string) (string, error) {
	command, ok := parse(args)
	if !ok {
		return "", errElsewhere
	}
	r, err := c.reader()
	if err != nil {
		return "", err
	}
	switch command.verb {
	case "get":
		return r.get(ctx, command)
	case "create":
		return "", r.create(ctx, command)
	case "patch":
		return "", r.patch(ctx, command)
	case "delete":
		return "", r.remove(ctx, command)
	}
	return "", r.wait(ctx, command)
}

// established waits until all definitions are. Kubectl would do it as well, but its get is linked
// with text/template, which the program trueup, which starts clusters, goes without.
func (c *Cluster) established(ctx context.Context) error {
	args := []string{"wait", "--for=condition=Established", "--timeout=300s", "crd", "--all"}
	r, err := c.reader()
	if err != nil {
		return err
	}
	command, ok := parse(args)
	if ok {
		err = r.wait(ctx, command)
	}
	if !ok || errors.Is(err, errElsewhere) {
		_, err = c.kubectl(ctx, nil, args...)
	}
	return err
}

func (c *Cluster) reader() (reader, error) {
	client, err := rest.HTTPClientFor(c.Config)
	return reader{client: client, host: c.Config.Host, served: &c.served, controllers: c.options.Controllers}, err
}

// parse reads the arguments; false is a command that is not of the subset.
func parse(args []string) (command, bool) {
	if len(args) == 0 {
		return command{}, false
	}
	c := command{verb: args[0], flags: map[string]string{}}
	takes, ok := verbs[c.verb]
	var words []string
	for rest := args[1:]; ok && len(rest) > 0; {
		if !strings.HasPrefix(rest[0], "-") {
			words, rest = append(words, rest[0]), rest[1:]
			continue
		}
		flag, value, joined := strings.Cut(rest[0], "=")
		name := flags[flag]
		rest = rest[1:]
		switch {
		case joined:
		case slices.Contains(switches, name):
			value = "true"
		case len(rest) == 0:
			return command{}, false
		default:
			value, rest = rest[0], rest[1:]
		}
		ok = slices.Contains(takes, name)
		c.flags[name] = value
	}
	if len(words) == 0 {
		return command{}, false
	}
	kinds, name, slash := strings.Cut(words[0], "/")
	c.kinds, c.names = strings.Split(kinds, ","), words[1:]
	if slash {
		ok = ok && len(words) == 1
		c.names = []string{name}
	}
	return c, ok
}

// one returns the path of the object that the command names, if that is one.
func (r reader) one(ctx context.Context, c command) (string, error) {
	if len(c.kinds) != 1 || len(c.names) != 1 {
		return "", errElsewhere
	}
	resource, err := r.resource(ctx, c.kinds[0])
	if err != nil {
		return "", err
	}
	return resource.path(c.namespace(), c.names[0]), nil
}

func (c command) namespace() string {
	if c.flags["namespace"] == "" {
		return "default"
	}
	return c.flags["namespace"]
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

// A reader asks the API server. What it finds served is kept in served, by each name under
// which kubectl knows it.
type reader struct {
	client *http.Client
	host   string
	served *served
	// controllers is whether a controller manager runs.
	controllers bool
}

// errMissing is the answer 404.
var errMissing = errors.New("not found")

func (r reader) read(ctx context.Context, path string, accept ...string) ([]byte, error) {
	return r.do(ctx, http.MethodGet, path, nil, http.Header{"Accept": accept})
}

// do sends a request and returns the body of the answer, also with an error when the server
// refuses.
func (r reader) do(ctx context.Context, method, path string, body []byte, header http.Header) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, r.host+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header = header
	response, err := r.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close() //nolint:errcheck // read only
	answer, err := io.ReadAll(response.Body)
	switch {
	case err != nil:
		return nil, err
	case response.StatusCode == http.StatusNotFound:
		return answer, errMissing
	case response.StatusCode >= http.StatusMultipleChoices:
		return answer, errElsewhere
	}
	return answer, nil
}

// content is the header of a request with a body.
func content(of string) http.Header { return http.Header{"Content-Type": {of}} }
