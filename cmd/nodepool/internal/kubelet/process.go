package kubelet

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/cloud/kube/nodes"
)

// offLimit bounds how long a machine that ends tells its cluster so.
const offLimit = 5 * time.Second

// Process is a machine that is this process, from one start to its end.
type Process struct {
	// ID, Type, Zone and Cloud are those of [Machine]. ID is required.
	ID, Type, Zone, Cloud string
	// Boot counts the starts, from 1: only the first warms up.
	Boot int
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
		return errors.New("kubelet: ID and Boot must be set")
	}
	m := Machine{
		ID: p.ID, Type: p.Type, Zone: p.Zone, Cloud: p.Cloud, Node: "node-" + p.ID, Arch: "amd64", IP: "127.0.0.1",
		BootID: string(uuid.NewUUID()),
	}
	cluster, err := NewCluster(p.Kubernetes, fields.OneTermEqualSelector("spec.nodeName", m.Node), p.Logger)
	if err != nil {
		return err
	}
	if m.Launch, err = Read(p.UserData); err != nil {
		cluster.log.WarnContext(ctx, "a machine that never joins", slog.String("instance", p.ID), slog.Any("err", err))
	}
	k := cluster.Add(m)
	on, off := context.WithCancel(ctx)
	defer off()
	var running sync.WaitGroup
	running.Go(func() { cluster.Run(on) })
	if m.Launch.Joins && k.Try(on, "joining", func() error { return k.Join(on) }) {
		running.Go(func() { k.Renew(on) })
		running.Go(func() { k.RunPods(on) })
		if p.Boot == 1 && m.Launch.Warms && k.Try(on, "attesting", func() error {
			return k.Attest(on, nodes.Attestation{BootID: m.BootID, Images: m.Launch.Images})
		}) && m.Launch.Stops {
			off()
		}
	}
	<-on.Done()
	running.Wait()
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), offLimit)
	defer cancel()
	k.Try(end, "saying that it is off", func() error { return k.Withdraw(end) })
	return nil
}
