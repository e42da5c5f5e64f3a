package kubetest

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/internal/test/modbuild"
	"github.com/seed-9e1ffd66/trueup/internal/test/process"
)

// Options say what runs beside etcd and kube-apiserver. The zero value is a
// bare API server, which is ready in about two seconds.
type Options struct {
	// Controllers runs kube-controller-manager: Deployments get pods, deleted
	// namespaces empty themselves, owners are collected.
	Controllers bool
	// Scheduler runs kube-scheduler.
	Scheduler bool
	// Nodes is how many simulated nodes run pods (32 cpu, 256Gi, 110 pods each).
	Nodes int
	// Stages are more stages of kwok as YAML documents: what happens to pods on the
	// simulated nodes. One replaces the standard one of its name. Empty: pods run at
	// once, and those of Jobs succeed at once.
	Stages string
	// GatewayAPI installs the Gateway API's standard CustomResourceDefinitions.
	GatewayAPI bool
	// Progress receives the progress of a first build. Nil: os.Stderr.
	Progress io.Writer
}

// Cluster is a running Kubernetes. Its methods may be used concurrently.
type Cluster struct {
	// Config reaches the API server as a member of system:masters, without
	// client-side rate limit. Copy it before changing it.
	Config *rest.Config
	// Kubeconfig is a file with the same access.
	Kubeconfig string
	// Dir holds the logs of the processes (<program>.log) and their data. It is
	// removed by Stop.
	Dir string

	options   Options
	programs  programs
	processes *process.Group
	server    *process.Process
	ports     ports
	token     string
	unlock    func()
	served    served
}

type ports struct{ client, peer, api int }

// errPortTaken says that another process took a port between its choice and
// its use.
var errPortTaken = errors.New("port taken")

// errFolderTaken says that another start took the new folder for an abandoned
// one, before it was locked.
var errFolderTaken = errors.New("folder removed")

const lockName = "lock"

// readyLimit bounds a start after the first build, so that a test fails with a
// reason before go test's own limit ends it without one.
const readyLimit = 3 * time.Minute

// Run starts a cluster and returns once its API server is ready, the Gateway API
// is established, the nodes exist, and the other processes have begun. The
// caller must call Stop. The context bounds the start, not the life of the
// cluster; a start that takes over three minutes fails.
func Run(ctx context.Context, options Options) (*Cluster, error) {
	if options.Progress == nil {
		options.Progress = os.Stderr
	}
	needed := []string{etcd, apiServer, kubectl}
	if options.Controllers {
		needed = append(needed, controllerManager)
	}
	if options.Scheduler {
		needed = append(needed, scheduler)
	}
	if options.Nodes > 0 {
		needed = append(needed, kwok, kwokStages)
	}
	if options.GatewayAPI {
		needed = append(needed, gatewayAPI)
	}
	found, err := findPrograms(ctx, options.Progress, needed...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	for {
		c := &Cluster{options: options, programs: found}
		err := c.start(ctx)
		if err == nil {
			return c, nil
		}
		c.Stop()
		if !errors.Is(err, errPortTaken) && !errors.Is(err, errFolderTaken) {
			return nil, fmt.Errorf("kubetest: %w", err)
		}
	}
}

// Stop ends the cluster's processes and removes its folder. Calling it again does
// nothing.
func (c *Cluster) Stop() {
	if c.processes != nil {
		c.processes.Close()
	}
	if c.unlock != nil {
		os.RemoveAll(c.Dir) //nolint:errcheck // the next start tries again
		c.unlock()
	}
}

func (c *Cluster) start(ctx context.Context) error {
	if err := c.prepare(ctx); err != nil {
		return err
	}
	if err := c.startControlPlane(ctx); err != nil {
		return err
	}
	if err := c.startControllers(); err != nil {
		return err
	}
	if c.options.GatewayAPI {
		if err := c.installGatewayAPI(ctx); err != nil {
			return err
		}
	}
	if c.options.Nodes > 0 {
		return c.startNodes(ctx)
	}
	return nil
}

// prepare makes the cluster's folder and the files that the processes read.
func (c *Cluster) prepare(ctx context.Context) error {
	parent := filepath.Join(os.TempDir(), "trueup-kube-"+strconv.Itoa(os.Getuid()))
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return err
	}
	process.RemoveAbandoned(filepath.Join(parent, "*", lockName))
	dir, err := os.MkdirTemp(parent, "cluster-")
	if err != nil {
		return err
	}
	c.Dir = dir
	if c.unlock, err = modbuild.Lock(ctx, filepath.Join(dir, lockName)); err != nil {
		return lockError(dir, err)
	}
	c.processes = process.NewGroup(dir)

	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	encoded := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	secret := make([]byte, 16)
	rand.Read(secret)
	c.token = hex.EncodeToString(secret)
	return errors.Join(
		c.write("service-account.key", string(encoded)),
		c.write("tokens.csv", c.token+`,admin,admin,"system:masters"`+"\n"),
		c.write("audit-policy.yaml", auditPolicy),
		c.choosePorts(ctx),
	)
}

