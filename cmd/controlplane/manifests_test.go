package main_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"

	"github.com/seed-9e1ffd66/trueup/internal/test/pgtest"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

// installations are flags of the manifests, by what they install.
var installations = map[string][]string{
	"SQLite":      nil,
	"SQLite, TLS": {"--tls-secret", "trueup-controlplane-tls", "--monitoring"},
	"PostgreSQL":  {"--database-secret", "trueup-controlplane-database"},
	"SQLite, sign-in": {
		"--oidc-issuer", "https://login.example.com:8443/realms/company", "--oidc-client-id", "trueup",
		"--external-url", "https://control.example.com",
	},
	"everything": {
		"--database-secret",
		"123",
		"--replicas",
		"3",
		"--gateway",
		"ingress/public",
		"--hostname",
		"control.example.com",
		"--monitoring",
		"--namespace",
		"0",
		"--oidc-issuer",
		"https://login.example.com",
		"--oidc-client-id",
		"true",
	},
	"PostgreSQL, TLS": {"--database-secret", "trueup-controlplane-database", "--tls-secret", "true"},
}

// documents returns the objects that the flags print, by kind.
func documents(t *testing.T, flags ...string) (stream string, byKind map[string]string) {
	t.Helper()
	printed := execute(t, binary(t), nil, append([]string{"manifests"}, flags...)...)
	require.Zero(t, printed.code, printed.stderr)
	byKind = map[string]string{}
	for document := range strings.SplitSeq(printed.stdout, "\n---\n") {
		found := regexp.MustCompile(`(?m)^kind: (\w+)$`).FindStringSubmatch(document)
		require.NotNil(t, found, document)
		require.NotContains(t, byKind, found[1])
		byKind[found[1]] = document
	}
	return printed.stdout, byKind
}

func decode[T any](t *testing.T, document string) (object T) {
	t.Helper()
	require.NoError(t, yaml.UnmarshalStrict([]byte(document), &object))
	return object
}

// TestTheManifestsAreTakenAndTheirPodsRestricted applies each installation to a real
// kube-apiserver, which refuses unknown fields, and makes its pod in its namespace.
func TestTheManifestsAreTakenAndTheirPodsRestricted(t *testing.T) {
	t.Parallel()
	kubernetes := kubetest.Start(t, kubetest.Options{})
	definitions, err := os.ReadFile("testdata/definitions.yaml")
	require.NoError(t, err)
	require.NoError(t, kubernetes.Apply(t.Context(), string(definitions)))
	_, err = kubernetes.Kubectl(t.Context(), "wait", "--for=condition=Established", "crd", "--all")
	require.NoError(t, err)
	for name, flags := range installations {
		t.Run(name, func(t *testing.T) {
			stream, objects := documents(t, flags...)
			require.NoError(t, kubernetes.Apply(t.Context(), stream))
			require.NoError(t, kubernetes.Apply(t.Context(), stream), "once more, as with every upgrade")
			deployment := decode[appsv1.Deployment](t, objects["Deployment"])
			pod := corev1.Pod{ObjectMeta: deployment.Spec.Template.ObjectMeta, Spec: deployment.Spec.Template.Spec}
			pod.APIVersion, pod.Kind, pod.Name, pod.Namespace = "v1", "Pod", "pod", deployment.Namespace
			apply := func() error {
				text, err := yaml.Marshal(pod)
				require.NoError(t, err)
				return kubernetes.Apply(t.Context(), string(text))
			}
			require.NoError(t, apply())
			_, err = kubernetes.Kubectl(t.Context(), "delete", "pod", "--now", "-n", pod.Namespace, pod.Name)
			require.NoError(t, err)
			pod.Spec.SecurityContext.RunAsNonRoot = nil
			require.ErrorContains(t, apply(), `violates PodSecurity "restricted`)

			_, several := objects["PodDisruptionBudget"]
			_, file := objects["PersistentVolumeClaim"]
			require.Equal(t, strings.HasPrefix(name, "SQLite"), file)
			require.Equal(t, !file, several)
			if !several {
				require.Equal(t, int32(1), *deployment.Spec.Replicas)
				require.Equal(t, appsv1.RecreateDeploymentStrategyType, deployment.Spec.Strategy.Type)
				return
			}
			require.GreaterOrEqual(t, *deployment.Spec.Replicas, int32(2))
			require.Zero(t, deployment.Spec.Strategy.RollingUpdate.MaxUnavailable.IntValue())
			budget := decode[policyv1.PodDisruptionBudget](t, objects["PodDisruptionBudget"])
			require.Equal(t, 1, budget.Spec.MaxUnavailable.IntValue())
			require.Equal(t, deployment.Spec.Selector, budget.Spec.Selector)
			require.NotContains(t, stream, "postgres://")
		})
	}
	out, err := kubernetes.Kubectl(t.Context(), "get", "prometheusrules", "-n", "0", "trueup-controlplane", "-o", "json")
	require.NoError(t, err)
	file, err := os.ReadFile("../../ops/prometheus/controlplane.yaml")
	require.NoError(t, err)
	have, want := map[string]json.RawMessage{}, map[string]any{}
	require.NoError(t, json.Unmarshal([]byte(out), &have))
	require.NoError(t, yaml.Unmarshal(file, &want))
	rules, err := json.Marshal(want)
	require.NoError(t, err)
	require.JSONEq(t, string(rules), string(have["spec"]), "the alerts are those of the rule file")
}

