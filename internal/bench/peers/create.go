package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/seed-9e1ffd66/trueup/internal/bench/benchfigures"
)

// create measures how fast objects are created, in rounds on new namespaces, and
// what a repair costs.
func (b *bench) create(ctx context.Context) error {
	t, err := startTrueup(ctx, b.side("trueup"), nil)
	if err != nil {
		return err
	}
	defer t.stop()
	peers, stop, err := b.startPeers(ctx)
	defer stop()
	if err != nil {
		return err
	}
	contenders := []contender{t}
	for _, peer := range peers {
		// One request after the other is not what it is compared with here.
		if peer.own().name != "plain_1" && peer.own().name != "flux_1" {
			contenders = append(contenders, peer)
		}
	}
	// The first round warms clients and server and does not count.
	rates := make([][]float64, len(contenders))
	for round := range b.rounds + 1 {
		for turn := range contenders {
			i := (round + turn) % len(contenders)
			took, err := b.createRound(ctx, contenders[i], round)
			if err != nil {
				return fmt.Errorf("%s: %w", contenders[i].own().name, err)
			}
			if round > 0 {
				rates[i] = append(rates[i], float64(b.created)/took.Seconds())
			}
		}
	}
	for i, c := range contenders {
		b.book.Add(c.own().name+".create_rate", benchfigures.Percentile(rates[i], 0.5), "objects/s")
		if i > 0 {
			// Of one round each, so that what slows the whole machine cancels out.
			b.book.Add("of_"+c.own().name+".create_rate_ratio", benchfigures.Percentile(benchfigures.Ratios(rates[0], rates[i]), 0.5), "x")
		}
	}
	for _, c := range contenders {
		if err := b.repair(ctx, c); err != nil {
			return fmt.Errorf("%s: repair: %w", c.own().name, err)
		}
	}
	return nil
}

// createRound has a contender create objects in a namespace of its own. What is
// prepared once for a desired state is part of the time.
func (b *bench) createRound(ctx context.Context, c contender, round int) (time.Duration, error) {
	objects, err := b.mix(ctx, fmt.Sprintf("create-%s-%d", namespaced(c.own().name), round), b.created)
	if err != nil {
		return 0, err
	}
	c.own().net.Reset()
	took, _, err := benchfigures.Measured(func() error {
		p, err := c.prepare(objects)
		if err != nil {
			return err
		}
		return p(ctx)
	})
	return took, err
}

// repair counts the requests for each object that another manager has edited, in
// a pass over these objects.
func (b *bench) repair(ctx context.Context, c contender) error {
	objects, err := b.mix(ctx, "repair-"+namespaced(c.own().name), 100)
	if err != nil {
		return err
	}
	p, err := c.prepare(objects)
	if err != nil {
		return err
	}
	if err := p(ctx); err != nil {
		return err
	}
	for _, o := range objects {
		if err := b.others.Edit(ctx, o); err != nil {
			return err
		}
	}
	pause(ctx, time.Second) // caches and views see the edits
	c.own().net.Reset()
	if err := p(ctx); err != nil {
		return err
	}
	b.book.Add(c.own().name+".repair_requests_per_object", c.own().perObject(len(objects)), "requests")
	var wrong []string
	for _, o := range objects {
		if ok, err := b.others.AsStated(ctx, o); err != nil || !ok {
			wrong = append(wrong, o.GetName())
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("%d of %d are not repaired: %s", len(wrong), len(objects), strings.Join(wrong, " "))
	}
	return nil
}
