package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

const (
	trueup = "trueup"
	label  = "app.kubernetes.io/part-of"
	app    = "shop" // value of the label; name of the part, the release, the ApplySet and the app
)

// tool is a program and how its users call it. Each call has --namespace and a kubeconfig.
type tool struct {
	name, program string
	env           []string
	// apply makes the cluster match the folder; prune, too, and deletes what the folder has no
	// longer: nil if the tool cannot. diff shows the difference: nil if it cannot.
	apply, prune, diff func(folder) []string
}

// paths are those of the programs.
type paths struct{ trueup, kubectl, helm, kapp string }

func tools(programs paths, home string) ([]tool, error) {
	files := func(args ...string) func(folder) []string {
		return func(f folder) []string { return append(args[:len(args):len(args)], "-f", f.files()) }
	}
	kubectl := []string{"HOME=" + home, "KUBECTL_APPLYSET=true"}
	byLabel := files("apply", "--prune", "-l", label+"="+app)
	applySet := files("apply", "--prune", "--applyset=configmap/"+app)
	helm := func(f folder) []string { return []string{"upgrade", "--install", app, f.dir} }
	kapp := files("deploy", "--yes", "--wait=false", "-a", app)
	helmHome := []string{"HELM_CACHE_HOME=" + home, "HELM_CONFIG_HOME=" + home, "HELM_DATA_HOME=" + home}
	ofPart := func(args ...string) func(folder) []string { return files(append(args, "--part", app)...) }
	all := []tool{
		{trueup, programs.trueup, nil, ofPart("apply"), ofPart("apply", "--prune"), ofPart("diff", "-o", "json")},
		{
			// Without --force-conflicts its diff ends at the first conflict: it names who wrote
			// that field, and shows nothing.
			"kubectl_server_side", programs.kubectl, kubectl,
			files("apply", "--server-side"), nil, files("diff", "--server-side", "--force-conflicts"),
		},
		{"kubectl_prune", programs.kubectl, kubectl, byLabel, byLabel, files("diff", "--prune", "-l", label+"="+app)},
		{"kubectl_applyset", programs.kubectl, kubectl, applySet, applySet, nil},
		{"helm", programs.helm, helmHome, helm, helm, nil},
		{"kapp", programs.kapp, nil, kapp, kapp, files("deploy", "--diff-run", "--diff-changes", "-a", app)},
	}
	if programs.kapp == "" {
		all = all[:len(all)-1]
	}
	for i := range all {
		path, err := filepath.Abs(all[i].program)
		if err != nil {
			return nil, err
		}
		all[i].program = path
	}
	return all, nil
}

// toolNames returns the names of all tools, also of tools that are left out.
func toolNames() (names []string) {
	all, _ := tools(paths{kapp: "kapp"}, "") // they are not run
	for _, t := range all {
		names = append(names, t.name)
	}
	return names
}

// side is a tool as a user of its own, with a namespace of its own.
type side struct {
	tool
	*kubetest.Cluster

	namespace, user, kubeconfig string
}

// side makes the namespace and the user.
func (b *bench) side(ctx context.Context, stage string, t tool) (side, error) {
	s := side{tool: t, Cluster: b.cluster, namespace: stage + "-" + strings.ReplaceAll(t.name, "_", "-")}
	s.user = "system:serviceaccount:" + s.namespace + ":tool"
	if err := b.cluster.Apply(ctx, fmt.Sprintf(`
{apiVersion: v1, kind: Namespace, metadata: {name: %[1]s}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: tool, namespace: %[1]s}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: tool, namespace: %[1]s}]
`, s.namespace)); err != nil {
		return s, err
	}
	var err error
	_, s.kubeconfig, err = b.cluster.ServiceAccount(ctx, s.namespace, "tool")
	return s, err
}

func (s side) command(ctx context.Context, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, s.program, append(args, "--namespace", s.namespace)...)
	cmd.Env = append(append(os.Environ(), "KUBECONFIG="+s.kubeconfig, "KAPP_KUBECONFIG="+s.kubeconfig), s.env...)
	return cmd
}

// call runs the tool. Its status alone is no error: the answer says how it ended.
func (s side) call(ctx context.Context, args []string) (answer, error) {
	out, err := s.command(ctx, args).Output()
	exit, ended := errors.AsType[*exec.ExitError](err)
	if err != nil && !ended {
		return answer{}, fmt.Errorf("%s %s: %w", s.name, strings.Join(args, " "), err)
	}
	a := answer{out: string(out)}
	if ended {
		a.status, a.errs = exit.ExitCode(), strings.TrimSpace(string(exit.Stderr))
	}
	return a, nil
}

// must runs the tool, and a status other than 0 is an error.
func (s side) must(ctx context.Context, args []string) error {
	a, err := s.call(ctx, args)
	if err == nil && a.status != 0 {
		err = fmt.Errorf("%s %s: status %d: %s", s.name, strings.Join(args, " "), a.status, a.errs)
	}
	return err
}

type answer struct {
	out, errs string
	status    int
}

// uids are the UIDs of the benchmark's own objects in the namespace by kind and name.
func (s side) uids(ctx context.Context) (map[string]string, error) {
	found := map[string]string{}
	for _, kind := range []string{"configmaps", "deployments"} {
		out, err := s.Kubectl(ctx, "get", kind, "-n", s.namespace, "-o",
			`jsonpath={range .items[*]}{.metadata.name}{" "}{.metadata.uid}{"\n"}{end}`)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(out) {
			if name, uid, _ := strings.Cut(strings.TrimSpace(line), " "); strings.HasPrefix(name, prefix) {
				found[kind+"/"+name] = uid
			}
		}
	}
	return found, nil
}
