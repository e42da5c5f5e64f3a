package kubetest_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

// A test calls Start, or Cluster of a Shared. A program that is no test calls Run.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Minute) // the first time builds Kubernetes
	defer cancel()
	cluster, err := kubetest.Run(ctx, kubetest.Options{Progress: os.Stderr})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cluster.Stop()
	site := "{apiVersion: v1, kind: ConfigMap, metadata: {name: site, namespace: default}, data: {color: blue}}"
	if err := cluster.Apply(ctx, site); err != nil {
		fmt.Println(err)
		return
	}
	color, err := cluster.Kubectl(ctx, "get", "configmap", "site", "-o", "jsonpath={.data.color}")
	fmt.Println(color, err)
	requests, err := cluster.Requests("admin")
	fmt.Println(requests[len(requests)-1].Verb, requests[len(requests)-1].Name, err)
	// Output:
	// blue <nil>
	// get site <nil>
}
