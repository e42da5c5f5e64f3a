package replay

import (
	"encoding/json"
	"math"
	"slices"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/nodepool/chart"
)

// Result is what became of the pods with one value of minStandby.
type Result struct {
	MinStandby int `json:"minStandby"`
	// Pods is how many pods were replayed, Hits how many of them found room on a machine
	// that ran, started, or was on standby.
	Pods int `json:"pods"`
	Hits int `json:"hits"`
	// HitShare is Hits of Pods, from 0 to 1.
	HitShare float64 `json:"hitShare"`
	// Wait is how long pods waited from their arrival until they were on a machine.
	Wait Wait `json:"waitSeconds"`
	// Hours are the hours of all machines in each state.
	Hours Hours `json:"machineHours"`
	// Cost is what the machines cost: by Price while they warm up, start and run, and by
	// PriceStopped while they stop and are stopped.
	Cost float64 `json:"cost"`
	// Launched and Started count the machines that were launched and the starts, Evicted
	// the pods that were moved because a machine was over its runtime.
	Launched int `json:"launched"`
	Started  int `json:"started"`
	Evicted  int `json:"evicted"`
	// Unplaced are the names of the pods that fit on no machine of the type. They take no
	// part in anything above.
	Unplaced []string `json:"unplaced,omitempty"`
	// Samples are the machines and the pods that wait, whenever that has changed. The
	// counts have the order of States.
	Samples []chart.Sample `json:"-"`
}

// Wait is how long pods waited.
type Wait struct{ P50, P95, Max time.Duration }

// MarshalJSON writes seconds.
func (w Wait) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]float64{"p50": w.P50.Seconds(), "p95": w.P95.Seconds(), "max": w.Max.Seconds()})
}

// Hours are machine-hours by state.
type Hours struct {
	Warming  float64 `json:"warming"`
	Starting float64 `json:"starting"`
	Running  float64 `json:"running"`
	Stopping float64 `json:"stopping"`
	Standby  float64 `json:"standby"`
}

// Powered are the hours in which a machine is paid for as running.
func (h Hours) Powered() float64 { return h.Warming + h.Starting + h.Running }

// Stopped are the hours in which only its volume is.
func (h Hours) Stopped() float64 { return h.Stopping + h.Standby }

// waits summarizes waiting times. Each percentile is the waiting time at that share of the
// sorted times, rounded up.
func waits(all []time.Duration) Wait {
	if len(all) == 0 {
		return Wait{}
	}
	slices.Sort(all)
	at := func(share float64) time.Duration { return all[max(0, int(math.Ceil(share*float64(len(all))))-1)] }
	return Wait{P50: at(0.5), P95: at(0.95), Max: all[len(all)-1]}
}

// The places of the states in [chart.Sample.Counts], from the bottom of the picture.
const (
	running = iota
	starting
	warming
	stopping
	standby
	states
)
