// Package kubeaccess finds out how an agent reaches its Kubernetes.
package kubeaccess

import (
	"fmt"
	"log/slog"
	"os"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
)

// Config returns the access that the file describes, or without a file that of
// the pod's service account. What client-go logs in this process goes to the
// logger from then on.
func Config(kubeconfig string, logger *slog.Logger) (*rest.Config, error) {
	logTo(logger)
	if kubeconfig != "" {
		if _, err := os.ReadFile(kubeconfig); err != nil {
			return nil, fmt.Errorf("--kubeconfig: %w", program.Unreadable(kubeconfig, err))
		}
	}
	var config *rest.Config
	var err error
	if kubeconfig == "" {
		config, err = rest.InClusterConfig()
	} else {
		config, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
	}
	if err != nil {
		return nil, fmt.Errorf("access to Kubernetes: %w (--kubeconfig names a file for use outside a cluster)", err)
	}
	return config, nil
}

// As returns the access with the user agent of a program, and without a limit of requests: the
// server's fairness decides.
func As(name string, access *rest.Config) *rest.Config {
	config := rest.CopyConfig(access)
	config.UserAgent, config.QPS = name+"/"+program.Version(), -1
	return config
}
