package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/seed-9e1ffd66/trueup/internal/test/pgtest"
	"github.com/seed-9e1ffd66/trueup/internal/test/process"
)

// demo is one run.
type demo struct {
	keep, postgres bool
	context, image string
	display        *display

	dir       string
	programs  string // where they are
	processes *process.Group
	admin     admin
	kube      kube
	database  string         // path or URL
	server    *pgtest.Server // of the database; nil: a file
	control   *process.Process
	starts    int // of the control plane
	agent     *process.Process
	metrics   string // URL of the agent's metrics
	clusterID string
	services  []service
	figures   []figure
	restless  bool // requests were sent at rest
}

// service is one that the demo puts in.
type service struct{ project, namespace, environment, id, name string }

type figure struct {
	name  string
	value float64
	unit  string
	text  string
}

const (
	projects = 3
	replicas = 2
)

// run does the whole demo.
func (d *demo) run(ctx context.Context) (err error) {
	if d.dir, err = os.MkdirTemp("", "trueup-demo-"); err != nil {
		return err
	}
	d.programs = d.dir
	d.processes = process.NewGroup(d.dir)
	d.clusterID = randomUUID()
	defer func() {
		if err != nil && d.agent != nil {
			err = fmt.Errorf("%w\nlast lines of the agent:\n%s", err, d.agent.Tail())
		}
		err = errors.Join(err, d.stop(ctx))
	}()
	if err := d.buildPrograms(ctx); err != nil {
		return err
	}
	if err := d.startKubernetes(ctx); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done within %s", limit))
	defer cancel()
	start := time.Now()
	for _, step := range []func(context.Context) error{
		d.startControlPlane, d.startAgent, d.fill, d.drift, d.remove, d.quiet,
	} {
		if err := step(bounded); err != nil {
			return err
		}
	}
	d.summary(time.Since(start))
	if d.keep {
		d.explain()
		<-ctx.Done()
	}
	if d.restless {
		return errors.New("the agent sent requests although nothing had changed")
	}
	return nil
}

// stop ends everything that the demo started.
func (d *demo) stop(ctx context.Context) error {
	var err error
	if d.agent != nil {
		err = d.agent.Stop(20 * time.Second)
	}
	d.processes.Close()
	if d.server != nil {
		d.server.Stop()
	}
	switch {
	case d.kube.cluster != nil:
		d.kube.cluster.Stop()
	case d.kube.client != nil:
		after, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		err = errors.Join(err, d.kube.cleanUp(after, d.selector()))
	}
	return errors.Join(err, os.RemoveAll(d.dir))
}

// selector selects what the agent of this demo manages.
func (d *demo) selector() string { return "starform.io/cluster-id=" + d.clusterID }

// fill puts in the desired state and waits until all pods run.
func (d *demo) fill(ctx context.Context) error {
	d.display.step("Desired state")
	start := time.Now()
	for p := range projects {
		if err := d.putProject(ctx, fmt.Sprintf("demo-%d-%s", p+1, d.clusterID[:4])); err != nil {
			return err
		}
	}
	want := len(d.services) * replicas
	d.display.done("%d projects x 2 environments x 2 services, %d pods wanted", projects, want)

	d.display.step("Pods")
	if err := d.settled(ctx, want); err != nil {
		return err
	}
	seconds := time.Since(start).Seconds()
	d.display.done("%d of %d running", want, want)
	d.note("demo_pods_running", float64(want), "pods", "pods run of %d wanted", want)
	d.note("demo_seconds_to_running", seconds, "s", "seconds from the first write to the control plane until all pods run")
	return nil
}

func (d *demo) putProject(ctx context.Context, slug string) error {
	project, workspace := randomUUID(), randomUUID()
	var answer struct{ Namespace string }
	err := d.admin.do(ctx, http.MethodPut, "projects/"+project, object{
		"cluster_id": d.clusterID, "workspace_id": workspace, "workspace_slug": "demo", "slug": slug,
	}, &answer)
	if err != nil {
		return err
	}
	for _, name := range []string{"web", "api"} {
		id := randomUUID()
		for _, environment := range []string{"production", "staging"} {
			body := object{
				"service_name": name, "image": d.image, "replicas": replicas, "tier": "nova",
				"env":       object{"GREETING": "hello", "ENVIRONMENT": environment},
				"ports":     []any{object{"container_port": 8080, "protocol": "TCP"}},
				"resources": object{"requests": object{"cpu": "0.01", "memory": "16Mi"}},
			}
			if name == "web" && d.kube.routes {
				body["hostname"] = environment + "." + slug + ".example.com"
			}
			if err := d.admin.do(ctx, http.MethodPut, "projects/"+project+"/services/"+id+"/"+environment, body, nil); err != nil {
				return err
			}
			d.services = append(d.services, service{project, answer.Namespace, environment, id, name})
		}
	}
	return nil
}

// note keeps a figure for the summary.
func (d *demo) note(name string, value float64, unit, format string, args ...any) {
	d.figures = append(d.figures, figure{name, value, unit, fmt.Sprintf(format, args...)})
}

func (d *demo) summary(took time.Duration) {
	lines := []string{"", "Summary"}
	for _, f := range d.figures {
		lines = append(lines, fmt.Sprintf("  %8.4g %s", f.value, f.text))
	}
	lines = append(lines, fmt.Sprintf("  %8.4g seconds in all", took.Seconds()), "")
	for _, f := range d.figures {
		lines = append(lines, fmt.Sprintf("figure %s %.4g %s", f.name, f.value, f.unit))
	}
	d.display.print(lines...)
}

// explain prints how to inspect what keeps running.
func (d *demo) explain() {
	see := "kubectl --context " + d.context
	if c := d.kube.cluster; c != nil {
		see = "KUBECONFIG=" + c.Kubeconfig + " kubectl"
	}
	auth := `curl -H "Authorization: Bearer $(cat ` + filepath.Join(d.dir, "admin.token") + `)" ` + d.admin.base
	d.display.print("", "Everything keeps running until you press Ctrl-C. Look at it:",
		"  "+see+" get pods -A -l "+d.selector(),
		"  "+see+" delete deployment -n "+d.services[0].namespace+" --all    # and see them come back",
		"  "+auth+"/api/v1/admin/clusters/"+d.clusterID,
		"  curl "+d.metrics,
		"  tail -f "+d.agent.Log)
}

func randomToken() string {
	b := make([]byte, 32)
	rand.Read(b) //nolint:gosec // never fails
	return hex.EncodeToString(b)
}

// randomUUID returns a UUID of version 4.
func randomUUID() string {
	b := make([]byte, 16)
	rand.Read(b) //nolint:gosec // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	h := hex.EncodeToString(b)
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
