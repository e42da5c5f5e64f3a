package program

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Annotations of flags and commands.
const (
	annotationVariable = "trueup/variable"      // of a flag: the name of its variable, or of the variable that it makes
	annotationFrom     = "trueup/from-variable" // of a flag: its value came from there
	annotationMust     = "trueup/must"          // of a flag: what it must be; absent: it may be empty
	annotationUnbound  = "trueup/unbound"       // of a command: its flags have no variables
)

// Variable names the environment variable of a flag. Without a name, the variable is the
// prefix of the program and the flag in capitals with _ for -.
func Variable(flags *pflag.FlagSet, flag, variable string) {
	annotate(flags.Lookup(flag), annotationVariable, variable)
}

func annotate(f *pflag.Flag, key, value string) {
	if f.Annotations == nil {
		f.Annotations = map[string][]string{}
	}
	f.Annotations[key] = []string{value}
}

func annotation(f *pflag.Flag, key string) string {
	if values := f.Annotations[key]; len(values) > 0 {
		return values[0]
	}
	return ""
}

// howToSet ends the help of each program.
const howToSet = `

A setting is a flag or the variable in brackets. The flag goes first. A variable
that is set to nothing counts as not set: to make a setting empty, give the flag.`

// Bind gives each flag of the command and of its subcommands an environment variable, which
// --help shows. A flag that is not given takes the value of its variable; a variable that is
// empty counts as not set. A value that the flag refuses is a *[UsageError] that names the
// variable. lookup is os.LookupEnv in a program. Call it once, when all flags are added.
func Bind(root *cobra.Command, prefix string, lookup func(string) (string, bool)) {
	var bind func(c *cobra.Command)
	bind = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			bind(sub)
		}
		if c.Annotations[annotationUnbound] != "" {
			return
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if annotation(f, annotationVariable) == "" {
				annotate(f, annotationVariable, prefix+strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_")))
			}
			f.Usage += " [" + annotation(f, annotationVariable) + "]"
		})
	}
	bind(root)
	root.Long = cmp.Or(root.Long, root.Short+".") + howToSet
	root.PersistentPreRunE = func(c *cobra.Command, _ []string) error {
		if c.Annotations[annotationUnbound] != "" {
			return nil
		}
		if err := mistyped(root, prefix, os.Environ()); err != nil {
			return &UsageError{err}
		}
		if err := ReadVariables(c.Flags(), lookup); err != nil {
			return err
		}
		if err := checkValues(c.Flags()); err != nil {
			return &UsageError{err}
		}
		return nil
	}
}

// serviceLink finds the variables by which Kubernetes tells pods the Services of their namespace.
var serviceLink = regexp.MustCompile(`_(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT|PORT_[0-9]+_(TCP|UDP|SCTP)(_.+)?)$`)

// mistyped returns an error for a variable with the prefix of the program whose name is almost the
// variable of a flag. Other names may be secrets, which have no flag.
func mistyped(root *cobra.Command, prefix string, environment []string) error {
	known := map[string]bool{}
	var read func(c *cobra.Command)
	read = func(c *cobra.Command) {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) { known[annotation(f, annotationVariable)] = true })
		for _, sub := range c.Commands() {
			read(sub)
		}
	}
	read(root)
	for _, setting := range environment {
		name, value, _ := strings.Cut(setting, "=")
		if value == "" || known[name] || !strings.HasPrefix(name, prefix) || serviceLink.MatchString(name) {
			continue
		}
		short := map[string]bool{}
		for right := range known {
			if of, ok := strings.CutPrefix(right, prefix); ok {
				short[of] = true
			}
		}
		if right := Nearest(name[len(prefix):], short); right != "" {
			return fmt.Errorf("%s: is the variable of no setting, must be %s", name, prefix+right)
		}
	}
	return nil
}

// Nearest returns the first of the names that another is almost: what a person meant who mistyped
// it. Empty: there is none.
func Nearest(mistyped string, names map[string]bool) string {
	for _, right := range slices.Sorted(maps.Keys(names)) {
		if within(mistyped, right, min(3, len(right)/4)) {
			return right
		}
	}
	return ""
}

// within reports whether at most so many letters inserted, left out or replaced make one text the other.
func within(a, b string, most int) bool {
	switch {
	case a == b:
		return true
	case most == 0:
		return false
	case a == "" || b == "":
		return len(a)+len(b) <= most
	case a[0] == b[0]:
		return within(a[1:], b[1:], most)
	}
	return within(a[1:], b, most-1) || within(a, b[1:], most-1) || within(a[1:], b[1:], most-1)
}

