package config

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/isolation"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/internal/vault"
)

// Load reads the configuration from a file, "" for none, and with lookup, which
// is os.LookupEnv in a program.
func Load(path string, lookup func(string) (string, bool)) (Config, error) {
	var data []byte
	if path != "" {
		var err error
		if data, err = os.ReadFile(path); err != nil {
			return Config{}, fmt.Errorf("--config: %w", program.Unreadable(path, err))
		}
	}
	return read(path, data, lookup)
}

// Read reads the configuration from the content of a file, which may be empty,
// and with lookup. What lookup has, if only empty, goes before the file. The error joins a
// *FieldError for each setting that is wrong; a file that is no YAML, or states a key twice,
// is another error.
func Read(data []byte, lookup func(string) (string, bool)) (Config, error) {
	return read("", data, lookup)
}

func read(path string, data []byte, lookup func(string) (string, bool)) (Config, error) {
	r := reader{lookup: lookup, path: path, file: map[string]string{}, known: map[string]bool{}}
	if err := r.parse(data); err != nil {
		if path != "" {
			err = fmt.Errorf("--config %s: %w", path, err)
		}
		return Config{}, err
	}
	c := Config{
		InstanceID: r.instance(),
		Cluster: Cluster{
			Region:   r.label("cluster.region", true),
			Platform: r.label("cluster.platform", false),
			CellID:   r.label("cluster.cell_id", false),
		},
		Control:          Control{URL: r.url("control.url"), Token: r.secret("control.token")},
		TokenFile:        r.text("token_file"),
		TokenSecret:      r.namespacedName("token_secret"),
		HealthAddress:    r.address("health_probe_bind_address", fmt.Sprintf(":%d", r.integer("rpc_port", 8070, 1, 65535))),
		MetricsAddress:   r.address("metrics_bind_address", ""),
		Vault:            Vault{URL: r.url("vault.url"), Token: r.secret("vault.token"), KeyFile: r.text("vault.key_file")},
		Registry:         Registry{URL: r.text("registry.url"), Username: r.text("registry.username"), Password: r.secret("registry.password")},
		StorageClassName: r.name("storage_class_name", "ebs-csi-gp3"),
		Kubernetes:       Kubernetes{QPS: r.integer("k8s.qps", 100, 1, 100_000)},
		RuntimeClass:     r.name("runtime_class", "gvisor"),
		PodSecurity:      r.level("pod_security"),
		StateDir:         r.folder("state_dir"),
		MaxDeletePercent: r.integer("max_delete_percent", 10, 0, 100),
	}
	c.Kubernetes.Burst = r.integer("k8s.burst", max(200, c.Kubernetes.QPS), 1, 1_000_000)
	r.together(c)
	for _, key := range slices.Sorted(maps.Keys(r.file)) {
		if !r.known[key] {
			want := cmp.Or(program.Nearest(key, r.known), "one of "+strings.Join(slices.Sorted(maps.Keys(r.known)), " "))
			r.errs = append(r.errs, &FieldError{Field: key, File: path, Value: masked, Want: want})
		}
	}
	if err := errors.Join(r.errs...); err != nil {
		return Config{}, err
	}
	return c, nil
}

// reader reads settings one by one and collects their errors.
type reader struct {
	lookup func(string) (string, bool)
	path   string            // of the file
	file   map[string]string // by names such as control.url
	known  map[string]bool
	errs   []error
}

// parse fills file.
func (r *reader) parse(data []byte) error {
	if program.Documents(data) > 1 {
		return errors.New("has several YAML documents, must have one")
	}
	// Neither error shows a line of the file: it may hold a token.
	text, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		if key, ok := strings.CutSuffix(err.Error(), " already set in map"); ok {
			_, key, _ = strings.Cut(key, "key ")
			return fmt.Errorf("key %s is stated twice", key)
		}
		return errors.New("is not YAML" + place.FindString(err.Error()))
	}
	var tree any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber() // so that it is printed as it was written
	if err := decoder.Decode(&tree); err != nil {
		return errors.New("is not YAML")
	}
	switch tree := tree.(type) {
	case nil:
	case map[string]any:
		r.flatten("", tree)
	default:
		return errors.New("is not a map of settings")
	}
	return nil
}

