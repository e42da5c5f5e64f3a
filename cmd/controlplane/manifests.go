package main

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"text/template"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/installation"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
	"github.com/seed-9e1ffd66/trueup/ops"
)

//go:embed manifests.yaml
var manifestsTemplate string

// manifests are the values of the template.
type manifests struct {
	Namespace, Image string
	// DatabaseSecret has the URL of a PostgreSQL. Empty: one replica on a SQLite file.
	DatabaseSecret string
	Replicas       int
	TLSSecret      string
	// Gateway is NAMESPACE/NAME.
	Gateway, Hostname string
	Monitoring        bool
	// OIDCIssuer, OIDCClientID and ExternalURL are flags of the program. An empty issuer: people do
	// not sign in.
	OIDCIssuer, OIDCClientID, ExternalURL string
}

// IssuerPort is the port of the issuer.
func (m *manifests) IssuerPort() string {
	issuer, err := url.Parse(m.OIDCIssuer)
	if err != nil {
		return ""
	}
	return cmp.Or(issuer.Port(), "443")
}

func newManifestsCommand() *cobra.Command {
	var values manifests
	command := program.ManifestsCommand("Print the Kubernetes objects of the control plane as YAML", &values)
	flags := command.Flags()
	flags.StringVar(&values.Namespace, "namespace", "trueup-system", "namespace of the objects")
	program.ImageFlag(flags, &values.Image, "controlplane")
	program.ObjectFlag(flags, &values.DatabaseSecret, "database-secret",
		"Secret whose key url has the --database of several replicas, a PostgreSQL (none: one replica on a SQLite file)")
	flags.IntVar(&values.Replicas, "replicas", 0, "replicas; 0: two with --database-secret, and one without")
	program.ObjectFlag(flags, &values.TLSSecret, "tls-secret",
		"Secret of type kubernetes.io/tls with the certificate of the API (none: plain HTTP)")
	flags.StringVar(
		&values.Gateway,
		"gateway",
		"",
		"NAMESPACE/NAME of a Gateway that ends TLS and routes --hostname to the API (none). Not an Ingress: it cannot ask for the HTTP/2 that streams need up to the pods",
	)
	flags.StringVar(&values.Hostname, "hostname", "", "host of the route through --gateway")
	flags.BoolVar(&values.Monitoring, "monitoring", false,
		"add a ServiceMonitor and a PrometheusRule with the alerts, for the operator of Prometheus")
	flags.StringVar(&values.OIDCIssuer, "oidc-issuer", "",
		"URL of the issuer of OpenID Connect with which people sign in; "+
			"the ConfigMap trueup-controlplane-groups has the roles of their groups (none)")
	flags.StringVar(&values.OIDCClientID, "oidc-client-id", "", "id of the client at the issuer")
	flags.StringVar(&values.ExternalURL, "external-url", "",
		"URL where browsers reach the page, to which the issuer sends them back; none: https:// and --hostname")
	return command
}

// checkOIDC returns an error for all settings of the sign-in that are missing or do not fit.
func (m *manifests) checkOIDC() error {
	if m.OIDCIssuer != "" && m.ExternalURL == "" && m.Hostname != "" {
		m.ExternalURL = "https://" + m.Hostname
	}
	var errs []error
	for _, setting := range []struct {
		flag, value string
		url         bool
	}{{"oidc-issuer", m.OIDCIssuer, true}, {"external-url", m.ExternalURL, true}, {"oidc-client-id", m.OIDCClientID, false}} {
		switch {
		case m.OIDCIssuer == "" && setting.value != "":
			errs = append(errs, fmt.Errorf("--%s: is %q, must be unset without --oidc-issuer", setting.flag, program.Shown(setting.value)))
		case m.OIDCIssuer == "":
		case setting.value == "":
			errs = append(errs, fmt.Errorf("--%s: is not set, must be set with --oidc-issuer", setting.flag))
		case setting.flag == "external-url" && strings.HasPrefix(setting.value, "https://") && !isOrigin(setting.value):
			const must = "must have no path, such as https://control.example.com"
			errs = append(errs, fmt.Errorf("--%s: is %q, %s", setting.flag, program.Shown(setting.value), must))
		case setting.url && (!program.Encrypted(setting.value) || !strings.HasPrefix(setting.value, "https://")):
			const must = "must be a URL of https such as https://login.example.com"
			errs = append(errs, fmt.Errorf("--%s: is %q, %s", setting.flag, program.Shown(setting.value), must))
		}
	}
	return errors.Join(errs...)
}

// maxReplicas keeps a slip of the finger from a cluster.
const maxReplicas = 100

var (
	gatewayPattern  = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?/[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`)
	hostnamePattern = regexp.MustCompile(`^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`)
)

// check returns an error for values that do not fit, with the name of the flag.
func (m *manifests) check() error {
	switch {
	case m.Gateway != "" && !gatewayPattern.MatchString(m.Gateway):
		return fmt.Errorf("--gateway: is %q, must be NAMESPACE/NAME of a Gateway", program.Shown(m.Gateway))
	case m.Hostname != "" && !hostnamePattern.MatchString(m.Hostname) || len(m.Hostname) > 253:
		return fmt.Errorf("--hostname: is %q, must be a host such as control.example.com, no address", program.Shown(m.Hostname))
	case m.Gateway != "" && m.Hostname == "":
		return errors.New("--hostname: is not set, must be set with --gateway")
	case m.Gateway == "" && m.Hostname != "":
		return errors.New("--gateway: is not set, must be set with --hostname")
	case m.Gateway != "" && m.TLSSecret != "":
		return errors.New("--tls-secret: is set beside --gateway, must be one of them: the Gateway ends TLS")
	case m.Replicas < 0, m.Replicas > maxReplicas:
		return fmt.Errorf("--replicas: is %d, must be 1 to %d, or 0 for the standard", m.Replicas, maxReplicas)
	case m.Replicas > 1 && m.DatabaseSecret == "":
		return fmt.Errorf("--replicas: is %d, must be 1 without --database-secret: a SQLite file has one writer", m.Replicas)
	}
	if err := m.checkOIDC(); err != nil {
		return err
	}
	return program.CheckNamespace("namespace", m.Namespace)
}

// YAML returns the objects as a stream for kubectl apply.
func (m *manifests) YAML() (string, error) {
	if err := m.check(); err != nil {
		return "", err
	}
	if m.Replicas == 0 && m.DatabaseSecret != "" {
		m.Replicas = 2
	}
	parsed, err := template.New("manifests.yaml").Funcs(template.FuncMap{
		"text": text, "alerts": alerts, "argument": func(value string) (string, error) { return text(installation.Literal(value)) },
		"before": func(text, sep string) string { found, _, _ := strings.Cut(text, sep); return found },
		"after":  func(text, sep string) string { _, found, _ := strings.Cut(text, sep); return found },
	}).Parse(manifestsTemplate)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	err = parsed.Execute(&out, m)
	return out.String(), err
}

// text returns a string as YAML, with quotes if it would be something else without them.
func text(value string) (string, error) {
	out, err := yaml.Marshal(value)
	return strings.TrimSpace(string(out)), err
}

// alerts returns the groups of the rule file of the program as the spec of a PrometheusRule.
func alerts() (string, error) {
	file, err := ops.Alerts("controlplane")
	if err != nil {
		return "", err
	}
	_, groups, ok := strings.Cut(file, "\ngroups:")
	if !ok {
		return "", errors.New("the file of alerts has no groups")
	}
	return strings.ReplaceAll(strings.TrimSpace("groups:"+groups), "\n", "\n  "), nil
}
