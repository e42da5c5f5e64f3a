package main

import (
	"context"
	_ "embed"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/seed-9e1ffd66/trueup/internal/test/process"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

//go:embed regions.yaml
var regionManifests string

// regions is the demo of a region: its agent is streamed to, beside the cluster agent, which
// pulls from the same control plane.
type regions struct {
	demo     *demo
	clusters *clusters
	user     string // of the agent of the region
}

const (
	region = "regions/reg_eu-1"
	// deployments are in the region, each with one pod.
	deployments = 10
)

func regionsCommand() *cobra.Command {
	d := newDemo()
	r := regions{demo: d, clusters: newClusters(d)}
	r.clusters.image = pauseImage
	return d.command(story{
		use:        "regions",
		short:      "Show a region with a streaming agent beside a pulling one, and a control plane that is killed",
		programs:   []string{"controlplane", "shuttle", "krane"},
		kubernetes: kubetest.Options{Controllers: true, Scheduler: true, Nodes: 2, GatewayAPI: true},
		stages: []stage{
			{"Control plane", r.clusters.plane.start},
			{"Pulling agent", r.clusters.startAgent},
			{"Streaming agent", r.startAgent},
			{"Desired state", r.fill},
			{"Pods", r.run},
			{"Outage", r.outage},
			{"Rest", r.rest},
		},
		end:  []stage{{"Removal", r.remove}},
		look: r.look,
	})
}

func (r *regions) startAgent(ctx context.Context) (string, error) {
	if err := r.demo.cluster.Apply(ctx, regionManifests); err != nil {
		return "", err
	}
	if _, err := r.demo.kubectl(ctx, "wait --for=condition=Established --timeout=300s crd --all"); err != nil {
		return "", err
	}
	tokenFile, err := r.clusters.plane.register(ctx, region, object{"name": "eu-1", "platform": "demo"})
	if err != nil {
		return "", err
	}
	port, err := process.Port(ctx)
	if err != nil {
		return "", err
	}
	config, err := r.demo.file("krane.yaml", fmt.Sprintf(`instance_id: demo
cluster: {region: eu-1, platform: demo, cell_id: eu-1-a}
control: {url: %q}
token_file: %s
rpc_port: %d
`, r.clusters.plane.base, tokenFile, port))
	if err != nil {
		return "", err
	}
	var kubeconfig string
	if r.user, kubeconfig, err = r.demo.install(ctx, "krane", "--control-url", r.clusters.plane.base, "--region", "eu-1"); err != nil {
		return "", err
	}
	_, _, err = r.demo.start(ctx, "krane", "", nil, "--config", config, "--kubeconfig", kubeconfig)
	return "region eu-1 registered, krane runs as " + r.user, err
}

// put sets a deployment of the region.
func (r *regions) put(ctx context.Context, n int, image string) error {
	return r.clusters.plane.do(ctx, http.MethodPut, fmt.Sprintf("%s/deployments/d_%d", region, n), object{
		"desired_state": "running",
		"spec": object{
			"k8s_namespace": "ws-demo", "k8s_name": fmt.Sprint("web-", n), "workspace_id": "ws_demo", "project_id": "p", "app_id": "a",
			"environment_id": "e", "image": image, "cpu_millicores": "100", "memory_mib": "64", "port": 8080,
		},
	}, nil)
}

// fill puts deployments into the region, and a project into the cluster.
func (r *regions) fill(ctx context.Context) (string, error) {
	for n := range deployments {
		if err := r.put(ctx, n, r.clusters.image); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%d deployments in the region and 4 services in the cluster", deployments), r.clusters.putProject(ctx)
}

func (r *regions) run(ctx context.Context) (string, error) {
	if err := r.clusters.runs(ctx, r.clusters.pods); err != nil {
		return "", err
	}
	return "all run, and the control plane has their reports", r.reported(ctx, deployments)
}

// reported waits until so many instances are reported to the control plane as running.
func (r *regions) reported(ctx context.Context, want int) error {
	return until(ctx, func() (bool, error) {
		var view struct {
			Resources []struct {
				Instances []struct{ Status string }
			}
		}
		err := r.clusters.plane.do(ctx, http.MethodGet, region, nil, &view)
		running := 0
		for _, resource := range view.Resources {
			for _, instance := range resource.Instances {
				if instance.Status == "running" {
					running++
				}
			}
		}
		r.demo.display.progress("%d of %d reported", running, want)
		return running == want, err
	})
}

// outage kills the control plane as by kill -9 and starts it again, edits an image by hand, and
// changes another deployment.
func (r *regions) outage(ctx context.Context) (string, error) {
	if err := r.clusters.plane.restart(ctx); err != nil {
		return "", err
	}
	if _, err := r.demo.kubectl(ctx, "patch rs web-0 -n ws-demo --type=json -p "+
		`[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"wrong"}]`); err != nil {
		return "", err
	}
	next := r.clusters.image + "-next"
	if err := r.put(ctx, 1, next); err != nil {
		return "", err
	}
	for n, image := range []string{r.clusters.image, next} {
		if err := r.demo.becomes(ctx, image, "get rs web-%d -n ws-demo -o jsonpath={.spec.template.spec.containers[0].image}", n); err != nil {
			return "", err
		}
	}
	deleted, err := r.demo.requests(func(q kubetest.Request) bool { return q.Verb == "delete" }, r.user, r.clusters.user)
	if err == nil && deleted > 0 {
		err = fmt.Errorf("the agents deleted %d objects", deleted)
	}
	return "the control plane was killed: nothing was deleted, an edit by hand is undone, the next change came", err
}

func (r *regions) rest(ctx context.Context) (string, error) {
	return r.demo.rest(ctx, "regions_requests_at_rest", "requests of both agents to the API server", 4*sweep,
		func() (int, error) { return r.demo.requests(nil, r.user, r.clusters.user) })
}

// remove takes everything out of the desired state until nothing of it is left.
func (r *regions) remove(ctx context.Context) (string, error) {
	for n := range deployments {
		if err := r.clusters.plane.do(ctx, http.MethodDelete, fmt.Sprintf("%s/deployments/d_%d", region, n), nil, nil); err != nil {
			return "", err
		}
	}
	if err := r.reported(ctx, 0); err != nil {
		return "", err
	}
	if err := r.demo.becomes(ctx, "", "get rs,pods,services,secrets -n ws-demo -o name"); err != nil {
		return "", err
	}
	if _, err := r.clusters.remove(ctx); err != nil {
		return "", err
	}
	return "the deployments and the project were deleted: their objects are gone, and the control plane has the reports", nil
}

func (r *regions) look() []string {
	return append(r.clusters.look(),
		r.demo.see()+"delete rs -n ws-demo --all    # and see them come back",
		r.clusters.plane.curl()+region)
}
