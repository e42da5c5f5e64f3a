package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/seed-9e1ffd66/trueup/internal/test/pgtest"
	"github.com/seed-9e1ffd66/trueup/internal/test/process"
)

// buildPrograms compiles the programs that the demo runs.
func (d *demo) buildPrograms(ctx context.Context) error {
	return build(ctx, d.display, d.dir, "cmd/controlplane", "cmd/shuttle")
}

// build compiles programs of this repository into dir.
func build(ctx context.Context, display *display, dir string, programs ...string) error {
	display.step("Programs")
	var names []string
	for _, program := range programs {
		name := path.Base(program)
		display.progress("compiling %s", name)
		cmd := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(dir, name), "github.com/seed-9e1ffd66/trueup/"+program)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("compiling %s: %w\n%s", name, err, out)
		}
		names = append(names, name)
	}
	display.done("%s compiled", strings.Join(names, ", "))
	return nil
}

// startControlPlane starts the control plane on a SQLite file.
func (d *demo) startControlPlane(ctx context.Context) error {
	d.display.step("Control plane")
	d.admin.token = randomToken()
	tokenFile := filepath.Join(d.dir, "admin.token")
	if err := os.WriteFile(tokenFile, []byte(d.admin.token), 0o600); err != nil {
		return err
	}
	if err := d.prepareDatabase(ctx); err != nil {
		return err
	}
	address, err := d.runControlPlane(ctx, "127.0.0.1:0")
	if err != nil {
		return err
	}
	d.admin.base = "http://" + address
	d.display.done("on %s, database %s", d.admin.base, d.database)
	return nil
}

// prepareDatabase chooses a file, or starts a PostgreSQL.
func (d *demo) prepareDatabase(ctx context.Context) (err error) {
	if d.database = filepath.Join(d.dir, "trueup.db"); !d.postgres {
		return nil
	}
	d.display.progress("starting PostgreSQL")
	if d.server, err = pgtest.Run(ctx, pgtest.Options{}); err != nil {
		return err
	}
	d.database = d.server.URL("demo")
	return d.server.SQL(ctx, "postgres", "CREATE DATABASE demo OWNER trueup")
}

func (d *demo) runControlPlane(ctx context.Context, listen string) (address string, err error) {
	d.starts++
	d.control, err = d.processes.Run(fmt.Sprintf("controlplane-%d", d.starts), filepath.Join(d.programs, "controlplane"), nil,
		"--listen", listen, "--metrics-bind-address", "", "--database", d.database, "--admin-token-file", filepath.Join(d.dir, "admin.token"))
	if err != nil {
		return "", err
	}
	return listening(ctx, d.control)
}

// restartControlPlane kills the control plane as by kill -9 and starts it again
// where it was.
func (d *demo) restartControlPlane(ctx context.Context) error {
	d.control.Kill()
	_, err := d.runControlPlane(ctx, strings.TrimPrefix(d.admin.base, "http://"))
	return err
}

// sweep is the interval of the agent in the demo, short so that three quiet
// sweeps take seconds. The default is 30 s.
const sweep = 2 * time.Second

// startAgent registers the cluster and starts the agent with its own service
// account.
func (d *demo) startAgent(ctx context.Context) error {
	d.display.step("Agent")
	token, err := d.admin.register(ctx, d.clusterID)
	if err != nil {
		return err
	}
	tokenFile := filepath.Join(d.dir, "cluster.token")
	if err := os.WriteFile(tokenFile, []byte(token), 0o600); err != nil {
		return err
	}
	kubeconfig, err := d.kube.agentAccess(ctx, filepath.Join(d.programs, "shuttle"), d.dir)
	if err != nil {
		return err
	}
	d.agent, err = d.processes.Run("shuttle", filepath.Join(d.programs, "shuttle"), []string{
		"STARFORM_STARBASE_URL=" + d.admin.base, "STARFORM_CLUSTER_ID=" + d.clusterID, "STARFORM_REGION=demo1",
		"STARFORM_AUTH_TOKEN_FILE=" + tokenFile, "STARFORM_METRICS_ADDR=127.0.0.1:0", "STARFORM_RECONCILE_INTERVAL=" + sweep.String(),
	}, "--kubeconfig", kubeconfig)
	if err != nil {
		return err
	}
	address, err := listening(ctx, d.agent)
	if err != nil {
		return err
	}
	d.metrics = "http://" + address + "/metrics"
	d.display.done("cluster %s registered, shuttle runs as %s", d.clusterID, agentUser)
	return nil
}

// listening waits for the log line with the address that a program listens on.
func listening(ctx context.Context, p *process.Process) (string, error) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return "", context.Cause(ctx)
		case <-p.Exited():
			return "", fmt.Errorf("%s ended: %w\n%s", p.Name, p.Err(), p.Tail())
		case <-tick.C:
		}
		data, err := os.ReadFile(p.Log)
		if err != nil {
			return "", err
		}
		for line := range strings.Lines(string(data)) {
			var entry struct{ Msg, Address string }
			if json.Unmarshal([]byte(line), &entry) == nil && entry.Msg == "listening" {
				return entry.Address, nil
			}
		}
	}
}

// admin speaks to the control plane's admin API.
type admin struct{ base, token string }

func (a *admin) do(ctx context.Context, method, path string, body, answer any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, method, a.base+"/api/v1/admin/"+path, strings.NewReader(string(data)))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+a.token)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		return err
	}
	if response.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("%s %s: %s: %s", method, path, response.Status, text)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(text, answer)
}

func (a *admin) register(ctx context.Context, cluster string) (token string, err error) {
	var answer struct{ Token string }
	err = a.do(ctx, http.MethodPut, "clusters/"+cluster, object{"region": "demo1"}, &answer)
	return answer.Token, err
}
