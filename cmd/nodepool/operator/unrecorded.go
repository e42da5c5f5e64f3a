package operator

import (
	"time"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/kube/nodes"
)

// unrecorded keeps the machines that start and whose Nodes say standby: another process
// has started them, or their Nodes could not be written. Pods wait for them for a while,
// and a pass of the pool opens them.
func (d *demandLoop) unrecorded(c nodes.Snapshot, pools map[string]*poolState, now time.Time) {
	for id, until := range d.inFlight {
		if until.IsZero() {
			continue
		}
		v, _ := c.OfMachine(id)
		if late := !now.Before(until); late || v.Status.State != cloud.StateStandby {
			delete(d.inFlight, id)
			if late {
				d.avoid[id] = now.Add(avoided)
			}
		}
	}
	for _, s := range pools {
		instances, listed := s.kept.List()
		for _, i := range instances {
			v, _ := c.OfMachine(i.ID)
			if i.State != cloud.InstancePending && i.State != cloud.InstanceRunning || v.Status.State != cloud.StateStandby ||
				!listed.After(v.Status.Since) {
				continue
			}
			if _, ok := d.inFlight[i.ID]; !ok && d.avoid[i.ID].IsZero() {
				d.inFlight[i.ID] = now.Add(patience)
			}
		}
	}
}
