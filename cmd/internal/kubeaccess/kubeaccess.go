// Package kubeaccess finds out how an agent reaches its Kubernetes.
package kubeaccess

import (
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Config returns the access that the file describes, or without a file that of
// the pod's service account.
func Config(kubeconfig string) (*rest.Config, error) {
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
