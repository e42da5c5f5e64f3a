package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seed-9e1ffd66/trueup/internal/bench/benchobjects"
)

// measureOperator has the program of examples/operator make the children of many
// WebApps, and reads how much memory it has then.
func (b *bench) measureOperator(ctx context.Context) error {
	if b.operator == "" {
		return nil
	}
	definition, err := os.ReadFile("examples/internal/webapp/crd.yaml")
	if err != nil {
		return fmt.Errorf("%w: run it in the root of the repository", err)
	}
	if err := b.cluster.Apply(ctx, string(definition)); err != nil {
		return err
	}
	if _, err := b.cluster.Kubectl(ctx, "wait", "--for=condition=Established", "crd/webapps.example.com", "--timeout=300s"); err != nil {
		return err
	}
	const namespace = "webapps"
	if err := b.others.Namespace(ctx, namespace); err != nil {
		return err
	}
	apps := b.others.Client.Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "webapps"}).
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
	cmd := exec.CommandContext(ctx, b.operator, "--kubeconfig", b.cluster.Kubeconfig, "--namespace", namespace, "--health-address", "0")
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
	}{{"operator.resident_mib_when_made", 0}, {"operator.resident_mib", 150 * time.Second}} {
		pause(ctx, when.after) // the runtime collects garbage at least every two minutes
		resident, err := residentMiB(cmd.Process.Pid)
		if err != nil {
			return err
		}
		b.book.Add(when.name, resident, "MiB")
	}
	return nil
}

// residentMiB returns the memory of a process, where that is Linux.
func residentMiB(pid int) (float64, error) {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kilobytes, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 64)
			return kilobytes / 1024, err
		}
	}
	return 0, errors.New("no VmRSS")
}