// TestTheProgramTakesWhatTheManifestsSay runs the program with the arguments, variables and
// mounted files of each installation, at other addresses, and asks what its probe asks.
func TestTheProgramTakesWhatTheManifestsSay(t *testing.T) {
	t.Parallel()
	certificate, key := selfSigned(t)
	for name, flags := range installations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, objects := documents(t, flags...)
			deployment := decode[appsv1.Deployment](t, objects["Deployment"])
			container := deployment.Spec.Template.Spec.Containers[0]
			root := t.TempDir()
			for _, mount := range container.VolumeMounts {
				require.NoError(t, os.MkdirAll(filepath.Join(root, mount.MountPath), 0o700))
			}
			for path, content := range map[string]string{
				"/secrets/admin-token": adminToken, "/groups/groups": "role=reader staff", "/tls/tls.crt": certificate, "/tls/tls.key": key,
			} {
				if _, err := os.Stat(filepath.Dir(root + path)); err == nil {
					require.NoError(t, os.WriteFile(root+path, []byte(content), 0o600))
				}
			}
			var args []string
			for _, variable := range container.Env {
				switch {
				case variable.Name == "TRUEUP_CONTROLPLANE_DATABASE":
					require.Equal(t, "url", variable.ValueFrom.SecretKeyRef.Key)
					args = append(args, variable.Name+"="+pgtest.NewDatabase(t))
				case variable.ValueFrom == nil:
					args = append(args, variable.Name+"="+variable.Value)
				}
			}
			args = append(args, binary(t))
			for _, arg := range container.Args {
				arg = regexp.MustCompile(`=:\d+$`).ReplaceAllString(arg, "=127.0.0.1:0")
				args = append(args, strings.Replace(arg, "=/", "="+root+"/", 1))
			}
			p := serveProcess(t, "/usr/bin/env", args...)
			roots := x509.NewCertPool()
			roots.AppendCertsFromPEM([]byte(certificate))
			client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
			defer client.CloseIdleConnections()
			scheme := "http"
			for _, probe := range []*corev1.Probe{container.StartupProbe, container.LivenessProbe, container.ReadinessProbe} {
				if probe.HTTPGet.Scheme != "" {
					scheme = strings.ToLower(string(probe.HTTPGet.Scheme))
				}
				status, body := request(t, client, http.MethodGet, scheme+"://"+p.address+probe.HTTPGet.Path, "", "")
				require.Equal(t, http.StatusOK, status, body)
			}
			require.Equal(t, strings.Contains(name, "TLS"), scheme == "https")
			require.NoError(t, p.command.Process.Kill())
			end := <-p.ended
			require.Equal(t, strings.HasPrefix(name, "SQLite"), strings.Contains(end.stderr, `"database":"`+root+`/data/trueup.db"`), end.stderr)
		})
	}
}

// TestWhatIsGivenIsText: Kubernetes replaces $(NAME) in arguments.
func TestWhatIsGivenIsText(t *testing.T) {
	t.Parallel()
	stream, _ := documents(t, "--oidc-issuer", "https://i", "--oidc-client-id", "a$(POD)", "--external-url", "https://e")
	require.Contains(t, stream, "- --oidc-client-id=a$$(POD)\n")
}
