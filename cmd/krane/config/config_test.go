package config_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/isolation"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/config"
)

const least = `
cluster: {region: eu}
control: {url: "https://control.example.com", token: sesame}
`

func env(pairs ...string) func(string) (string, bool) {
	all := map[string]string{"HOSTNAME": "krane-0"}
	for _, pair := range pairs {
		key, v, _ := strings.Cut(pair, "=")
		all[key] = v
	}
	return func(name string) (string, bool) { return all[name], all[name] != "" }
}

func TestWhatIsRequiredIsEnough(t *testing.T) {
	t.Parallel()
	c, err := config.Read([]byte(least), env())
	require.NoError(t, err)
	require.Equal(t, "https://control.example.com", c.Control.URL.String())
	c.Control.URL = nil
	require.Equal(t, config.Config{
		InstanceID: "krane-0", Cluster: config.Cluster{Region: "eu"}, Control: config.Control{Token: "sesame"},
		HealthAddress: ":8070", StorageClassName: "ebs-csi-gp3", Kubernetes: config.Kubernetes{QPS: 100, Burst: 200},
		RuntimeClass: "gvisor", PodSecurity: isolation.Restricted, MaxDeletePercent: 10,
	}, c)
}

// settings are a value for each, other than the default.
var settings = map[string]string{
	"instance_id":          "i1",
	"cluster.region":       "us",
	"cluster.platform":     "aws",
	"cluster.cell_id":      "a",
	"control.url":          "http://127.0.0.1:7091",
	"control.token":        "sesame",
	"rpc_port":             "8071",
	"vault.url":            "https://vault.example.com/base",
	"token_secret":         "system/krane-own",
	"vault.token":          "simsim",
	"registry.url":         "registry.example.com:5000",
	"registry.username":    "ada",
	"registry.password":    "lovelace",
	"storage_class_name":   "fast",
	"k8s.qps":              "7",
	"k8s.burst":            "9",
	"runtime_class":        "kata",
	"pod_security":         "baseline",
	"state_dir":            "/var/lib/krane",
	"metrics_bind_address": "127.0.0.1:9090",
	"max_delete_percent":   "0",
}

