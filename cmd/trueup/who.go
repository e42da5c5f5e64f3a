package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
	"github.com/seed-9e1ffd66/trueup/cmd/trueup/internal/show"
	"github.com/seed-9e1ffd66/trueup/diff"
)

func (o *options) whoCommand() *cobra.Command {
	var status bool
	c := &cobra.Command{
		Use: "who KIND/NAME", Short: "Show which program owns which field of an object, and since when",
		Long: `Show which program owns which field of an object, and since when.

A field with several programs lists the latest first. For what "kubectl apply" has made, the
fields that differ from what it applied follow. KIND may be deployment, deploy or
deployments.apps. --namespace chooses the namespace.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || strings.Count(args[0], "/") != 1 {
				return program.Usagef("who: is called with %q, must have KIND/NAME such as deployment/web", strings.Join(args, " "))
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error { return o.who(c, args[0], status) },
	}
	c.Flags().BoolVar(&status, "status", false, "show the fields of the status, too")
	return c
}

func (o *options) who(c *cobra.Command, what string, status bool) error {
	kind, name, _ := strings.Cut(what, "/")
	at, err := o.connect(c.Context(), c.ErrOrStderr())
	if err != nil {
		return err
	}
	mapping, err := at.mapping(kind)
	if meta.IsNoMatchError(err) {
		return program.Usagef("who: is %q, must be a kind that the cluster serves", kind)
	}
	if err != nil {
		return failed(err)
	}
	namespace := ""
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		namespace = at.namespace
	}
	live, err := at.objects.Resource(mapping.Resource).Namespace(namespace).Get(c.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return program.Usagef("who: %s does not exist in the namespace %q", what, namespace)
	}
	if err != nil {
		return failed(err)
	}
	fields, err := diff.Authors(live.Object)
	if err != nil {
		return failed(err)
	}
	if !status {
		fields = slices.DeleteFunc(fields, func(f diff.Field) bool { return strings.HasPrefix(f.Path, ".status") })
	}
	if o.out.Value(fields, []string{idOf(live).String()}) {
		return nil
	}
	var rows [][]string
	for _, f := range fields {
		for i, w := range f.By {
			row := []string{f.Path, f.Live.String(), w.Manager, w.Operation, show.Since(time.Now(), w.Time)}
			if i > 0 {
				row[0], row[1] = "", ""
			}
			rows = append(rows, row)
		}
	}
	o.out.Table([]string{"FIELD", "VALUE", "PROGRAM", "BY", "SINCE"}, rows)
	return o.drifted(live)
}

// drifted prints what differs from what kubectl applied.
func (o *options) drifted(live *unstructured.Unstructured) error {
	text := live.GetAnnotations()["kubectl.kubernetes.io/last-applied-configuration"]
	if text == "" {
		return nil
	}
	var applied map[string]any
	if err := json.Unmarshal([]byte(text), &applied); err != nil {
		return failed(fmt.Errorf("%s: annotation of kubectl: %w", idOf(live), err))
	}
	fields, err := diff.Fields(applied, live.Object, diff.Options{Manager: "kubectl-client-side-apply"})
	if err != nil {
		return failed(err)
	}
	for _, f := range fields {
		own := len(f.By) == 0 || slices.ContainsFunc(f.By, func(w diff.Writer) bool { return w.Manager == "kubectl-client-side-apply" })
		if f.Difference == diff.Changed || f.Difference == diff.Missing || f.Difference == diff.Taken && !own {
			o.out.Printf("differs from what kubectl applied: %s\n", f)
		}
	}
	return nil
}

func (o *options) adoptCommand() *cobra.Command {
	var from []string
	var yes bool
	known := map[string][]string{
		"kubectl": {"kubectl-client-side-apply", "kubectl", "kubectl-create", "kubectl-edit", "kubectl-patch"},
		"helm":    {"helm"},
		"flux":    {"kustomize-controller", "helm-controller"},
		"argocd":  {"argocd-controller", "argocd-application-controller"},
	}
	c := &cobra.Command{
		Use: "adopt -f FOLDER --from TOOL", Args: program.NoArgs,
		Short: "Take over objects that another tool made, after showing exactly what changes",
		Long: `Take over objects that another tool made: kubectl, helm, flux, argocd, or the field managers
that "trueup who" shows. The fields of these managers become the set's; those that the folder
does not state are removed. Only objects that the folder states are taken, only if all
their fields are of these managers, and never what another object controls. Let the other
tool go of them first, or it writes them again.`,
		RunE: func(c *cobra.Command, _ []string) error {
			var managers []string
			for _, name := range from {
				if tool, ok := known[name]; ok {
					managers = append(managers, tool...)
				} else {
					managers = append(managers, name)
				}
			}
			if len(managers) == 0 {
				return program.Usagef("--from: is missing, must be %s or field managers", strings.Join(slices.Sorted(maps.Keys(known)), ", "))
			}
			s, err := o.open(c, managers...)
			if err != nil {
				return err
			}
			defer s.stop()
			refused, shown := false, diff.Plan{}
			err = s.applied(c.Context(), func(plan diff.Plan) bool {
				shown = plan
				o.out.Plan(plan)
				refused = !yes && !o.out.Ask(c.InOrStdin(), fmt.Sprintf("Change %s?", show.Objects(len(plan.Changes))))
				return !refused
			})
			if refused {
				o.out.Value(shown, names(shown))
				o.out.Printf("nothing was changed; to do it: --yes\n")
				return &program.StatusError{Status: statusHeld}
			}
			return s.ended(err)
		},
	}
	o.fileFlags(c.Flags())
	c.Flags().StringSliceVar(&from, "from", nil, "kubectl, helm, flux, argocd, or names of field managers")
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return c
}
