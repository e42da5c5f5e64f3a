package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/internal/test/process"
)

//go:embed regions.yaml
var regionManifests string

// regions is a demo of two regions with two agents each, one that pulls and one
// that is streamed to, on one control plane.
type regions struct {
	display *display
	keep    bool
	image   string
	dir     string
	admin   admin
	sides   []*side
}

// side is one region: a cluster, its shuttle and its krane.
type side struct {
	demo   demo
	region string
	krane  *process.Process
}

func regionsCommand() *cobra.Command {
	r := regions{display: newDisplay(os.Stdout)}
	c := &cobra.Command{
		Use:           "regions",
		Short:         "Show two regions with a pulling and a streaming agent each on one control plane",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(c *cobra.Command, _ []string) error { return r.run(c.Context()) },
	}
	c.Flags().BoolVar(&r.keep, "keep", false, "leave everything running at the end, until interrupted")
	c.Flags().StringVar(&r.image, "image", "registry.k8s.io/pause:3.10", "image that everything runs")
	return c
}

// wanted is how many deployments each region gets, each with one pod.
const wanted = 10

func (r *regions) run(ctx context.Context) (err error) {
	if r.dir, err = os.MkdirTemp("", "trueup-regions-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.stop()) }()
	if err := build(ctx, r.display, r.dir, "cmd/controlplane", "cmd/shuttle", "cmd/krane"); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done within %s", limit))
	defer cancel()
	for _, name := range []string{"eu-1", "us-1"} {
		s, err := r.newSide(bounded, name)
		if s != nil {
			r.sides = append(r.sides, s)
		}
		if err != nil {
			return err
		}
	}
	for _, step := range []func(context.Context) error{r.agents, r.fill, r.edit, r.outage, r.remove} {
		if err := step(bounded); err != nil {
			return r.explain(err)
		}
	}
	if r.keep {
		for _, s := range r.sides {
			r.display.print("KUBECONFIG="+s.demo.kube.cluster.Kubeconfig+" kubectl get pods -A", "tail -f "+s.krane.Log)
		}
		<-ctx.Done()
	}
	return nil
}

// explain adds the last lines of the agents to err.
func (r *regions) explain(err error) error {
	for _, s := range r.sides {
		if s.krane != nil {
			err = fmt.Errorf("%w\nlast lines of krane in %s:\n%s", err, s.region, s.krane.Tail())
		}
	}
	return err
}

func (r *regions) stop() error {
	for _, s := range r.sides {
		s.demo.processes.Close()
		if s.demo.kube.cluster != nil {
			s.demo.kube.cluster.Stop()
		}
	}
	return os.RemoveAll(r.dir)
}

// newSide starts the cluster of a region, and the control plane with the first.
func (r *regions) newSide(ctx context.Context, region string) (*side, error) {
	s := &side{region: region, demo: demo{
		display: r.display, image: r.image, programs: r.dir, dir: filepath.Join(r.dir, region), clusterID: randomUUID(),
	}}
	if err := os.Mkdir(s.demo.dir, 0o700); err != nil {
		return nil, err
	}
	s.demo.processes = process.NewGroup(s.demo.dir)
	if err := s.demo.startKubernetes(ctx); err != nil {
		return s, err
	}
	if err := s.demo.kube.cluster.Apply(ctx, regionManifests); err != nil {
		return s, err
	}
	if _, err := s.demo.kube.cluster.Kubectl(
		ctx,
		"wait",
		"--for=condition=Established",
		"--timeout=300s",
		"crd",
		"ciliumnetworkpolicies.cilium.io",
	); err != nil {
		return s, err
	}
	if len(r.sides) > 0 {
		s.demo.admin = r.admin
		return s, nil
	}
	err := s.demo.startControlPlane(ctx)
	r.admin = s.demo.admin
	return s, err
}

// agents starts both agents of each region, each with its own service account.
func (r *regions) agents(ctx context.Context) error {
	for _, s := range r.sides {
		if err := s.demo.startAgent(ctx); err != nil {
			return err
		}
		if err := s.startKrane(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *side) startKrane(ctx context.Context) error {
	s.demo.display.step("Region " + s.region)
	var answer struct{ Token string }
	if err := s.demo.admin.do(
		ctx,
		http.MethodPut,
		"regions/reg_"+s.region,
		object{"name": s.region, "platform": "demo"},
		&answer,
	); err != nil {
		return err
	}
	token := filepath.Join(s.demo.dir, "region.token")
	if err := os.WriteFile(token, []byte(answer.Token), 0o600); err != nil {
		return err
	}
	port, err := process.Port(ctx)
	if err != nil {
		return err
	}
	config := filepath.Join(s.demo.dir, "krane.yaml")
	text := fmt.Sprintf(
		"instance_id: demo\ncluster: {region: %s, platform: demo, cell_id: %s-a}\ncontrol: {url: %q}\ntoken_file: %s\nrpc_port: %d\n",
		s.region,
		s.region,
		s.demo.admin.base,
		token,
		port,
	)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return err
	}
	program := filepath.Join(s.demo.programs, "krane")
	kubeconfig, err := s.demo.kube.agentAccess(ctx, program, s.demo.dir)
	if err != nil {
		return err
	}
	if s.krane, err = s.demo.processes.Run("krane-"+s.region, program, nil, "--config", config, "--kubeconfig", kubeconfig); err != nil {
		return err
	}
	if _, err := listening(ctx, s.krane); err != nil {
		return err
	}
	s.demo.display.done("registered, krane runs")
	return nil
}

// put sets a deployment of the region.
func (s *side) put(ctx context.Context, n int, state, image string) error {
	return s.demo.admin.do(ctx, http.MethodPut, s.path(n), object{
		"desired_state": state,
		"spec": object{
			"k8s_namespace": "ws-demo", "k8s_name": s.name(n), "workspace_id": "ws_demo", "project_id": "p", "app_id": "a", "environment_id": "e",
			"image": image, "cpu_millicores": "100", "memory_mib": "64", "port": 8080,
		},
	}, nil)
}

func (s *side) path(n int) string {
	return fmt.Sprintf("regions/reg_%s/deployments/d_%d-%s", s.region, n, s.region)
}

func (s *side) name(n int) string { return fmt.Sprintf("web-%d-%s", n, s.region) }

// fill puts deployments into both regions, and a project into both clusters.
func (r *regions) fill(ctx context.Context) error {
	r.display.step("Desired state")
	for _, s := range r.sides {
		for n := range wanted {
			if err := s.put(ctx, n, "running", r.image); err != nil {
				return err
			}
		}
		if err := s.demo.putProject(ctx, "demo-"+s.demo.clusterID[:4]); err != nil {
			return err
		}
	}
	r.display.done("%d deployments and 4 services in each of %d regions", wanted, len(r.sides))
	r.display.step("Pods")
	for _, s := range r.sides {
		if err := until(ctx, func() (bool, error) { return s.reported(ctx, wanted) }); err != nil {
			return err
		}
		if err := s.demo.settled(ctx, len(s.demo.services)*replicas); err != nil {
			return err
		}
	}
	r.display.done("all run, and the control plane knows")
	return nil
}

// reported asks the control plane whether want instances are reported to run.
func (s *side) reported(ctx context.Context, want int) (bool, error) {
	var view struct {
		Resources []struct {
			Instances []struct{ Status string }
		}
	}
	if err := s.demo.admin.do(ctx, http.MethodGet, "regions/reg_"+s.region, nil, &view); err != nil {
		return false, err
	}
	running := 0
	for _, resource := range view.Resources {
		for _, instance := range resource.Instances {
			if instance.Status == "running" {
				running++
			}
		}
	}
	return running == want, nil
}

var replicaSets = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"} //nolint:gochecknoglobals // a table

func (s *side) imageOf(ctx context.Context, n int) (string, error) {
	set, err := s.demo.kube.in(replicaSets, "ws-demo").Get(ctx, s.name(n), metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	containers, _, err := unstructured.NestedSlice(set.Object, "spec", "template", "spec", "containers")
	if err != nil || len(containers) == 0 {
		return "", errors.Join(err, errors.New("no containers"))
	}
	container, _ := containers[0].(object)
	image, _ := container["image"].(string)
	return image, nil
}

// edit changes images behind the agents' backs and waits until they are back.
func (r *regions) edit(ctx context.Context) error {
	r.display.step("Edits")
	start := time.Now()
	for _, s := range r.sides {
		patch := []byte(`[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"wrong"}]`)
		if _, err := s.demo.kube.in(replicaSets, "ws-demo").Patch(ctx, s.name(0), types.JSONPatchType, patch, metav1.PatchOptions{}); err != nil {
			return err
		}
		if err := until(ctx, func() (bool, error) {
			image, err := s.imageOf(ctx, 0)
			return image == r.image, err
		}); err != nil {
			return err
		}
	}
	r.display.done("an image in each region was changed by hand, both are back after %s", time.Since(start).Round(time.Millisecond))
	return nil
}

// outage kills the control plane as by kill -9, starts it again, and changes
// something.
func (r *regions) outage(ctx context.Context) error {
	r.display.step("Outage")
	first := r.sides[0]
	if err := first.demo.restartControlPlane(ctx); err != nil {
		return err
	}
	for _, s := range r.sides {
		if err := s.put(ctx, 1, "running", r.image+"-next"); err != nil {
			return err
		}
	}
	for _, s := range r.sides {
		if err := until(ctx, func() (bool, error) {
			image, err := s.imageOf(ctx, 1)
			return image == r.image+"-next", err
		}); err != nil {
			return err
		}
		sets, err := s.demo.kube.in(replicaSets, "ws-demo").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(sets.Items) != wanted {
			return fmt.Errorf("%d of %d deployments are left in %s", len(sets.Items), wanted, s.region)
		}
	}
	r.display.done("the control plane was killed and is back: nothing deleted, the next change came")
	return nil
}

// remove stops a deployment in each region and waits until it is deleted, in the
// cluster and in the reports.
func (r *regions) remove(ctx context.Context) error {
	r.display.step("Removal")
	for _, s := range r.sides {
		if err := s.demo.admin.do(ctx, http.MethodPut, s.path(0), object{"desired_state": "stopped"}, nil); err != nil {
			return err
		}
		if err := until(ctx, func() (bool, error) { return s.reported(ctx, wanted-1) }); err != nil {
			return err
		}
	}
	r.display.done("a deployment in each region was stopped: its pods are gone, and the control plane knows")
	return nil
}