func variable(key string) string {
	return "KRANE_" + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

func TestEverySettingIsReadFromTheFileAndFromTheEnvironment(t *testing.T) {
	t.Parallel()
	tree, pairs := map[string]any{}, []string{}
	for key, v := range settings {
		pairs = append(pairs, variable(key)+"="+v)
		group, name, nested := strings.Cut(key, ".")
		if !nested {
			tree[key] = v
			continue
		}
		if tree[group] == nil {
			tree[group] = map[string]any{}
		}
		tree[group].(map[string]any)[name] = v
	}
	file, err := json.Marshal(tree) // JSON is YAML
	require.NoError(t, err)
	fromFile, err := config.Read(file, env())
	require.NoError(t, err)
	fromEnv, err := config.Read(nil, env(pairs...))
	require.NoError(t, err)
	require.Equal(t, fromFile, fromEnv)
	both, err := config.Read([]byte(least), env(pairs...))
	require.NoError(t, err)
	require.Equal(t, fromEnv, both, "the environment goes before the file")

	// Every field of Config was reached, but for the two alternatives.
	standard, err := config.Read([]byte(least), env())
	require.NoError(t, err)
	var check func(path string, got, standard reflect.Value)
	check = func(path string, got, standard reflect.Value) {
		for i := range got.NumField() {
			name := path + got.Type().Field(i).Name
			switch {
			case name == "TokenFile", name == "Vault.KeyFile", name == "Control.Token":
			case got.Field(i).Kind() == reflect.Struct:
				check(name+".", got.Field(i), standard.Field(i))
			default:
				require.False(t, reflect.DeepEqual(got.Field(i).Interface(), standard.Field(i).Interface()), name)
			}
		}
	}
	check("", reflect.ValueOf(fromFile), reflect.ValueOf(standard))
}

func TestAnAddressGoesBeforeThePort(t *testing.T) {
	t.Parallel()
	for want, more := range map[string]string{
		":8070": "", ":9000": "rpc_port: 9000\n", "127.0.0.1:9001": "rpc_port: 9000\nhealth_probe_bind_address: 127.0.0.1:9001\n",
	} {
		c, err := config.Read([]byte(least+more), env())
		require.NoError(t, err)
		require.Equal(t, want, c.HealthAddress)
		require.Empty(t, c.MetricsAddress)
	}
	for _, field := range []string{"health_probe_bind_address", "metrics_bind_address"} {
		_, err := config.Read([]byte(least+field+": nowhere\n"), env())
		require.ErrorContains(t, err, field)
		require.ErrorContains(t, err, "host:port or :port")
	}
}

func TestWhatIsLeftOutFollowsFromWhatIsStated(t *testing.T) {
	t.Parallel()
	c, err := config.Read([]byte(least+"k8s: {qps: 500}\ninstance_id: a\nstate_dir:\n"), env("HOSTNAME=b"))
	require.NoError(t, err)
	require.Equal(t, config.Kubernetes{QPS: 500, Burst: 500}, c.Kubernetes)
	require.Equal(t, "a", c.InstanceID)
	_, err = config.Read([]byte(least+"vault: {key_file: /no/such/file}\n"), env())
	require.ErrorContains(t, err, "vault.key_file: is \"/no/such/file\", must be a file that can be read and holds keys")
}

// TestTheDocumentationNamesEverySetting reads the list in the error for one that
// does not exist.
func TestTheDocumentationNamesEverySetting(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	_, err = config.Read([]byte(least+"surprise: 1"), env())
	_, names, ok := strings.Cut(err.Error(), "must be one of ")
	require.True(t, ok)
	for name := range strings.FieldsSeq(names) {
		_, last, nested := strings.Cut(name, ".")
		if !nested {
			last = name
		}
		require.Regexp(t, regexp.MustCompile(`(?m)^//\t( {2})?`+last+`:`), string(doc), name)
	}
}

func TestAWrongSettingIsNamedWithWhatWouldBeRight(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ field, value, want string }{
		{"instance_id", "", "a name for this process"},
		{"cluster.region", "", "at most 63 letters"},
		{"cluster.region", "eu central", "at most 63 letters"},
		{"cluster.platform", "a/b", "at most 63 letters"},
		{"cluster.cell_id", strings.Repeat("x", 64), "at most 63 letters"},
		{"control.url", "", "the URL of the control plane"},
		{"control.url", "control.example.com", "a URL like https://control.example.com"},
		{"control.url", "ftp://control.example.com", "a URL like"},
		{"control.url", "127.0.0.1:28080", "a URL like https://"},
		{"control.url", "https://control.example.com:0", "a URL like"},
		{"control.url", "https://control.example.com#x", "a URL like"},
		{"control.url", "http://control.example.com", "a URL of https, or of http on this machine"},
		{"vault.url", "http://10.0.0.1:8200", "KRANE_ALLOW_HTTP=true allows it"},
		{"allow_http", "yes", "true or false"},
		{"control.token", "", "a token, or token_file"},
		{"token_secret", "krane-own", "namespace/name"},
		{"token_secret", "krane/own/x", "namespace/name"},
		{"token_secret", "Krane/own", "namespace/name"},
		{"token_file", "/some/file", "nothing, because control.token is set"},
		{"metrics_bind_address", ":08071", "another address"},
		{"rpc_port", "0", "a whole number from 1 to 65535"},
		{"rpc_port", "tcp://10.0.0.1:80", "a whole number from 1 to 65535"},
		{"vault.url", "vault", "a URL like https://vault.example.com"},
		{"vault.url", "", "the URL of the vault, because vault.token is set"},
		{"vault.key_file", "/keys", "nothing, because vault.url is set"},
		{"vault.token", "", "a token, because vault.url is set"},
		{"registry.url", "https://registry.example.com", "a host like"},
		{"registry.url", "", "all of registry.url"},
		{"registry.password", "", "all of registry.url"},
		{"storage_class_name", "Fast", "the name of an object"},
		{"runtime_class", "g visor", "the name of an object"},
		{"pod_security", "privileged", "restricted or baseline"},
		{"k8s.qps", "-1", "a whole number from 1"},
		{"k8s.burst", "6", "at least k8s.qps, which is 7"},
		{"max_delete_percent", "101", "a whole number from 0 to 100"},
		{"max_delete_percent", "10%", "a whole number from 0 to 100"},
	} {
		pairs := []string{}
		for key, v := range settings {
			if key != test.field {
				pairs = append(pairs, variable(key)+"="+v)
			}
		}
		pairs = append(pairs, variable(test.field)+"="+test.value)
		if test.field == "instance_id" {
			pairs = append(pairs, "HOSTNAME=")
		}
		_, err := config.Read(nil, env(pairs...))
		wrong, ok := errors.AsType[*config.FieldError](err)
		require.True(t, ok, "%s=%q: %v", test.field, test.value, err)
		require.Equal(t, test.field, wrong.Field)
		require.Equal(t, variable(test.field), wrong.Variable)
		require.Equal(t, test.value, wrong.Value)
		require.Contains(t, wrong.Want, test.want)
		require.NotContains(t, err.Error(), "\n", "one thing is wrong")
	}
}

