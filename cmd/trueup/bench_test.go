package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

// bench is a person at a cluster, with a namespace, an account and a folder.
type bench struct {
	*testing.T

	cluster                *kubetest.Cluster
	ns, user, config, shop string
	stdin                  string // of watch
	digest                 string // of the deletions that were held last
	out                    string // what the last command printed on its standard output
}

// noRole is a role that does not exist: an account with it has no rights.
const noRole = "no-such-role"

// newBench makes a namespace, an account with the rights, and a folder "shop".
func newBench(t *testing.T, cluster *kubetest.Cluster, role string) *bench {
	t.Helper()
	_, name, _ := strings.Cut(t.Name(), "/")
	b := &bench{T: t, cluster: cluster, ns: strings.ReplaceAll(strings.ToLower(name), "_", "-"), shop: filepath.Join(t.TempDir(), "shop")}
	b.user = "system:serviceaccount:" + b.ns + ":person"
	require.NoError(t, cluster.Apply(t.Context(), strings.NewReplacer("NS", b.ns, "ROLE", role).Replace(`
{apiVersion: v1, kind: Namespace, metadata: {name: NS}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: person, namespace: NS}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: NS-person},
 roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: ROLE},
 subjects: [{kind: ServiceAccount, name: person, namespace: NS}]}
`)))
	var err error
	_, b.config, err = cluster.ServiceAccount(t.Context(), b.ns, "person")
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(b.shop, 0o700))
	if role != noRole {
		b.knows("list", "configmaps")
	}
	return b
}

// knows waits until the server knows that the account may do that.
func (b *bench) knows(verb, resource string) {
	b.Helper()
	await.Eventually(b, "the server knows of the binding", func() bool {
		_, err := b.cluster.Kubectl(b.Context(), "auth", "can-i", verb, resource, "--all-namespaces", "--as", b.user)
		return err == nil
	})
}

// file writes a file of the folder, at once: a pass may read it in between. NS stands for the
// namespace.
func (b *bench) file(name, content string) {
	b.Helper()
	begun := filepath.Join(b.TempDir(), name)
	require.NoError(b, os.WriteFile(begun, []byte(strings.ReplaceAll(content, "NS", b.ns)), 0o600))
	require.NoError(b, os.Rename(begun, filepath.Join(b.shop, name)))
}

// settings writes the file of a ConfigMap.
func (b *bench) settings(name, value string) {
	b.Helper()
	b.file(name+".yaml", fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {key: %q}\n", name, value))
}

// run runs the command in the namespace of the bench, requires its exit status, and returns
// what it printed on both outputs.
func (b *bench) run(status int, args ...string) string {
	b.Helper()
	return b.runIn(status, "", args...)
}

func (b *bench) runIn(status int, stdin string, args ...string) string {
	b.Helper()
	var out, errs bytes.Buffer
	c := command(nil)
	c.SetIn(strings.NewReader(stdin))
	args = append(args, "--kubeconfig", b.config)
	if !slices.Contains(args, "--namespace") {
		args = append(args, "--namespace", b.ns)
	}
	got := program.Run(b.Context(), c, args, &out, &errs)
	b.out = out.String()
	text := b.out + errs.String()
	require.Equal(b, status, got, "%s\n%s", strings.Join(args, " "), text)
	if found := regexp.MustCompile(`it: --approve (\S+)`).FindStringSubmatch(text); found != nil {
		b.digest = found[1]
	}
	return text
}

// on runs a command on the folder.
func (b *bench) on(status int, args ...string) string {
	b.Helper()
	return b.run(status, append(args, "--filename", b.shop)...)
}

func (b *bench) kubectl(args ...string) string {
	b.Helper()
	out, err := b.cluster.Kubectl(b.Context(), append(args, "--namespace", b.ns)...)
	require.NoError(b, err)
	return strings.TrimSpace(out)
}

// value returns the value of a ConfigMap, "" if it is not there.
func (b *bench) value(name string) string {
	b.Helper()
	return b.kubectl("get", "configmap", name, "--ignore-not-found", "-o", "jsonpath={.data.key}")
}

// sent returns the requests of the person beside lists, watches and discovery.
func (b *bench) sent() (sent []string) {
	b.Helper()
	requests, err := b.cluster.Requests(b.user)
	require.NoError(b, err)
	for _, r := range requests {
		if r.Verb != "list" && r.Verb != "watch" && r.Resource != "" {
			sent = append(sent, r.String())
		}
	}
	return sent
}

// json decodes what the last command printed.
func (b *bench) json(into any) {
	b.Helper()
	require.NoError(b, json.Unmarshal([]byte(b.out), into), b.out)
}
