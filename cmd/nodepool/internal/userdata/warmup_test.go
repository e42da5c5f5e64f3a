package userdata_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cloud/kube/nodes"
	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/cmd/nodepool/internal/userdata"
)

// machine is what the script of the first boot finds: stubs of the programs, a clock that
// goes on by the pauses, and a log of the calls.
type machine struct {
	t      *testing.T
	dir    string
	script string
	shell  string
	env    []string
}

// stubs are the programs of a machine; $D is its folder.
var stubs = map[string]string{
	"systemd-run": `echo "systemd-run $1 $2 $3" >>"$D/log"; exec "$SHELL_UNDER_TEST" "$4" "$5"`,
	"systemctl":   `echo "systemctl $*" >>"$D/log"`,
	"cut":         `read -r t <"$D/clock"; echo "$t"`,
	"sleep":       `read -r t <"$D/clock"; echo $((t + $1)) >"$D/clock"; echo "sleep $1" >>"$D/log"`,
	"aws": `case "$1 $2" in
"ecr get-login-password") echo "aws $*" >>"$D/log"; echo password ;;
"eks get-token") echo "aws $*" >>"$D/log"; printf '{\n "kind": "ExecCredential",\n "status": {"expirationTimestamp": "x", "token": "k8s-aws-v1.secret"}\n}\n' ;;
*) exit 9 ;;
esac`,
	"ctr": `echo "ctr $*" >>"$D/log"
for last; do :; done
case "$* " in *"images pull"*bad*) exit 1 ;; esac
case "$* " in *"images pull"*second*) n=$(cat "$D/tries" 2>/dev/null); echo "x$n" >"$D/tries"; [ "$n" = x ] || exit 1 ;; esac`,
	"curl": `case "$*" in *secret*) exit 3 ;; esac
for last; do :; done
case "$*" in *http://127.0.0.1:10248/healthz) read -r t <"$D/clock"; [ "$t" -ge "${HEALTHY_AT:-0}" ] || exit 7; exit 0 ;; esac
case "$last" in
*/latest/api/token) echo session ;;
*/meta-data/placement/region) case "$*" in *"token: session"*) echo eu-north-1 ;; *) exit 22 ;; esac ;;
*/apis/authentication.k8s.io/v1/selfsubjectreviews)
	read -r header; [ "$header" = "Authorization: Bearer k8s-aws-v1.secret" ] || exit 22
	printf '{\n  "status": {\n    "userInfo": {\n      "username": "system:node:ip-10-0-0-1.ec2.internal",\n      "groups": ["system:nodes"]\n}}}\n' ;;
*/api/v1/nodes/*)
	read -r header; [ "$header" = "Authorization: Bearer k8s-aws-v1.secret" ] || exit 22
	read -r t <"$D/clock"; [ "$t" -ge "${REGISTERED_AT:-0}" ] || exit 22
	echo "patch $last" >>"$D/log"
	previous=; for a; do [ "$previous" = --data ] && printf %s "$a" >"$D/patch"; previous=$a; done ;;
*) exit 6 ;;
esac
:`,
	"kubectl": `case "$*" in
*"auth whoami"*) printf %s "${WHO:-system:node:ip-10-0-0-1.ec2.internal}" ;;
*annotate*) echo "kubectl $1 $2 $3 $4 $5 $6" >>"$D/log"; printf %s "$7" >"$D/annotation" ;;
esac`,
}