func TestPlainHTTPToAnotherMachineIsAllowedByASetting(t *testing.T) {
	t.Parallel()
	const plain = `{cluster: {region: eu}, control: {url: "http://control.example.com", token: sesame}, ` +
		`vault: {url: "http://vault", token: simsim}`
	for file, pairs := range map[string][]string{plain + ", allow_http: true}": nil, plain + "}": {"KRANE_ALLOW_HTTP=T"}} {
		c, err := config.Read([]byte(file), env(pairs...))
		require.NoError(t, err)
		require.Equal(t, "http://control.example.com", c.Control.URL.String())
		require.Equal(t, "http://vault", c.Vault.URL.String())
	}
	for _, never := range []string{plain + ", allow_http: false}", plain + "}"} {
		_, err := config.Read([]byte(never), env())
		require.ErrorContains(t, err, "control.url")
		require.ErrorContains(t, err, "vault.url")
	}
}

func TestAllThatIsWrongIsToldAtOnce(t *testing.T) {
	t.Parallel()
	_, err := config.Read([]byte("cluster: {regoin: eu}\nnothing: 1\nrpc_port: [1]\n"), env())
	for _, want := range []string{
		"KRANE_CLUSTER_REGION: is not set", "KRANE_CONTROL_URL: is not set", "KRANE_CONTROL_TOKEN: is not set",
		"cluster.regoin: ", "must be cluster.region", `rpc_port: is "a list", must be one value`, "nothing: ",
		"must be one of allow_http cluster.cell_id",
	} {
		require.ErrorContains(t, err, want)
	}
}

func TestAFileThatIsNoMapOfSettingsIsRefused(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"- a":                           "is not a map",
		"a: b: c":                       "is not YAML",
		"rpc_port: 1\n\ta: 1":           "is not YAML: line 2",
		"rpc_port: 1\n---\nrpc_port: 2": "has several YAML documents, must have one",
		"--- {rpc_port: 1}\n--- {a: 1}": "has several YAML documents, must have one",
		"\tcontrol: {token: sesame}":    "is not YAML",
		"rpc_port: 1\nrpc_port: 2":      `key "rpc_port" is stated twice`,
		"control: {token: a, token: b}": `key "token" is stated twice`,
	} {
		_, err := config.Read([]byte(file), env())
		require.ErrorContains(t, err, want, file)
		require.NotContains(t, err.Error(), "sesame")
	}
}