// lockError removes the folder, which is not ours without its lock.
func lockError(dir string, err error) error {
	os.RemoveAll(dir) //nolint:errcheck // it may be gone
	if errors.Is(err, fs.ErrNotExist) {
		return errFolderTaken
	}
	return err
}

func (c *Cluster) write(name, content string) error {
	return os.WriteFile(filepath.Join(c.Dir, name), []byte(content), 0o600)
}

// choosePorts keeps the ports of a stopped server free until it is started again.
func (c *Cluster) choosePorts(ctx context.Context) (err error) {
	chosen := map[int]bool{}
	for _, port := range []*int{&c.ports.client, &c.ports.peer, &c.ports.api} {
		for *port == 0 || chosen[*port] {
			if *port, err = process.Port(ctx); err != nil {
				return err
			}
		}
		chosen[*port] = true
	}
	return nil
}

func (c *Cluster) startControlPlane(ctx context.Context) error {
	client := fmt.Sprintf("http://127.0.0.1:%d", c.ports.client)
	peer := fmt.Sprintf("http://127.0.0.1:%d", c.ports.peer)
	store, err := c.processes.Run(etcd, c.programs.path(etcd), nil,
		"--data-dir", filepath.Join(c.Dir, "etcd"), "--unsafe-no-fsync", "--log-level", "warn",
		"--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer)
	if err != nil {
		return err
	}
	c.Config = &rest.Config{
		Host:            fmt.Sprintf("https://127.0.0.1:%d", c.ports.api),
		BearerToken:     c.token,
		TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(c.Dir, "apiserver.crt")},
		QPS:             -1,
	}
	if err := c.startServer(); err != nil {
		return err
	}
	if err := c.waitReady(ctx, store, c.server); err != nil {
		return err
	}
	c.Kubeconfig = filepath.Join(c.Dir, "admin.kubeconfig")
	return c.writeKubeconfig(c.Kubeconfig, c.Config)
}

func (c *Cluster) startServer() (err error) {
	c.server, err = c.processes.Run(
		apiServer,
		c.programs.path(apiServer),
		nil,
		"--etcd-servers",
		fmt.Sprintf("http://127.0.0.1:%d", c.ports.client),
		"--bind-address",
		"127.0.0.1",
		"--secure-port",
		strconv.Itoa(c.ports.api),
		"--cert-dir",
		c.Dir,
		"--service-account-key-file",
		"service-account.key",
		"--service-account-signing-key-file",
		"service-account.key",
		"--service-account-issuer",
		"https://kubernetes.default.svc",
		"--service-cluster-ip-range",
		"10.96.0.0/16",
		"--token-auth-file",
		"tokens.csv",
		"--authorization-mode",
		"RBAC",
		"--audit-policy-file",
		"audit-policy.yaml",
		"--audit-log-path",
		filepath.Join(c.Dir, auditLog),
		"--audit-log-mode",
		"blocking",
		// In MB. The default is 100, and rotated entries would be missing.
		"--audit-log-maxsize",
		"1000000",
	)
	return err
}

// StopServer kills the API server, and with it all connections to it. What it has stored
// stays. It must not be called concurrently with StartServer.
func (c *Cluster) StopServer() { c.server.Kill() }

// StartServer starts the API server again after StopServer, at the same address, and
// returns once it is ready.
func (c *Cluster) StartServer(ctx context.Context) error {
	if err := c.startServer(); err != nil {
		return fmt.Errorf("kubetest: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	if err := c.waitReady(ctx, c.server); err != nil {
		return fmt.Errorf("kubetest: %w", err)
	}
	return nil
}

// waitReady polls /readyz, and gives up when the context ends or one of the
// processes does.
func (c *Cluster) waitReady(ctx context.Context, needed ...*process.Process) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for last := errors.New("not asked yet"); ; {
		for _, p := range needed {
			select {
			case <-p.Exited():
				return exitError(p)
			default:
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w (%w)\n%s", apiServer, ctx.Err(), last, needed[len(needed)-1].Tail())
		case <-tick.C:
		}
		if last = c.ready(ctx); last == nil {
			return nil
		}
	}
}

func (c *Cluster) ready(ctx context.Context) error {
	client, err := rest.HTTPClientFor(c.Config)
	if err != nil {
		return err // the certificate is not there yet
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.Config.Host+"/readyz", http.NoBody)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // only the status counts
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("/readyz: %s", response.Status)
	}
	return nil
}
