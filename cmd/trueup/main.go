// Command trueup makes a Kubernetes cluster match the YAML of a folder: it shows what
// differs and which program wrote it, applies, prunes with care, and keeps it so.
// "trueup --help" lists its commands.
package main

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
	"github.com/seed-9e1ffd66/trueup/cmd/trueup/internal/folder"
	"github.com/seed-9e1ffd66/trueup/cmd/trueup/internal/show"
)

func main() { program.Main(command(nil)) }

// Exit statuses in addition to package program's. As with kubectl diff, status 1 means that
// something differs (diff and plan), so every error has a higher one.
const (
	statusDiffers = 1
	statusCluster = 3 // the cluster refused something, or cannot be reached
	statusHeld    = 4 // deletions wait for an approval
)

const help = `Make a Kubernetes cluster match the YAML of a folder.

  trueup diff -f shop              what differs, and which program wrote it
  trueup apply -f shop             create and repair, one request for each change
  trueup prune -f shop             delete what the folder no longer holds
  trueup watch -f shop             keep it so
  trueup who deployment/web        which program owns which field, since when
  kustomize build . | trueup diff -f - --part shop
  trueup new sites --module example.com/sites --kind Site    write a new operator
  trueup cluster .cluster          start a Kubernetes to try it on

The objects of a folder are a part of a set. The set is a ConfigMap in the namespace, which
remembers the kinds of its objects and the cluster; by default it is named default. The part
is named after the folder. What another tool or another set made is never changed or
deleted: "trueup adopt" takes it over.

Status: 0 done, nothing differs; 1 something differs (diff, plan); 2 a flag or a file is
wrong; 3 the cluster refused something or cannot be reached; 4 deletions wait for an approval.`

// options are the flags of all commands.
type options struct {
	kubeconfig, context, namespace string
	set, part                      string
	files                          []string
	writing                        writing
	output                         string
	wide                           bool
	timeout                        time.Duration
	transport                      http.RoundTripper
	out                            *show.Printer
}

// command returns the command, which reaches the cluster by transport if that is not nil.
func command(transport http.RoundTripper) *cobra.Command {
	o := options{transport: transport}
	root := &cobra.Command{Use: "trueup", Short: "Make a Kubernetes cluster match the YAML of a folder", Long: help}
	if name := filepath.Base(os.Args[0]); strings.HasPrefix(name, "kubectl-") {
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl " + strings.TrimPrefix(name, "kubectl-")}
	}
	flags := root.PersistentFlags()
	program.KubeconfigFlag(flags, &o.kubeconfig)
	flags.Lookup("kubeconfig").Usage = "kubeconfig file (default: ~/.kube/config, or the pod's service account)"
	flags.StringVar(&o.context, "context", "", "context of the kubeconfig (default: its current one)")
	flags.StringVarP(&o.namespace, "namespace", "n", "", "namespace of the set, and of objects that name none (default: that of the context)")
	flags.StringVar(&o.set, "set", "default", "name of the set")
	flags.StringVarP(&o.output, "output", "o", "", "json, yaml or name; else text for people")
	flags.BoolVar(&o.wide, "wide", false, "show long values whole, the wanted one beside the live one")
	flags.DurationVar(&o.timeout, "timeout", 5*time.Minute, "how long to wait for the cluster")
	root.AddCommand(
		o.diffCommand(), o.planCommand(), o.applyCommand(), o.adoptCommand(), o.pruneCommand(), o.deleteCommand(),
		o.waitCommand(), o.watchCommand(), o.whoCommand(), o.setsCommand(), o.newCommand(), o.clusterCommand(),
	)
	program.Bind(root, "TRUEUP_", os.LookupEnv)
	bound := root.PersistentPreRunE
	root.PersistentPreRunE = func(c *cobra.Command, args []string) error {
		if err := bound(c, args); err != nil {
			return err
		}
		return o.check(c)
	}
	return root
}

