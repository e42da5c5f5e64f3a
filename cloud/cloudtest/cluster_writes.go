package cloudtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed-9e1ffd66/trueup/cloud"
)

// write calls the fault hook, outside the lock, and counts.
func (c *Cluster) write(ctx context.Context, method, id string, do func() error) error {
	var fault Fault
	if c.Fault != nil {
		fault = c.Fault(Call{Operation: method, IDs: []string{id}})
	}
	if err := cmp.Or(fault.Err, ctx.Err()); err != nil && !fault.Lost {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	err := do()
	if err == nil {
		c.writes++
	}
	if fault.Twice {
		err = do()
	}
	return cmp.Or(fault.Err, err)
}

var errConflict = errors.New("conflict: the object has been modified")

// Mark implements [cloud.Nodes].
func (c *Cluster) Mark(ctx context.Context, m cloud.Mark) error {
	state := c.Fake.stateOf(m.Instance.ID)
	return c.write(ctx, "Mark", m.Instance.ID, func() error {
		n := c.nodes[m.Instance.ID]
		if n == nil {
			if m.Node == "" {
				return fmt.Errorf("node of machine %s: a name is required", m.Instance.ID)
			}
			n = &node{NodeStatus: cloud.NodeStatus{Name: m.Node, ID: m.Instance.ID}}
			n.Attestation = c.attested[m.Instance.ID]
			c.nodes[m.Instance.ID] = n
		} else if n.State != m.From {
			return fmt.Errorf("node %s is %q, not %q: %w", n.Name, n.State, m.From, errConflict)
		}
		switch {
		case state == "":
		case m.To == cloud.StateStandby && state != cloud.InstanceStopped:
			c.blame("machine %s is called standby while %s", m.Instance.ID, state)
		case m.To == cloud.StateRunning && !state.Powered() && !state.Ending():
			c.blame("machine %s is opened while %s", m.Instance.ID, state)
		}
		n.State, n.Since, n.Intent, n.closed = m.To, time.Now(), m.Intent, m.To != cloud.StateRunning
		switch m.To {
		case cloud.StateRunning:
			n.LastStarted = time.Now()
			n.Starting = m.From == cloud.StateStandby && !n.Ready
		case cloud.StateStandby:
			n.EmptySince, n.LastStarted, n.Starting = time.Time{}, time.Time{}, false
		default:
		}
		return nil
	})
}

// Drain implements [cloud.Nodes].
func (c *Cluster) Drain(ctx context.Context, name string) (int, error) {
	left := 0
	err := c.write(ctx, "Drain", name, func() error {
		left = 0
		for _, p := range c.pods {
			if n := c.nodes[p.node]; n != nil && n.Name == name {
				if p.pinned {
					left++
				} else {
					p.node = ""
				}
			}
		}
		return nil
	})
	return left, err
}

// SetEmpty implements [cloud.Nodes].
func (c *Cluster) SetEmpty(ctx context.Context, name string, empty bool) error {
	return c.write(ctx, "SetEmpty", name, func() error {
		for _, n := range c.nodes {
			if n.Name == name {
				n.EmptySince = time.Time{}
				if empty {
					n.EmptySince = time.Now()
				}
			}
		}
		return nil
	})
}

// Remove implements [cloud.Nodes].
func (c *Cluster) Remove(ctx context.Context, name, id string) error {
	return c.write(ctx, "Remove", id, func() error {
		if n := c.nodes[id]; n != nil && n.Name == name {
			delete(c.nodes, id)
		}
		return nil
	})
}

// Record implements [cloud.Journal].
func (c *Cluster) Record(ctx context.Context, intent cloud.LaunchIntent) error {
	return c.write(ctx, "Record", intent.Operation, func() error {
		c.ordinal = max(c.ordinal, intent.Ordinal)
		c.journal = slices.DeleteFunc(c.journal, func(l cloud.LaunchIntent) bool { return l.Ordinal == intent.Ordinal })
		c.journal = append(c.journal, intent)
		return nil
	})
}

// Erase implements [cloud.Journal].
func (c *Cluster) Erase(ctx context.Context, operation string) error {
	return c.write(ctx, "Erase", operation, func() error {
		c.journal = slices.DeleteFunc(c.journal, func(l cloud.LaunchIntent) bool { return l.Operation == operation })
		return nil
	})
}

// Outdate makes every present Node drifted, as a change of the template does.
func (c *Cluster) Outdate() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.nodes {
		n.Drifted = true
	}
}