// FromVariable reports whether the value of the flag came from its variable.
func FromVariable(flags *pflag.FlagSet, flag string) bool {
	f := flags.Lookup(flag)
	return f != nil && annotation(f, annotationFrom) != ""
}

// wrongValue is the error for a value that the flag cannot hold.
func wrongValue(name string, f *pflag.Flag, value string, cause error) error {
	must, ok := map[string]string{
		"bool":     "true or false",
		"duration": "a duration such as 90s or 1h30m",
		"float64":  "a number such as 0.5",
		"int":      "a whole number",
	}[f.Value.Type()]
	switch {
	case f.Value.Type() == "string": // a flag of this package: the cause begins with "must be"
		return fmt.Errorf("%s: is %q, %w", name, Shown(value), cause)
	case !ok:
		return fmt.Errorf("%s: is %q: %w", name, Shown(value), cause)
	}
	return fmt.Errorf("%s: is %q, must be %s", name, Shown(value), must)
}

// ReadVariables sets each flag that is not given to the value of its variable. [Bind] does it
// for a command that runs; shell completion does not run one.
func ReadVariables(flags *pflag.FlagSet, lookup func(string) (string, bool)) (failed error) {
	flags.VisitAll(func(f *pflag.Flag) {
		variable := annotation(f, annotationVariable)
		if f.Changed || variable == "" {
			return
		}
		value, ok := lookup(variable)
		if !ok || value == "" {
			return
		}
		if err := flags.Set(f.Name, value); err != nil && failed == nil {
			if cause, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
				err = cause.Unwrap()
			}
			failed = &UsageError{wrongValue(variable, f, value, err)}
		}
		annotate(f, annotationFrom, variable)
	})
	return failed
}

// Setting is a setting that the program's own reader of variables parses.
type Setting struct {
	// Flag and Variable are its two names, such as region and STARFORM_REGION.
	Flag, Variable string
	// Usage is what --help shows, with the default.
	Usage string
	// Must is what the value must be, such as "a duration such as 30s". A flag that is set to
	// nothing is then an error. Empty: nothing is a value.
	Must string
	// Switch makes the flag alone mean true.
	Switch bool
}

// Settings adds a flag for each setting. The function that it returns is a lookup for a
// reader of variables: it returns the value of the flag of a variable, "" if neither is
// given, and the environment's value for variables without a flag, which are secrets: the
// arguments of a process are not.
func Settings(flags *pflag.FlagSet, settings []Setting) (lookup func(variable string) string) {
	byVariable := make(map[string]*pflag.Flag, len(settings))
	for _, s := range settings {
		flags.String(s.Flag, "", s.Usage)
		Variable(flags, s.Flag, s.Variable)
		f := flags.Lookup(s.Flag)
		if s.Must != "" {
			annotate(f, annotationMust, s.Must)
		}
		if s.Switch {
			f.NoOptDefVal = "true"
		}
		byVariable[s.Variable] = f
	}
	return func(variable string) string {
		if f := byVariable[variable]; f != nil {
			return f.Value.String()
		}
		return os.Getenv(variable)
	}
}

// Emptied reports whether the flag of the variable was set to nothing.
func Emptied(flags *pflag.FlagSet, variable string) (empty bool) {
	flags.Visit(func(f *pflag.Flag) {
		empty = empty || annotation(f, annotationVariable) == variable && f.Value.String() == ""
	})
	return empty
}

// namePattern finds variables and flags in a text.
var namePattern = regexp.MustCompile(`\b[A-Z][A-Z0-9]*(_[A-Z0-9]+)+\b|--[a-z0-9]+(-[a-z0-9]+)*`)

// Shown returns the value of a setting as an error may show it: at most 200 bytes, and a text
// that may hold a password or token, as a URL with a user or a query does, as "(hidden)".
func Shown(value string) string {
	switch {
	case strings.ContainsAny(value, "@?"):
		return "(hidden)"
	case len(value) > 200:
		return value[:200] + "..."
	}
	return value
}