// fileFlags adds the flags of a command that reads objects.
func (o *options) fileFlags(flags *pflag.FlagSet) {
	flags.StringSliceVarP(&o.files, "filename", "f", nil, "folder or file with YAML, - for standard input; may be given several times")
	flags.StringVar(&o.part, "part", "", "name of the part that the objects are (default: that of the folder or file)")
}

var namePattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?$`)

// check completes the options.
func (o *options) check(c *cobra.Command) error {
	printer, err := show.New(c.OutOrStdout(), c.ErrOrStderr(), o.output, o.wide)
	if err != nil {
		return &program.UsageError{Err: err}
	}
	o.out = printer
	if program.FromVariable(c.Flags(), "kubeconfig") {
		o.kubeconfig = "" // client-go reads the variable, which may name several files
	}
	if !namePattern.MatchString(o.set) {
		return program.Usagef("--set: is %q, must be letters in lower case, digits and dashes, at most 42", o.set)
	}
	if o.namespace != "" {
		if err := program.CheckNamespace("namespace", o.namespace); err != nil {
			return &program.UsageError{Err: err}
		}
	}
	if flag := c.Flags().Lookup("cascade"); flag != nil {
		if _, known := cascades[flag.Value.String()]; !known {
			return program.Usagef("--cascade: is %q, must be background, foreground or orphan", flag.Value)
		}
	}
	if o.timeout <= 0 {
		return program.Usagef("--timeout: is %v, must be above 0", o.timeout)
	}
	for name, must := range map[string]string{"limit": "0 or more", "interval": "above 0"} {
		flag := c.Flags().Lookup(name)
		if flag != nil && (strings.HasPrefix(flag.Value.String(), "-") || name == "interval" && flag.Value.String() == "0s") {
			return program.Usagef("--%s: is %s, must be %s", name, flag.Value, must)
		}
	}
	if c.Flags().Lookup("filename") == nil {
		return nil
	}
	if len(o.files) == 0 && (c.Flags().Lookup("whole-part") == nil || o.part == "") {
		return program.Usagef("--filename: is missing, must be a folder or file with YAML, or - for standard input")
	}
	return o.namePart()
}

// namePart names the part after the only folder or file.
func (o *options) namePart() error {
	if o.part != "" {
		if !namePattern.MatchString(o.part) {
			return program.Usagef("--part: is %q, must be letters in lower case, digits and dashes, at most 42", o.part)
		}
		return nil
	}
	if len(o.files) != 1 || o.files[0] == folder.Stdin {
		return program.Usagef("--part: is missing, must be a name for the objects: %s has none", strings.Join(o.files, ", "))
	}
	path, err := filepath.Abs(o.files[0])
	if err != nil {
		return err
	}
	if info, err := os.Stat(path); err == nil && !info.IsDir() {
		path = strings.TrimSuffix(path, filepath.Ext(path))
	}
	o.part = strings.Trim(regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(strings.ToLower(filepath.Base(path)), "-"), "-")
	if !namePattern.MatchString(o.part) {
		return program.Usagef("--part: is missing, must be a name for the objects: %s makes none", o.files[0])
	}
	return nil
}

// ended returns the error that ends the command with the status of the heaviest fault:
// wrong files, the cluster's errors, deletions that are held.
func (o *options) ended(faults []error, cluster error, held int) error {
	for _, err := range faults {
		o.out.Error(err)
	}
	o.out.Error(cluster)
	switch {
	case len(faults) > 0:
		return &program.StatusError{Status: program.ExitUsage}
	case cluster != nil:
		return &program.StatusError{Status: statusCluster}
	case held > 0:
		return &program.StatusError{Status: statusHeld}
	}
	return nil
}

// failed is an error of the cluster that ended the command.
func failed(err error) error {
	if _, ok := errors.AsType[*program.UsageError](err); ok || err == nil {
		return err
	}
	return &program.StatusError{Status: statusCluster, Err: fmt.Errorf("cluster: %w", err)}
}