// newMachine makes a machine that is launched with a config. Its PATH has the stubs, and
// the few programs that the script needs of POSIX.
func newMachine(t *testing.T, c userdata.Config, shell string, kubectl bool, env ...string) *machine {
	t.Helper()
	data, err := c.Render()
	require.NoError(t, err)
	_, bodies := split(t, data.Text)
	m := &machine{t: t, dir: t.TempDir(), shell: shell, env: env}
	bin := filepath.Join(m.dir, "bin")
	require.NoError(t, os.Mkdir(bin, 0o700))
	for name, text := range stubs {
		if name == "kubectl" && !kubectl {
			continue
		}
		require.NoError(t, writeProgram(filepath.Join(bin, name), "#!/bin/sh\n"+text+"\n"))
	}
	for _, name := range []string{"sed", "tr", "cat", "mkdir", "printf"} {
		path, err := exec.LookPath(name)
		require.NoError(t, err)
		require.NoError(t, os.Symlink(path, filepath.Join(bin, name)))
	}
	m.script = filepath.Join(m.dir, "part-003")
	require.NoError(t, writeProgram(m.script, bodies[len(bodies)-1]))
	require.NoError(t, os.WriteFile(filepath.Join(m.dir, "clock"), []byte("17\n"), 0o600))
	return m
}

// writeProgram writes a file that is run at once. No other test may start a process while
// it is open, or that would have it open for writing too.
func writeProgram(path, text string) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, []byte(text), 0o700)
}

// boot runs the script as cloud-init does.
func (m *machine) boot() (output string, err error) {
	cmd := exec.CommandContext(m.t.Context(), m.script)
	cmd.Env = append(
		[]string{
			"PATH=" + filepath.Join(m.dir, "bin"),
			"D=" + m.dir,
			"SHELL_UNDER_TEST=" + m.shell,
			"STRATOS_SEM=" + filepath.Join(m.dir, "sem"),
		},
		m.env...)
	cmd.Dir = m.t.TempDir()
	out, err := cmd.CombinedOutput()
	left, readErr := os.ReadDir(cmd.Dir)
	require.NoError(m.t, readErr)
	require.Empty(m.t, left, "the script leaves no file")
	return string(out), err
}

func (m *machine) read(name string) string {
	text, err := os.ReadFile(filepath.Join(m.dir, name))
	if os.IsNotExist(err) {
		return ""
	}
	require.NoError(m.t, err)
	return string(text)
}

func (m *machine) log() []string {
	return strings.Split(strings.TrimSpace(m.read("log")), "\n")
}

func (m *machine) attestation() nodes.Attestation {
	var text string
	if patch := m.read("patch"); patch != "" {
		var body struct {
			Metadata struct{ Annotations map[string]string }
		}
		require.NoError(m.t, json.Unmarshal([]byte(patch), &body), patch)
		text = body.Metadata.Annotations[v1alpha1.AnnotationAttested]
	} else {
		key, value, found := strings.Cut(m.read("annotation"), "=")
		require.True(m.t, found)
		require.Equal(m.t, v1alpha1.AnnotationAttested, key)
		text = value
	}
	var a nodes.Attestation
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	require.NoError(m.t, decoder.Decode(&a), text)
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	require.NoError(m.t, err)
	require.Equal(m.t, strings.TrimSpace(string(boot)), a.BootID)
	return a
}

// shells returns the shells of the images that are installed here: sh is bash there, and
// often dash here.
func shells(t *testing.T) (found []string) {
	t.Helper()
	if _, err := os.Stat("/proc/sys/kernel/random/boot_id"); err != nil {
		t.Skip("the script is for Linux")
	}
	for _, name := range []string{"sh", "bash", "dash"} {
		if path, err := exec.LookPath(name); err == nil {
			found = append(found, path)
		}
	}
	return found
}

const pull = "ctr --namespace k8s.io images pull --hosts-dir /etc/containerd/certs.d "