func TestSecretsAreNeverShown(t *testing.T) {
	t.Parallel()
	pairs := []string{}
	for key, v := range settings {
		pairs = append(pairs, variable(key)+"="+v)
	}
	c, err := config.Read(nil, env(pairs...))
	require.NoError(t, err)
	require.Equal(t, "sesame", c.Control.Token.Reveal())
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("start", slog.Any("config", c), slog.Any("token", c.Control.Token))
	shown := fmt.Sprintf("%v %+v %#v %s %q ", c, c, c, c.Control.Token, c.Control.Token) + log.String()
	for _, secret := range []string{"sesame", "simsim", "lovelace"} {
		require.NotContains(t, shown, secret)
	}
	require.Empty(t, config.Secret("").String())

	for _, wrong := range []string{
		"KRANE_CONTROL_TOKEN=ses\name", "KRANE_CONTROL_TOKEN=ses\x7fame", "KRANE_VAULT_TOKEN=ses\x00ame", "KRANE_REGISTRY_PASSWORD=ses\name",
		"KRANE_CONTROL_URL=https://ada:sesame@example.com", "KRANE_CONTROL_URL=https://example.com?token=sesame",
		"KRANE_CONTROL_URL=https://ada:sesame@example.com:port", "KRANE_REGISTRY_URL=ada:sesame@registry.example.com",
	} {
		_, err := config.Read([]byte(least), env(append(pairs, wrong)...))
		require.ErrorContains(t, err, "(hidden)")
		require.NotContains(t, err.Error(), "ame\"", wrong)
		require.NotContains(t, err.Error(), "sesame")
	}
	_, err = config.Read([]byte(least+"contrl: {token: sesame}"), env())
	require.ErrorContains(t, err, "contrl.token")
	require.NotContains(t, err.Error(), "sesame")
}

func TestTheTokenFileIsReadEachTime(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	write := func(content string) { require.NoError(t, os.WriteFile(file, []byte(content), 0o600)) }
	write("one\n")
	path := filepath.Join(t.TempDir(), "krane.yaml")
	require.NoError(t, os.WriteFile(path, []byte("cluster: {region: eu}\ncontrol: {url: 'https://c'}\ntoken_file: "+file), 0o600))
	c, err := config.Load(path, env())
	require.NoError(t, err)
	token, err := c.GivenToken()
	require.NoError(t, err)
	require.Equal(t, "one", token)
	write("two")
	token, err = c.GivenToken()
	require.NoError(t, err)
	require.Equal(t, "two", token)
	for _, content := range []string{"", " \n", "sesame\nsesame"} {
		write(content)
		_, err = c.GivenToken()
		require.ErrorContains(t, err, "token_file")
		require.NotContains(t, err.Error(), "sesame")
		_, err = config.Load(path, env())
		require.ErrorContains(t, err, "--config "+path+": token_file: is "+strconv.Quote(file))
	}
	_, err = config.Load(filepath.Join(t.TempDir(), "none"), env())
	require.ErrorContains(t, err, "must be a file that can be read: no such file or directory")
}

// TestAnErrorNamesWhereTheValueIs has a wrong value in the file, in the environment, and in both.
func TestAnErrorNamesWhereTheValueIs(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "krane.yaml")
	require.NoError(t, os.WriteFile(path, []byte(least+"k8s: {qps: many}\nstate_dir: "+path+"\n"), 0o600))
	inFile, inEnvironment := "--config "+path+`: k8s.qps: is "many", must be`, `KRANE_K8S_QPS: is "few", must be`
	_, err := config.Load(path, env())
	require.ErrorContains(t, err, inFile)
	require.ErrorContains(t, err, "--config "+path+": state_dir: is "+strconv.Quote(path)+", must be a folder, not a file")
	require.NotContains(t, err.Error(), "KRANE_")
	_, err = config.Load(path, env("KRANE_K8S_QPS=few"))
	require.ErrorContains(t, err, inEnvironment)
	require.NotContains(t, err.Error(), "k8s.qps")
}

// TestASettingThatIsSetToNothingGoesBeforeTheFile: so a flag takes back what the file has.
func TestASettingThatIsSetToNothingGoesBeforeTheFile(t *testing.T) {
	t.Parallel()
	emptied := func(name string) (string, bool) {
		return "", name == "KRANE_STATE_DIR" || name == "KRANE_CLUSTER_REGION"
	}
	_, err := config.Read([]byte(least+"instance_id: a\nstate_dir: /state\n"), emptied)
	require.ErrorContains(t, err, `KRANE_CLUSTER_REGION: is "", must be`)
	emptied = func(name string) (string, bool) { return "", name == "KRANE_STATE_DIR" }
	c, err := config.Read([]byte(least+"instance_id: a\nstate_dir: /state\n"), emptied)
	require.NoError(t, err)
	require.Empty(t, c.StateDir)
}
