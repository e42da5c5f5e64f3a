package operator

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/seed-9e1ffd66/trueup/cmd/api/thurkube/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/diff"
)

const (
	// configFile is the key of the ConfigMap, and the file in configPath.
	configFile = "agent.json"
	// maxConfig is how many bytes the config may have: a ConfigMap holds a MiB with its
	// metadata.
	maxConfig = 900 << 10
)

// agentConfig is agent.json: what the agent reads. The order of the fields is that of
// the file.
type agentConfig struct {
	Prompt       string             `json:"prompt"`
	Instructions string             `json:"instructions,omitempty"`
	Model        string             `json:"model,omitempty"`
	AllowedTools []string           `json:"allowedTools"`
	Skill        *skillConfig       `json:"skill,omitempty"`
	McpServers   []serverConfig     `json:"mcpServers"`
	Repositories []repositoryConfig `json:"repositories"`
}

type skillConfig struct {
	Repo string `json:"repo"`
	Name string `json:"name"`
	Ref  string `json:"ref"`
}

type serverConfig struct {
	Name        string   `json:"name"`
	Command     string   `json:"command,omitempty"`
	Args        []string `json:"args,omitempty"`
	URL         string   `json:"url,omitempty"`
	HeadersFile string   `json:"headersFile,omitempty"`
}

type repositoryConfig struct {
	Name      string `json:"name"`
	Owner     string `json:"owner"`
	Repo      string `json:"repo"`
	TokenFile string `json:"tokenFile,omitempty"`
}

// renderConfig returns the data of the ConfigMap. The same job and references give the
// same bytes.
func renderConfig(r *resolved) (map[string]string, error) {
	spec := &r.job.Spec
	config := agentConfig{
		Prompt: spec.Prompt, Instructions: spec.Instructions, Model: spec.Model,
		AllowedTools: slices.Concat([]string{}, r.role.Spec.AllowedTools), McpServers: []serverConfig{}, Repositories: []repositoryConfig{},
	}
	if r.skill != nil {
		config.Skill = &skillConfig{r.skill.Spec.Repo, r.skill.Spec.Name, r.skill.Spec.Ref}
	}
	for _, s := range r.servers {
		server := serverConfig{Name: s.Name, Command: s.Spec.Command, Args: s.Spec.Args, URL: s.Spec.URL}
		if s.Spec.HeadersSecretRef != nil {
			server.HeadersFile = headersPath + "/" + s.Name + "/" + headersFile
		}
		config.McpServers = append(config.McpServers, server)
	}
	for _, found := range r.repositories {
		repository := repositoryConfig{Name: found.Name, Owner: found.Spec.Owner, Repo: found.Spec.Name}
		if found.Spec.TokenSecretRef != nil {
			repository.TokenFile = tokensPath + "/" + found.Name + "/" + tokenFile
		}
		config.Repositories = append(config.Repositories, repository)
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(config); err != nil {
		return nil, err
	}
	if text.Len() > maxConfig {
		return nil, fmt.Errorf(
			"%w: spec: the config has %d bytes, it may have %d; shorten prompt or instructions",
			errInvalid,
			text.Len(),
			maxConfig,
		)
	}
	return map[string]string{configFile: text.String()}, nil
}

// configHash digests the data of a ConfigMap: each key and value in the order of the
// keys, each followed by a zero byte. It is the first 8 bytes of the SHA-256 in hex.
func configHash(data map[string]string) string {
	all := sha256.New()
	for _, key := range slices.Sorted(maps.Keys(data)) {
		for _, text := range []string{key, data[key]} {
			all.Write([]byte(text))
			all.Write([]byte{0})
		}
	}
	return hex.EncodeToString(all.Sum(nil)[:8])
}

// template is everything but the config that a run depends on. It holds the settings of
// users, not the objects made from them, so that another version of the operator starts no
// run again. A field that is added must be left out when it is empty. It has no contents of
// Secrets: the next pod reads them anyway.
type template struct {
	Image         string                      `json:"image"`
	Command       []string                    `json:"command,omitempty"`
	AuthEnvVar    string                      `json:"authEnvVar"`
	ConfigPath    v1alpha1.Path               `json:"configPath"`
	PersistPath   v1alpha1.Path               `json:"persistPath,omitempty"` // if there is a volume
	Auth          v1alpha1.SecretKey          `json:"auth"`
	Env           []corev1.EnvVar             `json:"env,omitempty"`
	EnvFrom       []corev1.EnvFromSource      `json:"envFrom,omitempty"`
	Resources     corev1.ResourceRequirements `json:"resources,omitzero"`
	Timeout       int64                       `json:"timeout"`
	Tokens        []v1alpha1.SecretKey        `json:"tokens,omitempty"`
	Headers       []v1alpha1.SecretKey        `json:"headers,omitempty"`
	Rules         []rbacv1.PolicyRule         `json:"rules,omitempty"`
	Scope         v1alpha1.AccessScope        `json:"scope,omitempty"`
	NetworkPolicy *networkPolicy              `json:"networkPolicy,omitempty"`
	Placement     *placement                  `json:"placement,omitempty"`
	Account       map[string]string           `json:"account,omitempty"` // annotations
}

type networkPolicy struct {
	Egress []networkingv1.NetworkPolicyEgressRule `json:"egress,omitzero"` // an empty list is not none
}

// templateHash returns 16 hexadecimal digits.
func templateHash(r *resolved) (string, error) {
	spec, runtime := &r.job.Spec, &r.runtime.Spec
	of := template{
		Image: runtime.Image, Command: runtime.Command, AuthEnvVar: runtime.AuthEnvVar, ConfigPath: runtime.ConfigPath,
		Auth: r.auth.Spec.SecretRef, Env: r.env(), EnvFrom: spec.EnvFrom, Resources: spec.Resources, Timeout: spec.TimeoutSeconds,
	}
	if spec.Persist {
		of.PersistPath = runtime.PersistPath
	}
	for _, repository := range r.repositories {
		if ref := repository.Spec.TokenSecretRef; ref != nil {
			of.Tokens = append(of.Tokens, *ref)
		}
	}
	for _, server := range r.servers {
		if ref := server.Spec.HeadersSecretRef; ref != nil {
			of.Headers = append(of.Headers, *ref)
		}
	}
	if r.access != nil {
		of.Rules, of.Scope = r.access.Spec.Rules, spec.Access
	}
	if spec.NetworkPolicy != nil {
		of.NetworkPolicy = &networkPolicy{spec.NetworkPolicy.Egress}
	}
	if p := placementOf(spec); !equality.Semantic.DeepEqual(p, &placement{}) {
		of.Placement = p
	}
	of.Account = spec.ServiceAccountAnnotations
	sum, err := diff.Hash(of)
	return hex.EncodeToString(sum[:8]), err
}

// runHash joins both hashes in 16 hexadecimal digits.
func runHash(config, template string) string {
	sum := sha256.Sum256([]byte(config + template))
	return hex.EncodeToString(sum[:8])
}
