// Package scaffold writes the files of a new operator.
package scaffold

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
	"github.com/seed-9e1ffd66/trueup/reconcile/operator"
)

//go:embed templates
var templates embed.FS

// Development is the version of a program that is no release. No proxy has it.
const Development = "v0.0.0"

// Modules are the modules that a new operator requires.
var Modules = []string{ //nolint:gochecknoglobals // constant
	"github.com/seed-9e1ffd66/trueup", "github.com/seed-9e1ffd66/trueup/reconcile/simtest/upstream",
}

// A Project is a new operator.
type Project struct {
	// Module is the path of its module, such as example.com/sites. The last element names the operator. Required.
	Module string
	// Kind is the kind of its objects, such as Site. Required.
	Kind string
	// Plural names the kind in paths and commands, in lower case. Default as Kubernetes guesses it: sites for Site.
	Plural string
	// Group is the group of the kind, a DNS subdomain. Default example.com.
	Group string
	// Version is the version of the modules that it requires. Default [Development].
	Version string
}

var (
	modulePath   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.~_-]*(/[A-Za-z0-9][A-Za-z0-9.~_-]*)*$`)
	majorVersion = regexp.MustCompile(`/v[0-9]+$`)
	kindName     = regexp.MustCompile(`^[A-Z][A-Za-z0-9]{0,39}$`)
)

// taken are kinds that a new one would be mistaken for in commands of kubectl: the children, and what
// kubetest and the role name.
var taken = []string{ //nolint:gochecknoglobals // constant
	"Deployment", "Service", "Pod", "Namespace", "Node", "Event", "Secret", "ConfigMap",
}

// Check returns an error that names each wrong field by its flag.
func (p Project) Check() error {
	var wrong []error
	fail := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf(format, args...)) }
	switch {
	case p.Module == "":
		fail("--module: is missing, must be the path of a module, such as example.com/sites")
	case !modulePath.MatchString(p.Module):
		fail("--module: is %q, must be the path of a module, such as example.com/sites", p.Module)
	case p.Module == Modules[0] || strings.HasPrefix(p.Module, Modules[0]+"/"):
		fail("--module: is %q, must be a module of yours, such as example.com/sites", p.Module)
	case len(validation.IsDNS1035Label(p.name())) > 0 || len(p.name()) > 50:
		fail("--module: is %q, must end in the name of the operator: letters in lower case, digits and dashes, at most 50", p.Module)
	}
	switch {
	case p.Kind == "":
		fail("--kind: is missing, must be the kind of the objects, such as Site")
	case !kindName.MatchString(p.Kind):
		fail("--kind: is %q, must be a capital letter and letters or digits, at most 40, such as Site", p.Kind)
	case slices.Contains(taken, p.Kind):
		fail("--kind: is %q, must not be a kind of Kubernetes that the operator has to do with", p.Kind)
	case strings.HasPrefix(p.Kind, "Test"):
		fail("--kind: is %q, must not begin with Test, as the functions of tests do", p.Kind)
	}
	if p.Plural != "" && (len(validation.IsDNS1035Label(p.Plural)) > 0 || p.Plural == strings.ToLower(p.Kind)) {
		fail("--plural: is %q, must be the plural of the kind in lower case, such as %s", p.Plural, p.plural())
	}
	if text := validation.IsDNS1123Subdomain(p.group()); len(text) > 0 || !strings.Contains(p.group(), ".") {
		fail("--group: is %q, must be a DNS subdomain with a dot, such as example.com", p.Group)
	} else if strings.HasSuffix(p.group(), ".k8s.io") || strings.HasSuffix(p.group(), ".kubernetes.io") {
		fail("--group: is %q, must be a domain of yours: this one needs the approval of Kubernetes", p.Group)
	}
	return errors.Join(wrong...)
}

// name is the name of the operator.
func (p Project) name() string { return path.Base(majorVersion.ReplaceAllString(p.Module, "")) }

// plural is how Kubernetes guesses it.
func (p Project) plural() string {
	plural, _ := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Version: "v1alpha1", Kind: p.Kind})
	return plural.Resource
}

func (p Project) group() string { return cmp.Or(p.Group, "example.com") }

// Files returns the content of each file by its path. The project must have passed Check.
func (p Project) Files() (map[string]string, error) {
	kind := schema.GroupVersionKind{Group: p.group(), Version: "v1alpha1", Kind: p.Kind}
	plural := cmp.Or(p.Plural, p.plural())
	o := operator.Operator[*unstructured.Unstructured]{
		Kind: kind, Resource: plural,
		Owns: []schema.GroupVersionKind{{Group: "apps", Version: "v1", Kind: "Deployment"}, {Version: "v1", Kind: "Service"}},
	}
	process := operator.Process{Lease: &kube.Lease{}}
	// Not text/template: with it the linker keeps every method of every type in the program.
	values := strings.NewReplacer(
		"[[.Module]]", p.Module, "[[.Name]]", p.name(), "[[.Kind]]", p.Kind, "[[.Group]]", p.group(),
		"[[.Version]]", cmp.Or(p.Version, Development), "[[.Plural]]", plural, "[[.Singular]]", strings.ToLower(p.Kind),
		"[[.Rules]]", rules(o.Rules()), "[[.LeaseRules]]", rules(process.Rules()),
	)
	files := map[string]string{}
	err := fs.WalkDir(templates, "templates", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := templates.ReadFile(name)
		if err != nil {
			return err
		}
		text := values.Replace(string(content))
		if _, unknown, found := strings.Cut(text, "[[."); found {
			unknown, _, _ = strings.Cut(unknown, "]]")
			return fmt.Errorf("%s: has [[.%s]], which no value replaces", name, unknown)
		}
		to := strings.TrimSuffix(strings.TrimPrefix(name, "templates/"), ".tmpl")
		if to == "gitignore" || to == "dockerignore" {
			to = "." + to // go:embed leaves out what begins with a dot
		}
		files[to] = text
		return nil
	})
	return files, err
}

// rules writes a line for each rule, as the test of the new operator does.
func rules(all []rbacv1.PolicyRule) string {
	var text strings.Builder
	for _, r := range all {
		fmt.Fprintf(&text, "- {apiGroups: [%q], resources: [%s], verbs: [%s]}\n",
			r.APIGroups[0], strings.Join(r.Resources, ", "), strings.Join(r.Verbs, ", "))
	}
	return text.String()
}

// Write writes the files into a folder, which it makes. A folder that has anything is an error.
func (p Project) Write(folder string) error {
	files, err := p.Files()
	if err != nil {
		return err
	}
	switch there, err := os.ReadDir(folder); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return fmt.Errorf("FOLDER: %w", err)
	case len(there) > 0:
		return fmt.Errorf("FOLDER: %s has %s, must be empty or not be there", folder, there[0].Name())
	}
	for name, content := range files {
		file := filepath.Join(folder, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil { //nolint:gosec // sources, as git writes them
			return err
		}
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil { //nolint:gosec // sources, as git writes them
			return err
		}
	}
	return nil
}
