package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/seed-9e1ffd66/trueup/internal/test/kubetest"
)

type object = map[string]any

// kube is the demo's own access to the cluster, as its admin.
type kube struct {
	cluster *kubetest.Cluster // nil: the user's own
	config  *rest.Config
	client  dynamic.Interface
	routes  bool // the Gateway API is installed
}

const agentUser = "system:serviceaccount:starform-system:shuttle"

//nolint:gochecknoglobals // a table
var (
	podResource        = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	nodeResource       = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	namespaceResource  = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	accountResource    = schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}
	definitionResource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
)

// startKubernetes starts a cluster, or reaches the one that --context names.
func (d *demo) startKubernetes(ctx context.Context) (err error) {
	d.display.step("Kubernetes")
	if d.context == "" {
		d.kube.cluster, err = kubetest.Run(
			ctx,
			kubetest.Options{Controllers: true, Scheduler: true, Nodes: 2, GatewayAPI: true, Progress: d.display},
		)
		if err != nil {
			return err
		}
		d.kube.config = d.kube.cluster.Config
	} else {
		d.kube.config, err = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
			clientcmd.NewDefaultClientConfigLoadingRules(), &clientcmd.ConfigOverrides{CurrentContext: d.context}).ClientConfig()
		if err != nil {
			return fmt.Errorf("context %q: %w", d.context, err)
		}
		d.kube.config.QPS = -1
	}
	if d.kube.client, err = dynamic.NewForConfig(d.kube.config); err != nil {
		return err
	}
	_, err = d.kube.client.Resource(definitionResource).Get(ctx, "httproutes.gateway.networking.k8s.io", metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	d.kube.routes = err == nil
	nodes, err := d.kube.client.Resource(nodeResource).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	d.display.done("%s, %d nodes", d.kube.config.Host, len(nodes.Items))
	return nil
}

// agentAccess applies what an agent prints as its manifests, and returns a
// kubeconfig for the service account in them. The Deployment is left out: the
// demo runs the program itself.
func (k *kube) agentAccess(ctx context.Context, program, dir string, args ...string) (string, error) {
	manifests, err := output(ctx, program, append([]string{"manifests"}, args...)...)
	if err != nil {
		return "", err
	}
	var account *unstructured.Unstructured
	for decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(manifests), 4096); ; {
		var o unstructured.Unstructured
		err := decoder.Decode(&o.Object)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return "", fmt.Errorf("%s manifests: %w", program, err)
		}
		if o.Object == nil || o.GetKind() == "Deployment" {
			continue
		}
		if o.GetKind() == "ServiceAccount" {
			account = &o
		}
		resource, _ := meta.UnsafeGuessKindToResource(o.GroupVersionKind())
		_, err = k.in(resource, o.GetNamespace()).Apply(ctx, o.GetName(), &o, metav1.ApplyOptions{FieldManager: "trueup-demo", Force: true})
		if err != nil {
			return "", fmt.Errorf("applying %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	if account == nil {
		return "", fmt.Errorf("%s manifests: no ServiceAccount", program)
	}
	token, err := k.token(ctx, account.GetNamespace(), account.GetName())
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, account.GetName()+".kubeconfig")
	return path, k.writeKubeconfig(path, token)
}

// output returns what a program prints.
func output(ctx context.Context, program string, args ...string) (string, error) {
	text, err := exec.CommandContext(ctx, program, args...).Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", program, strings.Join(args, " "), err)
	}
	return string(text), nil
}

func (k *kube) token(ctx context.Context, namespace, name string) (string, error) {
	request := &unstructured.Unstructured{Object: object{
		"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
		"metadata": object{"name": name}, "spec": object{"expirationSeconds": int64(3600)},
	}}
	answer, err := k.in(accountResource, namespace).Create(ctx, request, metav1.CreateOptions{}, "token")
	if err != nil {
		return "", fmt.Errorf("token for %s: %w", name, err)
	}
	token, _, err := unstructured.NestedString(answer.Object, "status", "token")
	return token, err
}

func (k *kube) writeKubeconfig(path, token string) error {
	authority := k.config.CAData
	if k.config.CAFile != "" {
		data, err := os.ReadFile(k.config.CAFile)
		if err != nil {
			return err
		}
		authority = data
	}
	return clientcmd.WriteToFile(api.Config{
		CurrentContext: "demo",
		Clusters: map[string]*api.Cluster{"demo": {
			Server: k.config.Host, CertificateAuthorityData: authority,
			InsecureSkipTLSVerify: k.config.Insecure, TLSServerName: k.config.ServerName,
		}},
		AuthInfos: map[string]*api.AuthInfo{"demo": {Token: token}},
		Contexts:  map[string]*api.Context{"demo": {Cluster: "demo", AuthInfo: "demo"}},
	}, path)
}

func (k *kube) in(resource schema.GroupVersionResource, namespace string) dynamic.ResourceInterface {
	if namespace == "" {
		return k.client.Resource(resource)
	}
	return k.client.Resource(resource).Namespace(namespace)
}

// running counts the pods of the cluster that run, and all of them.
func (k *kube) running(ctx context.Context, selector string) (running, all int, err error) {
	pods, err := k.client.Resource(podResource).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return 0, 0, err
	}
	for _, pod := range pods.Items {
		phase, _, err := unstructured.NestedString(pod.Object, "status", "phase")
		if err != nil {
			return 0, 0, err
		}
		if phase == "Running" && pod.GetDeletionTimestamp() == nil {
			running++
		}
	}
	return running, len(pods.Items), nil
}

// cleanUp removes what the demo made in a cluster that is not its own.
func (k *kube) cleanUp(ctx context.Context, selector string) error {
	namespaces, err := k.client.Resource(namespaceResource).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return err
	}
	errs := []error{}
	for _, namespace := range namespaces.Items {
		errs = append(errs, k.client.Resource(namespaceResource).Delete(ctx, namespace.GetName(), metav1.DeleteOptions{}))
	}
	const group = "rbac.authorization.k8s.io"
	errs = append(
		errs,
		k.client.Resource(namespaceResource).Delete(ctx, "starform-system", metav1.DeleteOptions{}),
		k.client.Resource(schema.GroupVersionResource{Group: group, Version: "v1", Resource: "clusterroles"}).
			Delete(ctx, "shuttle", metav1.DeleteOptions{}),
		k.client.Resource(schema.GroupVersionResource{Group: group, Version: "v1", Resource: "clusterrolebindings"}).
			Delete(ctx, "shuttle", metav1.DeleteOptions{}),
	)
	return errors.Join(errs...)
}

// until asks every 50 ms until what holds, and fails with the reason when ctx
// ends first.
func until(ctx context.Context, holds func() (bool, error)) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := holds()
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// readMetric adds up the samples of a metric that match all the parts.
func readMetric(text, name string, matches func(labels string) bool) (float64, error) {
	sum := 0.0
	for line := range strings.Lines(text) {
		sample, ok := strings.CutPrefix(strings.TrimSpace(line), name)
		if !ok || sample == "" || sample[0] != '{' && sample[0] != ' ' {
			continue
		}
		at := strings.LastIndexByte(sample, ' ')
		var v float64
		if err := json.Unmarshal([]byte(sample[at+1:]), &v); err != nil {
			return 0, fmt.Errorf("metric %s: %w", name, err)
		}
		if matches(sample[:at]) {
			sum += v
		}
	}
	return sum, nil
}
