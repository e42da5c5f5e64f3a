package config

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/url"

	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/isolation"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
)

// Config is how an agent is set up.
type Config struct {
	// InstanceID distinguishes the processes of an agent in logs. Default: the
	// variable HOSTNAME, which is the name of the pod.
	InstanceID string
	Cluster    Cluster
	Control    Control
	// TokenFile holds the token for the control plane, when Control.Token is empty.
	TokenFile string
	// TokenSecret is the Secret where the agent keeps the token that it renews. Zero: it renews none.
	TokenSecret types.NamespacedName
	// HealthAddress is where /healthz and /readyz are served, and MetricsAddress where
	// /metrics is. Defaults: port 8070, or the port of the setting rpc_port; HealthAddress.
	HealthAddress, MetricsAddress string

	Vault    Vault
	Registry Registry
	// StorageClassName is the class of scratch volumes. Default ebs-csi-gp3.
	StorageClassName string
	Kubernetes       Kubernetes
	// RuntimeClass is the runtime class of all pods. Default gvisor.
	RuntimeClass string
	// PodSecurity is the loosest level that a deployment may ask for. Default restricted.
	PodSecurity isolation.Level
	// StateDir is a folder that keeps the recent deletions over a restart, for the limit of
	// deletions. Empty: they are kept in memory.
	StateDir string
	// MaxDeletePercent is the max share of the deployments, in percent, that may be deleted
	// within an hour because they are absent; never fewer than 5. So for sentinels and
	// policies. Default 10, at most 100.
	MaxDeletePercent int
}

// Cluster is the cluster that the agent manages.
type Cluster struct {
	// Region is what the control plane calls it. Required.
	Region string
	// Platform is what the region is on, such as aws, as it is registered: a token of a region
	// on another platform is refused. Empty: the token decides.
	Platform string
	// CellID names the agent when there are several in a region. Empty: unset.
	CellID string
}

// Control is the control plane.
type Control struct {
	// URL is its base. Required. With http:// it speaks cleartext HTTP/2, which the setting allow_http
	// has to allow if it is of another machine: the token is not encrypted. So for Vault.URL.
	URL *url.URL
	// Token identifies the agent. Empty: Config.TokenFile holds it.
	Token Secret
}

// Vault is what decrypts variables. The zero value decrypts none.
type Vault struct {
	// URL is the base of a vault service. Nil: none.
	URL *url.URL
	// Token identifies the agent to it.
	Token Secret
	// KeyFile holds keys, when there is no service.
	KeyFile string
}

// Registry is where images are pulled from. The zero value pulls without a
// password.
type Registry struct {
	// URL is the registry as image references begin, such as
	// registry.example.com:5000.
	URL      string
	Username string
	Password Secret
}

// Kubernetes bounds the requests to the API server.
type Kubernetes struct {
	// QPS is requests a second. Default 100.
	QPS int
	// Burst is how many requests may be sent at once. Default 200, at least QPS.
	Burst int
}

// Secret is text that prints as "(hidden)" wherever it is printed, logged or
// encoded.
type Secret string

const masked = "(hidden)"

// Reveal returns the text.
func (s Secret) Reveal() string { return string(s) }

func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return masked
}

// GoString masks the form %#v.
func (s Secret) GoString() string { return s.String() }

// LogValue masks the value in logs.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText masks the value in JSON and YAML.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// GivenToken returns the token for the control plane that people gave the agent: the one in the
// configuration, or the content of the token file without the white space around
// it. Call it again after the server has refused one.
func (c Config) GivenToken() (string, error) {
	if c.Control.Token != "" {
		return c.Control.Token.Reveal(), nil
	}
	token, err := program.ReadToken(c.TokenFile)
	if err != nil {
		return "", fmt.Errorf("token_file: %w", err)
	}
	return token, nil
}

// A FieldError is a setting that is wrong, with where it came from and what would
// be right.
type FieldError struct {
	// Field is the setting, such as cluster.region.
	Field string
	// Variable is the environment variable of the setting. Empty: the value comes from the
	// file, or the setting has no variable.
	Variable string
	// File is the file that has the value. Empty: none, or it has no name.
	File string
	// Value is what it was set to, empty when it was not. That of a secret is
	// masked.
	Value string
	// Given is whether it was set, if only to nothing.
	Given bool
	// Want is a description of what would be right.
	Want string
}

func (e *FieldError) Error() string {
	name := cmp.Or(e.Variable, e.Field)
	if e.File != "" {
		name = "--config " + e.File + ": " + name
	}
	if e.Value == "" && !e.Given {
		return fmt.Sprintf("%s: is not set, must be %s", name, e.Want)
	}
	return fmt.Sprintf("%s: is %q, must be %s", name, program.Shown(e.Value), e.Want)
}
