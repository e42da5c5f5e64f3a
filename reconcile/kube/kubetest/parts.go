package kubetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/seed-9e1ffd66/trueup/internal/test/process"
)

// What a cluster with many pods is given: the defaults are 20 and 50 requests a second.
const (
	fastClient = "--kube-api-qps=1000"
	fastBurst  = "--kube-api-burst=2000"
)

func (c *Cluster) startControllers() error {
	if c.options.Controllers {
		if _, err := c.processes.Run(controllerManager, c.programs.path(controllerManager), nil,
			"--kubeconfig", c.Kubeconfig, "--leader-elect=false", "--secure-port", "0", fastClient, fastBurst,
			"--service-account-private-key-file", "service-account.key", "--use-service-account-credentials"); err != nil {
			return err
		}
	}
	if c.options.Scheduler {
		if _, err := c.processes.Run(scheduler, c.programs.path(scheduler), nil,
			"--kubeconfig", c.Kubeconfig, "--leader-elect=false", "--secure-port", "0", fastClient, fastBurst); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) startNodes(ctx context.Context) error {
	stages, err := c.stages()
	if err != nil {
		return err
	}
	// Without leases a node is taken for dead after a minute, and the pods on it
	// are never ready again.
	if _, err := c.processes.Run(kwok, c.programs.path(kwok), nil,
		"--kubeconfig", c.Kubeconfig, "--manage-all-nodes", "--node-lease-duration-seconds", "40", "-c", stages); err != nil {
		return err
	}
	var nodes strings.Builder
	for i := range c.options.Nodes {
		fmt.Fprintf(&nodes, nodeTemplate, i, i)
	}
	return c.Apply(ctx, nodes.String())
}

// stages returns the file with what happens to nodes and pods.
func (c *Cluster) stages() (path string, err error) {
	path = c.programs.path(kwokStages)
	if c.options.Stages == "" {
		return path, nil
	}
	standard, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	named := func(stage string) string {
		var s struct{ Metadata struct{ Name string } }
		err = errors.Join(err, yaml.Unmarshal([]byte(stage), &s))
		return s.Metadata.Name
	}
	own := strings.Split(c.options.Stages, "\n---\n")
	all := slices.Clone(own)
	for stage := range strings.SplitSeq(string(standard), "\n---\n") {
		name := named(stage)
		if !slices.ContainsFunc(own, func(o string) bool { return named(o) == name }) {
			all = append(all, stage)
		}
	}
	if err != nil {
		return "", fmt.Errorf("stages: %w", err)
	}
	path = filepath.Join(c.Dir, kwokStages)
	return path, os.WriteFile(path, []byte(strings.Join(all, "\n---\n")), 0o600)
}

const nodeTemplate = `---
apiVersion: v1
kind: Node
metadata:
  name: node-%d
  labels: {kubernetes.io/hostname: node-%d, kubernetes.io/os: linux, kubernetes.io/arch: amd64}
  annotations: {node.alpha.kubernetes.io/ttl: "0"}
status:
  allocatable: {cpu: "32", memory: 256Gi, pods: "110"}
  capacity: {cpu: "32", memory: 256Gi, pods: "110"}
`

func (c *Cluster) installGatewayAPI(ctx context.Context) error {
	definitions, err := os.ReadFile(c.programs.path(gatewayAPI))
	if err != nil {
		return err
	}
	if err := c.Apply(ctx, string(definitions)); err != nil {
		return err
	}
	return c.established(ctx)
}

// errStatusZero says how a process ended that does not call it a failure.
var errStatusZero = errors.New("exit status 0")

func exitError(p *process.Process) error {
	tail := p.Tail()
	if strings.Contains(tail, "address already in use") {
		return fmt.Errorf("%s: %w", p.Name, errPortTaken)
	}
	return fmt.Errorf("%s ended: %w\n%s", p.Name, cmp.Or(p.Err(), errStatusZero), tail)
}
