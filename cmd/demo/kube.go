package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

type object = map[string]any

// kube is the demo's own access to the cluster, as its admin.
type kube struct {
	context string            // of the kubeconfig; empty: the demo's own cluster
	cluster *kubetest.Cluster // nil: the user's own
	config  *rest.Config
	typed   *kubernetes.Clientset
	objects *dynamic.DynamicClient
}

// startKubernetes starts a cluster, or reaches the one that --context names.
func (d *demo) startKubernetes(ctx context.Context, options kubetest.Options) (_ string, err error) {
	if d.context == "" {
		options.Progress = d.display
		if d.cluster, err = kubetest.Run(ctx, options); err != nil {
			return "", err
		}
		d.atEnd(d.cluster.Stop)
		d.config = d.cluster.Config
	} else {
		d.config, err = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
			clientcmd.NewDefaultClientConfigLoadingRules(), &clientcmd.ConfigOverrides{CurrentContext: d.context}).ClientConfig()
		if err != nil {
			return "", fmt.Errorf("context %q: %w", d.context, err)
		}
		d.config.QPS = -1
	}
	if d.typed, err = kubernetes.NewForConfig(d.config); err != nil {
		return "", err
	}
	if d.objects, err = dynamic.NewForConfig(d.config); err != nil {
		return "", err
	}
	version, err := d.typed.Discovery().ServerVersion()
	if err != nil {
		return "", err
	}
	return version.GitVersion + " on " + d.config.Host, nil
}

// see begins the commands of a user who looks at the cluster.
func (k *kube) see() string {
	if k.cluster == nil {
		return "kubectl --context " + k.context + " "
	}
	return "KUBECONFIG=" + k.cluster.Kubeconfig + " kubectl "
}

// kubectl runs it on the demo's own cluster. Its arguments are words, without quotes.
func (k *kube) kubectl(ctx context.Context, format string, args ...any) (string, error) {
	return k.cluster.Kubectl(ctx, strings.Fields(fmt.Sprintf(format, args...))...)
}

// becomes shows what kubectl prints until it is as wanted.
func (d *demo) becomes(ctx context.Context, want, format string, args ...any) error {
	return until(ctx, func() (bool, error) {
		have, err := d.kubectl(ctx, format, args...)
		have = strings.TrimSpace(have)
		d.display.progress("%s", have)
		return have == want, err
	})
}

// requests counts what a user has sent to the API server of the demo's own cluster, by its
// audit log: those that count, nil for all. Watches are connections that stay open, and leases
// are not about objects.
func (k *kube) requests(counts func(kubetest.Request) bool, users ...string) (n int, err error) {
	for _, user := range users {
		all, err := k.cluster.Requests(user)
		if err != nil {
			return 0, err
		}
		for _, r := range all {
			if r.Verb != "watch" && r.Resource != "leases" && (counts == nil || counts(r)) {
				n++
			}
		}
	}
	return n, nil
}

func aWrite(r kubetest.Request) bool { return r.Verb != "get" && r.Verb != "list" }

// install applies what a program prints as its manifests, and returns the account in them and
// a kubeconfig of it. The Deployment is left out: the demo runs the program itself.
func (d *demo) install(ctx context.Context, program string, flags ...string) (user, kubeconfig string, err error) {
	manifests, err := exec.CommandContext(ctx, filepath.Join(d.dir, program), append([]string{"manifests"}, flags...)...).Output()
	if err != nil {
		return "", "", fmt.Errorf("%s manifests: %w", program, err)
	}
	var namespace, account string
	for decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(string(manifests)), 4096); ; {
		var o unstructured.Unstructured
		err := decoder.Decode(&o.Object)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return "", "", fmt.Errorf("%s manifests: %w", program, err)
		}
		switch o.GetKind() {
		case "", "Deployment":
			continue
		case "ServiceAccount":
			namespace, account = o.GetNamespace(), o.GetName()
		}
		if err := d.apply(ctx, &o); err != nil {
			return "", "", fmt.Errorf("applying %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	token, err := d.typed.CoreV1().ServiceAccounts(namespace).
		CreateToken(ctx, account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return "", "", fmt.Errorf("token of %s: %w", account, err)
	}
	path := filepath.Join(d.dir, account+".kubeconfig")
	return "system:serviceaccount:" + namespace + ":" + account, path, d.writeKubeconfig(path, token.Status.Token)
}

// apply applies an object, and has it deleted at the end in a cluster that is not the demo's.
func (d *demo) apply(ctx context.Context, o *unstructured.Unstructured) error {
	guess, _ := meta.UnsafeGuessKindToResource(o.GroupVersionKind())
	resource := d.objects.Resource(guess).Namespace(o.GetNamespace())
	_, err := resource.Apply(ctx, o.GetName(), o, metav1.ApplyOptions{FieldManager: "trueup-demo", Force: true})
	if err == nil && d.cluster == nil {
		d.ends = append(d.ends, func(ctx context.Context) error {
			return resource.Delete(ctx, o.GetName(), metav1.DeleteOptions{})
		})
	}
	return err
}

func (k *kube) writeKubeconfig(path, token string) error {
	config := rest.CopyConfig(k.config)
	if err := rest.LoadTLSFiles(config); err != nil {
		return err
	}
	return clientcmd.WriteToFile(api.Config{
		CurrentContext: "demo",
		Clusters: map[string]*api.Cluster{"demo": {
			Server: config.Host, CertificateAuthorityData: config.CAData,
			InsecureSkipTLSVerify: config.Insecure, TLSServerName: config.ServerName,
		}},
		AuthInfos: map[string]*api.AuthInfo{"demo": {Token: token}},
		Contexts:  map[string]*api.Context{"demo": {Cluster: "demo", AuthInfo: "demo"}},
	}, path)
}

// operator installs the operator of the demo's own cluster and runs it beside it, with this
// environment and these flags. It returns the operator's user, and where its metrics are.
func (d *demo) operator(
	ctx context.Context, program string, manifests, env []string, flags ...string,
) (user, metrics string, err error) {
	user, kubeconfig, err := d.install(ctx, program, manifests...)
	if err != nil {
		return "", "", err
	}
	if _, err := d.kubectl(ctx, "wait --for=condition=Established --timeout=300s crd --all"); err != nil {
		return "", "", err
	}
	flags = append(flags, "--kubeconfig", kubeconfig, "--health-probe-bind-address", "127.0.0.1:0", "--metrics-bind-address", "127.0.0.1:0")
	_, metrics, err = d.start(ctx, program, "metrics", env, flags...)
	return user, metrics, err
}
