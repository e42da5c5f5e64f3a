package controller_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	webv1 "github.com/seed-9e1ffd66/trueup/examples/kubebuilder/api/v1"
)

var (
	cfg       *rest.Config
	k8sClient client.Client
)

func TestMain(m *testing.M) {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		fmt.Println("skipped without KUBEBUILDER_ASSETS; the test of the project sets it")
		return
	}
	os.Exit(run(m))
}

// run runs the tests beside a kube-apiserver and an etcd.
func run(m *testing.M) int {
	ctrl.SetLogger(logr.Discard())
	testEnv := &envtest.Environment{
		CRDDirectoryPaths:     []string{filepath.Join("..", "..", "config", "crd", "bases")},
		ErrorIfCRDPathMissing: true,
	}
	err := webv1.AddToScheme(scheme.Scheme)
	if err == nil {
		cfg, err = testEnv.Start()
	}
	if err == nil {
		k8sClient, err = client.New(cfg, client.Options{Scheme: scheme.Scheme})
	}
	code := 1
	if err == nil {
		code = m.Run()
	}
	if stopped := testEnv.Stop(); err != nil || stopped != nil {
		fmt.Println("envtest:", err, stopped)
		return 1
	}
	return code
}
