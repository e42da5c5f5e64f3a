package machines

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"
)

// offLimit bounds how long a machine that ends tells its cluster so.
const offLimit = 5 * time.Second

// Process is a machine that is this process: it does what a machine of a [Simulator] does
// from one start to its end.
type Process struct {
	// Machine is what it is. Its Boot must be 1 at its first start: only then it warms up.
	Machine
	// UserData is what it was launched with.
	UserData string
	// Kubernetes is the cluster that it joins. Required.
	Kubernetes *rest.Config
	// Logger may be nil: silent.
	Logger *slog.Logger
}

// Start is the machine, until ctx ends or it stops itself.
func (p Process) Start(ctx context.Context) error {
	if p.ID == "" || p.Boot < 1 {
		return errors.New("machines: ID and Boot must be set")
	}
	r, err := (&Simulator{Kubernetes: p.Kubernetes, Logger: p.Logger}).newRun(fields.OneTermEqualSelector("spec.nodeName", "node-"+p.ID))
	if err != nil {
		return err
	}
	m := r.add(p.Machine, r.read(ctx, p.ID, p.UserData), "127.0.0.1")
	m.warmed = p.Boot > 1
	on, off := context.WithCancel(ctx)
	defer off()
	r.stop = func(context.Context, string) error {
		off()
		return nil
	}
	r.wait.Go(func() { r.pods.Run(on.Done()) })
	m.boot(on)
	<-on.Done()
	r.wait.Wait()
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), offLimit)
	defer cancel()
	m.off(end)
	return nil
}
