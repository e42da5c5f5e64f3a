package buffers

import (
	"github.com/seed-9e1ffd66/trueup/cloud/demand"
	"github.com/seed-9e1ffd66/trueup/cloud/kube/pools"
)

// What tests see of a plan.
type (
	Ask     = ask
	Stock   = stock
	Input   = input
	Result  = result
	Outcome = outcome
	Error   = refusal
)

const MaxUnits = maxUnits

func Conditions() []string { return conditions() }

func Plan(in Input) Result { return plan(in) }

func (c *Controller) Input(asks []Ask, all map[string]*pools.Pool) Input { return c.input(asks, all) }

func (b *CapacityBuffer) Units(pod *demand.Pod, current int32) (int32, string, error) {
	return b.units(pod, current)
}

func (b *CapacityBuffer) Reference() (*TemplateRef, *ScalableRef, error) { return b.reference() }

func (c *Controller) Serves(b *CapacityBuffer) bool { return c.serves(b) }

func (s *Status) Report(template *TemplateRef, o Outcome) {
	s.report("example.com/standby", template, o)
}

func (s *Status) Refuse(err error) { s.refuse("example.com/standby", err) }
