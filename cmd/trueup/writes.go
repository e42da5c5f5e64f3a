package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/restmapper"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
)

// writing are the flags that decide how an object is written.
type writing struct {
	Report   bool     `json:"reportConflicts,omitempty"`
	Recreate []string `json:"recreate,omitempty"`
	Replace  []string `json:"replace,omitempty"`
}

// writeFlags adds the flags of a command that writes objects, or shows how it would.
func (o *options) writeFlags(flags *pflag.FlagSet) {
	flags.BoolVar(&o.writing.Report, "report-conflicts", false,
		"report the fields that other programs have changed, and leave the object as it is, instead of taking them back")
	flags.StringSliceVar(&o.writing.Recreate, "recreate", nil,
		"kinds, such as jobs.batch, whose objects may be deleted and created again for an immutable field")
	flags.StringSliceVar(&o.writing.Replace, "replace", nil,
		"kinds that are created and replaced: their server has no server-side apply")
}

// write makes the applier write as the flags say.
func (s *session) write(w writing) error {
	recreate, err := s.cluster.kinds("recreate", w.Recreate)
	if err != nil {
		return err
	}
	replace, err := s.cluster.kinds("replace", w.Replace)
	if err != nil {
		return err
	}
	s.applier.Recreate = recreate
	if w.Report {
		s.applier.Conflicts = apply.ReportConflicts
	}
	if len(replace) > 0 {
		s.applier.Upsert = func(kind schema.GroupKind) bool { return slices.Contains(replace, kind) }
	}
	return nil
}

// kinds returns the kinds that the values of a flag name.
func (c *cluster) kinds(flag string, names []string) (kinds []schema.GroupKind, _ error) {
	for _, name := range names {
		mapping, err := c.mapping(name)
		if meta.IsNoMatchError(err) {
			return nil, program.Usagef("--%s: is %q, must be a kind that the cluster serves, such as jobs.batch", flag, name)
		}
		if err != nil {
			return nil, err
		}
		kinds = append(kinds, mapping.GroupVersionKind.GroupKind())
	}
	return kinds, nil
}

// mapping returns the kind that a person has named: deployment, deploy or deployments.apps.
func (c *cluster) mapping(name string) (*meta.RESTMapping, error) {
	expander := restmapper.NewShortcutExpander(c.mapper, c.known, nil)
	resource, err := expander.ResourceFor(schema.ParseGroupResource(name).WithVersion(""))
	if err != nil {
		return nil, err
	}
	kind, err := c.mapper.KindFor(resource)
	if err != nil {
		return nil, err
	}
	return c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
}

// policyOf returns how an object asks to be treated. Other annotations and labels of the domain
// are refused: they are mistyped, or of the set alone.
func policyOf(object *unstructured.Unstructured) (apply.ObjectPolicy, error) {
	wrong := func(field, key, must string) error {
		return fmt.Errorf("%s %s: metadata.%s: %s %s", object.GetKind(), object.GetName(), field, key, must)
	}
	if _, labelled := object.GetLabels()[annotationPolicy]; labelled {
		return 0, wrong("labels", annotationPolicy, "is no label, must be an annotation")
	}
	for _, key := range slices.Sorted(maps.Keys(object.GetAnnotations())) {
		if strings.HasPrefix(key, domain+"/") && key != annotationPolicy && key != domain+"/depends-on" && key != domain+"/desired-hash" {
			return 0, wrong("annotations", key, "is not known, must be "+annotationPolicy+" or "+domain+"/depends-on")
		}
	}
	value, stated := object.GetAnnotations()[annotationPolicy]
	switch {
	case !stated:
		return apply.KeepAsStated, nil
	case value == "create-only":
		return apply.CreateOnly, nil
	case value == "leave-out":
		return apply.LeaveOut, nil
	default:
		return 0, wrong("annotations", annotationPolicy, fmt.Sprintf("is %q, must be create-only or leave-out", value))
	}
}

// removal are the flags that decide what becomes of an object that is no longer wanted.
type removal struct {
	release bool
	cascade string
}

func (r *removal) add(flags *pflag.FlagSet) {
	flags.BoolVar(&r.release, "release", false, "leave the objects in the cluster, without the labels of the set")
	flags.StringVar(&r.cascade, "cascade", "",
		"background, foreground or orphan: what becomes of the objects that a deleted one owns; none: background, but foreground beside "+
			"what isolates pods")
}

// verb is what is done with an object.
func (r removal) verb() string {
	if r.release {
		return "release"
	}
	return "delete"
}

// cascades are the values of --cascade.
var cascades = map[string]metav1.DeletionPropagation{ //nolint:gochecknoglobals // constant
	"":           "",
	"background": metav1.DeletePropagationBackground,
	"foreground": metav1.DeletePropagationForeground,
	"orphan":     metav1.DeletePropagationOrphan,
}

// orphan selects the objects that are released.
func (r removal) orphan() func(apply.Observed) bool {
	if !r.release {
		return nil
	}
	return func(apply.Observed) bool { return true }
}