// place is where the parser of YAML has stopped.
var place = regexp.MustCompile(`: line \d+`)

func (r *reader) flatten(prefix string, tree map[string]any) {
	for _, key := range slices.Sorted(maps.Keys(tree)) {
		switch v := tree[key].(type) {
		case nil: // as if absent
		case map[string]any:
			r.flatten(prefix+key+".", v)
		case string:
			r.file[prefix+key] = v
		case json.Number:
			r.file[prefix+key] = v.String()
		case bool:
			r.file[prefix+key] = strconv.FormatBool(v)
		default:
			r.errs = append(r.errs, &FieldError{Field: prefix + key, File: r.path, Value: "a list", Want: "one value"})
		}
	}
}

// Prefix begins the name of each variable.
const Prefix = "KRANE_"

// Variable returns the environment variable of a setting such as control.url.
func Variable(key string) string {
	return Prefix + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

func (r *reader) text(key string) string {
	r.known[key] = true
	if v, ok := r.lookup(Variable(key)); ok {
		return v
	}
	return r.file[key]
}

func (r *reader) fail(key, value, want string) {
	wrong := &FieldError{Field: key, Variable: Variable(key), Value: value, Want: want}
	_, wrong.Given = r.lookup(wrong.Variable)
	if _, inFile := r.file[key]; inFile && !wrong.Given {
		wrong.Variable, wrong.File, wrong.Given = "", r.path, true
	}
	r.errs = append(r.errs, wrong)
}

func (r *reader) instance() string {
	host, _ := r.lookup("HOSTNAME")
	id := cmp.Or(r.text("instance_id"), host)
	if id == "" {
		r.fail("instance_id", "", "a name for this process, or the variable HOSTNAME")
	}
	return id
}

// label reads what becomes the value of a label.
func (r *reader) label(key string, required bool) string {
	v := r.text(key)
	if v == "" && required || len(validation.IsValidLabelValue(v)) > 0 {
		r.fail(key, v, "at most 63 letters, digits, -, _ or ., with a letter or digit at both ends")
	}
	return v
}

// namespacedName reads the namespace and name of an object, such as krane-system/krane-token-renewed.
func (r *reader) namespacedName(key string) types.NamespacedName {
	v := r.text(key)
	if v == "" {
		return types.NamespacedName{}
	}
	namespace, name, ok := strings.Cut(v, "/")
	if !ok || len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
		r.fail(key, v, "namespace/name")
	}
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// name reads the name of a cluster-scoped object.
func (r *reader) name(key, standard string) string {
	v := cmp.Or(r.text(key), standard)
	if len(validation.IsDNS1123Subdomain(v)) > 0 {
		r.fail(key, v, "the name of an object: lower case letters, digits, - and .")
	}
	return v
}

func (r *reader) level(key string) isolation.Level {
	v := r.text(key)
	level, err := isolation.ParseLevel(v)
	if err != nil {
		r.fail(key, v, isolation.Want)
	}
	return level
}

func (r *reader) secret(key string) Secret {
	v := r.text(key)
	if strings.ContainsFunc(v, func(c rune) bool { return c < ' ' || c == 0x7f }) {
		r.fail(key, masked, "one line without control characters")
	}
	return Secret(v)
}

// url returns nil when there is none; together has the rule where one is required.
func (r *reader) url(key string) *url.URL {
	v := r.text(key)
	if v == "" {
		return nil
	}
	u, err := url.Parse(v)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || !program.HasHost(u) || u.User != nil || u.RawQuery != "" ||
		u.Fragment != "" {
		r.fail(key, program.Shown(v), "a URL like https://"+strings.TrimSuffix(key, ".url")+".example.com, without user or query")
		return nil
	}
	return u
}

func (r *reader) address(key, standard string) string {
	v := cmp.Or(r.text(key), standard)
	if v != "" && program.CheckAddress(v) != nil {
		r.fail(key, v, "host:port or :port")
	}
	return v
}

func (r *reader) folder(key string) string {
	v := r.text(key)
	if program.CheckFolder(v) != nil {
		r.fail(key, v, "a folder, not a file")
	}
	return v
}

func (r *reader) integer(key string, standard, least, most int) int {
	v := r.text(key)
	if v == "" {
		return standard
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < least || n > most {
		r.fail(key, v, fmt.Sprintf("a whole number from %d to %d", least, most))
		return 0 // what depends on it is not judged
	}
	return n
}

// boolean is false unless it is set.
func (r *reader) boolean(key string) bool {
	v := r.text(key)
	on, err := strconv.ParseBool(cmp.Or(v, "false"))
	if err != nil {
		r.fail(key, v, "true or false")
	}
	return on
}

// together checks what no setting shows alone.
func (r *reader) together(c Config) {
	if program.SameAddress(c.HealthAddress, c.MetricsAddress) {
		r.fail("metrics_bind_address", c.MetricsAddress, program.OtherAddress)
	}
	if r.text("control.url") == "" {
		r.fail("control.url", "", "the URL of the control plane")
	}
	if burst := c.Kubernetes.Burst; burst > 0 && burst < c.Kubernetes.QPS {
		r.fail("k8s.burst", strconv.Itoa(burst), fmt.Sprintf("at least k8s.qps, which is %d", c.Kubernetes.QPS))
	}
	allowed := r.boolean("allow_http")
	for _, to := range []struct {
		key string
		url *url.URL
	}{{"control.url", c.Control.URL}, {"vault.url", c.Vault.URL}} {
		if to.url != nil && to.url.Scheme == "http" && !allowed && !program.Encrypted(to.url.String()) {
			r.fail(to.key, program.Shown(to.url.String()), program.WantEncrypted(Variable("allow_http")))
		}
	}
	switch {
	case c.Control.Token == "" && c.TokenFile == "":
		r.fail("control.token", "", "a token, or token_file")
	case c.Control.Token != "" && c.TokenFile != "":
		r.fail("token_file", c.TokenFile, "nothing, because control.token is set; or no control.token")
	case c.TokenFile != "":
		if _, err := program.ReadToken(c.TokenFile); err != nil {
			r.fail("token_file", c.TokenFile, "a file that can be read and holds the token: "+program.Reason(err).Error())
		}
	}
	switch hasURL := r.text("vault.url") != ""; {
	case hasURL && c.Vault.KeyFile != "":
		r.fail("vault.key_file", c.Vault.KeyFile, "nothing, because vault.url is set; or no vault.url")
	case c.Vault.KeyFile != "":
		if err := (&vault.KeyFile{Path: c.Vault.KeyFile}).Check(); err != nil {
			r.fail("vault.key_file", c.Vault.KeyFile, "a file that can be read and holds keys: "+program.Reason(err).Error())
		}
	case hasURL && c.Vault.Token == "":
		r.fail("vault.token", "", "a token, because vault.url is set")
	case !hasURL && c.Vault.Token != "":
		r.fail("vault.url", "", "the URL of the vault, because vault.token is set")
	}
	registry := []struct{ key, value string }{
		{"registry.url", c.Registry.URL}, {"registry.username", c.Registry.Username}, {"registry.password", string(c.Registry.Password)},
	}
	if c.Registry != (Registry{}) {
		for _, setting := range registry {
			if setting.value == "" {
				r.fail(setting.key, "", "all of registry.url, registry.username and registry.password, or none")
			}
		}
	}
	if strings.ContainsAny(c.Registry.URL, " /@") {
		r.fail("registry.url", program.Shown(c.Registry.URL), "a host like registry.example.com:5000, as image references begin")
	}
}
