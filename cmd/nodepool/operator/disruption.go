package operator

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
)

// disruptions returns how many good machines of a pool may be drained at a time now, for
// [cloud.Pool].Disruptions: the least of the budgets that apply. With an error none may.
func disruptions(p *v1alpha1.NodePool, now time.Time) (int, error) {
	least := -1
	for i, b := range p.Spec.Disruption.Budgets {
		applies, err := b.Schedule == "", error(nil)
		if !applies {
			applies, err = within(b, now)
		}
		var n int
		if err == nil {
			n, err = share(b.Nodes, int(p.Status.Running))
		}
		if err != nil {
			return -1, fmt.Errorf("spec.disruption.budgets[%d].%w", i, err)
		}
		if applies && (least < 0 || n < least) {
			least = n
		}
	}
	switch least {
	case -1:
		return 1, nil
	case 0:
		return -1, nil
	default:
		return least, nil
	}
}

// within reports whether the time is in one of the spans of a budget.
func within(b v1alpha1.DisruptionBudget, now time.Time) (bool, error) {
	schedule, err := cron.ParseStandard(b.Schedule)
	if strings.Contains(b.Schedule, "=") || strings.HasPrefix(b.Schedule, "@every") { // what cron has beyond its syntax
		err = errors.New("a time zone and @every are not supported")
	}
	if err != nil {
		return false, fmt.Errorf("schedule: is %q, must be in the syntax of cron, such as \"0 9 * * mon-fri\": %w", b.Schedule, err)
	}
	if b.Duration == nil {
		return false, errors.New("duration: is required with a schedule")
	}
	began := schedule.Next(now.UTC().Add(-b.Duration.Duration.Duration))
	if began.IsZero() {
		return false, fmt.Errorf("schedule: is %q, must match a time within five years", b.Schedule)
	}
	return !began.After(now), nil
}

// share is a number of machines, or a share of them, rounded up.
func share(text string, of int) (int, error) {
	number, percent := strings.CutSuffix(text, "%")
	n, err := strconv.Atoi(number)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("nodes: is %q, must be a number or a share, such as 2 or 10%%", text)
	}
	if percent {
		n = (n*of + 99) / 100
	}
	return n, nil
}
