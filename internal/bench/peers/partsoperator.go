package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seed-9e1ffd66/trueup/internal/bench/benchfigures"
	"github.com/seed-9e1ffd66/trueup/internal/bench/benchobjects"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

// measureOperator has the program of examples/operator make the children of many
// WebApps, and reads how much memory it has then; the same for the program on CreateOrUpdate. Each has
// a cluster of its own, in which there is nothing else.
func (b *bench) measureOperator(ctx context.Context) error {
	if b.operator == "" {
		return nil
	}
	if err := b.operatorResident(ctx, "operator", b.operator, "--health-address", "0"); err != nil || b.operatorPeer == "" {
		return err
	}
	if err := b.operatorResident(ctx, "CreateOrUpdate.operator", b.operatorPeer); err != nil {
		return err
	}
	b.book.Ratio("CreateOrUpdate_takes.operator_memory_ratio", "CreateOrUpdate.operator.resident_mib", "operator.resident_mib")
	return nil
}

// operatorResident measures one of the programs.
func (b *bench) operatorResident(ctx context.Context, name, program string, args ...string) error {
	definition, err := os.ReadFile("examples/internal/webapp/crd.yaml")
	if err != nil {
		return fmt.Errorf("%w: run it in the root of the repository", err)
	}
	cluster, err := kubetest.Run(ctx, kubetest.Options{})
	if err != nil {
		return err
	}
	defer cluster.Stop()
	w, err := newWorld(ctx, cluster)
	if err != nil {
		return err
	}
	if err := cluster.Apply(ctx, string(definition)); err != nil {
		return err
	}
	if _, err := cluster.Kubectl(ctx, "wait", "--for=condition=Established", "crd/webapps.example.com", "--timeout=300s"); err != nil {
		return err
	}
	const namespace = "webapps"
	if err := w.others.Namespace(ctx, namespace); err != nil {
		return err
	}
	apps := w.others.Client.Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "webapps"}).
		Namespace(namespace)
	err = benchobjects.Each(b.parents, 8, func(i int) error {
		app := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.com/v1", "kind": "WebApp", "metadata": map[string]any{"name": fmt.Sprintf("web-%05d", i)},
			"spec": map[string]any{"image": "web:1", "replicas": int64(2), "config": map[string]any{"COLOR": "blue"}},
		}}
		_, err := apps.Create(ctx, app, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, program, append([]string{"--kubeconfig", cluster.Kubeconfig, "--namespace", namespace}, args...)...)
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait() // interrupted
	}()
	// Without controllers no Deployment becomes ready: the status is the last that is
	// written for each.
	for limit := time.Now().Add(5 * time.Minute); ; {
		list, err := apps.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		written := 0
		for i := range list.Items {
			if conditions, _, _ := unstructured.NestedSlice(list.Items[i].Object, "status", "conditions"); len(conditions) > 0 {
				written++
			}
		}
		if written == b.parents {
			break
		}
		if !pause(ctx, time.Second) || time.Now().After(limit) {
			return errors.New("not every WebApp has a status")
		}
	}
	for _, when := range []struct {
		name  string
		after time.Duration
	}{{".resident_mib_when_made", 0}, {".resident_mib", 150 * time.Second}} {
		pause(ctx, when.after) // the runtime collects garbage at least every two minutes
		memory, err := benchfigures.MemoryOf(cmd.Process.Pid)
		if err != nil {
			return err
		}
		b.book.Add(name+when.name, memory.Resident/(1<<20), "MiB")
	}
	return nil
}