func TestAFirstBootPullsAttestsAndStops(t *testing.T) {
	t.Parallel()
	for _, shell := range shells(t) {
		t.Run(filepath.Base(shell), func(t *testing.T) {
			t.Parallel()
			for _, bootstrap := range []v1alpha1.BootstrapTemplate{v1alpha1.AL2023, v1alpha1.AL2} {
				m := newMachine(t, config(bootstrap), shell, false, "HEALTHY_AT=25", "REGISTERED_AT=40")
				out, err := m.boot()
				require.NoError(t, err, out)
				digest := "registry.example.com:5000/a/b@sha256:" + strings.Repeat("0a", 32)
				require.Equal(t, []string{
					"systemd-run --unit=stratos-warmup --no-block /bin/sh",
					"sleep 5", "sleep 5",
					pull + "docker.io/library/nginx:latest",
					"ctr --namespace k8s.io images label docker.io/library/nginx:latest io.cri-containerd.pinned=pinned",
					"aws ecr get-login-password --region eu-west-1",
					pull + "--user AWS:password 123456789012.dkr.ecr.eu-west-1.amazonaws.com/app:v1",
					"ctr --namespace k8s.io images label 123456789012.dkr.ecr.eu-west-1.amazonaws.com/app:v1 io.cri-containerd.pinned=pinned",
					pull + digest,
					"ctr --namespace k8s.io images label " + digest + " io.cri-containerd.pinned=pinned",
					"aws eks get-token --cluster-name test --region eu-north-1 --output json", "sleep 5",
					"aws eks get-token --cluster-name test --region eu-north-1 --output json", "sleep 5",
					"aws eks get-token --cluster-name test --region eu-north-1 --output json", "sleep 5",
					"aws eks get-token --cluster-name test --region eu-north-1 --output json",
					"patch https://ABC.gr7.us-east-1.eks.amazonaws.com/api/v1/nodes/ip-10-0-0-1.ec2.internal",
					"systemctl poweroff",
				}, m.log())
				a := m.attestation()
				require.Equal(t, config(bootstrap).Images, a.Images, "as the operator names them")
				require.Empty(t, a.Failed)
				require.NotContains(t, out, "password")
				require.NotContains(t, out, "secret")
			}
		})
	}
}

func TestABootAfterTheFirstDoesNothing(t *testing.T) {
	t.Parallel()
	for _, shell := range shells(t) {
		t.Run(filepath.Base(shell), func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, config(v1alpha1.AL2023), shell, true)
			_, err := m.boot()
			require.NoError(t, err)
			require.Contains(t, m.log(), "systemctl poweroff")
			require.NoError(t, os.Remove(filepath.Join(m.dir, "log")))
			_, err = m.boot()
			require.NoError(t, err)
			require.Equal(t, []string{"systemd-run --unit=stratos-warmup --no-block /bin/sh"}, m.log())
		})
	}
}

func TestAnUnhealthyKubeletIsWaitedForThreeHundredSeconds(t *testing.T) {
	t.Parallel()
	for _, shell := range shells(t) {
		t.Run(filepath.Base(shell), func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, config(v1alpha1.AL2023), shell, false, "HEALTHY_AT=999")
			out, err := m.boot()
			require.Error(t, err)
			require.Contains(t, out, "the kubelet is not healthy after 300 s")
			calls := m.log()[1:]
			require.Len(t, calls, 60)
			for _, call := range calls {
				require.Equal(t, "sleep 5", call, "nothing is pulled, attested or stopped")
			}
			require.Empty(t, m.read("patch"))
		})
	}
}

func TestAnImageThatCannotBePulledIsTriedThreeTimes(t *testing.T) {
	t.Parallel()
	for _, shell := range shells(t) {
		t.Run(filepath.Base(shell), func(t *testing.T) {
			t.Parallel()
			c := config(v1alpha1.AL2023)
			c.Images = []string{
				"example.com/bad:1",
				"example.com/second:1",
				"example.com/good:1",
				"123456789012.dkr.ecr.eu-west-1.amazonaws.com/bad",
			}
			m := newMachine(t, c, shell, true)
			out, err := m.boot()
			require.NoError(t, err, out)
			require.Equal(t, []string{
				pull + "example.com/bad:1", "sleep 2", pull + "example.com/bad:1", "sleep 4", pull + "example.com/bad:1",
				pull + "example.com/second:1", "sleep 2", pull + "example.com/second:1",
				"ctr --namespace k8s.io images label example.com/second:1 io.cri-containerd.pinned=pinned",
			}, m.log()[1:10])
			a := m.attestation()
			require.Equal(t, []string{"example.com/second:1", "example.com/good:1"}, a.Images)
			require.Equal(t, []string{"example.com/bad:1", "123456789012.dkr.ecr.eu-west-1.amazonaws.com/bad"}, a.Failed)
			require.Contains(t, out, "cannot pull example.com/bad:1")
			require.Contains(t, m.log(), "systemctl poweroff", "the operator judges what failed")
		})
	}
}