// asUsed returns the text of an error with the names that were used: the flag in the place of
// its variable if the flag was given, and the variable in the place of the flag if the value
// came from there. So a program names a setting either way. The flags of a command without
// variables are always flags.
func asUsed(command *cobra.Command, text string) string {
	used := map[string]string{}
	unbound := command.Annotations[annotationUnbound] != ""
	command.Flags().VisitAll(func(f *pflag.Flag) {
		switch variable := annotation(f, annotationVariable); {
		case variable == "":
		case annotation(f, annotationFrom) != "":
			used["--"+f.Name] = variable
		case f.Changed, unbound:
			used[variable] = "--" + f.Name
		}
	})
	return namePattern.ReplaceAllStringFunc(text, func(name string) string { return cmp.Or(used[name], name) })
}

// KubeconfigFlag adds --kubeconfig, with the variable KUBECONFIG.
func KubeconfigFlag(flags *pflag.FlagSet, path *string) {
	flags.StringVar(path, "kubeconfig", "", "kubeconfig file; without it the pod's service account is used")
	Variable(flags, "kubeconfig", "KUBECONFIG")
}

// LogLevelFlag adds --log-level.
func LogLevelFlag(flags *pflag.FlagSet, level *string) {
	flags.StringVar(level, "log-level", "info", "debug, info, warn or error")
}

var labelPattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`) // of at most 63 bytes

// CheckNamespace returns an error unless the value of a flag is the name of a namespace.
func CheckNamespace(flag, namespace string) error {
	if len(namespace) > 63 || !labelPattern.MatchString(namespace) {
		return fmt.Errorf("--%s: is %q, must be the name of a namespace", flag, namespace)
	}
	return nil
}

// CheckLease returns an error unless the values of [NamespaceFlag] and [LeaderElectFlag] fit.
func CheckLease(namespace string, elect bool) error {
	if namespace == "" && elect {
		return errors.New(`--namespace: is "", must be the name of a namespace, or --leader-elect=false`)
	}
	if namespace == "" {
		return nil
	}
	return CheckNamespace("namespace", namespace)
}

// NamespaceFlag adds --namespace, where the program keeps its Lease.
func NamespaceFlag(flags *pflag.FlagSet, namespace *string, standard, variable string) {
	flags.StringVar(namespace, "namespace", standard,
		"namespace of the Lease; manifests prints the Role for "+standard+": another namespace needs the same Role and its RoleBinding")
	Variable(flags, "namespace", variable)
}

// LeaderElectFlag adds --leader-elect, true by default.
func LeaderElectFlag(flags *pflag.FlagSet, elect *bool) {
	flags.BoolVar(elect, "leader-elect", true, "work only while holding the Lease: needed with more than one replica")
}

// What the flags of listeners say in every program.
const (
	HealthFlag   = "health-probe-bind-address"
	HealthUsage  = "address of /healthz and /readyz, host:port or :port"
	MetricsFlag  = "metrics-bind-address"
	MetricsUsage = "address of /metrics, host:port or :port; empty: that of --" + HealthFlag
)

// AddressFlags adds --health-probe-bind-address and --metrics-bind-address.
func AddressFlags(flags *pflag.FlagSet, health, metrics *string, standardHealth, standardMetrics string) {
	flags.StringVar(health, HealthFlag, standardHealth, HealthUsage)
	flags.StringVar(metrics, MetricsFlag, standardMetrics, MetricsUsage)
}

// OtherAddress is what the address of /metrics must be where it is the other one, too.
const OtherAddress = "another address than that of the other listener, or empty"

// CheckAddresses returns an error for each value of the two flags of [AddressFlags] that is
// no address, and if both are the same. metrics may be empty.
func CheckAddresses(health, metrics string) error {
	var wrong []error
	for _, flag := range [][2]string{{HealthFlag, health}, {MetricsFlag, cmp.Or(metrics, ":0")}} {
		if err := CheckAddress(flag[1]); err != nil {
			wrong = append(wrong, fmt.Errorf("--%s: %w", flag[0], err))
		}
	}
	if SameAddress(health, metrics) {
		wrong = append(wrong, fmt.Errorf("--%s: is %q, must be %s", MetricsFlag, metrics, OtherAddress))
	}
	return errors.Join(wrong...)
}

// CheckAddress returns an error unless the address is host:port or :port.
func CheckAddress(address string) error {
	_, port, err := net.SplitHostPort(address)
	if _, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil {
		return fmt.Errorf("is %q, must be host:port or :port", address)
	}
	return nil
}
