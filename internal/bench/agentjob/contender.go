package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/seed-9e1ffd66/trueup/internal/bench/benchfigures"
	"github.com/seed-9e1ffd66/trueup/internal/bench/benchobjects"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

// contender is an operator in a process of its own, with a namespace of the same name.
type contender struct {
	*observer

	name    string
	user    string // of its requests
	cluster *kubetest.Cluster
	admin   dynamic.Interface
	process *exec.Cmd
	round   int // of the image
}

// start makes the namespace and what the jobs refer to, and starts the process.
func start(
	ctx context.Context,
	cluster *kubetest.Cluster,
	admin dynamic.Interface,
	name string,
	wakes int,
	account types.NamespacedName,
	command func(kubeconfig string) *exec.Cmd,
) (*contender, error) {
	c := &contender{name: name, user: "system:serviceaccount:" + account.Namespace + ":" + account.Name, cluster: cluster, admin: admin}
	objects := []string{
		fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s}}", name),
		fmt.Sprintf("{apiVersion: v1, kind: Secret, metadata: {name: auth, namespace: %s}, stringData: {token: t0p-s3cret}}", name),
		c.runtime("runtime", "agent:0"), c.runtime("once", "agent:once"),
		c.object("AgentAuth", "auth", "{secretRef: {name: auth, key: token}}"),
		c.role("role", "Read"),
	}
	for n := range wakes {
		objects = append(objects, c.role(fmt.Sprint("role-", n), "Read"))
	}
	if err := cluster.Apply(ctx, strings.Join(objects, "\n---\n")); err != nil {
		return nil, err
	}
	_, kubeconfig, err := cluster.ServiceAccount(ctx, account.Namespace, account.Name)
	if err != nil {
		return nil, err
	}
	if c.observer, err = watch(ctx, admin, name); err != nil {
		return nil, err
	}
	c.process = command(kubeconfig)
	c.process.Stderr = os.Stderr
	return c, c.process.Start()
}

// stop ends the process.
func (c *contender) stop() {
	if c.process == nil || c.process.Process == nil {
		return
	}
	_ = c.process.Process.Signal(os.Interrupt)
	_ = c.process.Wait() // interrupted
}

func (c *contender) object(kind, name, spec string) string {
	return fmt.Sprintf("{apiVersion: %s, kind: %s, metadata: {name: %s, namespace: %s}, spec: %s}", groupVersion(), kind, name, c.name, spec)
}

func (c *contender) runtime(name, image string) string {
	return c.object("AgentRuntime", name, "{image: '"+image+"', authEnvVar: AGENT_TOKEN, configPath: /etc/agent, persistPath: /data}")
}

func (c *contender) role(name, tool string) string {
	return c.object("AgentRole", name, "{allowedTools: ['Bash(git *)', '"+tool+"']}")
}

// create makes AgentJobs, eight at a time.
func (c *contender) create(ctx context.Context, n int, next func(i int) (name string, spec map[string]any)) error {
	return benchobjects.Each(n, 8, func(i int) error {
		name, spec := next(i)
		job := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": groupVersion().String(), "kind": "AgentJob", "metadata": map[string]any{"name": name, "namespace": c.name}, "spec": spec,
		}}
		_, err := c.admin.Resource(agents("agentjobs")).Namespace(c.name).Create(ctx, job, metav1.CreateOptions{})
		return err
	})
}

// edit replaces a field of an object's spec, and returns when the server has answered.
func (c *contender) edit(ctx context.Context, kind schema.GroupVersionResource, name, patch string) (answered time.Time, err error) {
	_, err = c.admin.Resource(kind).Namespace(c.name).Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return time.Now(), err
}

// converge changes the image for all jobs, and returns how long it takes until all
// CronJobs have it and all statuses follow.
func (c *contender) converge(ctx context.Context, jobs int) (time.Duration, error) {
	c.round++
	image := fmt.Sprint("agent:", c.round)
	c.mu.Lock()
	before := c.template()
	c.mu.Unlock()
	begun := time.Now()
	if _, err := c.edit(ctx, agents("agentruntimes"), "runtime", `{"spec":{"image":"`+image+`"}}`); err != nil {
		return 0, err
	}
	err := c.await(ctx, "the image "+image, func() bool {
		written := 0
		for _, is := range c.images {
			if is == image {
				written++
			}
		}
		if written < jobs {
			return false
		}
		for _, job := range c.jobs {
			if job.template == before || !job.ready {
				return false
			}
		}
		return true
	})
	return time.Since(begun), err
}

// template returns the hash that all jobs have, "" if they differ.
func (c *contender) template() (hash string) {
	for _, job := range c.jobs {
		if hash != "" && hash != job.template {
			return ""
		}
		hash = job.template
	}
	return hash
}

// silent waits until the contender has sent nothing for two seconds.
func (c *contender) silent(ctx context.Context) error {
	last, since := -1, time.Now()
	for {
		all, err := c.requests()
		if err != nil {
			return err
		}
		if len(all) != last {
			last, since = len(all), time.Now()
		}
		if time.Since(since) > 2*time.Second {
			return nil
		}
		if !pause(ctx, 500*time.Millisecond) {
			return ctx.Err()
		}
	}
}

// requests returns those of the audit log, without lists and watches.
func (c *contender) requests() (all []kubetest.Request, err error) {
	sent, err := c.cluster.Requests(c.user)
	for _, r := range sent {
		if r.Verb != "list" && r.Verb != "watch" && r.Resource != "" {
			all = append(all, r)
		}
	}
	return all, err
}

// residentMiB returns the memory of the process, where that is Linux.
func (c *contender) residentMiB() (float64, error) {
	memory, err := benchfigures.MemoryOf(c.process.Process.Pid)
	return memory.Resident / (1 << 20), err
}

// pause waits, and reports whether ctx has not ended.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// established waits until a kind is served.
func established(ctx context.Context, admin dynamic.Interface, kind schema.GroupVersionResource) error {
	for {
		_, err := admin.Resource(kind).List(ctx, metav1.ListOptions{Limit: 1})
		if err == nil {
			return nil
		}
		if !apierrors.IsNotFound(err) || !pause(ctx, 50*time.Millisecond) {
			return fmt.Errorf("%s: %w", kind.Resource, err)
		}
	}
}
