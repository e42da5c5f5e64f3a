package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/seed-9e1ffd66/trueup/internal/bench/benchobjects"
)

// load is how much there is at the busiest time, and how long the rest is.
type load struct {
	services, jobs, apps, pods, objects int
	rest                                time.Duration
}

// world installs what is measured: beside a control plane with a few services, and services of
// applications if these are measured.
func (c *cost) world(ctx context.Context) (string, error) {
	health := func(address string) ([]string, []string) {
		return nil, []string{"--health-probe-bind-address", address, "--metrics-bind-address", "127.0.0.1:0"}
	}
	for _, p := range []struct {
		name    string
		install func(context.Context, *costed) error
	}{
		{"controlplane", c.controlPlane},
		{"shuttle", c.shuttle},
		{"krane", c.krane},
		{"agentjob", func(ctx context.Context, p *costed) error {
			p.at, p.fill = health, c.manyJobs
			_, kubeconfig, err := c.demo.install(ctx, "agentjob")
			p.args = []string{"--kubeconfig", kubeconfig}
			if err != nil {
				return err
			}
			if err := c.established(ctx); err != nil {
				return err
			}
			return c.demo.cluster.Apply(ctx, agentJobManifests)
		}},
		{"application", func(ctx context.Context, p *costed) error {
			p.at, p.fill = health, c.manyApps
			if _, err := c.apps.startServices(ctx); err != nil {
				return err
			}
			_, kubeconfig, err := c.demo.install(ctx, "application", "--base-domain", "apps.example.com")
			p.env = append(c.apps.outside.env(), "BASE_DOMAIN=apps.example.com", "REDIS_ENDPOINT=redis.internal")
			p.args = []string{"--kubeconfig", kubeconfig}
			if err == nil {
				_, err = c.demo.kubectl(ctx, "create namespace team")
			}
			return errors.Join(err, c.established(ctx))
		}},
		{"nodepool", func(ctx context.Context, p *costed) error {
			p.at, p.fill = health, func(ctx context.Context) error { return c.manyPods(ctx, p) }
			pools := nodePools{demo: c.demo}
			if _, err := pools.startCloud(ctx); err != nil {
				return err
			}
			_, kubeconfig, err := c.demo.install(ctx, "nodepool", "--cluster-name", "demo", "--region", "us-east-1")
			p.args = []string{
				"--kubeconfig", kubeconfig, "--cluster-name", "demo",
				"--cloud-provider", "local", "--local-directory", pools.dir(), "--local-kubeconfig", c.demo.cluster.Kubeconfig,
			}
			return errors.Join(err, c.established(ctx))
		}},
		{peerName, func(_ context.Context, p *costed) error {
			path, err := filepath.Abs(c.peer)
			p.path, p.args = path, []string{"-peer", "-peer-kubeconfig", c.demo.cluster.Kubeconfig, "-peer-health"}
			p.at = func(address string) ([]string, []string) { return nil, []string{address} }
			return err
		}},
	} {
		measured := c.chosen(p.name)
		if p.name == peerName {
			measured = c.peer != "" && c.chosen("agentjob")
		}
		// The agents need the control plane, also when it is not measured.
		if !measured && p.name != "controlplane" {
			continue
		}
		c.demo.display.progress("%s", p.name)
		of := &costed{name: p.name, path: filepath.Join(c.demo.dir, p.name)}
		if err := p.install(ctx, of); err != nil {
			return "", fmt.Errorf("%s: %w", p.name, err)
		}
		if measured {
			c.all = append(c.all, of)
		}
	}
	return fmt.Sprintf("%d programs installed", len(c.all)), nil
}

func (c *cost) established(ctx context.Context) error {
	_, err := c.demo.kubectl(ctx, "wait --for=condition=Established --timeout=300s crd --all")
	return err
}

// controlPlane starts the one that the agents speak to. What is measured has a database of its own.
func (c *cost) controlPlane(ctx context.Context, p *costed) error {
	plane := &c.clusters.plane
	if _, err := plane.start(ctx); err != nil {
		return err
	}
	p.args = []string{"--metrics-bind-address", "", "--admin-token-file", plane.tokenFile, "--database", filepath.Join(c.demo.dir, "cost.db")}
	p.at = func(address string) ([]string, []string) { return nil, []string{"--listen", address} }
	return nil
}

func (c *cost) shuttle(ctx context.Context, p *costed) error {
	plane := &c.clusters.plane
	token, err := plane.register(ctx, "clusters/"+c.clusters.id, object{"region": "demo1"})
	if err != nil {
		return err
	}
	_, kubeconfig, err := c.demo.install(ctx, "shuttle", "--starbase-url", plane.base, "--cluster-id", c.clusters.id, "--region", "demo1")
	if err != nil {
		return err
	}
	p.args = []string{"--kubeconfig", kubeconfig}
	p.at = func(address string) ([]string, []string) {
		return []string{
			"STARFORM_STARBASE_URL=" + plane.base, "STARFORM_CLUSTER_ID=" + c.clusters.id, "STARFORM_REGION=demo1",
			"STARFORM_AUTH_TOKEN_FILE=" + token, "STARFORM_METRICS_ADDR=" + address,
		}, nil
	}
	p.fill = func(ctx context.Context) error { return c.manyServices(ctx, c.load.services) }
	c.clusters.image = pauseImage
	return c.clusters.putProject(ctx)
}

