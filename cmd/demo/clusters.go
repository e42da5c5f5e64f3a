package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

// clusters is the demo of the control plane and the cluster agent.
type clusters struct {
	demo  *demo
	plane controlPlane
	image string

	id       string // of the cluster
	user     string // of the agent
	metrics  string // address of the agent's
	projects []string
	pods     int       // that are wanted
	began    time.Time // the first write to the control plane
}

const (
	projects = 3
	replicas = 2
	// sweep is the interval of the agent, short so that three quiet sweeps take seconds. The
	// default is 30 s.
	sweep = 2 * time.Second
)

func newClusters(d *demo) *clusters {
	return &clusters{demo: d, plane: controlPlane{demo: d}, id: string(uuid.NewUUID())}
}

func clustersCommand() *cobra.Command {
	c := newClusters(newDemo())
	command := c.demo.command(story{
		use:        "demo",
		short:      "Show the control plane and the cluster agent at work on a real Kubernetes",
		programs:   []string{"controlplane", "shuttle"},
		kubernetes: kubetest.Options{Controllers: true, Scheduler: true, Nodes: 2, GatewayAPI: true},
		stages: []stage{
			{"Control plane", c.plane.start},
			{"Agent", c.startAgent},
			{"Desired state", c.fill},
			{"Pods", c.run},
			{"Drift", c.drift},
			{"Rest", c.rest},
		},
		end:  []stage{{"Removal", c.remove}},
		look: c.look,
	})
	command.Flags().BoolVar(&c.plane.postgres, "postgres", false, "keep everything in a PostgreSQL that the demo starts, not in a SQLite file")
	command.Flags().StringVar(&c.demo.context, "context", "", "use this context of the kubeconfig instead of starting a cluster")
	command.Flags().StringVar(&c.image, "image", pauseImage, "image that the services run")
	return command
}

const pauseImage = "registry.k8s.io/pause:3.10"

// startAgent registers the cluster and starts the agent with its own service account.
func (c *clusters) startAgent(ctx context.Context) (string, error) {
	tokenFile, err := c.plane.register(ctx, "clusters/"+c.id, object{"region": "demo1"})
	if err != nil {
		return "", err
	}
	var kubeconfig string
	if c.user, kubeconfig, err = c.demo.install(
		ctx, "shuttle", "--starbase-url", c.plane.base, "--cluster-id", c.id, "--region", "demo1",
	); err != nil {
		return "", err
	}
	if c.demo.cluster == nil {
		c.demo.ends = append(c.demo.ends, c.removeNamespaces)
	}
	_, c.metrics, err = c.demo.start(ctx, "shuttle", "", []string{
		"STARFORM_STARBASE_URL=" + c.plane.base, "STARFORM_CLUSTER_ID=" + c.id, "STARFORM_REGION=demo1",
		"STARFORM_AUTH_TOKEN_FILE=" + tokenFile, "STARFORM_METRICS_ADDR=127.0.0.1:0", "STARFORM_RECONCILE_INTERVAL=" + sweep.String(),
	}, "--kubeconfig", kubeconfig)
	return "cluster " + c.id + " registered, shuttle runs as " + c.user, err
}

// ours selects what the agent of this demo manages.
func (c *clusters) ours() metav1.ListOptions {
	return metav1.ListOptions{LabelSelector: "starform.io/cluster-id=" + c.id}
}

