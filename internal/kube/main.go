// Command kube is a Kubernetes control plane in one executable, built from the
// Go modules that this module pins. The name it is called by, or else its first
// argument, chooses the program: etcd, kube-apiserver, kube-controller-manager,
// kube-scheduler or kubectl. Package kubetest builds it into a cache folder with
// one link for each name, which makes that folder a KUBEBUILDER_ASSETS folder.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

func main() {
	args := os.Args
	name := filepath.Base(args[0])
	if name == "kube" && len(args) > 1 {
		args = args[1:]
		name = args[0]
	}
	os.Args = args

	commands := map[string]func() *cobra.Command{
		"kube-apiserver":          apiserver.NewAPIServerCommand,
		"kube-controller-manager": controllermanager.NewControllerManagerCommand,
		"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
		"kubectl":                 kubectl.NewDefaultKubectlCommand,
	}
	switch newCommand, ok := commands[name]; {
	case ok:
		os.Exit(cli.Run(newCommand()))
	case name == "etcd":
		etcdmain.Main(args)
	default:
		fmt.Fprintf(os.Stderr, "kube: unknown program %q; known: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl\n", name)
		os.Exit(2)
	}
}