func (c *cost) krane(ctx context.Context, p *costed) error {
	if err := c.demo.cluster.Apply(ctx, regionManifests); err != nil {
		return err
	}
	if err := c.established(ctx); err != nil {
		return err
	}
	plane := &c.clusters.plane
	token, err := plane.register(ctx, region, object{"name": "eu-1", "platform": "demo"})
	if err != nil {
		return err
	}
	_, kubeconfig, err := c.demo.install(ctx, "krane", "--control-url", plane.base, "--region", "eu-1")
	if err != nil {
		return err
	}
	p.args = []string{"--kubeconfig", kubeconfig}
	p.at = func(address string) ([]string, []string) {
		return []string{
			"KRANE_INSTANCE_ID=demo", "KRANE_CLUSTER_REGION=eu-1", "KRANE_CLUSTER_PLATFORM=demo", "KRANE_CLUSTER_CELL_ID=eu-1-a",
			"KRANE_TOKEN_FILE=" + token, "KRANE_CONTROL_URL=" + plane.base, "KRANE_HEALTH_PROBE_BIND_ADDRESS=" + address,
		}, nil
	}
	regions := regions{demo: c.demo, clusters: c.clusters}
	put := func(n int) error {
		return benchobjects.Each(n, 4, func(i int) error { return regions.put(ctx, i, pauseImage) })
	}
	p.fill = func(context.Context) error { return put(c.load.services) }
	return put(deployments)
}

// manyServices puts services into a project of their own.
func (c *cost) manyServices(ctx context.Context, n int) error {
	plane, project := &c.clusters.plane, "projects/"+string(uuid.NewUUID())
	if err := plane.do(ctx, http.MethodPut, project, object{
		"cluster_id": c.clusters.id, "workspace_id": uuid.NewUUID(), "workspace_slug": "demo", "slug": "many-" + c.clusters.id[:4],
	}, nil); err != nil {
		return err
	}
	return benchobjects.Each(n, 4, func(i int) error {
		return plane.do(ctx, http.MethodPut, fmt.Sprintf("%s/services/%s/production", project, uuid.NewUUID()), object{
			"service_name": fmt.Sprint("web-", i), "image": pauseImage, "replicas": 1, "tier": "nova",
			"env": object{"GREETING": "hello"}, "ports": []any{object{"container_port": 8080, "protocol": "TCP"}},
			"resources": object{"requests": object{"cpu": "0.01", "memory": "16Mi"}},
		}, nil)
	})
}

func (c *cost) manyJobs(ctx context.Context) error {
	var all strings.Builder
	for n := range c.load.jobs {
		fmt.Fprintf(&all, `apiVersion: thurkube.thurbeen.eu/v1alpha1
kind: AgentJob
metadata: {name: job-%d, namespace: agents}
spec: {runtimeRef: claude, authRef: anthropic, roleRef: reader, prompt: Count., schedule: "0 0 1 1 *"}
---
`, n)
	}
	return c.demo.cluster.Apply(ctx, all.String())
}

func (c *cost) manyApps(ctx context.Context) error {
	var all strings.Builder
	for n := range c.load.apps {
		all.WriteString(strings.ReplaceAll(applicationManifests, "NAME", fmt.Sprint("app-", n)) + "---\n")
	}
	return c.demo.cluster.Apply(ctx, all.String())
}

// manyPods has machines on standby, by a run of the operator, and then pods that only they can take.
func (c *cost) manyPods(ctx context.Context, p *costed) error {
	pool := strings.Replace(nodePoolManifests, "  template:\n", "  template:\n    labels: {cost: pool}\n", 1)
	if err := c.demo.cluster.Apply(ctx, pool); err != nil {
		return err
	}
	s, err := c.start(ctx, p)
	if err != nil {
		return err
	}
	pools := nodePools{demo: c.demo}
	if err := pools.has(ctx, standby, 0); err != nil {
		return err
	}
	if err := s.process.Stop(time.Minute); err != nil {
		return err
	}
	return c.demo.cluster.Apply(ctx, fmt.Sprintf(`apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: burst, namespace: default}
spec:
  replicas: %d
  selector: {matchLabels: {app: burst}}
  template:
    metadata: {labels: {app: burst}}
    spec:
      nodeSelector: {cost: pool}
      terminationGracePeriodSeconds: 0
      containers: [{name: web, image: web, resources: {requests: {cpu: 100m}}}]
`, c.load.pods))
}