// fill puts projects into the control plane.
func (c *clusters) fill(ctx context.Context) (string, error) {
	c.began = time.Now()
	for range projects {
		if err := c.putProject(ctx); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%d projects x 2 environments x 2 services, %d pods wanted", projects, c.pods), nil
}

func (c *clusters) putProject(ctx context.Context) error {
	project := "projects/" + string(uuid.NewUUID())
	err := c.plane.do(ctx, http.MethodPut, project, object{
		"cluster_id": c.id, "workspace_id": uuid.NewUUID(), "workspace_slug": "demo",
		"slug": fmt.Sprintf("demo-%d-%s", len(c.projects)+1, c.id[:4]),
	}, nil)
	if err != nil {
		return err
	}
	c.projects = append(c.projects, project)
	for _, name := range []string{"web", "api"} {
		id := string(uuid.NewUUID())
		for _, environment := range []string{"production", "staging"} {
			if err := c.plane.do(ctx, http.MethodPut, project+"/services/"+id+"/"+environment, object{
				"service_name": name, "image": c.image, "replicas": replicas, "tier": "nova",
				"env":       object{"GREETING": "hello", "ENVIRONMENT": environment},
				"ports":     []any{object{"container_port": 8080, "protocol": "TCP"}},
				"resources": object{"requests": object{"cpu": "0.01", "memory": "16Mi"}},
			}, nil); err != nil {
				return err
			}
			c.pods += replicas
		}
	}
	return nil
}

// run waits until all pods run.
func (c *clusters) run(ctx context.Context) (string, error) {
	if err := c.runs(ctx, c.pods); err != nil {
		return "", err
	}
	c.demo.note("demo_pods_running", float64(c.pods), "pods")
	c.demo.note("demo_seconds_to_running", time.Since(c.began).Seconds(), "s")
	return fmt.Sprintf("%d of %d running", c.pods, c.pods), nil
}

// runs waits until exactly so many pods are there and run.
func (c *clusters) runs(ctx context.Context, want int) error {
	return until(ctx, func() (bool, error) {
		pods, err := c.demo.typed.CoreV1().Pods("").List(ctx, c.ours())
		if err != nil {
			return false, err
		}
		running := 0
		for i := range pods.Items {
			if p := &pods.Items[i]; p.Status.Phase == "Running" && p.DeletionTimestamp == nil {
				running++
			}
		}
		c.demo.display.progress("%s", podsSoFar(running, len(pods.Items), want))
		return running == want && len(pods.Items) == want, nil
	})
}

// podsSoFar is how far the pods are that are to run, or where none is wanted, to go.
func podsSoFar(running, there, want int) string {
	if want == 0 {
		return fmt.Sprintf("%d pods left", there)
	}
	return fmt.Sprintf("%d of %d pods running", running, want)
}

// drift edits a Deployment and deletes one, and measures how fast they are as before.
func (c *clusters) drift(ctx context.Context) (string, error) {
	edit, err := c.repair(ctx, `{"spec":{"replicas":0}}`)
	if err != nil {
		return "", err
	}
	deletion, err := c.repair(ctx, "")
	c.demo.note("demo_drift_repair_ms_max", 1000*max(edit, deletion).Seconds(), "ms")
	return fmt.Sprintf("a scaled Deployment is as before after %s, a deleted one after %s", edit, deletion),
		errors.Join(err, c.runs(ctx, c.pods))
}

// repair patches or deletes a Deployment, and returns the time until a watch has shown its spec
// as it was.
func (c *clusters) repair(ctx context.Context, patch string) (time.Duration, error) {
	all, err := c.demo.typed.AppsV1().Deployments("").List(ctx, c.ours())
	if err != nil || len(all.Items) == 0 {
		return 0, fmt.Errorf("%d Deployments: %w", len(all.Items), err)
	}
	before := all.Items[0]
	deployments := c.demo.typed.AppsV1().Deployments(before.Namespace)
	watcher, err := deployments.Watch(ctx, metav1.ListOptions{
		FieldSelector: "metadata.name=" + before.Name, ResourceVersion: all.ResourceVersion,
	})
	if err != nil {
		return 0, err
	}
	defer watcher.Stop()
	start := time.Now()
	if patch == "" {
		err = deployments.Delete(ctx, before.Name, metav1.DeleteOptions{})
	} else {
		_, err = deployments.Patch(ctx, before.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "another"})
	}
	if err != nil {
		return 0, err
	}
	changed := false
	for event := range watcher.ResultChan() {
		now, ok := event.Object.(*appsv1.Deployment)
		same := ok && event.Type != watch.Deleted && equality.Semantic.DeepEqual(now.Spec, before.Spec)
		if changed && same {
			return time.Since(start).Round(100 * time.Microsecond), nil
		}
		changed = changed || !same
	}
	return 0, fmt.Errorf("%s was not repaired: %w", before.Name, context.Cause(ctx))
}

// rest counts requests over three sweeps: by the API server's audit log where the cluster is
// the demo's own, by the agent's metrics elsewhere.
func (c *clusters) rest(ctx context.Context) (string, error) {
	const window = 4 * sweep // a sweep may come a fifth later
	return c.demo.rest(ctx, "demo_requests_at_rest", "requests to the API server", window, func() (n int, err error) {
		if c.demo.cluster != nil {
			return c.demo.requests(nil, c.user)
		}
		samples, err := scrape(ctx, c.metrics)
		for _, s := range samples {
			// A kind that the cluster does not have is looked for now and then.
			if s.Metric["__name__"] == "rest_client_requests_total" && s.Metric["verb"] != "watch" && s.Metric["resource"] != "httproutes" {
				n += int(s.Value)
			}
		}
		return n, err
	})
}

// remove takes the projects out of the desired state until nothing of them is left.
func (c *clusters) remove(ctx context.Context) (string, error) {
	for _, project := range c.projects {
		if err := c.plane.do(ctx, http.MethodDelete, project, nil, nil); err != nil {
			return "", err
		}
	}
	err := c.runs(ctx, 0)
	if err == nil {
		err = until(ctx, func() (bool, error) {
			left, err := c.demo.typed.CoreV1().Namespaces().List(ctx, c.ours())
			return err == nil && len(left.Items) == 0, err
		})
	}
	return "the projects were deleted: their pods and namespaces are gone", err
}

// removeNamespaces removes what a demo that was kept or has failed leaves in a user's cluster.
func (c *clusters) removeNamespaces(ctx context.Context) error {
	namespaces, err := c.demo.typed.CoreV1().Namespaces().List(ctx, c.ours())
	for i := range namespaces.Items {
		if err == nil {
			err = c.demo.typed.CoreV1().Namespaces().Delete(ctx, namespaces.Items[i].Name, metav1.DeleteOptions{})
		}
	}
	return err
}

// look returns commands to look at what is kept.
func (c *clusters) look() []string {
	ours := " -A -l " + c.ours().LabelSelector
	return []string{
		c.demo.see() + "get pods" + ours,
		c.demo.see() + "delete deployment" + ours + "    # and see them come back",
		c.plane.curl() + "clusters/" + c.id,
		"curl http://" + c.metrics + "/metrics",
	}
}