func TestAMachineThatTheOperatorStopsStaysOn(t *testing.T) {
	t.Parallel()
	for _, shell := range shells(t) {
		t.Run(filepath.Base(shell), func(t *testing.T) {
			t.Parallel()
			c := config(v1alpha1.AL2)
			c.SelfStop, c.Images = false, nil
			m := newMachine(t, c, shell, true)
			out, err := m.boot()
			require.NoError(t, err, out)
			require.Equal(
				t,
				[]string{
					"systemd-run --unit=stratos-warmup --no-block /bin/sh",
					"kubectl --kubeconfig /var/lib/kubelet/kubeconfig annotate --overwrite node ip-10-0-0-1.ec2.internal",
				},
				m.log(),
			)
			require.Empty(t, m.attestation().Images)
		})
	}
}

func TestAMachineThatCannotAttestStaysOn(t *testing.T) {
	t.Parallel()
	for _, shell := range shells(t) {
		t.Run(filepath.Base(shell), func(t *testing.T) {
			t.Parallel()
			for _, m := range []*machine{
				newMachine(t, config(v1alpha1.AL2023), shell, false, "REGISTERED_AT=99999"),
				newMachine(t, config(v1alpha1.AL2023), shell, true, "WHO=admin"),
			} {
				out, err := m.boot()
				require.Error(t, err)
				require.Contains(t, out, "cannot write the attestation on the Node for 300 s")
				require.NotContains(t, m.log(), "systemctl poweroff")
				require.Empty(t, m.read("annotation"))
			}
		})
	}
}

// FuzzTheShellReadsWhatWasGiven gives hostile names to a real shell.
func FuzzTheShellReadsWhatWasGiven(f *testing.F) {
	f.Add("test", "/a", "4")
	f.Add("it's", "/$(reboot)", "`reboot`")
	f.Add(`"; reboot; '`, "/'\\''", `a\'b`)
	f.Add("@IMAGES@", "/@STOP@", "$x%n;&|<>*?[]{}~!#\\")
	f.Add("-n", "/%s", "")
	f.Fuzz(func(t *testing.T, cluster, path, value string) {
		c := config(v1alpha1.AL2)
		c.Images, c.ClusterName, c.Endpoint = nil, cluster, "https://example.com"+path
		c.Kubelet.ExtraArgs = map[string]string{"x": value}
		data, err := c.Render()
		if err != nil {
			return
		}
		_, bodies := split(t, data.Text)
		run := func(script string) string {
			out, err := exec.CommandContext(t.Context(), "/bin/sh", "-c", script).CombinedOutput()
			require.NoError(t, err, script)
			return string(out)
		}
		words := strings.Split(run(strings.Replace(bodies[0], "/etc/eks/bootstrap.sh", `printf '%s\n'`, 1)), "\n")
		require.Equal(
			t,
			[]string{
				cluster,
				"--b64-cluster-ca",
				c.CA,
				"--apiserver-endpoint",
				c.Endpoint,
				"--dns-cluster-ip",
				"10.100.0.10",
				"--use-max-pods",
				"false",
				"--kubelet-extra-args",
			},
			words[:10],
		)
		require.Len(t, words, 12)
		require.Contains(t, words[10], " --x="+strings.NewReplacer(`\`, `\\`, "%", "%%").Replace(value)+" --max-pods=58")
		var lines []string
		for line := range strings.SplitSeq(bodies[1], "\n") {
			if strings.HasPrefix(line, "cluster=") || strings.HasPrefix(line, "endpoint=") {
				lines = append(lines, line)
			}
		}
		require.Equal(
			t,
			cluster+"\n"+strings.TrimRight(c.Endpoint, "/")+"\n",
			run(strings.Join(append(lines, `printf '%s\n' "$cluster" "$endpoint"`), "\n")),
		)
	})
}
