package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/seed-9e1ffd66/trueup/internal/test/kubetest"
)

// quietSweeps is over how many sweeps the demo counts requests.
const quietSweeps = 3

// quiet waits until the agent is at rest and then counts what it sends
// to the API server over some sweeps. Watches are connections that stay open.
func (d *demo) quiet(ctx context.Context) error {
	d.display.step("Rest")
	d.display.progress("waiting for a sweep that sends nothing")
	for {
		idle, err := d.sweeps(ctx, 1)
		if err != nil {
			return err
		}
		if idle == 0 {
			break
		}
	}
	sent, err := d.sweeps(ctx, quietSweeps)
	if err != nil {
		return err
	}
	d.display.done("%d requests to the API server in %d sweeps", sent, quietSweeps)
	if sent > 0 && d.kube.cluster != nil {
		if err := d.showLastRequests(sent); err != nil {
			return err
		}
	}
	d.note("demo_requests_at_rest", float64(sent), "requests", "requests to the API server in %d quiet sweeps", quietSweeps)
	d.restless = sent > 0
	return nil
}

// showLastRequests prints the last requests at rest.
func (d *demo) showLastRequests(n int) error {
	all, err := d.kube.cluster.Requests(agentUser)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(r kubetest.Request) bool { return r.Verb == "watch" })
	for _, r := range all[max(0, len(all)-n):] {
		d.display.print("  " + r.String())
	}
	return nil
}

// sweeps lets the agent make n more passes and returns how many requests it
// sent meanwhile: by the API server's audit log where the cluster is the
// demo's own, by the agent's metrics elsewhere.
func (d *demo) sweeps(ctx context.Context, n int) (requests int, err error) {
	passes, _, err := d.agentCounters(ctx)
	if err != nil {
		return 0, err
	}
	before, err := d.agentRequests(ctx)
	if err != nil {
		return 0, err
	}
	err = until(ctx, func() (bool, error) {
		now, _, err := d.agentCounters(ctx)
		d.display.progress("sweep %d of %d", int(now-passes), n)
		return int(now-passes) >= n, err
	})
	if err != nil {
		return 0, err
	}
	after, err := d.agentRequests(ctx)
	return after - before, err
}

func (d *demo) agentRequests(ctx context.Context) (int, error) {
	if d.kube.cluster == nil {
		_, requests, err := d.agentCounters(ctx)
		return int(requests), err
	}
	all, err := d.kube.cluster.Requests(agentUser)
	n := 0
	for _, r := range all {
		if r.Verb != "watch" {
			n++
		}
	}
	return n, err
}

// agentCounters reads the passes and the requests other than watches.
func (d *demo) agentCounters(ctx context.Context) (passes, requests float64, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, d.metrics, http.NoBody)
	if err != nil {
		return 0, 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, 0, fmt.Errorf("metrics of the agent: %w", err)
	}
	text, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		return 0, 0, fmt.Errorf("metrics of the agent: %w", err)
	}
	passes, err = readMetric(string(text), "starform_passes_total", func(string) bool { return true })
	if err != nil {
		return 0, 0, err
	}
	requests, err = readMetric(string(text), "rest_client_requests_total", func(labels string) bool {
		// A kind that the cluster does not have is looked for now and then.
		missing := !d.kube.routes && strings.Contains(labels, `resource="httproutes"`)
		return !missing && !strings.Contains(labels, `verb="watch"`)
	})
	return passes, requests, err
}
